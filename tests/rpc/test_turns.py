"""The event loop runs other work within long slices: pieces, steps, and which queries may be answered meanwhile."""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest

from server.core.core import Core
from server.model.asks import Constraints
from server.model.decisions import Decision, Decisions, Tick
from server.model.events import AskAdded, Event, NodeDrained
from server.model.parts import Parts
from server.model.parts import whole as whole_of
from server.rpc.allowance import Allowance
from server.rpc.limits import (
    CHECK_WAITS_MAX,
    PIECE_EVENTS_MAX,
    STEP_OBJECTS,
    TICK_BUDGET,
    TICK_BUDGET_MIN,
)
from server.rpc.pump import Pump, Time
from server.rpc.reads import InPlace
from server.rpc.sessions import Kind, Sessions
from server.rpc.steps import in_turns
from server.rpc.translate.allocations import Batch, Reader
from server.rpc.translate.allocations_fast import AllocationCodec
from server.rpc.translate.applications import application_batching
from server.rpc.translate.nodes import node_batching
from si.v1 import si_pb2
from tests.bench.workloads import RM, Workload, asks, configuration, set_up
from tests.one_part import OnePart
from tests.rpc import harness
from tests.rpc.harness import Clock, serving


def test_an_allowance_shrinks_at_once_and_grows_by_steps() -> None:
    allowance = Allowance(10, 1_000, 0.01)
    assert allowance.amount == 1_000
    allowance.took(0.1)
    assert allowance.amount == 100
    allowance.took(0.008)
    assert allowance.amount == 100, "neither long nor short"
    allowance.took(0.001)
    assert allowance.amount == 200
    allowance.took(100.0)
    assert allowance.amount == 10, "never less than the least"
    for _ in range(10):
        allowance.took(0.0)
    assert allowance.amount == 1_000, "never more than the most"


@dataclass
class SlowCore(OnePart):
    """A core that takes a stated time for each event and for each step, by a false clock."""

    event_s: float = 0.0
    step_s: float = 0.0
    seconds: float = 0.0
    more: int = 0
    pieces: list[int] = field(default_factory=list)
    budgets: list[int] = field(default_factory=list)

    def take(self, events: Sequence[Event], now: int) -> list[Decision]:
        """Record the events, and take time for each of them."""
        del now
        self.pieces.append(len(events))
        self.seconds += self.event_s * len(events)
        return []

    def tick(self, now: int, budget: int) -> Tick:
        """Take time for the whole budget, as long as there is more to do."""
        del now
        self.budgets.append(budget)
        self.seconds += self.step_s * budget
        self.more -= 1
        return Tick([], self.more > 0)

    def next_due(self) -> int | None:
        """Never."""
        return None


