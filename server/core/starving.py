"""Who is due for preemption: looked for in the books, so that no View is taken for nobody (G1, G2, G11).

What stands here is necessary for a claim and cheap to ask, group by group of equal asks; policies and laws decide.
"""

from collections.abc import Iterator
from typing import Final

from server.books import snapshot
from server.books.applications import Ask, Group
from server.books.classes import AskClass
from server.books.partition import Partition
from server.books.queues import Queue, QueueState
from server.model.fit import Amounts, Demand
from server.model.quota import PreemptionPolicy
from server.preemption import guarantee, required_node

NEVER: Final = 1 << 62
Reserved = dict[str, Amounts]
"""By queue what is promised and gives way (`snapshot.reserved`)."""


def claiming(partition: Partition, now: int) -> list[Ask]:
    """Asks that may claim now, as many of each group as its deciding queues lack; the rest sets the next instant."""
    settings = partition.spec.preemption
    if not settings.enabled or guarantee.NAME not in settings.policies:
        return []
    asks: list[Ask] = []
    reserved: Reserved | None = None
    for leaf in partition.queues.values():
        if leaf.leaf and leaf.pending_asks and _may_claim(leaf):
            reserved = snapshot.reserved(partition) if reserved is None else reserved
            asks += _of_leaf(partition, leaf, reserved, now)
    return asks


def _may_claim(leaf: Queue) -> bool:
    """Is preemption on for the leaf (G3), nothing on its path stopped, and anything on it guaranteed (G2)?"""
    if leaf.spec.properties.preemption_policy is PreemptionPolicy.DISABLED:
        return False
    path = list(leaf.path_up())
    return any(queue.spec.guaranteed for queue in path) and not any(
        queue.state is QueueState.STOPPED for queue in path
    )


def _of_leaf(partition: Partition, leaf: Queue, reserved: Reserved, now: int) -> Iterator[Ask]:
    for application in leaf.applications.values():
        for group in application.groups.values():
            if group.live and _is_stuck(group):
                most = _lacking(partition, leaf, group.ask_class.demand, reserved)
                if most:
                    yield from _due(partition, group, most, now)


def _is_stuck(group: Group) -> bool:
    """Has it no node, or no head-room in a queue, while nobody pledged room to it and its user may have more?

    Asks that require a node by name are served on that node alone, whatever their queue is owed (G1, G11).
    """
    ask_class = group.ask_class
    held = ask_class.pledge
    if (held is not None and not held.reserves) or ask_class.constraints.required_node:
        return False
    blocking = [one for one in group.application.limiters if not one.has_room(ask_class)]
    return (ask_class.dead or bool(blocking)) and all(one.kind == "queue" for one in blocking)


def _lacking(partition: Partition, leaf: Queue, demand: Demand, reserved: Reserved) -> int:
    """How many more asks of this demand the deciding queues are short of at the most, 0 when they are not (G2)."""
    found: list[int] = []
    for index, quantity in demand:
        queue = _deciding(partition, leaf, index)
        if queue is not None:
            held = queue.usage[index] - queue.releasing[index] + queue.promised[index]
            weak = reserved.get(queue.path)
            held -= weak[index] if weak else 0
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
    """The group's first asks that waited long enough and were not refused a moment ago (G1).

    A group of which nobody is due rests until the first of them is.
    """
    if _rests(partition, group, now):
        return
    found, earliest = 0, NEVER
    for ask, instant in _instants(partition, group, now):
        if instant > now:
            earliest = min(earliest, instant)
            continue
        yield ask
        found += 1
        if found >= most:
            return
    call_again(partition, earliest)
    if not found:
        group.rests = (partition.spec, earliest)


def _rests(partition: Partition, group: Group, now: int) -> bool:
    rests = group.rests
    if rests is None or rests[0] is not partition.spec or rests[1] <= now:
        return False
    call_again(partition, rests[1])
    return True


def _instants(partition: Partition, group: Group, now: int) -> Iterator[tuple[Ask, int]]:
    """When each ask of a group may claim, as far as one that has not waited for its delay: those behind it came later."""
    delay = group.application.leaf.spec.properties.preemption_delay_ms
    backoff = partition.spec.preemption.backoff_ms
    for ask in group.asks:
        if ask.group is not group or not ask.spec.allow_preempt_other or ask.spec.rm_check:
            continue
        instant = max(ask.pending_since + delay, ask.tried_ms)
        if group.refused_ms and instant <= group.refused_ms:
            instant = group.refused_ms + max(backoff, ask.wait_ms)
        yield ask, instant
        if ask.pending_since + delay > now:
            return


def call_again(partition: Partition, instant: int) -> None:
    """Time alone may let somebody claim at this instant."""
    if instant == NEVER:
        return
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
            if ask.group is group and ask.tried_node != node.changes:
                yield ask


def _groups(partition: Partition, ask_class: AskClass) -> list[Group]:
    """The groups of a class that was put aside."""
    groups = list(ask_class.waiting)
    for queue in partition.queues.values():
        if queue.limiter is not None:
            groups += queue.limiter.blocked.get(ask_class, [])
    return groups
