"""The stream of events, told by plain histories: the numbers that a client gets, and how many events it missed."""

from collections.abc import AsyncIterator
from contextlib import nullcontext
from typing import Any, cast

import pytest

from evenhand.v1 import watch_pb2
from server.core.core import Core
from server.model.decisions import Decision, Decisions, NodeAccepted, Noted
from server.model.reasons import Code
from server.rpc.evenhand import watch_service
from server.rpc.evenhand.watch_service import WatchService
from server.rpc.event_buffer import History
from server.rpc.roles import CALLER, LOCAL_OPERATOR
from tests.inspect.world import configuration

NOW = 1_700_000_000_000
NOTE = Noted("configuration", "", Code.CONFIGURATION_APPLIED, "applied")


class _Watchers:
    """Watchers of a state that changes whenever they look."""

    def looked(self) -> None:
        """Do nothing."""

    async def change(self, seen: int) -> int:
        self.looked()
        return seen + 1

    def watching(self) -> Any:
        return nullcontext()


class _Log:
    def names(self, *_: object) -> dict[str, str]:
        return {}


def stream(history: History, **given: Any) -> AsyncIterator[watch_pb2.WatchEventsResponse]:
    CALLER.set(LOCAL_OPERATOR)
    service = WatchService(
        Core(configuration()),
        history,
        cast("Any", _Watchers()),
        cast("Any", _Log()),
        cast("Any", None),
    )
    return service.watch_events(watch_pb2.WatchEventsRequest(**given))


def happen(history: History, *found: Decision) -> None:
    history.decided(Decisions(list(found)), NOW)


async def test_events_that_are_dropped_while_a_client_reads_are_counted_as_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A response waits until the client has read the earlier ones. In that time, the history drops its oldest events."""
    monkeypatch.setattr(watch_service, "RESPONSE_OBJECTS_MAX", 2)
    monkeypatch.setattr("server.rpc.event_buffer.EVENTS_KEPT_MAX", 4)
    history = History()
    happen(history, *[NOTE] * 4)
    events = stream(history, held_only=True)
    first = await anext(events)
    assert ([one.number for one in first.events], first.missed) == ([1, 2], 0)
    happen(history, *[NOTE] * 4)
    second = await anext(events)
    assert ([one.number for one in second.events], second.missed) == ([5, 6], 2)
    assert [one.number for one in (await anext(events)).events] == [7, 8]


async def test_events_of_other_kinds_that_were_read_are_not_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("server.rpc.event_buffer.EVENTS_KEPT_MAX", 4)
    history = History()
    happen(history, NOTE, *[NodeAccepted("rm", "n")] * 3)
    events = stream(history, held_only=True, kinds=["configuration"])
    first = await anext(events)
    assert ([one.number for one in first.events], first.missed) == ([1], 0)
    happen(history, NOTE, NodeAccepted("rm", "n"), NOTE)
    second = await anext(events)
    assert ([one.number for one in second.events], second.missed) == ([5, 7], 0)
    assert [one async for one in events] == []


async def test_only_events_after_the_given_number_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number may be that of another core, or of an earlier run of this one."""
    history = History()
    happen(history, NOTE)
    events = stream(history, since=3)
    looks = iter(range(5))
    monkeypatch.setattr(
        _Watchers, "looked", lambda _: happen(history, NOTE) if next(looks) else None
    )
    assert [one.number for one in (await anext(events)).events] == [4]
