"""The rebuilding of measures, shares, heaps and parked groups, after a configuration or a change of the partition's total.

A queue's *measure* is the amounts by which usage is divided to get shares. The result of the rebuilding depends only on the
present state, and not on the changes that led to this state. The rebuilding is done in parts (`model/parts`).
"""

import heapq

from server.model.fit import Amounts, share
from server.model.parts import PART, Parts, whole
from server.model.reasons import Code
from server.state import ranking
from server.state.applications import Application, Group, GroupEntry
from server.state.equivalence import AskClass
from server.state.limits import Limiter
from server.state.partition import Partition
from server.state.prepared import Prepared
from server.state.queues import Queue
from server.state.sharing import is_shared_out
from server.state.types import replaced


def measure(partition: Partition, queue: Queue) -> Amounts:
    """Return the amounts by which a queue's usage is divided to get its share (6.3).

    For each type, the amount is the queue's guarantee. If the queue has no guarantee, the amount is the nearest max on its path.
    If there is no max either, the amount is the capacity of the partition.
    """
    index = partition.types.index
    amounts = list(partition.capacity)
    for one in reversed(list(queue.path_up())):
        for name, quantity in one.spec.max or ():
            amounts[index[name]] = quantity
    for name, quantity in queue.spec.guaranteed:
        amounts[index[name]] = quantity
    return amounts


def rebuild(partition: Partition) -> None:
    """Rebuild the shares, the heaps and the parked groups at once: see `rebuild_in_parts`."""
    whole(rebuild_in_parts(partition))


def rebuild_in_parts(partition: Partition, prepared: Prepared | None = None) -> Parts[None]:
    """Rebuild the shares, the heaps and the parked groups after a configuration or a change of the total.

    The measures in ``prepared`` are used only if the partition still has the capacity for which they were computed.
    """
    partition.ranking_stale = False
    partition.shared_for = None
    partition.relief += 1
    if prepared is not None and prepared.has_measures():
        yield from measure_prepared(partition, prepared)
    else:
        yield from _measure_all(partition)
    yield from _forget(partition)
    for at, application in enumerate(partition.applications.values()):
        if not at % PART:
            yield
        _rank_application(application)
    for at, queue in enumerate(reversed(partition.queues.values())):  # children before parents
        if not at % PART:
            yield
        if queue.heap:
            ranking.complete(queue)


def is_kept(partition: Partition, prepared: Prepared) -> bool:
    """Return whether `reranking_fast` may be used: the partition was ranked before, and only shares and limits changed.

    The fast path needs all groups of unschedulable classes parked, as `fill_heap` parks them.
    """
    return (
        prepared.has_measures()
        and not prepared.is_reordered
        and not partition.limits.by_key
        and not partition.deserved
        and not is_shared_out(partition)
        and all(map(_is_parked, partition.classes.dead))
    )


def _is_parked(ask_class: AskClass) -> bool:
    """Return whether all waiting asks of an unschedulable class are in parked groups."""
    return ask_class.pending == sum(group.live for group in ask_class.waiting if group.parked)


def _measure_all(partition: Partition) -> Parts[None]:
    """Compute the measure and the share of each queue. The measures equal the results of `measure`.

    To save time, the loop makes no calls and few copies. With calls of `types.replaced` the loop would take 1.5 times as long.
    """
    index = partition.types.index
    bounds: dict[Queue, Amounts] = {}
    for at, queue in enumerate(partition.queues.values()):  # parents come before their children
        if not at % PART:
            yield
        spec = queue.spec
        amounts = (partition.capacity if queue.parent is None else bounds[queue.parent]).copy()
        if spec.max is not None:
            for name, quantity in spec.max:
                amounts[index[name]] = quantity
        if queue.children:
            bounds[queue] = amounts.copy()
        for name, quantity in spec.guaranteed:
            amounts[index[name]] = quantity
        if amounts != queue.measure or queue.basis is not queue.measure:
            queue.compare(amounts)
        queue.share = share(queue.usage, queue.measure)


def measure_prepared(partition: Partition, prepared: Prepared) -> Parts[list[Queue]]:
    """Set measures and shares as `_measure_all` does, but use the prepared measures. Return the queues whose measure changed.

    If the measure of a queue does not change, the share of the queue is up to date already. The root is an exception: its share
    is up to date only directly after a rebuilding.
    """
    used, measures = prepared.used, prepared.measures
    below = dict(prepared.below)
    moved: list[Queue] = []
    for at, queue in enumerate(partition.queues.values()):
        if not at % PART:
            yield
        if queue in used:
            continue  # a new queue already has its measure
        known = measures.get(queue)
        if known is None:
            amounts = _measured(partition, queue, below)
            if queue.measure == amounts and queue.basis is queue.measure:
                continue
            queue.compare(amounts)
        elif queue.measure is known[0] and queue.basis is known[0]:
            continue
        else:
            queue.measure, queue.measure_scales = known
            queue.basis, queue.basis_scales = known
        queue.share = share(queue.usage, queue.measure)
        moved.append(queue)
    partition.root.share = share(partition.root.usage, partition.root.measure)
    return moved


