"""The victims on one node for one more member of a gang, and a lower bound on their number.

Candidates are examined least important first. Each candidate is tested against the rules together with the victims that were
taken before (J8). Usually no gang, disruption budget or queue near its limit protects a candidate. Candidates are then taken
without tests, and the result is also valid for later members. `NodePlanner` tries this fast path first. If a candidate of the
node may be protected, `NodePlanner` takes the full path with every test.

`Closer` computes a lower bound on the number of victims for nodes on which no candidate is skipped (design 6.7). The bound is
the number of the node's candidates that are taken, in the partition's order, until the member fits. This bound is usually higher
than the bound of `assignments.field`. If a queue, a disruption budget or a gang may protect a candidate of a node, the next
candidate may be taken instead. Such a node keeps the bound of `assignments.field`.
"""

from collections.abc import Iterable, Set
from typing import Final, NamedTuple

from server.kernels.fit import Mask
from server.model.asks import PRIORITY_MIN
from server.model.fit import Demand
from server.model.policies import JOB
from server.preemption.gangs.tentative import TentativeAssignment, Unit
from server.preemption.gangs.units import Units
from server.preemption.trial import Trial
from server.snapshot import assignments as nodes
from server.snapshot.assignments import MemberNodes

NodeKey = tuple[int, int, int, str]
"""The key of a node: highest priority of a victim, number of evicted gangs, number of victims, node name.

The smallest key is the best (J9).
"""
NO_VICTIMS: Final = PRIORITY_MIN - 1
"""The highest priority of an empty set of victims: a value below every priority."""
NODE_STEPS: Final = 1
"""The number of steps of the budget that judging a node costs. One placement costs one step."""


class Judged(NamedTuple):
    """The verdict on a node for one more member: the units to evict there, and the key by which nodes are compared.

    ``key`` is None if the allocations that may be evicted on the node free too little together.
    """

    key: NodeKey | None
    units: tuple[Unit, ...] = ()


class NodePlanner:
    """The search for victims on one node, given the members and the victims of the plan so far.

    Judging a node leaves the assignment unchanged. With ``own_first``, the allocations of the gang's own queue come before all
    others.
    """

    def __init__(
        self, trial: Trial, units: Units, assignment: TentativeAssignment, *, own_first: bool
    ) -> None:
        self.trial = trial
        self.units = units
        self.assignment = assignment
        self._own_first = own_first
        self._orders: dict[int, list[int]] = {}

    def judge(self, node: int, demand: Demand) -> Judged:
        """Return the verdict on a node for one more member: the victims there, and the node's key."""
        self.trial.steps += NODE_STEPS
        return self._judge_fast(node, demand) or self._judge_plain(node, demand)

    def still_holds(self, node: int, units: tuple[Unit, ...], demand: Demand) -> bool:
        """Return whether the units of an earlier verdict may still be evicted, so that the verdict is still valid.

        Candidates that were skipped for the verdict are not tested again. Placing members on other nodes normally gives a node
        no new candidates. If a node may have new candidates, `search` computes a new verdict on the node later.
        """
        if self._is_plain(units, demand):
            return True
        self.assignment.assign(node, demand)
        taken: list[Unit] = []
        for unit in units:
            same = self.units.unit(unit[0], self.assignment.taken) == unit
            if not (
                same and unit[0] not in self.assignment.taken and self.assignment.may_take(unit)
            ):
                break
            self.assignment.take(unit)
            taken.append(unit)
        enough = len(taken) == len(units) and self.assignment.takes_no_more_than_its_share()
        self._undo(node, demand, taken)
        return enough

    def key(self, node: int, units: Iterable[Unit]) -> NodeKey:
        """Return the key by which the node is compared with other nodes (J9)."""
        rows = [row for unit in units for row in unit]
        highest = max((self.units.priority(row) for row in rows), default=NO_VICTIMS)
        gangs = len({self.units.gang_of(row) for row in rows})
        return highest, gangs, len(rows), self.trial.snapshot.nodes.ids[node]

    # The fast path --------------------------------------------------------------------------------

    def _judge_fast(self, node: int, demand: Demand) -> Judged | None:
        """Return the verdict if no candidate can be protected by a queue, a budget or a gang.

        Return None if a candidate may be protected.
        """
        lacks = self.assignment.lacks_with(node, demand)
        rows: list[int] = []
        for row in self.order(node):
            if not lacks:
                break
            if row in self.assignment.taken:
                continue
            if _covers(self.units.line(row).frees, lacks, self.assignment.takes_for(row)):
                rows.append(row)
        units = tuple((row,) for row in rows)
        if not self._is_plain(units, demand):
            return None
        return Judged(None) if lacks else Judged(self.key(node, units), units)

    def _is_plain(self, units: Iterable[Unit], demand: Demand) -> bool:
        """Return whether every allocation of these units stays evictable, whatever other victims are taken."""
        rows = [row for unit in units for row in unit]
        if not all(
            row not in self.assignment.taken and self.assignment.is_plain(row) for row in rows
        ):
            return False
        others = self.assignment.takes_from_others() or any(map(self.assignment.is_of_others, rows))
        return not others or self.assignment.has_plenty_of_share(demand)

    def order(self, node: int) -> list[int]:
        """Return the rows on a node that pass every rule on single allocations, least important first."""
        known = self._orders.get(node)
        if known is None:
            rows = filter(self.units.passed, self.trial.snapshot.allocations.rows_on(node))
            known = self._orders[node] = sorted(rows, key=self.units.rank)
            if self._own_first:
                known.sort(key=self.assignment.is_of_others)
        return known

    # The full path --------------------------------------------------------------------------------

    def _judge_plain(self, node: int, demand: Demand) -> Judged:
        """Return the verdict after all tests. `_judge_fast` returns the same verdict if no candidate can be protected."""
        self.assignment.assign(node, demand)
        units = self._walk(node)
        enough = self.assignment.holds(node) and self.assignment.takes_no_more_than_its_share()
        self._undo(node, demand, units)
        return Judged(self.key(node, units), tuple(units)) if enough else Judged(None)

    def _undo(self, node: int, demand: Demand, units: list[Unit]) -> None:
        for unit in reversed(units):
            self.assignment.give_back(unit)
        self.assignment.assign(node, demand, -1)

    def _walk(self, node: int) -> list[Unit]:
        """Take candidates, least important first, until the member fits (J8).

        Each candidate is tested together with the candidates taken before it. A candidate that was skipped may be taken in a
        later pass.
        """
        units: list[Unit] = []
        before = -1
        while len(units) > before and not self.assignment.holds(node):
            before = len(units)
            for row in self.order(node):
                unit = self._unit(node, row)
                if unit is not None:
                    self.assignment.take(unit)
                    units.append(unit)
                if self.assignment.holds(node):
                    break
        return units

    def _unit(self, node: int, row: int) -> Unit | None:
        """Return the unit (one allocation, or a whole gang) that has to be evicted with the allocation in ``row``.

        Return None if the allocation does not help or may not be evicted.
        """
        lacks = self.assignment.lacks(node)
        if row in self.assignment.taken or not any(
            index in lacks for index, _ in self.units.line(row).frees
        ):
            return None
        unit = self.units.unit(row, self.assignment.taken)
        return unit if unit is not None and self.assignment.may_take(unit) else None


