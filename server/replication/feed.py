"""The feed of a leader: the input of its core, slice by slice, for the followers that ask for it.

The pump calls the feed in place of the core. Without a follower the feed only counts the input and the decisions. A position
is the number of events and ticks that the core was given up to some instant.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

import msgspec

from server.core.core import Core
from server.core.state import Manager
from server.model.assignment import Assignment
from server.model.decisions import Decided, Decision, Decisions, Placed, ShadowDecided, Tick
from server.model.events import Event
from server.model.parts import Parts
from server.replication.checkpoint import Header as CheckpointHeader
from server.replication.checkpoint import layout, written
from server.replication.input_form import InputWriter
from server.replication.terms import Term, begun
from server.state.digest import plain

BACKLOG_BYTES_MAX: Final = 64 << 20
"""The number of bytes of input that may wait for a follower. If more bytes wait, the follower has to join again."""
_DIGEST_BYTES: Final = 16


class Slice(NamedTuple):
    """A slice of input: events and the tick after them (`input_form`), and the number and digest of the core's decisions."""

    position: int
    """The number of events and ticks of the core up to the end of the slice."""
    decided: int
    """The number of decisions of the core up to the end of the slice."""
    digest: bytes
    """The digest of the decisions that the core made in this slice, replies included."""
    input: bytes
    begins: bool = False
    """Whether the bytes of the slice can be read without the slices before it.

    The leader writes such a slice after a follower joined.
    """


class Follower:
    """A follower as its leader sees it, with the slices that were not sent to the follower yet."""

    def __init__(
        self, name: str, wake: Callable[[], None], *, process: str = "", is_log: bool = False
    ) -> None:
        self.name = name
        self.process = process
        """The unique name of the follower's process. The name is empty for a follower that acknowledges nothing."""
        self.acknowledged = -1
        """The position up to which the follower's core has received the input, by its last acknowledgement.

        The position is -1 before the first acknowledgement.
        """
        self.is_log = is_log
        """Whether this follower is the writer of the core's own input log, and not another core."""
        self.position = 0
        """The position up to which input was sent to the follower. At first this is the position at which the follower joined."""
        self.is_behind = False
        """Whether slices were dropped because too many bytes waited. If so, the follower has to join again."""
        self.wake = wake
        """The function that wakes the follower's stream, so that it sends the waiting slices."""
        self._waiting: deque[Slice] = deque()
        self._bytes = 0

    @property
    def is_waiting(self) -> bool:
        """Whether slices wait that were not sent yet."""
        return bool(self._waiting)

    @property
    def backlog_bytes(self) -> int:
        """The number of bytes of input that wait to be sent."""
        return self._bytes

    def put(self, one: Slice) -> None:
        """Add a slice. If too many bytes wait, drop all waiting slices."""
        self._bytes += len(one.input)
        if self._bytes > BACKLOG_BYTES_MAX:
            self.is_behind = True
            self._waiting.clear()
        if not self.is_behind:
            self._waiting.append(one)
        self.wake()

    def take(self) -> list[Slice]:
        """Return the waiting slices. From now on these slices count as sent."""
        taken = list(self._waiting)
        self._waiting.clear()
        self._bytes = 0
        if taken:
            self.position = taken[-1].position
        return taken


