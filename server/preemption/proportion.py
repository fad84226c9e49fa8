"""Shares by weight: the amount of each type that a queue deserves, compared with the queue's usage (W1 to W7).

- W1: the children of a queue divide its share by weight. A child gets at most the amount that it requests, and at most its
  maximum. A child gets at least its floor, which follows from guarantees.
- W2: a type is contended among siblings that together request more of the type than their parent's share. A queue is entitled to
  its deserved share of a contended type, and to its floor of every other type. With ``demand_cap`` off, each leaf counts as
  requesting without limit. The results are then called *plain shares by weight*, and a queue is entitled to its plain share of
  every type.
- W4 and W5: shares are computed when they are needed, and are not stored. The amounts Allocated and Preempting are only
  reported. Their sum is the deserved share (W7).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import sub
from typing import NamedTuple

from server.kernels import share
from server.snapshot.queues import NO_PATH, Bounds, FrozenAmounts, QueueFacts
from server.snapshot.snapshot import Snapshot

Families = list[list[tuple[int, int]]]


class Share(NamedTuple):
    """The share of one queue, by type index."""

    demand: FrozenAmounts
    """The amount that the queue uses and requests."""
    cap: Bounds
    """The largest amount that the queue may have, None if there is no limit."""
    floor: FrozenAmounts
    """The smallest amount that the queue gets."""
    deserved: FrozenAmounts
    """The queue's part by weight."""
    entitled: FrozenAmounts
    """The amount up to which the queue may claim."""
    contended: tuple[bool, ...]
    """For each type, whether the queue and its siblings together request more than their parent's share."""


class ShareLevel(StrEnum):
    """The relation between a queue's usage of a type and the queue's deserved share: under, even or over (W4)."""

    OVER = "over"
    EVEN = "even"
    UNDER = "under"


class QueueStanding(NamedTuple):
    """For each type, whether a queue's usage is over, even with or under its share, and the reported amounts (W4, W5)."""

    sides: tuple[ShareLevel, ...]
    allocated: FrozenAmounts
    """The deserved share minus ``preempting``."""
    preempting: FrozenAmounts
    """The part of the deserved share that siblings use."""


@dataclass(frozen=True, slots=True, eq=False)
class Proportion:
    """The shares of all queues of a partition at one instant. ``total`` is the amount that the root divides, by type index."""

    total: FrozenAmounts
    demand_cap: bool
    _queues: Mapping[str, QueueFacts]
    _rows: dict[str, int]
    _levels: Families
    _divided: share.Divided
    _known: dict[str, Share] = field(default_factory=dict)

    def of(self, path: str) -> Share:
        """Return the share of a queue. The share is computed once. Raise KeyError for an unknown path."""
        known = self._known.get(path)
        if known is None:
            known = self._known[path] = self._of(self._rows[path])
        return known

    def _of(self, row: int) -> Share:
        found = self._divided
        caps, contended = found.caps[row].tolist(), self._contended(row)
        floors, parts = found.floors[row].tolist(), found.parts[row].tolist()
        lines = zip(parts, floors, contended, strict=True)
        return Share(
            tuple(found.wanted[row].tolist()),
            tuple(None if cap == share.UNLIMITED else cap for cap in caps),
            tuple(floors),
            tuple(parts),
            tuple(part if tight else floor for part, floor, tight in lines),
            tuple(contended),
        )

    def entitled(self, path: str) -> FrozenAmounts:
        """Return the entitlement (E) of a queue by type (W2).

        The entitlement is the deserved share for a contended type, and the floor for any other type.
        """
        return self.of(path).entitled

    def _contended(self, row: int) -> list[bool]:
        """Return, for each type, whether the type is contended (W2). With ``demand_cap`` off, every type counts as contended."""
        found: list[bool] = self._divided.tight[row].tolist()
        return found if self.demand_cap else [True] * len(found)

    # The report ---------------------------------------------------------------------------------------

    def standings(self) -> dict[str, QueueStanding]:
        """Return the `QueueStanding` of each queue by the queue's path, parents before their children (W4, W5).

        While the root uses more of a type than its total, Allocated equals the deserved share of that type (W3).
        """
        paths = list(self._rows)
        root = self._queues[paths[0]]
        pairs = zip(root.usage, root.releasing, self.total, strict=True)
        cleaning = [used - going > whole for used, going, whole in pairs]
        found: dict[str, QueueStanding] = {}
        first = 0
        for _, size in (family for level in self._levels for family in level):
            found.update(self._family(paths[first : first + size], first, cleaning))
            first += size
        return found

    def _family(
        self, paths: Sequence[str], first: int, cleaning: Sequence[bool]
    ) -> Iterator[tuple[str, QueueStanding]]:
        used = [self._queues[path].usage for path in paths]
        rows = slice(first, first + len(paths))
        parts, wanted = self._divided.parts[rows].tolist(), self._divided.wanted[rows].tolist()
        columns = zip(zip(*parts, strict=True), zip(*used, strict=True), cleaning, strict=True)
        preempting = [[0] * len(paths) if clean else _coming(*pair) for *pair, clean in columns]
        by_row = list(zip(*preempting, strict=True)) or [()] * len(paths)
        for path, have, part, asked, coming in zip(paths, used, parts, wanted, by_row, strict=True):
            sides = tuple(map(_side, have, part, asked))
            yield path, QueueStanding(sides, tuple(map(sub, part, coming)), coming)


