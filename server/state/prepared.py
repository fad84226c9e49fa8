"""Queues that are made before the configuration that adds them comes into force. Applying the configuration then takes less time.

Making 10,000 queues takes about as long as all other work of applying a configuration with that many queues. A prepared queue
equals the queue that the event of the configuration would make. A prepared queue that no longer fits the state is not used.
Therefore preparations change no decision, and a replay works without them. This module also keeps the queues that the event
removes, because freeing their memory takes time, too.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import count, islice
from operator import attrgetter
from typing import Any, Final

from server.model.asks import PLAIN, job_class
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
Limiters = tuple[Limiter | None, Limiter | None]
_OWN: Final = attrgetter(*(one.name for one in fields(QueueSpec) if one.name != "children"))
_SETTINGS: Final = attrgetter(*(one.name for one in fields(PartitionSpec) if one.name != "root"))


class Prepared:
    """The prepared queues, limiters and measures of one partition for one specification.

    ``before`` is the specification that was in force when they were made. ``spec`` is the new specification. If both are equal,
    ``is_same`` is set, and ``before`` stays in force. ``names`` are the partition's resource types once the new specification
    is in force. ``capacity`` is the partition's capacity in these types. ``made`` has the queues to be added, by the identity
    of their specifications. ``used`` gets the queues in ``made`` that the event adds. For each existing queue, ``limiters`` has
    the limiters that the queue has while it is empty, and ``measures`` has its measure with the scales. ``removed`` gets the
    queues that the event removes. If the partition is new, ``is_applied`` says that the specification is in force in it, so
    that the event only adds it.
    """

    __slots__ = (
        "before",
        "capacity",
        "is_applied",
        "is_same",
        "limiters",
        "made",
        "measures",
        "names",
        "partition",
        "removed",
        "spec",
        "used",
    )

    def __init__(self, partition: Partition, spec: PartitionSpec) -> None:
        self.partition = partition
        self.spec = spec
        self.before = partition.spec
        self.is_same = self.is_applied = False
        self.names: list[str] = []
        self.capacity: Amounts = []
        self.limiters: dict[Queue, Limiters] = {}
        self.measures: dict[Queue, tuple[Amounts, list[Scale]]] = {}
        self.used: set[Queue] = set()
        self.removed: list[Queue] = []
        self.made: dict[int, Queue] = {}

    def make(self) -> Iterator[None]:
        """Make all prepared objects in pieces. After each piece the caller may do other work, even if that work changes the state."""
        yield from self._compare()
        yield from self._learn_types()
        yield from self._make_queues()

    def fits(self) -> bool:
        """Return whether the prepared amounts have exactly the resource types of the partition.

        The types of the specification must have been added to the partition before.
        """
        return self.partition.types.names == self.names

    def has_measures(self) -> bool:
        """Return whether the measures were computed from the partition's present capacity. It may be called only if `fits` is true."""
        return self.partition.capacity == self.capacity

    def take(self, parent: Queue, spec: QueueSpec) -> Queue | None:
        """Return the queue that was made for a specification below a parent, or None. It may be called only if `fits` is true."""
        found = self.made.pop(id(spec), None)
        if found is None:
            return None
        if found.parent is not parent:
            found.untie()
            return None
        self.used.add(found)
        return found

    def drop(self) -> Iterator[None]:
        """Free, in pieces, the prepared objects that were not used, and the queues that the event removed."""
        for table in (self.made, self.limiters, self.measures):
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
        has_classes = job_class(PLAIN, self.spec.preemption) is not None
        capacity = self.partition.capacity
        self.capacity = [*capacity, *zeros[len(capacity) :]]
        rest: list[tuple[QueueSpec, Queue | None, Amounts]] = [
            (self.spec.root, None, self.capacity)
        ]
        for at in count(1):
            if not rest:
                return
            spec, parent, above = rest.pop()
            bounds = replaced(above, spec.max, index)
            queue = self.partition.root if parent is None else parent.children.get(spec.name)
            measure = replaced(bounds, spec.guaranteed, index)
            if queue is None:
                queue = self.made[id(spec)] = Queue(spec, parent, 0, zeros)
                queue.compare(measure)
                queue.limiter, queue.firm = _limiters(queue, spec, index, has_classes=has_classes)
            else:
                self.measures[queue] = measure, scales(measure)
                self.limiters[queue] = _limiters(queue, spec, index, has_classes=has_classes)
            rest += [(child, queue, bounds) for child in spec.children]
            if not at % PIECE:
                yield


def _limiters(
    queue: Queue, spec: QueueSpec, index: Mapping[str, int], *, has_classes: bool
) -> Limiters:
    """Return the limiter of an empty queue and the limiter of its firm use, in the form in which `tree.relimit` makes them."""
    limiter = firm = None
    if queue.parent is not None and spec.max is not None:
        limiter = Limiter("queue", queue.path, queue, spread(spec.max, index))
    guaranteed = [one for one in spec.guaranteed if one[1]] if has_classes else ()
    if guaranteed:
        firm = Limiter("firm", queue.path, queue, spread(guaranteed, index))
    return limiter, firm
