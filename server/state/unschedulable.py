"""The classes of asks that no node can take now, with an array of their demands."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from server.state.equivalence import AskClass

NOT_WANTED: Final = -(1 << 63)
"""The number in the array for a type that the class does not request.

No free amount is lower than this number, not even a negative free amount.
"""
GAPS_MIN: Final = 64
"""The number of gaps, the empty rows of removed classes, that a table may always keep.

If a table that has to grow has more gaps than this number, and more gaps than classes, it is rebuilt without gaps.
"""


class Unschedulable:
    """The classes that no node can take now, in the order in which they were added.

    There may be so many unschedulable classes that testing each of them whenever a pod ends would be slow. Therefore `within`
    compares all demands with the free capacity at once. Each class has a row. The row of a removed class stays empty.
    ``requiring`` has the classes whose asks require one node by name.
    """

    __slots__ = ("_classes", "_demands", "_rows", "_used", "requiring")

    def __init__(self) -> None:
        self._rows: dict[AskClass, int] = {}
        self._classes: list[AskClass | None] = []
        self._used = np.zeros(0, dtype=np.bool_)
        self._demands = np.zeros((0, 0), dtype=np.int64)  # a line for each type
        self.requiring: dict[AskClass, None] = {}

    def __contains__(self, ask_class: "AskClass") -> bool:
        """Return whether the class is in the table."""
        return ask_class in self._rows

    def __iter__(self) -> "Iterator[AskClass]":
        """Yield the classes in the order in which they were added."""
        return iter(self._rows)

    def __len__(self) -> int:
        """Return the number of classes."""
        return len(self._rows)

    def add(self, ask_class: "AskClass") -> None:
        """Add a class at the end of the order."""
        row = len(self._classes)
        widest = max([at for at, _ in ask_class.node_demand], default=-1)
        if row >= len(self._used) or widest >= len(self._demands):
            row = self._make(widest + 1)
        self._classes.append(ask_class)
        self._rows[ask_class] = row
        self._used[row] = True
        for at, quantity in ask_class.node_demand:
            self._demands[at, row] = quantity
        if ask_class.constraints.required_node:
            self.requiring[ask_class] = None

    def discard(self, ask_class: "AskClass") -> None:
        """Remove a class if the table has it."""
        row = self._rows.pop(ask_class, None)
        if row is not None:
            self._classes[row] = None
            self._used[row] = False
            self.requiring.pop(ask_class, None)

    def within(self, most: Sequence[int], also: "Iterable[AskClass]" = ()) -> "list[AskClass]":
        """Return the classes whose demand is at most ``most`` in every type. Also return the classes in ``also`` that the table has."""
        count = len(self._classes)
        found = self._used[:count].copy()
        for at, demands in enumerate(self._demands):
            found &= demands[:count] <= (most[at] if at < len(most) else 0)
        for ask_class in also:
            row = self._rows.get(ask_class)
            if row is not None:
                found[row] = True
        classes = (self._classes[row] for row in np.flatnonzero(found).tolist())
        return [one for one in classes if one is not None]

    def _make(self, width: int) -> int:
        """Make the table larger, and remove its gaps if there are many. Return the first free row."""
        before = self._demands[:, : len(self._classes)]
        gaps = len(self._classes) - len(self._rows)
        if gaps > max(GAPS_MIN, len(self._rows)):
            before = before[:, self._used[: len(self._classes)]]
            self._classes = list(self._rows)
            self._rows = {one: row for row, one in enumerate(self._rows)}
        count = len(self._classes)
        used = np.zeros(2 * count + GAPS_MIN, dtype=np.bool_)
        used[:count] = [one is not None for one in self._classes]
        demands = np.full((max(width, len(before)), len(used)), NOT_WANTED, dtype=np.int64)
        demands[: len(before), :count] = before
        self._used, self._demands = used, demands
        return count
