"""Takeovers: a reservation moves to an ask of higher priority for which no other node can be reserved.

An ask that is larger than what a node has free gains nothing from the rule that a reservation of a lower priority does not bind
it. Without a reservation of its own, asks of its own priority would take every piece that becomes free. So it takes the
reservation over:

1. Its priority is higher than the owner's where the paths of both queues meet. Equal priorities never take over, so that no
   two asks exchange a node without an end.
2. It may reserve: it has waited long enough, its limits have room without the owner's reservation, no queue of it is stopped.
3. Asks go in the order of reservations. An ask gets the node that lacks least of it, then the one that arrived first.
4. At most RESERVATIONS_PER_LEAF nodes are reserved for its leaf afterwards, and no more in the partition than before.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from server.books.applications import Ask, Group
from server.books.classes import AskClass
from server.books.commitments import Pledge
from server.books.partition import Partition
from server.books.queues import Queue, QueueState
from server.core import due
from server.model.fit import Demand, fits
from server.preemption import reservation
from server.scheduling.outranking import lifted, outranks
from server.scheduling.placement import may_take, pick_node

SCALE: Final = 2**20
"""What a node lacks of an ask is compared in such parts of the node's capacity."""


class Takeover(NamedTuple):
    """An ask, and the reservation that moves to it."""

    ask: Ask
    held: Pledge


class _Contender(NamedTuple):
    """An ask that may reserve, and the reservations whose owners it outranks."""

    ask: Ask
    below: list[Pledge]


def find(partition: Partition, now: int) -> Takeover | None:
    """Return the first takeover that is possible now; sets the instant at which the next ask comes of age."""
    if not partition.reservations:
        return None
    suited: dict[AskClass, list[Pledge]] = {}
    for ask, below in sorted(_contenders(partition, now), key=lambda one: one.ask.sort_key):
        ask_class = ask.ask_class
        if ask_class not in suited:
            held = partition.reservations.values()
            suited[ask_class] = [one for one in held if _suits(ask_class, one)]
        known = [one for one in suited[ask_class] if one in below]
        found = [one for one in known if _is_free(partition, ask, one)]
        if found:
            return Takeover(ask, min(found, key=lambda one: _order(ask_class, one)))
    return None


def _contenders(partition: Partition, now: int) -> Iterator[_Contender]:
    """The oldest ask of each group that waits for a node and outranks the owner of a reservation."""
    outranked: dict[tuple[Queue, int], list[Pledge]] = {}
    for leaf in partition.queues.values():
        if not (leaf.leaf and leaf.pending_asks) or _is_stopped(leaf):
            continue
        for application in leaf.applications.values():
            for group in application.groups.values():
                below = _below(partition, group, outranked) if _waits(group) else []
                for ask in _of_age(partition, group, now) if below else ():
                    yield _Contender(ask, below)


def _is_stopped(leaf: Queue) -> bool:
    return any(queue.state is QueueState.STOPPED for queue in leaf.path_up())


def _waits(group: Group) -> bool:
    ask_class = group.ask_class
    return bool(group.live) and ask_class.pledge is None and (ask_class.dead or group.parked)


def _below(
    partition: Partition, group: Group, known: dict[tuple[Queue, int], list[Pledge]]
) -> list[Pledge]:
    """Return the reservations whose owners the group outranks."""
    leaf, priority = group.application.leaf, group.priority
    if (leaf, priority) not in known:
        held = partition.reservations.values()
        known[leaf, priority] = [one for one in held if outranks(leaf, priority, one)]
    return known[leaf, priority]


def _of_age(partition: Partition, group: Group, now: int) -> Iterator[Ask]:
    barren = partition.round.barren
    oldest = due.reservable(group, known_barren=group.number in barren)
    if not oldest:
        barren.add(group.number)
    return due.come_of_age(partition, oldest[:1], now)


def _suits(ask_class: AskClass, held: Pledge) -> bool:
    """Could the node take an ask of the class if it were empty?"""
    node = held.node
    large = fits(ask_class.demand, node.capacity)
    return large and node.schedulable and ask_class.mask.allows(node)


def _is_free(partition: Partition, ask: Ask, held: Pledge) -> bool:
    """Without this reservation, have the ask's limits room, and do nothing but free capacity and time keep it waiting?"""
    ask_class, leaf, owner = ask.ask_class, ask.application.leaf, held.ask.application.leaf
    reserved = sum(one.ask.application.leaf is leaf for one in partition.reservations.values())
    if reserved - (owner is leaf) >= reservation.RESERVATIONS_PER_LEAF:
        return False
    with lifted(partition, (held,)):
        limits = ask.application.limits_of(ask_class)
        fitting = may_take(ask_class, held.node) if ask_class.dead else _fits(partition, ask_class)
        return (
            not fitting
            and fits(_ports(ask_class), held.node.free)
            and all(one.has_room(ask_class) for one in limits)
        )


def _ports(ask_class: AskClass) -> Demand:
    return ask_class.node_demand[len(ask_class.demand) :]


def _fits(partition: Partition, ask_class: AskClass) -> bool:
    return pick_node(partition.index, ask_class) is not None


def _order(ask_class: AskClass, held: Pledge) -> tuple[int, int]:
    """What the node lacks of the ask without the reservation, in parts of its capacity; then its arrival."""
    kept, node = dict(held.node_demand), held.node
    lacking = 0
    for at, wanted in ask_class.demand:
        missing = max(0, wanted - max(node.free[at] + kept.get(at, 0), 0))
        lacking += missing * SCALE // node.capacity[at]
    return lacking, node.number
