"""The order of claiming asks and gangs: the queue that is furthest below its entitlement is next (P3, P4).

The order is updated after each plan.

A plan changes the amounts that the queues of its asks and victims hold. Only leaves whose distance depends on these queues are
measured again. Thus the cost of a plan does not grow with the number of other queues that have claims. If many leaves have claims,
the claims of a leaf are read only when the leaf has its turn (`Trial.unread_claims`).
"""

import heapq
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from server.preemption.entitlement import measures
from server.preemption.trial import Trial
from server.snapshot.waiting import WaitingAsk, WaitingGang

Claimant = WaitingAsk | WaitingGang
"""A single ask or a gang that claims. Single asks and gangs wait in one common order (P3)."""
SCALE: Final = 124
"""The number of binary places of a distance.

Amounts stay below 2^62, so that two different quotients differ by more than 2^-124. Therefore quotients keep their order when
they are rounded down to so many places, and different quotients stay different.
"""
LAST: Final = 1 << (63 + SCALE)
"""The distance of a queue that is entitled to nothing.

This number is larger than any other distance, because amounts stay below 2^62.
"""


class _Place(NamedTuple):
    """A leaf in the order: its distance from its entitlement, the sort key of its first claim (`turn`), and its path."""

    distance: int
    turn: tuple[int, int, int, int]
    leaf: str


class Claimants:
    """The claiming asks and gangs of a snapshot, leaf by leaf.

    Within a queue, asks and gangs keep their order. Between queues at equal distances, the order of their first asks or gangs
    decides.
    """

    def __init__(self, trial: Trial, claimants: Iterable[Claimant]) -> None:
        self._trial = trial
        self._plans = trial.mark()
        self._lines: dict[str, list[Claimant]] = {}
        for one in sorted(claimants, key=_turn, reverse=True):
            self._lines.setdefault(one.leaf, []).append(one)
        self._unread = {**trial.unread_claims}
        """The leaves of which no claim was read yet, each with a lower bound on the sort keys of its claims."""
        for leaf in self._unread:
            self._lines.setdefault(leaf, [])
        self._ends: dict[str, str] = {}
        """The key of the last claim that was read from each leaf, by leaf.

        The key is set only if the snapshot may leave out later claims.
        """
        for leaf in self._lines if trial.further_claims else ():
            self._note_end(leaf)
        self._measures = _measures(trial, self._lines)
        self._measured: dict[str, list[str]] = {}
        """For each queue, the leaves whose distance depends on the queue."""
        for leaf, found in self._measures.items():
            for path, _ in found:
                self._measured.setdefault(path, []).append(leaf)
        self._places = {leaf: self._place(leaf) for leaf in self._lines}
        self._heap = list(self._places.values())
        heapq.heapify(self._heap)

    def in_turn(self) -> Iterator[Claimant]:
        """Yield each ask or gang once, in order. End at the first claim that this tick may not read (`Trial.is_cut`).

        Plans that the caller applies between two items change the order. Such plans must not be rolled back.
        """
        while self._heap:
            place = heapq.heappop(self._heap)
            if self._places.get(place.leaf) is not place:
                # This entry is outdated: the usage of its queue changed, and the heap has a newer
                # entry.
                continue
            if self._unread.pop(place.leaf, None) is not None:
                self._extend(place.leaf)
                if self._trial.is_cut:
                    return
                self._stand(place.leaf)
                continue
            claimant = self._lines[place.leaf].pop()
            if self._ends.get(place.leaf) == claimant.key:
                self._extend(place.leaf)
            yield claimant
            if self._trial.is_cut:
                return
            for leaf in dict.fromkeys((place.leaf, *self._moved())):
                self._stand(leaf)

    def _note_end(self, leaf: str) -> None:
        singles = (one.key for one in self._lines[leaf] if isinstance(one, WaitingAsk))
        self._ends[leaf] = next(singles, "")

    def _extend(self, leaf: str) -> None:
        """Read the next claims of the leaf, in the order of the leaf, beginning after the last claim that was read.

        Record in `Trial.is_cut` whether this tick may read no more claims.
        """
        assert self._trial.further_claims is not None, "only then is the last claim known"
        further = self._trial.further_claims(leaf)
        self._trial.is_cut = further is None
        if further:
            self._lines[leaf] = sorted((*self._lines[leaf], *further), key=_turn, reverse=True)
            self._note_end(leaf)

    def _moved(self) -> Iterator[str]:
        """Yield the leaves whose distance changed through the latest plans."""
        plans, known = self._trial.mark(), self._plans
        assert plans >= known, "what was planned before a claimant is not taken back after it"
        self._plans = plans
        leaves = {
            leaf
            for plan in self._trial.plans_since(known)
            for leaf in (
                *(pledge.ask.leaf for pledge in plan.pledges),
                *(release.leaf for release in plan.releases),
            )
        }
        paths = {queue.path for leaf in leaves for queue in self._trial.snapshot.path_up(leaf)}
        for path in sorted(paths):
            yield from self._measured.get(path, ())

    def _stand(self, leaf: str) -> None:
        if self._lines[leaf] or leaf in self._unread:
            self._places[leaf] = place = self._place(leaf)
            heapq.heappush(self._heap, place)
        else:
            self._places.pop(leaf, None)

    def _place(self, leaf: str) -> _Place:
        far = distance(self._trial, self._measures[leaf])
        line, turn = self._lines[leaf], self._unread.get(leaf)
        if turn is None or (line and line[-1].turn < turn):
            turn = line[-1].turn
        return _Place(far, turn, leaf)


def _measures(trial: Trial, leaves: Iterable[str]) -> dict[str, tuple[tuple[str, int], ...]]:
    """Return the measures of each leaf (see `entitlement.measures`).

    With guarantees, they are cached until queues or their specifications change.
    """
    snapshot = trial.snapshot
    if snapshot.is_shared_out:
        return {leaf: tuple(measures(trial, leaf)) for leaf in leaves}
    known = snapshot.queue_table.tree.measures
    for leaf in leaves:
        if leaf not in known:
            known[leaf] = tuple(measures(trial, leaf))
    return {leaf: known[leaf] for leaf in leaves}


def distance(trial: Trial, measured: Iterable[tuple[str, int]]) -> int:
    """Return the distance of a leaf from its entitlement E (P4).

    The distance is the largest quotient of usage and E over the types of ``measured``, in units of 2^-SCALE.

    ``measured`` has a queue and a type index for each type with E > 0 (see `entitlement.measures`). A leaf that is entitled to
    nothing comes last.
    """
    largest: tuple[int, int] | None = None
    for path, index in measured:
        held, entitled = trial.held(path)[index], trial.entitled(path)[index]
        if largest is None or held * largest[1] > largest[0] * entitled:
            largest = held, entitled
    return LAST if largest is None else (largest[0] << SCALE) // largest[1]


def _turn(one: Claimant) -> tuple[int, int, int, int]:
    return one.turn