class Feed:
    """The feed of one core. ``position`` and ``decided`` count from the core's first event.

    After `adopt` the counts continue from the checkpoint.
    """

    def __init__(self, core: Core, version: str) -> None:
        self._core = core
        self.version = version
        self._writer: InputWriter | None = None
        self._new: list[Decision] = []
        self._is_amid = self._begins = self._is_renewing = False
        self._joining: list[Follower] = []
        self.followers: list[Follower] = []
        self.cut_off = 0
        """The number of followers that were too slow, and had to join again."""
        self.position = self.decided = self.now = 0
        self.terms: tuple[Term, ...] = ()
        """The terms of the leaders of this core's input. The last term has not ended."""
        self.next_due = core.next_due

    def join(self, follower: Follower) -> None:
        """Feed a follower from now on. If the core is within a slice, feed it from the next slice on.

        All followers can read the first slice after the join without the slices before it.
        """
        self._joining.append(follower)
        if not self._is_amid:
            self._begin()

    def leave(self, follower: Follower) -> None:
        """Stop feeding a follower. Count the follower in `cut_off` if it was too slow."""
        self.cut_off += follower.is_behind
        for known in (self._joining, self.followers):
            if follower in known:
                known.remove(follower)
        if not self.followers:
            self._writer = None
            self._new.clear()

    def renew(self) -> None:
        """Make the next slice readable without the slices before it."""
        if self._is_amid:
            self._is_renewing = True
        else:
            self._begin()

    def _begin(self) -> None:
        self._is_renewing = False
        for one in self._joining:
            one.position = self.position
        self.followers += self._joining
        self._joining.clear()
        self._writer = InputWriter()
        self._begins = True

    @property
    def managers(self) -> Mapping[str, Manager]:
        """The registered managers of the core by id."""
        return self._core.managers

    @property
    def assignment(self) -> Assignment | None:
        """The partitions for which the core decides, or None if it decides for all partitions."""
        return self._core.state.assignment

    def header(self) -> CheckpointHeader:
        """Return the header of a checkpoint of this moment."""
        terms = tuple((one.name, one.begins) for one in self.terms)
        return CheckpointHeader(
            self.version, layout(), self.position, self.decided, self.now, terms
        )

    def checkpoint(self) -> Iterator[bytes]:
        """Yield the parts of a checkpoint of this moment. The core must not change while the parts are made."""
        return written(self._core, self.header())

    def adopt(self, core: Core, header: CheckpointHeader) -> None:
        """Take over the state of a checkpoint.

        The core of this feed takes over the state, and the positions continue from those of the checkpoint.
        """
        self._core.become(core)
        self.position, self.decided, self.now = header.position, header.decided, header.at_ms
        self.terms = tuple(Term(*one) for one in header.terms)

    def begin_term(self, name: str) -> None:
        """Begin the term of this core, which leads from now on. ``name`` is the unique name of the process."""
        self.terms = begun(self.terms, name, self.position)

    @property
    def term(self) -> str:
        """The name of the last term, or "" if this core has received no input and does not lead."""
        return self.terms[-1].name if self.terms else ""

    def take_in_parts(self, event: Event, now: int) -> Parts[list[Decision]]:
        """Pass an event to the core, which handles it in parts, and add it to the slice for the followers.

        A follower that joins between two parts is fed from the next slice on.
        """
        if self._writer is not None:
            self._writer.events([event], now)
        self._is_amid = True
        replies = yield from self._core.take_in_parts(event, now)
        self._took(1, replies)
        return replies

    def take(self, events: Sequence[Event], now: int) -> list[Decision]:
        """Pass events to the core, and add them to the slice for the followers."""
        if self._writer is not None:
            self._writer.events(events, now)
        replies = self._core.take(events, now)
        self._is_amid = True
        self._took(len(events), replies)
        return replies

    def _took(self, events: int, replies: list[Decision]) -> None:
        self._core.count_sent(replies)
        self.position += events
        self.decided += len(replies)
        if self._writer is not None:
            self._new += replies

    def tick_in_parts(self, now: int, budget: int) -> Parts[Tick]:
        """Run a tick of the core in parts. The tick ends the slice, which is then passed on to the followers."""
        if self._writer is not None:
            self._writer.tick(now, budget)
        self._is_amid = True
        tick = yield from self._core.tick_in_parts(now, budget)
        self._core.count_sent(tick.decisions)
        self.position += 1
        self.decided += len(tick.decisions)
        self.now = now
        self._is_amid = False
        if self._writer is not None:
            self._pass_on(self._writer, tick)
        if self._joining or self._is_renewing:
            self._begin()
        return tick

    def _pass_on(self, writer: InputWriter, tick: Tick) -> None:
        self._new += tick.decisions
        digest = digest_of(self._new)
        self._new.clear()
        one = Slice(self.position, self.decided, digest, writer.take(), self._begins)
        self._begins = False
        for follower in self.followers:
            follower.put(one)


def digest_of(decisions: Sequence[Decision]) -> bytes:
    """Return the digest of decisions, in their order.

    Return b"" if there are no decisions.
    """
    if not decisions:
        return b""
    text = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for kind, begin, end in Decisions(decisions).runs:
        run = decisions[begin:end]
        text.update(f"{kind.__name__} {len(run)}".encode())
        text.update(
            _packed(kind, run) or repr([*map(_plain, run)]).encode("utf-8", "surrogatepass")
        )
    return text.digest()


def _packed(kind: type, run: Sequence[Any]) -> bytes | None:
    """Return decisions of one kind as bytes, which are equal in every process for equal decisions.

    Return None for decisions that MessagePack cannot hold, or that have parts in no fixed order.
    """
    if kind in (Decided, ShadowDecided):
        return None
    try:
        return _ENCODER.encode([*map(_PLACED, run)] if kind is Placed else run)
    except (OverflowError, UnicodeEncodeError):
        return None


def _plain(decision: Any) -> object:  # noqa: ANN401 - any decision
    """Return a decision as nested tuples."""
    return plain(_PLACED(decision) if type(decision) is Placed else tuple(decision))


_ENCODER: Final = msgspec.msgpack.Encoder()
_PLACED: Final = itemgetter(
    *map(Placed._fields.index, ("rm_id", "partition", "key", "node_id", "queue"))
)
"""The fields of a placement that the core decides or that identify the ask.

The ask's template is left out: it is input, and by far the longest field.
"""
