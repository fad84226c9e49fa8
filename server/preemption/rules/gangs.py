"""The rules on plans for gangs, and on gangs among the victims of any plan. The rules are part of the gate (see `gate`).

The rules check the finished plan. The rules use the amounts of the Trial, but no code and no result of the search that made the
plan.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from server.model.fit import Amounts
from server.model.phrases import noun
from server.model.policies import PolicyFacts, Scope
from server.model.quota import PreemptionPolicy, is_below
from server.preemption import admission
from server.preemption.claims.preconditions import of_the_ask
from server.preemption.entitlement import Deciding, deciding, meeting, scope_root, seen_at
from server.preemption.gangs import gang_policy, search
from server.preemption.gangs.eligibility import added
from server.preemption.policy import Plan, PlannedPledge, Refusal, Release, Rule
from server.preemption.trial import Trial
from server.snapshot import gangs
from server.snapshot.waiting import WaitingGang

OWN_QUEUE = frozenset({Scope.OWN_QUEUE, Scope.OWN_AND_OTHER_QUEUES})
"""The scopes of policies that may evict allocations of lower priority in the preemptor's own queue."""


def _gang_of(trial: Trial, plan: Plan) -> WaitingGang:
    """Return the gang that a plan is for. A single ask counts as a gang of one member."""
    first = plan.pledges[0].ask
    found = (one for one in trial.snapshot.gangs if first in one.members)
    return next(found, None) or gang_policy.of_one(first)


# All or nothing -------------------------------------------------------------------------------------------------


def whole_gang(trial: Trial, plan: Plan) -> Refusal | None:
    """Refuse a plan unless its asks are exactly the waiting members of its gang (J8, invariant 9)."""
    if not plan.facts.gang:
        return None
    planned = _gang_of(trial, plan)
    wanted = {one.key for one in planned.members}
    if {one.ask.key for one in plan.pledges} != wanted or not planned.gathered:
        return Refusal(Rule.PART_OF_GANG, "it is not for all members of the gang")
    return None


def may_have_others_go(trial: Trial, plan: Plan) -> Refusal | None:
    """Refuse a plan if its gang may not preempt (J3, J4), or if its ask may not replace pods of its queue (I2)."""
    refusal = None
    if plan.facts.gang:
        refusal = gang_policy.may_plan(trial, _gang_of(trial, plan))
    elif plan.facts.scope is Scope.OWN_QUEUE:
        refusal = of_the_ask(trial, plan.pledges[0].ask)
    return None if refusal is None else Refusal(refusal.rule, refusal.because)


def one_by_one_for_singles(trial: Trial, plan: Plan) -> Refusal | None:
    """Refuse a plan for a member of a gang with several pods if the plan's policy is not `job` (J8)."""
    if plan.facts.gang:
        return None
    waiting = {member.key for one in trial.snapshot.gangs for member in one.members if one.size > 1}
    for pledge in plan.pledges:
        if pledge.ask.key in waiting:
            return Refusal(Rule.PART_OF_GANG, f"{pledge.ask.key} belongs to a gang that waits")
    return None


# The victims ----------------------------------------------------------------------------------------------------


def victims_of_gangs(trial: Trial, plan: Plan) -> Refusal | None:
    """Refuse a victim that a plan for a gang (J7), or a replacement (I2), may not take.

    In the queue of the plan's asks, a victim must have a strictly lower priority than these asks. A gang never evicts its own
    members. A replacement never evicts pods of its own application. In other queues, a gang may evict the pods that a claim may
    evict. A replacement may evict no pods in other queues.
    """
    if plan.facts.scope not in OWN_QUEUE:
        return None
    planned = _gang_of(trial, plan)
    owed = _owed(trial, planned) if plan.facts.gang else ()
    for release in plan.releases:
        refusal = _of_own(trial, plan.facts, planned, release)
        if release.leaf != planned.leaf:
            refusal = _of_other(trial, planned, owed, release)
        if refusal is not None:
            return refusal
    return None


def _of_own(
    trial: Trial, policy: PolicyFacts, planned: WaitingGang, release: Release
) -> Refusal | None:
    columns, row = trial.snapshot.allocations, release.row
    if int(columns.priorities[row]) >= planned.priority:
        return Refusal(Rule.PRIORITY, f"{release.key} has no lower priority")
    same = columns.application_ids[row] == planned.application_id
    spec = columns.specs[row]
    member = planned.number and spec is not None and spec.gang_key == planned.key
    if same and (not policy.gang or member):
        return Refusal(Rule.OWN_APPLICATION, f"{release.key} is of the same application or gang")
    return None


