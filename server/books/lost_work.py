"""Work that preemption destroyed: how long victims had run when they were told to go, and on how many cores.

Sums since the core started, by policy, claimant queue and victim queue. A victim counts once it is gone, however it
went; one that could not be released counts nothing. It had run since its pod started, or where nobody said when that
was, since it was placed; what it did after it was told to go is not counted, for it may have used that to save its work.

Whole numbers: 1 core-second is 1,000 millicores times 1,000 ms. The table is bounded: queues that go away, and those
for which there is no line any more, are counted together.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from server.model.records import Lost

LINES_MAX: Final = 4_096
"""Lines of the table."""
SOFT: Final = "soft"
"""The delivery by which a victim is only marked, so that it can be taken back (J11)."""
OTHERS: Final = "(others)"
"""Queues that are gone, and all for which there is no line."""


class Line(NamedTuple):
    """Who took from whom: ``claimant`` is the beneficiary's queue, or the one that a quota run shrinks."""

    policy: str
    claimant: str
    victim: str


class Going(NamedTuple):
    """An allocation was told to go: by which policy, for which queue, when, and how; "" is as "delete".

    ``softly``: it is only marked, and another operator has it go (J11). Then ``awaited`` are the asks for which it goes,
    as long as one of them may be planned for anew. All victims of one order share the very same object.
    """

    policy: str
    claimant: str
    ordered_ms: int
    delivery: str = ""
    awaited: tuple[str, ...] = ()

    @property
    def softly(self) -> bool:
        """Is it only marked?"""
        return self.delivery == SOFT


class LostWork:
    """The table of a partition."""

    __slots__ = ("lines",)

    def __init__(self) -> None:
        self.lines: dict[Line, Lost] = {}

    def add(self, line: Line, lost: Lost) -> None:
        """A victim is gone."""
        if line not in self.lines and len(self.lines) >= LINES_MAX:
            line = Line(line.policy, OTHERS, OTHERS)
        self.lines[line] = self.lines.get(line, Lost()).plus(lost)

    def forget(self, paths: Iterable[str]) -> None:
        """These queues are gone: what stands under their names is counted under OTHERS."""
        gone = frozenset(paths)
        found = [one for one in self.lines if gone & {one.claimant, one.victim}]
        for line in found:
            lost = self.lines.pop(line)
            claimant = OTHERS if line.claimant in gone else line.claimant
            victim = OTHERS if line.victim in gone else line.victim
            self.add(Line(line.policy, claimant, victim), lost)