def _measured(partition: Partition, queue: Queue, below: dict[Queue, Amounts]) -> Amounts:
    """Return the measure of a queue that is missing in the specification. Call this function for a parent before its children."""
    above = None if queue.parent is None else below.get(queue.parent)
    if above is None:
        return measure(partition, queue)
    index = partition.types.index
    amounts = replaced(above, queue.spec.max, index)
    if queue.children:
        below[queue] = amounts
    return replaced(amounts, queue.spec.guaranteed, index)


def _forget(partition: Partition) -> Parts[None]:
    """Empty the heaps of all queues, and unblock the classes of the limits of users and groups.

    Also empty the lists of parked groups of unschedulable classes.
    """
    for at, queue in enumerate(partition.queues.values()):
        if not at % PART:
            yield
        _forget_order(queue)
    for limiter in partition.limits.by_key.values():
        limiter.blocked.clear()
        limiter.relieved = False
    partition.limits.forget_relieved()
    for ask_class in partition.classes.dead:
        ask_class.waiting = []


def _forget_order(queue: Queue) -> None:
    """Empty the heap of a queue, and unblock the classes that its limiters block, except the classes of `still_blocked`."""
    queue.live = 0
    queue.entry = None
    if queue.heap:
        queue.heap = []
    if queue.child_priorities:
        queue.child_priorities.clear()
    limiter, firm = queue.limiter, queue.firm
    queue.blocked_asks = 0
    if limiter is not None:
        limiter.relieved = False
        if limiter.blocked:
            limiter.blocked = still_blocked(queue, limiter)
            queue.blocked_asks = sum(map(queue.pending.__getitem__, limiter.blocked))
    if firm is not None:
        firm.relieved = False
        if firm.blocked:
            firm.blocked = still_blocked(queue, firm)


def still_blocked(queue: Queue, limiter: Limiter) -> dict[AskClass, list[Group]]:
    """Return the classes that a limiter still blocks with certainty, each with an empty list of groups (design 6.16).

    There are such classes only if the queue is a leaf without gangs, because gangs are tried as a whole. The limiter must be the
    first limit that asks of the class have to pass. The limit must be the reason for waiting that was last sent to the shim for
    all groups of the class. `fill_heap` parks the groups of these classes.
    """
    if queue.children:
        return {}
    pending = queue.pending
    found: dict[AskClass, list[Group]] = {
        one: [] for one in limiter.blocked if one in pending and stays_blocked(limiter, one)
    }
    return found and _told(queue, limiter.code, found)


def stays_blocked(limiter: Limiter, ask_class: AskClass) -> bool:
    """Return whether a limiter is the first limit for the asks of a class, and certainly still has too little headroom for them."""
    return (
        ask_class.firm is (limiter.kind == "firm")
        and ask_class.pledge is None
        and not ask_class.dead
        and not limiter.has_headroom(ask_class)
    )


def _told(
    queue: Queue, code: Code, classes: dict[AskClass, list[Group]]
) -> dict[AskClass, list[Group]]:
    """Remove classes from ``classes``, and return the rest.

    A class stays only if ``code`` is the reason for waiting that was last sent to the shim for all of its groups in this queue.
    If the queue has gangs, return no classes.
    """
    for application in queue.applications.values():
        if application.gangs:
            return {}
        for group in application.groups.values():
            if group.told != code:
                classes.pop(group.ask_class, None)
    return classes


def _rank_application(application: Application) -> None:
    """Rebuild an application's heap.

    Append the application to its leaf's heap if the application has a group or gang that is not parked.
    """
    fill_heap(application)
    if application.heap:
        ranking.append(application.leaf, application, -application.heap[0][0])


def fill_heap(application: Application) -> None:
    """Rebuild an application's heap from its groups and gangs that are not parked. The heap of its leaf stays as it is.

    Park the groups of unschedulable classes, and of classes that the leaf's first limit still blocks.
    """
    leaf = application.leaf
    limiter, firm = leaf.limiter, leaf.firm
    application.entry = None
    application.share = share(application.usage, leaf.measure)
    entries: list[GroupEntry] = []
    for group in application.groups.values():
        ask_class = group.ask_class
        first_limit = firm if ask_class.firm else limiter
        waiting: list[Group] | None = None
        if ask_class.dead:
            waiting = ask_class.waiting
        elif first_limit is not None and first_limit.blocked:
            waiting = first_limit.blocked.get(ask_class)
        if waiting is not None:
            group.parked = True
            group.entry = None
            waiting.append(group)
            continue
        group.parked = False
        first = group.asks[0]
        group.entry = (-group.priority, first.pending_since, first.arrival, group.number, group)
        entries.append(group.entry)
    for gang in application.gangs.values():
        gang.entry = None
        if gang.gathered and not gang.parked:
            first = gang.members[0]
            gang.entry = (-gang.priority, first.pending_since, first.arrival, gang.number, gang)
            entries.append(gang.entry)
    if len(entries) > 1:
        heapq.heapify(entries)
    application.heap = entries
