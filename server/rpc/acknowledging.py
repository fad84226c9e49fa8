"""Acknowledgements: the messages in which a follower says how much input its core has received, and the leader's wait for them.

A leader asks for acknowledgements only while a task of the leader waits for them. Otherwise followers send nothing.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import grpc

from evenhand.v1 import replication_pb2 as pb
from server.replication.feed import Feed, Follower

ACKNOWLEDGE: Final = "/evenhand.v1.ReplicationService/Acknowledge"
CALL_S: Final = 2.0
"""The seconds that a follower waits for the answer to an acknowledgement."""


class Acknowledgements:
    """The acknowledgements that a leader gets."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._waiting = 0
        self._changed = asyncio.Event()
        """The event that is set at each acknowledgement, and then replaced by a new event."""

    @property
    def is_asked(self) -> bool:
        """Whether followers have to acknowledge their input."""
        return self._waiting > 0

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Ask followers to acknowledge their input while the context is open."""
        self._waiting += 1
        self._wake()
        try:
            yield
        finally:
            self._waiting -= 1
            self._wake()

    def _wake(self) -> None:
        for one in self._feed.followers:
            one.wake()

    def received(self, process: str, position: int) -> None:
        """Record that the core of a process has received the input up to a position."""
        for one in self._feed.followers:
            if process and one.process == process:
                one.acknowledged = max(one.acknowledged, position)
        self.look()

    def look(self) -> None:
        """Wake the tasks that wait for an acknowledgement, because a follower has acknowledged something or has left."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def reached(
        self, candidates: Callable[[], Sequence[Follower]], position: int, seconds: float
    ) -> Follower | None:
        """Return the first candidate that has acknowledged a position.

        Return None if no candidate is left, or if no candidate has acknowledged the position after ``seconds``.
        """
        with suppress(TimeoutError), self.asking():
            async with asyncio.timeout(seconds):
                while found := candidates():
                    for one in found:
                        if one.acknowledged >= position:
                            return one
                    await self._changed.wait()
        return None


class Acknowledging:
    """The acknowledgements that a follower sends to one leader. If several acknowledgements wait, only the last one is sent."""

    def __init__(
        self, channel: grpc.aio.Channel, metadata: tuple[tuple[str, str], ...], process: str
    ) -> None:
        self._call = channel.unary_unary(
            ACKNOWLEDGE,
            request_serializer=pb.AcknowledgeRequest.SerializeToString,
            response_deserializer=pb.AcknowledgeResponse.FromString,
        )
        self._metadata = metadata
        self._process = process
        self._position = 0
        self._wake = asyncio.Event()

    def got(self, position: int) -> None:
        """Acknowledge that the core of this follower has received the input up to a position."""
        self._position = position
        self._wake.set()

    async def run(self) -> None:
        """Send acknowledgements until cancelled.

        If an acknowledgement cannot be sent, drop it. The next one has a later position, and thus acknowledges the
        same messages, too.
        """
        while True:
            await self._wake.wait()
            self._wake.clear()
            request = pb.AcknowledgeRequest(process=self._process, position=self._position)
            with suppress(grpc.aio.AioRpcError):
                await self._call(request, timeout=CALL_S, metadata=self._metadata)
