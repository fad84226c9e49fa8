"""The sync of a manager that registers again while the core keeps the manager's objects (design 1.10).

During the sync, the manager's new reports are compared with its earlier reports (`comparison`). At the end of the sync, every
object that the manager did not report again counts as ended. Then the core sends again every decision for the manager that the
manager may not have received.
"""

import heapq
from collections.abc import Iterator, Sequence

from server.core.events import applications, lifecycle, nodes, placeholders
from server.core.preemption import apply_plan, due_quota, open_decisions, plan_checks, withdrawal
from server.core.state import Manager, State
from server.model.decisions import Decision, PlanCheckRequested, Termination, Withdrawn
from server.model.events import ApplicationRemoved, NodeDrained
from server.model.quota import KEEP
from server.state import journal, quota_timers
from server.state.applications import Ask
from server.state.partition import Partition
from server.state.resumption import Resumption, still_there

GONE = "its manager registered again and did not report it any more"


def begin(partition: Partition, known: Manager) -> None:
    """Begin the comparison: every object in the partition has to be reported again.

    ``known`` is the manager's registration before the present one. Timers of quota runs go on only if the sync of that
    registration was complete, or if the timers went on during that sync (Q7).
    """
    before = partition.resumption
    knew = known.synced or (before is not None and before.keeps_quota)
    keeps = knew and partition.spec.preemption.quota_timers == KEEP
    resumption = Resumption(keeps_quota=keeps)
    resumption.nodes.update(partition.index.nodes)
    resumption.applications.update(partition.applications)
    resumption.asks.update(partition.asks)
    resumption.foreign.update(partition.foreign.pods)
    if before is not None:
        resumption.timers = before.timers
        resumption.vacated = before.vacated
        resumption.unchecked = before.unchecked
        resumption.grown = before.grown
    if not keeps:
        quota_timers.on_restart(partition)
    partition.resumption = resumption


def end(state: State, partition: Partition, now: int) -> list[Decision]:
    """End the comparison, because the manager has reported everything that exists.

    Return the decisions to report and the decisions to send again.
    """
    resumption = partition.resumption
    assert resumption is not None, f"partition {partition.name} compares nothing"
    decisions = _end_unreported(state, partition, resumption, now)
    decisions += _drain_announced(state, partition, resumption, now)
    partition.resumption = None
    decisions += _do_later(state, partition, resumption, now)
    decisions += _send_again(partition, resumption)
    decisions += _ask_again(state, partition, now)
    _tell_again(partition)
    for timer in resumption.timers:
        heapq.heappush(state.timers, timer)
    return decisions


def go_on(state: State, partition: Partition, now: int) -> list[Decision]:
    """End the comparison as if every object had been reported unchanged, because the manager's session continues (design 7.5).

    Return the decisions that waited for the end of a sync.
    """
    decisions: list[Decision] = []
    resumption, partition.resumption = partition.resumption, None
    if resumption is not None:
        decisions += _do_later(state, partition, resumption, now)
        if not resumption.keeps_quota:
            decisions += due_quota.synced(partition, now)
        for timer in resumption.timers:
            heapq.heappush(state.timers, timer)
    _tell_again(partition)
    return decisions


def drop(state: State, partition: Partition) -> None:
    """End the comparison of known objects with new reports, because the manager's objects are removed or its registration is forgotten."""
    resumption, partition.resumption = partition.resumption, None
    for timer in () if resumption is None else resumption.timers:
        heapq.heappush(state.timers, timer)


def _end_unreported(
    state: State, partition: Partition, resumption: Resumption, now: int
) -> list[Decision]:
    """End the pods that were not reported again, then the nodes and applications that were not reported again.

    Return the decisions to report.
    """
    decisions: list[Decision] = []
    for ask in still_there(resumption.asks, partition.asks):
        if ask.node is not None and not (ask.releasing or ask.is_replaced):
            decisions.append(lifecycle.released(partition, ask, Termination.STOPPED_BY_RM, GONE))
        lifecycle.end(state, partition, ask, now)
    for foreign in still_there(resumption.foreign, partition.foreign.pods):
        journal.unsettle_foreign(partition, foreign)
    decisions += _remove_unreported(state, partition, resumption, now)
    return decisions


def _remove_unreported(
    state: State, partition: Partition, resumption: Resumption, now: int
) -> list[Decision]:
    """Remove the nodes that were not reported again, and then the applications that were not reported again and have no pods.

    Return the decisions to report.
    """
    decisions: list[Decision] = []
    for node in still_there(resumption.nodes, partition.index.nodes):
        decisions += nodes.remove(state, partition, node, now)
        partition.thrashing.thaw()
    decisions += state.take_notes()
    for application in still_there(resumption.applications, partition.applications):
        if not (application.asks or application.allocations):
            name = application.application_id
            removed = ApplicationRemoved(application.rm_id, name, partition.name)
            decisions += applications.remove(state, removed, now)
    return decisions


