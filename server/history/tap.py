"""The tap, which the pump calls in place of the core.

The tap passes every call on to the core, and queues the events and decisions for the history.

Frequent events and decisions are packed at once (`rows_fast`), so that the queue holds bytes in place of objects. Queueing is an
append to a bounded queue. When the queue is full, the core does not wait: records are dropped and counted.
"""

from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from server.core.decider import Decider
from server.history import rows_fast
from server.model.decisions import Decision, Tick
from server.model.events import Event, LeadershipTaken
from server.model.parts import Parts
from server.model.revisions import Revision

SLOW_WHY: Final = "the history could not keep up"
OBJECTS_MAX: Final = 200_000
"""The largest number of events and decisions that wait for the thread of the history."""
OBJECT_BYTES: Final = 256
"""The number of bytes of an encoded sample or picture that count as one event.

With a large cluster, a sample or picture has megabytes.
"""


class Kind(StrEnum):
    """The kinds of items in the queue of the history."""

    EVENTS = "events"
    DECISIONS = "decisions"
    CONFIGURATION = "configuration"
    SAMPLE = "sample"
    """The usage of all queues, encoded (`sampling`)."""
    PICTURE = "picture"
    """All asks and allocations, encoded (`sampling`)."""
    GAP = "gap"
    FOLLOWS = "follows"
    """The end of a core's leadership: the address of the leader that it follows."""


_PACKED: Final = frozenset({Kind.EVENTS, Kind.DECISIONS})
"""The kinds of items whose values are packed."""
_ENCODED: Final = frozenset({Kind.SAMPLE, Kind.PICTURE})
"""The kinds of items whose values are bytes."""


class Item(NamedTuple):
    """The values that were queued for the history at one instant. Some of the values may be packed. Items are numbered in order."""

    number: int
    kind: Kind
    now: int
    values: Sequence[object]

    @property
    def size(self) -> int:
        """The memory of the item's values, as the number of events that need about as much memory."""
        return _size(self.kind, self.values, self.records)

    @property
    def records(self) -> int:
        """The number of values, including those in runs."""
        return rows_fast.count(self.values)


class Lost(NamedTuple):
    """The records that were dropped in one gap: their number, the instants of the first and the last of them, and why they were dropped."""

    from_ms: int
    to_ms: int
    records: int
    why: str


class InForce(NamedTuple):
    """A configuration that came into force, with its text."""

    revision: Revision
    text: str


class Queue:
    """The queue of the history: the event loop puts items in, and the thread of the history takes them out."""

    def __init__(self, most: int = OBJECTS_MAX) -> None:
        self._most = most
        self._items: deque[Item] = deque()
        self._put = self._taken = 0
        self._gap: Lost | None = None
        self._has_dropped = False
        self.number = 0
        """The number of the latest item."""
        self.lost = 0
        """The number of records that were dropped since the start."""
        self.gaps = 0
        """The number of intervals in which records were dropped since the start."""
        self.is_closed = False
        self.resets = 0
        """The number of times that the history may have missed items, so that it needs the configuration in force again."""
        self.why = SLOW_WHY
        """The reason that is recorded with a gap. The thread of the history keeps this reason up to date."""
        self.picture_wanted = True
        """Whether the history needs a picture of all pods, because it may have missed some change."""

    def close(self) -> None:
        """Drop everything from now on, because the history cannot be used."""
        self.is_closed = True
        self._items.clear()

    def put(self, kind: Kind, now: int, values: Sequence[object]) -> None:
        """Append an item, or drop it if the queue is full or closed. The size of an item counts towards the limit."""
        if self.is_closed:
            self.gaps += not self._has_dropped
            self._has_dropped = True
            self.lost += len(values)
            return
        waiting = self._put - self._taken
        size = _size(kind, values, len(values))
        if waiting + size > self._most and waiting:
            self._drop(now, len(values))
            return
        if self._gap is not None:
            if waiting > self._most // 2:
                self._drop(now, len(values))
                return
            gap, self._gap = self._gap, None
            self.reset()
            self._append(Kind.GAP, now, [gap])
        self._append(kind, now, values)

    def take(self) -> Item | None:
        """Remove and return the oldest item. Return None if the queue is empty.

        The size of the item counts as waiting until `sent` is called.
        """
        try:
            return self._items.popleft()
        except IndexError:
            return None

    def sent(self, size: int) -> None:
        """Record that a taken item of this size no longer waits."""
        self._taken += size

    def reset(self) -> None:
        """Record that the writing process may have missed items: it needs a picture and the configuration in force once more."""
        self.picture_wanted = True
        self.resets += 1

    def _append(self, kind: Kind, now: int, values: Sequence[object]) -> None:
        self.number += 1
        self._put += _size(kind, values, len(values))
        found = rows_fast.packed(values) if kind in _PACKED else values
        self._items.append(Item(self.number, kind, now, found))

    def _drop(self, now: int, count: int) -> None:
        self.lost += count
        self.gaps += self._gap is None
        before = self._gap or Lost(now, now, 0, self.why)
        self._gap = Lost(before.from_ms, now, before.records + count, self.why)


def _size(kind: Kind, values: Sequence[object], records: int) -> int:
    """Return the size of an item: the number of its records. For encoded values, return the number of events that take as many bytes."""
    if kind not in _ENCODED:
        return records
    return sum(1 + len(one) // OBJECT_BYTES for one in values if isinstance(one, bytes))


class Tap:
    """A decider that also queues everything for the history. ``in_force`` returns the configuration in force."""

    def __init__(self, decider: Decider, queue: Queue, in_force: Callable[[], InForce]) -> None:
        self._decider = decider
        self._queue = queue
        self._in_force = in_force
        self._noted: tuple[Revision, int] | None = None
        self.next_due = decider.next_due
        self.deciding = False
        """Whether a call of the decider is running. If the decider raises an exception, the value stays True."""

    def take(self, events: Sequence[Event], now: int) -> list[Decision]:
        """Pass events to the decider. Queue the events, and the decider's replies, for the history."""
        if events:
            if type(events[0]) is LeadershipTaken:
                self._queue.reset()  # The state came from the previous leader, not through this tap.
            self._queue.put(Kind.EVENTS, now, events)
        self.deciding = True
        replies = self._decider.take(events, now)
        self.deciding = False
        if replies:
            self._queue.put(Kind.DECISIONS, now, replies)
        self.note_configuration(now)
        return replies

    def take_in_parts(self, event: Event, now: int) -> Parts[list[Decision]]:
        """Pass an event to the decider, which handles it in parts. Queue the event, and the decider's replies, for the history."""
        self._queue.put(Kind.EVENTS, now, [event])
        self.deciding = True
        replies = yield from self._decider.take_in_parts(event, now)
        self.deciding = False
        if replies:
            self._queue.put(Kind.DECISIONS, now, replies)
        self.note_configuration(now)
        return replies

    def tick_in_parts(self, now: int, budget: int) -> Parts[Tick]:
        """Run a tick of the decider in parts, and queue its decisions for the history."""
        self.deciding = True
        tick = yield from self._decider.tick_in_parts(now, budget)
        self.deciding = False
        if tick.decisions:
            self._queue.put(Kind.DECISIONS, now, tick.decisions)
        return tick

    def note_configuration(self, now: int) -> None:
        """Queue the configuration in force, if it has changed or if the history may have missed it."""
        found, resets = self._in_force(), self._queue.resets
        noted = self._noted
        if noted is None or noted[0] is not found.revision or noted[1] != resets:
            self._noted = (found.revision, resets)
            self._queue.put(Kind.CONFIGURATION, now, [found])
