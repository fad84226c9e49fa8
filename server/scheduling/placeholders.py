"""The replacement of placeholders by real asks: a step between the placement of pledged asks and ordinary placement.

An ask that fits into a placeholder of its task group gets the placeholder's node, if the ask may run there. Otherwise the ask
gets another node with free capacity. The ask is placed after the placeholder has ended. If an ask fits into none of the
existing placeholders of its task group, the ask becomes an ordinary ask, and one of these placeholders is released without a
replacement. An ask for which no placeholder is left becomes an ordinary ask (YUNIKORN-1395).
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from server.model.fit import fits
from server.scheduling.placement import pick_node
from server.state import pending
from server.state.applications import Application, Ask
from server.state.commitments import beyond
from server.state.equivalence import AskClass
from server.state.nodes import Node
from server.state.partition import Partition
from server.state.placeholders import Hold, is_ready, is_reserving
from server.state.queues import QueueState

REPLACED_MAX: Final = 1_000
"""The largest number of placeholders that one tick replaces. The next tick continues with the remaining placeholders."""


class Swap(NamedTuple):
    """An ask with the placeholder that it replaces, and its node.

    A swap without a node means that the placeholder is too small for the ask.
    """

    ask: Ask
    placeholder: Ask
    node: Node | None


def waits(partition: Partition) -> bool:
    """Return whether the asks that wait for placeholders must be examined again.

    They must be examined again if capacity or placements have changed since the last examination.
    """
    mark = _mark(partition)
    return any(tried != mark for tried in partition.gangs.holding.values())


def swaps(partition: Partition) -> Iterator[Swap]:
    """Yield the replacements that are possible now. The caller must write each replacement to the live state before requesting the next.

    During the search, asks that no longer need to wait for placeholders become ordinary asks.
    """
    count = 0
    for application, tried in list(partition.gangs.holding.items()):
        mark = _mark(partition)
        if tried == mark:
            continue
        for swap in _of_application(partition, application):
            if count >= REPLACED_MAX:
                return
            count += 1
            yield swap
        if application.holds:
            partition.gangs.holding[application] = _mark(partition)
        else:
            partition.gangs.holding.pop(application, None)


def _mark(partition: Partition) -> tuple[int, int]:
    return partition.relief, partition.placements


def _of_application(partition: Partition, application: Application) -> Iterator[Swap]:
    path = application.leaf.path_up()
    if is_reserving(application) or any(one.state is QueueState.STOPPED for one in path):
        return
    coming = {one.spec.task_group for one in application.asks.values() if one.spec.placeholder}
    ready: dict[str, list[Ask]] = {}
    for one in application.allocations.values():
        if is_ready(one):
            ready.setdefault(one.spec.task_group, []).append(one)
        elif one.spec.placeholder and one.vetoed:
            coming.add(one.spec.task_group)
    for hold in list(application.holds.values()):
        yield from _of_hold(partition, hold, ready.get(hold.key, []), more=hold.key in coming)


def _of_hold(partition: Partition, hold: Hold, ready: list[Ask], *, more: bool) -> Iterator[Swap]:
    """Yield the waiting members of a task group, each with one of the group's placeholders.

    Stop when the group has no placeholder left.
    """
    hopeless: set[AskClass] = set()
    for ask in list(hold.members):
        if ask.ask_class in hopeless:
            continue
        swap = _match(partition, ask, ready) if hold.key else None
        if swap is not None:
            ready.remove(swap.placeholder)
            yield swap
        elif not hold.key or not (ready or more):
            pending.let_go(partition, ask)
        else:
            hopeless.add(ask.ask_class)


def _match(partition: Partition, ask: Ask, ready: list[Ask]) -> Swap | None:
    """Return the ask with the first placeholder into which the ask fits and on whose node the ask may run.

    If the ask fits into placeholders but may run on none of their nodes, return the ask with the first of these placeholders
    and with another node. If the ask fits into none of the placeholders, return a swap without a node. Return None if there is
    no placeholder, or if the ask needs another node and no node has capacity now.
    """
    first: Ask | None = None
    for one in ready:
        if fits_into(ask, one):
            if one.node is not None and takes_over(ask, one, one.node):
                return Swap(ask, one, one.node)
            first = first or one
    if first is None:
        return Swap(ask, ready[0], None) if ready else None
    node = None if ask.ask_class.dead else pick_node(partition.index, ask.ask_class)
    return None if node is None else Swap(ask, first, node)


def fits_into(ask: Ask, placeholder: Ask) -> bool:
    """Return whether the ask is at most as large as the placeholder in each type.

    If the ask is at most as large, the replacement does not raise the usage of the queues.

    A firm ask does not fit into a placeholder that is not firm, because the firm usage would rise (J4).
    """
    if ask.ask_class.firm and not placeholder.ask_class.firm:
        return False
    had = dict(placeholder.ask_class.demand)
    return all(quantity <= had.get(index, 0) for index, quantity in ask.ask_class.demand)


def takes_over(ask: Ask, placeholder: Ask, node: Node) -> bool:
    """Return whether an ask that fits into the placeholder may run on that node once the placeholder is gone.

    The node must allow the ask. The amounts that the ask needs beyond the placeholder's amounts (only host ports are possible)
    must be free on the node.
    """
    ask_class = ask.ask_class
    return (
        node.is_open_to(ask_class.constraints)
        and ask_class.mask.allows(node)
        and fits(beyond(ask, placeholder, node), node.free)
    )
