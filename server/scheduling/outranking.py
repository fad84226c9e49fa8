"""Reservations and the asks that outrank them.

An ask *outranks* a reservation if the priority of the ask is higher than that of the reservation's owner (the ask for which the
node is reserved), as their lowest common queue sees both. This comparison determines in which order asks may reserve, which
asks may not use reserved capacity, and which asks may take a reservation over.

A reservation never keeps capacity from an ask of strictly higher priority. While such an ask is tried, all reservations that
the ask outranks are *lifted* together. The capacity that these reservations keep, on nodes and in the limits of their queues,
then counts as free. Afterwards the reservations are put back, so that asks of the same or a lower priority cannot use their
capacity. While no node is reserved, the functions of this module return at once.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from operator import attrgetter

from server.model.fit import Amounts, fits
from server.scheduling.placement import fits_pledged, unpledged
from server.state import pending, usage
from server.state.applications import Ask, Gang
from server.state.commitments import Pledge
from server.state.equivalence import AskClass
from server.state.limits import Limiter
from server.state.partition import Partition
from server.state.queues import Queue, QueueState

Below = tuple[Pledge, ...]
"""The reservations that an ask outranks, in the order in which they were made."""


def outranks(leaf: Queue, priority: int, held: Pledge) -> bool:
    """Return whether an ask of this priority in this leaf outranks the reservation ``held`` (G5).

    The owner of a reservation is the ask for which a node is reserved.

    The two priorities are compared as the lowest common queue of the ask and the owner sees them.
    """
    return _is_higher(*seen_together(leaf, priority, held))


def _is_higher(own: int, owners: int) -> bool:
    return own > owners


def seen_together(leaf: Queue, priority: int, held: Pledge) -> tuple[int, int]:
    """Return a priority in a leaf and the priority of the reservation's owner, as the lowest common queue sees them (G5)."""
    above: dict[Queue, int] = {}
    queue: Queue | None = held.ask.application.leaf
    seen = held.ask.spec.priority
    while queue is not None:
        above[queue] = seen
        seen, queue = queue.seen(seen), queue.parent
    while leaf not in above:
        assert leaf.parent is not None, "two queues of a partition meet at its root"
        priority, leaf = leaf.seen(priority), leaf.parent
    return priority, above[leaf]


def _rank_of(held: Pledge) -> tuple[Queue, int]:
    return held.ask.application.leaf, held.ask.spec.priority


def _lowest_seen(owners: Iterable[tuple[Queue, int]]) -> dict[Queue, int]:
    """Return, for each queue that contains owners of reservations, the lowest priority of such an owner, as the queue sees that priority."""
    lowest: dict[Queue, int] = {}
    for leaf, own in owners:
        queue: Queue | None = leaf
        seen = own
        while queue is not None:
            lowest[queue] = min(seen, lowest.get(queue, seen))
            seen, queue = queue.seen(seen), queue.parent
    return lowest


class Ranks:
    """The reservations that the asks of one leaf with one priority outrank, computed once for each pair of leaf and priority."""

    def __init__(self, partition: Partition) -> None:
        self._reservations = [
            (one, _rank_of(one)) for one in partition.decisions.reservations.values()
        ]
        self._kinds = {kind: one for one, kind in self._reservations}
        self._lowest = _lowest_seen(self._kinds)
        self._known: dict[tuple[Queue, int], Below] = {}

    def below(self, leaf: Queue, priority: int) -> Below:
        """Return the reservations that asks of this leaf with this priority outrank.

        Return an empty tuple if a queue on the path is stopped.
        """
        at = (leaf, priority)
        found = self._known.get(at)
        if found is None:
            found = self._known[at] = self._find(leaf, priority)
        return found

    def _find(self, leaf: Queue, priority: int) -> Below:
        if any(queue.state is QueueState.STOPPED for queue in leaf.path_up()):
            return ()
        if not self._may_outrank(leaf, priority):
            return ()
        lower = {kind for kind, one in self._kinds.items() if outranks(leaf, priority, one)}
        return tuple(one for one, kind in self._reservations if kind in lower) if lower else ()

    def _may_outrank(self, leaf: Queue, priority: int) -> bool:
        """Return False if asks of this leaf with this priority certainly outrank no reservation.

        The lowest common queue of an ask and an owner is on the path of the leaf. The ask outranks no owner if, at each queue
        on the path, the ask's priority is at most the lowest priority of the owners in or below that queue.
        """
        queue: Queue | None = leaf
        while queue is not None:
            lowest = self._lowest.get(queue)
            if lowest is not None and _is_higher(priority, lowest):
                return True
            priority, queue = queue.seen(priority), queue.parent
        return False

    def below_gang(self, gang: Gang) -> Below:
        """Return the reservations that all waiting members of a gang outrank."""
        return self.below(gang.application.leaf, min(one.spec.priority for one in gang.members))


# The order of asks ----------------------------------------------------------------------------------------------------


def in_order(asks: Iterable[Ask]) -> list[Ask]:
    """Return the asks of a partition in order: by higher priority, then by longer wait, then by earlier arrival.

    An ask comes before each ask that it outranks. Two asks with equal priorities at their lowest common queue are compared one
    level below that queue, and so on, down to their own priorities. Thus the order of two asks does not depend on other asks.
    """
    every = list(asks)
    leaves = dict.fromkeys(ask.application.leaf for ask in every)
    paths = {leaf: list(leaf.path_up()) for leaf in leaves}
    if not any(queue.offset or queue.fence for queue in chain.from_iterable(paths.values())):
        return sorted(every, key=attrgetter("sort_key"))
    deepest = max(map(len, paths.values()))
    known: dict[tuple[Queue, int], list[int]] = {}

    def key(ask: Ask) -> tuple[list[int], int, int]:
        leaf, priority = ask.application.leaf, ask.spec.priority
        if (leaf, priority) not in known:
            known[leaf, priority] = _seen_from(paths[leaf], priority, deepest)
        return known[leaf, priority], ask.pending_since, ask.arrival

    return sorted(every, key=key)


