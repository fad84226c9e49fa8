"""Seeded defects: small wrong changes to ordering, head-room, books and preemption, each of which the suite must notice.

A defect is a piece of source text and what it becomes. When the text is gone because the module was rewritten,
choose the line that does the same now.
"""

import enum
from typing import Final, NamedTuple


class Judge(enum.Enum):
    """The part of the suite that has to notice a defect."""

    WORLDS = "random worlds against the oracle of scheduling"
    WORLDS_BY_WEIGHT = "random worlds that share by weight against the oracle of scheduling"
    CLAIMS = "random clusters against brute force"
    CLAIMS_BY_WEIGHT = "random clusters that share by weight against brute force"
    SHARES = "random trees against the plain model of shares"
    TRIMS = "random trims against the plainest walk"
    QUOTAS = "random quota runs against the specification, read literally"
    STORIES = "stories"
    REPORTS = "the storm monitor, lost work and the unmet-guarantee report, each against an account of its own"


class Defect(NamedTuple):
    """One wrong change of one module; ``first`` is the seed at which the search begins.

    Of the stories those count whose file's name begins with ``stories``.
    """

    name: str
    module: str
    text: str
    wrong: str
    first: int = 0
    judge: Judge = Judge.WORLDS
    stories: str = ""


DEFECTS: Final = (
    # Who may join a job.
    Defect(
        "a mixed job is taken in",
        "server.core.agreement",
        "    if ours == others:",
        "    if ours or others:",
        judge=Judge.STORIES,
        stories="mixed_jobs",
    ),
    Defect(
        "classes count where no jobs are planned for",
        "server.core.agreement",
        'if "job" in settings.policies else None',
        "if settings.policies else None",
        judge=Judge.STORIES,
        stories="mixed_jobs",
    ),
    Defect(
        "who wrote no class is lendable, whatever the partition says",
        "server.core.agreement",
        "    lendable = settings.job_default_preemptible if",
        "    lendable = True if",
        judge=Judge.STORIES,
        stories="mixed_jobs",
    ),
    Defect(
        "a trigger label wins over Never",
        "server.core.agreement",
        "    may = triggers and spec.allow_preempt_other",
        "    may = triggers if spec.may_trigger is not None else spec.allow_preempt_other",
        judge=Judge.STORIES,
        stories="mixed_jobs",
    ),
    Defect(
        "new members are not compared with those that run",
        "server.core.asks",
        "    agreement.note(application, event.spec)\n    journal.set_started",
        "    journal.set_started",
        judge=Judge.STORIES,
        stories="mixed_jobs",
    ),
    Defect(
        "a member that changed is remembered as it was",
        "server.core.asks",
        "    agreement.note(ask.application, spec)\n",
        "",
        judge=Judge.STORIES,
        stories="mixed_jobs",
    ),
    # Ordering.
    Defect(
        "the smallest share of all types counts, not the largest",
        "server.books.usage",
        "        if ratio > largest:",
        "        if ratio < largest:",
    ),
    Defect(
        "a priority fence is open",
        "server.model.fit",
        "    if fence:\n        return offset",
        "    if fence:\n        return priority",
    ),
    Defect(
        "priorities are not clamped",
        "server.model.fit",
        "    return min(max(priority + offset, PRIORITY_MIN), PRIORITY_MAX)",
        "    return priority + offset",
    ),
    Defect(
        "queues go by share before priority",
        "server.books.ranking",
        "        if queue.priority_first:\n            return (-child.priority, child.share, child.name",
        "        if queue.priority_first:\n            return (child.share, -child.priority, child.name",
    ),
    Defect(
        "fair applications go in the order of submission",
        "server.books.ranking",
        "            return (-application.priority, application.share, application.number, application)",
        "            return (-application.priority, application.number, 0, application)",
    ),
    Defect(
        "asks go by arrival, however long they wait",
        "server.books.ranking",
        "(-group.priority, first.pending_since, first.arrival,",
        "(-group.priority, 0, first.arrival,",
    ),
    Defect(
        "a guarantee does not measure the share",
        "server.books.tree",
        "    for name, quantity in queue.spec.guaranteed:\n        amounts[index[name]] = quantity\n    return",
        "    return",
    ),
    Defect(
        "an application's stale priority is believed",
        "server.scheduling.ordering",
        "    if group.priority != application.priority:",
        "    if group.priority > application.priority:",
    ),
    Defect(
        "binpacking takes the emptiest node",
        "server.books.nodes",
        "        return -points if self.packing else points",
        "        return points",
    ),
    Defect(
        "of equal nodes the younger one is taken",
        "server.books.nodes",
        "        entry = (self.rank(node), node.number, node)",
        "        entry = (self.rank(node), -node.number, node)",
    ),
    # Head-room.
    Defect(
        "only the lowest limit is charged",
        "server.books.usage",
        "    for limiter in application.limiters:\n        limiter.take(demand)",
        "    for limiter in application.limiters[:1]:\n        limiter.take(demand)",
    ),
    Defect(
        "the limits of users and groups are not looked at",
        "server.scheduling.cycle",
        "        if ask_class in limiter.blocked or not limiter.has_room(ask_class):",
        "        if limiter.kind == 'queue' and not limiter.has_room(ask_class):",
    ),
    Defect(
        "released head-room wakes nobody",
        "server.books.usage",
        "        limiter.give(demand)\n        relieve(partition, limiter)",
        "        limiter.give(demand)",
    ),
    Defect(
        "freed nodes wake nobody",
        "server.scheduling.cycle",
        "    if freed and partition.dead:",
        "    if len(freed) > 1 and partition.dead:",
    ),
    Defect(
        "a holder's own promise counts against it",
        "server.books.limits",
        '        if held is None or self.kind != "queue":',
        "        if held is not None or self.kind:",
        first=190,
    ),
    # Books.
    Defect(
        "what ends keeps its place on the node",
        "server.books.journal",
        "    usage.empty(partition, node, ask_class.node_demand)\n    usage.discharge",
        "    usage.discharge",
    ),
    Defect(
        "a foreign pod takes no room",
        "server.books.journal",
        "    usage.fill(partition, foreign.node, foreign.demand)",
        "    partition.index.filled(foreign.node)",
    ),
    Defect(
        "a reservation pledges nothing on its node",
        "server.books.journal",
        "    usage.fill(partition, held.node, held.node_demand)",
        "    partition.index.filled(held.node)",
    ),
    Defect(
        "a gang that fails keeps the head-room that it tried",
        "server.scheduling.gangs",
        "    for limiter in application.limiters:\n        limiter.give(ask.ask_class.demand)",
        "    assert ask.node is None",
    ),
    Defect(
        "half a gang is placed",
        "server.scheduling.gangs",
        "    return seats if len(seats) == len(job.members) else []",
        "    return seats",
    ),
    Defect(
        "NotIn wants the label to be there",
        "server.books.constraints",
        "        return value not in requirement.values",
        "        return value is not None and value not in requirement.values",
        first=200,
    ),
    Defect(
        "nodes are reserved half a second early",
        "server.preemption.reservation",
        "RESERVE_AFTER_MS: Final = 2_000",
        "RESERVE_AFTER_MS: Final = 1_500",
    ),
    Defect(
        "an ask that comes back forgets how long it has waited",
        "server.core.asks",
        "    ask.arrival = partition.arrivals\n    ask.cycle",
        "    ask.arrival = partition.arrivals\n    ask.pending_since = now\n    ask.cycle",
    ),
    # Claims.
    Defect(
        "those who opted out go before those who did not",
        "server.preemption.claim",
        "            bool(flags & OPTED_OUT) or spent,",
        "            not flags & OPTED_OUT and not spent,",
        first=140,
        judge=Judge.CLAIMS,
    ),
    Defect(
        "nobody is given back",
        "server.preemption.victims",
        "        if max(spared) <= 0:\n            kept.remove(one)",
        "        if not kept:\n            kept.remove(one)",
        judge=Judge.STORIES,
        stories="guaranteed_many",
    ),
    Defect(
        "room that is promised already does not count for the queue that asks",
        "server.preemption.guarantee",
        "        held = trial.held(one.queue.path)[one.at]\n        claims =",
        "        held = trial.eff(one.queue.path)[one.at]\n        claims =",
        first=290,
        judge=Judge.CLAIMS,
    ),
    Defect(
        "only the leaf of a victim keeps its guarantee",
        "server.preemption.terms",
        "            over = [eff - entitled for eff, entitled in pairs]",
        "            over = [eff - entitled if not place else eff for eff, entitled in pairs]",
        first=500,
        judge=Judge.CLAIMS,
    ),
    Defect(
        "root.ab counts as below root.a",
        "server.model.quota",
        '    return path == ancestor or path.startswith(f"{ancestor}.")',
        "    return path.startswith(ancestor)",
        judge=Judge.STORIES,
        stories="guaranteed",
    ),
    Defect(
        "a claim's candidates end at the first who may not go",
        "server.preemption.claim",
        "                place += 1\n",
        "                place += 1\n            else:\n                return\n",
        first=200,
        judge=Judge.CLAIMS,
    ),
    Defect(
        "equal priority spares",
        "server.preemption.terms",
        'self.ask.spec.priority) - (rule == "never")',
        "self.ask.spec.priority) - 1",
        judge=Judge.CLAIMS,
    ),
    Defect(
        "a fence lets claims out",
        "server.preemption.entitlement",
        "        if not queue.parent or queue.spec.properties.preemption_policy is PreemptionPolicy.FENCE:",
        "        if not queue.parent:",
        first=80,
        judge=Judge.CLAIMS,
    ),
    Defect(
        "a used-up disruption budget has one more",
        "server.view.view",
        "any(left(group) <= 0 for group in groups)",
        "any(left(group) < 0 for group in groups)",
        judge=Judge.STORIES,
        stories="guaranteed",
    ),
    Defect(
        "a queue over its maximum may claim",
        "server.preemption.guarantee",
        "            if most is not None and held[index] > most:",
        "            if most is not None and held[index] > most + held[index]:",
        judge=Judge.STORIES,
        stories="guaranteed",
    ),
    Defect(
        "whoever has just started is fair game",
        "server.view.screen",
        "    found[since > latest] = codes.min_runtime",
        "    found[since < latest] = codes.min_runtime",
        judge=Judge.STORIES,
        stories="guaranteed",
    ),
    # Required nodes.
    Defect(
        "a daemon's pod evicts the more important",
        "server.preemption.required_node",
        "int(columns.priorities[row]) > ask.spec.priority)",
        "int(columns.priorities[row]) > ask.spec.priority + 1_000)",
        judge=Judge.STORIES,
        stories="required_node",
    ),
    Defect(
        "a daemon's node is anybody's meanwhile",
        "server.preemption.required_node",
        "Pledge(ask, row, node_id, exclusive=True)",
        "Pledge(ask, row, node_id, exclusive=False)",
        judge=Judge.STORIES,
        stories="guaranteed_nodes",
    ),
    # Quota runs.
    Defect(
        "shares are rounded down",
        "server.kernels.share",
        "            parts[at] += 1",
        "            parts[at] += 0",
        judge=Judge.QUOTAS,
    ),
    Defect(
        "a quota run gives nobody back",
        "server.preemption.quota_run",
        "        for place in self.running.needless(places, over, late):\n            self._spare(place, lines)",
        "        assert late is not None",
        judge=Judge.QUOTAS,
    ),
    Defect(
        "a quota run takes those who opted out first",
        "server.view.running",
        "(shifted << 1) + ((flags & OPTED_OUT) > 0)",
        "(shifted << 1) + ((flags & OPTED_OUT) == 0)",
        judge=Judge.QUOTAS,
    ),
    Defect(
        "a quota run stops at the first misfit",
        "server.preemption.quota_run",
        "                self._take(one, step.lines, step.because)\n                step.places.append(one.place)",
        "                self._take(one, step.lines, step.because)\n                step.places.append(one.place)\n"
        "            else:\n                return",
        judge=Judge.QUOTAS,
    ),
    Defect(
        "a save of anything else puts off a quota run",
        "server.books.quota_timers",
        "    if not new_delay and most == after.max:",
        "    if not new_delay and most == after.max and due_ms is None:",
        judge=Judge.STORIES,
        stories="quota_timers",
    ),
    Defect(
        "of one instant the parent's run comes first",
        "server.books.quota_timers",
        '(instants[path], -path.count("."), path)',
        '(instants[path], path.count("."), path)',
        judge=Judge.STORIES,
        stories="quota_parents",
    ),
    # Commitments, recovery, vetoes.
    Defect(
        "a decision promises nothing to the queues of its ask",
        "server.books.journal",
        "            queue.promised[index] += quantity\n        queue.pledges += 1",
        "            queue.promised[index] += 0\n        queue.pledges += 1",
        judge=Judge.STORIES,
        stories="commitments",
    ),
    Defect(
        "nobody is asked again to go when a decision expires",
        "server.core.victims",
        "    decisions = [one for ask in late for one in _overdue(partition, ask)]",
        "    decisions: list[Decision] = []",
        judge=Judge.STORIES,
        stories="commitments_expiry",
    ),
    Defect(
        "after a restart nobody holds the room that was made",
        "server.core.recovery",
        "    if ask is not None and node is not None:",
        "    if ask is None and node is not None:",
        judge=Judge.STORIES,
        stories="commitments",
    ),
    Defect(
        "who cannot go is asked again at once",
        "server.core.victims",
        "    ask.vetoed = True",
        "    ask.vetoed = False",
        judge=Judge.STORIES,
        stories="commitments",
    ),
    Defect(
        "a vetoed decision forgets its id",
        "server.core.orders",
        "    return found[0] if found else None",
        "    return None",
        judge=Judge.STORIES,
        stories="commitments",
    ),
    # Paced rounds and the order of victims.
    Defect(
        "a budget is tested after a decision, as in the pseudo code",
        "server.preemption.pace",
        "            if used + amount > most:",
        "            if used > most:",
        judge=Judge.STORIES,
        stories="rounds",
    ),
    Defect(
        "the first decision of a round may be put off",
        "server.preemption.pace",
        "plan.policy not in BOUND or not self._decided:",
        "plan.policy not in BOUND:",
        judge=Judge.STORIES,
        stories="rounds",
    ),
    Defect(
        "DaemonSets take of the budget of claims",
        "server.preemption.pace",
        "        if self._shares and plan.policy in BOUND and plan.releases:",
        "        if self._shares and plan.releases:",
        judge=Judge.STORIES,
        stories="rounds",
    ),
    Defect(
        "a queue gives what the partition may lose",
        "server.preemption.pace",
        "            found[QUEUE, release.leaf, index] += amount",
        "            found[QUEUE, view.partition, index] += amount",
        judge=Judge.STORIES,
        stories="rounds",
    ),
    Defect(
        "a window has no past",
        "server.books.snapshot",
        "        if one.began_ms + window > now:",
        "        if one.began_ms > now:",
        judge=Judge.STORIES,
        stories="rounds",
    ),
    Defect(
        "claims do not wait for a round",
        "server.core.pacing",
        "    return not partition.round.goes_on and now < earliest_ms(partition)",
        "    return not partition.round.goes_on and now < 0",
        judge=Judge.STORIES,
        stories="rounds",
    ),
    Defect(
        "nobody wakes the core for the next round",
        "server.core.pacing",
        "    return max(instant, earliest_ms(partition))",
        "    return instant",
        judge=Judge.STORIES,
        stories="rounds",
    ),
    Defect(
        "a veto waits for the next round",
        "server.core.pacing",
        "        found = [ask for ask in asks if ask.key in partition.suspended]",
        "        found = []",
        judge=Judge.STORIES,
        stories="rounds",
    ),
    Defect(
        "missed opportunities count for nothing",
        "server.view.waiting",
        "        return (-self.spec.priority, -self.missed, self.pending_since, self.arrival)",
        "        return (-self.spec.priority, 0, self.pending_since, self.arrival)",
        judge=Judge.STORIES,
        stories="rounds",
    ),
    Defect(
        "exactly the dead zone is beyond it",
        "server.preemption.pace",
        "    return eff * PERMYRIAD > entitled",
        "    return eff * PERMYRIAD >= entitled",
        judge=Judge.STORIES,
        stories="rounds",
    ),
    Defect(
        "a dead zone counts when a round begins and not again",
        "server.preemption.terms",
        "        if not trial.view.settings.deadzone_permyriad:",
        "        if trial.view.settings.deadzone_permyriad >= 0:",
        judge=Judge.STORIES,
        stories="rounds",
    ),
    Defect(
        "what is observed is shown each time",
        "server.core.orders",
        "    return partition.round.observed.get(_subject(plan)) == _content(plan)",
        "    return partition.round.observed.get(_subject(plan)) == ()",
        judge=Judge.STORIES,
        stories="rounds",
    ),
    Defect(
        "lost work is time and size added",
        "server.preemption.comparator",
        "self._running_ms(row) * self._size(row)",
        "self._running_ms(row) + self._size(row)",
        judge=Judge.STORIES,
        stories="comparator",
    ),
    Defect(
        "a broken job is spared",
        "server.preemption.comparator",
        "not in self._broken_jobs()",
        "in self._broken_jobs()",
        judge=Judge.STORIES,
        stories="comparator",
    ),
    Defect(
        "a partition cannot replace the order of a quota run",
        "server.preemption.quota_enforcement",
        "    if keys == TAILS[NAME]:",
        "    if keys != ():",
        judge=Judge.STORIES,
        stories="comparator",
    ),
    # Guards and reports.
    Defect(
        "the storm monitor forgets what the outside took",
        "server.core.storms",
        "    return short > before.left + more + lost - before.lost",
        "    return short > before.left + more",
        judge=Judge.REPORTS,
    ),
    Defect(
        "to the storm monitor a claim lowers nothing",
        "server.core.storms",
        "    after = Deficit(max(0, short - wanted), level.guaranteed, lost)",
        "    after = Deficit(short, level.guaranteed, lost)",
        judge=Judge.REPORTS,
    ),
    Defect(
        "pods that end take nothing from their queue, as the storm monitor sees it",
        "server.books.journal",
        "        set_releasing(partition, ask, releasing=False)\n    else:\n        _lose(",
        "        set_releasing(partition, ask, releasing=False)\n    elif ask.vetoed:\n        _lose(",
        judge=Judge.REPORTS,
    ),
    Defect(
        "a frozen pair is stopped, but nobody says so",
        "server.preemption.terms",
        "        if trial.view.is_frozen(self.ask, path):",
        "        if trial.view.is_frozen(self.ask, self.ask.leaf):",
        judge=Judge.REPORTS,
    ),
    Defect(
        "what happens outside ends no freeze",
        "server.books.storms",
        "        self.frozen.clear()\n        self.strikes.clear()",
        "        self.strikes.clear()",
        judge=Judge.REPORTS,
    ),
    Defect(
        "lost work counts since a pod was placed, whenever it started",
        "server.books.journal",
        "    since = ask.placed_ms if ask.started_ms is None else ask.started_ms",
        "    since = ask.placed_ms",
        judge=Judge.REPORTS,
    ),
    Defect(
        "a victim that stays counts as lost once it ends",
        "server.books.journal",
        '    ask.leaves_by = ""\n    ask.going = None\n',
        "    ask.leaves_by = ask.leaves_by\n",
        judge=Judge.REPORTS,
    ),
    Defect(
        "lost work folds nothing when a queue goes away",
        "server.books.lost_work",
        "        found = [one for one in self.lines if gone & {one.claimant, one.victim}]",
        "        found = [one for one in self.lines if gone >= {one.claimant, one.victim}]",
        judge=Judge.REPORTS,
    ),
    Defect(
        "a maximum is to be raised by all that is missing, whatever victims below it give",
        "server.core.unmet.numbers",
        "        least[index] = high",
        "        least[index] = enough",
        judge=Judge.REPORTS,
    ),
    Defect(
        "a guarantee is to be lowered by more than helps",
        "server.core.unmet.numbers",
        "    kept = _most(planner, need, path, tuple(map(min, before, _left(view, answer, path))))",
        "    kept = nothing",
        judge=Judge.REPORTS,
    ),
    Defect(
        "another queue's fence is lifted than the one that is in the way",
        "server.core.unmet.cures",
        "    lifted = changed.with_properties(view, root.path, ",
        "    lifted = changed.with_properties(view, need.ask.leaf, ",
        judge=Judge.REPORTS,
    ),
    Defect(
        "a cure of one queue is not tried",
        "server.core.unmet.cures",
        "    numbers.own_guarantee,\n    numbers.guarantees_of_others,",
        "    numbers.guarantees_of_others,",
        judge=Judge.REPORTS,
    ),
    # Shares by weight.
    Defect(
        "what is left of a share goes to the smallest remainders",
        "server.kernels.water",
        "np.lexsort((np.where(rises, -rest, 0), place))",
        "np.lexsort((np.where(rises, rest, 0), place))",
        judge=Judge.SHARES,
    ),
    Defect(
        "a parent's floor forgets those below it",
        "server.kernels.share",
        "            floors[level.above] = np.maximum(floors[level.above], below)",
        "            floors[level.above] = np.maximum(floors[level.above], 0 * below)",
        judge=Judge.SHARES,
    ),
    Defect(
        "a queue below its floor decides nothing",
        "server.preemption.entitlement",
        "    return share.contended[at] or trial.held(queue.path)[at] < share.floor[at]",
        "    return share.contended[at]",
        judge=Judge.STORIES,
        stories="proportion",
    ),
    Defect(
        "a victim stands outside the lowest queue that decides, whatever it goes for",
        "server.preemption.entitlement",
        "{one.at: one.queue.path for one in found})",
        "{})",
        judge=Judge.STORIES,
        stories="proportion",
    ),
    Defect(
        "the root keeps its share",
        "server.preemption.entitlement",
        "    if path == ROOT and trial.view.is_shared_out:",
        "    if not path and trial.view.is_shared_out:",
        judge=Judge.CLAIMS_BY_WEIGHT,
    ),
    Defect(
        "a queue that has just its share loses one to overshoot",
        "server.preemption.victims",
        "        caps[place] -= 1",
        "        caps[place] -= 0",
        judge=Judge.STORIES,
        stories="proportion_plain",
    ),
    Defect(
        "a floor that will be met decides how many may claim",
        "server.core.shortage",
        "        return min(lasting) if lasting else max(passing, default=0)",
        "        return min([*lasting, *passing], default=0)",
        judge=Judge.STORIES,
        stories="proportion",
    ),
    Defect(
        "a type of which nothing is owed counts most in the order of queues",
        "server.core.proportions",
        "[amount or NOT_SHARED for amount",
        "[amount or 1 for amount",
        judge=Judge.WORLDS_BY_WEIGHT,
    ),
    Defect(
        "plain shares bound nobody",
        "server.core.proportions",
        "        _bound(partition, _deserved(partition, shares) if plain else {})",
        "        _bound(partition, {})",
        judge=Judge.WORLDS_BY_WEIGHT,
    ),
    # Trims.
    Defect(
        "a trim takes from queues that have no more than their share",
        "server.preemption.trim",
        "if _helps(one, left) and _fits(trial, one, rooms) and _is_allowed",
        "if _helps(one, left) and _is_allowed",
        judge=Judge.TRIMS,
    ),
    Defect(
        "a trim spares nobody who is not needed",
        "server.preemption.trim",
        "    for one in reversed(taken[:]):",
        "    for one in taken[len(taken) :]:",
        judge=Judge.TRIMS,
    ),
    Defect(
        "a trim takes the longest running first",
        "server.preemption.comparator",
        "        return 0 if started == NOT_STARTED else max(0, self.trial.view.now - started)",
        "        return 0 if started == NOT_STARTED else min(0, started - self.trial.view.now)",
        judge=Judge.STORIES,
        stories="proportion_plain",
    ),
)
