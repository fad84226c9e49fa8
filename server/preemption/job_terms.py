"""On what terms allocations may go for a job (J7): those of its own queue, and those of others as for a claim.

In its own queue lower priorities go, whatever the queue is owed. Elsewhere the terms of claims hold (G3 to G5), and
only what the job's queue is still owed may be taken.
"""

from collections.abc import Iterator
from dataclasses import replace

from server.model.fit import Demand
from server.model.quota import is_below
from server.preemption.entitlement import Deciding, Openness, deciding
from server.preemption.policy import Law
from server.preemption.terms import CODE, Rooms, Terms, own_leaf, own_rooms
from server.preemption.trial import Trial
from server.view.screen import LeafTerms
from server.view.waiting import WaitingAsk, WaitingJob

Amounts = list[int]


def added(demands: Iterator[Demand]) -> Demand:
    """The sum of demands, by type index."""
    sums: dict[int, int] = {}
    for demand in demands:
        for index, quantity in demand:
            sums[index] = sums.get(index, 0) + quantity
    return tuple(sorted(sums.items()))


def whole(job: WaitingJob) -> WaitingAsk:
    """The job as one ask: what all members want together, at the priority of the least important one."""
    first = job.members[0]
    kind = replace(
        first.kind,
        demand=added(one.kind.demand for one in job.members),
        node_demand=added(one.kind.node_demand for one in job.members),
    )
    return first._replace(kind=kind, spec=replace(first.spec, priority=job.priority))


class JobTerms:
    """The terms of one job on one Trial. ``owed`` are the queues that decide what others have to give back (G2)."""

    def __init__(self, trial: Trial, job: WaitingJob) -> None:
        self.job = job
        self.whole = whole(job)
        self.leaf = job.leaf
        self.owed: tuple[Deciding, ...] = deciding(trial, job.leaf, self.whole.kind.demand)
        # What others give is bounded by `share`, type by type; no type is closed for the job as a whole.
        self._others = Terms(trial, self.whole, Openness(self.owed)) if self.owed else None
        self._wanted = dict(self.whole.kind.demand)
        self._rooms: dict[str, Rooms] = {}

    def by_leaf(self, trial: Trial) -> Iterator[tuple[int, LeafTerms]]:
        """The terms of every leaf in which something runs, by its number."""
        own = trial.view.queues[self.leaf].number
        closed = LeafTerms(CODE[Law.OTHER_QUEUE])
        others = (
            self._others.by_leaf(trial)
            if self._others
            else ((number, closed) for number in trial.view.allocations.leaf_places()[0])
        )
        for number, terms in others:
            if number == own:
                yield number, self._own(trial)
            elif any(is_below(trial.view.leaf_paths[number], one.queue.path) for one in self.owed):
                yield number, LeafTerms(CODE[Law.DECIDING_QUEUE])  # G2, for all types (W6)
            else:
                yield number, terms

    def _own(self, trial: Trial) -> LeafTerms:
        """Strictly lower priorities of its own queue (J7), whatever it is owed: only a net fall counts (invariant 3)."""
        needed, rooms = dict(self.whole.kind.node_demand), self.rooms(trial, self.leaf)
        return own_leaf(trial, self.leaf, needed, self.job.priority, rooms)

    def rooms(self, trial: Trial, leaf: str) -> Rooms:
        """The queues from a leaf up, each with what it can lose by type (G4)."""
        known = self._rooms.get(leaf)
        if known is None:
            known = self._rooms[leaf] = self._find_rooms(trial, leaf)
        return known

    def _find_rooms(self, trial: Trial, leaf: str) -> Rooms:
        if leaf == self.leaf:
            return own_rooms(trial, leaf, self._wanted)
        assert self._others is not None, (
            "an allocation of another queue goes for a job that is owed nothing"
        )
        return self._others.rooms(trial, leaf)

    def share(self, trial: Trial) -> Amounts:
        """By type what may be taken from other queues: what the deciding queue is owed and does not hold (J7)."""
        left = [0] * len(trial.view.types)
        for one in self.owed:
            left[one.at] = one.entitled - trial.held(one.queue.path)[one.at]
        return left
