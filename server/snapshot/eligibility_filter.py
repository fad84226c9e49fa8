"""The eligibility filter of running allocations for a claim.

The filter gives each row the number of a rule that protects the row, or PASSED if no rule protects the row.

Values that depend on the amounts of queues are computed once for each leaf (`LeafEligibility`). All other values are computed
for all rows at once. A row that passes the filter may be evicted if no other row is evicted with it. The planner decides
whether several rows may be evicted together. A *standing* row is a row that runs and whose release is not ordered.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from server.kernels import cover
from server.kernels.cover import Rows
from server.kernels.distinct import counted
from server.kernels.fit import Array, Mask
from server.snapshot.columns import (
    NOT_STARTED,
    OPTED_OUT,
    ORIGINATOR,
    REPLACED,
    REQUIRED_NODE,
    UNTOUCHABLE,
    VETOED,
    AllocationColumns,
)
from server.snapshot.leaf_eligibility import PASSED, EligibilityColumns


class Codes(NamedTuple):
    """The numbers that a filter writes for each rule.

    The caller chooses these numbers.

    If several rules protect a row, the row gets the number of the rule that `_judged` applies last.
    """

    gone: int
    required_node: int
    firm: int
    untouchable: int
    replaced: int
    budget: int
    priority: int
    min_runtime: int
    no_type: int
    useless: int
    below: int
    kin: int
    gang: int
    inside: int


class FilteredRows(NamedTuple):
    """The result of the eligibility filter: for each row, the number of the rule that protects it, or PASSED.

    ``leaves`` has leaf numbers, and ``leaf`` has, for each row, the index of its leaf in ``leaves``.
    """

    codes: Array
    leaf: Array
    leaves: tuple[int, ...]

    def without(self, rows: Mask, code: int) -> "FilteredRows":
        """Return a copy of the result in which the rule with the number ``code`` protects these rows."""
        return self._replace(codes=np.where(rows, code, self.codes))


class Rules(NamedTuple):
    """The rules that protect rows of any leaf: the numbers of these rules, and the rows that each rule protects."""

    codes: Codes
    needed: tuple[int, ...]
    """The types that the ask requests."""
    firm: int
    """The flags that make a row firm. A row with one of these flags is protected (J4)."""
    barred: tuple[tuple[Mask | None, int], ...] = ()
    """Masks of more protected rows, each with the number of its rule. If several masks mark a row, the last of these masks applies."""


def filter_rows(
    columns: AllocationColumns,
    standing: Mask,
    eligibility: EligibilityColumns,
    rules: Rules,
) -> FilteredRows:
    """Return the filter's result for all rows."""
    leaves, at = columns.leaf_places()
    found = _judged(columns, standing, eligibility, rules, slice(None))
    return FilteredRows(found, at, leaves)


def filter_again(  # noqa: PLR0913, PLR0917 - what is known, what has changed
    known: FilteredRows,
    columns: AllocationColumns,
    standing: Mask,
    eligibility: EligibilityColumns,
    rules: Rules,
    changed: Mask,
) -> FilteredRows:
    """Return the filter's result after the eligibility of the leaves in ``changed`` changed.

    Only the rows of these leaves are judged again.
    """
    rows = np.flatnonzero(changed.take(known.leaf))
    found = known.codes.copy()
    found[rows] = _judged(columns, standing, eligibility, rules, rows)
    return known._replace(codes=found)


def _judged(
    columns: AllocationColumns,
    standing: Mask,
    eligibility: EligibilityColumns,
    rules: Rules,
    rows: Array | slice,
) -> Array:
    """Return, for some rows, the number of the rule that protects each row, or PASSED."""
    at, resources, codes = columns.leaf_places()[1][rows], columns.resources[rows], rules.codes
    width = resources.shape[1]
    found = np.zeros(len(at), dtype=np.int64)
    for column in range(width):
        held = resources[:, column]
        found[(held > _table(eligibility.most[:, column], at)) & (held > 0)] = codes.below
    useful = np.zeros(len(at), dtype=np.bool_)
    holding = np.zeros(len(at), dtype=np.bool_)
    for column in rules.needed:
        holding |= resources[:, column] > 0
    for column in range(width):
        flags = eligibility.useful[:, column]
        if flags.any():
            useful |= flags.take(at) & (resources[:, column] > 0)
    found[~useful] = codes.useless
    _bar_inside(found, eligibility.inside, at, resources, rules)
    found[~holding] = codes.no_type
    started = columns.started_ms[rows]
    since = np.where(started == NOT_STARTED, columns.created_ms[rows], started)
    latest = _table(eligibility.since_ms, at)
    found[since > latest] = codes.min_runtime
    found[columns.priorities[rows] > _table(eligibility.priority, at)] = codes.priority
    _bar(found, columns.flags[rows], rules, rows)
    spared = _table(eligibility.spared, at)
    found = np.where(spared != PASSED, spared, found)
    found[~standing[rows]] = codes.gone
    return found


