"""Counters of faults that took effect, in a file: the processes of a run increase them, and the counts survive a kill."""

import mmap
from collections import Counter
from pathlib import Path
from typing import Final

BYTES_OF_ONE: Final = 8
NAMES: Final = (
    # Launcher: writes of the core to its disk, and its reads of the wall clock.
    "writes",
    "written bytes",
    "writes slowed",
    "writes refused",
    "writes on a full disk",
    "clock reads",
    "clock reads shifted",
    # Proxy: data that was passed on late, and connections that were broken.
    "pieces delayed",
    "pieces narrowed",
    "pieces held",
    "pieces parted",
    "connections cut",
    "connections half-closed",
    # Hostile clients: calls that the core answered, streams that it opened, connections that it
    # accepted.
    "calls answered",
    "streams opened",
    "connections taken",
    # Shim: asks with their own node selector.
    "selectors asked",
)
PLACES: Final = {name: place for place, name in enumerate(NAMES)}


def make(path: Path) -> None:
    """Make a file of counters, all zero."""
    path.write_bytes(bytes(BYTES_OF_ONE * len(NAMES)))


class Counts:
    """The counters of a file. Only one process at a time increases a given counter."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._cells = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")

    def add(self, name: str, amount: int = 1) -> None:
        """Raise a counter."""
        self._cells[PLACES[name]] += amount

    def read(self) -> Counter[str]:
        """Return all counters."""
        return Counter(dict(zip(NAMES, self._cells, strict=True)))
