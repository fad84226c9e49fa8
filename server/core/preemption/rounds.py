"""The round loop: after placement, the policies plan for the remaining asks.

The plans that pass the rules are written to the state (design 1.5).

The order of the steps is fixed (O6): required nodes, due quota runs, surplus reclaim, claims and gangs, replacements within a
queue, reservations. Reservations evict nothing. Each policy plans as if the plans before it were carried out already.

A round is held only if a decision may have become possible since the last round: a counter of the state changed, an ask joined,
or a scheduled instant was reached. A snapshot is taken only if an ask is due. With `rounds.interval`, claims wait for their
next round (P1, see `pacing`). If the budget ends a round early, the round continues in the next tick on a new snapshot (design
6.2).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from server.core.preemption import (
    apply_plan,
    claim_chunks,
    due,
    due_claims,
    due_quota,
    due_reservations,
    open_decisions,
    pacing,
    plan_checks,
    refusals,
    takeover,
    thrash_guard,
)
from server.core.preemption.beside_claims import Part
from server.core.preemption.deficits import Shortage
from server.core.preemption.takeover import Takeover
from server.model.decisions import Decision, Noted
from server.model.parts import Parts
from server.model.policies import Retry, Scope, Shrinks, facts
from server.model.reasons import Code
from server.preemption.claims import guarantee, in_queue
from server.preemption.gangs import gang_policy
from server.preemption.nodes import required_node, reservation
from server.preemption.pace import Account
from server.preemption.policy import Intent, Plan, PlanMaker, Policy, Refusal, Rule, ShrinkIntent
from server.preemption.quota import enforcement, reclaim
from server.preemption.rules import gate
from server.preemption.trial import Trial
from server.scheduling.placement import fits_pledged
from server.state import quota_timers, snapshotting
from server.state.applications import Ask
from server.state.equivalence import AskClass
from server.state.partition import Partition

POLICIES: Final[tuple[Policy, ...]] = (required_node, guarantee, in_queue, reservation)
"""The policies in the order in which they plan. Gangs and claims are planned in one step (P3)."""
_PLAN_MAKERS: Final[tuple[PlanMaker, ...]] = (*POLICIES, gang_policy)
PLANNERS: Final[dict[str, PlanMaker]] = {one.NAME: one for one in _PLAN_MAKERS}

ROWS_PER_STEP: Final = 256
"""The number of rows that a plan may examine for one step of the budget. A step takes about the time of one placement."""


@dataclass(slots=True)
class RoundResult:
    """The result of a round: decisions to report, the number of steps spent, and whether more work can be done at once.

    - ``cut`` says that the round goes on in the next tick, because its budget of steps ended or one of its plans waits for an
      answer.
    - ``refused`` has, for each rule, the number of intents that it refused.
    - ``moves`` is the takeover that was found before planning (see `takeover`). If the round made plans, the search for a
      takeover is repeated. The takeover is not made while ``more`` is set, or while a search for asks that may reserve is in
      progress.
    - ``held_back`` says that asks that may reserve were not offered a node, because a takeover comes first or a search is still
      in progress.
    - ``searching`` says that a search, for asks that may reserve or for asks that claim, continues in the next tick.
    - ``expiring`` has a pair for each decision that expires: the instant of its expiry and its id.
    - ``asked`` has a pair for each plan check: the instant at which its answer is overdue, and its id.
    - ``tentative`` says that the Trial has a plan that waits for its manager's answer. Later plans of this tick are then not
      carried out.
    """

    notes: list[Decision] = field(default_factory=list)
    spent: int = 0
    more: bool = False
    cut: bool = False
    refused: dict[Rule, int] = field(default_factory=dict)
    moves: Takeover | None = None
    held_back: bool = False
    searching: bool = False
    expiring: list[tuple[int, str]] = field(default_factory=list)
    asked: list[tuple[int, str]] = field(default_factory=list)
    tentative: bool = False


Beside = Callable[[Trial | None], Parts[None]]
"""A callback that gets the Trial with the plans of a round before they are written (see `shadow`).