def _seen_from(path: list[Queue], priority: int, levels: int) -> list[int]:
    """Return the negated priority as seen by each queue of the path, root first.

    If the path has fewer queues than ``levels``, fill the missing levels with the ask's own negated priority.
    """
    seen = [-priority] * (levels - len(path) + 1)
    for queue in path[:-1]:
        priority = queue.seen(priority)
        seen.append(-priority)
    return seen[::-1]


# Without some reservations --------------------------------------------------------------------------------------------


@contextmanager
def lifted(partition: Partition, reservations: Iterable[Pledge]) -> Iterator[None]:
    """Free the capacity that these reservations keep, for the duration of a `with` block."""
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


def limits_of(held: Pledge) -> Iterator[Limiter]:
    """Yield the limits against which the reservation counts."""
    for queue in held.ask.application.leaf.path_up():
        if queue.limiter is not None:
            yield queue.limiter
        if queue.firm is not None and held.ask.ask_class.firm:
            yield queue.firm


def most_free(partition: Partition) -> Amounts:
    """Return, by type, the largest amount that would be free on a single reserved node without its reservation."""
    free = (unpledged(held.node, held) for held in partition.decisions.reservations.values())
    return list(map(max, zip(*free, strict=True)))


def most_headroom(partition: Partition) -> dict[Limiter, Amounts]:
    """Return the headroom, without any reservations, of each limit against which a reservation counts.

    No ask can have more headroom than the returned amounts. Therefore, if a class does not fit into these amounts, its asks are
    blocked, no matter which reservations they outrank.
    """
    kept: dict[Limiter, Counter[int]] = {}
    for held in partition.decisions.reservations.values():
        for limiter in limits_of(held):
            kept.setdefault(limiter, Counter()).update(dict(held.demand))
    return {
        limiter: [headroom + every[at] for at, headroom in enumerate(limiter.headroom)]
        for limiter, every in kept.items()
    }


def _promise(held: Pledge, sign: int) -> None:
    leaf, firm = held.ask.application.leaf, held.ask.ask_class.firm
    usage.promise(leaf, held.demand, sign, firm=firm)
    if firm:
        usage.await_firm(
            leaf, held.demand, -sign
        )  # Without its reservation, the firm ask counts as waiting, as other firm asks do (J4).


def note(partition: Partition) -> None:
    """Set ``yields`` on each reservation whose owner fits now but has to wait for asks that outrank the owner.

    The owner waits for gangs that outrank it, and for asks that outrank it and fit on the reserved node. While the owner waits,
    it gets no other node. When the owner no longer has to wait, this function makes ordinary placement try the owner again,
    because no other event does so.
    """
    waited = [held for held in partition.decisions.reservations.values() if held.yields]
    for held in waited:
        held.yields = False
    ready = [
        held
        for held in partition.decisions.reservations.values()
        if fits_pledged(held.ask.ask_class, held) and _is_within_limits(held)
    ]
    if ready:
        pending.enqueue_unqueued(partition)
    ranks = Ranks(partition)
    for held in ready:
        held.yields = _is_outranked(partition, held, ranks)
    for held in waited:
        if not held.yields:
            try_again(partition, held)


def try_again(partition: Partition, held: Pledge) -> None:
    """Let ordinary placement try the owner of a reservation again, after the owner had to wait for asks that outrank it."""
    if held.ask.ask_class.dead:
        pending.revive_class(partition, held.ask.ask_class)
    partition.index.mark_freed(held.node)


def _is_within_limits(held: Pledge) -> bool:
    ask_class = held.ask.ask_class
    return all(one.has_headroom(ask_class) for one in held.ask.application.limits_of(ask_class))


def _is_outranked(partition: Partition, held: Pledge, ranks: Ranks) -> bool:
    """Return whether the ask that owns the reservation has to wait for asks or gangs that outrank the reservation.

    Any gang that outranks the reservation is a reason to wait. An ask that outranks the reservation is a reason to wait if the
    ask would fit on the reserved node without the reservation. Limits are not checked here, but later, when the reserved capacity
    is offered to these asks and gangs. If the owner still fits after these offers, it is placed in the same tick.
    """
    for gang in chain(partition.gangs.ready, partition.gangs.parked):
        if held in ranks.below_gang(gang):
            return True
    fitting: dict[AskClass, bool] = {}
    for application in partition.applications.values():
        for group in application.groups.values():
            ask_class = group.ask_class
            if ask_class not in fitting:
                fitting[ask_class] = may_use(ask_class) and takes_without(ask_class, held)
            if (
                fitting[ask_class]
                and group.live
                and held in ranks.below(application.leaf, group.priority)
            ):
                return True
    return False


def may_use(ask_class: AskClass) -> bool:
    """Return whether asks of the class may be placed on any free capacity, and not only on capacity that a decision keeps for them.

    The result is False for asks that replace a placeholder, and for members of a gang with an open decision.
    """
    held = ask_class.pledge
    return held is None or not (held.replaces or held.commitment.together)


def takes_without(ask_class: AskClass, held: Pledge) -> bool:
    """Return whether the node of the reservation ``held`` could take one ask of the class if the reservation did not exist."""
    node = held.node
    return (
        (node.entry is not None or node.is_open_to(ask_class.constraints))
        and fits(ask_class.node_demand, unpledged(node, held))
        and ask_class.mask.allows(node)
    )
