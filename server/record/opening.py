"""Opens files of records for one writer alone, and never a file that is something else or that everybody may change."""

import errno
import fcntl
import os
import stat
from pathlib import Path
from typing import Final

from server.record.appending import MODE

_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


class RecordError(Exception):
    """A record that cannot be begun; ``str()`` says which file and what to do."""


def opened(path: Path) -> int:
    """A descriptor that appends, locked against other writers. Raises RecordError."""
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
    """Does another process write to the file? Raises OSError."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _take(descriptor: int, path: Path) -> None:
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        raise RecordError(f"{path}: is no regular file; name one")
    if mode & stat.S_IWOTH:
        raise RecordError(
            f"{path}: everybody may write to it (mode {stat.S_IMODE(mode):04o}); run chmod o-w {path}"
        )
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise RecordError(
            f"{path}: another process writes to it; give each server a file of its own"
        ) from error
