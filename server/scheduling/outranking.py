"""Reservations and the asks that outrank them: a higher priority is one that is higher where the paths of both queues meet.

This is the only meaning of a higher priority wherever reservations are concerned: for the order in which asks may reserve, for
the asks that a reservation binds, and for those that take one over.

A reservation never binds an ask of strictly higher priority. What all reservations below it keep on their nodes and on the
limits of their queues is *lifted* together while such an ask is tried, and laid back afterwards, so that asks of the same or a
lower priority never see it. Nothing here is done while no node is reserved.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from operator import attrgetter

from server.model.fit import Amounts, fits
from server.scheduling.placement import fits_pledged, unpledged
from server.state import pending, unqueued_fast, usage
from server.state.applications import Ask, Job
from server.state.commitments import Pledge
from server.state.equivalence import AskClass
from server.state.limits import Limiter
from server.state.partition import Partition
from server.state.queues import Queue, QueueState

Below = tuple[Pledge, ...]
"""The reservations that an ask outranks, in the order in which they were made."""


def outranks(leaf: Queue, priority: int, held: Pledge) -> bool:
    """Return whether a priority in a leaf is higher than that of the reservation's owner at their lowest common queue (G5)."""
    own, owners = seen_together(leaf, priority, held)
    return own > owners


def seen_together(leaf: Queue, priority: int, held: Pledge) -> tuple[int, int]:
    """Return a priority in a leaf and that of the reservation's owner, as the lowest common queue sees them (G5)."""
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


class Ranks:
    """The reservations that asks of a leaf and a priority outrank, each looked up once."""

    def __init__(self, partition: Partition) -> None:
        self._reservations = [
            (one, _rank_of(one)) for one in partition.decisions.reservations.values()
        ]
        self._kinds = {kind: one for one, kind in self._reservations}
        self._known: dict[tuple[Queue, int], Below] = {}

    def below(self, leaf: Queue, priority: int) -> Below:
        """Return the reservations that such asks outrank; none where a queue of theirs is stopped."""
        at = (leaf, priority)
        found = self._known.get(at)
        if found is None:
            found = self._known[at] = self._find(leaf, priority)
        return found

    def _find(self, leaf: Queue, priority: int) -> Below:
        if any(queue.state is QueueState.STOPPED for queue in leaf.path_up()):
            return ()
        lower = {kind for kind, one in self._kinds.items() if outranks(leaf, priority, one)}
        return tuple(one for one, kind in self._reservations if kind in lower) if lower else ()

    def below_job(self, job: Job) -> Below:
        """Return the reservations that all waiting members of a gang outrank."""
        return self.below(job.application.leaf, min(one.spec.priority for one in job.members))


# The order of asks ----------------------------------------------------------------------------------------------------


def in_order(asks: Iterable[Ask]) -> list[Ask]:
    """Return the asks of a partition in order: higher priority, longer pending, earlier arrived.

    An ask comes before each that it outranks. Where the common queue sees two alike, their queues one level below decide, and
    so on down to their own priorities. So the order of two asks depends on no third one.
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
    """Return a priority, negated, as the queues of its path see it, the root first; its own fills up missing levels."""
    seen = [-priority] * (levels - len(path) + 1)
    for queue in path[:-1]:
        priority = queue.seen(priority)
        seen.append(-priority)
    return seen[::-1]


# Without some reservations --------------------------------------------------------------------------------------------


@contextmanager
def lifted(partition: Partition, reservations: Iterable[Pledge]) -> Iterator[None]:
    """Leave out of the live state what these reservations keep, for the time of a `with` block."""
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
    """Yield the limits in which the reservation counts."""
    for queue in held.ask.application.leaf.path_up():
        if queue.limiter is not None:
            yield queue.limiter
        if queue.firm is not None and held.ask.ask_class.firm:
            yield queue.firm


def most_rooms(partition: Partition) -> dict[Limiter, Amounts]:
    """Return the headroom of each limit in which reservations count, as it is without all of them.

    No ask outranks more than all, so a class that is larger has no headroom for any ask. The result serves all classes.
    """
    kept: dict[Limiter, Counter[int]] = {}
    for held in partition.decisions.reservations.values():
        for limiter in limits_of(held):
            kept.setdefault(limiter, Counter()).update(dict(held.demand))
    return {
        limiter: [room + every[at] for at, room in enumerate(limiter.room)]
        for limiter, every in kept.items()
    }


def _promise(held: Pledge, sign: int) -> None:
    leaf, firm = held.ask.application.leaf, held.ask.ask_class.firm
    usage.promise(leaf, held.demand, sign, firm=firm)
    if firm:
        usage.await_firm(
            leaf, held.demand, -sign
        )  # without its reservation it waits like others (J4)


def note(partition: Partition) -> None:
    """Mark each reservation whose owner fits now, but has to wait for asks that outrank it.

    The owner waits for those that fit on its node, and for gangs that wait; it takes no other node meanwhile. Owners that
    waited before and need not any more are tried like others: no other event makes them placeable.
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
        unqueued_fast.take_in(partition)
    ranks = Ranks(partition)
    for held in ready:
        held.yields = _is_outranked(partition, held, ranks)
    for held in waited:
        if not held.yields:
            try_again(partition, held)


def try_again(partition: Partition, held: Pledge) -> None:
    """Have an owner that waited for others tried in the next pass of placement."""
    if held.ask.ask_class.dead:
        pending.revive_class(partition, held.ask.ask_class)
    partition.index.mark_freed(held.node)


def _is_within_limits(held: Pledge) -> bool:
    ask_class = held.ask.ask_class
    return all(one.has_room(ask_class) for one in held.ask.application.limits_of(ask_class))


def _is_outranked(partition: Partition, held: Pledge, ranks: Ranks) -> bool:
    """Return whether the owner has to wait for an ask that fits on the node without the reservation, or for a gang.

    Only asks and gangs that outrank the owner count. Limits are left to the offer: the owner has its turn in the same tick,
    after all that outrank it.
    """
    for job in chain(partition.gangs.ready, partition.gangs.parked):
        if held in ranks.below_job(job):
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
    """Return whether asks of the class may take a node other than one that a decision freed for them."""
    held = ask_class.pledge
    return held is None or not (held.replaces or held.commitment.together)


def takes_without(ask_class: AskClass, held: Pledge) -> bool:
    """Return whether the node of a reservation can take one ask of the class without the reservation."""
    node = held.node
    return (
        (node.entry is not None or node.is_open_to(ask_class.constraints))
        and fits(ask_class.node_demand, unpledged(node, held))
        and ask_class.mask.allows(node)
    )
