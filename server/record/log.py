"""The decision log: an append-only file in which each line names the digest of the line before it.

Writing never raises. Lines that cannot be written wait in memory, and are dropped only beyond a limit. Dropped lines are counted,
and a line reports their number as soon as writing works again. A full file is renamed to the number of its first line. The chain
continues in the next file. Lines that a killed process lost are counted by the next process, from the mark beside the log
(`server.record.mark`). If the log is durable, decisions are sent only after `sync` has returned that their lines are safe.
Otherwise decisions are sent before their lines are written.
"""

import os
from pathlib import Path
from typing import Final

import structlog

from server.record.chain import CORE_KINDS, KILLED, Entry
from server.record.ending import Ending, Missing, ending, gap
from server.record.mark import Carried, Mark, boot_id, read_mark
from server.record.record_file import PENDING_BYTES_MAX, Appender, RecordError, opened
from server.record.tail import Tail, piece, pieces, read_tail

FILE_BYTES_MAX: Final = 64 << 20
"""The size in bytes at which a file is full."""

_log = structlog.get_logger("server.record")


class DecisionLog:
    """A decision log that is open for writing.

    ``uncounted`` is the reason why the lines that this process would lose if it were killed cannot be counted. The reason is ""
    if these lines can be counted.
    """

    def __init__(
        self,
        path: Path,
        now: int,
        file_max: int = FILE_BYTES_MAX,
        pending_max: int = PENDING_BYTES_MAX,
        *,
        durable: bool = False,
    ) -> None:
        """Open or create the log, check the end of the file, and continue the chain there. Raise RecordError for an unusable file."""
        self._path = path
        self._file_max = file_max
        self._pending_max = pending_max
        self.durable = durable
        self._folder_synced = not durable
        descriptor = opened(path)
        try:
            tail = self._tail(descriptor)
            self.uncounted = ""
            self._mark = self._opened_mark()
            ended = self._ending(tail)
        except (OSError, RecordError):
            os.close(descriptor)
            raise
        self._file = Appender(descriptor, pending_max, durable=durable)
        self._first = tail.first
        self.chain = tail.chain
        self.lost = ended.missing.lines if ended.missing else 0
        """The number of lines that will never be written, including the lines that the previous run lost."""
        self.gaps = int(ended.missing is not None)
        """The number of series of consecutive lost lines."""
        self.failing = ""
        """The reason why the log cannot be written now, "" if it can be written."""
        self._gap: tuple[int, int, int] | None = None
        self._handed = self.lost
        self._accounted = self.lost
        self._settled = -1
        self._begin(tail, ended, now)
        self.flush()

    def _opened_mark(self) -> Mark | None:
        """Open and return the log's mark, the file FILE.mark (see `server.record.mark`). Return None if the file cannot be opened.

        Lines are written even without this file, but a later run then cannot count the lines that a killed process lost.
        """
        try:
            return Mark.opened(self._path)
        except OSError as error:
            self.uncounted = f"no mark beside the log: {(error.strerror or str(error)).lower()}"
            _log.warning("decision-log-unmarked", file=str(self._path), problem=self.uncounted)
            return None

    def _ending(self, tail: Tail) -> Ending:
        state = self._mark.state() if self._mark is not None else read_mark(self._path)
        return ending(self._path, tail.chain, tail.last, state, boot_id())

    def _begin(self, tail: Tail, ended: Ending, now: int) -> None:
        """Record the beginning of the run in the mark file.

        Then record in the log any fault at the log's end, and how the previous run ended.
        """
        if self._mark is not None:
            number, digest = self.chain.number - 1, self.chain.previous
            unsure = ended.missing is not None and ended.missing.more
            carried = Carried(number, digest, self.lost, unsure)
            self._mark.begin(carried, durable=self.durable, now=now)
        for one in tail.found:
            _log.warning("decision-log-damaged", file=str(self._path), found=one.kind, **one.facts)
            self.note(Entry(now, one.kind, one.facts))
        if ended.killed:
            _log.warning("decision-log-killed", file=str(self._path))
            self.note(Entry(now, KILLED, {}))
        if ended.missing is not None:
            found = gap(ended.missing, now)
            _log.warning("decision-log-lines-missing", file=str(self._path), **found.facts)
            self.note(found)

    def _tail(self, descriptor: int) -> Tail:
        """Cut an incomplete last line off the file, and return the end of the file.

        If the server ended between two files, return the end of the newest full file.
        """
        tail = read_tail(descriptor, self._path)
        os.ftruncate(descriptor, tail.size)
        older = pieces(self._path)
        if tail.size or not older:
            return tail
        full = opened(older[-1])
        try:
            before = read_tail(full, older[-1])
        finally:
            os.close(full)
        return Tail(before.chain, 0, before.chain.number, [*before.found, *tail.found])

    def hand(self, lines: int, now: int) -> None:
        """Record in the mark file that the decisions of the next ``lines`` lines may be sent.

        The lines of these decisions may still have to be written.
        """
        self._handed += lines
        if self._mark is not None:
            self._mark.hand(self._handed, now)

    def note(self, entry: Entry) -> None:
        """Add a line about the log itself. Unlike other lines, this line is never dropped, however many lines wait already."""
        self._close_gap()
        self._append(entry, last=True)

    def add(self, entry: Entry) -> None:
        """Add one entry, which `flush` writes. If too many bytes wait already, count the line of the entry as missing instead."""
        self._close_gap()
        if self._gap is not None or not self._append(entry):
            self.miss(entry.at_ms)
        else:
            self._accounted += entry.kind in CORE_KINDS

    def miss(self, at_ms: int) -> None:
        """Count a line as missing, because it was not made in time or because there is no space for it.

        A `gap` line will report the missing line.
        """
        self.gaps += self._gap is None
        count, first, _ = self._gap or (0, at_ms, 0)
        self._gap = count + 1, first, at_ms
        self.lost += 1

    def flush(self) -> None:
        """Write as much of the added lines as the disk takes."""
        self._file.flush()
        self._close_gap()
        self._file.flush()
        if not self.durable:
            self._settle()
            self._report(self._file.failing or self._rotated())

    def sync(self) -> bool:
        """Retry failed writes, sync the file, and return whether all lines would survive a loss of power."""
        self.flush()
        self._file.sync()
        problem = self._file.failing or self._sync_folder()
        if self.durable and not problem:
            self._settle()
            problem = self._rotated()
        self._report(problem)
        return not problem

    def close(self) -> None:
        """Close the log, after one more attempt to write."""
        self.flush()
        self._file.close()
        if self._mark is not None:
            self._mark.close(ended=True)
            self._mark = None

    def _settle(self) -> None:
        """Record in the mark file the number of the last line that is written to the log."""
        number = self.chain.number - 1
        whole = self._file.settled and self._gap is None
        if self._mark is not None and whole and number != self._settled:
            self._mark.settle(number, self.chain.previous, self._accounted)
            self._settled = number

    def _append(self, entry: Entry, *, last: bool = False) -> bool:
        written = self.chain.line(entry)
        taken = self._file.append(written, last=last)
        if taken:
            self.chain.passed(written)
        return taken

    def _close_gap(self) -> None:
        """Add a line that reports the missing lines, if every line before it is written."""
        if self._gap is None or not self._file.settled:
            return
        count, first, last = self._gap
        missing = Missing(count, more=False, from_ms=first, to_ms=last, why="")
        self._append(gap(missing, last))
        self._accounted += count
        self._gap = None

    def _sync_folder(self) -> str:
        """Sync the folder of a durable log, so that file names survive a loss of power. Return the error, or "" if there is no error."""
        if self._folder_synced:
            return ""
        try:
            folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            return (error.strerror or str(error)).lower()
        self._folder_synced = True
        return ""

    def _rotated(self) -> str:
        """Rename the file if it is full, and begin the next file. If the renaming fails, return the reason. Otherwise return ""."""
        if not self._file.settled or self._file.size < self._file_max:
            return ""
        following = self._path.with_name(f"{self._path.name}.next")
        try:
            descriptor = opened(following)
            self._path.rename(piece(self._path, self._first))
            following.rename(self._path)
        except (OSError, RecordError) as error:
            return str(error)
        self._file.close()
        self._file = Appender(descriptor, self._pending_max, durable=self.durable)
        self._folder_synced = not self.durable
        self._first = self.chain.number
        return ""

    def _report(self, problem: str) -> None:
        """Log a line in the server's own log when writing begins to fail, and another when it works again."""
        if problem and not self.failing:
            _log.error("decision-log-failing", file=str(self._path), problem=problem)
        elif self.failing and not problem:
            _log.warning("decision-log-works-again", file=str(self._path), lost=self.lost)
        self.failing = problem
