"""A closer bound of nodes for members of a gang: the least number of victims when none is passed over (J8, design 6.7).

Candidates of a node are evicted in the order of the partition until the member fits, which mostly takes more of them than the
bound of `assignments.field` says. Where a queue, a disruption budget or a gang may protect one, another takes its place, and nothing
is known of the node.
"""

from collections.abc import Set

from server.kernels.fit import Mask
from server.model.policies import JOB
from server.preemption.gangs.tentative import Seats
from server.snapshot import assignments as nodes
from server.snapshot.assignments import Field


class Closer:
    """The closer bounds of one field, valid as long as the queues that bar no candidate at the start bar none (`holds`)."""

    def __init__(self, seats: Seats, field: Field) -> None:
        self._columns = seats.trial.snapshot.allocations
        self._field = field
        self._tail = seats.units.tail
        assert JOB.order.fixed == ("protection", "priority", "originator")
        self._rank = nodes.ranks(self._columns, seats.units.reluctant())
        self._odd, self._calm = _odd(seats)
        self._numbers: list[int] = []

    def holds(self, strained: Set[str | int]) -> bool:
        """Return whether the bounds are still valid when these queues may have to protect candidates from now on."""
        return self._calm.isdisjoint(strained)

    def number(self, place: int) -> int:
        """Return how many pods are evicted on the node at this place of the field, where any has to be."""
        at = place - self._field.roomy
        while at >= len(self._numbers):
            self._numbers += self._next_block()
        return self._numbers[at]

    def _next_block(self) -> list[int]:
        at = len(self._numbers)
        tail = self._tail.in_order(self._field.block(at))
        return self._field.in_order(self._columns, at, tail, self._rank, self._odd)


def _odd(seats: Seats) -> tuple[Mask, frozenset[str]]:
    """Return the rows that could be passed over on their nodes, and the queues that bar no candidate for now."""
    trial = seats.trial
    columns = trial.snapshot.allocations
    barring: list[int] = []
    calm: set[str] = set()
    for number in nodes.leaves(columns, seats.units.may_go()):
        leaf = trial.snapshot.leaf_paths[number]
        strained = seats.strained_queues(leaf)
        if strained or not seats.terms.takes_for_all(trial, leaf):
            barring.append(number)
        calm.update(queue.path for queue, _ in seats.terms.rooms(trial, leaf))
        calm.difference_update(strained)
    return seats.units.tied() | nodes.of_leaves(columns, barring), frozenset(calm)
