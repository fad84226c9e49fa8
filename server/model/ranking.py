"""The order in which a decision compared its candidates: an excerpt around the victims, with the compared values.

A ranking is kept until the record of its decision is dropped. The ranking answers questions such as "why this pod and not that one".
The decision log does not contain the ranking. When the decision is made, the values are only stored. The values are sorted when
the first such question is asked.
"""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

from server.model.quota import is_below
from server.model.records import Level, Spared, Victim

Rank = int | str
"""The value of one sort key of an order. The pod with the lower value is evicted first."""
Ranked = tuple[Rank, ...]
"""The values of all sort keys of an order, and then the identifier (key) of the allocation."""
RANKED_MAX: Final = 64
"""The largest number of candidates in an excerpt."""
BEFORE_MAX: Final = 48
"""The number of candidates in an excerpt up to and including the last victim.

Near the beginning or the end of an order, the number differs.

The other candidates in the excerpt come after the last victim, and show why pods were not evicted.
"""
RIVALS_MAX: Final = 8
"""The largest number of nodes that a ranking keeps in addition to the chosen node."""
EXAMPLES_MAX: Final = 20
"""The largest number of candidates of one queue that are named. The other candidates are only counted."""
DECIDING: Final = "deciding"
"""The role of a queue that is below its guarantee, so that the ask may claim (G2)."""
VICTIM: Final = "victim"
"""The role of a queue whose pods a decision evicts."""
NOT_NEEDED: Final = "not-needed"
NOT_CHOSEN: Final = "node-not-chosen"


class Rival(NamedTuple):
    """A node that was judged, whether it was chosen or not.

    Its values are lower bounds: no plan on the node has smaller values.
    """

    opted_out: int
    originators: int
    priority: int
    victims: int
    excess: int
    node_id: str


class QueueNumbers(NamedTuple):
    """The usage, entitlement and maximum of a queue by type index, at the time of the decision."""

    path: str
    held: Sequence[int]
    entitled: Sequence[int]
    max: Sequence[int | None]
    by_weight: bool = False
    """Whether the queue is entitled to a share by weight (W6), rather than to its guarantee."""


@dataclass(frozen=True)
class Ranking:
    """The candidates on ``nodes``, or in ``queue`` and the queues below it, with the values of the sort ``keys``.

    ``candidates`` has the candidates that passed every rule on a single candidate. ``queues`` has the queues of the candidates
    in the same order. The excerpt begins after the first ``start`` candidates of ``total`` candidates. ``protected`` has the
    candidates that a rule protects, inside or outside the excerpt, each with that rule. ``elsewhere`` has the number of
    candidates of each queue, on all nodes. ``judged`` has the judged nodes, each with the values of a `Rival`, in the order of
    these values, with the chosen node first. ``numbers`` has the numbers of the victims' queues and of the queues above them,
    before the eviction.
    """

    keys: tuple[str, ...]
    candidates: Sequence[Ranked]
    queues: Sequence[str]
    total: int
    start: int = 0
    nodes: tuple[str, ...] = ()
    queue: str = ""
    protected: Sequence[tuple[str, str]] = ()
    elsewhere: Mapping[str, int] = field(default_factory=dict)
    judged: Sequence[tuple[int, int, int, int, int, str]] = ()
    types: Sequence[str] = ()
    numbers: Sequence[QueueNumbers] = ()

    @cached_property
    def ranked(self) -> tuple[Ranked, ...]:
        """Return the candidates in the order of their values."""
        return tuple(sorted(self.candidates))

    @cached_property
    def rivals(self) -> tuple[Rival, ...]:
        """Return the judged nodes, with the chosen node first."""
        return tuple(map(Rival._make, self.judged))

    @cached_property
    def rules(self) -> Mapping[str, str]:
        """Return, by the key of each protected candidate, the rule that protects this candidate."""
        return dict(self.protected)

    def place(self, key: str) -> int:
        """Return the place of a candidate in the order, counted from 1. Return 0 if the candidate is not in the excerpt."""
        found = (at for at, one in enumerate(self.ranked, self.start + 1) if one[-1] == key)
        return next(found, 0)

    def not_taken(self, victims: Collection[str]) -> tuple[Spared, ...]:
        """Return, by queue, the candidates that no rule protects and that were not evicted."""
        beside: dict[str, list[str]] = {}
        elsewhere = dict(self.elsewhere)
        for one, queue in sorted(zip(self.candidates, self.queues, strict=True)):
            elsewhere[queue] = elsewhere.get(queue, 0) - 1
            if one[-1] not in victims and one[-1] not in self.rules:
                beside.setdefault(queue, []).append(str(one[-1]))
        return (
            *(
                Spared(NOT_NEEDED, queue, len(keys), tuple(keys[:EXAMPLES_MAX]))
                for queue, keys in sorted(beside.items())
            ),
            *(
                Spared(NOT_CHOSEN, queue, many)
                for queue, many in sorted(elsewhere.items())
                if many > 0
            ),
        )

    def levels(
        self, victims: Iterable[Victim], wanted: Collection[str], guaranteed: Collection[str] = ()
    ) -> tuple[Level, ...]:
        """Return the numbers of the victims' queues in the resource types that the victims freed.

        A type is left out unless it is in ``wanted``, or it is in ``guaranteed`` and the queue is entitled to it.
        """
        freed: dict[tuple[str, str], None] = {}
        for one in victims:
            freed.update({(one.queue, name): None for name, _ in one.resource})
        found = (
            level
            for queue, name in freed
            if name in wanted or name in guaranteed
            for level in [self._level(queue, name)]
            if level is not None and (name in wanted or level.guaranteed)
        )
        return tuple(dict.fromkeys(found))

    def _level(self, queue: str, name: str) -> Level | None:
        """Return the numbers of the lowest queue on a victim's path that is entitled to a type.

        If no queue is entitled to the type, return the numbers of the victim's queue.
        """
        if name not in self.types:
            return None
        at = self.types.index(name)
        above = [one for one in self.numbers if is_below(queue, one.path)]
        above.sort(key=lambda one: -len(one.path))
        chosen = next((one for one in above if one.entitled[at]), above[0] if above else None)
        if chosen is None:
            return None
        numbers = chosen.entitled[at], chosen.max[at], chosen.held[at]
        return Level(chosen.path, VICTIM, name, *numbers, chosen.by_weight)


def window(ranked: Sequence[Ranked], victims: Container[Rank]) -> tuple[int, Sequence[Ranked]]:
    """Return an excerpt around the last victim of an order, and the number of candidates before the excerpt."""
    if len(ranked) <= RANKED_MAX:
        return 0, ranked
    last = max((at for at, one in enumerate(ranked) if one[-1] in victims), default=0)
    start = around(len(ranked), last)
    return start, ranked[start : start + RANKED_MAX]


def around(total: int, last: int) -> int:
    """Return the index at which an excerpt of ``total`` candidates begins when the last victim is at index ``last``."""
    return max(0, min(last + 1 - BEFORE_MAX, total - RANKED_MAX))
