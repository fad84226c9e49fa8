"""Checks of firm use (J4): the amounts that firm asks hold and wait for in each queue, and the limits computed from them."""

from server.model.asks import has_classes
from server.model.fit import Amounts
from server.state.applications import Ask
from server.state.invariants.amounts import same
from server.state.partition import Partition
from server.state.queues import Queue
from server.state.types import NO_LIMIT


def check_firm(partition: Partition) -> None:
    """Assert that the firm use of each queue is correct.

    The firm use is the sum of the queue's firm allocations and pledges. The headroom for firm use is
    the queue's guarantee minus the firm use.

    An ask that will replace a placeholder is left out, because its placeholder is included.
    """
    held = {path: partition.types.zeros() for path in partition.queues}
    waiting = {path: partition.types.zeros() for path in partition.queues}
    for ask in partition.asks.values():
        if ask.ask_class.firm and (ask.pledge is None or not ask.pledge.replaces):
            _count(ask, held if ask.node is not None or ask.pledge is not None else waiting)
    for path, queue in partition.queues.items():
        same(partition.types, f"firm use of queue {path}", queue.firm_held, held[path])
        same(partition.types, f"firm asks of queue {path}", queue.firm_waiting, waiting[path])
        _check_limit(partition, queue)


def _count(ask: Ask, amounts: dict[str, Amounts]) -> None:
    for queue in ask.application.leaf.path_up():
        for index, quantity in ask.ask_class.demand:
            amounts[queue.path][index] += quantity


def _check_limit(partition: Partition, queue: Queue) -> None:
    named = {name: quantity for name, quantity in queue.spec.guaranteed if quantity}
    limited = has_classes(partition.spec.preemption) and bool(named)
    name = f"limit of firm use in queue {queue.path}"
    assert (queue.firm is not None) == limited, f"{name}: there is one, or should be"
    if queue.firm is None:
        return
    assert queue.firm.queue is queue, f"{name} belongs to {queue.firm.queue.path}"
    left = [
        named.get(kind, NO_LIMIT) - used
        for kind, used in zip(partition.types.names, queue.firm_held, strict=True)
    ]
    same(partition.types, f"headroom in {name}", queue.firm.headroom, left)
