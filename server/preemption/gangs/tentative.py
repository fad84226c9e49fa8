"""A gang's plan while it is made (J8): the members' nodes, the victims, and the resulting amounts on nodes and in queues.

All amounts are sums, so that an attempt is undone by subtraction. This module also tests victims. A victim's queues must be able
to lose its amounts (G4), and its disruption budgets must allow its eviction (V5). The victims of other queues must not free more
than the gang's queue may claim (J7).
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from server.model.fit import Amounts, Demand
from server.preemption import admission
from server.preemption.gangs.eligibility import GangEligibility
from server.preemption.gangs.units import AllocationFacts, Units
from server.preemption.trial import Trial

Unit = tuple[int, ...]
"""The rows that are evicted together: one allocation, or all members of a gang."""
NOTHING: Final[Counter[int]] = Counter()


class TentativeAssignment:
    """The members that have a node so far, and the units that are evicted for them."""

    def __init__(self, trial: Trial, eligibility: GangEligibility, units: Units) -> None:
        self.trial = trial
        self.eligibility = eligibility
        self.units = units
        self.leaf = eligibility.leaf
        self.taken: dict[int, Unit] = {}
        self.limited = False
        """Whether a candidate of another queue was skipped because the gang's queue may not claim more (J7)."""
        self._width = len(trial.snapshot.types)
        self._freed: dict[int, Amounts] = {}
        self._own: dict[int, Amounts] = {}
        self._used: dict[int, Amounts] = {}
        self._lost: dict[str, Counter[int]] = {}
        self._free_on: dict[int, Amounts] = {}
        self._groups: Counter[str] = Counter()
        self._others = 0
        self._own_freed = [0] * self._width
        self._needs: dict[int, Amounts] = {}
        self._need = [0] * self._width
        self._share = eligibility.share(trial)
        self._respects = trial.snapshot.settings.disruption_budgets == "respect"
        self._narrow: dict[str, tuple[str, ...]] = {}
        self._ties: dict[int, frozenset[str | int]] = {}

    # Changes --------------------------------------------------------------------------------------

    def assign(self, node: int, demand: Demand, sign: int = 1) -> None:
        """Place a member on a node. With ``sign`` -1, remove the member from the node."""
        used = self._used.setdefault(node, [0] * self._width)
        for index, quantity in demand:
            used[index] += sign * quantity
        self._measure(node)

    def take(self, unit: Unit) -> None:
        """Take the rows of a unit as victims, and count them on their nodes, in their queues and in their disruption budgets."""
        for row in unit:
            self.taken[row] = unit
        self._count(unit, 1)

    def give_back(self, unit: Unit) -> None:
        """Give back a unit that was taken, so that its rows are no longer victims."""
        for row in unit:
            del self.taken[row]
        self._count(unit, -1)

    def _count(self, unit: Unit, sign: int) -> None:
        for row in unit:
            line = self.units.line(row)
            self._free(line, sign)
            self._others += sign if line.leaf != self.leaf else 0
            for queue, _ in self.eligibility.margins(self.trial, line.leaf):
                lost = self._lost.setdefault(queue.path, Counter())
                for index, quantity in line.charged:
                    lost[index] += sign * quantity
            for group in self.units.groups(row):
                self._groups[group] += sign
        self._narrow.clear()
        for node in {self.units.line(row).node for row in unit}:
            self._measure(node)

    def _free(self, line: AllocationFacts, sign: int) -> None:
        """Add the amounts that a victim frees on its node.

        The amounts that allocations of the gang's own queue free are also added up separately (J7).
        """
        own = line.leaf == self.leaf
        for table in (self._freed, self._own) if own else (self._freed,):
            amounts = table.setdefault(line.node, [0] * self._width)
            for index, quantity in line.frees:
                amounts[index] += sign * quantity
        for index, quantity in line.charged if own else ():
            self._own_freed[index] += sign * quantity

    def _measure(self, node: int) -> None:
        """Update the amounts that the members on a node need there (J7).

        The free capacity, and the amounts that victims of the gang's queue free on the node, are subtracted from the members'
        requests.
        """
        used, own = self._used.get(node), self._own.get(node)
        before = self._needs.get(node)
        now = [0] * self._width
        if used is not None:
            for index, much in enumerate(used):
                left = much - max(0, self.free_on(node)[index]) - (own[index] if own else 0)
                now[index] = max(0, left) if much else 0
        for index, much in enumerate(now):
            self._need[index] += much - (before[index] if before else 0)
        self._needs[node] = now

    # Questions ------------------------------------------------------------------------------------

    def free_on(self, node: int) -> Amounts:
        """Return the free capacity of a node for the gang before this plan, by type.

        Terminating pods count as gone, and reserved capacity counts as free.
        """
        known = self._free_on.get(node)
        if known is None:
            known = self._free_on[node] = self.trial.free_for_claim(node)
        return known

    def lacks(self, node: int) -> dict[int, int]:
        """Return the amounts that a node lacks for all members that are placed on it, by type.

        The node's victims count as gone.

        The result is empty if the node lacks nothing.
        """
        return self.lacks_with(node, ())

    def holds(self, node: int) -> bool:
        """Return whether the node lacks nothing for the members that are placed on it."""
        return not self.lacks(node)

    def lacks_with(self, node: int, demand: Demand) -> dict[int, int]:
        """Return, by type, the amounts that a node would lack for one more member, with the node's victims counted as gone."""
        free, freed, used = self.free_on(node), self._freed.get(node), self._used.get(node)
        wanted = dict(demand)
        for index, much in enumerate(used or ()):
            if much:
                wanted[index] = wanted.get(index, 0) + much
        found = {}
        for index, much in wanted.items():
            left = free[index] + (freed[index] if freed else 0)
            if left < much:
                found[index] = much - left
        return found

    def needs_with(self, demand: Demand) -> Iterator[tuple[int, Amounts]]:
        """Yield each node on which members are placed, with the amounts that the node would need beyond its free capacity for one more member."""
        for node, used in self._used.items():
            need = [0] * self._width
            for index, wanted in demand:
                need[index] = max(0, wanted + used[index] - self.free_on(node)[index])
            yield node, need

    def may_take(self, unit: Unit) -> bool:
        """Return whether a unit may be evicted in addition to the units taken so far.

        When this method is called, the member must be placed and the unit must not be taken.
        """
        if not (self._keeps_floors(unit) and self._keeps_budgets(unit)):
            return False
        if not any(map(self.is_of_others, unit)):
            return True
        return any(map(self._is_taken_for_a_type, unit)) and self._is_within()

    def takes_for(self, row: int) -> frozenset[int] | None:
        """Return the types for which an allocation of another queue may be evicted.

        Return None for an allocation of the gang's own queue, which may be evicted for any type.
        """
        leaf = self.units.line(row).leaf
        return None if leaf == self.leaf else self.eligibility.takes_for(self.trial, leaf)

    def _is_taken_for_a_type(self, row: int) -> bool:
        """Return whether an allocation of another queue may be evicted for a type that its node lacks (J7).

        The eviction must free the type. `takes_for(row)`, the set of types for which the allocation may be evicted, must contain
        the type. The gang's queue must be below its entitlement to the type.

        `within_share` does not replace this test. An overcommitted node lacks more than its members need. `within_share`
        compares only the amounts that the members need, and thus would accept a victim that frees none of these amounts.
        """
        takes = self.takes_for(row)
        lacks = self.lacks(self.units.line(row).node)
        found = [
            index
            for index, _ in self.units.line(row).frees
            if takes is not None and index in lacks and index in takes
        ]
        entitled = any(self._share[index] + self._own_freed[index] > 0 for index in found)
        self.limited = self.limited or (bool(found) and not entitled)
        return entitled

    def unowed(self) -> tuple[Unit, ...]:
        """Return the units of other queues that are not justified once all victims of the gang's own queue are gone (J7).

        A unit is one allocation, or a gang that is evicted whole. A set of units is justified if there is an order of eviction in
        which each unit, at its turn, frees a type that its node still lacks and for which the unit may be evicted. To find such
        an order, the function looks for its last unit: a unit that frees a lacking type even after all other units. The function
        removes this unit from the set, and continues with the remaining units. The remaining units are still justified, because a
        node with fewer victims lacks at least as much. When no unit can be the last, the remaining units are returned.
        """
        left = [unit for unit in dict.fromkeys(self.taken.values()) if self.is_of_others(unit[0])]
        if not left or all(map(self.is_of_others, self.taken)):
            return ()  # each unit freed a type that its node still lacked when it was taken
        stay: list[Unit] = []
        before = len(left) + 1
        while len(left) < before:
            before = len(left)
            for unit in left:
                self.give_back(unit)
                if any(map(self._is_taken_for_a_type, unit)):
                    stay.append(unit)
                else:
                    self.take(unit)
            left = [unit for unit in left if unit[0] in self.taken]
        for unit in stay:
            self.take(unit)
        return tuple(left)

    def takes_no_more_than_its_share(self) -> bool:
        """Return whether the victims of other queues, if there are any, free no more than the gang's queue may claim (J7)."""
        return not self._others or self._is_within()

    def _is_within(self) -> bool:
        within = self.within_share()
        self.limited = self.limited or not within
        return within

    def within_share(self) -> bool:
        """Return whether the victims of other queues free no more than the gang's own queue may still claim (J7)."""
        return all(
            self._need[index] <= max(0, left + self._own_freed[index])
            for index, left in self._share.items()
        )

    def takes_from_others(self) -> bool:
        """Return whether any victim runs outside the gang's own queue."""
        return self._others > 0

    def _keeps_floors(self, unit: Unit) -> bool:
        """Return whether each queue can lose the amounts of all its victims together (G4)."""
        lost: dict[str, Counter[int]] = {}
        margins: dict[str, Amounts] = {}
        for row in unit:
            line = self.units.line(row)
            for queue, margin in self.eligibility.margins(self.trial, line.leaf):
                margins[queue.path] = margin
                sums = lost.setdefault(queue.path, Counter())
                for index, quantity in line.charged:
                    sums[index] += quantity
        return all(
            self._lost.get(path, NOTHING)[index] + quantity <= margins[path][index]
            for path, sums in lost.items()
            for index, quantity in sums.items()
        )

    def _keeps_budgets(self, unit: Unit) -> bool:
        if not self._respects:
            return True
        more = Counter(group for row in unit for group in self.units.groups(row))
        return all(
            self._groups[group] + count <= self.trial.disruptions_left(group)
            for group, count in more.items()
        )

    # Ties that bar no candidate ------------------------------------------------------------------------

    def is_plain(self, row: int) -> bool:
        """Return whether this allocation stays evictable, whatever other victims are taken.

        Such an allocation is in no gang and in no disruption budget that is respected. Each of its queues can lose everything
        that may be evicted from any one node (see `strained_queues`).
        """
        if self.units.is_bound(row) or (self._respects and self.units.groups(row)):
            return False
        return not self.strained_queues(self.units.line(row).leaf)

    def strained_queues(self, leaf: str) -> tuple[str, ...]:
        """Return the strained queues on the path up from a leaf.

        Such a queue cannot lose everything that may be evicted from any one node, and may therefore protect a candidate.
        """
        known = self._narrow.get(leaf)
        if known is None:
            margins = self.eligibility.margins(self.trial, leaf)
            known = self._narrow[leaf] = tuple(
                queue.path for queue, margin in margins if not self._is_ample(queue.path, margin)
            )
        return known

    def _is_ample(self, path: str, margin: Amounts) -> bool:
        """Return whether a queue can lose everything that may be evicted from any one node (G4).

        The amounts that the queue has lost so far are subtracted first.
        """
        lost = self._lost.get(path, NOTHING)
        return all(
            lost.get(index, 0) + much <= margin[index] for index, much in enumerate(self.units.most)
        )

    def has_plenty_of_share(self, demand: Demand) -> bool:
        """Return whether the gang's queue may claim the whole request of one more member (J7).

        The member's node counts as having no free capacity.
        """
        wanted = dict(demand)
        return all(
            self._need[index] + wanted.get(index, 0) <= left + self._own_freed[index]
            for index, left in self._share.items()
            if self._need[index] or index in wanted
        )

    def is_of_others(self, row: int) -> bool:
        """Return whether an allocation runs in another queue than the gang's."""
        return self.units.line(row).leaf != self.leaf

    def ties(self, row: int) -> frozenset[str | int]:
        """Return the ties of a row: its queues, its disruption budgets and its gang.

        If another row with one of these ties is evicted, this row may become protected.
        """
        known = self._ties.get(row)
        if known is None:
            margins = self.eligibility.margins(self.trial, self.units.line(row).leaf)
            paths = [queue.path for queue, _ in margins]
            known = self._ties[row] = frozenset([*paths, *self._own_ties(row)])
        return known

    def strained(self, row: int) -> Iterator[str | int]:
        """Yield the ties of a row that may protect other candidates once the row is evicted.

        A *tie* is a queue, a disruption budget or a gang that the row shares with other rows. The result has the row's disruption
        budgets, its gang, and its strained queues. A queue is *strained* if it cannot lose everything that may be evicted from
        any one node.
        """
        yield from self.strained_queues(self.units.line(row).leaf)
        yield from self._own_ties(row)

    def _own_ties(self, row: int) -> Iterator[str | int]:
        """Yield the disruption budgets and the gang of a row."""
        yield from self.units.groups(row)
        if self.units.is_bound(row):
            yield self.units.gang_of(row)

    def over_max(self) -> dict[tuple[str, int], int]:
        """Return, by queue on the gang's path and type, the amount by which the whole gang would exceed the maximum (J4)."""
        found = {}
        kind = self.eligibility.whole.kind
        for queue in self.trial.snapshot.path_up(self.eligibility.leaf):
            held, lost = self.trial.held(queue.path), self._lost.get(queue.path, NOTHING)
            for index, wanted in kind.demand:
                most = admission.most(self.trial, queue, index, kind)
                over = 0 if most is None else held[index] - lost[index] + wanted - most
                if over > 0:
                    found[queue.path, index] = over
        return found

    def is_enough_without(self, unit: Unit) -> bool:
        """Return whether the plan would still be valid if a unit were not evicted.

        The assignment is the same before and after the call.
        """
        self.give_back(unit)
        nodes = {self.units.line(row).node for row in unit}
        enough = (
            all(map(self.holds, nodes))
            and not self.over_max()
            and self.units.keeps_gangs(self.taken)
            and (not self.takes_from_others() or self.within_share())
        )
        self.take(unit)
        return enough
