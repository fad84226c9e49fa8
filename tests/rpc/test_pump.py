"""The pump with a fake core that only records its calls."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count

import pytest

from server.model.asks import Generation
from server.model.decisions import Decision, Decisions, NodeAccepted, Tick
from server.model.events import Event, NodeDrained
from server.rpc.pump import Pump, Time
from server.rpc.sessions import Kind, Session, Sessions
from server.rpc.translate.allocations import Batch
from si.v1 import si_pb2
from tests.one_part import OnePart
from tests.rpc.harness import PATIENCE_S, Clock, until


@dataclass
class ScriptedCore(OnePart):
    """A core that accepts every node and ticks as the script says."""

    seen: list[str] = field(default_factory=list)
    due: int | None = None
    more: int = 0
    taken: list[int] = field(default_factory=list)

    def take(self, events: Sequence[Event], now: int) -> list[Decision]:
        """Record the events, and accept them."""
        del now
        drained = [event for event in events if isinstance(event, NodeDrained)]
        assert len(drained) == len(events)
        self.taken += [len(events)] if events else []
        self.seen += [event.node_id for event in drained]
        return [NodeAccepted(event.rm_id, event.node_id) for event in drained]

    def tick(self, now: int, budget: int) -> Tick:
        """Record the tick."""
        del budget
        self.seen.append(f"tick {now}")
        self.due = None
        self.more -= 1
        return Tick([], self.more > 0)

    def next_due(self) -> int | None:
        """Return the scripted instant."""
        return self.due


@dataclass
class Ear:
    """An observer that records batches."""

    heard: list[object] = field(default_factory=list)

    def decided(self, decisions: Decisions, _now: int) -> None:
        """Record the decisions."""
        self.heard += decisions.all

    def sliced(self, events: int, _seconds: float, _now: int) -> None:
        """Record the number of events."""
        self.heard.append(events)

    def idle(self) -> None:
        """Record that the pump was idle."""
        self.heard.append("idle")


@asynccontextmanager
async def pumping(
    core: ScriptedCore, ear: Ear, clock: Clock
) -> AsyncIterator[tuple[Pump, Sessions]]:
    sessions = Sessions()
    pump = Pump(core, sessions, Time(clock.now, lambda: 0.0), [ear])
    task = asyncio.create_task(pump.run())
    yield pump, sessions
    pump.stop()
    await task


def batch(*nodes: str) -> Batch:
    return Batch("rm", [NodeDrained("rm", node) for node in nodes])


def speaking(sessions: Sessions) -> Session:
    session = sessions.open(Kind.NODE)
    sessions.speak(session, "rm")
    return session


async def test_all_messages_are_taken_before_a_tick() -> None:
    core, ear = ScriptedCore(), Ear()
    async with pumping(core, ear, Clock(5)) as (pump, sessions):
        session = speaking(sessions)
        await pump.put(session, batch("a", "b"))
        await pump.put(session, batch("c"))
        await pump.settled()
    assert core.seen[:4] == ["a", "b", "c", "tick 5"]


async def test_messages_that_nobody_awaits_are_taken_together() -> None:
    core, ear = ScriptedCore(), Ear()
    async with pumping(core, ear, Clock(1)) as (pump, sessions):
        session = speaking(sessions)
        for name in "abc":
            await pump.put(session, batch(name))
        refused = batch("d")
        refused.refuse("key", "application", "no", Generation.ASK)
        await pump.put(session, refused)
        await pump.put(session, batch("e"))
        reply = asyncio.create_task(pump.ask(NodeDrained("rm", "n")))
        await asyncio.sleep(0)
        await pump.put(session, batch("f"))
        assert await reply == [NodeAccepted("rm", "n")]
        await pump.settled()
    assert core.taken == [3, 2, 1, 1]
    told = [getattr(one, "node_id", "refused") for one in ear.heard if isinstance(one, tuple)]
    assert told == ["a", "b", "c", "refused", "d", "e", "n", "f"], "in the order in which they came"


async def test_more_means_another_tick_at_once() -> None:
    core = ScriptedCore(more=3)
    async with pumping(core, Ear(), Clock(1)) as (pump, _):
        await pump.settled()
        assert core.seen == ["tick 1"] * 3


async def test_it_wakes_when_the_core_is_due() -> None:
    core, clock = ScriptedCore(due=1_003), Clock(1_000)
    async with pumping(core, Ear(), clock):
        await until(lambda: "tick 1000" in core.seen)


@asynccontextmanager
async def unread(ear: Ear) -> AsyncIterator[tuple[Pump, Sessions, Session]]:
    """Hold a pump that was idle once, and then decided something that its client has not read yet."""
    async with pumping(ScriptedCore(), ear, Clock(1)) as (pump, sessions):
        session = speaking(sessions)
        await until(lambda: ear.heard == ["idle"])
        await pump.put(session, batch("a"))
        await until(lambda: sessions.unwritten() == 1)
        yield pump, sessions, session


async def test_what_was_decided_is_written_before_the_core_is_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("server.rpc.pump.WRITING_LOOKS_MAX", 1_000_000)
    ear = Ear()
    async with unread(ear) as (pump, sessions, session):
        await pump.put(session, batch("b"))
        await until(lambda: sessions.unwritten() == 2)
        for _ in range(200):
            await asyncio.sleep(0)
        assert ear.heard.count("idle") == 1, "and what comes is taken meanwhile"
        assert session.outbox.take()
        await until(lambda: ear.heard.count("idle") == 2)


async def test_it_is_idle_though_a_client_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.rpc.pump.WRITING_LOOKS_MAX", 2)
    ear = Ear()
    async with unread(ear) as (_pump, sessions, _session):
        await until(lambda: ear.heard.count("idle") == 2)
        assert sessions.unwritten() == 1


async def test_a_stream_that_has_ended_writes_nothing_more() -> None:
    sessions = Sessions()
    session = speaking(sessions)
    session.outbox.extend([b"piece"])
    assert sessions.unwritten() == 1
    session.finish()
    assert sessions.unwritten() == 0


async def test_messages_of_a_stream_that_has_ended_do_not_count() -> None:
    core = ScriptedCore()
    async with pumping(core, Ear(), Clock(1)) as (pump, sessions):
        older = speaking(sessions)
        await pump.put(older, batch("old"))
        await pump.put(speaking(sessions), batch("new"))
        await pump.settled()
        older.ended.exception()
    assert core.seen[:2] == ["new", "tick 1"]


async def test_an_event_that_is_asked_gives_its_replies_and_what_follows_it() -> None:
    core, ear = ScriptedCore(), Ear()
    async with pumping(core, ear, Clock(1)) as (pump, sessions):
        await pump.put(speaking(sessions), batch("before"))
        told: list[list[object]] = []
        replies = await pump.ask(NodeDrained("rm", "n"), after=lambda: told.append([*ear.heard]))
        assert replies == [NodeAccepted("rm", "n")]
        # What was decided before is out already; what the event itself decided is not.
        assert told[0][-1] == NodeAccepted("rm", "before")


class Gate:
    """A gate that lets decisions leave when it is open; ``asked`` counts how often the pump came to it."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.asked = 0

    async def before_leaving(self) -> None:
        """Count the call, and wait until the gate is open."""
        self.asked += 1
        await self.open.wait()


