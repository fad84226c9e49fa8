"""The victims of a gang's plan, as units. A unit is one allocation, or a whole gang that would otherwise be broken (J12).

A gang that would fall below its minimum is evicted whole, and counts as one unit. Such a gang is not evicted if one of its
members runs in a queue that exceeds its entitlement by at most the dead zone (P9). With `victimgang: avoid`, no member of such
a gang is evicted. A gang that already has fewer members than it needs is broken, and its members are not protected.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from server.kernels.fit import Mask
from server.model.policies import JOB
from server.preemption.claims.eligibility import CODE
from server.preemption.gangs.eligibility import GangEligibility
from server.preemption.policy import Rule
from server.preemption.trial import Trial
from server.preemption.victim_order import Comparator, order, tail
from server.snapshot import assignments, gangs
from server.snapshot.columns import GROUPED, OPTED_OUT
from server.snapshot.eligibility_filter import FilteredRows
from server.snapshot.leaf_eligibility import PASSED

Rank = tuple[int | str, ...]
"""The values by which the partition's order for gangs sorts an allocation, then the allocation's id.

The smallest rank is evicted first (V2).
"""
HARMLESS = frozenset(
    {
        PASSED,
        CODE[Rule.NO_COMMON_TYPE],
        CODE[Rule.DECIDING_QUEUE],
        CODE[Rule.NOT_OVER_GUARANTEE],
        CODE[Rule.BELOW_GUARANTEE],
    }
)
"""The codes of rules that do not protect a member whose gang is evicted whole.

A member that is evicted with its gang need not hold a lacking type. Another test says whether the queues can lose the amounts of
all victims together.
"""
AT_REST = CODE[Rule.NOT_OVER_GUARANTEE]
"""The code of the rule on the dead zone (P9).

The *dead zone* is the amount by which a queue may exceed its entitlement without losing pods to claims.

