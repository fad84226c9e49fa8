"""Reservations and the asks that outrank them: whose priority is higher where the paths of both queues meet.

A reservation never binds an ask of strictly higher priority. What it keeps on its node and on the limits of its queues
is *lifted* while such an ask is tried, and laid back afterwards, so that asks of the same or a lower priority never see
it. Nothing here is done while no node is reserved.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from server.books import fresh, usage
from server.books.applications import Group
from server.books.classes import AskClass
from server.books.commitments import Pledge
from server.books.partition import Partition
from server.books.queues import Queue, QueueState
from server.scheduling.placement import fits_pledged, may_take


def outranks(leaf: Queue, priority: int, held: Pledge) -> bool:
    """Is a priority in a leaf higher than that of the reservation's owner, as the lowest common queue sees both (G5)?"""
    above: dict[Queue, int] = {}
    queue: Queue | None = held.ask.application.leaf
    seen = held.ask.spec.priority
    while queue is not None:
        above[queue] = seen
        seen, queue = queue.seen(seen), queue.parent
    while leaf not in above:
        assert leaf.parent is not None, "two queues of a partition meet at its root"
        priority, leaf = leaf.seen(priority), leaf.parent
    return priority > above[leaf]


@contextmanager
def lifted(partition: Partition, reservations: Iterable[Pledge]) -> Iterator[None]:
    """Leave out of the books what these reservations keep, for the time of a `with` block."""
    every = list(reservations)
    for held in every:
        node = held.node
        freed, changes = node.freed, node.changes
        partition.index.empty(node, held.node_demand)
        node.changes = changes
        if not freed:
            partition.index.unmark_freed(node)
        _promise(held, -1)
    try:
        yield
    finally:
        for held in reversed(every):
            partition.index.fill(held.node, held.node_demand)
            _promise(held, 1)


def _promise(held: Pledge, sign: int) -> None:
    leaf, firm = held.ask.application.leaf, held.ask.ask_class.firm
    usage.promise(leaf, held.demand, sign, firm=firm)
    if firm:
        usage.await_firm(
            leaf, held.demand, -sign
        )  # without its reservation it waits like others (J4)


def note(partition: Partition) -> None:
    """Say of each reservation whether its owner has to wait with its node for asks that outrank it and fit there now.

    The nodes of owners that had to wait before and need not any more count as freed: nothing else tells that such an
    owner may be placed, or that a limit keeps it waiting now.
    """
    waited = [held for held in partition.reservations.values() if held.yields]
    for held in waited:
        held.yields = False
    ready = [
        held
        for held in partition.reservations.values()
        if fits_pledged(held.ask.ask_class, held) and _is_within_limits(held)
    ]
    if ready:
        fresh.take_in(partition)
    for held in ready:
        with lifted(partition, (held,)):
            held.yields = _is_outranked(partition, held)
    for held in waited:
        if not held.yields:
            partition.index.mark_freed(held.node)


def _is_within_limits(held: Pledge) -> bool:
    ask_class = held.ask.ask_class
    return all(one.has_room(ask_class) for one in held.ask.application.limits_of(ask_class))


def _is_outranked(partition: Partition, held: Pledge) -> bool:
    """Does an ask that outranks the owner fit on the node, which is lifted?"""
    fitting: dict[AskClass, bool] = {}
    for application in partition.applications.values():
        for group in application.groups.values():
            ask_class = group.ask_class
            if ask_class not in fitting:
                fitting[ask_class] = may_use(ask_class) and may_take(ask_class, held.node)
            if fitting[ask_class] and is_candidate(group, held) and _has_room(group):
                return True
    return False


def _has_room(group: Group) -> bool:
    ask_class = group.ask_class
    return all(one.has_room(ask_class) for one in group.application.limits_of(ask_class))


def may_use(ask_class: AskClass) -> bool:
    """May asks of the class take a node other than one that a decision made free for them?"""
    held = ask_class.pledge
    return held is None or not (held.replaces or held.commitment.together)


def is_candidate(group: Group, held: Pledge) -> bool:
    """Does the group outrank the owner of a reservation, and do its queues place anything?"""
    leaf = group.application.leaf
    if not group.live or not outranks(leaf, group.priority, held):
        return False
    return all(queue.state is not QueueState.STOPPED for queue in leaf.path_up())
