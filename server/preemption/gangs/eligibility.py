"""The eligibility of allocations as victims for a gang (J7).

In the gang's own queue, pods with lower priorities may be evicted. The queue's entitlement does not matter there. In other
queues, the eligibility rules of claims apply (G3 to G5). A victim is evicted only for a type that a queue on the gang's path
guarantees. The victims of other queues together free at most the amount of the type to which that queue is still entitled.
"""

from collections.abc import Iterator
from dataclasses import replace

from server.model.fit import Demand
from server.model.quota import is_below
from server.preemption.claims.eligibility import (
    CODE,
    CODES,
    ClaimEligibility,
    QueueMargins,
    own_leaf,
    own_margins,
)
from server.preemption.entitlement import Deciding, Openness, deciding
from server.preemption.policy import Rule
from server.preemption.trial import Trial
from server.snapshot.leaf_eligibility import EligibilityColumns, LeafEligibility
from server.snapshot.waiting import WaitingAsk, WaitingGang


def added(demands: Iterator[Demand]) -> Demand:
    """Return the sum of demands, by type index."""
    sums: dict[int, int] = {}
    for demand in demands:
        for index, quantity in demand:
            sums[index] = sums.get(index, 0) + quantity
    return tuple(sorted(sums.items()))


def whole(gang: WaitingGang) -> WaitingAsk:
    """Return the gang as one ask, with the sum of all members' requests and the priority of the least important member."""
    first = gang.members[0]
    kind = replace(
        first.kind,
        demand=added(one.kind.demand for one in gang.members),
        node_demand=added(one.kind.node_demand for one in gang.members),
    )
    return first._replace(kind=kind, spec=replace(first.spec, priority=gang.priority))


class GangEligibility:
    """The eligibility of victims for one gang on one Trial.

    ``owed`` are the queues on the gang's path that decide for the types that the gang requests. The entitlements of these queues
    limit the amounts that may be taken from other queues (G2).
    """

    def __init__(self, trial: Trial, gang: WaitingGang) -> None:
        self.gang = gang
        self.whole = whole(gang)
        self.leaf = gang.leaf
        self.owed: tuple[Deciding, ...] = deciding(trial, gang.leaf, self.whole.kind.demand)
        # `share` limits the amounts that are taken from other queues, type by type. Therefore no type is closed for
        # the gang as a whole.
        self._others = (
            ClaimEligibility(trial, self.whole, Openness(self.owed)) if self.owed else None
        )
        self._wanted = dict(self.whole.kind.demand)
        self._needed = dict(self.whole.kind.node_demand)
        self._takes: dict[str, frozenset[int]] = {}
        self._margins: dict[str, QueueMargins] = {}

    def columns(self, trial: Trial) -> EligibilityColumns:
        """Return the eligibility of all leaves in which allocations run."""
        numbers, width = trial.snapshot.allocations.leaf_places()[0], len(trial.snapshot.ports)
        return EligibilityColumns.of(numbers, dict(self.by_leaf(trial)), width, CODES.gone)

    def by_leaf(self, trial: Trial) -> Iterator[tuple[int, LeafEligibility]]:
        """Yield, for every leaf in which allocations run, the leaf's number and its eligibility."""
        own = trial.snapshot.queues[self.leaf].number
        closed = LeafEligibility(CODE[Rule.OTHER_QUEUE])
        others = (
            self._others.by_leaf(trial)
            if self._others
            else ((number, closed) for number in trial.snapshot.allocations.leaf_places()[0])
        )
        for number, eligibility in others:
            if number == own:
                yield number, self._own(trial)
            elif eligibility.spared:
                yield number, eligibility
            else:
                yield number, self._of_others(trial, trial.snapshot.leaf_paths[number], eligibility)

    def _of_others(self, trial: Trial, leaf: str, eligibility: LeafEligibility) -> LeafEligibility:
        """Return the given eligibility for claims, limited to the types that a queue on the gang's path guarantees (J7)."""
        outside, takes = self._outside(leaf), self.takes_for(trial, leaf)
        if not outside:
            return LeafEligibility(CODE[Rule.DECIDING_QUEUE])
        width = range(len(eligibility.useful))
        return replace(
            eligibility,
            useful=tuple(index in takes for index in width),
            inside=tuple(index in self._needed and index not in outside for index in width),
        )

    def _outside(self, leaf: str) -> list[int]:
        """Return the types for which a queue on the gang's path decides, if the leaf lies outside that queue."""
        return [one.at for one in self.owed if not is_below(leaf, one.queue.path)]

    def takes_for(self, trial: Trial, leaf: str) -> frozenset[int]:
        """Return the types for which allocations of another queue may be evicted when these types are lacking (J7, G2).

        A type qualifies if a queue on the gang's path decides for it, the leaf lies outside that queue, and the leaf is over its
        entitlement.
        """
        known = self._takes.get(leaf)
        if known is None:
            assert self._others is not None, (
                "a gang that no queue entitles takes from no other queue"
            )
            over = (at for at in self._outside(leaf) if self._others.is_over(trial, leaf, at))
            known = self._takes[leaf] = frozenset(over)
        return known

    def takes_for_all(self, trial: Trial, leaf: str) -> bool:
        """Return whether allocations of a leaf may be evicted for every type that the gang requests."""
        return leaf == self.leaf or self.takes_for(trial, leaf).issuperset(self._needed)

    def _own(self, trial: Trial) -> LeafEligibility:
        """Return the eligibility of the gang's own queue (J7).

        Victims there have strictly lower priorities, and may be evicted even if the queue may not claim.

        Only the net loss of the queue is limited (invariant 3).
        """
        margins = self.margins(trial, self.leaf)
        return own_leaf(trial, self.leaf, self._needed, self.gang.priority, margins)

    def margins(self, trial: Trial, leaf: str) -> QueueMargins:
        """Return the queues from a leaf up to the root. Each queue comes with the amounts that it can lose, by type (G4)."""
        known = self._margins.get(leaf)
        if known is None:
            known = self._margins[leaf] = self._find_margins(trial, leaf)
        return known

    def _find_margins(self, trial: Trial, leaf: str) -> QueueMargins:
        if leaf == self.leaf:
            return own_margins(trial, leaf, self._wanted)
        assert self._others is not None, (
            "an allocation of another queue is evicted for a gang whose queue is entitled to nothing"
        )
        return self._others.margins(trial, leaf)

    def share(self, trial: Trial) -> dict[int, int]:
        """Return the amounts that may be taken from other queues, by type index.

        For each type, the amount is the entitlement of the deciding queue minus the amount that this queue uses.

        A type without a deciding queue has no entry. Such a type has no limit here, because no victim is taken for it (J7).
        """
        return {one.at: one.entitled - trial.held(one.queue.path)[one.at] for one in self.owed}
