"""The queues that may claim pods from each other (G2, G3, G5).

Fences, disabled queues, guarantees and priority fences decide this.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from server.model.fit import adjusted
from server.model.queue_settings import ReachReport
from server.model.quota import PreemptionPolicy, PriorityPolicy, up_to_fence
from server.state import sharing
from server.state.partition import Partition
from server.state.queues import Queue


class _Claimant(NamedTuple):
    """The facts that decide from which queues a leaf may claim. Leaves with equal facts may claim from the same queues.

    ``scope`` is the scope root of the leaves (G3). ``around`` is the lowest queue with a guarantee on the path of the leaves. Pods inside
    that queue are not eligible as victims (G2). ``around`` is None if this queue is the leaf itself, or if leaves share by weight. ``leaf``
    is the leaf itself if priority fences fix its priorities (G5), and None otherwise.
    """

    scope: Queue
    around: Queue | None
    leaf: Queue | None


def reach(partition: Partition, queue: Queue) -> ReachReport:
    """Return the queues from which the asks below a queue may claim, and the queues that may claim its pods.

    If entitlements are guarantees, a leaf may claim only if a queue on its path up to the scope root has a guarantee. The
    present usage of queues does not matter. The queue itself and the queues below it are left out of both lists.
    """
    inside = set(queue.leaves()) or {queue}
    mine = [leaf for leaf in inside if not is_disabled(leaf)]
    others = [
        leaf for leaf in partition.root.leaves() if leaf not in inside and not is_disabled(leaf)
    ]
    own, foreign = _claimants(partition, mine), _claimants(partition, others)
    claims_from = {one for one in others if any(_may_claim(partition, who, one) for who in own)}
    claimed_by = [
        leaf
        for who, leaves in foreign.items()
        if any(_may_claim(partition, who, one) for one in mine)
        for leaf in leaves
    ]
    around = set(queue.path_up())
    return ReachReport(
        _scope(queue).path,
        tuple(one.path for one in queue.path_up() if is_fence(one)),
        is_disabled(queue),
        tuple(_cover(partition.root, claims_from, around)),
        tuple(_cover(partition.root, set(claimed_by), around)),
        claims=bool(own),
        claims_inside=any(
            _may_claim(partition, who, one) and (one not in leaves or len(leaves) > 1)
            for who, leaves in own.items()
            for one in mine
        ),
        unguaranteed=not foreign
        and any(_scope(one) in leaf.path_up() for one in others for leaf in mine),
    )


def is_disabled(queue: Queue) -> bool:
    """Return whether preemption is disabled for the queue.

    A disabled queue does not claim pods, and loses no pods to claims (G3).
    """
    return queue.spec.properties.preemption_policy is PreemptionPolicy.DISABLED


def is_fence(queue: Queue) -> bool:
    """Return whether the queue is a fence: claims from inside the queue find victims only inside the queue (G3)."""
    return queue.spec.properties.preemption_policy is PreemptionPolicy.FENCE


def _scope(queue: Queue) -> Queue:
    """Return the scope root of a queue: the nearest fence on its path up, else the root."""
    return list(up_to_fence(queue.path_up()))[-1]


def _claimants(partition: Partition, leaves: Iterable[Queue]) -> dict[_Claimant, list[Queue]]:
    """Return the leaves that may be entitled to claim, grouped by the facts that decide from which queues a leaf may claim."""
    found: dict[_Claimant, list[Queue]] = {}
    by_weight = sharing.is_shared_out(partition)
    for leaf in leaves:
        path = list(up_to_fence(leaf.path_up()))
        deciding = leaf if by_weight else next(filter(_is_guaranteed, path), None)
        if deciding is not None:
            fixed = leaf if any(map(_fences_priorities, leaf.path_up())) else None
            who = _Claimant(path[-1], None if deciding is leaf else deciding, fixed)
            found.setdefault(who, []).append(leaf)
    return found


def _is_guaranteed(queue: Queue) -> bool:
    return any(amount > 0 for _, amount in queue.spec.guaranteed)


def _may_claim(partition: Partition, who: _Claimant, victim: Queue) -> bool:
    """Return whether the asks of these leaves may claim pods of the leaf ``victim``."""
    path = list(victim.path_up())
    if who.scope not in path or who.around in path:
        return False
    return who.leaf is None or _may_outrank(partition, who.leaf, victim)


# Priorities -----------------------------------------------------------------------------------------------------------


def _may_outrank(partition: Partition, claimant: Queue, victim: Queue) -> bool:
    """Return whether an ask of one leaf can have a priority that is high enough to claim from another leaf (G5).

    The answer is certain only if priority fences on both paths fix the priorities. Without such fences, the priorities depend
    on the pods, and True is returned.
    """
    rule = partition.spec.preemption.equal_priority
    common = set(claimant.path_up())
    top = next(one for one in victim.path_up() if one in common)
    ours, theirs = _fixed_priority(claimant, top), _fixed_priority(victim, top)
    if rule == "ignore" or ours is None or theirs is None:
        return True
    return ours > theirs or (ours == theirs and rule == "allow")


def _fences_priorities(queue: Queue) -> bool:
    return queue.spec.properties.priority_policy is PriorityPolicy.FENCE


def _fixed_priority(leaf: Queue, top: Queue) -> int | None:
    """Return the priority that ``top`` sees for all pods of a leaf. Return None if this priority depends on the pods."""
    found = None
    for queue in leaf.path_up():
        if queue is top:
            break
        fence = _fences_priorities(queue)
        if fence or found is not None:
            found = adjusted(found or 0, queue.spec.properties.priority_offset, fence=fence)
    return found


def _cover(queue: Queue, listed: set[Queue], around: set[Queue]) -> Iterator[str]:
    """Yield the paths of the highest queues of which all leaves are in ``listed``, except queues in ``around``."""
    below = set(queue.leaves())
    if not below & listed:
        return
    if below <= listed and queue not in around:
        yield queue.path
        return
    for name in sorted(queue.children):
        yield from _cover(queue.children[name], listed, around)
