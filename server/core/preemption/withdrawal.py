"""The withdrawal of soft evictions: a victim that was only marked may stay if no decision needs its capacity any more (J11).

With `delivery: soft`, and for gangs with `podShouldBeDeletedWhenPreempted: false`, victims are only marked. Soft evictions are
withdrawn only at the end of a tick, after policies have had the chance to plan again for asks whose decision ended. A marked
victim counts as releasing, so that a new decision may use its capacity. A mark stays in each of these cases:

1. A new plan is being sought for the decision that ordered the eviction.
2. The decision that ordered the eviction expired, and one of its asks waits for a new plan.
3. The decision that ordered the eviction, or another decision, has pledged capacity or headroom that would be lost if the
   victim stayed.
4. If the victim stayed, usage would be too high: a queue with a quota run would be over its maximum (Q5), or usage would exceed
   capacity (W3).

If a gang has marked members and cannot run without them, all its marked members stay or all are evicted (J12). A decision needs
fewer victims than it ordered if it continues on another node after a veto, or if capacity becomes free in another way. The core
looks for such victims after capacity has become free.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from server.core.preemption import decision_records, open_decisions
from server.model.asks import GangClass
from server.model.decisions import Withdrawn
from server.model.policies import Shrinks, facts
from server.model.records import DecisionState
from server.state import journal, limits, quota_timers, sharing, tree
from server.state.applications import Ask
from server.state.nodes import Node
from server.state.partition import Partition
from server.state.queues import Queue

NOBODY = "no pod waits for its capacity any more"
ENOUGH = "its decision has enough capacity without it"
_REACHED: Final = {
    Shrinks.QUEUE: "its queue is within its maximum without it",
    Shrinks.PARTITION: "no more is used than the nodes have",
}


class _Needs:
    """The amounts of capacity that the open decisions need.

    Each amount is computed when it is first needed, and is then cached. `forget` clears the cached free capacity of nodes.
    """

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.weak = open_decisions.weak_promises(partition)
        self.lending = {
            queue
            for held in partition.decisions.pledges.values()
            if held.ask.ask_class.gang_class is GangClass.LENDABLE and not held.reserves
            for queue in held.ask.application.leaf.path_up()
        }
        """The queues in which capacity is promised to lendable asks."""
        self._free: dict[Node, list[int]] = {}

    def free(self, node: Node) -> list[int]:
        """Return the node's free capacity once all ordered evictions are done."""
        found = self._free.get(node)
        if found is None:
            found = self._free[node] = open_decisions.planned_free(node)
        return found

    def forget(self, together: Iterable[Ask]) -> None:
        """Clear the cached free capacity of the nodes on which these victims stay."""
        for ask in together:
            assert ask.node is not None
            self._free.pop(ask.node, None)


def withdraw(partition: Partition) -> list[Withdrawn]:
    """Withdraw soft evictions whose capacity no decision needs, the newest eviction first. Return the withdrawals to send."""
    needs: _Needs | None = None
    found: list[Withdrawn] = []
    for together in _units(partition) if partition.decisions.marked else ():
        needs = needs or _Needs(partition)
        if not _is_needed(needs, together):
            found += _withdrawn(partition, together)
            needs.forget(together)
    _record(partition, found)
    partition.round.looked = partition.relief
    return found


def _withdrawn(partition: Partition, together: Iterable[Ask]) -> Iterator[Withdrawn]:
    for ask in together:
        decision, ordered_by = ask.released_by, ask.leaves_by
        reason = _reason(ask)
        journal.spare(partition, ask)
        partition.columns.changed[ask] = None
        if decision is not None and not decision.victims and not decision.pledges:
            state = DecisionState.FULFILLED if decision.gone else DecisionState.ABORTED
            journal.close(partition, decision, state, reason)
        yield Withdrawn(ask.rm_id, partition.name, ask.key, ordered_by, reason)


def _record(partition: Partition, found: Iterable[Withdrawn]) -> None:
    """Add the withdrawn victims to the records of their decisions.

    The record of each decision is updated once.

    Decisions whose records were dropped are skipped.
    """
    staying: dict[str, list[str]] = {}
    for one in found:
        staying.setdefault(one.decision_id, []).append(one.key)
    for decision_id, keys in staying.items():
        known = partition.decisions.records.get(decision_id)
        if known is None:
            continue
        known = partition.decisions.records[decision_id] = decision_records.withdrawn(known, keys)
        if decision_id in partition.decisions.open:
            partition.decisions.open[decision_id].record = known


def _reason(ask: Ask) -> str:
    assert ask.going is not None
    if _is_for_asks(ask):
        return ENOUGH
    return _REACHED.get(facts(ask.going.policy).shrinks, NOBODY)


# Victims that may stay -----------------------------------------------------------------------------------------------


def _units(partition: Partition) -> list[list[Ask]]:
    """Return the victims that may stay, in units: the victims of a unit all stay or are all evicted.

    A unit consists of the victims of one quota run, of the marked members of one gang that cannot run without them, or of a
    single pod. Units with a victim of an open decision that frees capacity for asks come last, so that the evictions of the
    other units are withdrawn first.
    """
    known = list(reversed(partition.decisions.marked.values()))
    free = _free(partition, known)
    if not free:
        return []
    units: dict[tuple[str, ...], list[Ask]] = {}
    for ask in known:
        units.setdefault(_unit(ask), []).append(ask)
    found = (unit for unit in units.values() if all(ask.key in free for ask in unit))
    return sorted(found, key=lambda unit: any(map(_is_for_asks, unit)))


