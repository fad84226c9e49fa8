"""The policy for gangs (`job`): every member gets a node at once, or no pod is evicted.

- J3. The policy plans for a gang if pods may be evicted for all of its members. There is no delay. After a refusal the gang waits
  for its back-off.
- J6. The policy plans for a gang only if the gang's request fits below the limit of its class (firm or lendable) in the queue.
  In this comparison, the queue's lendable pods that may be evicted count as gone.
- J7. Only lendable pods are evicted. In the gang's own queue, victims must have a strictly lower priority than the gang. In other
  queues, G3 to G5 must allow the eviction, and the gang's queue must still be entitled to the amounts that the victims free. The
  gang's own pods and firm pods are never evicted.
- J8. Members are placed in the order of priority, age and id. The least important victims are evicted first. If one member gets
  no node, nothing is evicted.
- J12. A gang that would fall below its minimum is evicted whole or not at all.

A single ask counts as a gang of one member (J4). The intents of gangs are among those of policy `guaranteed`, because claims and
gangs wait in one common order (P3).
"""

from typing import Final

from server.model.asks import UNSIZED, GangClass
from server.model.phrases import agreeing, count, noun
from server.model.policies import JOB
from server.model.quota import PreemptionPolicy
from server.model.records import Level
from server.preemption import admission, entitlement
from server.preemption.claims.preconditions import of_its_labels
from server.preemption.gangs.eligibility import added
from server.preemption.gangs.search import GangAnswer, GangSearch
from server.preemption.policy import Intent, Plan, PlannedPledge, Refusal, Release, Rule
from server.preemption.trial import Trial
from server.snapshot.waiting import WaitingAsk, WaitingGang

NAME: Final = JOB.name

SAME: Final = "it is lendable, and its priority is lower than that of the gang in its queue (J7)"
OTHER: Final = (
    "it is lendable, its queue is over its guarantee and stays at or above it (G4), "
    "and its priority is not higher than the gang's (J7, G5)"
)


def of_one(ask: WaitingAsk) -> WaitingGang:
    """Return a single ask as a gang of one member."""
    return WaitingGang(ask.spec.gang_key or ask.key, 0, (ask,), 0, 1, ask.within_limits)


# Whether it may plan ------------------------------------------------------------------------------------------------


def may_plan(trial: Trial, gang: WaitingGang) -> Refusal | None:
    """Return the first rule that forbids evictions for the gang. Victims are not considered.

    Return None if the policy may plan for the gang.
    """
    if not gang.gathered:
        there = len(gang.members) + gang.placed
        wanted = (
            "an unknown number of members" if gang.size == UNSIZED else count(gang.size, "member")
        )
        return Refusal(
            Rule.GATHERING, f"{there} of {wanted} of its gang {agreeing('are', there)} there"
        )
    refused = (_of_member(trial, one) for one in gang.members)
    return next((one for one in refused if one is not None), None) or _of_the_gang(trial, gang)


def _of_member(trial: Trial, ask: WaitingAsk) -> Refusal | None:
    """Return the rule that forbids evictions for a member because of its fields or labels (J3). Return None if pods may be evicted."""
    if not ask.spec.allow_preempt_other:
        return Refusal(Rule.NEVER_PREEMPTS, f"the preemptionPolicy of {ask.key} is Never")
    labelled = of_its_labels(trial, ask)
    if labelled is not None:
        return labelled
    if ask.spec.constraints.required_node:
        return Refusal(Rule.REQUIRED_NODE, f"{ask.key} requires a node by name")
    if ask.spec.may_fail_to_bind:  # design 1.8
        return Refusal(Rule.RM_CHECK, f"the manager of {ask.key} has to look at a node first")
    return None


