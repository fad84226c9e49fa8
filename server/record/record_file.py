"""Files of records. Each file has a single writer. Appending never raises. Lines that cannot be written wait, up to a limit."""

import errno
import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from server.record.file_modes import refused_file, refused_owner

PENDING_BYTES_MAX: Final = 32 << 20
"""The number of bytes that may wait while the disk fails. Further lines are refused."""
MODE: Final = 0o640
"""The mode of the files. Only owner and group may read such files, because they name pods and queues of all tenants."""


class Appender:
    """The writer of one open file. ``failing`` says why nothing can be written at the moment. ``failing`` is empty if writing works.

    For a durable file, lines are kept in memory until they are synced, so that they can be written again. If a kernel fails to
    write pages to disk, it may drop these pages. The next sync then succeeds although the pages are lost.
    """

    def __init__(
        self, descriptor: int, pending_max: int = PENDING_BYTES_MAX, *, durable: bool = False
    ) -> None:
        self._descriptor = descriptor
        self._kept: list[bytes] | None = [] if durable else None
        self._pending: list[bytes] = []
        self._pending_max = pending_max
        self._waiting = 0
        self._unsynced = False
        self.failing = ""
        self.size = os.fstat(descriptor).st_size

    @property
    def settled(self) -> bool:
        """Whether everything is written to the file."""
        return not self._pending

    def append(self, lines: bytes, *, last: bool = False) -> bool:
        """Accept whole lines and return True. If other lines wait and the limit would be exceeded, accept no line and return False.

        The last line of a file (``last``) is always accepted, and a durable file accepts every line.
        """
        limited = not last and self._kept is None
        if limited and self._waiting and self._waiting + len(lines) > self._pending_max:
            return False
        self._pending.append(lines)
        self._waiting += len(lines)
        return True

    def flush(self) -> None:
        """Write as many of the waiting bytes as the disk accepts now."""
        if not self._pending:
            return
        left = memoryview(b"".join(self._pending))
        try:
            while left:
                written = os.write(self._descriptor, left)
                self.size += written
                self._unsynced = True
                if self._kept is not None:
                    self._kept.append(bytes(left[:written]))
                left = left[written:]
            self.failing = ""
        except OSError as error:
            self.failing = _why(error)
        self._waiting = len(left)
        self._pending = [bytes(left)] if left else []

    def sync(self) -> None:
        """Sync the file, so that the written lines survive a loss of power."""
        if not self._unsynced:
            return
        try:
            os.fsync(self._descriptor)
            self._unsynced = False
            self._kept = None if self._kept is None else []
            self.failing = "" if self.settled else self.failing
        except OSError as error:
            self.failing = _why(error)
            self._write_again()

    def _write_again(self) -> None:
        """Queue the lines that were kept because they are not synced. The kernel may have lost the pages of these lines."""
        if not self._kept:
            return
        lost = b"".join(self._kept)
        with suppress(OSError):
            os.ftruncate(self._descriptor, self.size - len(lost))
            self.size -= len(lost)
            self._pending.insert(0, lost)
            self._waiting += len(lost)
            self._kept = []

    def close(self) -> None:
        """Close the file, after one more attempt to write."""
        self.flush()
        self.sync()
        os.close(self._descriptor)


def _why(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


class RecordError(Exception):
    """The error of a file that cannot be opened for recording. The text of the error names the file and says what to do."""


def opened(path: Path) -> int:
    """Return a descriptor that appends and locks the file, which is created if missing.

    Raise RecordError if the file cannot be opened or locked.
    """
    try:
        descriptor = os.open(path, _FLAGS, MODE)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise RecordError(f"{path}: is a symbolic link; name the file itself") from error
        raise RecordError(f"{path}: {error.strerror}; name a file that can be written") from error
    try:
        _take(descriptor, path)
    except (OSError, RecordError):
        os.close(descriptor)
        raise
    return descriptor


def is_locked(path: Path) -> bool:
    """Return whether another process writes to the file. Raise OSError if the file cannot be opened."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def check_file(path: Path, found: os.stat_result) -> None:
    """Raise RecordError for a file that other users may write to, or that another user has put there."""
    folder = path.absolute().parent.stat()
    why = refused_file(path, found) or refused_owner(path, found, folder, os.geteuid())
    if why:
        raise RecordError(why)


def _take(descriptor: int, path: Path) -> None:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise RecordError(f"{path}: is no regular file; name one")
    check_file(path, found)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise RecordError(
            f"{path}: another process writes to it; give each server a file of its own"
        ) from error
