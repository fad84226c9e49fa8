"""`evenhand shim`: joins an embedded cluster to a core."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from evenhand_cli import terminal
from evenhand_cli.connect import (
    DEFAULT_CORE,
    CoreAddress,
    TlsCa,
    TlsCert,
    TlsKey,
    TokenFile,
    channel_credentials,
    checked_address,
    read_token,
)
from evenhand_cli.faults import ExitCode, Fault
from evenhand_cli.stopping import until_stopped
from server.observe import logs
from shim_client import bootstrap
from shim_client.config import BadSettingError
from shim_client.embedded.loading import BadFileError
from shim_client.link import connection
from shim_client.link.streams import SupersededError


def shim(
    cluster: Annotated[
        Path,
        typer.Option("--cluster", metavar="DIR", help="Directory of Kubernetes YAML or JSON."),
    ],
    core: CoreAddress = DEFAULT_CORE,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    token_file: TokenFile = None,
) -> None:
    """Runs an embedded cluster and joins it to a core, until SIGTERM or Ctrl-C."""
    credentials = channel_credentials(tls_ca, tls_cert, tls_key)
    token = read_token(token_file) if token_file else ""
    address = connection.CoreAddress(checked_address(core), credentials, token)
    logs.configure(sys.stderr)
    with shim_faults(core):
        opened = open_cluster(cluster)
        client = bootstrap.make_shim(opened.cluster, address, opened.settings)
        asyncio.run(until_stopped(bootstrap.run_shim(client, opened.cluster)))


def open_cluster(directory: Path) -> bootstrap.OpenedDirectory:
    """Loads a cluster directory, says what of it is left out. Raises Fault."""
    with shim_faults(""), terminal.patience(f"reading {directory}"):
        opened = bootstrap.open_directory(directory)
    if not (any(opened.cluster.nodes()) or any(opened.cluster.pods())):
        raise Fault(
            f"{directory} describes no cluster: there are neither nodes nor pods",
            where="--cluster",
            advice="name a directory with Kubernetes YAML or JSON files in it",
        )
    if opened.ignored:
        left_out = ", ".join(f"{count} {kind}" for kind, count in sorted(opened.ignored.items()))
        terminal.say(f"{directory}: left out, an embedded cluster has no use for it: {left_out}")
    return opened


@contextmanager
def shim_faults(core: str) -> Iterator[None]:
    """Turns the shim's errors into faults."""
    try:
        yield
    except BadFileError as error:
        raise Fault(
            str(error), where="--cluster", advice="correct it, or name another directory"
        ) from error
    except BadSettingError as error:
        raise Fault(
            str(error),
            where="ConfigMap yunikorn-defaults or yunikorn-configs of the cluster",
            advice="correct the setting",
        ) from error
    except connection.CoreRefusedError as error:
        raise Fault(
            str(error),
            where=f"core at {core}" if core else "the registration",
            advice="correct what the core names; a queues.yaml can be tried with"
            " `evenhand config check FILE`",
            code=ExitCode.UNREACHABLE,
        ) from error
    except SupersededError as error:
        raise Fault(
            "another shim took over under the same cluster id",
            where=f"core at {core}" if core else "the session",
            advice="run one shim for a cluster, or give them different cluster ids"
            " (service.clusterId)",
        ) from error