def _coming(deserved: Sequence[int], used: Sequence[int]) -> list[int]:
    """Return, for each sibling, the part of its share that other siblings use (W5).

    The sum of the amounts that siblings use beyond their shares is divided among the siblings below their shares, in proportion
    to the amounts that they lack.
    """
    gaps = [part - have if part > have else 0 for part, have in zip(deserved, used, strict=True)]
    lacking = sum(gaps)
    return share.largest_remainder(min(sum(used) - sum(deserved) + lacking, lacking), gaps)


def _side(used: int, deserved: int, wanted: int) -> ShareLevel:
    """Return whether a usage is over, even with or under the deserved share (W4).

    A queue that uses less than its share and requests no more is even.
    """
    if used > deserved:
        return ShareLevel.OVER
    return ShareLevel.UNDER if used < deserved and wanted > used else ShareLevel.EVEN


# From queues to rows --------------------------------------------------------------------------------------------------


def proportion(
    queues: Mapping[str, QueueFacts],
    pending: Mapping[str, Sequence[int]],
    total: Sequence[int],
    *,
    demand_cap: bool = True,
) -> Proportion:
    """Return the queues' shares of the total (W1).

    ``pending`` has the sum of the requests of the waiting asks of each leaf, by type index. Asks for which a decision holds
    capacity are left out, because usage includes that capacity. ``total`` is the allocatable capacity of undrained nodes minus
    the usage of foreign pods (W2).
    """
    paths, levels = _in_levels(queues)
    facts = [queues[path] for path in paths]
    nothing = (0,) * len(total)
    rows = share.Rows(
        weights=[one.spec.weight for one in facts],
        wanted=[_held(one, nothing) for one in facts],
        more=[pending.get(path, nothing) for path in paths],
        least=[one.guaranteed for one in facts],
        most=[one.max for one in facts],
        endless=() if demand_cap else [one.leaf for one in facts],
    )
    whole = tuple(max(0, amount) for amount in total)
    places = {path: row for row, path in enumerate(paths)}
    divided = share.divide(levels, rows, whole)
    return Proportion(whole, demand_cap, queues, places, levels, divided)


def of_view(snapshot: Snapshot) -> Proportion:
    """Return the shares of the queues of a snapshot. A Trial calls this function once, and keeps the result while plans are applied."""
    demand_cap = snapshot.settings.demand_cap
    return proportion(snapshot.queues, snapshot.pending, snapshot.total, demand_cap=demand_cap)


def _in_levels(queues: Mapping[str, QueueFacts]) -> tuple[list[str], Families]:
    """Return all paths, level by level, with the children of each queue together and sorted.

    Also return, for each level, its families: the groups of siblings.
    """
    below: dict[str, list[str]] = {}
    for path, queue in queues.items():
        below.setdefault(queue.parent, []).append(path)
    paths, levels = list[str](), Families()
    above = [(-1, NO_PATH)]
    while above:
        first, families, line = len(paths), list[tuple[int, int]](), list[str]()
        for row, parent in above:
            if parent in below:
                families.append((row, len(below[parent])))
                line += sorted(below[parent])
        if families:
            levels.append(families)
        paths += line
        above = list(enumerate(line, start=first))
    return paths, levels


def _held(queue: QueueFacts, nothing: FrozenAmounts) -> FrozenAmounts:
    """Return the amounts that a queue will use once every open decision is carried out (G2)."""
    if queue.releasing == queue.promised == nothing:
        return queue.usage
    lines = zip(queue.usage, queue.releasing, queue.promised, queue.reserved, strict=True)
    return tuple(used - going + promised - weak for used, going, promised, weak in lines)
