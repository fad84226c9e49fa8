"""One step of the oracle: which ask is placed next and where (design 6.3), found by trying everything."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from server.model.quota import NodeSort, PriorityPolicy, SortPolicy
from tests.simulation.rules import (
    dominant_share,
    fullness,
    has_capacity,
    seen_from_above,
    term_holds,
)
from tests.simulation.tables import Application, Item, Node, Partition, Queue, Sums

Key = tuple[object, ...]


@dataclass
class Step:
    """One step that would succeed now: the placement of a single ask, or of all members of a job, with the nodes."""

    members: list[tuple[Item, Node]]

    @property
    def first(self) -> Item:
        """Return the best-ranked member, whose rank is the rank of the step."""
        return self.members[0][0]


def best_node(partition: Partition, sums: Sums, item: Item, now: int) -> Node | None:
    """Return the node that an ask would take now, or None when no node takes it."""
    packing = partition.spec.node_sort is NodeSort.BINPACKING
    ranked = []
    for node in partition.nodes.values():
        if fits_node(sums, node, item, now):
            score = fullness(node.capacity, sums.free(node, item), partition.spec.node_weights)
            points = preference(partition, node, item)
            ranked.append((-points, -score if packing else score, node.arrival, node))
    return min(ranked, key=lambda each: each[:3])[3] if ranked else None


def preference(partition: Partition, node: Node, item: Item) -> int:
    """Return the preference score of a node: the sum of all weights of the ask that apply to it."""
    wanted = item.spec.preferences
    points = sum(
        one.weight for one in wanted.terms if term_holds(one.term, node.node_id, node.labels)
    )
    for one in wanted.groups:
        domain = node.labels.get(one.topology_key)
        if domain is None:
            continue
        named = (one.group, one.topology_key)
        points += one.weight * sum(
            partition.nodes[other.node_id].labels.get(one.topology_key) == domain
            for other in partition.placed()
            if named in {(each.group, each.topology_key) for each in other.spec.preferences.groups}
        )
    return points


def fits_node(sums: Sums, node: Node, item: Item, now: int) -> bool:
    """Return whether the node is open (or drained and required), permitted, not avoided, with capacity and ports."""
    return (
        (node.schedulable or (node.opened and bool(item.spec.constraints.required_node)))
        and item.avoided.get(node.node_id, now) <= now
        and has_capacity(item.request, sums.free(node, item))
        and node.takes(item)
        and sums.ports_free(node, item)
    )


def may_place(sums: Sums, item: Item) -> bool:
    """Return whether the limits of queues, of the ask's class and of the user leave headroom for the ask."""
    return sums.queues_allow(item) and sums.classes_allow(item) and sums.limits_allow(item)


def _single(partition: Partition, sums: Sums, item: Item, now: int) -> Step | None:
    may = not item.yields and may_place(sums, item)
    node = best_node(partition, sums, item, now) if may else None
    return Step([(item, node)]) if node else None


def _together(partition: Partition, members: list[Item], now: int) -> Step | None:
    """Return the step that places all members, each after the ones before; None when one does not fit."""
    tried: list[tuple[Item, Node]] = []
    for item in sorted(members, key=lambda each: each.rank):
        step = _single(partition, Sums(partition), item, now)
        if step is None:
            break
        tried += step.members
        item.node_id = step.members[0][1].node_id
    for item, _ in tried:
        item.node_id = ""
    return Step(tried) if len(tried) == len(members) else None


def possible_steps(partition: Partition, now: int) -> Iterator[Step]:
    """Yield every step that would succeed now."""
    sums = Sums(partition)
    jobs: dict[tuple[str, str], list[Item]] = {}
    for item in partition.waiting():
        if item.job and placed_members(partition, item) < item.spec.min_members:
            jobs.setdefault(item.job, []).append(item)
        elif step := _single(partition, sums, item, now):
            yield step
    for members in jobs.values():
        gathered = len(members) + placed_members(partition, members[0])
        if gathered >= members[0].spec.min_members and (step := _together(partition, members, now)):
            yield step


def placed_members(partition: Partition, item: Item) -> int:
    """Return how many members of the ask's job have a node."""
    return sum(other.job == item.job for other in partition.placed())


def first_step(
    partition: Partition, now: int, counts: Callable[[Step], bool] = lambda _step: True
) -> Step | None:
    """Return the first possible step, in the order of placement, for which `counts` is true."""
    steps = [step for step in possible_steps(partition, now) if counts(step)]
    if not steps:
        return None
    sums = Sums(partition)
    queue = partition.queues["root"]
    while True:
        below = [child for child in partition.queues.values() if child.parent is queue]
        inside = [
            (child, [s for s in steps if child in s.first.application.queue.line()])
            for child in below
        ]
        inside = [(child, some) for child, some in inside if some]
        if not inside:
            break
        queue, steps = min(inside, key=lambda each: queue_key(partition, sums, *each))
    return _first_in_leaf(partition, sums, queue, steps)


def _first_in_leaf(partition: Partition, sums: Sums, leaf: Queue, steps: list[Step]) -> Step:
    by_application: dict[str, list[Step]] = {}
    for step in steps:
        by_application.setdefault(step.first.application.application_id, []).append(step)

    def key(some: list[Step]) -> Key:
        return application_key(partition, sums, leaf, some)

    chosen = min(by_application.values(), key=key)
    return min(chosen, key=lambda step: step.first.rank)


def queue_key(partition: Partition, sums: Sums, queue: Queue, steps: list[Step]) -> Key:
    """Return the key that orders a queue among its siblings."""
    priority = max(_as_seen(step.first, queue) for step in steps)
    share = dominant_share(sums.usage[queue.path], lambda kind: partition.basis(queue, kind))
    if queue.parent and not queue.parent.spec.properties.priority_sort:
        return (share, -priority, queue.path)
    return (-priority, share, queue.path)


def _as_seen(item: Item, top: Queue) -> int:
    """Return the ask's priority with the offsets of all queues from its leaf up to and including `top`."""
    priority = item.spec.priority
    for level in item.application.queue.line():
        properties = level.spec.properties
        fenced = properties.priority_policy is PriorityPolicy.FENCE
        priority = seen_from_above(priority, properties.priority_offset, fenced=fenced)
        if level is top:
            break
    return priority


def application_key(partition: Partition, sums: Sums, leaf: Queue, steps: list[Step]) -> Key:
    """Return the key by which an application is ordered in its leaf queue."""
    properties = leaf.spec.properties
    application: Application = steps[0].first.application
    priority = max(step.first.spec.priority for step in steps)
    key: list[object] = [application.number]
    if properties.sort_policy is SortPolicy.FAIR:
        usage = sums.by_application[application.application_id]
        key.insert(0, dominant_share(usage, lambda kind: partition.measure(leaf, kind)))
    if properties.priority_sort:
        return (-priority, *key)
    # When priority does not come first, it comes after the policy's own key: the share, or the submit
    # number.
    return (key[0], -priority, *key[1:])
