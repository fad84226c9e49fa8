"""A closer look at nodes for members of a job: how many go at the least, where nobody is passed over (J8, design 6.7).

Whoever may go from a node goes in the order of the partition until there is room: mostly more of them than would have
to. Where a queue, a disruption budget or a gang may keep somebody there, another one goes in his stead, and nothing is
said of the node.
"""

from collections.abc import Set

import numpy as np

from server.kernels.fit import Array, Mask
from server.model.asks import PRIORITY_MIN
from server.model.comparing import FIXED
from server.preemption.job_seats import Seats
from server.view.columns import ORIGINATOR
from server.view.seats import Field


class Closer:
    """For one field, as long as the queues that bar nobody when it is made bar nobody (`holds`)."""

    def __init__(self, seats: Seats, field: Field) -> None:
        self._columns = seats.trial.view.allocations
        self._field = field
        self._tail = seats.units.tail
        self._rank = _fixed_rank(seats)
        self._odd, self._calm = _odd(seats)
        self._numbers: list[int] = []

    def holds(self, strained: Set[str | int]) -> bool:
        """Does it still, when these queues may have to keep somebody from now on?"""
        return self._calm.isdisjoint(strained)

    def number(self, place: int) -> int:
        """How many go from the node at this place of the field, where somebody has to."""
        at = place - self._field.roomy
        while at >= len(self._numbers):
            self._numbers += self._next_block()
        return self._numbers[at]

    def _next_block(self) -> list[int]:
        rows, nodes = self._field.block(len(self._numbers))
        turns = {row: turn for turn, row in enumerate(self._tail.in_order(rows.tolist()))}
        tail = np.array([turns[row] for row in rows.tolist()])
        rows = rows[np.lexsort((tail, self._rank[rows], nodes))]
        return self._field.in_order(self._columns, len(self._numbers), rows, nodes, self._odd)


def _fixed_rank(seats: Seats) -> Array:
    """By row the keys with which every order for jobs begins, as one number (7.5)."""
    assert FIXED["job"] == ("protection", "priority", "originator")
    columns = seats.trial.view.allocations
    protection = seats.units.reluctant().astype(np.int64) << 34
    originator = (columns.flags & ORIGINATOR != 0).astype(np.int64)
    found: Array = protection + (columns.priorities - PRIORITY_MIN << 1) + originator
    return found


def _odd(seats: Seats) -> tuple[Mask, frozenset[str]]:
    """Who could be passed over on his node, and the queues that bar nobody for now."""
    trial = seats.trial
    numbers, places = trial.view.allocations.leaf_places()
    barring = np.zeros(len(numbers), dtype=np.bool_)
    calm: set[str] = set()
    for place in np.unique(places[seats.units.may_go()]).tolist():
        leaf = trial.view.leaf_paths[numbers[place]]
        strained = seats.strained_queues(leaf)
        barring[place] = bool(strained)
        calm.update(queue.path for queue, _ in seats.terms.rooms(trial, leaf))
        calm.difference_update(strained)
    return seats.units.tied() | barring[places], frozenset(calm)
