"""The candidate pool of a victim search: allocations that pass every per-row rule, and a bound for every node.

Building it costs as much as there are allocations. Queues that ask alike share one pool: it serves every search that may take
no more than it allows. What plans took since is checked for each victim again, and nodes that plans touched are bounded again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from server.kernels.distinct import tally
from server.kernels.fit import Mask, equal
from server.preemption.claims import victim_gangs
from server.preemption.claims.eligibility import CODES, Terms, spared
from server.preemption.claims.own_queue_eligibility import OwnTerms
from server.preemption.policy import Spared
from server.preemption.trial import Trial
from server.snapshot import eligibility_filter as screens
from server.snapshot.eligibility_filter import Field, LeafTerms, Rules, Screen
from server.snapshot.snapshot import Snapshot
from server.snapshot.waiting import ClassFacts

GROUND: Final = "ground"
"""The key under which a Trial keeps its pools, by class."""
KEPT: Final = 4
"""The number of pools that are kept for one class: a search compares itself with each of them."""
ByLeaf = Mapping[int, LeafTerms]
Least = tuple[tuple[int, int], ...]
"""What has to be freed in any case, by type index."""


@dataclass(frozen=True, eq=False)
class Ground:
    """The candidate pool for one class. ``seen`` counts the touched nodes of the Trial when it was made.

    ``preferred`` rows count as opted out (7.6). Nodes that lack a ``closed`` type are left out (G2). ``is_narrowed``: the
    screen protects rows that the field has.
    """

    snapshot: Snapshot
    terms: ByLeaf
    rules: Rules
    least: Least
    preferred: Mask | None
    closed: frozenset[int]
    screen: Screen
    field: Field
    seen: int
    is_narrowed: bool = False

    def serves(self, terms: ByLeaf, rules: Rules, least: Least, preferred: Mask | None) -> bool:
        """Return whether every allocation that may be evicted on these terms may be on the pool's, with the same rows barred."""
        if least != self.least or not equal(preferred, self.preferred):
            return False
        if rules.needed != self.rules.needed:
            return False  # other types are closed
        pairs = zip(rules.barred, self.rules.barred, strict=True)
        if not all(equal(one, other) for (one, _), (other, _) in pairs):
            return False
        return terms.keys() == self.terms.keys() and all(
            _allows(self.terms[leaf], one) for leaf, one in terms.items()
        )

    def narrowed(self, trial: Trial, terms: ByLeaf) -> "Ground":
        """Return the pool for terms that it serves: leaves on other terms are screened again, the bounds stay."""
        other = {leaf: one for leaf, one in terms.items() if not _is_alike(self.terms[leaf], one)}
        if not other:
            return self
        columns = self.snapshot.allocations
        screen = screens.again(self.screen, columns, trial.standing, other, self.rules)
        known = self.snapshot, terms, self.rules, self.least, self.preferred, self.closed
        return Ground(*known, screen, self.field, self.seen, is_narrowed=True)

    @cached_property
    def spared(self) -> tuple[Spared, ...]:
        """Return the protected candidates, by rule and leaf."""
        return spared(self.snapshot, self.screen)

    @cached_property
    def passed(self) -> Mapping[str, int]:
        """Return by leaf how many allocations passed every rule, on nodes where the ask could run."""
        rows, paths = self.field.passed, self.snapshot.leaf_paths
        if self.is_narrowed:
            rows = rows[self.screen.codes.take(rows) == screens.PASSED]
        counts = enumerate(tally(self.screen.leaf.take(rows)))
        return {paths[self.screen.leaves[at]]: count for at, count in counts if count}


def _allows(wide: LeafTerms, narrow: LeafTerms) -> bool:
    """Return whether the wider terms allow every victim that the narrower ones allow."""
    if not _is_open(narrow):
        return True
    return (
        _is_open(wide)
        and all(one or not other for one, other in zip(wide.useful, narrow.useful, strict=True))
        and wide.priority >= narrow.priority
        and wide.since_ms >= narrow.since_ms
        and all(one >= other for one, other in zip(wide.most, narrow.most, strict=True))
    )


def _is_open(terms: LeafTerms) -> bool:
    return terms.spared == screens.PASSED and any(terms.useful)


def _is_alike(one: LeafTerms, other: LeafTerms) -> bool:
    """Return whether two terms differ in no more than what one victim may hold, which is checked for each victim again."""
    return (one.spared, one.useful, one.priority, one.since_ms, one.inside) == (
        other.spared,
        other.useful,
        other.priority,
        other.since_ms,
        other.inside,
    )


def preferred_now(trial: Trial) -> Mask | None:
    """Return the rows that count as opted out because their disruption budgets are used up by now (7.6)."""
    return _spent(trial, "prefer")


def _spent(trial: Trial, mode: str) -> Mask | None:
    """Return the rows whose disruption budgets are used up, where the partition's mode of budgets is ``mode``."""
    return trial.exhausted() if trial.snapshot.settings.disruption_budgets == mode else None


def ground(trial: Trial, kind: ClassFacts, terms: Terms | OwnTerms, least: Least) -> Ground:
    """Return a pool that is there and serves, or a new one of the Trial as it is now."""
    kin = terms.kin(trial)
    preferred = preferred_now(trial)
    by_leaf = dict(terms.by_leaf(trial))
    known: list[Ground] = trial.kept.setdefault((GROUND, kind.number), []) if kin is None else []
    barred = victim_gangs.barred(trial, _spent(trial, "respect"), kin)
    needed = tuple(index for index, _ in kind.node_demand if index not in terms.closed)
    rules = Rules(CODES, needed, trial.snapshot.firm_flags, barred)
    for one in known:
        if one.serves(by_leaf, rules, least, preferred):
            return one.narrowed(trial, by_leaf)
    made = _made(trial, kind, by_leaf, rules, least, preferred, terms.closed)
    known[:] = [made, *known[: KEPT - 1]]
    return made


def _made(  # noqa: PLR0913, PLR0917 - all that it stands on
    trial: Trial,
    kind: ClassFacts,
    terms: ByLeaf,
    rules: Rules,
    least: Least,
    preferred: Mask | None,
    closed: frozenset[int],
) -> Ground:
    snapshot = trial.snapshot
    columns = snapshot.allocations
    screen = screens.screen(columns, trial.standing, terms, rules)
    nodes, need = trial.short_nodes(kind, least, closed)
    rows = screens.passed(columns, screen, nodes)
    field = screens.field(columns, rows, need, snapshot.weights, snapshot.nodes.names, preferred)
    return Ground(
        snapshot, terms, rules, least, preferred, closed, screen, field, len(trial.touched)
    )
