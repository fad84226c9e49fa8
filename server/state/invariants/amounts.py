"""Checks of queues: they form one tree, and every amount and count of a queue is the sum over its children (invariant 1)."""

from collections import Counter
from collections.abc import Iterable

from server.model.fit import Amounts, Demand
from server.state.applications import Application
from server.state.equivalence import AskClass
from server.state.partition import Partition
from server.state.queues import Queue
from server.state.types import ResourceTypes


def check_tree(partition: Partition) -> None:
    """Assert that paths, parents and the table of queues agree."""
    walked = {queue.path: queue for queue in partition.root.walk()}
    assert walked == partition.queues, (
        f"partition {partition.name}: the tree and the table of queues differ in "
        f"{sorted(walked.keys() ^ partition.queues.keys())}"
    )
    for queue in walked.values():
        for name, child in queue.children.items():
            assert child.parent is queue, (
                f"queue {child.path} does not know its parent {queue.path}"
            )
            assert child.path == f"{queue.path}.{name}", (
                f"queue {child.path} stands in {queue.path} as {name}"
            )
        for application in queue.applications.values():
            assert application.leaf is queue, (
                f"application {application.application_id} stands in {queue.path}, not in {application.leaf.path}"
            )


def check_amounts(partition: Partition) -> None:
    """Assert that usage, promises, releases, pending asks and reservations of applications and queues are correct."""
    held = _promised_by_leaf(partition)
    for queue in reversed(list(partition.root.walk())):
        for application in queue.applications.values():
            _check_application(partition.types, application)
        _check_usage(partition.types, queue)
        _check_promised(partition, queue, held.get(queue.path, []))
        _check_releasing(partition.types, queue)
        _check_pending(queue)


def added(amounts: Amounts, demand: Demand) -> None:
    """Add a demand to amounts, in place."""
    for index, quantity in demand:
        amounts[index] += quantity


def same(types: ResourceTypes, what: str, have: Amounts, want: Amounts) -> None:
    """Assert that amounts have the expected values. The message names the types that differ."""
    if have == want:
        return
    assert len(have) == len(want), f"{what} has {len(have)} types of {len(want)}"
    names = types.names
    wrong = [f"{names[i]} {have[i]}, not {want[i]}" for i in range(len(want)) if have[i] != want[i]]
    raise AssertionError(f"{what} is wrong: {'; '.join(wrong)}")


def _summed(types: ResourceTypes, parts: Iterable[Amounts]) -> Amounts:
    total = types.zeros()
    for part in parts:
        total = [one + other for one, other in zip(total, part, strict=True)]
    return total


def _demanded(types: ResourceTypes, demands: Iterable[Demand]) -> Amounts:
    total = types.zeros()
    for demand in demands:
        for index, quantity in demand:
            total[index] += quantity
    return total


def _check_application(types: ResourceTypes, application: Application) -> None:
    want = _demanded(types, [ask.ask_class.demand for ask in application.allocations.values()])
    same(types, f"usage of application {application.application_id}", application.usage, want)


def _check_usage(types: ResourceTypes, queue: Queue) -> None:
    own = [application.usage for application in queue.applications.values()]
    below = [child.usage for child in queue.children.values()]
    want = _summed(types, own + below)
    same(types, f"usage of queue {queue.path}", queue.usage, want)
    assert min(want, default=0) >= 0, f"usage of queue {queue.path} is negative"


def _promised_by_leaf(partition: Partition) -> dict[str, list[Demand]]:
    held: dict[str, list[Demand]] = {}
    for one in partition.decisions.pledges.values():
        held.setdefault(one.ask.application.leaf.path, []).append(one.demand)
    return held


def _check_promised(partition: Partition, queue: Queue, own: list[Demand]) -> None:
    below = [child.promised for child in queue.children.values()]
    want = _summed(partition.types, [_demanded(partition.types, own), *below])
    same(partition.types, f"promised of queue {queue.path}", queue.promised, want)
    count = len(own) + sum(child.pledges for child in queue.children.values())
    assert queue.pledges == count, f"pledges of queue {queue.path} are {queue.pledges}, not {count}"


def _check_releasing(types: ResourceTypes, queue: Queue) -> None:
    own = [
        ask.ask_class.demand
        for application in queue.applications.values()
        for ask in application.allocations.values()
        if ask.releasing
    ]
    below = [child.releasing for child in queue.children.values()]
    want = _summed(types, [_demanded(types, own), *below])
    same(types, f"releasing of queue {queue.path}", queue.releasing, want)


def _check_pending(queue: Queue) -> None:
    want: Counter[AskClass] = Counter()
    for application in queue.applications.values():
        want.update([ask.ask_class for ask in application.asks.values()])
    for child in queue.children.values() if queue.parent is not None else ():
        want.update(child.pending)
    assert dict(want) == queue.pending, (
        f"pending of queue {queue.path} counts {sum(queue.pending.values())} asks in {len(queue.pending)} classes, "
        f"there are {want.total()} in {len(want)}"
    )
    assert queue.pending_asks == want.total(), (
        f"pending_asks of queue {queue.path} is {queue.pending_asks}, not {want.total()}"
    )
    blocked = sum(want[one] for one in queue.limiter.blocked) if queue.limiter else 0
    assert queue.blocked_asks == blocked, (
        f"blocked_asks of queue {queue.path} is {queue.blocked_asks}, not {blocked}"
    )
