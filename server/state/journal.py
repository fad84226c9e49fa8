"""The single writer of placements, releases, pledges and the classes of asks. Every such change goes through this module.

The only exception is its fast path, `journal_fast`, which writes many placements or ends at once.

Each function keeps the amounts, the heaps, the counts and the log of changed rows consistent. Thus `validate` holds after every
call. This module decides nothing.
"""

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from server.model.fit import Demand
from server.model.records import DecisionState, lost_by
from server.state import gang_sizes, pending, usage
from server.state.applications import Application, Ask, Gang, Group
from server.state.commitments import Commitment, Pledge, beyond
from server.state.lost_work import OTHERS, SOFT, Going, LossKey
from server.state.nodes import Foreign, Node
from server.state.partition import Partition
from server.state.queues import Queue

_KEY: Final = attrgetter("key")


def place(partition: Partition, ask: Ask, node: Node, now: int) -> None:
    """Place a waiting ask on a node, which makes it an allocation."""
    pending.dequeue(partition, ask)
    settle(partition, ask, node, now)


def place_first(partition: Partition, group: Group, node: Node, now: int) -> Ask:
    """Place the first ask of a group, and return the ask.

    The group must be at the top of its application's heap. This function is faster than `place`.
    """
    ask = pending.pop_first(partition, group)
    _assign(partition, ask, node, now)
    usage.charge(group.application, group.ask_class.demand)
    if group.ask_class.firm:
        usage.hold_firm(group.application.leaf, group.ask_class.demand, 1)
    return ask


def settle(partition: Partition, ask: Ask, node: Node, now: int) -> None:
    """Place an ask that is in no group on a node, without a check of capacity (for recovery, design 1.10)."""
    _assign(partition, ask, node, now)
    usage.charge(ask.application, ask.ask_class.demand)
    if ask.ask_class.firm:
        usage.hold_firm(ask.application.leaf, ask.ask_class.demand, 1)


def _assign(partition: Partition, ask: Ask, node: Node, now: int) -> None:
    """Record a placement in the node, the application and the ask."""
    application = ask.application
    ask.node = node
    ask.placed_ms = now
    ask.code = ""
    node.allocations[ask.key] = ask
    partition.placements += 1
    application.allocations[ask.key] = ask
    partition.index.fill(node, ask.ask_class.node_demand)
    if ask.ask_class.preferred is not None:
        partition.index.domains.add(ask, node)
    if ask.spec.min_members > 1:
        _count_member(partition, application, ask, 1)
    partition.columns.changed[ask] = None


def _count_member(partition: Partition, application: Application, ask: Ask, count: int) -> None:
    """Add ``count`` to the number of placed members of an ask's gang. A member that is being released does not count as placed (J8)."""
    spec = ask.spec
    if spec.min_members > 1 and spec.gang_key:
        gang = pending.gang_of(partition, application, spec)
        if count > 0:
            gang_sizes.agree(partition, gang, ask)
        if gang.counted:
            partition.gangs.came.setdefault(gang, False)
        whole = gang.placed >= gang.min_members
        gang.placed += count
        if whole != (gang.placed >= gang.min_members):
            pending.regroup(partition, gang)
        elif gang.members:
            pending.gang_changed(partition, gang)
        pending.drop_empty_gang(partition, gang)


def unsettle(partition: Partition, ask: Ask, *, for_good: bool = True) -> None:
    """Remove an allocation from its node and from all usage. The ask is not put back among the waiting asks.

    If ``for_good`` is false, the caller writes the allocation again at once, and a decision that evicts the allocation is not
    changed.
    """
    node, application, ask_class = ask.node, ask.application, ask.ask_class
    assert node is not None
    dying = ask.releasing
    if dying:
        _mark_releasing(partition, ask, releasing=False)
    else:
        lose(application.leaf, ask_class.demand)
    if for_good:
        partition.decisions.leaving.pop(ask.key, None)
        partition.decisions.marked.pop(ask.key, None)
        _count_work(partition, ask)
    if for_good and ask.released_by is not None:
        _gone(partition, ask, ask.released_by)
    ask.node = None
    del node.allocations[ask.key]
    del application.allocations[ask.key]
    if ask_class.preferred is not None:
        partition.index.domains.remove(ask)
    partition.index.empty(node, ask_class.node_demand)
    usage.discharge(partition, application, ask_class.demand)
    if ask_class.firm:
        usage.hold_firm(application.leaf, ask_class.demand, -1)
        usage.relieve_firm(partition, application.leaf)
    if not dying:
        _count_member(partition, application, ask, -1)
    partition.note_end(ask)
    partition.relief += 1


def lose(leaf: Queue, demand: Demand) -> None:
    """Add a demand to the amounts that the leaf and its ancestors lost by external events (invariant 18)."""
    for queue in leaf.path_up():
        for index, quantity in demand:
            queue.lost[index] += quantity


