"""Preemption for a required node (G11): pods are evicted from a node for a DaemonSet's pod, whatever their queues are guaranteed.

1. The ask requires one node by name. Only that node is considered, cordoned or not. There is no delay, and the ask is tried once
   after each change of the node.
2. Every pod on the node may be evicted, with four exceptions: pods that require the node themselves, untouchable pods, firm pods
   (unless `firmbreak: true`), and pods of a higher priority than the ask. In partitions that plan for gangs there is a fifth
   exception: members that a gang needs (J12). Fences and guarantees protect no pod here.
3. Regular pods are evicted first, then pods that opted out or whose disruption budget is used up. Originators come last. Within
   each of these groups, pods of lower priority come first, then younger pods, then smaller pods. `preemption.order` may replace
   age and size (V2).
4. The ask must fit below the limits of its queues, once its victims are gone.
5. The node is held for the ask alone until the ask's pod runs there.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from server.model import policies
from server.model.quota import is_below
from server.model.ranking import Ranking
from server.preemption import admission, victim_order
from server.preemption.claims import candidate_pool
from server.preemption.entitlement import numbers
from server.preemption.policy import (
    SPARED_KEYS_MAX,
    Intent,
    Plan,
    PlannedPledge,
    ProtectedCandidates,
    Refusal,
    Release,
    Rule,
)
from server.preemption.trial import Trial
from server.preemption.victim_order import Comparator
from server.snapshot.columns import (
    REPLACED,
    REQUIRED_NODE,
    UNTOUCHABLE,
    VETOED,
)
from server.snapshot.waiting import WaitingAsk

NAME: Final = policies.REQUIRED_NODE.name

BECAUSE: Final = "a pod that must run on this node needs the capacity (G11)"

_NEEDLESS: Final = (Rule.NOT_NEEDED, Rule.NO_COMMON_TYPE)
"""The reasons why an unprotected candidate is not evicted."""
Lacking = dict[int, int]
"""The amounts that have to be freed, by type index."""


def intents(trial: Trial) -> Iterator[Intent]:
    """Yield an intent for each due ask that requires a node and for which pods may be evicted.

    The order is the order in which asks wait.
    """
    for ask in sorted(trial.snapshot.daemons, key=_order):
        if may_require(ask) is None:
            yield Intent(NAME, ask)


def _order(ask: WaitingAsk) -> tuple[int, int, int]:
    return ask.order


def may_require(ask: WaitingAsk) -> Refusal | None:
    """Return the reason why no pod may be evicted for the ask.

    The pods on the node are not considered. Return None if pods may be evicted.
    """
    if not ask.spec.allow_preempt_other:
        return Refusal(Rule.NEVER_PREEMPTS, "its preemptionPolicy is Never")
    if ask.spec.may_fail_to_bind:  # design 1.8
        return Refusal(Rule.RM_CHECK, "its resource manager has to look at a node first")
    if not ask.within_limits:
        return Refusal(Rule.USER_LIMIT, "a limit of its user or group has no headroom for it")
    return None


def plan(trial: Trial, intent: Intent) -> Plan | Refusal:
    """Return a plan for the required node, or the reason why there is none.

    Each victim of the plan is needed.
    """
    ask = intent.ask
    refused = may_require(ask)
    if refused is not None:
        return refused
    row = trial.snapshot.row_of(ask.spec.constraints.required_node)
    if row < 0 or not trial.may_require(ask.kind, row):
        return Refusal(Rule.NO_NODE, "its node is not there, or does not suit it")
    lacks = _lacks(trial, ask, row)
    ranked = _comparator(trial)
    order = ranked.in_order(trial.rows_on(row), tuple(lacks))
    walked = _walk(trial, ask, order, dict(lacks))
    kept = _give_back(trial, [one for one, rule in walked.items() if rule is None], lacks)
    missing = _left(trial, kept, lacks)
    stay = {one: rule or Rule.NOT_NEEDED for one, rule in walked.items() if one not in kept}
    told = _spared(trial, stay)
    node_id = trial.snapshot.nodes.ids[row]
    if missing:
        because = f"the pods that may be evicted from node {node_id} do not free enough"
        lacking = tuple(missing.items())
        return Refusal(Rule.NO_VICTIMS, because, node_id=node_id, missing=lacking, spared=told)
    blocked = _blocked(trial, ask, kept)
    if blocked:
        return Refusal(Rule.HEAD_ROOM, f"queue {blocked} has no headroom for it", spared=told)
    columns, paths = trial.snapshot.allocations, trial.snapshot.leaf_paths
    releases = tuple(
        Release(one, columns.keys[one], paths[int(columns.leaves[one])], BECAUSE) for one in kept
    )
    pledge = PlannedPledge(ask, row, node_id, exclusive=True)
    if not releases:
        return Plan(NAME, (pledge,), spared=told)
    ranking = _ranking(trial, ranked, row, stay, kept)
    return Plan(NAME, (pledge,), releases, told, ranking=ranking)


def _comparator(trial: Trial) -> Comparator:
    order = victim_order.order(trial.snapshot.settings, policies.REQUIRED_NODE.order.name)
    return Comparator(trial, order, lambda other: _is_exhausted(trial, other))


def _spared(trial: Trial, stay: Mapping[int, Rule]) -> tuple[ProtectedCandidates, ...]:
    columns, paths = trial.snapshot.allocations, trial.snapshot.leaf_paths
    found: dict[tuple[Rule, str], list[str]] = {}
    for row, rule in stay.items():
        found.setdefault((rule, paths[int(columns.leaves[row])]), []).append(columns.keys[row])
    return tuple(
        ProtectedCandidates(rule, leaf, len(keys), tuple(keys[:SPARED_KEYS_MAX]))
        for (rule, leaf), keys in sorted(found.items())
    )


def _ranking(
    trial: Trial, ranked: Comparator, node: int, stay: Mapping[int, Rule], kept: list[int]
) -> Ranking:
    """Return the order in which the node's allocations were considered.

    The allocations that a rule protects are listed separately.
    """
    columns, paths = trial.snapshot.allocations, trial.snapshot.leaf_paths
    rows = [*kept, *(row for row, rule in stay.items() if rule in _NEEDLESS)]
    queues = [paths[int(columns.leaves[row])] for row in rows]
    return Ranking(
        victim_order.order(trial.snapshot.settings, policies.REQUIRED_NODE.order.name),
        ranked.ranks(rows),
        queues,
        len(rows),
        nodes=(trial.snapshot.nodes.ids[node],),
        protected=tuple(
            (columns.keys[row], rule.value) for row, rule in stay.items() if rule not in _NEEDLESS
        ),
        types=trial.snapshot.types,
        numbers=numbers(trial, queues[: len(kept)]),
    )


def _lacks(trial: Trial, ask: WaitingAsk, row: int) -> Lacking:
    free = trial.free_for_claim(row)
    return {
        index: wanted - free[index]
        for index, wanted in ask.kind.node_demand
        if wanted > free[index]
    }


def _walk(trial: Trial, ask: WaitingAsk, rows: list[int], left: Lacking) -> dict[int, Rule | None]:
    """Return, by row, the rule that protects the row, or None for a victim.

    Rows are taken in order until nothing is lacking, except rows that a rule protects or that hold no lacking type. The amounts
    that the taken rows free are subtracted from ``left``.
    """
    columns = trial.snapshot.allocations
    found: dict[int, Rule | None] = {}
    may_go = candidate_pool.spare_members(trial, rows)
    for one in rows:
        rule, gang = _rule_of(trial, ask, one, left), int(columns.gangs[one])
        if rule is None and gang in may_go and not may_go[gang]:
            rule = Rule.GANG
        if rule is None:
            may_go[gang] = may_go.get(gang, 0) - 1
            _free(trial, one, left)
        found[one] = rule
    return found


def _rule_of(trial: Trial, ask: WaitingAsk, row: int, left: Lacking) -> Rule | None:
    """Return the rule that protects an allocation on the node (rule 2).

    Return None if the allocation may be evicted for the lacking types ``left``.
    """
    columns = trial.snapshot.allocations
    flags = int(columns.flags[row])
    firm = 0 if trial.snapshot.settings.firm_break else trial.snapshot.firm_flags
    verdicts = (
        (Rule.REQUIRED_NODE, flags & REQUIRED_NODE),
        (Rule.FIRM, flags & firm),
        (Rule.UNTOUCHABLE, flags & (UNTOUCHABLE | VETOED)),
        (Rule.REPLACED, flags & REPLACED),
        (Rule.PRIORITY, int(columns.priorities[row]) > ask.spec.priority),
        (Rule.NOT_NEEDED, not left),
        (Rule.NO_COMMON_TYPE, not any(columns.resources[row, index] > 0 for index in left)),
    )
    return next((rule for rule, applies in verdicts if applies), None)


def _free(trial: Trial, row: int, left: Lacking) -> None:
    line = trial.snapshot.allocations.resources[row]
    for index in list(left):
        left[index] -= int(line[index])
        if left[index] <= 0:
            del left[index]


def _is_exhausted(trial: Trial, row: int) -> bool:
    """Return whether a disruption budget of the pod is used up.

    On a required node, a used-up budget does not protect the pod, but puts the pod later in the order of victims (G11). If the
    partition ignores disruption budgets, the result is False.
    """
    if trial.snapshot.settings.disruption_budgets == "ignore":
        return False
    groups = trial.snapshot.allocations.groups(row)
    return any(trial.disruptions_left(group) <= 0 for group in groups)


def _give_back(trial: Trial, taken: list[int], lacks: Lacking) -> list[int]:
    """Return the victims that are needed (invariant 11). The victim that was taken last is examined first."""
    kept = list(taken)
    for one in reversed(taken):
        others = [other for other in kept if other != one]
        if not _left(trial, others, lacks):
            kept = others
    return kept


def _left(trial: Trial, rows: list[int], lacks: Lacking) -> Lacking:
    left = dict(lacks)
    for row in rows:
        _free(trial, row, left)
    return left


def _blocked(trial: Trial, ask: WaitingAsk, rows: list[int]) -> str:
    """Return the first queue on the ask's path that has no headroom for the ask when the victims are gone (rule 4).

    Return "" if there is no such queue.
    """
    columns, snapshot = trial.snapshot.allocations, trial.snapshot
    for queue in snapshot.path_up(ask.leaf):
        held = list(trial.held(queue.path))
        for row in rows:
            path = snapshot.leaf_paths[int(columns.leaves[row])]
            if is_below(path, queue.path):
                for index, quantity in columns.demands[row]:
                    held[index] -= quantity
        for index, wanted in ask.kind.demand:
            most = admission.most(trial, queue, index, ask.kind)
            if most is not None and held[index] + wanted > most:
                return queue.path
    return ""