def _covers(frees: Demand, lacks: dict[int, int], takes: frozenset[int] | None) -> bool:
    """Return whether an allocation frees a lacking type for which it may be evicted.

    If so, subtract what it frees from ``lacks``.

    ``takes`` are the types for which the allocation may be evicted, None for any type. Once the allocation is taken, it counts
    for all types that it frees (J7).
    """
    if not any(index in lacks and (takes is None or index in takes) for index, _ in frees):
        return False
    for index, quantity in frees:
        if index in lacks:
            lacks[index] -= quantity
            if lacks[index] <= 0:
                del lacks[index]
    return True


class Closer:
    """Lower bounds on the number of victims on the nodes of one `MemberNodes`.

    These bounds are usually higher than those in that object.

    They stay valid until a placement makes one more queue protect candidates (see `holds`).
    """

    def __init__(self, assignment: TentativeAssignment, field: MemberNodes) -> None:
        self._columns = assignment.trial.snapshot.allocations
        self._field = field
        self._tail = assignment.units.tail
        assert JOB.order.fixed == ("protection", "priority", "originator")
        self._rank = nodes.ranks(self._columns, assignment.units.reluctant())
        self._odd, self._calm = _passable(assignment)
        self._numbers: list[int] = []

    def holds(self, strained: Set[str | int]) -> bool:
        """Return whether the bounds are still valid when these queues may have to protect candidates from now on."""
        return self._calm.isdisjoint(strained)

    def number(self, place: int) -> int:
        """Return a lower bound on the number of victims on the node at the index ``place`` of `MemberNodes.order`.

        The node must need victims: ``place`` must be at least `MemberNodes.free_nodes`.
        """
        at = place - self._field.free_nodes
        while at >= len(self._numbers):
            self._numbers += self._next_block()
        return self._numbers[at]

    def _next_block(self) -> list[int]:
        at = len(self._numbers)
        tail = self._tail.in_order(self._field.block(at))
        return self._field.in_order(self._columns, at, tail, self._rank, self._odd)


def _passable(assignment: TentativeAssignment) -> tuple[Mask, frozenset[str]]:
    """Return a mask of the rows that plans may skip, although each of them may be evicted alone.

    Also return the queues that protect no candidate now.
    """
    trial = assignment.trial
    columns = trial.snapshot.allocations
    barring: list[int] = []
    calm: set[str] = set()
    for number in nodes.leaves(columns, assignment.units.may_go()):
        leaf = trial.snapshot.leaf_paths[number]
        strained = assignment.strained_queues(leaf)
        if strained or not assignment.eligibility.takes_for_all(trial, leaf):
            barring.append(number)
        calm.update(queue.path for queue, _ in assignment.eligibility.margins(trial, leaf))
        calm.difference_update(strained)
    return assignment.units.tied() | nodes.of_leaves(columns, barring), frozenset(calm)
