"""Queues: the tree with its usage, its promises and its counts of waiting asks."""

import enum
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Union

from server.model.fit import NO_SCALE, Amounts, adjusted, scales
from server.model.quota import PriorityPolicy, QueueSpec, SortPolicy

if TYPE_CHECKING:
    from server.state.applications import Application
    from server.state.equivalence import AskClass
    from server.state.limits import Limiter

Child = Union["Queue", "Application"]
ChildEntry = tuple[Any, ...]
"""The sort key of a child, followed by the child.

The keys of two children always differ, so that the children themselves are never compared.
"""


class QueueState(enum.StrEnum):
    """The state of a queue. A draining queue takes no new applications. A stopped queue takes no new applications and places no asks."""

    ACTIVE = "Active"
    DRAINING = "Draining"
    STOPPED = "Stopped"


class Queue:
    """The state of one queue. Amounts are lists by type index.

    ``measure`` has the amounts by which the usage of the queue's applications is divided to get their shares. ``basis`` has the
    amounts by which the queue's own usage is divided to get its share. ``measure_scales`` and ``basis_scales`` are the divisors
    computed from ``measure`` and ``basis``.
    """

    __slots__ = (
        "above",
        "applications",
        "basis",
        "basis_scales",
        "best",
        "blocked_asks",
        "child_priorities",
        "children",
        "climb",
        "entry",
        "fair",
        "fence",
        "firm",
        "firm_held",
        "firm_waiting",
        "heap",
        "leaf",
        "limiter",
        "live",
        "lost",
        "managed",
        "measure",
        "measure_scales",
        "name",
        "number",
        "offset",
        "parent",
        "path",
        "pending",
        "pending_asks",
        "pledges",
        "priority",
        "priority_first",
        "promised",
        "releasing",
        "share",
        "spec",
        "state",
        "usage",
    )

    def __init__(  # noqa: PLR0915 - a record of the state
        self, spec: QueueSpec, parent: "Queue | None", number: int, zeros: Amounts
    ) -> None:
        self.name = spec.name
        self.parent = parent
        self.above = parent if parent is not None and parent.parent is not None else None
        """The queue's parent, None if the parent is the root."""
        self.climb: tuple[tuple[Queue, Queue], ...] = (
            () if parent is None else ((self, parent), *parent.climb)
        )
        """A (queue, parent) pair for the queue and for each ancestor except the root.

        ``climb`` is used to update a value on every level of the tree.
        """
        self.path: str = spec.name if parent is None else f"{parent.path}.{spec.name}"
        self.number = number
        self.managed = True
        self.state = QueueState.ACTIVE
        self.children: dict[str, Queue] = {}
        self.applications: dict[str, Application] = {}
        self.usage: Amounts = list(zeros)
        """The sum of all allocations in the queue and below it, including victims that are still terminating."""
        self.promised: Amounts = list(zeros)
        self.releasing: Amounts = list(zeros)
        self.lost: Amounts = list(zeros)
        """The sum of the amounts that the queue lost by external events, for the thrashing monitor (invariant 18).

        The sum never falls.
        """
        self.measure: Amounts = list(zeros)
        """The amounts by which the usage of the queue's applications is divided to get shares."""
        self.basis: Amounts = self.measure
        """The amounts by which the queue's own usage is divided to get its share.

        These amounts differ from ``measure`` only if shares are in proportion to weights (W5).
        """
        self.measure_scales = self.basis_scales = [NO_SCALE] * len(zeros)
        self.firm_held: Amounts = list(zeros)
        """The part of usage and promises that belongs to firm asks."""
        self.firm_waiting: Amounts = list(zeros)
        """The sum of the requests of waiting firm asks without a pledge."""
        self.pending: dict[AskClass, int] = {}
        """The number of waiting asks of each class.

        Every queue except the root counts its own waiting asks and the asks that wait below it: by class here, and all together
        in ``pending_asks``. The root has neither a limit nor siblings, so that it needs no such counts. The root counts only the
        asks that wait in the root itself, and `waiting` adds the asks below it.
        """
        self.pending_asks = 0
        self.blocked_asks = 0
        self.pledges = 0
        self.limiter: Limiter | None = None
        self.firm: Limiter | None = None
        """The limiter of ``firm_held``, whose limit is the guarantee (J4)."""
        self.heap: list[ChildEntry] = []
        self.live = 0
        self.entry: ChildEntry | None = None
        """The queue's current entry in its parent's heap.

        ``entry`` is None if no ask in the queue or below it is known to be placeable.
        """
        self.priority = 0
        """The value of ``best`` as the parent sees it (G5).

        The value may be too high until the queue comes to the top of its parent's heap, where it is corrected. The value is never
        too low (design 6.4).
        """
        self.best = 0
        """The highest priority of the placeable asks, as seen inside the queue.

        Like ``priority``, this value may be too high, but is never too low.
        """
        self.share = 0
        self.child_priorities: dict[int, int] = {}
        self.configure(spec)

    def configure(self, spec: QueueSpec) -> None:
        """Apply a specification. Afterwards the caller must rebuild the limiters, and the heaps that order queues and applications."""
        self.spec = spec
        self.leaf = not spec.parent
        properties = spec.properties
        self.fair = properties.sort_policy is SortPolicy.FAIR
        self.priority_first = properties.priority_sort
        self.fence = properties.priority_policy is PriorityPolicy.FENCE
        self.offset = properties.priority_offset

    def compare(self, measure: Amounts, basis: Amounts | None = None) -> None:
        """Set the amounts by which usage is divided to get shares.

        ``measure`` is for the queue's applications, and ``basis`` for the queue itself. Without ``basis``, ``measure`` is used
        for both.
        """
        self.measure = measure
        self.basis = measure if basis is None else basis
        self.measure_scales = scales(measure)
        self.basis_scales = self.measure_scales if basis is None else scales(basis)

    def untie(self) -> None:
        """Remove the references of a removed queue to itself, so that no garbage collection is needed to free it (`rpc/garbage`)."""
        self.climb = ()
        self.heap.clear()
        self.limiter = self.firm = None

    def seen(self, priority: int) -> int:
        """Return the value that a priority inside this queue has for the parent of the queue (G5)."""
        return adjusted(priority, self.offset, fence=self.fence)

    def waiting_classes(self) -> Iterator["AskClass"]:
        """Yield the classes of the asks that wait in the queue or below it. The root can yield a class several times."""
        yield from self.pending
        if self.parent is None:
            for child in self.children.values():
                yield from child.pending

    def waiting(self) -> "Counter[AskClass]":
        """Return how many asks of each class wait in the queue and below it."""
        if self.parent is not None:
            return Counter(self.pending)
        found = Counter(self.pending)
        for child in self.children.values():
            found.update(child.pending)
        return found

    def path_up(self) -> Iterator["Queue"]:
        """Yield the queue and its ancestors, the root last."""
        queue: Queue | None = self
        while queue is not None:
            yield queue
            queue = queue.parent

    def walk(self) -> Iterator["Queue"]:
        """Yield the queue and all queues below it, parents first, and children in the order of their names."""
        yield self
        for name in sorted(self.children):
            yield from self.children[name].walk()

    def leaves(self) -> Iterator["Queue"]:
        """Return the leaves below this queue in path order, or the queue itself if it is a leaf."""
        return (queue for queue in self.walk() if queue.leaf)
