"""Surplus reclaim: while usage exceeds the capacity of the nodes, queues give back their usage above their shares (W3).

1. The target is the partition's usage beyond the capacity of its nodes, without foreign pods. Usage exceeds capacity when two
   schedulers placed pods at the same time, or when a node's capacity was reduced. The capacity of drained nodes is included, so
   that pods on drained nodes cause no excess.
2. Surplus reclaim is done only with `entitlement: proportional`. No ask gets the freed capacity.
3. A candidate holds a type of the target, and runs on a node on which more of that type is used than the node has. If capacity
   were freed on another node, the next pod would use it. That pod would then have to be evicted, and so on without end.
   DaemonSet, firm, untouchable and terminating pods are not candidates. Pods that have run for less than
   `preemption.minruntime`, and pods of a queue with `preemption.policy: disabled`, are not candidates either. With
   `disruptionbudgets: respect`, pods whose disruption budget is used up are not candidates (V5).
4. Every queue below the root keeps its deserved share of each type of the target. Each queue of a victim also keeps its
   entitlement to every other type that the victim uses.
5. Opted-out pods come last, and originators just before them. Within each of these groups, pods of lower priority come first,
   then pods that do not run yet, then pods that have run for a shorter time. `preemption.order` may replace these last two keys
   (V2). The pod's key is compared last (W8). At the end, victims that are not needed are left out.
"""

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from server.model.policies import TRIM
from server.model.quota import ROOT, PreemptionPolicy
from server.model.ranking import Rank, Ranking, window
from server.model.records import Amounts, Shrink, ShrinkResult
from server.preemption import victim_order
from server.preemption.entitlement import numbers, protects_only_whole
from server.preemption.policy import (
    SPARED_KEYS_MAX,
    Plan,
    ProtectedCandidates,
    Refusal,
    Release,
    Rule,
    ShrinkIntent,
)
from server.preemption.trial import Trial
from server.preemption.victim_order import Comparator
from server.snapshot.columns import (
    NOT_STARTED,
    RELEASING,
    REPLACED,
    REQUIRED_NODE,
    UNTOUCHABLE,
    VETOED,
)
from server.snapshot.leaf_eligibility import UNLIMITED

NAME: Final = TRIM.name
BARRED: Final = RELEASING | REPLACED | REQUIRED_NODE | UNTOUCHABLE | VETOED
BECAUSE: Final = "more is used than there is, and its queue has more than its share (W3)"

Order = tuple[Rank, ...]


class SurplusCandidate(NamedTuple):
    """A candidate for surplus reclaim: its sort key (``order``), row, node and leaf, and its amounts (``size``)."""

    order: Order
    row: int
    node: int
    leaf: str
    size: tuple[tuple[int, int], ...]


def plan(trial: Trial, intent: ShrinkIntent) -> Plan | Refusal:
    """Return a plan with the victims of surplus reclaim, or a refusal."""
    target = _target(trial)
    if not target:
        return Refusal(Rule.NOT_NEEDED, "no more is used than there is")
    candidates = sorted(_candidates(trial, target))
    left = dict(target)
    rules: dict[int, Rule] = {}
    taken = _walk(trial, candidates, left, rules)
    shrink = _shrink(trial, intent.queue, target, left, len(candidates), bool(taken))
    if not taken:
        because = "more is used than there is, and rules protect every pod"
        return Refusal(Rule.NO_VICTIMS, because, shrink=shrink)
    keys = trial.snapshot.allocations.keys
    releases = tuple(Release(one.row, keys[one.row], one.leaf, BECAUSE) for one in taken)
    stay = {one.order[-1]: rules.get(one.row, Rule.NOT_NEEDED) for one in candidates}
    for one in taken:
        del stay[one.order[-1]]
    spared = _spared(candidates, stay)
    ranking = _ranking(trial, candidates, stay)
    return Plan(NAME, (), releases, spared, shrink=shrink, replans=intent.replans, ranking=ranking)