def _owed(trial: Trial, planned: WaitingGang) -> tuple[Deciding, ...]:
    """Return the queues whose entitlements limit the amounts that may be taken from other queues for the whole gang (G2)."""
    return deciding(trial, planned.leaf, added(one.kind.demand for one in planned.members))


def _of_other(
    trial: Trial, planned: WaitingGang, owed: Sequence[Deciding], release: Release
) -> Refusal | None:
    """Refuse a victim of another queue that breaks G2, G3 or G5 for the whole gang.

    If ``owed`` is empty, every victim of another queue is refused. ``owed`` is empty if no queue on the gang's path decides for
    a type, and for a replacement (I2).
    """
    snapshot, leaf = trial.snapshot, planned.leaf
    if not owed:
        return Refusal(Rule.OTHER_QUEUE, f"{release.key} runs in another queue")
    if not is_below(release.leaf, scope_root(snapshot, leaf).path):
        return Refusal(Rule.FENCE, f"{release.key} runs outside the gang's fence")
    if all(is_below(release.leaf, one.queue.path) for one in owed):
        return Refusal(Rule.DECIDING_QUEUE, f"{release.key} runs below a queue that claims")
    policies = snapshot.queues[release.leaf].spec.properties.preemption_policy
    if policies is PreemptionPolicy.DISABLED:
        return Refusal(Rule.CANDIDATE_DISABLED, f"preemption is disabled for {release.leaf}")
    rule = snapshot.settings.equal_priority
    top = meeting(snapshot, leaf, release.leaf)
    own = seen_at(snapshot, leaf, top, planned.priority)
    priority = seen_at(
        snapshot, release.leaf, top, int(snapshot.allocations.priorities[release.row])
    )
    if rule != "ignore" and priority > own - (rule == "never"):
        return Refusal(Rule.PRIORITY, f"{release.key} has a higher priority")
    return None


def within_the_share(trial: Trial, plan: Plan) -> Refusal | None:
    """Refuse a plan for a gang that takes more of a type from other queues than the gang may claim (J7).

    The queue that decides for the type may claim up to its entitlement. Victims in the gang's own queue count as gone in this
    test.
    """
    if not plan.facts.gang or not plan.releases:
        return None
    planned = _gang_of(trial, plan)
    own = [one for one in plan.releases if one.leaf == planned.leaf]
    if len(own) == len(plan.releases):
        return None
    freed, needs = _charged(trial, own), _needs(trial, plan, own)
    for one in _owed(trial, planned):
        left = one.entitled - trial.held(one.queue.path)[one.at] + freed[one.at]
        if needs[one.at] > max(0, left):
            kind = noun(trial.snapshot.types[one.at])
            return Refusal(
                Rule.OVER_SHARE, f"others give more {kind} than its queue is entitled to"
            )
    return None


def taken_for_decided_types(trial: Trial, plan: Plan) -> Refusal | None:
    """Refuse a victim of another queue that frees no lacking type for which a queue on the gang's path decides (J7, G2).

    A *unit* is a gang that is evicted whole, or a single victim. Units in the gang's own queue count as gone in this test. The
    units of other queues are justified if they can be evicted one after the other so that each unit frees such a type on a node
    that still lacks the type. The rule builds this order from its end. A unit can be the last of a set if it frees a lacking type
    even when all other units of the set are gone. The rule removes such a unit from the set, then a last unit of the smaller set,
    and so on. The order of these removals does not matter, because a node with fewer victims lacks at least as much. If no unit
    of the set can be the last, the plan is refused.
    """
    if not plan.facts.gang:
        return None
    planned, sums = _gang_of(trial, plan), _Sums(trial, plan)
    owed = _owed(trial, planned)
    left = [unit for unit in sums.units() if any(one.leaf != planned.leaf for one in unit)]
    going = {node: _freed_on(trial, node, sums.on.get(node, ())) for node in sums.used}
    while left:
        last = next((unit for unit in left if _can_be_last(sums, owed, going, unit)), None)
        if last is None:
            because = (
                f"{left[0][0].key} frees no lacking type that is guaranteed to the gang's queue"
            )
            return Refusal(Rule.DECIDING_QUEUE, because)
        left.remove(last)
        going |= _less(sums, going, last)
    return None


