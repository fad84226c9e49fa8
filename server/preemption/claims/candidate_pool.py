"""The candidates of a victim search: the allocations that may be evicted, and the amounts that each would free on one node.

A pool (`CandidatePool`) holds the allocations that pass the rules on single allocations. For every node, the pool has a bound
on the sort key of victim sets: no set of victims on the node has a better sort key. Building a pool takes time proportional to
the number of allocations. Several queues share one pool if it contains all their candidates. Plans may be made after the pool
was built. Therefore each victim is checked again, and a node that a plan has touched gets a new bound.

For one node, `Candidates` yields the candidates in claim order, each with the amounts that it frees. `Caps` holds the largest
amount that each queue and each disruption budget can lose. `victim_sets` then searches for the best set of candidates (G3-G9).
In a partition that plans for gangs, a member that its gang needs is no victim (J12). The number of members above the gang's
minimum is therefore one of the caps.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final, NamedTuple

from server.kernels.distinct import tally
from server.kernels.fit import Mask, equal
from server.model.fit import Demand
from server.model.quota import is_below
from server.model.ranking import Ranked
from server.preemption.claims.eligibility import (
    CODES,
    Block,
    ClaimEligibility,
    InQueueEligibility,
    SparedByLeaf,
    spared,
    spared_again,
)
from server.preemption.claims.margins import of as margins_of
from server.preemption.claims.victim_sets import Candidate
from server.preemption.entitlement import may_cross, protects_only_whole
from server.preemption.policy import ProtectedCandidates
from server.preemption.trial import Trial
from server.preemption.victim_order import Comparator
from server.snapshot import eligibility_filter, gangs
from server.snapshot.columns import OPTED_OUT, ORIGINATOR
from server.snapshot.eligibility_filter import FilteredRows, Rules, VictimNodes
from server.snapshot.leaf_eligibility import PASSED, EligibilityColumns
from server.snapshot.queues import QueueFacts
from server.snapshot.snapshot import Snapshot
from server.snapshot.waiting import ClassFacts


def needed_by_gangs(trial: Trial) -> Mask | None:
    """Return a mask of the rows whose eviction would leave their gang fewer members than it needs (J12).

    Return None if the partition does not plan for gangs.
    """
    known = trial.snapshot.knows_firm
    return gangs.needed(trial.snapshot.allocations, trial.standing) if known else None


def barred_rows(
    trial: Trial, spent: Mask | None, kin: Mask | None
) -> tuple[tuple[Mask | None, int], ...]:
    """Return masks of the rows that rules on single pods protect in every leaf, each with the code of its rule.

    ``spent`` are the rows whose disruption budgets are used up, and ``kin`` are the preemptor's own rows.
    """
    return (spent, CODES.budget), (needed_by_gangs(trial), CODES.gang), (kin, CODES.kin)


def spare_members(trial: Trial, rows: list[int]) -> dict[int, int]:
    """Return, for each gang of these allocations, how many members may be evicted without breaking the gang (J12).

    The keys of the result are gang numbers.

    The result is empty when the partition does not plan for gangs.
    """
    known = trial.snapshot.knows_firm
    return gangs.spare(trial.snapshot.allocations, trial.standing, rows) if known else {}


POOLS: Final = "pools"
"""The key under which a Trial stores its candidate pools, by class."""
KEPT: Final = 4
"""The largest number of pools that are stored for one class.

