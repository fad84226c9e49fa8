"""On what terms allocations may go for a job (J7): those of its own queue, and those of others as for a claim.

In its own queue lower priorities go, whatever the queue is owed. Elsewhere the terms of claims hold (G3 to G5), and
only what the job's queue is still owed may be taken.
"""

from collections.abc import Iterator
from dataclasses import replace

from server.model.fit import Demand
from server.model.quota import is_below
from server.preemption.entitlement import Deciding, deciding, floor
from server.preemption.policy import Law
from server.preemption.terms import CODE, Terms
from server.preemption.trial import Trial
from server.view.queues import QueueFacts
from server.view.screen import UNLIMITED, LeafTerms
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
        self._others = Terms(trial, self.whole) if self.owed else None
        self._wanted = dict(self.whole.kind.demand)
        self._rooms: dict[str, list[tuple[QueueFacts, Amounts]]] = {}

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
        view = trial.view
        minimum = view.queues[self.leaf].spec.properties.preemption_minruntime_ms
        wanted = dict(self.whole.kind.node_demand)
        lines = [line for _, line in self.rooms(trial, self.leaf)]
        return LeafTerms(
            most=tuple(
                UNLIMITED if port else min(line[index] for line in lines)
                for index, port in enumerate(view.ports)
            ),
            useful=tuple(index in wanted for index in range(len(view.ports))),
            priority=self.job.priority - 1,
            since_ms=view.now - minimum if minimum else UNLIMITED,
        )

    def rooms(self, trial: Trial, leaf: str) -> list[tuple[QueueFacts, Amounts]]:
        """The queues from a leaf up, each with what it can lose by type (G4)."""
        known = self._rooms.get(leaf)
        if known is None:
            found = self._own_rooms(trial) if leaf == self.leaf else self._other_rooms(trial, leaf)
            known = self._rooms[leaf] = list(found)
        return known

    def _own_rooms(self, trial: Trial) -> Iterator[tuple[QueueFacts, Amounts]]:
        for queue in trial.view.path_up(self.leaf):
            pairs = zip(trial.eff(queue.path), floor(trial, queue.path), strict=True)
            over = [max(0, eff - entitled) for eff, entitled in pairs]
            yield queue, [one + self._wanted.get(index, 0) for index, one in enumerate(over)]

    def _other_rooms(self, trial: Trial, leaf: str) -> Iterator[tuple[QueueFacts, Amounts]]:
        assert self._others is not None, (
            "an allocation of another queue goes for a job that is owed nothing"
        )
        return iter(self._others.rooms(trial, leaf))

    def share(self, trial: Trial) -> Amounts:
        """By type what may be taken from other queues: what the deciding queue is owed and does not hold (J7)."""
        left = [0] * len(trial.view.types)
        for one in self.owed:
            left[one.at] = one.entitled - trial.held(one.queue.path)[one.at]
        return left
