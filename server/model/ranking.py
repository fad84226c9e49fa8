"""The order in which a decision took its candidates: an excerpt around its victims, with the values that were compared.

A ranking is kept as long as its record. It answers questions such as "why this pod and not that one". The decision log does not
contain it. The decision only stores the values. The first question sorts them.
"""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

from server.model.quota import is_below
from server.model.records import Level, Spared, Victim

Rank = int | str
"""The value of one key of an order. The pod with the lower value is evicted first."""
Ranked = tuple[Rank, ...]
"""The values of all keys of an order, then the key of the allocation."""
RANKED_MAX: Final = 64
"""The number of candidates in an excerpt."""
BEFORE_MAX: Final = 48
"""The number of candidates in an excerpt up to the last victim.

The other candidates of the excerpt come after the last victim, because they show why pods were kept.
"""
RIVALS_MAX: Final = 8
"""The number of nodes that are kept beside the one that was chosen."""
EXAMPLES_MAX: Final = 20
"""The largest number of candidates of one queue that are named. The others are counted."""
DECIDING: Final = "deciding"
"""The role of a queue whose shortfall below its guarantee let an ask claim (G2)."""
VICTIM: Final = "victim"
"""The role of a queue from which a decision evicts."""
NOT_NEEDED: Final = "not-needed"
NOT_CHOSEN: Final = "node-not-chosen"


class Rival(NamedTuple):
    """A node that was judged and not chosen. Its numbers are lower bounds. The true ones are at least as large."""

    opted_out: int
    originators: int
    priority: int
    victims: int
    excess: int
    node_id: str


class QueueNumbers(NamedTuple):
    """The usage, entitlement and maximum of a queue, each by type index, when the decision was made."""

    path: str
    held: Sequence[int]
    entitled: Sequence[int]
    max: Sequence[int | None]
    by_weight: bool = False
    """Whether the queue is entitled to a share by weight (W6), rather than to its guarantee."""


@dataclass(frozen=True)
class Ranking:
    """The candidates of ``nodes``, or of ``queue`` and the queues below it, by the ``keys`` of the decision's order.

    ``candidates`` passed every rule that looks at one candidate alone. ``queues`` has the queue of each at the index that the
    candidate has. The excerpt begins after ``start`` of ``total`` candidates. ``protected`` are the candidates that a rule
    protects, inside or outside the excerpt, each with that rule. ``elsewhere`` counts the candidates on all nodes, by queue.
    ``judged`` has nodes by their keys, the chosen one first. ``numbers`` are those of the victims' queues and of the queues
    above them, before the eviction.
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
        """Return the candidates in order."""
        return tuple(sorted(self.candidates))

    @cached_property
    def rivals(self) -> tuple[Rival, ...]:
        """Return the nodes that were judged, the chosen one first."""
        return tuple(map(Rival._make, self.judged))

    @cached_property
    def rules(self) -> Mapping[str, str]:
        """Return the rule that protects each protected candidate, by the candidate's key."""
        return dict(self.protected)

    def place(self, key: str) -> int:
        """Return the place of a candidate in the order, counted from 1. Return 0 if it is not in the excerpt."""
        found = (at for at, one in enumerate(self.ranked, self.start + 1) if one[-1] == key)
        return next(found, 0)

    def not_taken(self, victims: Collection[str]) -> tuple[Spared, ...]:
        """Return the candidates that no rule protects and that were not evicted either, by queue."""
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
        """Return the numbers of the victims' queues in some of the resource types that the victims freed.

        The result has the types in ``wanted``, and those types in ``guaranteed`` to which the queue is entitled.
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

        If there is none, return those of the victim's queue.
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
    """Return how many candidates come before an excerpt around the last victim of an order, and the excerpt."""
    if len(ranked) <= RANKED_MAX:
        return 0, ranked
    last = max((at for at, one in enumerate(ranked) if one[-1] in victims), default=0)
    start = around(len(ranked), last)
    return start, ranked[start : start + RANKED_MAX]


def around(total: int, last: int) -> int:
    """Return the index at which an excerpt of ``total`` candidates begins when the last victim is at index ``last``."""
    return max(0, min(last + 1 - BEFORE_MAX, total - RANKED_MAX))
