"""Files that are replaced as a whole: the configuration in force, and the state of the core.

A new file is written completely beside the old file, synced, and then renamed to the name of the old file. After a crash the
folder thus has one whole file: either the old file or the new file.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from server.record.record_file import RecordError, check_file

_READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write(path: Path, parts: Iterable[bytes], mode: int) -> None:
    """Write the file. Raise OSError on an error. After an error, the old file stays as it is, unless only the sync of the folder failed.

    If that sync failed, the new file is in place, but a loss of power may bring the old file back.
    """
    _write(path, parts, mode, None)


def replace(path: Path, parts: Iterable[bytes]) -> None:
    """Replace a file that exists, as `write` does. The new file gets the mode of the old file.

    The new file also gets the owner and group of the old file if this process may set them.
    """
    found = path.stat()
    _write(path, parts, found.st_mode & 0o777, found)


def _write(path: Path, parts: Iterable[bytes], mode: int, like: os.stat_result | None) -> None:
    following = path.with_name(f"{path.name}.new")
    following.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(following, _WRITE_FLAGS, mode), "wb") as file:
            if like is not None:
                with suppress(PermissionError):
                    os.fchown(file.fileno(), like.st_uid, like.st_gid)
                os.fchmod(file.fileno(), mode)
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        following.replace(path)
    except OSError:
        following.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open the file for reading.

    Raise OSError if the file cannot be opened. Raise RecordError if it is no regular file, or if other users may write to it.
    """
    with os.fdopen(os.open(path, _READ_FLAGS), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise RecordError(f"{path}: is no regular file; move it away")
        check_file(path, found)
        yield file


def _sync_folder(folder: Path) -> None:
    """Sync the folder, so that the new name also survives a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