This rule protects an allocation if, for every requested type that it holds, its queues exceed their entitlements by at most the
dead zone.
"""


def _harmless(trial: Trial) -> frozenset[int]:
    """Return the codes of rules that do not protect a member whose gang is evicted whole.

    If the partition has a dead zone, the rule `AT_REST` protects such a member, too, so that its code is left out (P9).
    """
    return HARMLESS - {AT_REST} if trial.snapshot.settings.deadzone_permyriad else HARMLESS


class AllocationFacts(NamedTuple):
    """The facts of an allocation: its node, its leaf, and the amounts by which its eviction lowers usage in its queues and on its node."""

    node: int
    leaf: str
    charged: tuple[tuple[int, int], ...]
    frees: tuple[tuple[int, int], ...]


class Units:
    """The allocations that may be evicted for a gang on a Trial, as units. This object does not record which units are taken.

    With ``willing``, opted-out pods are not evicted (V3).
    """

    def __init__(
        self,
        trial: Trial,
        eligibility: GangEligibility,
        filtered: FilteredRows,
        spent: Iterable[int],
    ) -> None:
        self.trial = trial
        self.eligibility = eligibility
        self.willing = True
        self.most = assignments.most_on_a_node(trial.snapshot.allocations, filtered)
        """The largest amounts that may be evicted from any one node, by type."""
        self._codes = filtered.codes
        self._harmless = _harmless(trial)
        self._spent = frozenset(spent)
        self._sizes = gangs.sizes(trial.snapshot.allocations, trial.standing)
        self._lines: dict[int, AllocationFacts] = {}
        self._ranks: dict[int, Rank] = {}
        settings, is_spent = trial.snapshot.settings, self._spent.__contains__
        self._order = Comparator(trial, order(settings, JOB.order.name), is_spent)
        self.tail = Comparator(trial, tail(settings, JOB.order.name), is_spent)
        """The comparator for allocations that the fixed keys leave equal."""

    def line(self, row: int) -> AllocationFacts:
        """Return the facts of an allocation, read once and then cached."""
        known = self._lines.get(row)
        if known is None:
            snapshot = self.trial.snapshot
            columns = snapshot.allocations
            held = columns.resources[row].tolist()
            known = self._lines[row] = AllocationFacts(
                int(columns.nodes[row]),
                snapshot.leaf_paths[int(columns.leaves[row])],
                columns.demands[row],
                tuple((index, much) for index, much in enumerate(held) if much),
            )
        return known

    def rank(self, row: int) -> Rank:
        """Return the rank of an allocation in the order of eviction. The smallest rank is evicted first."""
        known = self._ranks.get(row)
        if known is None:
            key = self.trial.snapshot.allocations.keys[row]
            known = self._ranks[row] = (*self._order.read(row), key)
        return known

    def priority(self, row: int) -> int:
        """Return the priority of an allocation."""
        return int(self.trial.snapshot.allocations.priorities[row])

    def opted_out(self, row: int) -> bool:
        """Return whether the allocation is opted out, or its disruption budget is used up (V5)."""
        return (
            bool(int(self.trial.snapshot.allocations.flags[row]) & OPTED_OUT) or row in self._spent
        )

    def gang_of(self, row: int) -> int:
        """Return a number that all allocations of one gang share. An allocation without a gang is a gang of its own (J4)."""
        return int(self.trial.snapshot.allocations.gangs[row]) or -1 - row

    def is_bound(self, row: int) -> bool:
        """Return whether the allocation belongs to a gang."""
        return int(self.trial.snapshot.allocations.gangs[row]) != 0

    def tied(self) -> Mask:
        """Return a mask of the rows that belong to a gang or to a disruption budget that must be respected."""
        columns, budgets = (
            self.trial.snapshot.allocations,
            self.trial.snapshot.settings.disruption_budgets,
        )
        grouped = GROUPED if budgets == "respect" else 0
        found: Mask = (columns.gangs != 0) | (columns.flags & grouped != 0)
        return found

    def groups(self, row: int) -> tuple[str, ...]:
        """Return the disruption budgets to which the allocation belongs."""
        return self.trial.snapshot.allocations.groups(row)

    def passed(self, row: int) -> bool:
        """Return whether the allocation may be evicted alone: it passes every rule and, with ``willing``, is not opted out."""
        return int(self._codes[row]) == PASSED and not (self.willing and self.opted_out(row))

    def may_go(self) -> Mask:
        """Return a mask of the rows that may be evicted, alone or together with other members of their gang."""
        found = self._eligible()
        return found & ~self.reluctant() if self.willing else found

    def has_reluctant(self) -> bool:
        """Return whether any allocation that may be evicted is opted out."""
        return bool((self._eligible() & self.reluctant()).any())

    def _eligible(self) -> Mask:
        found: Mask = self._codes == PASSED
        in_gang = self.trial.snapshot.allocations.gangs > 0
        # Rows that are evicted with other members of their gang (J12).
        for code in sorted(self._harmless - {PASSED}):
            found |= in_gang & (self._codes == code)
        return found

    def reluctant(self) -> Mask:
        """Return the value of `opted_out` for each row."""
        found: Mask = self.trial.snapshot.allocations.flags & OPTED_OUT != 0
        found[list(self._spent)] = True
        return found

    def unit(self, row: int, taken: Iterable[int]) -> tuple[int, ...] | None:
        """Return the rows that must be evicted together with a row, given the rows taken so far.

        Return None if the row's gang protects it (J12).
        """
        number = int(self.trial.snapshot.allocations.gangs[row])
        least = self.minimum(row)
        left = self._sizes.get(number, 0) - sum(1 for one in taken if self.gang_of(one) == number)
        if not number or left > least or self._sizes[number] < least:
            return (row,)
        if self.trial.snapshot.settings.job_victim_gang == "avoid":
            return None
        before = set(taken)
        rest = [one for one in self.gang(number) if one not in before]
        return tuple(rest) if all(map(self._may_join, rest)) else None

    def minimum(self, row: int) -> int:
        """Return how many members the allocation's gang needs."""
        spec = self.trial.snapshot.allocations.specs[row]
        return spec.min_members if spec is not None else 0

    def gang(self, number: int) -> list[int]:
        """Return the members of a gang that still run."""
        return gangs.members(self.trial.snapshot.allocations, self.trial.standing, number)

    def keeps_gangs(self, rows: Iterable[int]) -> bool:
        """Return whether each gang keeps the members that it needs if these rows are evicted (J12).

        Gangs that had too few members before, or that are evicted whole, are exempt.
        """
        return next(self.broken(rows), None) is None

    def broken(self, rows: Iterable[int]) -> Iterator[int]:
        """Yield one allocation of each gang that the eviction of these rows would leave broken."""
        going: dict[int, list[int]] = {}
        for row in rows:
            number = int(self.trial.snapshot.allocations.gangs[row])
            if number:
                going.setdefault(number, []).append(row)
        for number, some in going.items():
            size, least = self._sizes.get(number, 0), self.minimum(some[0])
            if size >= least and size - len(some) < least and len(some) < size:
                yield some[0]

    def _may_join(self, row: int) -> bool:
        fine = int(self._codes[row]) in self._harmless
        return fine and not (self.willing and self.opted_out(row))
