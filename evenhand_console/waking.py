"""Streams that tell which kinds of events have occurred, one stream for each token with open pages.

An event wakes the readers of the pages that the event concerns.

The stream of a tenant has only events of the tenant's own queues, so that the updates of the tenant's pages do not
reveal when events concern other tenants. If the core refuses the stream of a token, the pages of this token are read at intervals.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, Protocol

import grpc

from evenhand_cli.faults import Fault
from evenhand_console.reading import LogInFault, status_of

STREAMS_MAX: Final = 16
"""Largest number of streams of events. The pages of further tokens are read at intervals."""
AGAIN_S: Final = 1.0
"""Seconds after which a lost stream of events is opened again. After each further failure, the time is twice as long."""
AGAIN_MAX_S: Final = 60.0
"""The longest time, in seconds, until a lost stream of events is opened again.

For a refused stream, this time is always used.
"""
_REFUSED: Final = frozenset(
    {
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)

Kinds = frozenset[str]
Wake = Callable[[str, Kinds], None]
"""A function that gets a token and the kinds of events that happened.

No kinds mean a gap, in which events of any kind may have happened.
"""


class Cancellable(Protocol):
    """A call that another thread can end."""

    def cancel(self) -> object:
        """End the call from another thread."""


class Events(Protocol):
    """The source of the streams of events."""

    def kinds(self, token: str, hold: Callable[[Cancellable], None]) -> Iterator[Kinds]:
        """Yield the kinds of events as they happen.

        The first yielded set is empty. ``hold`` gets the call of the stream, which another thread may end. Raises Fault
        when the stream ends.
        """
        ...


class Waking:
    """The open streams of events. The methods of this object are called in the event loop."""

    def __init__(self, events: Events, wake: Wake) -> None:
        """Begin without streams. ``wake`` is called in the event loop when events happen."""
        self._events = events
        self._wake = wake
        self._pages: Counter[str] = Counter()
        self._streams: dict[str, _Stream] = {}
        self._refused: dict[str, asyncio.TimerHandle] = {}
        """The tokens whose stream was refused, each with the timer after which its stream may be opened again."""

    def open(self, token: str) -> None:
        """Count one more open page of a token. The first page opens the stream, unless there are STREAMS_MAX streams."""
        self._pages[token] += 1
        self._begin(token)

    def close(self, token: str) -> None:
        """Count one open page of a token less.

        When no page of the token is left, its stream ends, so that the stream of another token can be opened.
        """
        self._pages[token] -= 1
        if self._pages[token]:
            return
        del self._pages[token]
        if token in self._refused:
            self._refused.pop(token).cancel()
        if token in self._streams:
            self._streams.pop(token).end()
            self._fill()

    def _begin(self, token: str) -> None:
        """Open the stream of events for a token, unless it is open or was refused, or there are too many streams."""
        full = len(self._streams) >= STREAMS_MAX
        if token in self._streams or token in self._refused or full:
            return
        loop = asyncio.get_running_loop()

        def tell(kinds: Kinds) -> None:
            with suppress(RuntimeError):  # The loop has ended.
                loop.call_soon_threadsafe(self._wake, token, kinds)

        def refuse() -> None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._refuse, token, stream)

        stream = self._streams[token] = _Stream(tell, refuse)
        stream.begin(self._events, token)

    def _fill(self) -> None:
        """Open streams of events for the tokens that wait for one, until there are STREAMS_MAX streams."""
        for token in self._pages:
            self._begin(token)

    def _refuse(self, token: str, stream: "_Stream") -> None:
        """Remove a stream that was refused.

        The stream is opened again later, because the role of the token may have changed in the meantime.
        """
        if self._streams.get(token) is not stream:
            return
        del self._streams[token]
        loop = asyncio.get_running_loop()
        self._refused[token] = loop.call_later(AGAIN_MAX_S, self._ask_again, token)
        self._fill()

    def _ask_again(self, token: str) -> None:
        del self._refused[token]
        self._begin(token)


class _Stream:
    """A thread that reads the stream of events for one token, and opens the stream again when it is lost.

    The thread ends if the core refuses the stream.
    """

    def __init__(self, tell: Callable[[Kinds], None], refuse: Callable[[], None]) -> None:
        self._tell = tell
        self._refuse = refuse
        self._ended = threading.Event()
        self._call: Cancellable | None = None

    def begin(self, events: Events, token: str) -> None:
        """Begin the thread."""
        args = (events, token)
        threading.Thread(target=self._run, args=args, name="console-events", daemon=True).start()

    def end(self) -> None:
        """End the stream and its thread."""
        self._ended.set()
        call = self._call
        if call is not None:
            call.cancel()

    def _hold(self, call: Cancellable) -> None:
        self._call = call
        if self._ended.is_set():
            call.cancel()

    def _run(self, events: Events, token: str) -> None:
        again, gap = AGAIN_S, False
        while not self._ended.is_set():
            wait = again
            try:
                for kinds in events.kinds(token, self._hold):
                    if kinds or gap:
                        self._tell(kinds)
                    again, wait, gap = AGAIN_S, AGAIN_S, False
            except Fault as fault:
                if _is_refused(fault):
                    self._refuse()
                    return
                wait = _wait_after(fault, wait)
            gap, again = True, min(2 * again, AGAIN_MAX_S)
            self._ended.wait(wait)


def _is_refused(fault: Fault) -> bool:
    """Return whether a stream ended because the role of the token may not open it, or because the core has no such streams."""
    return status_of(fault) in _REFUSED or isinstance(fault, LogInFault)


def _wait_after(fault: Fault, wait_s: float) -> float:
    """Return the seconds after which a lost stream is opened again: 0 if the stream ended only because of its time limit."""
    return 0.0 if status_of(fault) is grpc.StatusCode.DEADLINE_EXCEEDED else wait_s
