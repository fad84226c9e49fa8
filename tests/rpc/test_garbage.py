"""Cyclic garbage: the core creates none, and garbage of other code is collected when the core has time."""

import asyncio
import gc
import struct
import sys
import types
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any

import grpc
import pytest

from server.core.core import Core
from server.model.asks import AskSpec
from server.model.events import (
    ApplicationAdded,
    ApplicationRemoved,
    AskAdded,
    ConfigurationApplied,
    Event,
    ManagerRegistered,
    NodeAdded,
    NodeRemoved,
    ReleaseRequested,
)
from server.model.quota import (
    Acl,
    ChildTemplate,
    Configuration,
    PartitionSpec,
    PlacementRule,
    QueueSpec,
    UserLimit,
)
from server.model.resources import resource
from server.rpc import garbage
from server.rpc.errors import CallError, too_many
from server.rpc.garbage import Garbage
from server.rpc.identity import Identities
from server.rpc.reads import Question, Read
from server.rpc.unreachable import search
from tests.rpc.harness import PATIENCE_S, SETTING, serving


class Knot:
    """An object that refers to itself."""

    def __init__(self) -> None:
        self.held = self


class Quiet:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.waits: list[Callable[[], None]] = []

    def later(self, seconds: float, then: Callable[[], None]) -> "Quiet":
        assert seconds == garbage.QUIET_S
        self.waits.append(then)
        return self

    def cancel(self) -> None:
        self.waits.clear()

    def passes(self) -> None:
        waits, self.waits = self.waits, []
        for then in waits:
            then()


@pytest.fixture
def quiet() -> Quiet:
    return Quiet()


@pytest.fixture
def collector(quiet: Quiet, monkeypatch: pytest.MonkeyPatch) -> Iterator[Garbage]:
    """Provide a driver of the collector that has been idle before, for as long as the test lasts.

    The limit of a full collection is lifted, because the tests themselves may hold much.
    """
    monkeypatch.setattr(garbage, "EVERYTHING_MAX", sys.maxsize)
    driven = Garbage(quiet.later)
    driven.idle()
    yield driven
    driven.close()


def knot() -> "weakref.ref[Knot]":
    """Return a weak reference to garbage that only a collection frees."""
    return weakref.ref(Knot())


def test_automatic_collection_stops_and_comes_back(quiet: Quiet) -> None:
    collector = Garbage(quiet.later)
    assert not gc.isenabled()
    collector.close()
    assert gc.isenabled()
    assert not gc.get_freeze_count()


