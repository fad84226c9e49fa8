"""The messages of a leader on their way to a follower's core (design 7.3).

When a connection ends, gRPC drops the messages that it has received and that were not read yet. If a leader were killed while its
follower works on a slice, the later slices would be lost, although they had arrived. Messages are therefore read as soon as they
arrive, and wait in `Incoming`.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Final, NoReturn, Self

from evenhand.v1 import replication_pb2 as pb
from server.replication.applying import LostError
from server.replication.feed import BACKLOG_BYTES_MAX

LOOK_S: Final = 0.2
"""The longest time in seconds that a message which has arrived takes to get from gRPC's thread to this module."""


class Incoming:
    """The messages of one stream that this core has not processed. Messages are read while the context is open."""

    def __init__(
        self,
        responses: AsyncIterator[pb.FollowResponse],
        silent_s: float,
        received: Callable[[int], None],
    ) -> None:
        """Take messages from ``responses``.

        ``silent_s`` is the number of seconds without a message after which the leader counts as lost. ``received`` is called with the
        position of the leader at each message.
        """
        self._responses = responses
        self._silent_s = silent_s
        self._received = received
        self._waiting: deque[pb.FollowResponse] = deque()
        self._bytes = 0
        self._changed = asyncio.Event()
        self.leader_position = 0
        """The position of the leader in its last message."""

    async def __aenter__(self) -> Self:
        """Start the task that reads the messages of the leader's stream."""
        self._reading = asyncio.create_task(self._read())
        self._reading.add_done_callback(lambda _: self._changed.set())
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the task that reads the messages."""
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> NoReturn:
        """Read messages until the stream ends.

        Pause while messages of more than `BACKLOG_BYTES_MAX` bytes wait to be processed.
        """
        while True:
            self._put(await next_response(self._responses, self._silent_s))
            while self._bytes > BACKLOG_BYTES_MAX:
                self._changed.clear()
                await self._changed.wait()

    def _put(self, response: pb.FollowResponse) -> None:
        one = response.slice
        self._waiting.append(response)
        self._bytes += len(one.input)
        self.leader_position = max(one.position, one.leader_position, response.alive.position)
        self._received(self.leader_position)
        self._changed.set()

    def rest(self) -> list[pb.InputSlice]:
        """Remove and return the slices that arrived and were not processed."""
        found = [one.slice for one in self._waiting if one.HasField("slice")]
        self._waiting.clear()
        self._bytes = 0
        return found

    async def next(self) -> pb.FollowResponse:
        """Return the next message.

        After the last message, raise the error with which the stream ended: AioRpcError, LostError or TimeoutError.
        """
        while not self._waiting:
            if self._reading.done():
                self._reading.result()
            self._changed.clear()
            await self._changed.wait()
        response = self._waiting.popleft()
        self._bytes -= len(response.slice.input)
        self._changed.set()
        return response


async def next_response(
    responses: AsyncIterator[pb.FollowResponse], seconds: float
) -> pb.FollowResponse:
    """Return the next response. Raise TimeoutError after ``seconds``, LostError at the end, AioRpcError if the stream fails.

    Before TimeoutError is raised, wait another `LOOK_S` for a message that arrived while this process was busy.
    """
    reading = asyncio.ensure_future(anext(responses))
    try:
        for wait_s in (seconds, LOOK_S):
            if (await asyncio.wait({reading}, timeout=wait_s))[0]:
                return reading.result()
        raise TimeoutError
    except StopAsyncIteration:
        raise LostError("the leader ended the stream") from None
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