def _count_work(partition: Partition, ask: Ask) -> None:
    """Add the lost work of a victim that has ended to the tables of lost work.

    The lost work is the time that the victim ran until its eviction was ordered, multiplied by its resources.
    """
    going = ask.going
    if going is None:
        return
    ask.going, ask.leaves_by = None, ""
    ran_ms = ask.ran_until(going.ordered_ms)
    lost = lost_by(ask.spec.resource, ran_ms)
    amounts = {kind: amount * ran_ms for kind, amount in ask.spec.resource}
    known = not going.claimant or going.claimant in partition.queues
    claimant = going.claimant if known else OTHERS
    application = ask.application
    at = going.policy, claimant, application.leaf.path
    partition.lost.by_queue.add(LossKey(*at), lost, going.ordered_ms, amounts)
    owner = LossKey(*at, application.user, application.application_id)
    partition.lost.by_owner.add(owner, lost, going.ordered_ms, amounts)


def set_started(partition: Partition, ask: Ask, started_ms: int | None) -> None:
    """Set the start of an allocation, as reported by the shim. None means that the allocation has not started."""
    if ask.started_ms != started_ms:
        ask.started_ms = started_ms
        partition.columns.changed[ask] = None


def set_releasing(partition: Partition, ask: Ask, *, releasing: bool) -> None:
    """Set or clear ``releasing`` of an allocation, which says that its release is ordered.

    For the victims of a decision, `order` sets ``releasing``.
    """
    if ask.releasing == releasing:
        return
    _mark_releasing(partition, ask, releasing=releasing)
    _count_member(partition, ask.application, ask, -1 if releasing else 1)


def _mark_releasing(partition: Partition, ask: Ask, *, releasing: bool) -> None:
    ask.releasing = releasing
    if releasing:
        lose(ask.application.leaf, ask.ask_class.demand)
        partition.round.ordered += 1
    partition.columns.changed[ask] = None
    sign = 1 if releasing else -1
    for queue in ask.application.leaf.path_up():
        for index, quantity in ask.ask_class.demand:
            queue.releasing[index] += sign * quantity


def reclassify(partition: Partition, ask: Ask) -> None:
    """Give a waiting ask its new class after a change of its avoided nodes or of settings. The ask keeps its pledge."""
    pending.dequeue(partition, ask)
    before = ask.ask_class
    made = partition.class_of(ask.spec, partition.constraints_of(ask.spec, ask.key))
    if ask.pledge is not None:
        shared, made = made, partition.private_class(made)
        partition.leave_class(shared)
        made.pledge = ask.pledge
    ask.ask_class = made
    partition.leave_class(before)
    counted = ask.pledge is not None and not ask.pledge.replaces  # else the placeholder is counted
    if counted and before.firm is not made.firm:
        usage.hold_firm(ask.application.leaf, made.demand, 1 if made.firm else -1)
    pending.enqueue(partition, ask)


def reclassify_placed(partition: Partition, ask: Ask) -> None:
    """Give an allocation its new class after a change of settings that may make it firm or lendable (J2)."""
    before, leaf = ask.ask_class, ask.application.leaf
    ask.ask_class = partition.class_of(ask.spec, before.constraints)
    partition.leave_class(before)
    if before.firm is not ask.ask_class.firm:
        usage.hold_firm(leaf, before.demand, 1 if ask.ask_class.firm else -1)


def settle_foreign(partition: Partition, foreign: Foreign) -> None:
    """Add a foreign pod to the state, and subtract its amounts from its node's free capacity."""
    partition.foreign.pods[foreign.key] = foreign
    foreign.node.foreign[foreign.key] = foreign
    for index, quantity in foreign.demand:
        partition.foreign.usage[index] += quantity
    partition.index.fill(foreign.node, foreign.demand)


def unsettle_foreign(partition: Partition, foreign: Foreign) -> None:
    """Remove a foreign pod that has ended from the state, and free its amounts on its node."""
    del partition.foreign.pods[foreign.key]
    del foreign.node.foreign[foreign.key]
    partition.ended.keep(foreign.key, foreign.tags)
    for index, quantity in foreign.demand:
        partition.foreign.usage[index] -= quantity
    partition.index.empty(foreign.node, foreign.demand)
    partition.relief += 1


