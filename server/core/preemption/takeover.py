"""Takeovers of reservations: a reservation moves to an ask of higher priority for which no other node can be reserved.

An ask may use the capacity that a reservation of a lower priority keeps. But an ask may be too large for the free capacity of
every node, even if no node were reserved. While such an ask has no reservation, smaller asks of its priority use all capacity
that becomes free. To get a node nevertheless, such an ask may take a reservation over. These rules apply:

1. The ask's priority is higher than that of the reservation's owner (the ask for which the node is reserved), as their lowest
   common queue sees both. Between equal priorities there is no takeover, because two asks could exchange a node forever.
2. The ask may reserve. The ask has waited long enough, and no queue on its path is stopped. The ask's limits have headroom if
   the reservations that the ask outranks are not counted.
3. Asks are considered in the order of reservations. An ask gets the node that lacks least for it. If several nodes lack equally
   little, the ask gets the node that arrived first. If a node without pledges suits the ask, the ask takes no reservation over.
   It reserves that node instead, even if its limits have headroom only without the reservations that it outranks (rule 2).
4. Afterwards, at most RESERVATIONS_PER_LEAF nodes are reserved for the ask's leaf, and the partition has no more reservations
   than before.

Asks that come after this ask in the order of reservations may not reserve before this ask has its node. Without this rule, a
node could be reserved for a later ask, and the earlier ask would take the node over at the same instant.

A search checks each group of equal asks once. Groups that outrank no owner are skipped. The nodes that could hold a
class are computed once, until nodes or reservations change.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from server.core.preemption import due_reservations
from server.model.fit import Demand, fits
from server.preemption.nodes import reservation
from server.scheduling.outranking import Below, Ranks, in_order, lifted, most_headroom
from server.scheduling.placement import may_take, pick_node
from server.state.applications import Ask, Group
from server.state.commitments import Pledge
from server.state.equivalence import AskClass
from server.state.nodes import Node
from server.state.partition import Partition
from server.state.queues import Queue

SCALE: Final = 2**20
"""The factor for the part of a node's capacity that the node lacks for an ask.