async def test_nothing_leaves_before_it_may() -> None:
    core, ear, gate, sessions = ScriptedCore(), Ear(), Gate(), Sessions()
    pump = Pump(core, sessions, Time(Clock(1).now, lambda: 0.0), [ear])
    pump.before_leaving = gate.before_leaving
    task = asyncio.create_task(pump.run())
    session = speaking(sessions)
    reply = asyncio.create_task(pump.ask(NodeDrained("rm", "a")))
    await until(lambda: gate.asked == 1)
    for name in "bcd":
        await pump.put(session, batch(name))
    await asyncio.sleep(0)
    assert (ear.heard, reply.done(), core.seen) == (["idle"], False, ["a", "tick 1"])
    gate.open.set()
    assert await reply == [NodeAccepted("rm", "a")]
    await pump.settled()
    assert core.taken == [1, 3], "what came meanwhile is one slice"
    pump.stop()
    await task


async def test_a_registration_comes_behind_what_left_before_it() -> None:
    core, ear, gate, sessions = ScriptedCore(), Ear(), Gate(), Sessions()
    pump = Pump(core, sessions, Time(Clock(1).now, lambda: 0.0), [ear])
    pump.before_leaving = gate.before_leaving
    await pump.put(speaking(sessions), batch("before"))
    told: list[list[object]] = []
    reply = asyncio.create_task(
        pump.ask(NodeDrained("rm", "n"), after=lambda: told.append([*ear.heard]))
    )
    await asyncio.sleep(0)
    task = asyncio.create_task(pump.run())
    await until(lambda: gate.asked == 1)
    assert (core.seen, told) == (["before", "tick 1"], [])
    gate.open.set()
    assert await reply == [NodeAccepted("rm", "n")]
    assert told == [[NodeAccepted("rm", "before"), 1]], "sent, and its slice is over"
    pump.stop()
    await task