def pledge(partition: Partition, held: Pledge) -> None:
    """Promise a waiting ask capacity on a node, and headroom in the queues on its path, before both are free (design 6.6)."""
    ask, commitment, group = held.ask, held.commitment, held.ask.group
    pending.dequeue(partition, ask)
    shared = ask.ask_class
    ask.ask_class = partition.private_class(shared)
    ask.ask_class.pledge = held
    if shared.dead:
        # An ask's own pledge counts as free capacity for the ask. The ask therefore sees the same free
        # capacity as before, and still fits on no node.
        pending.kill_class(partition, ask.ask_class)
    partition.leave_class(shared)
    ask.pledge = held
    partition.round.ordered += 1
    commitment.pledges[ask.key] = held
    commitment.state = DecisionState.ORDERED
    partition.decisions.open[commitment.commitment_id] = commitment
    partition.decisions.pledges[ask.key] = held
    if held.is_reservation:
        partition.decisions.reservations[ask.key] = held
        partition.round.reservations_untold = True
    held.node.pledges[ask.key] = held
    partition.index.fill(held.node, held.node_demand)
    if held.exclusive:
        partition.index.hold(held.node)
    for queue in ask.application.leaf.path_up():
        queue.pledges += 1
    usage.promise(ask.application.leaf, held.demand, 1, firm=ask.ask_class.firm)
    pending.enqueue(partition, ask)
    _remember(group, ask)
    if not held.reserves:
        # Capacity of other pledges whose victims are gone may be enough for the ask at once
        # (`placement.unpledged`).
        partition.index.mark_freed(held.node)


def unpledge(partition: Partition, held: Pledge) -> None:
    """Free the capacity of a pledge. If the pledge's ask still waits, it becomes an ordinary ask again."""
    ask, group = held.ask, held.ask.group
    waiting = group is not None
    if waiting:
        pending.dequeue(partition, ask)
    partition.round.pledges_ended += 1
    del partition.decisions.pledges[ask.key]
    partition.decisions.reservations.pop(ask.key, None)
    del held.commitment.pledges[ask.key]
    del held.node.pledges[ask.key]
    ask.pledge = None
    partition.index.empty(held.node, held.node_demand)
    if held.exclusive:
        partition.index.let_go(held.node)
    for queue in ask.application.leaf.path_up():
        for index, quantity in held.demand:
            queue.promised[index] -= quantity
        queue.pledges -= 1
        if queue.limiter is not None:
            queue.limiter.give(held.demand)
            usage.relieve(partition, queue.limiter)
    private = ask.ask_class
    if private.firm:
        usage.hold_firm(ask.application.leaf, held.demand, -1)
        usage.relieve_firm(partition, ask.application.leaf)
    ask.ask_class = partition.class_of(ask.spec, partition.constraints_of(ask.spec, ask.key))
    partition.leave_class(private)
    partition.relief += 1
    if waiting:
        pending.enqueue(partition, ask)
        _remember(group, ask)


def _remember(before: Group | Gang | None, ask: Ask) -> None:
    """Copy the time and the verdict of the last refusal from an ask's previous group to its new group (G1).

    The values are copied both for live planning and for the shadow.

    If the new group already has a later time, the new group keeps that time. If the new group already has a verdict, it keeps
    that verdict. For gangs, nothing is copied.
    """
    after = ask.group
    if not isinstance(before, Group) or not isinstance(after, Group):
        return
    if before.refused_ms or before.verdict is not None:
        after.refused_ms = max(after.refused_ms, before.refused_ms)
        after.verdict = after.verdict or before.verdict
    if before.beside is not None:
        after.beside = before.beside.joined(after.beside)


def order(
    partition: Partition, commitment: Commitment, victims: Sequence[Ask], now: int, *, delivery: str
) -> None:
    """Order the eviction of a decision's victims. From then on each victim counts as releasing, even if it is only marked (SOFT)."""
    partition.decisions.open[commitment.commitment_id] = commitment
    commitment.state = DecisionState.ORDERED
    awaited = tuple(commitment.pledges) if delivery == SOFT else ()
    going = Going(commitment.policy, commitment.claimant, now, delivery, awaited)
    fresh: list[Ask] = []
    members: list[Ask] = []
    # One loop over the victims is used, because tens of thousands of victims do not fit into a
    # processor cache.
    for ask in victims:
        ask.going = going
        ask.released_by = commitment
        ask.leaves_by = commitment.commitment_id
        if not ask.releasing:
            ask.releasing = True
            fresh.append(ask)
            if ask.spec.min_members > 1:
                members.append(ask)
    found = dict(zip(map(_KEY, victims), victims, strict=True))
    commitment.victims.update(found)
    partition.decisions.leaving.update(found)
    if going.softly:
        partition.decisions.marked.update(found)
    partition.columns.changed.update(dict.fromkeys(fresh))
    usage.count_releasing(partition, fresh)
    partition.round.ordered += 1
    for ask in members:
        _count_member(partition, ask.application, ask, -1)


def harden(partition: Partition, ask: Ask, delivery: str) -> None:
    """Record that the manager of a victim was ordered to end the victim.

    Before this order, the victim may only have been marked. Unlike a mark, this order cannot be withdrawn.
    """
    assert ask.going is not None
    assert delivery != SOFT
    partition.decisions.marked.pop(ask.key, None)
    ask.going = ask.going._replace(delivery=delivery, awaited=())


