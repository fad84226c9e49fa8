"""Queues that are made before the configuration that adds them comes into force. Applying the configuration then takes less time.

Making 10,000 queues takes about as long as all other work of applying a configuration with that many queues. A prepared queue
equals the queue that the event of the configuration would make. A prepared queue that no longer fits the state is not used.
Therefore prepared queues do not affect decisions, and a replay of the events without prepared queues has the same results. This
module also keeps the queues that the event removes, so that their memory is freed later and in pieces.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import count, islice
from operator import attrgetter
from typing import Any, Final

from server.model.asks import has_classes
from server.model.fit import Amounts, Scale, scales
from server.model.quota import PartitionSpec, QueueSpec
from server.state.limits import Limiter, spread
from server.state.partition import Partition
from server.state.queues import Queue
from server.state.types import replaced

PIECE: Final = 500
"""The number of queues that are made or freed in one piece. One piece takes about 4 ms."""
READ_PIECE: Final = 4_000
"""The number of specifications that are read in one piece. One piece takes about 4 ms."""
Bounds = tuple[Amounts | None, Amounts | None]
Kept = tuple[Limiter | None, Limiter | None]
_OWN: Final = attrgetter(*(one.name for one in fields(QueueSpec) if one.name != "children"))
_SETTINGS: Final = attrgetter(*(one.name for one in fields(PartitionSpec) if one.name != "root"))


class Prepared:
    """The prepared queues, limiters and measures of one partition for one specification.

    ``is_applied`` is set for a new partition that already has the specification, so that the event only adds the partition.
    ``is_bound`` says that the limiters of existing queues have the bounds of their present specifications, unless the partition
    has deserved shares. ``is_reordered`` is set if the event changes how an existing queue sorts its entries, or which priority
    its parent sees.
    """

    __slots__ = (
        "before",
        "below",
        "bounds",
        "capacity",
        "firms",
        "is_applied",
        "is_bound",
        "is_reordered",
        "is_same",
        "made",
        "measures",
        "missing",
        "names",
        "partition",
        "paths",
        "present",
        "queues",
        "removed",
        "spec",
        "used",
    )

    def __init__(self, partition: Partition, spec: PartitionSpec) -> None:  # noqa: PLR0915 - a record of the state
        self.partition = partition
        self.spec = spec
        """The new specification. If it equals the specification in force, ``is_same`` is set, and ``before`` stays in force."""
        self.before = partition.spec
        """The specification that was in force when the prepared objects were made."""
        self.is_same = self.is_applied = self.is_bound = self.is_reordered = False
        self.names: list[str] = []
        """The partition's resource types once the new specification is in force."""
        self.capacity: Amounts = []
        """The partition's capacity in the types of ``names``."""
        self.queues: list[tuple[Queue, QueueSpec, QueueSpec | None]] = []
        """For each queue of the new specification: the queue itself, its new specification, and its present specification.

        Parents come first. The present specification is given only for an existing queue for which nothing but limits changes.
        For any other queue, the third value is None.
        """
        self.paths: list[str] = []
        """The paths of the queues in ``queues``, in the same order."""
        self.present: list[Queue | None] = []
        """The queues in ``queues``, in the same order, with None for each queue that does not exist yet."""
        self.missing: list[Queue] = []
        """The existing queues that the new specification does not have, and that will be drained."""
        self.bounds: dict[Queue, tuple[Bounds, Kept]] = {}
        """For each existing queue, the bounds of its usage and firm usage, and those of its limiters that have these bounds already.
        """
        self.firms: dict[Queue, Limiter] = {}
        """New limiters of firm usage for existing queues without one."""
        self.measures: dict[Queue, tuple[Amounts, list[Scale]]] = {}
        """For each existing queue, its measure and the scales computed from the measure."""
        self.below: dict[Queue, Amounts] = {}
        """For an existing queue, the amounts that limit the queues below it."""
        self.used: set[Queue] = set()
        """The queues of ``made`` that the event has added to the tree."""
        self.removed: list[Queue] = []
        """The queues that the event has removed from the tree."""
        self.made: dict[int, Queue] = {}
        """The queues to be added, by the identity of their specifications."""

    def make(self) -> Iterator[None]:
        """Make all prepared objects in pieces. Between two pieces, the caller may do other work, and this work may change the state."""
        yield from self._compare()
        yield from self._learn_types()
        yield from self._make_queues()
        made = self.made
        self.paths = [queue.path for queue, _, _ in self.queues]
        self.present = [None if id(spec) in made else queue for queue, spec, _ in self.queues]

    def fits(self) -> bool:
        """Return whether the prepared amounts have exactly the resource types of the partition.

        The types of the specification must have been added to the partition before.
        """
        return self.partition.types.names == self.names

    def has_measures(self) -> bool:
        """Return whether the measures were computed from the partition's present capacity. Call this function only if `fits` is true."""
        return self.partition.capacity == self.capacity

    def has_queues(self) -> bool:
        """Return whether each path of the specification has the same queue as when ``queues`` was made, or still has no queue.

        Queues are compared by identity.
        """
        return [*map(self.partition.queues.get, self.paths)] == self.present

    def take_all(self) -> set[Queue]:
        """Return all queues that were made. The caller must add them to the tree. Call this function only if `fits` and `has_queues` are true."""
        self.used, self.made = set(self.made.values()), {}
        return self.used

    def drop(self) -> Iterator[None]:
        """Free, in pieces, the prepared objects that were not used, and the queues that the event removed."""
        while self.queues:
            del self.queues[-READ_PIECE:], self.paths[-READ_PIECE:], self.present[-READ_PIECE:]
            yield
        for table in (self.made, self.bounds, self.firms, self.measures, self.below):
            left: dict[Any, Any] = table
            while left:
                for key in [*islice(left, PIECE)]:
                    one = left.pop(key)
                    if isinstance(one, Queue):
                        one.untie()
                yield
        while self.removed:
            for queue in self.removed[-PIECE:]:
                queue.untie()
            del self.removed[-PIECE:]
            yield

    def _compare(self) -> Iterator[None]:
        """Compare the two specifications queue by queue."""
        before, spec = self.before, self.spec
        if before is spec or _SETTINGS(before) != _SETTINGS(spec):
            return
        pairs = [(before.root, spec.root)]
        for at in count(1):
            if not pairs:
                self.is_same = True
                return
            one, other = pairs.pop()
            if _OWN(one) != _OWN(other) or len(one.children) != len(other.children):
                return
            pairs += zip(one.children, other.children, strict=True)
            if not at % READ_PIECE:
                yield

    def _learn_types(self) -> Iterator[None]:
        """Add the types that the specification names, in the order in which the event registers them."""
        known = dict.fromkeys(self.partition.types.names)
        known.update(dict.fromkeys(name for name, _ in self.spec.node_weights))
        rest = [self.spec.root]
        for at in count(1):
            if not rest:
                break
            spec = rest.pop()
            for name, _ in (*spec.guaranteed, *(spec.max or ())):
                known[name] = None
            rest += reversed(spec.children)
            if not at % READ_PIECE:
                yield
        self.names = list(known)

    def _make_queues(self) -> Iterator[None]:
        index = {name: at for at, name in enumerate(self.names)}
        zeros = [0] * len(index)
        is_classed = has_classes(self.spec.preemption)
        capacity = self.partition.capacity
        self.capacity = [*capacity, *zeros[len(capacity) :]]
        rest: list[tuple[QueueSpec, Queue | None, Amounts]] = [
            (self.spec.root, None, self.capacity)
        ]
        self.is_bound = (
            self.before.root is self.partition.root.spec
            and has_classes(self.before.preemption) is is_classed
        )
        for at in count(1):
            if not rest:
                return
            spec, parent, above = rest.pop()
            bounds = replaced(above, spec.max, index)
            queue = self.partition.root if parent is None else parent.children.get(spec.name)
            measure = replaced(bounds, spec.guaranteed, index)
            own = _bounds(spec, index, is_root=parent is None, is_classed=is_classed)
            if queue is None:
                queue = self.made[id(spec)] = Queue(spec, parent, 0, zeros)
                queue.compare(measure)
                queue.limiter, queue.firm = _limiters(queue, own)
                self.queues.append((queue, spec, None))
            else:
                self.queues.append((queue, spec, _alike(queue.spec, spec)))
                self.missing += _missing(queue, spec)
                is_there = queue.measure == measure and queue.basis is queue.measure
                scaled = queue.measure_scales if is_there else scales(measure)
                self.measures[queue] = (queue.measure if is_there else measure), scaled
                self._bound(queue, spec, own)
                if queue.children:
                    self.below[queue] = bounds
            rest += [(child, queue, bounds) for child in reversed(spec.children)]
            if not at % PIECE:
                yield

    def _bound(self, queue: Queue, spec: QueueSpec, bounds: Bounds) -> None:
        """Record the bounds of an existing queue, and which of its limiters have these bounds already.

        Make the limiter of firm usage if the queue has none.
        """
        before, most = queue.spec, bounds[1]
        is_max_kept = self.before.root is self.partition.root.spec and before.max == spec.max
        is_firm_kept = self.is_bound and before.guaranteed == spec.guaranteed
        self.bounds[queue] = (
            bounds,
            (queue.limiter if is_max_kept else None, queue.firm if is_firm_kept else None),
        )
        if most is not None and queue.firm is None:
            self.firms[queue] = Limiter("firm", queue.path, queue, most)