def _of_the_gang(trial: Trial, gang: WaitingGang) -> Refusal | None:
    properties = trial.snapshot.queues[gang.leaf].spec.properties
    if properties.preemption_policy is PreemptionPolicy.DISABLED:  # G3
        return Refusal(Rule.DISABLED, f"preemption is disabled for queue {gang.leaf}")
    if not gang.within_limits:
        return Refusal(
            Rule.USER_LIMIT, "a limit of its user or group has no headroom for the whole gang"
        )
    return admission.within_guarantee(  # J4, J6
        trial, gang.leaf, gang.members[0].kind, dict(added(one.kind.demand for one in gang.members))
    )


# The plan -----------------------------------------------------------------------------------------------------------


def plan(trial: Trial, intent: Intent) -> Plan | Refusal:
    """Return a plan with nodes for all members and the victims, or the reason why there is no plan (J8)."""
    gang = intent.gang or of_one(intent.ask)
    refusal = may_plan(trial, gang)
    if refusal is not None:
        return refusal
    search = GangSearch(trial, gang)
    refusal = _gate(trial, search)
    if refusal is not None:
        return refusal
    answer = search.best()
    if not answer.found:
        return _refusal(trial, search, answer)
    snapshot = trial.snapshot
    pledges = tuple(
        PlannedPledge(one.member, one.node, snapshot.nodes.ids[one.node])
        for one in answer.assignments
    )
    releases = tuple(_release(search, row) for row in answer.rows)
    if not releases:
        return Plan(NAME, pledges, levels=levels(trial, search))
    told, ranking = levels(trial, search), search.ranking(answer.rows)
    return Plan(NAME, pledges, releases, search.spared(), told, ranking=ranking)


def _gate(trial: Trial, search: GangSearch) -> Refusal | None:
    """Return a refusal if a lendable gang would exceed the limit of its leaf (J6). Otherwise return None.

    Pods of the leaf that may be evicted for the gang count as gone.
    """
    kind, leaf = search.eligibility.whole.kind, search.gang.leaf
    if kind.gang_class is not GangClass.LENDABLE:
        return None
    queue = trial.snapshot.queues[leaf]
    held, freed = trial.held(leaf), search.releasable()
    for index, wanted in kind.demand:
        most = admission.most(trial, queue, index, kind)
        if most is not None and held[index] - freed[index] + wanted > most:
            return Refusal(Rule.MAX, _full(trial, leaf, index), spared=search.spared())
    return None


def _full(trial: Trial, path: str, index: int) -> str:
    kind = noun(trial.snapshot.types[index])
    return f"the maximum of queue {path} has no headroom for the whole gang in {kind}, whichever pods of its queue are evicted"


def _release(search: GangSearch, row: int) -> Release:
    line = search.units.line(row)
    columns = search.trial.snapshot.allocations
    because = SAME if line.leaf == search.gang.leaf else OTHER
    return Release(row, columns.keys[row], line.leaf, because)


def _refusal(trial: Trial, search: GangSearch, answer: GangAnswer) -> Refusal:
    """Return the refusal of a gang (G12).

    The refusal names the member without a node and the nearest node, or the queue that is full.
    """
    spared, told = search.spared(), levels(trial, search)
    if answer.member is None:
        path, index = answer.full[0]
        return Refusal(Rule.MAX, _full(trial, path, index), spared=spared, levels=told)
    key = answer.member.key
    if answer.row < 0:
        because = f"no node can hold {key}, even when empty"
        return Refusal(Rule.NO_NODE, because, spared=spared, levels=told)
    node = trial.snapshot.nodes.ids[answer.row]
    missing = tuple((index, lack) for index, lack in enumerate(answer.lacks) if lack)
    because = f"the whole gang does not fit: {key} gets no node {_since(answer)}"
    return Refusal(Rule.MEMBER, because, node_id=node, missing=missing, spared=spared, levels=told)


def _since(answer: GangAnswer) -> str:
    if answer.unowed:
        return "once pods of its own queue are evicted, and other queues do not owe what is still lacking"
    return "once the other members have theirs"


def levels(trial: Trial, search: GangSearch) -> tuple[Level, ...]:
    """Return, for an explanation, the amounts of the queues whose entitlements limit the evictions in other queues."""
    return entitlement.levels(trial, search.eligibility.owed)
