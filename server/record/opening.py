"""The opening of files of records: for one writer alone, and never of another kind of file or one that all may change."""

import errno
import fcntl
import os
import stat
from pathlib import Path
from typing import Final

from server.record.appender import MODE
from server.record.file_modes import refused_file, refused_owner

_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


class RecordError(Exception):
    """The error of a record that cannot be begun; ``str()`` says which file and what to do."""


def opened(path: Path) -> int:
    """Return a descriptor that appends, locked against other writers. Raises RecordError."""
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
    """Return whether another process writes to the file. Raises OSError."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def check_file(path: Path, found: os.stat_result) -> None:
    """Raise RecordError for a file that other users may write to, or have put there."""
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
