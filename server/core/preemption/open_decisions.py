"""The changes of victims and decisions over time: vetoes (C6), expiry (C5), pledges that no longer fit (C4).

If a function returns a list of decisions, the list has the orders and notes to send.
"""

from collections import Counter
from collections.abc import Iterator, Set

from server.core.preemption import apply_plan, decision_records
from server.core.state import State
from server.model.decisions import Decision, DecisionMoved, Noted, Released, Termination
from server.model.events import VictimVetoed
from server.model.fit import fits
from server.model.reasons import Code
from server.model.records import DecisionState
from server.state import journal, tree
from server.state.applications import Ask, Group
from server.state.commitments import Commitment, Pledge
from server.state.lost_work import SOFT
from server.state.nodes import Node
from server.state.partition import Partition
from server.state.queues import Queue

Weak = Counter[tuple[Queue, int]]
"""The amounts that queues have promised through pledges that give way to claims, by queue and type.

These amounts do not count against the maximum of any queue.
"""
Over = Set[tuple[Queue, int]]

# Vetoes -------------------------------------------------------------------------------------------------------------


def vetoed(state: State, event: VictimVetoed, now: int) -> list[Decision]:
    """Let a victim that the shim could not evict continue to run.

    Until the end of a back-off, no plan chooses this victim (C6, V6). If the victim belongs to a quota run, or if the pledges
    of its decision no longer fit, another plan is sought. If the pod is not being released for the decision that the veto
    names, only a note is returned.
    """
    for partition in state.partitions.values():
        ask = partition.asks.get(event.key)
        if partition.owner != event.rm_id or ask is None:
            continue
        if ask.is_replaced or _is_meant(partition, ask, event):
            return _vetoed(state, partition, ask, event, now)
    message = f"veto of the release of {event.key!r}: it is not being released for that decision; nothing was changed"
    return [Noted("allocation", event.key, Code.RELEASE_UNKNOWN, message, "", event.rm_id)]


def _is_meant(partition: Partition, ask: Ask, event: VictimVetoed) -> bool:
    """Return whether the veto is about the decision that evicts the allocation. That decision may have ended already."""
    if not ask.releasing:
        return False
    if ask.released_by is not None:
        return event.decision_id in {"", ask.released_by.commitment_id}
    return event.decision_id in partition.decisions.records


def _vetoed(
    state: State, partition: Partition, ask: Ask, event: VictimVetoed, now: int
) -> list[Decision]:
    commitment = ask.released_by
    reason = event.reason or "its manager could not release it"
    decisions: list[Decision] = [_keep_victim(state, partition, ask, reason, now)]
    if commitment is not None and commitment.replaces:
        why = "its placeholder could not be ended"  # the real ask waits as before
        journal.close(partition, commitment, DecisionState.ABORTED, why)
        return decisions
    if commitment is not None:
        decisions += _record_veto(partition, commitment, ask, reason, now)
        if commitment.queue:
            journal.suspend(partition, commitment)
    for held in _unfit(partition, ask.node):
        _set_back(partition, held.ask, now)
        journal.suspend(partition, held.commitment)
    return decisions


def _keep_victim(state: State, partition: Partition, ask: Ask, reason: str, now: int) -> Decision:
    """Let the victim continue to run, and keep plans from choosing it until the back-off is over.

    Return a note for the victim's owner.

    Call this function before the victim's decision ends. The end of a replacement's decision sets the placeholder to releasing,
    and a placeholder that continues to run must not be releasing.
    """
    journal.spare(partition, ask)
    ask.vetoed = True
    partition.columns.changed[ask] = None
    state.at(now + partition.spec.preemption.backoff_ms, "veto", partition.name, ask.key)
    where = (partition.name, ask.rm_id)
    return Noted("allocation", ask.key, Code.VICTIM_VETOED, f"it stays: {reason}", *where)


def _record_veto(
    partition: Partition, commitment: Commitment, ask: Ask, reason: str, now: int
) -> list[Decision]:
    known = partition.decisions.records.get(commitment.commitment_id)
    if known is None:
        return []
    known = decision_records.vetoed(known, ask.key)
    partition.decisions.records[known.decision_id] = commitment.record = known
    where = (partition.name, known.decision_id, known.state)
    return [DecisionMoved(ask.rm_id, *where, now, reason, ask.key)]


