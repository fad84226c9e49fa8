"""The saving of the core's state to disk at intervals and at the end of the server. The next run continues from the saved state."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from server.core.core import Core
from server.core.events import moving
from server.core.events.moved import adopt
from server.model.assignment import Assignment
from server.model.events import ConfigurationApplied
from server.model.quota import Configuration
from server.model.reports import Finding
from server.model.revisions import Revision
from server.replication import saved
from server.replication.feed import Feed
from server.rpc.access import BadOptionError
from server.rpc.errors import CallError
from server.rpc.following import Replica
from server.rpc.reads import Question, Reads
from server.rpc.roles import LOCAL_OPERATOR
from server.rpc.table_revision import revision_of

_log = structlog.get_logger(__name__)

SAVE_S: Final = 15.0
"""The seconds between two saves of a state that changes.

If all cores crash, changes of waiting times and timers since the last save are lost.
"""
LOOK_S: Final = 1.0
"""The seconds between two checks of whether the first save of a run can be made."""


class Continued(NamedTuple):
    """The result of restoring a saved state.

    ``note`` says that the state's configuration is newer than the kept configuration. Otherwise ``note`` is "".
    """

    note: str = ""


def restore(
    path: Path,
    feed: Feed,
    core: Core,
    configuration: Configuration | None,
    *,
    is_earlier: bool = False,
) -> Continued | None:
    """Give the core the state that an earlier run saved. Return None if there is no saved state that can be used.

    If ``configuration`` is given and differs from the configuration of the saved state, ``configuration`` is applied to the
    saved state. There is one exception. ``is_earlier`` says that an earlier run wrote ``configuration`` to disk, and may have
    failed to write later configurations. In this case ``configuration`` is not applied if the saved state has a newer revision:
    one with a higher number, or with the same number and a later instant.

    The core keeps the revision with which it was made, and the configuration texts that managers sent last. The earlier run
    wrote this revision and these texts to disk at each change, while the saved state may be older. If the saved state has a
    higher revision number, the texts of the saved state are used, and no later revision gets a number that was used before. The
    core decides for the partitions that its options name, even if the earlier run had other partitions. Raise BadOptionError if
    the earlier run had a newer table of cores.
    """
    found = saved.read(path)
    if found.why_not:
        _log.warning("state-not-restored", why=found.why_not)
    if found.core is None or found.header is None:
        return None
    revision, given, assignment = core.state.revision, core.state.given, core.state.assignment
    _check_table(found.core.state.assignment, assignment)
    feed.adopt(found.core, found.header)
    state = core.state
    is_moved, state.assignment = state.assignment != assignment, assignment
    moving.take_named(state, feed.now)
    note = ""
    if is_earlier and _is_newer(state.revision, revision):
        note = (
            f"{state.revision} of the saved state is newer than {revision} of the kept configuration, "
            "which was not written since, so it is in force"
        )
        configuration = None
    if configuration is not None and configuration.digest != state.configuration.digest:
        _log.info("state-older-than-configuration", state=str(state.revision), kept=str(revision))
        core.handle(ConfigurationApplied(configuration, revision.source), feed.now)
        if revision.number < state.revision.number:
            state.revision = revision._replace(number=state.revision.number)
    elif is_moved:
        core.handle(ConfigurationApplied(state.configuration, state.revision.source), feed.now)
    if configuration is not None and revision.number >= state.revision.number:
        state.revision, state.given = revision, given
    _log.info("state-restored", position=feed.position, version=found.header.version)
    return Continued(note)


def _check_table(before: Assignment | None, assignment: Assignment | None) -> None:
    """Raise BadOptionError if the earlier run had a newer table of cores than this one."""
    known, now = revision_of(before), revision_of(assignment)
    if now < known:
        raise BadOptionError(
            f"--cores: the group has revision {now} in this table, and had revision {known} before: give it the newer table"
        )


def _is_newer(saved_one: Revision, kept: Revision) -> bool:
    """Return whether the revision of a saved state is newer than the kept revision, and has another configuration."""
    is_later = (saved_one.number, saved_one.at_ms) > (kept.number, kept.at_ms)
    return is_later and saved_one.digest != kept.digest


def take_over(path: Path, feed: Feed, core: Core) -> list[str]:
    """Copy partitions into this core from the saved state of their former owner, and return the names of these partitions.

    Partitions that this core does not own, or already has, are left out. Raise BadOptionError if the file cannot be used.
    """
    found = saved.read(path)
    if found.core is None or found.header is None:
        why = found.why_not or f"{path}: there is no such file"
        raise BadOptionError(f"--moved-from: {why}")
    former, state = found.core.state, core.state
    feed.now = max(feed.now, found.header.at_ms)
    taken = adopt(state, former)
    if taken and former.configuration.digest != state.configuration.digest:
        core.handle(ConfigurationApplied(state.configuration, state.revision.source), feed.now)
    _log.info("partitions-taken-over", partitions=taken, file=str(path))
    return taken


class Saving:
    """The saver of one core. A save runs in a copy of this process, so that it delays no decision."""

    def __init__(self, path: Path, feed: Feed, reads: Reads, replica: Replica) -> None:
        self._path = path
        self._feed = feed
        self._reads = reads
        self._taken_over = replica.taken_over
        self._numbers = count(1)
        self._position = feed.position
        self._is_first = True
        self.why_not = ""
        """The reason why the last save failed, or "" if it did not fail."""

    async def run(self) -> None:
        """Save the state every `SAVE_S` seconds if the core has received input since the last save.

        Save once soon after the start: when all managers have reported everything, or have resumed their sessions. Otherwise a
        core that is killed within `SAVE_S` of each of its starts would never save. Save also when the core has just joined a
        leader, because the saved state is then missing or old. A core that joins again within `SAVE_S` of a save is not saved
        earlier: joins that fail one after the other would keep the disk busy.
        """
        while True:
            await self._changed()
            await self.save()
            self._is_first = False
            await asyncio.sleep(SAVE_S)

    async def _changed(self) -> None:
        """Wait until the core has a state that is not saved.

        Check at once, then every `SAVE_S` seconds, and whenever a checkpoint was taken over. Before the first save, check every
        `LOOK_S` seconds.
        """
        while self._feed.position == self._position:
            self._taken_over.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(SAVE_S):
                    await (self._first() if self._is_first else self._taken_over.wait())

    async def _first(self) -> None:
        """Wait until a checkpoint was taken over, or until the core has received input and all its managers are synced."""
        while not self._taken_over.is_set():
            managers = self._feed.managers.values()
            is_synced = bool(managers) and all(one.synced for one in managers)
            if is_synced and self._feed.position != self._position:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._taken_over.wait()

    async def save(self) -> None:
        """Save the present state of the core to disk."""
        position = self._feed.position
        question = Question("Save", str(next(self._numbers)).encode(), LOCAL_OPERATOR)
        try:
            why = await self._reads.answer(question, self._write)
        except CallError as error:
            why = error.message.encode()
        self._note(why.decode(), position)

    def close(self) -> None:
        """Save the state after a normal end. The save runs in this process, because the core no longer decides anything."""
        if self._feed.position != self._position:
            self._note(self._write().decode(), self._feed.position)

    def set_aside(self) -> None:
        """Rename the file after the core failed, so that the next run starts empty: the core may fail in that state again."""
        try:
            aside = saved.set_aside(self._path)
        except OSError as error:
            _log.error("state-not-set-aside", file=str(self._path), why=error.strerror)
        else:
            _log.warning("state-set-aside", file=str(aside))

    def findings(self) -> Iterable[Finding]:
        """Return the doctor's finding about a state that could not be saved."""
        if self.why_not:
            advice = "Free space on the disk of --state-dir, or see who may write there; scheduling goes on meanwhile."
            yield Finding(
                "warning", "state", "state-not-saved", f"not saved: {self.why_not}", advice
            )

    def _write(self) -> bytes:
        """Write the file. Return the reason if the write failed, or b"" if it succeeded."""
        try:
            saved.write(self._path, self._feed.checkpoint())
        except OSError as error:
            return (error.strerror or str(error)).encode()
        return b""

    def _note(self, why: str, position: int) -> None:
        if why and why != self.why_not:
            _log.warning("state-not-saved", file=str(self._path), why=why)
        self.why_not = why
        if not why:
            self._position = position
