"""The WatchService: views of the queues (*pictures*), and events as they occur.

A slow client misses some pictures, but never the latest picture.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

from evenhand.v1 import watch_pb2 as pb
from server.core.core import Core
from server.model.quota import DEFAULT_PARTITION
from server.rpc.errors import denied, invalid
from server.rpc.evenhand.decision_log import DecisionLog
from server.rpc.evenhand.encode_decisions import with_names
from server.rpc.evenhand.inspect_service import queue_tree, summary
from server.rpc.evenhand.reader import Reader
from server.rpc.evenhand.redaction import sees_all
from server.rpc.evenhand.tenant_events import TenantEvents
from server.rpc.evenhand.watchers import Watchers
from server.rpc.event_buffer import KINDS, Entry, History, record
from server.rpc.limits import (
    KINDS_INTERVAL_S,
    RESPONSE_OBJECTS_MAX,
    WATCH_INTERVAL_MS_DEFAULT,
    WATCH_INTERVAL_MS_MAX,
    WATCH_INTERVAL_MS_MIN,
)
from server.rpc.reads import Answers
from server.rpc.roles import CALLER, DEEDS

_WATCH_EVENTS: Final = "/evenhand.v1.WatchService/WatchEvents"
_WATCH_QUEUES: Final = "evenhand.v1.WatchService.WatchQueues"


class WatchService:
    """The service of watch streams. The service changes nothing."""

    def __init__(
        self,
        core: Core,
        history: History,
        watchers: Watchers,
        log: DecisionLog,
        answers: Answers,
    ) -> None:
        self._core = core
        self._history = history
        self._watchers = watchers
        self._log = log
        self._answers = answers
        self._of_tenants = TenantEvents(core, history)

    async def watch_queues(self, request: pb.WatchQueuesRequest) -> AsyncIterator[bytes]:
        """Yield a picture at once, and another picture after each change. All changes within one interval lead to one picture."""
        pause = _pause(request.min_interval_ms)
        with self._watchers.watching():
            seen = -1
            while True:
                seen = await self._watchers.change(seen)
                yield await self._answers.read(_WATCH_QUEUES, request, self._queues)
                await asyncio.sleep(pause)

    def _queues(self, request: pb.WatchQueuesRequest) -> pb.WatchQueuesResponse:
        reader = Reader(self._core, CALLER.get())
        tree = queue_tree(reader, request.partition, self._watchers.now())
        totals = summary(reader, tree.partition, self._history)
        return pb.WatchQueuesResponse(tree=tree, summary=totals)

    def _event(self, entry: Entry) -> pb.EventRecord:
        """Return the message of an event with its pod's name.

        The name comes from the core, or from a decision that stored the name.
        """
        partition = getattr(entry.decision, "partition", "") or DEFAULT_PARTITION
        decision_id = getattr(entry.decision, "decision_id", "")
        return _event(entry, self._log.names(partition, decision_id))

    async def watch_events(
        self, request: pb.WatchEventsRequest
    ) -> AsyncIterator[pb.WatchEventsResponse]:
        """Yield the kept events after the number ``since`` of the request, then further events as they happen, in batches.

        With ``held_only``, end after the kept events. With ``kinds_only``, yield the kinds of events only. A viewer may only have
        the kinds of events, and only of its own queues. Raise CallError if a viewer asks for events.
        """
        caller = CALLER.get()
        if not (request.kinds_only or sees_all(caller)):
            raise denied(caller.title, DEEDS[_WATCH_EVENTS])
        if request.since < 0:
            raise invalid("INVALID_SINCE", ("since", f"{request.since} is negative"))
        kinds = frozenset(request.kinds)
        if unknown := sorted(kinds.difference(KINDS)):
            known = f"is no kind of event; there are {', '.join(KINDS)}"
            raise invalid("UNKNOWN_KIND", *((f"kinds[{one}]", known) for one in unknown))
        wanted = kinds or frozenset(KINDS)
        if not request.kinds_only:
            found = self._events(request, wanted)
        elif sees_all(caller):
            found = self._kinds(wanted)
        else:
            found = self._kinds_of(caller.queue, wanted)
        with self._watchers.watching():
            async for one in found:
                yield one

    async def _events(
        self, request: pb.WatchEventsRequest, wanted: frozenset[str]
    ) -> AsyncIterator[pb.WatchEventsResponse]:
        seen, number, most = -1, request.since, RESPONSE_OBJECTS_MAX
        while True:
            seen = await self._watchers.change(seen)
            while True:
                missed = max(self._history.first - number - 1, 0) if number else 0
                entries = self._history.of_kinds_after(number, wanted, most)
                # Fewer than `most` are all there are. The number in the request may be later than all events of this core.
                all_read = max(number, self._history.last)
                number = entries[-1].number if len(entries) == most else all_read
                if not (entries or missed):
                    break
                events = [self._event(one) for one in entries]
                yield pb.WatchEventsResponse(events=events, missed=missed)
            if request.held_only:
                return

    async def _kinds(self, wanted: frozenset[str]) -> AsyncIterator[pb.WatchEventsResponse]:
        """Yield an empty response at once, and then, for ever, the kinds of the events that happened since the last response.

        All events within `KINDS_INTERVAL_S` after a response lead to one response.
        """
        number, seen = self._history.last, -1
        yield pb.WatchEventsResponse()
        while True:
            seen = await self._watchers.change(seen)
            kinds = [one for one in self._history.kinds_after(number) if one in wanted]
            number = self._history.last
            if kinds:
                yield pb.WatchEventsResponse(kinds=kinds)
                await asyncio.sleep(KINDS_INTERVAL_S)

    async def _kinds_of(
        self, queue: str, wanted: frozenset[str]
    ) -> AsyncIterator[pb.WatchEventsResponse]:
        """Yield responses as `_kinds` does, but only for events of a viewer's queue and of the queues below it.

        The stream checks for events at most once in `KINDS_INTERVAL_S`, so that the events of other queues are read in batches.
        All checks are at multiples of `KINDS_INTERVAL_S` after the first response. An event of another queue therefore neither
        delays a message nor makes it come earlier.
        """
        loop = asyncio.get_running_loop()
        with self._of_tenants.watching(queue):
            number, seen, begun = self._history.last, -1, loop.time()
            yield pb.WatchEventsResponse()
            while True:
                seen = await self._watchers.change(seen)
                await asyncio.sleep(KINDS_INTERVAL_S - (loop.time() - begun) % KINDS_INTERVAL_S)
                kinds = self._of_tenants.kinds_after(queue, number)
                number = self._history.last
                shown = [one for one in kinds if one in wanted]
                if shown:
                    yield pb.WatchEventsResponse(kinds=shown)


_OF_PODS: Final = frozenset(
    {"placed", "released", "rejected", "waiting", "allocation", "ask", "shadow"}
)
"""The kinds of events whose subject may be a pod."""
_NAMING: Final = frozenset({"rejected", "allocation", "ask", "decision", "shadow"})
"""The kinds of events whose message may have the key of a pod."""


def _pause(interval_ms: int) -> float:
    """Return the seconds between two pictures. Raise CallError if the interval is negative."""
    wanted = interval_ms or WATCH_INTERVAL_MS_DEFAULT
    if wanted < 0:
        raise invalid("INVALID_INTERVAL", ("min_interval_ms", f"{interval_ms} is negative"))
    return min(max(wanted, WATCH_INTERVAL_MS_MIN), WATCH_INTERVAL_MS_MAX) / 1000


def _event(entry: Entry, name: Callable[[str], str]) -> pb.EventRecord:
    found = record(entry.decision)
    return pb.EventRecord(
        name=name(found.subject) if found.kind in _OF_PODS else "",
        number=entry.number,
        time_ms=entry.at_ms,
        kind=found.kind,
        object=found.subject,
        code=found.code,
        message=with_names(found.message, name) if found.kind in _NAMING else found.message,
        partition=found.partition,
        queue=found.queue,
        node_id=found.node_id,
        application_id=found.application_id,
    )
