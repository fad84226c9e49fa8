"""Opens files of records for one writer alone, and never a file that is something else."""

import fcntl
import os
import stat
from pathlib import Path
from typing import Final

from server.record.appending import MODE

_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class RecordError(Exception):
    """A record that cannot be begun; ``str()`` says which file and what to do."""


def opened(path: Path) -> int:
    """A descriptor that appends, locked against other writers. Raises RecordError."""
    try:
        descriptor = os.open(path, _FLAGS, MODE)
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}; name a file that can be written") from error
    try:
        _take(descriptor, path)
    except (OSError, RecordError):
        os.close(descriptor)
        raise
    return descriptor


def _take(descriptor: int, path: Path) -> None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise RecordError(f"{path}: is no regular file; name one")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise RecordError(
            f"{path}: another process writes to it; give each server a file of its own"
        ) from error