def _can_be_last(
    sums: "_Sums",
    owed: Sequence[Deciding],
    going: Mapping[int, Amounts],
    unit: Sequence[Release],
) -> bool:
    """Return whether a member of the unit frees a type that its node lacks and for which a queue in ``owed`` decides.

    The member must run outside that queue. The other victims in ``going`` count as gone.
    """
    columns, rest = sums.trial.snapshot.allocations, _less(sums, going, unit)
    for one in unit:
        node, held = int(columns.nodes[one.row]), columns.resources[one.row]
        if node not in rest:
            continue
        used, free = sums.used[node], sums.trial.free_for_claim(node)
        for decided in owed:
            at = decided.at
            lacking = used[at] > free[at] + rest[node][at]
            if lacking and int(held[at]) and not is_below(one.leaf, decided.queue.path):
                return True
    return False


def _less(
    sums: "_Sums", going: Mapping[int, Amounts], unit: Sequence[Release]
) -> dict[int, Amounts]:
    """Return, by node, the amounts that the other releases free if a unit is not evicted.

    The result has those nodes of the unit on which members of the gang are placed.
    """
    nodes = {int(sums.trial.snapshot.allocations.nodes[one.row]) for one in unit}
    found = {}
    for node in sorted(nodes & going.keys()):
        freed = _freed_on(sums.trial, node, unit)
        found[node] = [a - b for a, b in zip(going[node], freed, strict=True)]
    return found


def _needs(trial: Trial, plan: Plan, own: Sequence[Release]) -> Counter[int]:
    """Return, by type, the sum over all nodes of the amounts that the members need.

    Free capacity and the amounts of victims of the gang's own queue are subtracted (J7).
    """
    needs: Counter[int] = Counter()
    for node, used in _used(plan.pledges).items():
        free, freed = trial.free_for_claim(node), _freed_on(trial, node, own)
        for index, much in used.items():
            needs[index] += max(0, much - max(0, free[index]) - freed[index])
    return +needs


def _used(pledges: Iterable[PlannedPledge]) -> dict[int, Counter[int]]:
    """Return, by node and type, the sum of the requests of the members on the node."""
    used: dict[int, Counter[int]] = {}
    for pledge in pledges:
        line = used.setdefault(pledge.row, Counter())
        for index, quantity in pledge.ask.kind.node_demand:
            line[index] += quantity
    return used


def _freed_on(trial: Trial, node: int, releases: Iterable[Release]) -> Amounts:
    columns = trial.snapshot.allocations
    total = [0] * len(trial.snapshot.types)
    for one in releases:
        if int(columns.nodes[one.row]) == node:
            total = list(map(int.__add__, total, columns.resources[one.row].tolist()))
    return total


def _charged(trial: Trial, releases: Iterable[Release]) -> Counter[int]:
    charged: Counter[int] = Counter()
    for one in releases:
        for index, quantity in trial.snapshot.allocations.demands[one.row]:
            charged[index] += quantity
    return charged


def gangs_whole(trial: Trial, plan: Plan) -> Refusal | None:
    """Refuse a plan that leaves a gang below its minimum (J12).

    A gang that was already below its minimum is exempt. A plan for a gang may evict a whole gang, unless
    `job.victimgang` is `avoid`. The rule does not apply to quota runs and surplus reclaim.

    The rule applies in partitions that plan for gangs. A claim or a replacement takes no member that a gang needs, and does not
    evict whole gangs either: its victims run on one node, while the members of a gang run on several nodes (G8).
    """
    if not trial.snapshot.knows_firm or plan.shrink is not None or not plan.releases:
        return None
    columns = trial.snapshot.allocations
    taken = Counter(int(columns.gangs[one.row]) for one in plan.releases)
    del taken[0]
    sizes = gangs.sizes(columns, trial.standing) if taken else {}
    for release in plan.releases:
        number, spec = int(columns.gangs[release.row]), columns.specs[release.row]
        if not number or spec is None or sizes[number] < spec.min_members:
            continue
        left = sizes[number] - taken[number]
        avoids = not plan.facts.gang or trial.snapshot.settings.job_victim_gang == "avoid"
        if left < spec.min_members and (left or avoids):
            return Refusal(Rule.GANG, f"the gang of {release.key} would be broken")
    return None


# Enough and no more ---------------------------------------------------------------------------------------------


