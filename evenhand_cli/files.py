"""The reading of files that the user names.

If a file cannot be read, a fault names the file and the reason.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from evenhand_cli.faults import Fault

FILE_BYTES_MAX = 16 * 1024 * 1024


def unreadable(path: Path, error: OSError, where: str) -> Fault:
    """Return the Fault for a file that cannot be read."""
    return Fault(
        f"cannot read {path}: {(error.strerror or str(error)).lower()}",
        where=where,
        advice="name a file that exists and that you may read",
    )


def read_bytes(path: Path, where: str) -> bytes:
    """Return the content of a file. `where` names the option or argument that gave the path.

    Raises Fault if the file cannot be read or is larger than FILE_BYTES_MAX.
    """
    try:
        if path.is_file() and path.stat().st_size > FILE_BYTES_MAX:
            raise Fault(
                f"{path} is larger than {FILE_BYTES_MAX:,} bytes",
                where=where,
                advice="name the right file",
            )
        return path.read_bytes()
    except OSError as error:
        raise unreadable(path, error, where) from error


@contextmanager
def opened(path: Path, where: str) -> Iterator[BinaryIO]:
    """Open a file of any size, to be read line by line. Raises Fault when the file cannot be opened."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise unreadable(path, error, where) from error
    with file:
        yield file


def read_text(path: Path, where: str) -> str:
    """Return the content of a text file in UTF-8.

    Raises Fault if the file cannot be read, is larger than FILE_BYTES_MAX, or is not UTF-8.
    """
    content = read_bytes(path, where)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise Fault(
            f"{path} is not UTF-8 text",
            where=f"{path}:{line}",
            advice="save it as UTF-8, or name the right file",
        ) from error