def replace(
    partition: Partition, commitment: Commitment, ask: Ask, placeholder: Ask, node: Node
) -> None:
    """Let a waiting ask replace a placeholder as soon as the placeholder has ended.

    The ask gets the placeholder's node or another node.

    Until the placeholder has ended, its usage is counted instead of the ask's usage. Thus no amount is counted twice, and no
    other ask gets the capacity.
    """
    pledge(partition, Pledge(commitment, ask, node, (), beyond(ask, placeholder, node)))
    placeholder.released_by = commitment
    commitment.victims[placeholder.key] = placeholder
    partition.columns.changed[placeholder] = None


def spare(partition: Partition, ask: Ask) -> None:
    """Record that a victim is no longer being evicted, because the manager could not release it or the order was withdrawn."""
    if ask.released_by is not None:
        del ask.released_by.victims[ask.key]
        ask.released_by = None
    partition.decisions.leaving.pop(ask.key, None)
    partition.decisions.marked.pop(ask.key, None)
    ask.leaves_by = ""
    ask.going = None
    set_releasing(partition, ask, releasing=False)
    partition.relief += 1


def _gone(partition: Partition, ask: Ask, commitment: Commitment) -> None:
    """Record that a victim has ended.

    When all victims of a decision have ended, the decision is confirmed, or fulfilled if it has no pledges left.
    """
    del commitment.victims[ask.key]
    commitment.gone.append(ask.key)
    ask.released_by = None
    if commitment.victims:
        return
    if commitment.pledges:
        commitment.state = DecisionState.CONFIRMED
        partition.decisions.moves.append(
            (commitment, DecisionState.CONFIRMED, "all victims have ended")
        )
    else:
        close(partition, commitment, DecisionState.FULFILLED, "all victims have ended")


def fulfil(partition: Partition, held: Pledge) -> None:
    """End the pledge of an ask that is being placed. If it was the last pledge of its decision, the decision is fulfilled."""
    unpledge(partition, held)
    if not held.commitment.pledges:
        close(partition, held.commitment, DecisionState.FULFILLED, "the ask has its place")


def suspend(partition: Partition, commitment: Commitment) -> None:
    """Suspend a decision for which a new plan must be found, because one of its victims could not be evicted (C6, V6).

    Until there is a new plan, the decision keeps its pledges, so that no other ask takes the capacity. While the decision is
    suspended, its pledges give way to claims, as reservations do. `Decisions.suspended` has the decision under the keys of its
    asks, or under the queue whose usage it reduces.
    """
    _lose_promises(commitment)
    commitment.suspended = True
    for key in list(commitment.pledges) or [commitment.queue]:
        partition.decisions.suspended[key] = commitment
    for held in commitment.pledges.values():
        partition.index.touch(held.node)


def _lose_promises(commitment: Commitment) -> None:
    """Count the promises of a decision as lost by an external event, because the decision was vetoed, expired or ended (invariant 18).

    Pledges that give way to claims, such as reservations, are left out.
    """
    for held in commitment.pledges.values():
        if not held.reserves:
            lose(held.ask.application.leaf, held.demand)


def resume(partition: Partition, commitment: Commitment) -> None:
    """Resume a suspended decision that has a new plan, or that continues with its old plan."""
    commitment.suspended = False
    for key in [key for key, one in partition.decisions.suspended.items() if one is commitment]:
        del partition.decisions.suspended[key]
    for held in commitment.pledges.values():
        partition.index.touch(held.node)
        partition.index.mark_freed(held.node)


def close(partition: Partition, commitment: Commitment, state: DecisionState, reason: str) -> None:
    """End a decision and free the capacity of its remaining pledges. Victims whose eviction was ordered are still evicted.

    For victims that are only marked, `core.preemption.withdrawal` checks whether an ask still needs their capacity. After an
    expiry, policies plan for the decision's asks again. Until they have done so, the asks still count as waiting for the capacity
    of the marked victims, so that these evictions are not withdrawn.
    """
    _lose_promises(commitment)
    for held in list(commitment.pledges.values()):
        unpledge(partition, held)
    for ask in commitment.victims.values():
        ask.released_by = None
        if ask.going is not None and ask.going.awaited and state is not DecisionState.EXPIRED:
            ask.going = ask.going._replace(awaited=())
        if commitment.replaces:
            # From now on the placeholder itself is counted, and no longer instead of an ask.
            set_releasing(partition, ask, releasing=True)
    commitment.victims.clear()
    commitment.state = state
    if commitment.suspended:
        resume(partition, commitment)
    del partition.decisions.open[commitment.commitment_id]
    partition.decisions.moves.append((commitment, state, reason))
