"""The keeper, which keeps the configuration in force on disk: a thread writes the file, and retries writes that fail."""

import asyncio
import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from server.model.decisions import Decisions
from server.model.reports import Finding
from server.model.revisions import Revision
from server.record.kept import Kept, write_kept
from server.record.record_file import RecordError
from server.record.recording import Health, Job

NAME: Final = "configuration"
WAIT_S: Final = 5.0
"""The seconds that the answer to `config apply` waits for the disk."""
NO_PLACE: Final = "the core was started without `--state-dir` and `--decision-log`"
NOT_KEPT_ADVICE: Final = "Write it into the file of `serve --config`, on Kubernetes into the ConfigMap; or start the core with one of the two."

InForce = tuple[Revision, Mapping[str, str]]
"""The revision in force, and the digest of the configuration that each manager sent last."""


class Keeper:
    """The writer of the configuration in force. The pump (see docs/glossary.md) calls this object after each slice.

    If the configuration in force has changed since the last call, it is written to disk. ``now`` returns the revision and the
    digests in force. ``kept`` returns the content to write, or None if nothing is to be written.
    """

    def __init__(
        self,
        path: Path,
        now: Callable[[], InForce],
        kept: Callable[[], Kept | None],
        run: Callable[[Job], None],
    ) -> None:
        self._path = path
        self._now = now
        self._kept = kept
        self._run = run
        self._handed: InForce | None = None
        self._wanted: Kept | None = None
        self._is_queued = False
        self._failing = ""

    def decided(self, _decisions: Decisions, _now: int) -> None:
        """Do nothing, because the configuration in force is checked once for each slice."""

    def sliced(self, _events: int, _seconds: float, _now: int) -> None:
        """Queue the configuration in force for writing if it has changed since the last call."""
        now = self._now()
        if self._handed is None or any(
            one is not other for one, other in zip(now, self._handed, strict=True)
        ):
            self._handed = now
            if (kept := self._kept()) is not None:
                self._wanted = kept
                self._queue()

    def idle(self) -> None:
        """Do nothing, because the keeper has no work between slices."""

    def retry(self) -> None:
        """Retry a write that failed. The server calls this method at intervals."""
        if self._failing:
            self._queue()

    def why_not_kept(self) -> str:
        """Return why the last write failed. Return "" if the last write succeeded, or if there was no write yet."""
        return f"{self._path}: {self._failing}" if self._failing else ""

    async def settled(self) -> str:
        """Return why the configuration in force is not on disk. Return "" if the configuration is on disk.

        Wait first until everything queued so far was written or has failed. After WAIT_S seconds, return that the disk is slow.
        """
        loop = asyncio.get_running_loop()
        done = asyncio.Event()
        self._run(lambda: _set(loop, done))
        try:
            await asyncio.wait_for(done.wait(), WAIT_S)
        except TimeoutError:
            return f"{self._path}: its disk takes longer than {WAIT_S:g} s"
        return self.why_not_kept()

    def health(self) -> dict[str, Health]:
        """Return the health of the file, under the name `configuration`."""
        return {NAME: Health(0, self._failing)}

    def findings(self) -> Iterator[Finding]:
        """Yield the doctor's findings about the file."""
        if why := self.why_not_kept():
            message = f"the configuration in force would be lost in a crash: {why}"
            advice = "Free space on its disk, or see who may write there; it is tried again."
            yield Finding("warning", NAME, "record-failing", message, advice)

    def _queue(self) -> None:
        """Queue a write of the latest configuration, unless a write is queued already. On a slow disk, many changes need only one write."""
        if not self._is_queued:
            self._is_queued = True
            self._run(self._write)

    def _write(self) -> None:
        """Write the latest configuration. This method runs in the thread that writes."""
        self._is_queued = False
        assert self._wanted is not None
        try:
            write_kept(self._path, self._wanted)
        except OSError as error:
            self._failing = (error.strerror or str(error)).lower()
        else:
            self._failing = ""


class NotKept:
    """The replacement of a `Keeper` on a server that has no path at which a configuration could be kept."""

    def __init__(self, revision: Callable[[], Revision] = Revision) -> None:
        self._revision = revision

    def health(self) -> dict[str, Health]:
        """Return no health, because there is no file."""
        return {}

    def findings(self) -> Iterator[Finding]:
        """Yield a finding if an operator applied a configuration, because a crash would lose this configuration.

        Configurations from files and ConfigMaps are not lost, because the next run reads these sources again.
        """
        if not (revision := self._revision()).standing:
            message = f"{revision} would be lost in a crash: {NO_PLACE}"
            yield Finding("note", NAME, "configuration-not-kept", message, NOT_KEPT_ADVICE)

    def why_not_kept(self) -> str:
        """Return a text that says that the server has no path at which a configuration could be kept."""
        return NO_PLACE

    async def settled(self) -> str:
        """Return the text of `why_not_kept`, without waiting."""
        return NO_PLACE


def locked(folder: Path) -> int:
    """Return a file descriptor that locks this folder. Raise RecordError if another server has locked the folder."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise RecordError(f"{folder}: {error.strerror}; name a folder that exists") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        what = "another process keeps its configuration there"
        raise RecordError(f"{folder}: {what}; give each server a folder of its own") from error
    return descriptor


def _set(loop: asyncio.AbstractEventLoop, done: asyncio.Event) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(done.set)