def _bar_inside(found: Array, inside: Mask, at: Array, resources: Array, rules: Rules) -> None:
    """Mark as protected each row that runs inside the deciding queues of all needed types that it holds (G2)."""
    if not inside.any():
        return
    outside = np.zeros(len(at), dtype=np.bool_)
    for column in rules.needed:
        outside |= ~inside[:, column].take(at) & (resources[:, column] > 0)
    found[~outside] = rules.codes.inside


def _bar(found: Array, flags: Array, rules: Rules, rows: Array | slice) -> None:
    """Mark as protected, in all leaves, the rows to which a mask or a flag of a rule applies."""
    codes = rules.codes
    for mask, code in rules.barred:
        if mask is not None:
            found[mask[rows]] = code
    for flag, code in (
        (REPLACED, codes.replaced),
        (UNTOUCHABLE | VETOED, codes.untouchable),
        (rules.firm, codes.firm),
        (REQUIRED_NODE, codes.required_node),
    ):
        found[flags & flag != 0] = code


def _table(values: Array, at: Array) -> Array:
    """Return, for each row, the value of its leaf. If all leaves have the same value, return an array with this one value."""
    if not len(values) or (values == values[0]).all():
        return np.array([*values[:1], 0][:1], dtype=np.int64)
    return values.take(at)


class Tallied(NamedTuple):
    """The number of rows of one leaf that one rule protected, and the keys of some of these rows.

    ``code`` is the number of the rule.
    """

    code: int
    leaf: int
    rows: int
    keys: tuple[str, ...]


def tallied(
    columns: AllocationColumns,
    filtered: FilteredRows,
    most_keys: int,
    among: Mask | None = None,
) -> list[Tallied]:
    """Return, for each rule and leaf, how many rows the rule protected. The result is sorted by rule, then by leaf.

    For each rule and leaf, also return the keys of the oldest of these rows, at most ``most_keys`` keys.

    Rows without an allocation are not included. If ``among`` is given, only the leaves that it marks are included.
    """
    counts = columns.alive & (filtered.codes != PASSED)
    if among is not None:
        counts &= among.take(filtered.leaf)
    rows = np.flatnonzero(counts)
    if not len(rows):
        return []
    both = filtered.codes[rows] * len(filtered.leaves) + filtered.leaf[rows]
    since = columns.created_ms[rows]
    order = np.lexsort((since, both))
    rows, both, since = rows[order], both[order], since[order]
    values, starts, sizes = counted(both)
    # Rows of one group and age are sorted by key, which no array has.
    alike = np.zeros(len(rows), dtype=np.int64)
    alike[1:] = (both[1:] == both[:-1]) & (since[1:] == since[:-1])
    ties = np.add.reduceat(alike, starts).tolist()
    named, line, found = columns.keys, rows.tolist(), []
    for value, start, size, tied in zip(values, starts, sizes, ties, strict=True):
        code, leaf = divmod(value, len(filtered.leaves))
        if tied:
            keys = _oldest(columns, rows[start : start + size], most_keys)
        else:
            keys = tuple([named[row] for row in line[start : start + min(size, most_keys)]])
        found.append(Tallied(code, filtered.leaves[leaf], size, keys))
    return found


def _oldest(columns: AllocationColumns, rows: Array, most: int) -> tuple[str, ...]:
    """Return the keys of the oldest rows, at most ``most`` keys, sorted by age, then by key.

    Row numbers do not influence the order, because they depend on when snapshots were taken.
    """
    since = columns.created_ms[rows]
    if len(rows) > most:
        rows = rows[since <= np.partition(since, most - 1)[most - 1]]
    named = ((int(columns.created_ms[row]), columns.keys[row]) for row in rows.tolist())
    return tuple(key for _, key in heapq.nsmallest(most, named))


