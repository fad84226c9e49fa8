"""The tasks of a shim for its embedded cluster in addition to scheduling.

The shim saves the state of the cluster, follows its files, and answers cluster commands.
"""

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from evenhand_cli.faults import Fault
from shim_client import cluster_service
from shim_client.bootstrap import LiveDirectory
from shim_client.embedded.cluster import EmbeddedCluster
from shim_client.embedded.keeping import NoStateError, StateFile, StateInUseError
from shim_client.embedded.loading import QUEUES_FILE
from shim_client.embedded.saved import BadStateError
from shim_client.messages import ConfigurationAnswer
from shim_client.shim import Shim
from shim_client.state_machine.objects.configuration import text_of

Say = Callable[[str], None]

_log = structlog.get_logger("evenhand.shim")


@dataclass(frozen=True, slots=True)
class KeptState:
    """The open state file of an embedded cluster.

    `file` is None if no state can be kept.
    """

    file: StateFile | None

    def close(self) -> None:
        """Close the state file, so that another process can open it."""
        if self.file is not None:
            self.file.close()


def state_file(folder: Path, given: Path | None) -> KeptState:
    """Open the state of an embedded cluster in `folder`, which is `given` or the default.

    Raises Fault if another process uses the folder, or if the given folder cannot be used.

    When the default folder cannot be used for another reason, a warning is logged and no state is kept.
    """
    try:
        return KeptState(StateFile(folder))
    except StateInUseError as error:
        raise Fault(
            str(error),
            where="--state",
            advice="end the other shim, or give this one a folder of its own with --state DIR",
        ) from error
    except NoStateError as error:
        if given is not None:
            raise Fault(
                str(error), where="--state", advice="name a folder that you may write"
            ) from error
        _log.warning(
            "the cluster is not kept for the next start", why=str(error), do="give --state DIR"
        )
        return KeptState(None)


@contextmanager
def state_faults() -> Iterator[None]:
    """Raise a Fault for each error of a state file in the `with` block."""
    try:
        yield
    except BadStateError as error:
        raise Fault(
            f"the state that was kept cannot be used: {error}",
            where="--state",
            advice="begin with the manifests again with --fresh, or name another folder with --state DIR",
        ) from error
    except NoStateError as error:
        raise Fault(
            str(error), where="--state", advice="name a folder that you may write"
        ) from error


def following(live: LiveDirectory, shim: Shim, say: Say, warn: Say) -> Coroutine[Any, Any, None]:
    """Return the coroutine that applies changed files to the cluster, and sends a changed queues.yaml to the core.

    `say` is called with the changes that were made, and `warn` with the reason why the core refused a queues.yaml.
    """
    file = live.folder.directory / QUEUES_FILE

    def tell(answer: ConfigurationAnswer) -> None:
        (say if answer.applied else warn)(f"{file}: {text_of(answer)}")

    shim.on_configured.append(tell)
    configure = shim.configure if live.opened.settings.hot_refresh else None
    return live.folder.follow(say, configure)


def service_of(cluster: EmbeddedCluster, listen: str, say: Say) -> Coroutine[Any, Any, None]:
    """Return the coroutine that answers cluster commands, and pass the address of its service to `say`.

    An event loop must run. Raises Fault if the address cannot be used.

    When `listen` is empty and another cluster has the default address, a free port is taken: two clusters may run at
    once.
    """
    default = cluster_service.DEFAULT_ADDRESS
    try:
        try:
            server, address = cluster_service.listening(listen or default)
            say(f"cluster commands at {address}")
        except cluster_service.NoAddressError:
            if listen:
                raise
            server, address = cluster_service.listening("127.0.0.1:0")
            say(f"cluster commands at {address} (give them --address): {default} is in use")
    except cluster_service.NoAddressError as error:
        raise Fault(
            str(error),
            where="--cluster-listen",
            advice="give a free port of this machine, such as 127.0.0.1:0",
        ) from error
    return cluster_service.serve(cluster, server)
