"""Checks of capacity: the free capacity of each node, the headroom of each limit, and the totals of the partition."""

from server.model.fit import Amounts
from server.model.resources import QUANTITY_LIMIT, Limit
from server.state.applications import Application
from server.state.invariants.amounts import added, same
from server.state.invariants.firm import check_firm
from server.state.limits import Limiter, group_limit, matched_group, user_limit
from server.state.nodes import Node
from server.state.partition import Partition
from server.state.queues import Queue
from server.state.types import NO_LIMIT

Person = tuple[str, str, str]
"""The key of a limit of a user or group: path of the queue, kind and name."""


def check_nodes(partition: Partition) -> None:
    """Assert that the free capacity and slot of each node, and the capacity and foreign usage of the partition, are correct."""
    types = partition.types
    capacity, foreign = types.zeros(), types.zeros()
    for name, node in partition.index.nodes.items():
        assert node.node_id == name, f"node {node.node_id} stands in the index as {name}"
        assert partition.node_slots.nodes[node.slot] is node, (
            f"node {name} does not stand in its slot {node.slot}"
        )
        _check_free(partition, node)
        for index, quantity in enumerate(node.capacity):
            capacity[index] += 0 if types.synthetic[index] else quantity
    for one in partition.foreign.pods.values():
        added(foreign, one.demand)
    same(types, f"capacity of partition {partition.name}", partition.capacity, capacity)
    same(types, f"foreign usage of partition {partition.name}", partition.foreign.usage, foreign)
    _check_slots(partition)
    _check_totals(partition)


def _check_free(partition: Partition, node: Node) -> None:
    free = list(node.capacity)
    for index, made_up in enumerate(partition.types.synthetic):
        assert not made_up or node.capacity[index] == made_up, (
            f"node {node.node_id} has {node.capacity[index]} of {partition.types.names[index]}, not {made_up}"
        )
    for ask in node.allocations.values():
        for index, quantity in ask.ask_class.node_demand:
            free[index] -= quantity
    for foreign in node.foreign.values():
        for index, quantity in foreign.demand:
            free[index] -= quantity
    for held in node.pledges.values():
        for index, quantity in held.node_demand:
            free[index] -= quantity
    assert len(free) == len(partition.types), (
        f"capacity of node {node.node_id} has {len(free)} types"
    )
    same(partition.types, f"free capacity of node {node.node_id}", node.free, free)


def _check_slots(partition: Partition) -> None:
    empty = [slot for slot, node in enumerate(partition.node_slots.nodes) if node is None]
    assert sorted(partition.node_slots.free) == empty, (
        f"partition {partition.name}: slots {empty} are empty, {sorted(partition.node_slots.free)} are listed"
    )
    taken = len(partition.node_slots.nodes) - len(empty)
    assert taken == len(partition.index.nodes), (
        f"partition {partition.name} has {taken} slots taken by {len(partition.index.nodes)} nodes"
    )


def _check_totals(partition: Partition) -> None:
    """Assert that the running total of each type stays below 2^62 (design 6.13)."""
    used = [
        own + other
        for own, other in zip(partition.root.usage, partition.foreign.usage, strict=True)
    ]
    for what, amounts in (("capacity", partition.capacity), ("usage", used)):
        for name, amount in zip(partition.types.names, amounts, strict=True):
            assert 0 <= amount < QUANTITY_LIMIT, (
                f"{what} of partition {partition.name}: {amount} {name}"
            )


# Limits ---------------------------------------------------------------------------------------------------------


def check_limits(partition: Partition) -> None:
    """Assert that headroom = limit - usage - promised for queues, and limit - usage for users and groups.

    The limits of firm use are checked by `check_firm`.
    """
    for queue in partition.queues.values():
        _check_queue_limit(partition, queue)
    check_firm(partition)
    members: dict[Person, list[Application]] = {key: [] for key in partition.limits.by_key}
    for application in partition.applications.values():
        keys = _persons(application)
        _check_limiters(partition, application, keys)
        for key in keys:
            members[key].append(application)
    for key, limiter in partition.limits.by_key.items():
        _check_person(partition, key, limiter, members[key])


