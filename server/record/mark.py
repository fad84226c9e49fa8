"""The mark of a decision log: a small file that says how many lines have decisions that may have been sent.

From the mark, the next run learns how many lines a killed process lost. The file FILE.mark is one page that is mapped into
memory. Writing to the page takes a microsecond. The kernel keeps the page when the process is killed. The space on disk is
reserved from the start. In a loss of power, the latest writes to the page may be lost. The page has the id of the kernel's boot,
so that the next run notices a loss of power.
"""

import errno
import fcntl
import mmap
import os
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

from server.record.cell import CELL_BYTES, Cell, Page
from server.record.record_file import RecordError, opened

PAGE_BYTES: Final = 4096
MAGIC: Final = b"evenhand mark 1\n"
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

_DURABLE: Final = 1
_ENDED: Final = 2


class State(NamedTuple):
    """The content of a mark: facts about the run that wrote the mark last, here called the run.

    The number of lost lines of the run is ``handed`` minus ``accounted``, if the log has no line after the line ``number``.
    """

    boot: str
    """The boot id of the kernel when the run wrote the mark."""
    durable: bool
    """Whether the log of the run was durable."""
    ended: bool
    """Whether the run ended normally."""
    handed: int
    """The number of lines of the run whose decisions may have been sent."""
    handed_ms: int
    """The instant at which ``handed`` was last raised, in Unix milliseconds."""
    number: int
    """The number of the last line that the run is known to have written to the log."""
    accounted: int
    """The number of lines of the run that the log, up to the line ``number``, contains or reports as missing."""
    digest: str
    """The digest of the line ``number``."""
    unsure: bool
    """Whether an unknown number of lines of earlier runs is missing, which the log up to the line ``number`` does not report."""
    damaged: bool
    """Whether a part of the mark cannot be read, so that ``handed`` may be too small."""


class Carried(NamedTuple):
    """The state of the log at the beginning of a run: the last line of the log, and the missing lines that the log has yet to report."""

    number: int
    """The number of the last line."""
    digest: str
    """The digest of the last line."""
    lines: int
    """The number of missing lines that the log has yet to report."""
    unsure: bool
    """Whether more lines may be missing than ``lines``."""


class _Cells:
    """The cells of a mark's page: the run, the number of lines whose decisions may have been sent, and the last written line."""

    def __init__(self, page: Page) -> None:
        first = 2 * CELL_BYTES
        self.run = Cell(page, first, "<Q36s")
        self.handed = Cell(page, first + CELL_BYTES, "<QQ")
        self.settled = Cell(page, first + 2 * CELL_BYTES, "<QQ32s?")
        self.all = self.handed, self.settled, self.run


class Mark:
    """The mark of a log, open for writing by one run.

    The thread that decides calls `hand`. The thread that writes the log calls everything else.
    """

    def __init__(self, page: mmap.mmap) -> None:
        self._page = page
        self._cells = _Cells(page)
        self._run = 0
        self._flags = 0
        self._boot = b""

    @classmethod
    def opened(cls, log: Path) -> Self:
        """Open or create the mark of a log.

        Raise RecordError for a file that is not a mark, and OSError for a file that is not available.
        """
        descriptor = _opened(mark_of(log))
        try:
            os.posix_fallocate(descriptor, 0, PAGE_BYTES)
            page = mmap.mmap(descriptor, PAGE_BYTES)
            # If a child process had the page too, the file would stay locked until the child ends.
            page.madvise(mmap.MADV_DONTFORK)
            return cls(page)
        # The mapped length differs from the length of the file, which shows a faulty device.
        except ValueError as error:
            raise OSError(errno.EINVAL, str(error)) from error
        finally:
            os.close(descriptor)

    def state(self) -> State | None:
        """Return the state that an earlier run left. Return None if no slot can be read."""
        return state_of(self._page)

    def begin(self, carried: Carried, *, durable: bool, now: int) -> None:
        """Begin a run. The state of the earlier run can be read until the new state is written completely."""
        before = self._cells.run.newest()
        self._run = before.run + 1 if before else 1
        self._flags = _DURABLE if durable else 0
        self._boot = boot_id().encode()
        digest = bytes.fromhex(carried.digest)
        while True:
            self._cells.handed.write(self._run, carried.lines, now)
            self._cells.settled.write(self._run, carried.number, 0, digest, carried.unsure)
            self._cells.run.write(self._run, self._flags, self._boot)
            if all(cell.whole for cell in self._cells.all):
                break
        self._page[: len(MAGIC)] = MAGIC
        self.sync()

    def hand(self, lines: int, now: int) -> None:
        """Record that the decisions of this many lines of this run may be sent from now on."""
        self._cells.handed.write(self._run, lines, now)

    def settle(self, number: int, digest: str, accounted: int) -> None:
        """Record that ``accounted`` lines of this run are in the log, or reported there as missing.

        The last of these lines has the number ``number``.
        """
        self._cells.settled.write(self._run, number, accounted, bytes.fromhex(digest), 0)

    def close(self, *, ended: bool) -> None:
        """Release the page. If the run ended normally, first record that in the page."""
        if ended:
            self._cells.run.write(self._run, self._flags | _ENDED, self._boot)
        self.sync()
        self._page.close()

    def sync(self) -> None:
        """Sync the page, so that it survives a loss of power if the disk works."""
        with suppress(OSError):
            self._page.flush()


def mark_of(log: Path) -> Path:
    """Return the path of a log's mark."""
    return log.with_name(f"{log.name}.mark")


def read_mark(log: Path) -> State | None:
    """Return the state in the mark of a log. Return None if there is no mark that can be read."""
    try:
        text = bytearray(mark_of(log).read_bytes()[:PAGE_BYTES])
    except OSError:
        return None
    return state_of(text.ljust(PAGE_BYTES, b"\0")) if text.startswith(MAGIC) else None


def state_of(page: Page) -> State | None:
    """Return the state that a mark's page holds. Return None if the page names no run."""
    cells = _Cells(page)
    run = cells.run.newest()
    if run is None:
        return None
    flags, boot = run.values
    handed, settled = cells.handed.newest(run.run), cells.settled.newest(run.run)
    damaged = handed is None or settled is None or not all(cell.whole for cell in cells.all)
    count, at_ms = handed.values if handed else (0, 0)
    number, accounted, digest, unsure = settled.values if settled else (0, 0, b"", True)
    return State(
        boot.decode("ascii", "replace"),
        bool(flags & _DURABLE),
        bool(flags & _ENDED),
        count,
        at_ms,
        number,
        accounted,
        digest.hex(),
        unsure,
        damaged,
    )


def boot_id() -> str:
    """Return the boot id of the kernel. Return "" if the kernel has no boot id.

    A new id shows that pages that were only in memory are lost.
    """
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _opened(path: Path) -> int:
    """Open the mark file of a log, even if this file is new or damaged, and return its descriptor.

    Raise the errors that `Mark.opened` raises.
    """
    try:
        descriptor = opened(path)
    except RecordError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in _NOT_TO_BE_HAD:
            raise error.__cause__ from error
        raise
    beginning = os.pread(descriptor, len(MAGIC), 0)
    if beginning.rstrip(b"\0") != MAGIC[: len(beginning.rstrip(b"\0"))]:
        os.close(descriptor)
        raise RecordError(f"{path}: is no mark of a decision log; move it away")
    # Where a file system cannot reserve space, the C library writes zeros. It refuses to do so on a descriptor that
    # appends.
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~os.O_APPEND)
    return descriptor


_NOT_TO_BE_HAD: Final = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT}