The number of pools is limited, because each search is compared with every stored pool.
"""
LEAVES_A_STEP: Final = 16
"""The number of leaves for which computing the eligibility takes as long as one placement."""
Least = tuple[tuple[int, int], ...]
"""The amounts that must be freed whichever node is chosen, by type index."""


@dataclass(frozen=True, eq=False)
class CandidatePool:
    """The candidate pool for one class. ``seen`` is the length of `Trial.touched` when the pool was built.

    ``preferred`` rows count as opted out (V3). ``field`` has the nodes on which victims could free enough, with their bounds
    and candidates. Nodes that lack a ``closed`` type are left out (G2). ``is_narrowed`` says that the rows of some leaves were
    filtered again after ``field`` was made. In this case, some of the candidates in ``field`` may now be protected.
    """

    snapshot: Snapshot
    eligibility: EligibilityColumns
    rules: Rules
    least: Least
    preferred: Mask | None
    closed: frozenset[int]
    filtered: FilteredRows
    field: VictimNodes
    seen: int
    wide: "CandidatePool | None" = None
    changed: Mask | None = None

    def serves(
        self, eligibility: EligibilityColumns, rules: Rules, least: Least, preferred: Mask | None
    ) -> bool:
        """Return whether the pool can be used for a search with the given values.

        The pool must contain every allocation that the search may evict. Pool and search must exclude the same rows by the same
        rules.
        """
        if least != self.least or not equal(preferred, self.preferred):
            return False
        if rules.needed != self.rules.needed:
            return False  # other types are closed
        pairs = zip(rules.barred, self.rules.barred, strict=True)
        if not all(equal(one, other) for (one, _), (other, _) in pairs):
            return False
        return self.eligibility.allows(eligibility)

    def narrowed(self, trial: Trial, eligibility: EligibilityColumns) -> "CandidatePool":
        """Return a pool for another eligibility, which this pool must serve (see `serves`).

        Rows of leaves whose eligibility differs are filtered again. The bounds stay the same.
        """
        other = self.eligibility.differs(eligibility)
        if not other.any():
            return self
        columns = self.snapshot.allocations
        filtered = eligibility_filter.filter_again(
            self.filtered, columns, trial.standing, eligibility, self.rules, other
        )
        known = self.snapshot, eligibility, self.rules, self.least, self.preferred, self.closed
        return CandidatePool(*known, filtered, self.field, self.seen, self, other)

    @cached_property
    def spared(self) -> tuple[ProtectedCandidates, ...]:
        """Return the protected candidates, by rule and leaf."""
        return tuple(self._spared_by_leaf.values())

    @cached_property
    def _spared_by_leaf(self) -> SparedByLeaf:
        if self.wide is None or self.changed is None:
            return spared(self.snapshot, self.filtered)
        known = self.wide._spared_by_leaf
        return spared_again(self.snapshot, known, self.filtered, self.changed)

    @cached_property
    def passed(self) -> Mapping[str, int]:
        """Return, for each leaf, how many allocations passed every rule.

        Only allocations on nodes on which the ask could run are counted.
        """
        rows, paths = self.field.passed, self.snapshot.leaf_paths
        if self.wide is not None:
            rows = rows[self.filtered.codes.take(rows) == PASSED]
        counts = enumerate(tally(self.filtered.leaf.take(rows)))
        return {paths[self.filtered.leaves[at]]: count for at, count in counts if count}


def preferred_now(trial: Trial) -> Mask | None:
    """Return the rows that count as opted out now, because their disruption budgets are used up (V5).

    Return None if the partition's `disruptionbudgets` is not `prefer`.
    """
    return _spent(trial, "prefer")


def _spent(trial: Trial, mode: str) -> Mask | None:
    """Return the rows whose disruption budgets are used up. Return None if the partition's `disruptionbudgets` is not ``mode``."""
    return trial.exhausted() if trial.snapshot.settings.disruption_budgets == mode else None


def find_pool(
    trial: Trial, kind: ClassFacts, eligibility: ClaimEligibility | InQueueEligibility, least: Least
) -> CandidatePool:
    """Return a stored pool that serves this search, or build a pool for the present state of the Trial.

    A pool for a claim is stored.
    """
    kin = eligibility.kin(trial)
    preferred = preferred_now(trial)
    leaves = eligibility.columns(trial)
    trial.steps += margins_of(trial).count // LEAVES_A_STEP
    known: list[CandidatePool] = (
        trial.kept.setdefault((POOLS, kind.number), []) if kin is None else []
    )
    barred = barred_rows(trial, _spent(trial, "respect"), kin)
    needed = tuple(index for index, _ in kind.node_demand if index not in eligibility.closed)
    rules = Rules(CODES, needed, trial.snapshot.firm_flags, barred)
    for one in known:
        if one.serves(leaves, rules, least, preferred):
            return one.narrowed(trial, leaves)
    made = _made(trial, kind, leaves, rules, least, preferred, eligibility.closed)
    known[:] = [made, *known[: KEPT - 1]]
    return made


def _made(  # noqa: PLR0913, PLR0917 - all that a pool depends on
    trial: Trial,
    kind: ClassFacts,
    eligibility: EligibilityColumns,
    rules: Rules,
    least: Least,
    preferred: Mask | None,
    closed: frozenset[int],
) -> CandidatePool:
    snapshot = trial.snapshot
    columns = snapshot.allocations
    filtered = eligibility_filter.filter_rows(columns, trial.standing, eligibility, rules)
    nodes, need = trial.short_nodes(kind, least, closed)
    rows = eligibility_filter.passed(columns, filtered, nodes)
    field = eligibility_filter.field(
        columns, rows, need, snapshot.weights, snapshot.nodes.names, preferred
    )
    return CandidatePool(
        snapshot, eligibility, rules, least, preferred, closed, filtered, field, len(trial.touched)
    )


MarginAt = Callable[[int], list[int]]
"""A function that takes a queue's position on the path up from a leaf, and returns the amounts that the queue can lose, by type."""