def enough_for_all(trial: Trial, plan: Plan) -> Refusal | None:
    """Refuse a plan after which a member does not fit, or that has a victim that is not needed (invariant 11, J8, J12).

    A gang that is evicted whole counts as one victim.
    """
    if not plan.facts.gang:
        return None
    sums = _Sums(trial, plan)
    if not sums.are_enough(()):
        return Refusal(Rule.NO_ROOM_MADE, "the gang would not fit after the releases")
    for unit in sums.units():
        if sums.are_enough(unit):
            return Refusal(Rule.NOT_MINIMAL, f"{unit[0].key} could be given back")
    return None


class _Sums:
    """The sums of the amounts that a plan for a gang uses and frees, by node and by queue."""

    def __init__(self, trial: Trial, plan: Plan) -> None:
        self.trial = trial
        self.plan = plan
        self.gang = _gang_of(trial, plan)
        self.used = _used(plan.pledges)
        self.wanted = added(one.kind.demand for one in self.gang.members)
        self.kind = self.gang.members[0].kind
        self.on: dict[int, list[Release]] = {}
        for one in plan.releases:
            self.on.setdefault(int(trial.snapshot.allocations.nodes[one.row]), []).append(one)

    def units(self) -> Iterator[tuple[Release, ...]]:
        """Yield the releases that can be left out only together: a gang that is evicted whole, or any other single release."""
        columns = self.trial.snapshot.allocations
        sizes = gangs.sizes(columns, self.trial.standing)
        together: dict[int, list[Release]] = {}
        for one in self.plan.releases:
            together.setdefault(int(columns.gangs[one.row]) or -1 - one.row, []).append(one)
        for number, some in together.items():
            if number > 0 and len(some) == sizes[number]:
                yield tuple(some)
            else:
                yield from ((one,) for one in some)

    def are_enough(self, without: tuple[Release, ...]) -> bool:
        """Return whether all members fit on their nodes and in their queues without the releases in ``without``."""
        columns = self.trial.snapshot.allocations
        nodes = {int(columns.nodes[one.row]) for one in without} if without else set(self.used)
        if not all(self._holds(node, without) for node in nodes):
            return False
        if not self._below_the_maxima(without):
            return False
        rest = tuple(one for one in self.plan.releases if one not in without)
        less = Plan(self.plan.policy, self.plan.pledges, rest)
        return not without or within_the_share(self.trial, less) is None

    def _holds(self, node: int, without: tuple[Release, ...]) -> bool:
        if node not in self.used:
            return True
        going = [one for one in self.on.get(node, ()) if one not in without]
        free, freed = self.trial.free_for_claim(node), _freed_on(self.trial, node, going)
        return all(free[at] + freed[at] >= much for at, much in self.used[node].items())

    def has_headroom(self) -> bool:
        """Return whether the queues on the path have headroom for all members without victims."""
        return self._below_the_maxima(())

    def _below_the_maxima(self, without: tuple[Release, ...]) -> bool:
        """Return whether the leaf and every queue above it can hold all members within their limits (J4)."""
        for queue in self.trial.snapshot.path_up(self.gang.leaf):
            if all(one is None for one in queue.bound):
                continue
            freed = _charged(
                self.trial,
                (
                    one
                    for one in self.plan.releases
                    if is_below(one.leaf, queue.path) and one not in without
                ),
            )
            held = self.trial.held(queue.path)
            for index, wanted in self.wanted:
                most = admission.most(self.trial, queue, index, self.kind)
                if most is not None and held[index] - freed[index] + wanted > most:
                    return False
        return True


def no_gang_for_nothing(trial: Trial, plan: Plan) -> Refusal | None:
    """Refuse victims for a gang that fits without them once all terminating pods have ended (invariant 12).

    The gang fits if each member in turn fits on a node and below the maxima. In this test, the members that come before a member
    count as placed.
    """
    if not plan.facts.gang or not plan.releases:
        return None
    planned = _gang_of(trial, plan)
    without = _Sums(trial, Plan(plan.policy, plan.pledges))
    if without.has_headroom() and search.fits(trial, planned):
        return Refusal(Rule.NOT_MINIMAL, "the gang fits without victims")
    return None


PLAN_RULES: Final = (
    whole_gang,
    may_have_others_go,
    one_by_one_for_singles,
    victims_of_gangs,
    gangs_whole,
    within_the_share,
    enough_for_all,
    taken_for_decided_types,
    no_gang_for_nothing,
)