def all_limiters(partition: Partition) -> list[Limiter]:
    """Return the limits of queues in path order, then the limits of users and groups."""
    pairs = ((queue.limiter, queue.firm) for queue in partition.root.walk())
    own = [one for pair in pairs for one in pair if one is not None]
    return own + list(partition.limits.by_key.values())


def limit_name(limiter: Limiter) -> str:
    """Return the name of a limit for messages."""
    own = limiter.kind == "queue"
    return (
        f"limit of queue {limiter.name}"
        if own
        else f"limit of {limiter.kind} {limiter.name} in {limiter.queue.path}"
    )


def _limits(partition: Partition, limit: Limit) -> Amounts:
    quantities = dict(limit)
    return [quantities.get(name, NO_LIMIT) for name in partition.types.names]


def _bound(partition: Partition, queue: Queue) -> Amounts | None:
    """Return the amounts that a queue may use. With plain shares by weight, a leaf may use at most its deserved share (W2)."""
    deserved = partition.deserved.get(queue.path)
    if queue.parent is None or (queue.spec.max is None and deserved is None):
        return None
    left = _limits(partition, queue.spec.max or ())
    for at, one in enumerate(deserved or ()):  # a new type has no value until the next tick
        left[at] = left[at] if one is None else min(left[at], one)
    return left


def _check_queue_limit(partition: Partition, queue: Queue) -> None:
    left = _bound(partition, queue)
    limited = left is not None
    assert (queue.limiter is not None) == limited, f"queue {queue.path} and its limit do not agree"
    if queue.limiter is None or left is None:
        return
    for index, used in enumerate(queue.usage):
        left[index] -= used + queue.promised[index]
    assert queue.limiter.queue is queue, (
        f"limit of queue {queue.path} belongs to {queue.limiter.queue.path}"
    )
    same(partition.types, f"headroom in {limit_name(queue.limiter)}", queue.limiter.headroom, left)


def _persons(application: Application) -> list[Person]:
    """Return the limits of the application's user and then of its group, each from the leaf up."""
    path = list(application.leaf.path_up())
    user, group = application.user, matched_group(application.leaf, application.user_groups)
    return [
        *((queue.path, "user", user) for queue in path if user_limit(queue.spec, user)),
        *(
            (queue.path, "group", group)
            for queue in path
            if group and group_limit(queue.spec, group)
        ),
    ]


def _check_limiters(partition: Partition, application: Application, keys: list[Person]) -> None:
    own = [queue.limiter for queue in application.leaf.path_up() if queue.limiter is not None]
    want = own + [partition.limits.by_key[key] for key in keys if key in partition.limits.by_key]
    assert list(application.limiters) == want, (
        f"application {application.application_id} passes {[limit_name(one) for one in application.limiters]}, "
        f"not {[limit_name(one) for one in want]}"
    )
    missing = [key for key in keys if key not in partition.limits.by_key]
    assert not missing, f"application {application.application_id} lacks its limits {missing}"


def _check_person(
    partition: Partition, key: Person, limiter: Limiter, members: list[Application]
) -> None:
    assert key == (limiter.queue.path, limiter.kind, limiter.name), (
        f"{limit_name(limiter)} stands as {key}"
    )
    spec = limiter.queue.spec
    entry = (
        user_limit(spec, limiter.name)
        if limiter.kind == "user"
        else group_limit(spec, limiter.name)
    )
    assert entry is not None, f"{limit_name(limiter)} is not configured"
    left = _limits(partition, entry.max_resources)
    for application in members:
        for index, used in enumerate(application.usage):
            left[index] -= used
    same(partition.types, f"headroom in {limit_name(limiter)}", limiter.headroom, left)
    assert limiter.applications == len(members), (
        f"{limit_name(limiter)} counts {limiter.applications} applications, there are {len(members)}"
    )
    assert limiter.max_applications == entry.max_applications, (
        f"{limit_name(limiter)} has another maximum"
    )
