"""Reads at a follower. The module chooses the calls that a follower answers.

No page gets an older state than a state that the console has shown before.

The follower answers the calls whose answers are costly and the same at all cores. The core that decides answers the calls about
itself: its checks, its history, and the events that it has kept.
"""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, cast

import grpc

from evenhand_cli.connect import MIN_POSITION, Core, Metadata

_OF_ITSELF: Final = (
    "/evenhand.v1.HistoryService/",
    "/evenhand.v1.InspectService/CheckConsistency",
    "/evenhand.v1.WatchService/WatchEvents",
)
"""The beginnings of the methods that the deciding core answers. A follower has its own history, and checks itself."""
ANSWER_S: Final = 10.0
"""The longest time in seconds to wait for an answer before the deciding core is asked: a follower may not answer at all."""


class Newest:
    """The newest state that an answer has shown. Its methods may be called from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._position, self._term = 0, ""
        self._earlier: set[str] = set()
        """The terms before the present one. Answers that are still on their way may name them."""

    def note(self, position: int, term: str, asked_in: str = "") -> None:
        """Record the state of an answer, unless it is older than the newest state.

        A term that was never seen before is newer than all terms that were seen.

        All terms of one process have the same name. When the process leads again, an earlier term therefore becomes the newest one.
        The function assumes this if ``asked_in``, the newest term when the question was asked, still is the newest term, and the
        position of the answer is higher than that of the newest state.
        """
        with self._lock:
            again = asked_in and asked_in == self._term and position > self._position
            if term == self._term:
                self._position = max(self._position, position)
            elif term not in self._earlier or again:
                self._earlier.add(self._term)
                self._position, self._term = position, term

    def state(self) -> tuple[int, str]:
        """Return the position and the term of the newest state; 0 and "" before the first answer."""
        with self._lock:
            return self._position, self._term

    def is_past(self, term: str) -> bool:
        """Return whether a term has ended: an answer of a later term has been noted."""
        with self._lock:
            return term != self._term and term in self._earlier

    def metadata(self) -> Metadata:
        """Return the metadata of a call that must not be answered from an older state."""
        position, term = self.state()
        if not position:
            return ()
        return ((MIN_POSITION, f"{position}@{term}" if term else str(position)),)


class FollowerChannel:
    """The channels to a follower and to the core that decides, which the stubs of a view use like one channel."""

    def __init__(self, follower: grpc.Channel, deciding: grpc.Channel, newest: Newest) -> None:
        """Make a channel. The follower answers no call from an older state than the newest state of an earlier answer."""
        self._follower, self._deciding, self._newest = follower, deciding, newest

    def unary_unary(self, method: str, *more: Any, **options: Any) -> Callable[..., Any]:  # noqa: ANN401
        """Return the callable of a method with one answer."""
        if method.startswith(_OF_ITSELF):
            return self._deciding.unary_unary(method, *more, **options)
        call = self._follower.unary_unary(method, *more, **options)

        def at_least(request: Any, **how: Any) -> Any:  # noqa: ANN401
            given, newest = how.get("metadata") or (), self._newest.metadata()
            # The core looks at the first position: that of `--at-least` is older than any state that was shown.
            own = [one for one in given if not (newest and one[0] == MIN_POSITION)]
            how["metadata"] = (*own, *newest)
            return call(request, **how)

        return at_least

    def unary_stream(self, method: str, *more: Any, **options: Any) -> Callable[..., Any]:  # noqa: ANN401
        """Return the callable of a method with a stream of answers."""
        at = self._deciding if method.startswith(_OF_ITSELF) else self._follower
        return at.unary_stream(method, *more, **options)

    def stream_unary(self, *_: Any, **__: Any) -> None:  # noqa: ANN401
        """Do nothing: no view sends a stream, but a stub names all its methods."""

    def stream_stream(self, *_: Any, **__: Any) -> None:  # noqa: ANN401
        """Do nothing: no view sends a stream, but a stub names all its methods."""


def reader_of(core: Core, newest: Newest) -> Core | None:
    """Return the connection with which views read if a follower is connected, else None."""
    if core.follower is None:
        return None
    channel = FollowerChannel(core.follower.channel, core.channel, newest)
    timeout_s = min(core.timeout_s, ANSWER_S)
    return replace(core.follower, channel=cast("grpc.Channel", channel), timeout_s=timeout_s)