class CandidateFacts(NamedTuple):
    """The facts of an allocation that do not depend on the claim.

    ``charged`` has the amounts by which the eviction lowers the usage of the allocation's queues. ``frees`` has the amounts that
    the eviction frees on the node, ports included. ``given`` has the same amounts by type index. ``groups`` are the disruption
    budgets of the allocation. ``gang`` is the number of the allocation's gang, 0 if it has none.
    """

    leaf: str
    node: int
    charged: Demand
    frees: Demand
    given: dict[int, int]
    opted: bool
    originator: bool
    priority: int
    groups: tuple[str, ...]
    gang: int


class ClaimNeed:
    """The amounts that have to be freed so that an ask fits on a node.

    A *need* is an amount of a type that is missing as free capacity on the node, or as headroom below a maximum.

    ``node`` is the node's row. ``lacks`` are the amounts that the node lacks, by type. ``blocks`` are the maxima under which
    the ask has too little headroom.
    """

    def __init__(self, node: int, lacks: Sequence[int], blocks: Sequence[Block]) -> None:
        self.node = node
        self.blocks = blocks
        self.lacks = tuple(lacks)
        self.lacking = [index for index, lack in enumerate(lacks) if lack]
        self.kinds = (*self.lacking, *(one.at for one in blocks))
        """The type index of each need: first the needs of the node, then the needs of the maxima."""

    @property
    def amounts(self) -> tuple[int, ...]:
        """Return the amount of each need, in the order of ``kinds``."""
        return (*(self.lacks[index] for index in self.lacking), *(one.lack for one in self.blocks))


class Caps:
    """The caps of a search: the largest amounts that queues on victims' paths, disruption budgets and gangs can lose.

    ``left`` has these amounts in one list, in the form that a `Task` takes. A *place* is an index of that list.
    """

    def __init__(self) -> None:
        self.left: list[int] = []
        self.ways: dict[str, list[int]] = {}
        """For each leaf, the places in ``left`` of the queues on its path.

        The place of a queue is the place of its first type. The places of its other types follow directly.
        """
        self._queues: dict[str, int] = {}
        self._budgets: dict[str | int, int] = {}
        """The places of the caps in ``left``, by the name of a disruption budget or by the number of a gang."""

    def add_leaf(self, leaf: str, queues: Sequence[QueueFacts], margin: MarginAt) -> None:
        """Add a leaf with the queues on its path. Each queue comes with the amounts that it can lose, by type.

        A queue above several leaves is added once.
        """
        known = self._queues
        for place, queue in enumerate(queues):
            if queue.path not in known:
                known[queue.path] = len(self.left)
                self.left.extend(margin(place))
        self.ways[leaf] = [known[queue.path] for queue in queues]

    def add_budget(self, name: str | int, most: int) -> None:
        """Add a disruption budget or a gang, of which at most ``most`` pods may be evicted."""
        if name not in self._budgets:
            self._budgets[name] = len(self.left)
            self.left.append(most)

    def queue(self, path: str) -> int:
        """Return the place in ``left`` of the amount that a queue can lose of its first type.

        The places of its other types follow directly.
        """
        return self._queues[path]

    def budgets(self, names: Sequence[str | int]) -> list[int]:
        """Return the places of the caps of disruption budgets and gangs. Names in ``names`` without a cap are left out."""
        known = self._budgets
        return [known[name] for name in names if name in known]


