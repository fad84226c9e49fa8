"""Counters of faults that struck, in a file: the processes of a run raise them, and what was counted outlives a kill."""

import mmap
from collections import Counter
from pathlib import Path
from typing import Final

BYTES_OF_ONE: Final = 8
NAMES: Final = (
    # Launcher: what the core wrote to its disk, and how often it read the wall clock.
    "writes",
    "written bytes",
    "writes slowed",
    "writes refused",
    "writes on a full disk",
    "clock reads",
    "clock reads shifted",
    # Proxy: pieces that were passed on later, and connections that were broken.
    "pieces delayed",
    "pieces narrowed",
    "pieces held",
    "connections cut",
    "connections half-closed",
    # Hostile clients: calls that the core answered, streams that it opened, connections that it took.
    "calls answered",
    "streams opened",
    "connections taken",
    # Shim: asks with a selector of their own.
    "selectors asked",
)
PLACES: Final = {name: place for place, name in enumerate(NAMES)}


def make(path: Path) -> None:
    """Make a file of counters, all zero."""
    path.write_bytes(bytes(BYTES_OF_ONE * len(NAMES)))


class Counts:
    """The counters of a file. Each is raised by one process at a time."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._cells = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")

    def add(self, name: str, amount: int = 1) -> None:
        """Raise a counter."""
        self._cells[PLACES[name]] += amount

    def read(self) -> Counter[str]:
        """Return all counters."""
        return Counter(dict(zip(NAMES, self._cells, strict=True)))