def _is_for_asks(ask: Ask) -> bool:
    return ask.released_by is not None and bool(ask.released_by.pledges)


def _unit(ask: Ask) -> tuple[str, ...]:
    """Return the key of the victim's unit. All victims of a decision that reduces the usage of a queue are in one unit."""
    if ask.released_by is not None and ask.released_by.queue:
        return ("run", ask.released_by.commitment_id)
    key, fewest = ask.spec.gang_key, ask.spec.min_members
    gang = ask.application.gangs.get(key)  # None if all members are marked
    if key and fewest > 1 and (gang is None or gang.placed < gang.min_members):
        return ("gang", ask.application.application_id, key)
    return ("one", ask.key)


def _free(partition: Partition, known: Iterable[Ask]) -> set[str]:
    """Return the keys of the victims that may stay, provided that no pledge and no queue needs their capacity.

    The victims of an ended decision may stay if no ask that waited for the capacity of these victims still waits. The victims
    of an open decision for asks may stay only after capacity has become free in another way.
    """
    moved = partition.round.looked != partition.relief
    free: set[str] = set()
    ended: dict[int, list[Ask]] = {}
    for ask in known:
        decision = ask.released_by
        if decision is None:
            ended.setdefault(id(ask.going), []).append(ask)
        elif not decision.suspended and (decision.queue or moved):  # 1
            free.add(ask.key)
    for together in ended.values():
        if not _is_awaited(partition, together[0]):  # 2
            free.update(ask.key for ask in together)
    return free


def _is_awaited(partition: Partition, ask: Ask) -> bool:
    assert ask.going is not None
    return any(_waits_without_decision(partition, key) for key in ask.going.awaited)


def _waits_without_decision(partition: Partition, key: str) -> bool:
    """Return whether the ask waits and has no pledge, or only a pledge that gives way to claims (`Pledge.reserves`)."""
    ask = partition.asks.get(key)
    if ask is None or ask.node is not None:
        return False
    return ask.pledge is None or ask.pledge.reserves


# Decisions that need the victims' capacity ---------------------------------------------------------------------------------------


def _is_needed(needs: _Needs, together: list[Ask]) -> bool:
    nodes: dict[Node, Counter[int]] = {}
    for ask in together:
        assert ask.node is not None
        nodes.setdefault(ask.node, Counter()).update(dict(ask.ask_class.node_demand))
    if any(_is_pledged(needs, node, back) for node, back in nodes.items()):
        return True
    partition, shrinking = needs.partition, _shrinking(together)
    queues: dict[Queue, Counter[int]] = {}
    for ask in together:
        for queue in ask.application.leaf.path_up():
            queues.setdefault(queue, Counter()).update(dict(ask.ask_class.demand))
    return (
        any(_is_promised(needs, queue, back) for queue, back in queues.items())
        or any(
            _is_to_come_down(partition, queue, back, shrinking) for queue, back in queues.items()
        )
        or _is_too_much(partition, queues)
    )


def _is_pledged(needs: _Needs, node: Node, back: Counter[int]) -> bool:
    """Return whether a pledge on the node would no longer fit if victims with the amounts ``back`` stayed (case 3)."""
    held = [one for one in node.pledges.values() if not one.reserves]
    if not held:
        return False
    free = needs.free(node)
    return any(free[index] < back[index] for one in held for index, _ in one.node_demand)


def _is_promised(needs: _Needs, queue: Queue, back: Counter[int]) -> bool:
    """Return whether promises in the queue would exceed its bound if victims with the amounts ``back`` stayed (case 3).

    The amount that the queue keeps for waiting firm asks counts as well (J4).
    """
    for index, most in enumerate(tree.bound(needs.partition, queue) or ()):
        promised = queue.promised[index] - needs.weak[queue, index]
        used = _left(queue, index) + promised + back[index] + _kept(needs, queue, index)
        if back[index] and promised > 0 and used > most:
            return True
    return False


def _kept(needs: _Needs, queue: Queue, index: int) -> int:
    if queue.firm is None or queue not in needs.lending:
        return 0
    return limits.kept(queue.firm.headroom[index], queue.firm_waiting[index])


def _shrinking(together: Iterable[Ask]) -> set[str]:
    """Return the queues for whose quota runs these victims were evicted, even if the runs have expired."""
    known = [ask.going for ask in together]
    return {one.claimant for one in known if one and facts(one.policy).shrinks is Shrinks.QUEUE}


def _is_to_come_down(
    partition: Partition, queue: Queue, back: Counter[int], shrinking: Iterable[str]
) -> bool:
    """Return whether victims with the amounts ``back`` must go, because a quota run brings the queue to its maximum.

    The result is False if the queue would be within its maximum even if these victims stayed.

    This is case 4 for quota runs. The run may have ended already.
    """
    most = dict(queue.spec.max or ())
    names = partition.types.names
    over = any(
        names[index] in most and _left(queue, index) + quantity > most[names[index]]
        for index, quantity in back.items()
    )
    return over and quota_timers.is_left_to_victims(partition, queue, shrinking)


def _is_too_much(partition: Partition, queues: dict[Queue, Counter[int]]) -> bool:
    """Return whether usage would exceed capacity if the victims stayed, in a partition that reclaims surplus (case 4)."""
    if not sharing.is_shared_out(partition):
        return False
    root, whole = partition.root, sharing.whole(partition)
    return any(
        _left(root, index) + quantity > whole[index] for index, quantity in queues[root].items()
    )


def _left(queue: Queue, index: int) -> int:
    """Return the queue's usage once all ordered evictions are done."""
    return queue.usage[index] - queue.releasing[index]