The callback gets None if no ask was due.
"""


@dataclass(frozen=True, slots=True)
class PlanningSide:
    """The side for which a round plans: the live side or the shadow.

    A shadow sees the state with its own settings (see `shadow.side`).

    ``runs`` applies the due quota runs to the Trial. ``watched`` is true if the plans will be carried out, so that the
    thrashing monitor counts them.
    """

    partition: Partition
    now: int
    budget: int
    runs: Callable[[Trial, RoundResult], None]
    watched: bool


def next_due(partition: Partition, now: int) -> int | None:
    """Return the next instant after ``now`` at which a policy may act if no event comes before.

    Return None if no policy can act without an event.
    """
    instants = (*due.instants(partition), quota_timers.next_due(partition))
    return min((one for one in instants if one is not None and one > now), default=None)


def run(
    partition: Partition, now: int, budget: int, beside: Beside | None = None
) -> Parts[RoundResult]:
    """Run one round, or continue the open round, if the state calls for it.

    The caller calls this function when no more asks can be placed. Changes of the state since the last snapshot are written to
    the columns in parts.

    No attempt begins after ``budget`` steps have been spent. The last attempt may exceed the budget. ``beside`` is called after
    this round has made its plans and before they are written, so that a shadow plans on the same state.
    """
    result = RoundResult()
    partition.thrashing.forget_old(now)
    called = due.is_called_for(partition, now)
    trial = (yield from _planned(partition, now, budget, result)) if called else None
    if beside is not None:
        yield from beside(trial)
    if trial is not None:
        _write(partition, trial, now, result)
    if called:
        _take_over(partition, now, result, planned=trial is not None and bool(trial.plans))
        every = not (result.cut or result.held_back)
        result.searching |= due_reservations.settle(partition, now, all_tried=every)
        _end(partition, result)
    return result


def _write(partition: Partition, trial: Trial, now: int, result: RoundResult) -> None:
    for plan in trial.plans:
        if plan_checks.waits(partition, plan):
            continue
        if not apply_plan.is_shown(partition, plan):
            pacing.record(partition, trial, plan, now)
        written = apply_plan.write(partition, trial, plan, now)
        for _, decision_id in written.expiring:
            plan_checks.decided(partition, plan, decision_id)
        result.notes += written.decisions
        result.expiring += written.expiring
        result.more |= _is_ready(partition, plan)


def _take_over(partition: Partition, now: int, result: RoundResult, *, planned: bool) -> None:
    """Carry out the takeover of a reservation, once no other decision is left to make.

    A tick carries out at most one takeover, so that asks that become placeable are placed before the next takeover.
    """
    found = result.moves
    if result.more or found is None or due_reservations.is_searching(partition):
        return
    if planned:  # the plans may have changed which takeover is due
        found = takeover.find(partition, now)
        result.more = found is None  # asks that come after it were not offered a node yet
    if found is None:
        return
    if found.held is not None:
        why = f"node {found.node.node_id} is kept for an ask of higher priority"
        result.notes += open_decisions.give_up(partition, found.held, why, now)
    written = apply_plan.reserve(partition, found.ask, found.node, now)
    result.notes += written.decisions
    result.expiring += written.expiring
    result.more = True


def _end(partition: Partition, result: RoundResult) -> None:
    if not result.more:
        apply_plan.end_suspended(partition)
    partition.round.open = result.more or result.searching
    partition.round.goes_on = result.cut


def _planned(
    partition: Partition, now: int, budget: int, result: RoundResult
) -> Parts[Trial | None]:
    """Plan the round and return the Trial with its plans. Return None if no ask is due."""
    due.begin(partition)
    shrinks = due_quota.is_due(partition, now)
    shortage = Shortage(partition)
    claims = claim_chunks.of_tick(partition, shortage, budget, now)
    part = None if claims.is_searching else Part(partition, now)
    if part is None:
        result.more, result.cut, result.held_back = True, partition.round.goes_on, True
        asks, trims = snapshotting.Due(requiring=due_claims.requiring(partition, now)), False
    else:
        asks = _due(partition, part, now, budget, result)._replace(claiming=claims.due)
        trims = due.may_trim(partition, now)
    has_begun = partition.round.goes_on or _is_of_claims(asks, trims=trims)

    def settle() -> None:
        result.searching = claims.settle(cut=result.cut)
        if part is not None and part.settle(cut=result.cut):
            result.more, result.cut = True, result.cut or has_begun
        result.searching |= part is not None and part.is_outdated

    if not (any(asks) or shrinks or trims):
        settle()
        return None
    begin(partition, asks, now, trims=trims)
    asks = asks._replace(claiming=claims.first())
    yield from snapshotting.catch_up_in_parts(partition)
    taken = snapshotting.take(partition, now, due=asks)
    trial = Trial(taken, shortage.known, claims.further, claims.unread)

    def runs(trial: Trial, result: RoundResult) -> None:
        _shrink(partition, trial, now, result)

    decide(PlanningSide(partition, now, budget, runs, watched=True), trial, result, trims=trims)
    settle()
    return trial


def _due(
    partition: Partition, part: Part, now: int, budget: int, result: RoundResult
) -> snapshotting.Due:
    """Return the asks that are due, except single asks that claim.

    Also find the takeover that may be carried out, and store it in ``result``.
    """
    asks = due.beside_claims(partition, part.groups, now)
    if not part.is_last:
        result.held_back = True
        return asks
    reserving = due_reservations.reserving(partition, now)
    result.moves = takeover.find(partition, now)
    offered = within(partition, reserving, budget)
    tried = takeover.ahead(offered, result.moves)
    result.held_back = len(tried) < len(offered)
    return asks._replace(reserving=tried)


def within(partition: Partition, asks: Sequence[Ask], budget: int) -> Sequence[Ask]:
    """Return the first of these asks, as many as can be tried with a budget of steps.

    The snapshot then needs to contain only these asks.

    In each class, the first ask that was not refused in this round costs at least one step. The other asks of the class cost no
    step once the class is known to fit no node. The result ends as soon as it has more classes than the budget has steps.
    """
    masked = partition.round.masked
    classes: set[AskClass] = set()
    found: list[Ask] = []
    for ask in asks:
        if len(classes) > budget:
            break
        if (reservation.NAME, ask.key) not in masked:
            classes.add(ask.ask_class)
            found.append(ask)
    return found


def begin(partition: Partition, asks: snapshotting.Due, now: int, *, trims: bool) -> None:
    """Begin a round of claims, if an ask or queue is due that waits for rounds (P1)."""
    if _is_of_claims(asks, trims=trims):
        pacing.begin(partition, now)


def _is_of_claims(asks: snapshotting.Due, *, trims: bool) -> bool:
    return bool(asks.claiming or asks.gangs or asks.replacing or trims)


def _is_ready(partition: Partition, plan: Plan) -> bool:
    """Return whether the next tick has more work: an ask of the plan fits, or a new reservation must be offered."""
    some = plan.pledges[:1] if plan.facts.gang else plan.pledges  # a gang fits as a whole
    held = [partition.decisions.pledges.get(pledge.ask.key) for pledge in some]
    if plan.facts.reserves:
        return True  # the next tick offers the node to asks of higher priority, which may change why asks wait
    return any(one is not None and fits_pledged(one.ask.ask_class, one) for one in held)


def decide(side: PlanningSide, trial: Trial, result: RoundResult, *, trims: bool) -> None:
    """Plan the intents of each policy in order, each as if the plans before it were carried out already.

    Planning stops when the budget is spent, or when the tick may read no more claims. ``cut`` and ``more`` are then set in the
    result.
    """
    partition = side.partition
    account = Account(trial.snapshot, pacing.over_use(partition, trial))
    for policy in POLICIES:
        if policy is guarantee:  # O6: after required nodes, before claims
            _shrink_and_trim(side, trial, result, trims=trims)
        for intent in policy.intents(trial):
            if _is_masked(side, intent):
                pacing.keep_waiting(partition, intent.policy, side.now)
                continue
            if result.spent >= side.budget:
                result.more = result.cut = True
                return
            if _is_final(side, trial, intent, _try(side, trial, intent, account, result), result):
                break
        if trial.is_cut:
            result.more = result.cut = True
            return


def _is_final(
    side: PlanningSide, trial: Trial, intent: Intent, refusal: Refusal | None, result: RoundResult
) -> bool:
    """If an intent was refused, record the refusal. Return True if no later intent of the same policy can get a plan."""
    if refusal is None:
        return False
    result.refused[refusal.rule] = result.refused.get(refusal.rule, 0) + 1
    result.notes += _refused(side.partition, trial, intent, refusal, side.now)
    return refusal.final


def _shrink_and_trim(side: PlanningSide, trial: Trial, result: RoundResult, *, trims: bool) -> None:
    """Plan quota runs and surplus reclaim.

    If a plan waits for its manager's answer, quota runs and surplus reclaim are put off to the next tick.
    """
    if result.tentative:
        result.more = result.cut = True
        return
    side.runs(trial, result)
    _trim(side.partition, trial, result, due=trims)


def _shrink(partition: Partition, trial: Trial, now: int, result: RoundResult) -> None:
    """Plan the due quota runs, each as if the runs before it were carried out.

    The run of a queue counts the releases of the runs of the queues below it (Q6).

    A run that continues is planned once in a round, however many ticks the round takes.
    """
    for intent in due_quota.runs(partition, now, result.notes):
        once = (intent.policy, intent.replans)
        if once in partition.round.masked:
            continue
        if intent.replans:
            partition.round.masked.add(once)
        answer = enforcement.plan(trial, intent)
        result.spent += 1 + len(trial.snapshot.allocations.keys) // ROWS_PER_STEP
        refusal = None if isinstance(answer, Refusal) else gate.gate(trial, answer)
        if refusal is not None:
            result.notes.append(_broken(trial, intent.policy, "queue", intent.queue, refusal))
            continue
        result.notes += due_quota.result(partition, intent, answer)
        if isinstance(answer, Plan):
            trial.apply(answer)


def _trim(partition: Partition, trial: Trial, result: RoundResult, *, due: bool) -> None:
    """Reclaim surplus once in a round: while usage exceeds capacity, queues lose the usage above their deserved shares (W3)."""
    once = (reclaim.NAME, partition.root.path)
    if not due or once in partition.round.masked:
        return
    partition.round.masked.add(once)
    goes_on = (
        one.commitment_id
        for one in partition.decisions.suspended.values()
        if one.facts.shrinks is Shrinks.PARTITION
    )
    intent = ShrinkIntent(reclaim.NAME, partition.root.path, next(goes_on, ""))
    answer = reclaim.plan(trial, intent)
    result.spent += 1 + len(trial.snapshot.allocations.keys) // ROWS_PER_STEP
    refusal = answer if isinstance(answer, Refusal) else gate.gate(trial, answer)
    if isinstance(answer, Plan) and refusal is None:
        trial.apply(answer)
    elif refusal is not None:
        result.refused[refusal.rule] = result.refused.get(refusal.rule, 0) + 1
        if refusal is not answer:
            result.notes.append(_broken(trial, reclaim.NAME, "queue", intent.queue, refusal))


def _is_masked(side: PlanningSide, intent: Intent) -> bool:
    """Return whether the intent is not to be tried now.

    There are three reasons: it was already refused in this round, it waits for the answer of its manager (design 1.8), or it is a
    reservation for a class that no node could hold.

    Without this check, a round that takes several ticks would try these intents again in each tick, and never reach the intents
    after them.
    """
    state = side.partition.round
    waits = side.watched and side.partition.decisions.checks.is_unanswered(intent.ask.key)
    return (
        waits
        or (intent.policy, intent.ask.key) in state.masked
        or (intent.ask.kind.number in state.hopeless and facts(intent.policy).reserves)
    )


def _try(
    side: PlanningSide, trial: Trial, intent: Intent, account: Account, result: RoundResult
) -> Refusal | None:
    """Plan an intent and record the result.

    Return the refusal, or None for success.

    If a claim was refused and some candidates were protected because they are gang members, try the claim again as a gang of
    one member. If the second attempt fails as well, the first refusal is returned.
    """
    refusal = _attempt(side, trial, intent, account, result)
    if refusal is None or not _gangs_are_left(trial, intent, refusal):
        return refusal
    again = Intent(gang_policy.NAME, intent.ask)
    found = _attempt(side, trial, again, account, result)
    return None if found is None else refusal


def _gangs_are_left(trial: Trial, intent: Intent, refusal: Refusal) -> bool:
    """Return whether the claim may find gangs as victims if its ask counts as a gang.

    As a gang of one member, the ask may evict whole gangs (J4, J12).
    """
    whole = trial.snapshot.settings.job_victim_gang == "whole"
    spared = any(one.rule is Rule.GANG for one in refusal.spared)
    return whole and spared and facts(intent.policy).scope is Scope.OTHER_QUEUES


def _attempt(
    side: PlanningSide, trial: Trial, intent: Intent, account: Account, result: RoundResult
) -> Refusal | None:
    """Plan an intent, check the plan against the rules, and count a valid plan as carried out.

    Return the refusal, or None for success.

    If a budget puts the ask off, this also counts as a refusal (P5).
    """
    result.spent += 1
    refusal = gate.admit(trial, intent)
    if refusal is not None:
        return refusal
    before = trial.steps
    plan = PLANNERS[intent.policy].plan(trial, intent)
    result.spent += len(trial.snapshot.nodes.ids) // ROWS_PER_STEP + trial.steps - before
    if isinstance(plan, Refusal):
        return plan
    frozen = thrash_guard.refusal(
        side.partition.thrashing.active(trial.snapshot.now), trial.snapshot, plan
    )
    if frozen is not None:
        return frozen
    refusal = gate.gate(trial, plan)
    if refusal is None:
        return _decide(side, trial, plan, account, result)
    if not plan.facts.reserves:
        result.notes.append(_broken(trial, plan.policy, "ask", intent.ask.key, refusal))
    return refusal


def _decide(
    side: PlanningSide, trial: Trial, plan: Plan, account: Account, result: RoundResult
) -> Refusal | None:
    """Count a plan as carried out and return None. If a budget puts the plan off, return a refusal (P5).

    A plan that was already shown and not carried out uses no budget again (P8). If an earlier plan of the tick waits for its
    manager's answer, the present plan might need capacity that the waiting plan frees. The present plan is then dropped, and
    made again in the next tick without the waiting plan (design 1.8).
    """
    if not apply_plan.is_shown(side.partition, plan):
        refusal = account.refusal(plan)
        if refusal is not None:
            return refusal
        if side.watched and plan_checks.waits(side.partition, plan):
            _ask(side, plan, result)
        elif result.tentative:
            result.more = result.cut = True
            return None
        elif side.watched:
            result.notes += thrash_guard.watch(side.partition, trial, plan)
        account.count(plan)
    trial.apply(plan)
    return None


def _ask(side: PlanningSide, plan: Plan, result: RoundResult) -> None:
    """Send the plan check: ask the manager whether the asks of the plan would fit.

    Later plan checks of the tick count this plan as carried out (design 1.8).
    """
    result.tentative = True
    asked = plan_checks.ask(side.partition, plan, side.now)
    if asked is not None:
        result.notes += asked.decisions
        result.asked.append((asked.overdue_ms, asked.check_id))


def _broken(trial: Trial, policy: str, kind: str, subject: str, refusal: Refusal) -> Noted:
    """Return a note about a plan that breaks a rule, which is a defect of the core. The plan is dropped (design 1.6)."""
    message = f"a plan of policy {policy} was dropped, it breaks {refusal.rule}: {refusal.because}"
    return Noted(kind, subject, Code.LAW_BROKEN, message, trial.snapshot.partition)


def _refused(
    partition: Partition, trial: Trial, intent: Intent, refusal: Refusal, now: int
) -> list[Decision]:
    """Record a refusal, so that the ask is not tried again in this round.

    Return a note if the refusal has to be reported.

    If no node could hold an ask that may reserve, its class is tried again only when a node or pledge changes. Classes with
    host ports are tried in each round, because pods take and free ports all the time.
    """
    partition.round.masked.add((intent.policy, intent.ask.key))
    if facts(intent.policy).retry is not Retry.ROUND:
        return refusals.remember(partition, trial, intent, refusal, now)
    if refusal.rule is Rule.NO_NODE and not intent.ask.kind.ports:
        partition.round.hopeless.add(intent.ask.kind.number)
    return []