def _drain_announced(
    state: State, partition: Partition, resumption: Resumption, now: int
) -> Iterator[Decision]:
    """Drain the nodes that the manager reported as draining, and neither enabled nor drained afterwards."""
    for node_id in list(resumption.announced):
        node = partition.index.nodes.get(node_id)
        if node is not None and node.schedulable:
            yield from nodes.change(state, NodeDrained(node.rm_id, node_id, partition.name), now)


def _do_later(
    state: State, partition: Partition, resumption: Resumption, now: int
) -> Iterator[Decision]:
    """Do the work that waited for the end of the sync: orders, replacements, checks of promised capacity, and timers of quota runs.

    Orders of soft evictions come last, because such an eviction is withdrawn if no pod waits for its capacity any more (J11).
    """
    unordered = list(still_there(resumption.unordered, partition.asks))
    marked = [one for one in unordered if one.key in partition.decisions.marked]
    for ask in [one for one in unordered if one.key not in partition.decisions.marked]:
        yield from _order_again(partition, resumption, ask)
    for commitment in resumption.vacated.values():
        lifecycle.take_over(state, partition, commitment, now)
    for node_id, changed in resumption.unchecked.items():
        node = partition.index.nodes.get(node_id)
        if node is not None:
            yield from open_decisions.check_pledges(partition, node, now, changed=changed)
    for ask, before in resumption.grown.values():
        if partition.asks.get(ask.key) is ask and ask.node is not None:
            yield from due_quota.forced(state, partition, ask, before, now)
    yield from state.take_notes()
    yield from _mark_again(partition, resumption, marked)


def _mark_again(
    partition: Partition, resumption: Resumption, marked: Sequence[Ask]
) -> Iterator[Decision]:
    """Withdraw the soft evictions whose capacity no pod waits for any more. Repeat the orders of the other soft evictions."""
    if marked:
        yield from withdrawal.withdraw(partition)
    for ask in marked:
        yield from _order_again(partition, resumption, ask)


def _send_again(partition: Partition, resumption: Resumption) -> Iterator[Decision]:
    """Yield again the placements and withdrawals that did not reach the manager."""
    unseen = still_there(resumption.unseen, partition.asks)
    yield from lifecycle.placed(
        partition, [one for one in unseen if one.node is not None and not one.releasing]
    )
    for key, decision_id in resumption.withdrawn.items():
        ask = partition.asks.get(key)
        if ask is not None and not ask.releasing:
            why = "its eviction was withdrawn"
            yield Withdrawn(ask.rm_id, partition.name, key, decision_id, why)


def _order_again(partition: Partition, resumption: Resumption, ask: Ask) -> Iterator[Decision]:
    """Yield the core's order to release an allocation that was reported without the mark of that order.

    If no order of the core exists, and the allocation counts as releasing only because an earlier report had a mark, the
    allocation counts as running again.
    """
    if ask.going is not None:
        yield apply_plan.order_again(partition, ask)
    elif ask.is_replaced or (ask.releasing and ask.spec.placeholder):
        yield placeholders.order_again(partition, ask)
    elif ask.releasing and ask.node is not None:
        journal.set_releasing(partition, ask, releasing=False)
        resumption.check_later(ask.node)


def _ask_again(state: State, partition: Partition, now: int) -> Iterator[Decision]:
    """Yield again the plan checks for plans that were not carried out.

    The manager no longer keeps capacity for the asks of these checks.
    """
    for check in list(partition.decisions.checks.open.values()):
        if check.decision_id or len(plan_checks.waiting(partition, check)) < len(check.asks):
            continue
        check.fits, check.overdue_ms = False, now + plan_checks.ANSWER_MS
        state.at(check.overdue_ms, plan_checks.TIMER, partition.name, check.check_id)
        where = (partition.owner, partition.name, check.check_id)
        yield PlanCheckRequested(*where, check.about.nodes, check.about.victims)


def _tell_again(partition: Partition) -> None:
    """Make the next ticks report again, for each waiting ask, why the ask waits. The manager may have lost earlier reports."""
    for application in partition.applications.values():
        for ask in application.asks.values():
            ask.code = ""
            if ask.group is not None:
                ask.group.told = ""
                partition.untold[ask.group] = None
