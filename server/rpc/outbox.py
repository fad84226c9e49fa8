"""The outbox of one stream: encoded decisions, joined into messages when the stream can take them."""

from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate

from server.rpc.limits import (
    OUTBOX_BYTES_MAX,
    OUTBOX_OBJECTS_MAX,
    RESPONSE_BYTES_MAX,
    RESPONSE_OBJECTS_MAX,
)
from server.rpc.wire_pieces import number

StateKey = tuple[str, str]
"""The application and key of an ask."""


class Outbox:
    """The encoded decisions (*pieces*) and the scheduling states that wait for a stream, up to a limit of objects and bytes.

    Above that limit the outbox is *spilled*, and holds nothing.

    A scheduling state says why an ask waits. Scheduling states are sent only when no other pieces wait. The outbox keeps only
    the last state of each ask, and drops this state when the ask is placed.
    """

    def __init__(self) -> None:
        self.spilled = False
        self.head = b""
        """The bytes with which each message begins."""
        self.sequence_field = 0
        """The field of a message that holds the number of its last piece. 0 means that messages are not numbered (design 7.5)."""
        self.last = 0
        """The number of the last piece that was added."""
        self.on_fill: Callable[[], None] | None = None
        """The callback of the attached stream, called after each addition."""
        self._pieces: list[bytes] = []
        self._states: dict[StateKey, bytes] = {}
        self._leading_states = 0
        """The number of pieces at the beginning of the outbox that are scheduling states. These pieces have no number."""
        self._bytes = 0

    def __len__(self) -> int:
        """Return the number of objects that wait."""
        return len(self._pieces) + len(self._states)

    @property
    def waiting_bytes(self) -> int:
        """The number of bytes that wait."""
        return self._bytes

    @property
    def has_states(self) -> bool:
        """Whether there are states that `drop_states` could drop."""
        return bool(self._states)

    def extend(self, pieces: list[bytes]) -> None:
        """Append pieces to the waiting pieces. If the outbox would exceed its limits, it spills."""
        self.last += len(pieces)
        self._pieces += pieces
        self._bytes += sum(map(len, pieces))
        self._filled()

    def put_states(self, states: dict[StateKey, bytes]) -> None:
        """Replace the scheduling states of these asks. If the outbox would exceed its limits, it spills."""
        for key, piece in states.items():
            self._bytes += len(piece) - len(self._states.get(key, b""))
            self._states[key] = piece
        self._filled()

    def drop_states(self, keys: list[StateKey]) -> None:
        """Drop the states of these asks, which are obsolete because the asks were placed."""
        for key in keys:
            self._bytes -= len(self._states.pop(key, b""))

    def take(self) -> bytes | None:
        """Remove and return the next message, cut at the limits of a response (design 1.2).

        Return None if nothing waits.

        A single piece above the limit of bytes is a message of its own.
        """
        if not self._pieces:
            if not self._states:
                return None
            self._pieces = list(self._states.values())
            self._leading_states = len(self._pieces)
            self._states.clear()
        if len(self._pieces) <= RESPONSE_OBJECTS_MAX and self._bytes <= RESPONSE_BYTES_MAX:
            return self._take(len(self._pieces))
        return self._take(self._fitting())

    def clear(self) -> None:
        """Drop everything in the outbox, because the manager registered again."""
        self._pieces.clear()
        self._leading_states = 0
        self._states.clear()
        self._bytes = 0
        self.spilled = False

    def _fitting(self) -> int:
        """Return how many pieces go into the next message.

        The number is at least 1, even if the first piece alone is larger than the limit.
        """
        sizes = list(accumulate(map(len, self._pieces[:RESPONSE_OBJECTS_MAX])))
        return max(1, bisect_right(sizes, RESPONSE_BYTES_MAX))

    def _take(self, count: int) -> bytes:
        message = b"".join(self._pieces[:count])
        del self._pieces[:count]
        self._bytes -= len(message)
        numbered = count - self._leading_states
        self._leading_states = max(0, -numbered)
        if self.sequence_field and numbered > 0:
            message += number(self.sequence_field, self.last - self._numbered())
        return self.head + message if self.head else message

    def _numbered(self) -> int:
        """Return how many of the waiting pieces have a number."""
        return len(self._pieces) - self._leading_states

    def _filled(self) -> None:
        if len(self) > OUTBOX_OBJECTS_MAX or self._bytes > OUTBOX_BYTES_MAX:
            self.clear()
            self.spilled = True
        if self.on_fill is not None:
            self.on_fill()