async def test_readers_wait_while_the_inbox_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.rpc.pump.INBOX_EVENTS_MAX", 2)
    core, sessions = ScriptedCore(), Sessions()
    pump = Pump(core, sessions, Time(Clock(1).now, lambda: 0.0))
    session = speaking(sessions)
    await pump.put(session, batch("a", "b", "c"))
    blocked = asyncio.create_task(pump.put(session, batch("d")))
    await asyncio.sleep(0)
    assert not blocked.done()
    task = asyncio.create_task(pump.run())
    await blocked
    await pump.settled()
    pump.stop()
    await task
    assert [one for one in core.seen if len(one) == 1] == ["a", "b", "c", "d"]


async def test_a_slice_takes_a_bounded_number_of_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.rpc.pump.SLICE_EVENTS_MAX", 2)
    core, ear = ScriptedCore(), Ear()
    async with pumping(core, ear, Clock(1)) as (pump, sessions):
        session = speaking(sessions)
        for name in "abcd":
            await pump.put(session, batch(name))
        await pump.settled()
    assert core.seen[:6] == ["a", "b", "tick 1", "c", "d", "tick 1"]


async def test_a_message_that_a_slice_has_no_capacity_for_waits_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("server.rpc.pump.SLICE_EVENTS_MAX", 3)
    core = ScriptedCore()
    async with pumping(core, Ear(), Clock(1)) as (pump, sessions):
        session = speaking(sessions)
        for names in ("ab", "cd", "efghi", "j"):
            await pump.put(session, batch(*names))
        await pump.settled()
    assert "".join(core.seen).split("tick 1")[:4] == ["ab", "cd", "efghi", "j"]


