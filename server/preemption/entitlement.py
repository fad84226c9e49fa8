"""What a queue is entitled to, and which queues decide whether an ask may claim (specification 7.1, G2, G3)."""

from collections.abc import Iterator
from typing import NamedTuple

from server.model.fit import Demand, adjusted
from server.model.quota import PreemptionPolicy, PriorityPolicy
from server.preemption.trial import Trial
from server.view.queues import FrozenAmounts, QueueFacts
from server.view.view import View


class Deciding(NamedTuple):
    """A queue that decides for an ask, in the resource type with this index."""

    at: int
    queue: QueueFacts

    @property
    def entitled(self) -> int:
        """E in this type."""
        return self.queue.guaranteed[self.at]


def floor(trial: Trial, path: str) -> FrozenAmounts:
    """E of a queue: what it may claim, and below which nobody pushes it; a missing guarantee is 0."""
    return trial.view.queues[path].guaranteed


def scope_root(view: View, leaf: str) -> QueueFacts:
    """The nearest queue from the leaf up that is a fence, else the root: victims stand below it (G3, rule 7)."""
    for queue in view.path_up(leaf):
        if not queue.parent or queue.spec.properties.preemption_policy is PreemptionPolicy.FENCE:
            return queue
    raise AssertionError("a path without a root")


def deciding(view: View, leaf: str, demand: Demand) -> tuple[Deciding, ...]:
    """By type the lowest queue from the leaf to the scope root that guarantees it (G2)."""
    top = scope_root(view, leaf).path
    return tuple(_deciding(view, leaf, demand, top))


def _deciding(view: View, leaf: str, demand: Demand, top: str) -> Iterator[Deciding]:
    for index, _ in demand:
        for queue in view.path_up(leaf):
            if queue.guaranteed[index] > 0:
                yield Deciding(index, queue)
                break
            if queue.path == top:
                break


def highest(queues: tuple[Deciding, ...]) -> str:
    """The highest of the deciding queues, which lie on one path: victims stand outside it (G2)."""
    return min((one.queue.path for one in queues), key=len)


def meeting(view: View, one: str, other: str) -> str:
    """The lowest queue that has both below it."""
    paths = {queue.path for queue in view.path_up(one)}
    return next(queue.path for queue in view.path_up(other) if queue.path in paths)


def seen_at(view: View, leaf: str, top: str, priority: int) -> int:
    """A priority in a leaf as the queue ``top`` above it sees it: offsets added, fences in its place (G5)."""
    for queue in view.path_up(leaf):
        if queue.path == top:
            break
        properties = queue.spec.properties
        fence = properties.priority_policy is PriorityPolicy.FENCE
        priority = adjusted(priority, properties.priority_offset, fence=fence)
    return priority