def _spared(
    candidates: Iterable[SurplusCandidate], stay: Mapping[Rank, Rule]
) -> tuple[ProtectedCandidates, ...]:
    found: dict[tuple[Rule, str], list[str]] = {}
    for one in candidates:
        key = one.order[-1]
        if key in stay:
            found.setdefault((stay[key], one.leaf), []).append(str(key))
    return tuple(
        ProtectedCandidates(rule, leaf, len(keys), tuple(keys[:SPARED_KEYS_MAX]))
        for (rule, leaf), keys in sorted(found.items())
    )


def _ranking(
    trial: Trial, candidates: Sequence[SurplusCandidate], stay: Mapping[Rank, Rule]
) -> Ranking:
    """Return an excerpt, around the last victim, of the order in which the partition's candidates were considered."""
    order = [one.order for one in candidates]
    start, shown = window(order, frozenset(one[-1] for one in order) - stay.keys())
    return Ranking(
        victim_order.order(trial.snapshot.settings, TRIM.order.name),
        shown,
        [one.leaf for one in candidates[start : start + len(shown)]],
        len(order),
        start,
        queue=ROOT,
        protected=tuple(
            (str(one[-1]), stay[one[-1]].value)
            for one in shown
            if stay.get(one[-1], Rule.NOT_NEEDED) is not Rule.NOT_NEEDED
        ),
        types=trial.snapshot.types,
        numbers=numbers(trial, [one.leaf for one in candidates if one.order[-1] not in stay]),
    )


def _walk(
    trial: Trial,
    candidates: Iterable[SurplusCandidate],
    left: dict[int, int],
    rules: dict[int, Rule],
) -> list[SurplusCandidate]:
    """Return the victims in order (rules 4 and 5).

    ``left`` has the amounts that are still to be freed, and is reduced by the amounts of each victim. ``rules`` gets the rule
    that protects each candidate, by row.
    """
    margins, spent = _margins(trial, frozenset(left)), Counter[str]()
    full = trial.overfull(sorted(left))
    taken: list[SurplusCandidate] = []
    for one in candidates:
        if max(left.values()) <= 0:
            break
        short = full.get(one.node, {})
        if not _helps(one, left, short):
            continue
        rule = _objection(trial, one, margins, spent)
        if rule is not None:
            rules[one.row] = rule
        else:
            _change(trial, one, left, margins, -1)
            for index, quantity in one.size:
                short[index] = short.get(index, 0) - quantity
            spent.update(trial.snapshot.allocations.groups(one.row))
            taken.append(one)
    for one in reversed(taken[:]):
        if all(left[index] + quantity <= 0 for index, quantity in one.size if index in left):
            _change(trial, one, left, margins, 1)
            taken.remove(one)
    return taken


def _objection(
    trial: Trial, one: SurplusCandidate, margins: dict[str, list[int]], spent: Counter[str]
) -> Rule | None:
    """Return the rule that protects a candidate, given the victims taken so far. Return None if the candidate may be evicted."""
    if not _fits(trial, one, margins):
        return Rule.BELOW_GUARANTEE
    return None if _is_allowed(trial, one, spent) else Rule.BUDGET


def _is_allowed(trial: Trial, one: SurplusCandidate, spent: Counter[str]) -> bool:
    """Return whether each disruption group of the candidate has a disruption left, with the victims of this plan counted (V5).

    The result is True if the partition does not respect disruption budgets.
    """
    return trial.snapshot.settings.disruption_budgets != "respect" or all(
        trial.disruptions_left(group) > spent[group]
        for group in trial.snapshot.allocations.groups(one.row)
    )


def _target(trial: Trial) -> dict[int, int]:
    """Return, by type index, the usage beyond the capacity of the nodes (rule 1)."""
    snapshot = trial.snapshot
    used = trial.eff(ROOT)
    over = {index: used[index] - there for index, there in enumerate(snapshot.whole)}
    return {index: much for index, much in over.items() if much > 0}


