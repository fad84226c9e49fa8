"""Changes of the table of cores: a partition gets another group, and the file is replaced as a whole (design 7.9)."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import yaml

from evenhand_cli.core_table import CoreGroup, CoreTable
from server.record import whole_file

_WIDTH: Final = 1 << 16
"""The maximum length of a line in the file of a table. This length is so large that each group is on one line."""


class BusyError(Exception):
    """The error of a table that another command is changing."""


@contextmanager
def alone(file: Path | None) -> Iterator[None]:
    """Keep other commands from changing the file of a table while the block runs.

    Raise BusyError if another command is changing the file, and OSError for an unreadable file.

    On a file system without locks, other commands can still change the file.
    """
    if file is None:
        yield
        return
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BusyError from error
        except OSError:
            pass
        yield
    finally:
        os.close(descriptor)


def moved(table: CoreTable, partition: str, to: str) -> CoreTable:
    """Return the table in which a partition belongs to another group, with the next revisions of both groups."""
    former = table.owner(partition)
    groups = []
    for one in table.groups:
        names = [each for each in one.partitions if each != partition]
        if one.name == to:
            names.append(partition)
        step = one.name in {to, former.name}
        groups.append(one._replace(partitions=tuple(names), revision=one.revision + step))
    return CoreTable(tuple(groups))


def text_of(table: CoreTable) -> str:
    """Return a table as YAML, with a line for each group."""
    return "cores:\n" + "".join(f"- {_line(one)}" for one in table.groups)


def _line(group: CoreGroup) -> str:
    row = {
        "name": group.name,
        "addresses": group.addresses.split(","),
        "partitions": list(group.partitions),
        "revision": group.revision,
    }
    return yaml.safe_dump(row, default_flow_style=True, sort_keys=False, width=_WIDTH)


def write(file: Path, table: CoreTable) -> None:
    """Replace the file of a table, with the mode and the owner that it had. Raise OSError on an error.

    Comments at the beginning of the file stay, and all other comments are lost.
    """
    place = file.resolve()
    lines = place.read_text().splitlines(keepends=True)
    count = next((at for at, one in enumerate(lines) if not one.startswith("#")), len(lines))
    text = "".join(lines[:count]) + text_of(table)
    whole_file.replace(place, [text.encode()])