def _set_back(partition: Partition, ask: Ask, now: int) -> None:
    """Let the next round try the ask without a wait, because its decision ended without effect.

    Also double the ask's back-off, which begins if the next round refuses the ask (C6).
    """
    ask.tried_ms = now
    if isinstance(ask.group, Group):
        ask.group.wake()
    ask.wait_ms = 2 * max(ask.wait_ms, partition.spec.preemption.backoff_ms)


def veto_over(partition: Partition, key: str) -> None:
    """Let plans choose a vetoed victim again, because the back-off after the veto has ended."""
    ask = partition.asks.get(key)
    if ask is not None and ask.vetoed:
        ask.vetoed = False
        partition.columns.changed[ask] = None
        partition.relief += 1


# Expiry -------------------------------------------------------------------------------------------------------------


def expired(partition: Partition, commitment: Commitment, now: int) -> list[Decision]:
    """Expire a decision that lasted too long (C5).

    Order the release of its victims once more. Policies may then plan for its asks again.
    """
    late = {**commitment.victims, **_leaving_from(partition, commitment)}.values()
    decisions = [one for ask in late for one in _overdue(partition, ask)]
    for held in commitment.pledges.values():
        _set_back(partition, held.ask, now)
    waited = f"not fulfilled within {partition.spec.preemption.expiry_ms // 1_000} s"
    journal.close(partition, commitment, DecisionState.EXPIRED, waited)
    return decisions


def _leaving_from(partition: Partition, commitment: Commitment) -> dict[str, Ask]:
    """Return, by key, the pods that are being evicted from this decision's nodes, and whose own decisions have already ended."""
    nodes = {held.node for held in commitment.pledges.values()}
    known = partition.decisions.leaving.items()
    return {key: ask for key, ask in known if ask.node in nodes and ask.released_by is None}


def _overdue(partition: Partition, ask: Ask) -> list[Decision]:
    """Order the release of a victim again, because the shim may not have received the order."""
    message = f"its release was ordered by decision {ask.leaves_by} and is not confirmed yet"
    delivery = apply_plan.delivery(partition, apply_plan.policy_of(ask.leaves_by))
    assert ask.going is not None
    if delivery != SOFT:
        journal.harden(partition, ask, delivery)  # other settings may be in force by now
    return [
        Noted("allocation", ask.key, Code.RELEASE_OVERDUE, message, partition.name, ask.rm_id),
        Released(
            ask.rm_id,
            partition.name,
            ask.key,
            ask.application.application_id,
            Termination.PREEMPTED_BY_SCHEDULER,
            message,
            ask.leaves_by,
            generation=ask.generation,
            delivery=ask.going.delivery or "delete",  # evicted for good, not only marked
        ),
    ]


# Pledges that do not fit any more -----------------------------------------------------------------------------------


def give_up(
    partition: Partition,
    held: Pledge,
    why: str,
    now: int,
    code: Code = Code.RESERVATION_DROPPED,
) -> list[Decision]:
    """End a pledge, and also the decision that made the pledge if that decision is still open.

    Policies may then plan for the decision's asks again.

    For a reservation, return a note with the reason ``code``. The end of any other decision is reported by
    `decision_events.moves`.
    """
    ask, reserved = held.ask, held.commitment.facts.reserves
    if partition.decisions.pledges.get(ask.key) is not held:
        return []  # the decision ended with another of its pledges
    for one in () if reserved else held.commitment.pledges.values():
        _set_back(partition, one.ask, now)
    journal.close(partition, held.commitment, DecisionState.ABORTED, why)
    message = f"{why}: the reservation is dropped"
    return [Noted("ask", ask.key, code, message, partition.name, ask.rm_id)] if reserved else []