def _candidates(trial: Trial, target: Collection[int]) -> Iterator[SurplusCandidate]:
    snapshot, columns = trial.snapshot, trial.snapshot.allocations
    rows = columns.rows_holding(trial.standing, list(target), BARRED | snapshot.firm_flags)
    exhausted = trial.exhausted()
    spent = None if exhausted is None else exhausted.item
    ranked = Comparator(trial, victim_order.order(snapshot.settings, TRIM.order.name), spent)
    for row in rows:
        leaf = snapshot.leaf_paths[int(columns.leaves[row])]
        if _may_go(trial, row, leaf):
            size = tuple(pair for pair in columns.demands[row] if not snapshot.ports[pair[0]])
            order = (*ranked.read(row, target), columns.keys[row])
            yield SurplusCandidate(order, row, int(columns.nodes[row]), leaf, size)


def _may_go(trial: Trial, row: int, leaf: str) -> bool:
    """Return whether the settings of the candidate's queue allow its eviction (rule 3)."""
    snapshot = trial.snapshot
    properties = snapshot.queues[leaf].spec.properties
    if properties.preemption_policy is PreemptionPolicy.DISABLED:
        return False
    started, least = int(snapshot.allocations.started_ms[row]), properties.preemption_minruntime_ms
    return started == NOT_STARTED or started + least <= snapshot.now


def least(trial: Trial, path: str, target: Container[int]) -> tuple[int, ...]:
    """Return the amounts that must be left to a queue, by type (rule 4). Nothing must be left to the root."""
    share = trial.shares.of(path)
    if path == ROOT:
        return (0,) * len(share.deserved)
    pairs = zip(share.deserved, share.entitled, strict=True)
    return tuple(part if at in target else floor for at, (part, floor) in enumerate(pairs))


def _margins(trial: Trial, target: Container[int]) -> dict[str, list[int]]:
    """Return, for each queue, the amounts by which its usage may fall, by type.

    With plain shares by weight, a queue below its share may fall further in types outside the target (W8).
    """
    whole = protects_only_whole(trial)
    return {
        path: [
            UNLIMITED if used < kept and whole and at not in target else used - kept
            for at, (used, kept) in enumerate(
                zip(trial.eff(path), least(trial, path, target), strict=True)
            )
        ]
        for path in trial.snapshot.queues
    }


def _helps(one: SurplusCandidate, left: dict[int, int], short: dict[int, int]) -> bool:
    """Return whether the candidate holds a type of which both the partition and the candidate's node must still free some."""
    return any(left.get(index, 0) > 0 and short.get(index, 0) > 0 for index, _ in one.size)


def _fits(trial: Trial, one: SurplusCandidate, margins: dict[str, list[int]]) -> bool:
    return all(
        margins[queue.path][index] >= quantity
        for queue in trial.snapshot.path_up(one.leaf)
        for index, quantity in one.size
    )


def _change(
    trial: Trial,
    one: SurplusCandidate,
    left: dict[int, int],
    margins: dict[str, list[int]],
    sign: int,
) -> None:
    """Subtract a victim from the amounts left to free and from its queues (``sign`` -1), or add the victim back (``sign`` 1)."""
    for index, quantity in one.size:
        if index in left:
            left[index] += sign * quantity
        for queue in trial.snapshot.path_up(one.leaf):
            margins[queue.path][index] += sign * quantity


def _shrink(  # noqa: PLR0913, PLR0917 - the numbers of a run
    trial: Trial,
    queue: str,
    target: dict[int, int],
    left: dict[int, int],
    candidates: int,
    taken: bool,  # noqa: FBT001
) -> Shrink:
    def named(amounts: dict[int, int]) -> Amounts:
        names = trial.snapshot.types
        pairs = sorted((names[index], amount) for index, amount in amounts.items())
        return {name: amount for name, amount in pairs if amount}

    missing = {index: max(0, amount) for index, amount in left.items()}
    freed = {index: amount - left[index] for index, amount in target.items()}
    result = ShrinkResult.COMPLETE
    if any(missing.values()):
        result = ShrinkResult.SHORTFALL if taken else ShrinkResult.IMPOSSIBLE
    return Shrink(queue, named(target), named(freed), named(missing), result, candidates)