async def test_a_full_slice_waits_for_what_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.rpc.pump.GATHER_EVENTS", 4)
    monkeypatch.setattr("server.rpc.pump.GATHER_S", 0.2)
    core = ScriptedCore()
    async with pumping(core, Ear(), Clock(1)) as (pump, sessions):
        session = speaking(sessions)
        await pump.put(session, batch(*"abcd"))
        await until(lambda: "tick 1" in core.seen)
        await pump.put(session, batch("e"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert core.seen[-1] == "tick 1"
        await pump.put(session, batch("f"))
        await pump.put(session, batch("g", "h"))
        await pump.settled()
    assert "".join(core.seen).split("tick 1")[1] == "efgh"


async def test_a_flood_goes_on_until_no_stream_sends_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.rpc.pump.GATHER_TIMES_MAX", 1)
    monkeypatch.setattr("server.rpc.pump.GATHER_S", 0.3)
    core = ScriptedCore()

    def slices() -> list[str]:
        return "".join(core.seen).split("tick 1")

    async with pumping(core, Ear(), Clock(1)) as (pump, sessions):
        streams = [sessions.open(Kind.NODE) for _ in range(3)]
        for at, session in enumerate(streams):
            sessions.speak(session, f"rm-{at}")

        async def put(at: int, name: str, turns: int = 20) -> None:
            await pump.put(streams[at], batch(name))
            for _ in range(turns):
                await asyncio.sleep(0)

        await put(0, "a", 2)
        assert slices() == ["a", ""]
        await put(0, "b", 0)
        await put(0, "c")
        await put(0, "d")
        assert slices() == ["a", ""], "a flood: patience"
        await until(lambda: len(slices()) > 2)
        await put(0, "e")
        assert slices() == ["a", "bcd", ""], "it came behind a flood that may not be over"
        await put(1, "f")
        await until(lambda: len(slices()) > 3)
        await put(2, "g")
        assert slices() == ["a", "bcd", "ef", "g", ""], "nobody sent twice: it is over"


async def test_what_was_handed_over_before_the_stop_is_still_taken() -> None:
    core, sessions = ScriptedCore(), Sessions()
    pump = Pump(core, sessions, Time(Clock(1).now, lambda: 0.0))
    await pump.put(speaking(sessions), batch("last"))
    pump.stop()
    await pump.run()
    assert core.seen == ["last", "tick 1"]


@pytest.mark.parametrize("end", [Pump.rest, Pump.stop])
async def test_a_stream_that_never_pauses_does_not_delay_the_end(
    end: Callable[[Pump], None],
) -> None:
    """Decisions wait for a disk or a follower. Meanwhile the next message arrives, so that the inbox is never empty."""
    core, sessions = ScriptedCore(), Sessions()
    pump = Pump(core, sessions, Time(Clock(1).now, lambda: 0.0))
    session, names = speaking(sessions), map(str, count())

    async def arrives() -> None:
        await asyncio.sleep(0)
        await pump.put(session, batch(next(names)))

    pump.before_leaving = arrives
    await arrives()
    running = asyncio.create_task(pump.run())
    await until(lambda: "9" in core.seen)
    end(pump)
    await asyncio.wait_for(running, PATIENCE_S)
    taken = len([one for one in core.seen if one != "tick 1"])
    assert pump._waiting == 1, "the message that arrived last waits"
    again = asyncio.create_task(pump.run())
    await until(lambda: str(taken) in core.seen)
    pump.rest()
    await again


async def test_in_a_flood_of_small_messages_many_share_a_slice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("server.rpc.pump.GATHER_S", 3_600)
    monkeypatch.setattr("server.rpc.pump.GATHER_EVENTS", 4)
    core = ScriptedCore()
    async with pumping(core, Ear(), Clock(1)) as (pump, sessions):
        session = speaking(sessions)
        for name in "abcdefghi":
            await pump.put(session, batch(name))
            await asyncio.sleep(0)
        await pump.settled()
    ticks = "".join("|" if one == "tick 1" else one for one in core.seen).split("|")
    assert "".join(ticks) == "abcdefghi"
    assert max(map(len, ticks)) == 4


async def test_a_flood_may_come_by_many_streams_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.rpc.pump.GATHER_S", 3_600)
    monkeypatch.setattr("server.rpc.pump.GATHER_EVENTS", 200)
    core = ScriptedCore()
    async with pumping(core, Ear(), Clock(1)) as (pump, sessions):
        streams = [sessions.open(Kind.NODE) for _ in range(20)]
        for at, session in enumerate(streams):
            sessions.speak(session, f"rm-{at}")
        for turn in range(6):
            for session in streams * 2:
                await pump.put(session, batch(f"{turn}"))
            for _ in range(3):
                await asyncio.sleep(0)
        await pump.settled()
    assert core.seen.count("tick 1") <= 4


@pytest.mark.parametrize("turns", range(6))
async def test_who_waits_for_each_answer_is_never_kept_waiting(
    monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    monkeypatch.setattr("server.rpc.pump.GATHER_S", 3_600)
    core = ScriptedCore()
    async with pumping(core, Ear(), Clock(1)) as (pump, sessions):
        session = speaking(sessions)
        for name in "abc":
            await pump.put(session, batch(name))
            while (await _taken(session, turns)) != name:
                pass
    assert core.seen[:6] == ["a", "tick 1", "b", "tick 1", "c", "tick 1"]


async def test_many_who_wait_for_their_answers_are_not_kept_waiting_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("server.rpc.pump.GATHER_S", 3_600)
    async with pumping(ScriptedCore(), Ear(), Clock(1)) as (pump, sessions):
        streams = {name: sessions.open(Kind.NODE) for name in "abcd"}
        for name, session in streams.items():
            sessions.speak(session, name)
        for _ in range(5):
            for name, session in streams.items():
                await pump.put(session, Batch(name, [NodeDrained(name, "n")]))
            async with asyncio.timeout(10):
                for session in streams.values():
                    await _taken(session, 0)


async def test_nobody_who_asks_waits_for_a_flood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.rpc.pump.GATHER_S", 3_600)
    async with pumping(ScriptedCore(), Ear(), Clock(1)) as (pump, sessions):
        session = speaking(sessions)
        for name in "abc":
            await pump.put(session, batch(name))
        await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await pump.ask(NodeDrained("rm", "n"))
            await asyncio.gather(*[pump.ask(NodeDrained("rm", name)) for name in "xyz"])


async def _taken(session: Session, turns: int) -> str:
    """Take the stream's answer, give the network this number of turns of the event loop, and return the accepted node."""
    await session.filled.wait()
    session.filled.clear()
    answer = session.outbox.take()
    for _ in range(turns):
        await asyncio.sleep(0)
    return si_pb2.NodeResponse.FromString(answer).accepted[0].nodeID if answer else ""
