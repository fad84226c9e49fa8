"""A session that another core can continue: its progress on the three streams, and the messages that can be written again (design 7.5).

Messages are counted on each stream from the beginning of the session. Responses carry their own number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from shim_client.core_client import packing
from shim_client.core_client.outbox import Outbox
from shim_client.messages import (
    ApplicationRemoval,
    ApplicationReport,
    ApplicationTags,
    NodeReport,
    Report,
    SyncComplete,
)
from si.v1 import si_pb2

KEPT_BYTES_MAX = 8 << 20
"""Maximum total size, in bytes, of the messages of one stream that are kept to be written again."""
GREETING_SECONDS = 1.0
"""Seconds without a report after which the first message of a stream is sent empty."""

Pack = Callable[[Iterable[Any], str], Iterator[Any]]


class Stream:
    """One stream of a session: reports that wait, messages that were made, and the number of the last response."""

    def __init__(
        self, pack: Pack, greeting: Callable[..., Any], rm_id: str, kept_bytes_max: int
    ) -> None:
        """Make a stream that keeps at most `kept_bytes_max` bytes of messages to write them again."""
        self.waiting = Outbox()
        self.received = 0
        """The number of the last response that was processed."""
        self.is_whole = True
        """Whether every received response was processed to its end."""
        self._pack = pack
        self._greeting = greeting
        self._rm_id = rm_id
        self._kept_bytes_max = kept_bytes_max
        self._made = 0
        self._written = 0
        self._kept: deque[tuple[Any, int]] = deque()
        self._kept_bytes = 0
        self._packing: Iterator[Any] = iter(())

    async def next(self) -> Any:  # noqa: ANN401 - a message of the stream
        """Return the next message to write.

        Wait until there is a report. The first message may be empty; an empty message only names the resource manager.
        """
        if not self._made and not await self.waiting.fills_within(GREETING_SECONDS):
            self.greet()
        while self._written == self._made:
            message = next(self._packing, None)
            if message is None:
                self._packing = self._pack(await self.waiting.take(), self._rm_id)
            else:
                self._add(message)
        self._written += 1
        return self._kept[self._written - self._made - 1][0]

    def greet(self) -> None:
        """Add an empty message, which only names the resource manager."""
        self._add(self._greeting(rmID=self._rm_id))

    def _add(self, message: Any) -> None:  # noqa: ANN401 - a message of the stream
        size = message.ByteSize()
        self._kept.append((message, size))
        self._kept_bytes += size
        self._made += 1
        while self._kept_bytes > self._kept_bytes_max and self._oldest() <= self._written:
            self._kept_bytes -= self._kept.popleft()[1]

    def _oldest(self) -> int:
        return self._made - len(self._kept) + 1

    def progress(self) -> si_pb2.StreamProgress:
        """Return the progress of the stream, in the form in which a registration carries it."""
        return si_pb2.StreamProgress(received=self.received, sent=self._made, oldest=self._oldest())

    def resume(self, taken: int) -> None:
        """Begin to write on a new stream, with the message after the first ``taken`` ones, which the core has processed."""
        self._written = taken
        self.greet()


class Progress:
    """The progress of one session."""

    def __init__(self, name: str, rm_id: str) -> None:
        """Make the progress of a session that begins.

        A session without a name cannot be resumed, and its messages are not kept.
        """
        self.name = name
        most = KEPT_BYTES_MAX if name else 0
        self.nodes = Stream(packing.node_requests, si_pb2.NodeRequest, rm_id, most)
        self.applications = Stream(
            packing.application_requests, si_pb2.ApplicationRequest, rm_id, most
        )
        self.allocations = Stream(
            packing.allocation_requests, si_pb2.AllocationRequest, rm_id, most
        )

    def stream_of(self, report: Report) -> Stream:
        """Return the stream on which a report is sent."""
        match report:
            case NodeReport() | SyncComplete():
                return self.nodes
            case ApplicationReport() | ApplicationTags() | ApplicationRemoval():
                return self.applications
            case _:
                return self.allocations

    def is_whole(self) -> bool:
        """Return whether the session can be resumed.

        Each response must have been processed to its end, and not too many reports may wait.
        """
        streams = (self.nodes, self.applications, self.allocations)
        return all(one.is_whole and not one.waiting.is_full() for one in streams)

    def offer(self) -> si_pb2.SessionResume:
        """Return the part of a registration that offers to resume this session."""
        return si_pb2.SessionResume(
            sessionID=self.name,
            nodes=self.nodes.progress(),
            applications=self.applications.progress(),
            allocations=self.allocations.progress(),
        )

    def resume(self, resumed: si_pb2.ResumedSession) -> None:
        """Continue the session at a core that has processed the given number of messages of each stream."""
        self.nodes.resume(resumed.nodes)
        self.applications.resume(resumed.applications)
        self.allocations.resume(resumed.allocations)
