"""The instants of messages to a tenant depend on the tenant's own events alone."""

import asyncio
import selectors
from collections.abc import Sequence
from typing import Any, cast

import pytest

from evenhand.v1 import watch_pb2 as pb
from server.core.core import Core
from server.model.asks import AskSpec
from server.model.decisions import Decisions, Placed
from server.rpc.errors import CallError
from server.rpc.evenhand.watch_service import WatchService
from server.rpc.evenhand.watchers import Watchers
from server.rpc.event_buffer import History
from server.rpc.pump import Pump
from server.rpc.roles import CALLER, Caller, Role

KINDS = pb.WatchEventsRequest(kinds_only=True)
OWN, OTHER = "root.up.a", "root.up.b"


class _Skipping(selectors.DefaultSelector):
    """A selector that lets time pass instead of waiting."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.now += timeout or 0.0
        return super().select(0)


class _Changes:
    """A pump whose version rises when the test says so."""

    def __init__(self) -> None:
        self.version = 0
        self.stopping = False
        self.changed = asyncio.Event()

    def rise(self) -> None:
        self.version += 1
        self.changed.set()
        self.changed = asyncio.Event()


async def _told(events: Sequence[tuple[float, str]]) -> list[float]:
    """Return the instants of the messages to a viewer after its first one. ``events`` are placements: instant and queue."""
    pump, history = _Changes(), History()
    watchers = Watchers(cast("Pump", pump))
    service = WatchService(
        cast("Core", None), history, watchers, cast("Any", None), cast("Any", None)
    )
    CALLER.set(Caller("vera", Role.VIEWER, OWN))
    loop = asyncio.get_running_loop()
    found: list[float] = []

    def place(queue: str) -> None:
        one = Placed("rm", "default", "k", "app", "n1", AskSpec(()), queue=queue)
        history.decided(Decisions([one]), 0)
        pump.rise()

    def stop() -> None:
        pump.stopping = True
        pump.rise()

    for at, queue in events:
        loop.call_at(at, place, queue)
    loop.call_at(2.0, stop)
    messages = service.watch_events(KINDS)
    assert await anext(messages) == pb.WatchEventsResponse()

    async def read() -> None:
        async for one in messages:
            assert one.kinds == ["placed"]
            found.append(round(loop.time(), 4))

    with pytest.raises(CallError):  # The server stops.
        await read()
    return found


def _in_skipped_time(events: Sequence[tuple[float, str]]) -> list[float]:
    selector = _Skipping()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]
    try:
        return loop.run_until_complete(_told(events))
    finally:
        loop.close()


def test_events_of_others_neither_delay_nor_hasten_a_message() -> None:
    own = [(1.013, OWN), (1.3, OWN), (1.301, OWN)]
    alone = _in_skipped_time(own)
    assert len(alone) in {2, 3}
    for others in ([1.0], [1.012], [1.0, 1.02, 1.04, 1.29], [at / 100 for at in range(190)]):
        among = sorted([*own, *((at, OTHER) for at in others)])
        assert _in_skipped_time(among) == alone
