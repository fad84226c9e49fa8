"""Which queues may claim pods from which, as fences and `disabled` decide (G3)."""

from collections.abc import Iterator

from server.books.partition import Partition
from server.books.queues import Queue
from server.model.queue_settings import ReachReport
from server.model.quota import PreemptionPolicy, up_to_fence


def reach(partition: Partition, queue: Queue) -> ReachReport:
    """From which queues the asks below a queue may claim, and which queues may claim its pods.

    Fences and `disabled` alone are looked at: a claim needs a queue below its guarantee, too, and passes priorities
    and floors. The queue's own subtree is left out.
    """
    inside = set(queue.leaves()) or {queue}
    outside = [leaf for leaf in partition.root.leaves() if leaf not in inside]
    claims_from: set[Queue] = set()
    claimed_by: set[Queue] = set()
    for scope in {_scope(leaf) for leaf in inside if not is_disabled(leaf)}:
        claims_from |= {one for one in outside if scope in one.path_up() and not is_disabled(one)}
    open_inside = [leaf for leaf in inside if not is_disabled(leaf)]
    for scope in {_scope(leaf) for leaf in outside if not is_disabled(leaf)}:
        if any(scope in leaf.path_up() for leaf in open_inside):
            claimed_by |= {one for one in outside if _scope(one) is scope and not is_disabled(one)}
    around = set(queue.path_up())
    return ReachReport(
        _scope(queue).path,
        tuple(one.path for one in queue.path_up() if is_fence(one)),
        is_disabled(queue),
        tuple(_cover(partition.root, claims_from, around)),
        tuple(_cover(partition.root, claimed_by, around)),
    )


def is_disabled(queue: Queue) -> bool:
    """Is the queue exempt from claims, its own and those of others?"""
    return queue.spec.properties.preemption_policy is PreemptionPolicy.DISABLED


def is_fence(queue: Queue) -> bool:
    """Does the queue keep claims of its leaves inside?"""
    return queue.spec.properties.preemption_policy is PreemptionPolicy.FENCE


def _scope(queue: Queue) -> Queue:
    """The scope root of a queue: the nearest fence on its way up, else root."""
    return list(up_to_fence(queue.path_up()))[-1]


def _cover(queue: Queue, listed: set[Queue], around: set[Queue]) -> Iterator[str]:
    """The highest queues all leaves of which are listed, by path; none of those ``around`` what is left out."""
    below = set(queue.leaves())
    if not below & listed:
        return
    if below <= listed and queue not in around:
        yield queue.path
        return
    for name in sorted(queue.children):
        yield from _cover(queue.children[name], listed, around)
