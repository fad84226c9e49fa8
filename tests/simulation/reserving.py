"""The oracle's reservations: which asks reserve which nodes when no ask can be placed any more (design 6.6)."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from server.model.quota import PriorityPolicy
from tests.simulation.choice import (
    Step,
    best_node,
    first_step,
    fits_node,
    may_place,
    placed_members,
)
from tests.simulation.rules import missing_part, seen_from_above
from tests.simulation.tables import Item, Node, Partition, Queue, Sums

RESERVATION_AFTER_MS: Final = 2_000
RESERVATIONS_PER_LEAF: Final = 5
NODES_PER_RESERVATION: Final = 10
DEEPEST: Final = 10
"""A depth that no queue of a world reaches."""


Decided = tuple[Item, Node, Item | None]
"""An ask, its node, and the owner from which the ask takes over the node."""


def reserved(partition: Partition, now: int) -> Iterator[Decided]:
    """Yield each ask that reserves a node, with the node; the search continues after the caller has recorded the reservation.

    The best-ranked ask of the whole partition comes first. An ask may reserve when it has waited 2 s, has headroom,
    fits no node now, is no member of a job, and needs no check by its manager. Each ask reserves one node, each
    node is reserved for one ask, a leaf queue has at most five reservations, and a partition has one for each ten
    nodes (at least one). After a reservation of an application has timed out, the application waits as long again.
    An ask for which no further node can be reserved may take over the reservation of another ask; that ends the
    search.
    """
    for item in in_order(partition.waiting()):
        node = _least_short(partition, item, now) if _may_reserve(partition, item, now) else None
        if node is not None:
            yield item, node, None
            continue
        owner = _taken_over(partition, item, now)
        if owner is not None:
            yield item, partition.nodes[owner.reserved], owner
            return


def _may_reserve(partition: Partition, item: Item, now: int) -> bool:
    held = partition.reservations()
    leaf = item.application.queue
    return (
        len(held) < max(1, len(partition.nodes) // NODES_PER_RESERVATION)
        and sum(other.application.queue is leaf for other in held) < RESERVATIONS_PER_LEAF
        and _lacks_a_node(partition, item, now)
    )


def _lacks_a_node(partition: Partition, item: Item, now: int) -> bool:
    """Return whether the ask may reserve and lacks only a node, not counting reservations of asks that it outranks."""
    with left_out(below(partition, item)):
        sums = Sums(partition)
        return (
            _may_ever_reserve(partition, item, now)
            and may_place(sums, item)
            and best_node(partition, sums, item, now) is None
        )


def _may_ever_reserve(partition: Partition, item: Item, now: int) -> bool:
    """Return whether the ask is old enough and of a kind that may reserve, whatever is reserved now."""
    return (
        partition.spec.reservations.enabled
        and now >= item.application.reserves_from
        and not item.reserved
        and item.job is None
        and not item.spec.rm_check
        and now - item.since >= RESERVATION_AFTER_MS
    )


def could_hold(node: Node, item: Item) -> bool:
    """Return whether the node would take the item if the node were empty."""
    large = all(node.capacity.get(kind, 0) >= wanted for kind, wanted in item.request.items())
    return node.schedulable and large and node.takes(item)


def _least_short(partition: Partition, item: Item, now: int) -> Node | None:
    sums = Sums(partition)
    reserved = {other.reserved for other in partition.reservations()}
    candidates = [
        (missing_part(item.request, node.capacity, sums.free(node, item)), node.arrival, node)
        for node in partition.nodes.values()
        if could_hold(node, item)
        and node.node_id not in reserved
        and item.avoided.get(node.node_id, now) <= now
        and sums.ports_free(node, item)
    ]
    return min(candidates, key=lambda each: each[:2])[2] if candidates else None


def _taken_over(partition: Partition, item: Item, now: int) -> Item | None:
    """Return the owner whose reservation an ask takes over.

    The ask must satisfy all conditions for a reservation except the limit on their number, not counting
    reservations of asks that it outranks. The chosen owner is the one whose node lacks least for the ask.
    """
    found = [
        (_lacks(partition, item, owner), node.arrival, owner)
        for owner in below(partition, item)
        for node in [partition.nodes[owner.reserved]]
        if _may_take_over(partition, item, owner, node, now)
    ]
    return min(found, key=lambda each: each[:2])[2] if found else None


def in_order(items: Iterable[Item]) -> list[Item]:
    """Return the asks by priority, then by how long they have been pending, then by arrival.

    Priorities are compared as the root sees them, then one level below, and so on down to the asks' own.
    """

    def key(item: Item) -> tuple[list[int], int, int]:
        line = item.application.queue.line()
        seen = [_seen_at(item, top) for top in reversed(line)]
        own = [item.spec.priority] * (DEEPEST - len(line))
        return [-one for one in seen + own], item.since, item.arrival

    return sorted(items, key=key)


def below(partition: Partition, *items: Item) -> list[Item]:
    """Return the owners of reservations that all of these asks outrank."""
    return [
        owner for owner in partition.reservations() if all(outranks(item, owner) for item in items)
    ]


def _lacks(partition: Partition, item: Item, owner: Item) -> int:
    node = partition.nodes[owner.reserved]
    with left_out([owner]):
        return missing_part(item.request, node.capacity, Sums(partition).free(node, item))


def _may_take_over(partition: Partition, item: Item, owner: Item, node: Node, now: int) -> bool:
    leaf = item.application.queue
    others = [one for one in partition.reservations() if one is not owner]
    if sum(each.application.queue is leaf for each in others) >= RESERVATIONS_PER_LEAF:
        return False
    with left_out(below(partition, item)):
        ports_free = Sums(partition).ports_free(node, item)
    return (
        _lacks_a_node(partition, item, now)
        and could_hold(node, item)
        and item.avoided.get(node.node_id, now) <= now
        and ports_free
    )


# Asks that outrank the owner of a reservation ------------------------------------------------------------------------------


def gang(partition: Partition, item: Item) -> tuple[str, str] | None:
    """Return the gang with which an ask is placed; None when the ask is placed alone."""
    together = item.job and placed_members(partition, item) < item.spec.min_members
    return item.job if together else None


def outranks(item: Item, owner: Item) -> bool:
    """Return whether the priority of an ask is higher, as seen by the lowest queue that has both below it (G5)."""
    paths = [item.application.queue.line(), owner.application.queue.line()]
    top = next(level for level in paths[0] if level in paths[1])
    return _seen_at(item, top) > _seen_at(owner, top)


def _seen_at(item: Item, top: Queue) -> int:
    priority = item.spec.priority
    for level in item.application.queue.line():
        if level is top:
            return priority
        properties = level.spec.properties
        fenced = properties.priority_policy is PriorityPolicy.FENCE
        priority = seen_from_above(priority, properties.priority_offset, fenced=fenced)
    raise AssertionError("no queue has both below it")


@contextmanager
def left_out(owners: Iterable[Item]) -> Iterator[None]:
    """Leave these reservations out, as if they did not exist."""
    held = [(owner, owner.reserved) for owner in owners]
    for owner, _ in held:
        owner.reserved = ""
    yield
    for owner, node_id in held:
        owner.reserved = node_id


def note_who_yields(partition: Partition, now: int) -> None:
    """Let an owner that fits on its node yield to an ask that outranks it and would fit there without the reservation.

    The owner also yields to a gang that outranks it, on whatever nodes the gang fits, and takes no other node
    meanwhile.
    """
    for owner in partition.reservations():
        node, sums = partition.nodes[owner.reserved], Sums(partition)
        owner.yields = False
        if not (may_place(sums, owner) and fits_node(sums, node, owner, now)):
            continue
        with left_out([owner]):
            sums = Sums(partition)
            owner.yields = any(
                gang(partition, item) is None
                and outranks(item, owner)
                and fits_node(sums, node, item, now)
                for item in partition.waiting()
            )
        gangs = _gangs(partition).values()
        owner.yields |= any(owner in below(partition, *members) for members in gangs)


def _gangs(partition: Partition) -> dict[tuple[str, str], list[Item]]:
    """Return the waiting members of each job that is complete, in the order of the jobs' first members."""
    jobs: dict[tuple[str, str], list[Item]] = {}
    for item in sorted(partition.waiting(), key=lambda each: each.rank):
        job = gang(partition, item)
        if job is not None:
            jobs.setdefault(job, []).append(item)
    return {job: members for job, members in jobs.items() if _is_complete(partition, members)}