def nearest(  # noqa: PLR0913, PLR0917 - what is there, what is wanted, how it is measured
    columns: AllocationColumns,
    filtered: FilteredRows,
    nodes: Mask,
    need: Array,
    weights: Sequence[int],
    names: Array,
) -> tuple[int, list[int]]:
    """Return the node that would lack least if all its rows that passed the filter were evicted, and the missing amounts.

    The amounts are listed by type. The node is -1 if ``nodes`` marks no node.
    """
    places = np.flatnonzero(nodes)
    if not len(places):
        return -1, []
    freed = np.zeros_like(need)
    rows = np.flatnonzero(filtered.codes == PASSED)
    np.add.at(freed, columns.nodes.take(rows), columns.resources.take(rows, axis=0))
    lacks = np.maximum(need - freed, 0)[places]
    most = cover.shares(lacks, weights)
    order = (
        np.lexsort((names[places], most)) if most.dtype != object else _sorted(most, names[places])
    )
    best = int(order[0])
    return int(places[best]), lacks[best].tolist()


def _sorted(most: cover.Excess, names: Array) -> list[int]:
    keys = list(zip(most.tolist(), names.tolist(), strict=True))
    return sorted(range(len(keys)), key=keys.__getitem__)


@dataclass(frozen=True, slots=True, eq=False)
class VictimNodes:
    """The nodes on which victims could free enough, with the rows on each node that passed the filter.

    The rows and bounds of a node are read only on request, because a claim needs them for few nodes.
    """

    order: list[int]
    """The nodes that could free enough, the node with the best bound first."""
    places: Array
    """All nodes with rows that passed the filter, in ascending order."""
    starts: Array
    """For each node in ``places``, the index in ``passed`` at which its rows begin. One more value at the end is the number of rows."""
    passed: Array
    ranked: cover.Bounds | None = None

    def bound(self, node: int) -> tuple[int, int, int]:
        """Return the bounds (rank, fewest, excess) of a node, as `kernels.cover.Bounds` defines them."""
        assert self.ranked is not None
        at = int(self.places.searchsorted(node))
        _, rank, fewest, excess = self.ranked
        return int(rank[at]), int(fewest[at]), int(excess[at])

    def rows(self, node: int) -> list[int]:
        """Return the rows on a node that passed the filter."""
        at = int(self.places.searchsorted(node))
        if at == len(self.places) or self.places[at] != node:
            return []
        found: list[int] = self.passed[self.starts[at] : self.starts[at + 1]].tolist()
        return found

    def among(self, nodes: Sequence[int], standing: Mask) -> Array:
        """Return the rows on these nodes that passed the filter and are still standing, in the order of the nodes."""
        rows = np.array([row for node in nodes for row in self.rows(node)], dtype=np.int64)
        return rows[standing[rows]]


def passed(columns: AllocationColumns, filtered: FilteredRows, nodes: Mask) -> Array:
    """Return the rows on these nodes that passed the filter, sorted by node."""
    order = columns.by_node()
    return on(columns, order[filtered.codes.take(order) == PASSED], nodes)


def on(columns: AllocationColumns, rows: Array, nodes: Mask) -> Array:
    """Return the given rows that run on these nodes."""
    return rows[nodes.take(columns.nodes.take(rows))]


def field(  # noqa: PLR0913, PLR0917 - what is there, what is wanted, how it is measured
    columns: AllocationColumns,
    rows: Array,
    need: Array,
    weights: Sequence[int],
    names: Array,
    opted: Mask | None = None,
) -> VictimNodes:
    """Return the nodes on which the eviction of some of ``rows`` could free enough, with their bounds.

    ``rows`` must be sorted by node. ``need`` has one line for each node, with the amounts that must be freed there. The rows in
    ``opted`` count as opted out, in addition to the pods that opted out.
    """
    if not len(rows):
        return VictimNodes([], rows, rows, rows)
    groups = cover.grouped(columns.nodes.take(rows))
    places = groups.places
    flags = columns.flags.take(rows)
    out = flags & OPTED_OUT != 0
    given = Rows(
        columns.resources.take(rows, axis=0),
        out if opted is None else out | opted[rows],
        flags & ORIGINATOR != 0,
        columns.priorities.take(rows),
    )
    ranked = cover.bounds(given, groups, need.take(places, axis=0), weights)
    best: list[int] = places[cover.order(ranked, names[places])].tolist()
    return VictimNodes(best, places, groups.ends, rows, ranked)