With this factor, these parts are compared as whole numbers.
"""


class Takeover(NamedTuple):
    """A takeover: the ask, the node that it gets, and the reservation that the ask takes over.

    The reservation is None if the node is not reserved.
    """

    ask: Ask
    node: Node
    held: Pledge | None


def find(partition: Partition, now: int) -> Takeover | None:
    """Return the first takeover that is possible now, or None. Set the instant at which the next ask may reserve.

    Before this call, `due_reservations.reserving` must have been called, and placement must have placed all asks that it can.
    """
    if not partition.decisions.reservations:
        return None
    search = _Search(partition)
    asks = in_order(ask for ask in search.contenders(now) if search.may_have_headroom(ask))
    for below, alike in groupby(asks, key=search.below):
        with lifted(partition, below):
            for ask in alike:
                found = search.best(ask, below)
                if found is not None:
                    return found
    return None


def ahead(asks: Sequence[Ask], found: Takeover | None) -> Sequence[Ask]:
    """Return the asks that precede the ask of the takeover ``found`` in the order of reservations.

    Return all asks if ``found`` is None.
    """
    if found is None:
        return asks
    every = in_order(dict.fromkeys((*asks, found.ask)))
    return every[: every.index(found.ask)]


class _Search:
    """A search for a takeover.

    The search computes each fact once, such as the reservations that an ask outranks, and the leaves that may reserve no
    further node.
    """

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.ranks = Ranks(partition)
        self.full = _full_leaves(partition)
        self._most = most_headroom(partition)
        self._open: dict[tuple[Queue, int], Below] = {}
        state, held = partition.round, partition.decisions.reservations.values()
        mark = (
            str(partition.index.entered),
            *(one.commitment.commitment_id for one in held),
        )
        if mark != state.unsuited_seen:
            state.unsuited_seen = mark
            state.unsuited.clear()
        self.unsuited = state.unsuited
        self.may_reserve = due_reservations.may_reserve_more(partition)
        self._others: dict[AskClass, bool] = {}

    def contenders(self, now: int) -> Iterator[Ask]:
        """Yield the oldest ask of each group that waits for a node, if this ask may take over a reservation."""
        unsuited = self.unsuited
        for leaf in self.partition.queues.values():
            if not (leaf.leaf and leaf.pending_asks):
                continue
            for application in leaf.applications.values():
                known = {priority for _, priority in application.groups}
                takes = {priority for priority in known if self._takes(leaf, priority)}
                for group in application.groups.values() if takes else ():
                    if group.number in unsuited or group.priority not in takes:
                        continue
                    if _waits(group) and not self._has_another(leaf, group):
                        yield from _of_age(self.partition, group, now)

    def may_have_headroom(self, ask: Ask) -> bool:
        """Return whether the ask's limits would have headroom without any reservations.

        This is a necessary condition for a takeover (see `best`).
        """
        ask_class = ask.ask_class
        return all(
            fits(ask_class.demand, self._most.get(one, one.headroom))
            for one in ask.application.limits_of(ask_class)
        )

    def below(self, ask: Ask) -> Below:
        """Return the reservations that the ask outranks."""
        return self.ranks.below(ask.application.leaf, ask.spec.priority)

    def _takes(self, leaf: Queue, priority: int) -> Below:
        """Return the reservations that the leaf's asks of this priority may take over.

        If as many nodes are reserved for the leaf as a leaf may have, return only the reservations of the leaf's own asks.
        """
        at = (leaf, priority)
        found = self._open.get(at)
        if found is None:
            below, is_full = self.ranks.below(leaf, priority), leaf in self.full
            found = self._open[at] = tuple(
                one for one in below if not is_full or one.ask.application.leaf is leaf
            )
        return found

    def _has_another(self, leaf: Queue, group: Group) -> bool:
        """Return whether a node without pledges can be reserved for the group."""
        if (
            not self.may_reserve
            or leaf in self.full
            or not due_reservations.is_stuck(self.partition, group)
        ):
            return False
        ask_class = group.ask_class
        if ask_class not in self._others:
            self._others[ask_class] = any(
                _suits(ask_class, node) and fits(_ports(ask_class), node.free)
                for node in self._unpledged(leaf)
            )
        return self._others[ask_class]

    def best(self, ask: Ask, below: Below) -> Takeover | None:
        """Return the takeover that is possible for the ask, or None.

        The caller must have lifted all reservations that the ask outranks.
        """
        ask_class, leaf = ask.ask_class, ask.application.leaf
        if not all(one.has_headroom(ask_class) for one in ask.application.limits_of(ask_class)):
            return None
        taken = {one.node: one for one in self._takes(leaf, ask.spec.priority)}
        free = self._unpledged(leaf)
        suited = [node for node in (*free, *taken) if _suits(ask_class, node)]
        if not suited:
            assert isinstance(ask.group, Group), "members of gangs take no reservation over"
            self.unsuited.add(ask.group.number)
        ports = _ports(ask_class)
        found = [node for node in suited if fits(ports, node.free)]
        if not found or self._fits(ask_class, below):
            return None
        node = min(found, key=lambda one: (one in taken, *_order(ask_class, one)))
        return Takeover(ask, node, taken.get(node))

    def _unpledged(self, leaf: Queue) -> list[Node]:
        """Return the nodes without pledges. Return [] if no further node may be reserved for the leaf."""
        if not self.may_reserve or leaf in self.full:
            return []
        return [node for node in self.partition.index.nodes.values() if not node.pledges]

    def _fits(self, ask_class: AskClass, below: Below) -> bool:
        if ask_class.dead:
            return any(may_take(ask_class, held.node) for held in below)
        return pick_node(self.partition.index, ask_class) is not None


def _full_leaves(partition: Partition) -> set[Queue]:
    """Return the leaves that already have RESERVATIONS_PER_LEAF reserved nodes."""
    held = Counter(one.ask.application.leaf for one in partition.decisions.reservations.values())
    return {leaf for leaf, many in held.items() if many >= reservation.RESERVATIONS_PER_LEAF}


def _waits(group: Group) -> bool:
    ask_class = group.ask_class
    parked = ask_class.dead or group.parked
    return bool(group.live) and ask_class.pledge is None and parked


def _of_age(partition: Partition, group: Group, now: int) -> Iterator[Ask]:
    ineligible = partition.round.ineligible
    oldest = due_reservations.reservable(group, known_ineligible=group.number in ineligible)
    if not oldest:
        ineligible.add(group.number)
    return due_reservations.come_of_age(partition, oldest[:1], now)


def _suits(ask_class: AskClass, node: Node) -> bool:
    """Return whether the node, if no pod ran on it, could take an ask of the class."""
    large = fits(ask_class.demand, node.capacity)
    return large and node.schedulable and ask_class.mask.allows(node)


def _ports(ask_class: AskClass) -> Demand:
    return ask_class.node_demand[len(ask_class.demand) :]


def _order(ask_class: AskClass, node: Node) -> tuple[int, int]:
    """Return a sort key of the node.

    The key has the amount that the node lacks for an ask of the class, relative to the node's capacity, and then the node's
    arrival number.

    The node's reservation does not count as used.
    """
    lacking = 0
    for at, wanted in ask_class.demand:
        missing = max(0, wanted - max(node.free[at], 0))
        lacking += missing * SCALE // node.capacity[at]
    return lacking, node.number