def test_it_is_collected_when_the_core_is_idle_and_enough_has_come(collector: Garbage) -> None:
    left = knot()
    collector.sliced(garbage.ENOUGH // 2, 0.0, 1)
    collector.idle()
    assert left() is not None
    collector.sliced(1, 0.0, 1)
    collector.idle()
    assert left() is None


def test_it_is_collected_under_a_load_that_never_ends(collector: Garbage) -> None:
    left = knot()
    collector.sliced(garbage.ENOUGH // 2, 0.0, 1)
    assert left() is not None
    collector.sliced(1, 0.0, 1)
    assert left() is not None, "it would keep what was decided from being written"
    collector.sliced(1, 0.0, 1)
    assert left() is None


def test_each_time_one_slice_later(collector: Garbage) -> None:
    for _ in range(3):
        left = knot()
        collector.sliced(garbage.ENOUGH, 0.0, 1)
        assert left() is not None
        collector.sliced(0, 0.0, 1)
        assert left() is None


def test_after_a_burst_it_is_collected_when_the_core_is_idle(collector: Garbage) -> None:
    left = knot()
    collector.sliced(garbage.ENOUGH, 0.0, 1)
    assert left() is not None
    collector.idle()
    assert left() is None


def test_objects_that_no_event_made_count_too(collector: Garbage) -> None:
    left = knot()
    held = [[one] for one in range(garbage.ENOUGH + 1)]
    collector.idle()
    assert left() is None
    assert held


def test_what_calls_leave_is_collected_though_no_event_comes(collector: Garbage) -> None:
    left = knot()
    collector.call_ended()
    assert left() is not None
    held = [[one] for one in range(garbage.ENOUGH + 1)]
    collector.call_ended()
    assert left() is None
    assert held


def test_after_many_calls_everything_is_looked_at_in_a_quiet_moment(
    collector: Garbage, quiet: Quiet
) -> None:
    for _ in range(garbage.THOROUGH - 1):
        assert not quiet.waits
        held = [[one] for one in range(2 * garbage.ENOUGH)]
        collector.call_ended()
        held.clear()  # or the next ones would not be new: Python counts the net growth
    frozen = gc.get_freeze_count()
    assert len(quiet.waits) == 1
    quiet.passes()
    assert gc.get_freeze_count() < 2 * frozen


@pytest.mark.parametrize("identities", [Identities(open_to_all=False), Identities()])
async def test_a_call_that_fails_leaves_no_cycle_of_ours(identities: Identities) -> None:
    """Check that a failed call leaves no cycle.

    The exception that ends a call is kept by gRPC, and a cycle would hold the request until a collection.
    """
    async with serving(replace(SETTING, identities=identities)) as served:
        call: Any = served.channel.unary_unary("/evenhand.v1.DecisionService/GetDecision")
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            for _ in range(20):
                with pytest.raises(grpc.aio.AioRpcError):
                    await call(b"\xff" * 1_000)
            gc.collect()
            frames = [one.f_code for one in gc.garbage if isinstance(one, types.FrameType)]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
    assert [one.co_qualname for one in frames if "/server/rpc/" in one.co_filename] == []


async def test_a_caller_is_judged_before_the_request_is_read() -> None:
    """The request never comes: the answer does all the same."""
    never = asyncio.Event()

    async def requests() -> AsyncIterator[bytes]:
        await never.wait()
        yield b""

    async with serving(replace(SETTING, identities=Identities(open_to_all=False))) as served:
        call: Any = served.channel.stream_unary("/evenhand.v1.DecisionService/GetDecision")
        with pytest.raises(grpc.aio.AioRpcError) as found:
            await asyncio.wait_for(call(requests()), PATIENCE_S)
    assert found.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_what_was_there_before_is_looked_at_when_the_core_is_idle_first(quiet: Quiet) -> None:
    left = knot()
    collector = Garbage(quiet.later)
    collector.idle()
    assert left() is None
    assert gc.get_freeze_count()
    collector.close()


def frozen_alive(collector: Garbage, collections: int) -> "weakref.ref[Knot]":
    """Return a reference to garbage that was alive through this number of collections."""
    held = [Knot()]
    left = weakref.ref(held[0])
    for _ in range(2 * collections):
        collector.sliced(garbage.ENOUGH, 0.0, 1)
    return left


def test_what_was_alive_when_it_was_frozen_is_collected_when_nothing_comes(
    collector: Garbage, quiet: Quiet
) -> None:
    left = frozen_alive(collector, garbage.THOROUGH)
    collector.idle()
    assert left() is not None
    quiet.passes()
    assert left() is None
    collector.idle()
    assert not quiet.waits


def test_whoever_comes_is_not_kept_waiting_by_that(collector: Garbage, quiet: Quiet) -> None:
    left = frozen_alive(collector, garbage.THOROUGH)
    collector.idle()
    collector.sliced(0, 0.0, 1)
    assert quiet.waits, "a tick by time alone disturbs nobody"
    collector.sliced(1, 0.0, 1)
    quiet.passes()
    assert left() is not None
    collector.idle()
    quiet.passes()
    assert left() is None


def test_a_large_core_is_not_looked_at_whole_in_a_quiet_moment(
    collector: Garbage, quiet: Quiet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "EVERYTHING_MAX", 1)
    left = frozen_alive(collector, garbage.THOROUGH)
    collector.idle()
    assert not quiet.waits
    monkeypatch.setattr(garbage, "THOROUGH_AT_LAST", garbage.THOROUGH)
    collector.idle()
    assert left() is None


class Searches:
    """Reads that answer a search for garbage as a test says."""

    def __init__(self, objects: int = 0, size: int = 0, *, apart: bool = True) -> None:
        self.apart = apart
        self.answer_ = struct.pack("!QQ", objects, size)
        self.failure: CallError | None = None
        self.count = 0

    async def answer(self, question: Question, read: Read) -> bytes:
        del read
        assert question.method == "garbage"
        self.count += 1
        if self.failure is not None:
            raise self.failure
        return self.answer_

    def hold(self) -> None:
        pass

    def go_on(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every core count as a large one."""
    monkeypatch.setattr(garbage, "EVERYTHING_MAX", 1)


async def searched(quiet: Quiet, searches: Searches) -> "tuple[Garbage, weakref.ref[Knot]]":
    """Let a core have a quiet moment after many collections, and the search that begins then end."""
    collector = Garbage(quiet.later, searches)
    collector.idle()
    left = frozen_alive(collector, garbage.THOROUGH)
    collector.idle()
    quiet.passes()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return collector, left


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize(
    ("objects", "size", "much"),
    [
        (0, 0, False),
        (garbage.GARBAGE_OBJECTS_MAX, garbage.GARBAGE_BYTES_MAX, False),
        (garbage.GARBAGE_OBJECTS_MAX + 1, 0, True),
        (1, garbage.GARBAGE_BYTES_MAX + 1, True),
    ],
)
async def test_a_large_core_collects_what_it_has_frozen_if_that_is_much(
    quiet: Quiet, objects: int, size: int, *, much: bool
) -> None:
    searches = Searches(objects, size)
    collector, left = await searched(quiet, searches)
    assert searches.count == 1
    assert left() is not None
    assert len(quiet.waits) == much
    collector.idle()
    assert (left() is None) == much
    collector.idle()
    assert not quiet.waits, "once"
    collector.close()


@pytest.mark.usefixtures("large")
async def test_much_garbage_of_a_large_core_is_collected_in_a_quiet_moment(quiet: Quiet) -> None:
    collector, left = await searched(quiet, Searches(1, garbage.GARBAGE_BYTES_MAX + 1))
    quiet.passes()
    assert left() is None
    collector.close()


@pytest.mark.usefixtures("large")
async def test_a_search_that_fails_is_made_again_after_as_many_collections(quiet: Quiet) -> None:
    searches = Searches(garbage.GARBAGE_OBJECTS_MAX + 1)
    searches.failure = too_many("reads that wait for answers", 1)
    collector, left = await searched(quiet, searches)
    assert not quiet.waits
    searches.failure = None
    frozen_alive(collector, garbage.THOROUGH)
    collector.idle()
    quiet.passes()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    quiet.passes()
    assert left() is None
    assert searches.count == 2
    collector.close()


@pytest.mark.usefixtures("large")
async def test_a_busy_large_core_is_searched_in_the_end(
    quiet: Quiet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "THOROUGH_AT_LAST", garbage.THOROUGH)
    searches = Searches()
    collector = Garbage(quiet.later, searches)
    left = frozen_alive(collector, garbage.THOROUGH)
    collector.idle()
    await asyncio.sleep(0)
    assert searches.count == 1
    assert left() is not None
    collector.close()


@pytest.mark.usefixtures("large")
async def test_where_no_copy_can_search_nothing_is_searched(quiet: Quiet) -> None:
    searches = Searches(apart=False)
    collector, _ = await searched(quiet, searches)
    assert searches.count == 0
    collector.close()


def test_a_search_finds_what_a_collection_would() -> None:
    while gc.collect():
        pass  # A collection can make further objects unreachable.
    gc.disable()
    try:
        before = search()
        kept, shared = [Knot() for _ in range(100)], "y" * 1_000_000
        for at in range(100):
            lost = Knot()
            lost.text = "x" * (100_000 + at)  # type: ignore[attr-defined]
            lost.shared = shared  # type: ignore[attr-defined]
            del lost
        found = search()
        assert 100 <= found.objects - before.objects <= 200
        assert 10_000_000 < found.bytes - before.bytes < 10_100_000
        assert gc.collect() >= found.objects
        while gc.collect():
            pass
        assert search().objects <= before.objects
        assert kept
    finally:
        gc.enable()


def test_a_search_runs_no_finalizer() -> None:
    ended: list[int] = []

    class Closing(Knot):
        def __del__(self) -> None:
            ended.append(1)

    gc.collect()
    Closing()
    assert search().objects
    assert not ended
    gc.collect()
    assert ended


def test_in_the_end_it_is_collected_in_the_first_idle_moment(
    collector: Garbage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "THOROUGH_AT_LAST", 4)
    left = frozen_alive(collector, 4)
    assert left() is not None
    collector.idle()
    assert left() is None


def test_what_stays_is_looked_at_once(collector: Garbage) -> None:
    held = [[one] for one in range(garbage.ENOUGH + 1)]
    before = gc.get_freeze_count()
    collector.idle()
    assert gc.get_freeze_count() >= before + len(held)


def queues(*leaves: str) -> Configuration:
    root = QueueSpec(
        name="root", parent=True, children=tuple(QueueSpec(name=one) for one in leaves)
    )
    return Configuration((PartitionSpec("default", root),))


def life() -> Iterator[Event]:
    """Yield events that create, place and remove every kind of object, in each possible way."""
    yield ManagerRegistered("rm")
    for node in "abc":
        yield NodeAdded("rm", node, resource({"vcore": 4_000}))
    for name in ("done", "gone", "left"):
        yield ApplicationAdded("rm", name, f"root.{name}")
        for number in range(6):
            spec = AskSpec(resource({"vcore": 500 + number}))
            yield AskAdded("rm", f"{name}-{number}", name, spec)
    for number in range(6):
        yield ReleaseRequested("rm", "done", f"done-{number}")
    yield ApplicationRemoved("rm", "gone")
    yield NodeRemoved("rm", "b")
    yield ConfigurationApplied(queues("done", "new"), "test", "rm")
    yield ManagerRegistered("rm")


def test_partitions_that_end_leave_no_cycles_behind() -> None:
    several = Configuration(
        tuple(
            PartitionSpec(name, queues("a", "b").partitions[0].root) for name in ("default", "more")
        )
    )

    def ends() -> Iterator[Event]:
        yield ManagerRegistered("rm")
        yield ConfigurationApplied(several, "test", "rm")
        yield NodeAdded("rm", "a", resource({"vcore": 4_000}), partition="more")
        yield ApplicationAdded("rm", "app", "root.a", partition="more")
        yield AskAdded("rm", "pod", "app", AskSpec(resource({"vcore": 500})), partition="more")
        yield ConfigurationApplied(queues("a"), "test", "rm")
        yield ApplicationRemoved("rm", "app", partition="more")
        yield NodeRemoved("rm", "a", partition="more")

    core = Core(several)
    assert cycles(core, ends()) == 0
    assert list(core.state.partitions) == ["default"]


def test_the_core_leaves_no_cycles_behind() -> None:
    core = Core(queues("done", "gone", "left"))
    assert cycles(core, life()) == 0
    assert not core.state.partitions["default"].asks


@pytest.mark.parametrize("released", [True, False])
@pytest.mark.parametrize("limited", ["nothing", "queue", "user"])
def test_neither_do_queues_that_come_and_go(limited: str, *, released: bool) -> None:
    most = resource({"vcore": 1_200})
    parent = QueueSpec(
        name="teams",
        parent=True,
        template=ChildTemplate(max=most) if limited == "queue" else None,
        limits=(UserLimit(users=("u",), max_resources=most),) if limited == "user" else (),
    )
    root = QueueSpec("root", parent=True, submit_acl=Acl(everyone=True), children=(parent,))
    rules = (PlacementRule(kind="provided", create=True),)
    core = Core(Configuration((PartitionSpec("default", root, rules=rules),)))
    assert cycles(core, come_and_go(released=released)) == 0
    assert list(core.state.partitions["default"].queues) == ["root", "root.teams"]


def come_and_go(*, released: bool) -> Iterator[Event]:
    """Yield applications in queues of their own, whose pods exceed the limits and are released or just forgotten."""
    yield ManagerRegistered("rm")
    yield NodeAdded("rm", "a", resource({"vcore": 4_000}))
    for number in range(20):
        name = f"app-{number}"
        yield ApplicationAdded("rm", name, f"root.teams.team-{number}.pods", user="u")
        keys = [f"{name}-{one}" for one in range(10)]
        for at, key in enumerate(keys):
            yield AskAdded("rm", key, name, AskSpec(resource({"vcore": 500 + at % 3})))
        for key in keys if released else ():
            yield ReleaseRequested("rm", name, key)
        yield ApplicationRemoved("rm", name)


def cycles(core: Core, events: Iterator[Event]) -> int:
    """Return how many objects only a collection frees after a whole life of the core."""
    gc.collect()
    gc.disable()
    try:
        now = 1
        for event in events:
            core.handle(event, now)
            while core.tick(now).more:
                pass
            now += 3_600_000
        core.state.partitions[
            "default"
        ].columns.changed.clear()  # what waits for a snapshot is not garbage yet
        return gc.collect()
    finally:
        gc.enable()