def _is_complete(partition: Partition, members: list[Item]) -> bool:
    there = len(members) + placed_members(partition, members[0])
    return there >= members[0].spec.min_members


def offered(partition: Partition, now: int) -> Step | None:
    """Return the next step when no ask fits beside the reservations: asks are tried without the reservations that they outrank.

    Asks that outrank the most owners come first, then gangs, then owners on their own nodes.
    """
    outranked = {item.key: below(partition, item) for item in partition.waiting()}
    sets = {_keys(owners): owners for owners in outranked.values()}
    number = {owner.key: at for at, owner in enumerate(partition.reservations())}
    for names in sorted(sets, key=lambda one: (-len(one), [number[key] for key in one])):
        with left_out(sets[names]):
            asks = {key for key, owners in outranked.items() if owners and _keys(owners) == names}
            step = first_step(partition, now, partial(_is_above, partition, asks))
        if step is not None:
            return step
    return _job(partition, now) or _owner(partition, now)


def _keys(owners: list[Item]) -> tuple[str, ...]:
    return tuple(owner.key for owner in owners)


def _owner(partition: Partition, now: int) -> Step | None:
    for owner in partition.reservations():
        if owner.yields:
            owner.yields = False
            node, sums = partition.nodes[owner.reserved], Sums(partition)
            if may_place(sums, owner) and fits_node(sums, node, owner, now):
                return Step([(owner, node)])
            return first_step(partition, now) or offered(partition, now)
    return None


def _is_above(partition: Partition, asks: set[str], step: Step) -> bool:
    return gang(partition, step.first) is None and step.first.key in asks


def _is_of(partition: Partition, job: tuple[str, str], step: Step) -> bool:
    return gang(partition, step.first) == job


def _job(partition: Partition, now: int) -> Step | None:
    """Return the step of the first gang that fits whole without the reservations that all its members outrank."""
    for job, members in _gangs(partition).items():
        with left_out(below(partition, *members)):
            step = first_step(partition, now, partial(_is_of, partition, job))
        if step is not None:
            return step
    return None