class Held(InPlace):
    """An observer that records its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def hold(self) -> None:
        """Record the call."""
        self.told.append("hold")
        super().hold()

    def go_on(self) -> None:
        """Record the call."""
        self.told.append("go on")
        super().go_on()


async def pumped(core: SlowCore, reads: Held, events: int) -> list[int]:
    """Hand over one message; return how many pieces had been taken at each turn of the event loop meanwhile."""
    sessions = Sessions()
    pump = Pump(core, sessions, Time(Clock(1).now, lambda: core.seconds), reads=reads)
    session = sessions.open(Kind.NODE)
    sessions.speak(session, "rm")
    await pump.put(session, Batch("rm", [NodeDrained("rm", f"n{at}") for at in range(events)]))
    pump.stop()
    seen = []
    running = asyncio.create_task(pump.run())
    while not running.done():
        seen.append(len(core.pieces))
        await asyncio.sleep(0)
    await running
    return seen


async def test_the_loop_turns_between_pieces_of_a_long_message() -> None:
    core, reads = SlowCore(event_s=2**-10), Held()
    seen = await pumped(core, reads, 2_000)
    assert sum(core.pieces) == 2_000
    assert core.pieces[0] == PIECE_EVENTS_MAX, "nobody knew before what they take"
    assert set(core.pieces[1:-1]) == {10}, "10 ms"
    assert max(after - before for before, after in pairwise(seen)) <= 3, "20 ms"
    assert reads.told == ["hold", "go on"], "nothing reads the half of it"
    assert len(core.budgets) == 1, "and there is no tick in between"


async def test_a_quick_message_goes_to_the_core_in_one_turn() -> None:
    core, reads = SlowCore(event_s=0.000_001), Held()
    seen = await pumped(core, reads, 2_000)
    assert len(core.pieces) == 2_000 // PIECE_EVENTS_MAX
    assert set(seen) == {0}, "all before anybody could look"
    assert reads.told == []


@dataclass
class PartedCore(SlowCore):
    """A core that takes 2**-7 s for each of ten parts of an event and of a tick."""

    def take_in_parts(self, event: Event, now: int) -> Parts[list[Decision]]:
        """Take ten parts, then the event."""
        yield from self._parts()
        return self.take([event], now)

    def tick_in_parts(self, now: int, budget: int) -> Parts[Tick]:
        """Take ten parts, then tick."""
        yield from self._parts()
        return self.tick(now, budget)

    def _parts(self) -> Parts[None]:
        for _ in range(10):
            self.seconds += 2**-7
            self.pieces.append(0)
            yield


async def test_the_loop_turns_between_parts_and_nothing_else_is_done() -> None:
    core, reads = PartedCore(), Held()
    pump = Pump(core, Sessions(), Time(Clock(1).now, lambda: core.seconds), reads=reads)
    running = asyncio.create_task(pump.run())
    answers = [asyncio.create_task(pump.ask(NodeDrained("rm", name))) for name in "ab"]
    await asyncio.sleep(0)
    pump.stop()
    seen = []
    while not running.done():
        seen.append(core.seconds)
        await asyncio.sleep(0)
    await asyncio.gather(running, *answers)
    assert core.pieces == [*[0] * 10, 1, *[0] * 10, 1, *[0] * 10]
    assert max(after - before for before, after in pairwise(seen)) <= 4 * 2**-7, "20 ms and a part"
    assert reads.told == ["hold", "go on"]
    assert core.budgets == [TICK_BUDGET_MIN], "placements leave soon after a long event"


async def test_long_steps_make_ticks_of_fewer() -> None:
    core = SlowCore(step_s=2**-14, more=5)
    pump = Pump(core, Sessions(), Time(Clock(1).now, lambda: core.seconds))
    running = asyncio.create_task(pump.run())
    await pump.settled()
    assert core.budgets[:3] == [TICK_BUDGET, 655, 655], "40 ms"
    core.step_s, core.more = 1.0, 3
    await pump.settled()
    await pump.settled()
    assert core.budgets[-1] == TICK_BUDGET_MIN
    pump.stop()
    await running


class Checks:
    """Open health checks: the first ``looks`` looks find one, and the number of ticks at each look is recorded."""

    def __init__(self, core: SlowCore, looks: int) -> None:
        self._core = core
        self._looks = looks
        self.seen: list[int] = []

    def __call__(self) -> int:
        """Return 1 while a check is open."""
        self.seen.append(len(self._core.budgets))
        return int(len(self.seen) <= self._looks)


async def checked(core: SlowCore, looks: int) -> list[int]:
    """Run the core until it has no more to do, and return the number of ticks at each look for open checks."""
    pump = Pump(core, Sessions(), Time(Clock(1).now, lambda: core.seconds))
    pump.checks = checks = Checks(core, looks)
    running = asyncio.create_task(pump.run())
    await pump.settled()
    pump.stop()
    await running
    return checks.seen


async def test_health_checks_are_answered_between_two_long_ticks() -> None:
    assert await checked(SlowCore(step_s=2**-14, more=2), looks=3) == [1, 1, 1, 1, 2]


async def test_a_check_that_is_never_answered_holds_up_a_slice_for_a_bounded_time() -> None:
    seen = await checked(SlowCore(step_s=2**-14, more=2), looks=1_000)
    assert seen == [*[1] * CHECK_WAITS_MAX, *[2] * CHECK_WAITS_MAX]


async def test_quick_slices_do_not_wait_for_checks() -> None:
    assert await checked(SlowCore(step_s=2**-20, more=3), looks=1_000) == []


class Kept:
    """An observer that keeps the decisions."""

    def __init__(self) -> None:
        self.decided_all: list[Decision] = []

    def decided(self, decisions: Decisions, _now: int) -> None:
        """Keep the decisions."""
        self.decided_all += decisions.all

    def sliced(self, events: int, _seconds: float, _now: int) -> None:
        """Ignore the call."""

    def idle(self) -> None:
        """Ignore the call."""


@pytest.mark.parametrize("seed", range(6))
async def test_pieces_change_no_decision(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.rpc.pump.TICK_S", 3_600.0)  # of pieces alone
    workload = Workload(40, 400, 10)
    whole = await _decided(workload, None)
    assert await _decided(workload, random.Random(seed)) == whole


@pytest.mark.parametrize("most", [0, 30, 250])
async def test_asks_that_are_enqueued_before_the_tick_change_no_decision(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.rpc.pump.TICK_S", 3_600.0)
    workload = Workload(40, 400, 10)
    whole = await _decided(workload, None)
    monkeypatch.setattr("server.core.events.asks_fast.GATHERED_MAX", most)
    assert await _decided(workload, random.Random(most)) == whole


def test_asks_of_a_long_message_are_enqueued_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.core.events.asks_fast.GATHERED_MAX", 100)
    workload = Workload(40, 400, 10)
    core, coming, waiting = Core(configuration(workload)), asks(workload), list[int]()
    core.take(list(set_up(workload)), 1)
    for first in range(0, len(coming), 50):
        core.take(coming[first : first + 50], 1)
        waiting.append(len(core.state.partitions["default"].unqueued))
    assert waiting == [50, 100, 0, 50, 100, 0, 50, 100]


async def _decided(workload: Workload, pace: random.Random | None) -> tuple[list[Decision], str]:
    """Return what is decided of a message and the digest after it; with a pace, each look at the clock takes some time."""
    core, sessions, kept = Core(configuration(workload)), Sessions(), Kept()
    seconds = 0.0

    def now() -> float:
        nonlocal seconds
        seconds += pace.choice((0.0, 0.001, 0.03)) if pace else 0.0
        return seconds

    pump = Pump(core, sessions, Time(Clock(1).now, now), [kept])
    running = asyncio.create_task(pump.run())
    session = sessions.open(Kind.ALLOCATION)
    sessions.speak(session, RM)
    await pump.put(session, Batch(RM, list(set_up(workload))))
    await pump.settled()
    await pump.put(session, Batch(RM, [*_with_selectors(asks(workload))]))
    await pump.settled()
    pump.stop()
    await running
    core.validate()
    return kept.decided_all, core.digest()


def _with_selectors(events: Sequence[AskAdded]) -> list[AskAdded]:
    """Give each seventh ask a label that no node has."""
    return [one if at % 7 else _selecting(one, f"key{at}") for at, one in enumerate(events)]


def _selecting(ask: AskAdded, key: str) -> AskAdded:
    constraints = Constraints(node_selector=((key, "v"),))
    return ask._replace(spec=replace(ask.spec, constraints=constraints))


async def test_reads_in_place_wait_for_the_end_of_a_slice() -> None:
    reads = InPlace()
    reads.hold()
    reading = asyncio.create_task(reads.answer(None, lambda: b"read"))  # type: ignore[arg-type]
    for _ in range(5):
        await asyncio.sleep(0)
    assert not reading.done()
    reads.go_on()
    assert await reading == b"read"


def wanting_keys(count: int) -> bytes:
    """Return a message of asks of which each selects nodes by another label."""
    message = si_pb2.AllocationRequest(rmID=RM)
    for at in range(count):
        ask = message.allocations.add(allocationKey=f"a{at}", applicationID="app")
        ask.resourcePerAlloc.resources["vcore"].value = 1
        ask.constraints.nodeSelector[f"key{at}"] = "v"
    return message.SerializeToString()


def nodes(count: int) -> bytes:
    """Return a message of nodes."""
    message = si_pb2.NodeRequest(rmID=RM)
    for at in range(count):
        message.nodes.add(nodeID=f"n{at}", action=si_pb2.NodeInfo.CREATE)
    return message.SerializeToString()


def applications(count: int) -> bytes:
    """Return a message of applications."""
    message = si_pb2.ApplicationRequest(rmID=RM)
    for at in range(count):
        message.new.add(applicationID=f"a{at}")
    return message.SerializeToString()


@pytest.mark.parametrize(
    ("decoding", "data"),
    [
        (lambda data: AllocationCodec(Reader()).decoding(data), wanting_keys(2_000)),
        (lambda data: node_batching(si_pb2.NodeRequest.FromString(data), Reader()), nodes(2_000)),
        (
            lambda data: application_batching(si_pb2.ApplicationRequest.FromString(data)),
            applications(2_000),
        ),
    ],
    ids=["allocations", "nodes", "applications"],
)
async def test_a_long_message_is_read_in_steps(
    decoding: Callable[[bytes], Parts[Batch]], data: bytes
) -> None:
    steps, read = 0, asyncio.ensure_future(in_turns(decoding(data)))
    while not read.done():
        steps += 1
        await asyncio.sleep(0)
    assert steps >= 2_000 // STEP_OBJECTS
    whole = whole_of(decoding(data))
    assert len(read.result().events) + len(read.result().refusals) == 2_000
    assert read.result().refusals == whole.refusals
    assert [type(one) for one in read.result().events] == [type(one) for one in whole.events]


async def test_messages_of_one_stream_keep_their_order() -> None:
    """The second one is short, and comes while the first one is read."""
    async with serving() as served:
        stream = await served.ready()
        message = si_pb2.AllocationRequest.FromString(wanting_keys(2_000))
        message.rmID = harness.RM
        await stream.send(message)
        second = si_pb2.AllocationRequest(rmID=harness.RM)
        second.releases.allocationsToRelease.add(
            allocationKey="a1999", applicationID="app", terminationType=si_pb2.STOPPED_BY_RM
        )
        await stream.send(second)
        await stream.close()
        await stream.all(si_pb2.AllocationResponse)
        waiting = served.core.state.partitions["default"].applications["app"].asks
        assert len(waiting) == 1_999
        assert "a1999" not in waiting


async def test_the_loop_turns_between_events_of_one_question() -> None:
    """Nothing else comes in between, and what is to be done behind the last one is done before the loop turns."""
    core = SlowCore(event_s=2**-5)
    pump = Pump(core, Sessions(), Time(Clock(1).now, lambda: core.seconds))
    running = asyncio.create_task(pump.run())
    seen: list[int] = []
    asking = asyncio.create_task(
        pump.ask(*[NodeDrained("rm", "n")] * 6, after=lambda: seen.append(-len(core.pieces)))
    )
    other = asyncio.create_task(pump.ask(NodeDrained("rm", "other")))
    while not asking.done():
        seen.append(len(core.pieces))
        await asyncio.sleep(0)
    assert {1, 2, 3, 4, 5, -6} <= set(seen)
    assert 6 not in seen[: seen.index(-6)]
    await other
    pump.stop()
    await running


async def test_a_manager_that_registers_again_is_wiped_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("server.rpc.servicer.WIPE_OBJECTS", 30)
    async with serving() as served:
        stream = await served.ready()
        message = si_pb2.AllocationRequest.FromString(wanting_keys(100))
        message.rmID = harness.RM
        await stream.send(message)
        await stream.close()
        await stream.all(si_pb2.AllocationResponse)
        application = served.core.state.partitions["default"].applications["app"]
        assert len(application.asks) == 100
        await served.ready()
        served.core.validate()
        assert served.core.state.partitions["default"].applications["app"].asks == {}
        assert application.asks == {}
