"""The state of an earlier run with which a core starts, and the saving of the core's state for the next run (design 7.3)."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol

from server.core.core import Core
from server.model.reports import Finding
from server.replication import saved
from server.replication.feed import Feed
from server.rpc.endpoint import End, Endpoint
from server.rpc.following import Joining, Replica
from server.rpc.saving import Saving, restore, take_over
from server.startup.configuration import Begun


class Places(Protocol):
    """The options that say where the state is kept, and which cores this core follows."""

    @property
    def state_dir(self) -> Path | None:
        """The folder, or None if nothing is kept."""

    @property
    def trace(self) -> Path | None:
        """The file of the input trace."""

    @property
    def moved_from(self) -> Path | None:
        """The saved state of the core that owned some of this core's partitions before."""

    @property
    def follow(self) -> Joining:
        """The cores that this core may follow."""


def _state_file(options: Places) -> Path | None:
    """Return the file of the core's state.

    Return None for a core that writes an input trace. A core with a trace starts empty, as the replay of the trace does.
    """
    if options.state_dir is None or options.trace is not None:
        return None
    return options.state_dir / saved.NAME


def replica(
    options: Places, feed: Feed, core: Core, begun: Begun, process: str
) -> tuple[Replica, Begun]:
    """Give the core the saved state of an earlier run, if there is one, and the partitions that another core owned before.

    Raise BadOptionError if the saved state of the other core cannot be used. Return the `Replica`, which says whether the core
    leads from its start. Return also the updated ``begun``: if the configuration of the saved state was chosen, ``begun``
    describes that configuration. ``process`` is a name that no other process has.
    """
    path = _state_file(options)
    found = None
    if path is not None:
        found = restore(path, feed, core, begun.configuration, is_earlier=begun.is_earlier)
    if found is not None and found.note:
        begun = begun._replace(
            configuration=core.state.configuration, note=found.note, is_file=False
        )
    is_restored = found is not None
    if options.moved_from is not None:
        is_restored |= bool(take_over(options.moved_from, feed, core))
    return Replica(options.follow.names, restored=is_restored, process=process), begun


def saving(
    options: Places, feed: Feed, endpoint: Endpoint, stack: AsyncExitStack
) -> list[Callable[[], Iterable[Finding]]]:
    """Start the saving of the core's state, if the options name a place for it.

    Return functions that yield the doctor's findings about the saving. The list is empty if nothing is saved.
    """
    path = _state_file(options)
    if path is None:
        return []
    saver = Saving(path, feed, endpoint.reads, endpoint.replica)
    stack.callback(_end, saver, endpoint)
    stack.callback(asyncio.create_task(saver.run()).cancel)
    return [saver.findings]


def _end(saver: Saving, endpoint: Endpoint) -> None:
    """Save the state of a core that ended normally. Do not let the next run begin with the state of a core that failed."""
    if endpoint.end is End.FAILED:
        saver.set_aside()
    elif endpoint.end is End.ORDERLY:
        saver.close()