def _alike(before: QueueSpec, spec: QueueSpec) -> QueueSpec | None:
    """Return ``before``, a queue's present specification, if the new specification ``spec`` changes nothing but limits.

    Otherwise return None. ``spec`` must have the same properties, and the queue must stay a parent or stay a leaf.
    """
    is_alike = before.parent == spec.parent and before.properties == spec.properties
    return before if is_alike else None


def _missing(queue: Queue, spec: QueueSpec) -> list[Queue]:
    """Return the configured children of a queue that are missing in the queue's new specification."""
    if not queue.children:
        return []
    named = {child.name for child in spec.children}
    return [one for name, one in queue.children.items() if name not in named and one.managed]


def _bounds(
    spec: QueueSpec, index: Mapping[str, int], *, is_root: bool, is_classed: bool
) -> Bounds:
    """Return the bounds of a queue's usage and of its firm usage, as `tree` computes them for a queue without a deserved share."""
    most = None if is_root or spec.max is None else spread(spec.max, index)
    guaranteed = [one for one in spec.guaranteed if one[1]] if is_classed else ()
    return most, spread(guaranteed, index) if guaranteed else None


def _limiters(queue: Queue, bounds: Bounds) -> tuple[Limiter | None, Limiter | None]:
    """Return the limiter of a new queue and the limiter of its firm use."""
    most, firm = bounds
    return (
        None if most is None else Limiter("queue", queue.path, queue, most),
        None if firm is None else Limiter("firm", queue.path, queue, firm),
    )