def check_pledges(
    partition: Partition, node: Node, now: int, *, changed: bool = False
) -> list[Decision]:
    """End the pledges that no longer fit because a node has ``changed`` or lost capacity to a pod (G10), and return notes.

    In a sync in which known objects are compared with new reports, the check is made at the end of the sync, because pods that
    are still counted may be gone.
    """
    if not (changed or node.pledges):
        return []
    if partition.resumption is not None:
        partition.resumption.check_later(node, changed=changed)
        return []
    dropped = drop_unfit(partition, node, now) if changed else []
    abort_unfit(partition, now, node)
    return dropped


def drop_unfit(partition: Partition, node: Node, now: int) -> list[Decision]:
    """End the pledges of asks that a changed node can no longer take.

    There are three cases: the node takes no placements, the node is too small for the ask, or the ask's constraints exclude the
    node. A drained node keeps the pledges of asks that require this node by name.
    """
    notes: list[Decision] = []
    for held in list(node.pledges.values()):
        large = fits(held.demand, node.capacity)
        taking = node.opened if held.exclusive else node.schedulable
        if not taking or not large or not held.ask.ask_class.mask.allows(node):
            why = f"node {node.node_id} cannot hold it any more"
            notes += give_up(partition, held, why, now)
    return notes


def abort_unfit(partition: Partition, now: int, node: Node | None = None) -> None:
    """End pledges that no longer fit their node or queues, newest first (G10), because a maximum was lowered or capacity was lost.

    ``node`` is the node that changed. ``node`` is None if the change is not limited to one node.
    """
    for held in _unfit(partition, node):
        why = f"its capacity on node {held.node.node_id} or in its queues is no longer there"
        give_up(partition, held, why, now)


def _unfit(partition: Partition, node: Node | None = None) -> Iterator[Pledge]:
    """Yield pledges that no longer fit, the newest first (G10).

    The caller must end each pledge before it requests the next one.

    If ``node`` is given, pledges on other nodes are checked only while a queue is over its maximum.
    """
    if not partition.decisions.pledges:
        return
    weak = weak_promises(partition)
    over = _over(partition, weak)
    found = partition.decisions.pledges if over or node is None else node.pledges
    for held in reversed(list(found.values())):
        standing = held.ask.key in partition.decisions.pledges and not held.reserves
        if standing and not _fits_planned(held, over):
            yield held
            _count_weak(weak, held)
            over = _over(partition, weak)


def weak_promises(partition: Partition) -> Weak:
    """Return, by queue and type, the total amount that the queue has promised through pledges that give way to claims.

    Such a pledge belongs to a reservation, or to a decision for which another plan is being sought.
    """
    weak: Weak = Counter()
    for held in partition.decisions.pledges.values():
        _count_weak(weak, held)
    return weak


def _count_weak(weak: Weak, held: Pledge) -> None:
    """Add the amounts of a pledge to ``weak`` for each queue on the path, if the pledge gives way to claims."""
    for queue in held.ask.application.leaf.path_up() if held.reserves else ():
        for index, quantity in held.demand:
            weak[queue, index] += quantity


def _fits_planned(held: Pledge, over: Over) -> bool:
    """Return whether the pledge's node and queues can hold all their pledges once all ordered evictions are done."""
    free = planned_free(held.node)
    if any(free[index] < 0 for index, _ in held.node_demand):
        return False
    path = held.ask.application.leaf.path_up() if over else ()
    return not any((queue, index) in over for queue in path for index, _ in held.demand)


def planned_free(node: Node) -> list[int]:
    """Return a node's free capacity once all ordered evictions are done.

    Pledges count as used, except reservations and the pledges of decisions for which another plan is being sought.
    """
    free = node.free_without(node.dying())
    for held in node.pledges.values():
        for index, quantity in held.node_demand if held.reserves else ():
            free[index] += quantity
    return free


def _over(partition: Partition, weak: Weak) -> Over:
    """Return each queue and type for which usage and promises together exceed the queue's bound.

    The bound is the queue's maximum, or the deserved share of a leaf if that share is smaller (W2).
    """
    found: set[tuple[Queue, int]] = set()
    for queue in partition.queues.values():
        for index, most in enumerate(tree.bound(partition, queue) or ()):
            held = queue.usage[index] - queue.releasing[index] + queue.promised[index]
            if held - weak[queue, index] > most:
                found.add((queue, index))
    return found