class Candidates:
    """The candidates for one class of asks on one Trial. ``preferred`` marks rows that count as opted out (V3)."""

    def __init__(
        self,
        trial: Trial,
        eligibility: ClaimEligibility | InQueueEligibility,
        keys: Sequence[str],
        preferred: Mask | None,
    ) -> None:
        self._eligibility = eligibility
        self._preferred = preferred
        spent = None if preferred is None else preferred.item
        self._order = Comparator(trial, keys, spent)
        self._rows: dict[int, CandidateFacts] = {}
        self._selects = protects_only_whole(trial) or may_cross(trial)
        """Whether to test that a candidate's queues exceed their shares in a type for which the candidate is taken (W8, W9).

        The test is needed if G4 does not exclude candidates of queues that are within their shares.
        """
        self._rests = trial.snapshot.settings.deadzone_permyriad > 0
        self._respects = trial.snapshot.settings.disruption_budgets == "respect"

    def caps(self, trial: Trial, rows: list[int]) -> Caps:
        """Return the caps that limit the eviction of these rows: the caps of their queues, disruption budgets and gangs."""
        caps = Caps()
        for path in dict.fromkeys(self.row(trial, row).leaf for row in rows):
            way = self._eligibility.path(trial, path)
            caps.add_leaf(path, way.queues, partial(self._eligibility.margin, trial, way))
        if self._respects:
            for row in rows:
                for group in self.row(trial, row).groups:
                    caps.add_budget(group, trial.disruptions_left(group))
        for gang, most in spare_members(trial, rows).items():
            caps.add_budget(gang, most)
        return caps

    def of(self, trial: Trial, rows: list[int], need: ClaimNeed, caps: Caps) -> Iterator[Candidate]:
        """Yield, in claim order (V2), the candidates whose eviction frees a needed amount."""
        place = 0
        for number in self._order.in_order(rows, need.kinds):
            row = self.row(trial, number)
            gives = self._gives(row, need)
            taken_for = self._taken_for(trial, row, need.kinds, gives)
            if not taken_for:
                continue
            over = self._over(trial, row, taken_for, caps) if self._selects else ()
            if over or not self._selects:
                worth = row.opted, row.originator, row.priority
                yield Candidate(
                    place, number, *worth, gives, self._takes(row, caps), row.frees, over
                )
                place += 1

    def ranks(self, rows: Iterable[int], kinds: Sequence[int]) -> list[Ranked]:
        """Return, for each row, the values by which rows are compared (V2)."""
        return self._order.ranks(rows, kinds)

    def leaves(self, rows: Iterable[int]) -> list[str]:
        """Return the leaf of each row. Raise KeyError for a row that was not passed to `row` before."""
        return [self._rows[row].leaf for row in rows]

    def row(self, trial: Trial, number: int) -> CandidateFacts:
        """Return the facts of an allocation, read once and then cached."""
        known = self._rows.get(number)
        if known is None:
            known = self._rows[number] = self._read(trial, number)
        return known

    def _read(self, trial: Trial, number: int) -> CandidateFacts:
        columns = trial.snapshot.allocations
        flags = int(columns.flags[number])
        line = columns.resources[number].tolist()
        frees = tuple((index, quantity) for index, quantity in enumerate(line) if quantity)
        spent = self._preferred is not None and bool(self._preferred[number])
        return CandidateFacts(
            trial.snapshot.leaf_paths[int(columns.leaves[number])],
            int(columns.nodes[number]),
            columns.demands[number],
            frees,
            dict(frees),
            bool(flags & OPTED_OUT) or spent,
            bool(flags & ORIGINATOR),
            int(columns.priorities[number]),
            columns.groups(number),
            int(columns.gangs[number]),
        )

    def _gives(self, row: CandidateFacts, need: ClaimNeed) -> tuple[int, ...]:
        """Return, for each need, the amount that the eviction of an allocation frees (G9).

        The needs of the node come first, then the needs of the maxima.

        All types that the allocation frees count, even those for which it may not be evicted (G2, W6).
        """
        given, there = row.given, row.node == need.node
        here = [given.get(index, 0) if there else 0 for index in need.lacking]
        if not need.blocks:
            return tuple(here)
        above = [given.get(one.at, 0) if is_below(row.leaf, one.path) else 0 for one in need.blocks]
        return (*here, *above)

    def _taken_for(
        self, trial: Trial, row: CandidateFacts, kinds: tuple[int, ...], gives: tuple[int, ...]
    ) -> Sequence[int]:
        """Return the types among ``kinds`` that an allocation frees and for which it may be evicted.

        The allocation's leaf must lie outside the queue that decides for the type (G2), and exceed its share by more than the dead
        zone (P9).
        """
        if not any(gives):
            return ()
        withheld = self._eligibility.withheld(row.leaf)
        rest = self._eligibility.at_rest(trial, row.leaf) if self._rests else ()
        if not (withheld or rest or self._selects):
            # The allocation is taken for some of these types; the ways do not depend on which
            # types.
            return kinds
        return [
            index
            for index, much in zip(kinds, gives, strict=True)
            if much and index not in withheld and index not in rest
        ]

    def _over(
        self, trial: Trial, row: CandidateFacts, taken_for: Sequence[int], caps: Caps
    ) -> tuple[tuple[int, ...], ...]:
        """Return the *ways* in which the row may be the single victim that brings its queues below their shares (W8).

        There is one way for each type of ``taken_for`` in which the row's queues exceed their shares (W9). A way lists places
        of caps: the places of these queues in that type, and the places of the row's disruption budgets.
        """
        path = self._eligibility.path(trial, row.leaf)
        budgets = caps.budgets(row.groups)
        return tuple(
            (*(caps.queue(one.path) + index for one in path.queues[: path.common]), *budgets)
            for index in sorted(set(taken_for))
            if self._eligibility.is_over(trial, row.leaf, index)
        )

    def _takes(self, row: CandidateFacts, caps: Caps) -> Demand:
        """Return, for each cap, the amount that the eviction of the row uses up."""
        charged, starts = row.charged, caps.ways[row.leaf]
        queues = [(start + index, much) for start in starts for index, much in charged]
        if row.groups or row.gang:
            queues += [(place, 1) for place in caps.budgets((*row.groups, row.gang))]
        return tuple(queues)
