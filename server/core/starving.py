"""Who is due for preemption: looked for in the books, so that no View is taken for nobody (G1, G2, G11).

What stands here is necessary for a claim and cheap to ask, group by group of equal asks; policies and laws decide.
"""

from collections.abc import Iterator, Mapping

from server.books.applications import Ask, Group
from server.books.classes import AskClass
from server.books.partition import Partition
from server.books.queues import Queue, QueueState
from server.model.fit import Demand
from server.model.quota import PreemptionPolicy
from server.preemption import guarantee, required_node


def claiming(partition: Partition, now: int) -> list[Ask]:
    """Asks that may claim now, as many of each group as its deciding queues lack; the rest sets the next instant."""
    settings = partition.spec.preemption
    if not settings.enabled or guarantee.NAME not in settings.policies:
        return []
    asks: list[Ask] = []
    for leaf in partition.queues.values():
        if leaf.leaf and leaf.pending_asks and _may_claim(leaf):
            asks += _of_leaf(partition, leaf, now)
    return asks


def _may_claim(leaf: Queue) -> bool:
    """Is preemption on for the leaf (G3), nothing on its path stopped, and anything on it guaranteed (G2)?"""
    if leaf.spec.properties.preemption_policy is PreemptionPolicy.DISABLED:
        return False
    path = list(leaf.path_up())
    return any(queue.spec.guaranteed for queue in path) and not any(
        queue.state is QueueState.STOPPED for queue in path
    )


def _of_leaf(partition: Partition, leaf: Queue, now: int) -> Iterator[Ask]:
    reserved = _reserved(partition, leaf)
    for application in leaf.applications.values():
        for group in application.groups.values():
            if group.live and _is_stuck(group):
                most = _lacking(partition, leaf, group.ask_class.demand, reserved)
                if most:
                    yield from _due(partition, group, most, now)


def _is_stuck(group: Group) -> bool:
    """Has it no node, or no head-room in a queue, while nobody pledged room to it and its user may have more?"""
    ask_class = group.ask_class
    held = ask_class.pledge
    if held is not None and not held.reserves:
        return False
    blocking = [one for one in group.application.limiters if not one.has_room(ask_class)]
    return (ask_class.dead or bool(blocking)) and all(one.kind == "queue" for one in blocking)


def _reserved(partition: Partition, leaf: Queue) -> Mapping[str, Mapping[int, int]]:
    """What reservations promise on the leaf's path: it counts for nobody's entitlement."""
    path = {queue.path for queue in leaf.path_up()}
    sums: dict[str, dict[int, int]] = {}
    for held in partition.pledges.values():
        if held.reserves:
            for queue in held.ask.application.leaf.path_up():
                if queue.path in path:
                    line = sums.setdefault(queue.path, {})
                    for index, quantity in held.demand:
                        line[index] = line.get(index, 0) + quantity
    return sums


def _lacking(
    partition: Partition, leaf: Queue, demand: Demand, reserved: Mapping[str, Mapping[int, int]]
) -> int:
    """How many more asks of this demand the deciding queues are short of at the most, 0 when they are not (G2)."""
    found: list[int] = []
    for index, quantity in demand:
        queue = _deciding(partition, leaf, index)
        if queue is not None:
            held = queue.usage[index] - queue.releasing[index] + queue.promised[index]
            held -= reserved.get(queue.path, {}).get(index, 0)
            short = _guaranteed(partition, queue, index) - held
            found.append(-(-short // quantity) if short > 0 else 0)
    return min(found, default=0)


def _deciding(partition: Partition, leaf: Queue, index: int) -> Queue | None:
    """The lowest queue up to the leaf's fence that guarantees the type."""
    for queue in leaf.path_up():
        if _guaranteed(partition, queue, index) > 0:
            return queue
        if queue.spec.properties.preemption_policy is PreemptionPolicy.FENCE and queue.parent:
            return None
    return None


def _guaranteed(partition: Partition, queue: Queue, index: int) -> int:
    name = partition.types.names[index]
    return next((quantity for kind, quantity in queue.spec.guaranteed if kind == name), 0)


def _due(partition: Partition, group: Group, most: int, now: int) -> Iterator[Ask]:
    """The group's first asks that waited long enough and were not refused a moment ago (G1)."""
    delay = group.application.leaf.spec.properties.preemption_delay_ms
    backoff = partition.spec.preemption.backoff_ms
    found = 0
    for ask in group.asks:
        if ask.group is not group or not ask.spec.allow_preempt_other or ask.spec.rm_check:
            continue
        instant = max(ask.pending_since + delay, ask.tried_ms)
        if group.refused_ms and instant <= group.refused_ms:
            instant = group.refused_ms + max(backoff, ask.wait_ms)
        if instant > now:
            call_again(partition, instant)
            if ask.pending_since + delay > now:
                return  # those behind it came later
            continue
        yield ask
        found += 1
        if found >= most:
            return


def call_again(partition: Partition, instant: int) -> None:
    """Time alone may let somebody claim at this instant."""
    due_ms = partition.round.due_ms
    partition.round.due_ms = instant if due_ms is None else min(instant, due_ms)


# Required nodes -----------------------------------------------------------------------------------------------------


def requiring(partition: Partition) -> list[Ask]:
    """Waiting asks that require a node by name, where that changed since they were last refused (G11)."""
    settings = partition.spec.preemption
    if not settings.enabled or required_node.NAME not in settings.policies:
        return []
    return [ask for ask_class in _required(partition) for ask in _untried(partition, ask_class)]


def _required(partition: Partition) -> list[AskClass]:
    classes = [*partition.dead]
    for queue in partition.queues.values():
        if queue.limiter is not None:
            classes += queue.limiter.blocked
    return [one for one in dict.fromkeys(classes) if one.constraints.required_node and one.pending]


def _untried(partition: Partition, ask_class: AskClass) -> Iterator[Ask]:
    node = partition.index.nodes.get(ask_class.constraints.required_node)
    held = ask_class.pledge
    if node is None or not node.opened or (held is not None and not held.reserves):
        return
    for group in _groups(partition, ask_class):
        for ask in group.asks:
            tried = partition.round.tried.get(ask.key)
            if ask.group is group and tried != node.changes:
                yield ask


def _groups(partition: Partition, ask_class: AskClass) -> list[Group]:
    """The groups of a class that was put aside."""
    groups = list(ask_class.waiting)
    for queue in partition.queues.values():
        if queue.limiter is not None:
            groups += queue.limiter.blocked.get(ask_class, [])
    return groups
