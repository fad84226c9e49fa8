"""Events wake the readers of the pages that they concern: their streams, one for each token, and what a reader does then."""

import asyncio
import queue
import selectors
import threading
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import grpc
import pytest

from evenhand_cli.connect import connected_core
from evenhand_cli.contexts import Context
from evenhand_cli.faults import Fault
from evenhand_console import waking
from evenhand_console.app import ASKS_MAX, THREADS_MAX
from evenhand_console.at_once import CALLS_MAX, begin
from evenhand_console.connection import Connection
from evenhand_console.query import query_of
from evenhand_console.reading import LogInFault, Source, status_of
from evenhand_console.sharing import BURST, FEW, REST_FACTOR, TOGETHER_S, Fragment, Key, Readers
from evenhand_console.views import VIEWS
from evenhand_console.waking import Cancellable, Kinds, Waking
from server.rpc.event_buffer import KINDS
from server.rpc.limits import CALLER_READS_MAX
from tests.cli.fake import Failure, FakeCore, running
from tests.cli.processes import until
from tests.console.samples import core
from tests.console.serving import SELDOM, console

PATIENCE_S = 30.0
PLACED = frozenset({"placed"})


def _key(token: str = "", view: str = "queues") -> Key:
    return Key(view, query_of("/", {}, ()), token)


# Readers --------------------------------------------------------------------------------------------------------


class _Skipping(selectors.DefaultSelector):
    """A selector that lets time pass instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.now += timeout or 0.0
        return super().select(0)


def _in_skipped_time(coroutine: Coroutine[Any, Any, None]) -> None:
    selector = _Skipping()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]
    try:
        loop.run_until_complete(asyncio.wait_for(coroutine, 3600.0))
    finally:
        loop.close()


class _Reads:
    """Reads that take some time, with the instants at which they began and ended."""

    def __init__(self, took_s: float = 0.02) -> None:
        self.took_s = took_s
        self.begun: list[tuple[float, str]] = []
        self.ended: list[float] = []
        self.more = asyncio.Event()

    async def make(self, key: Key, latest: Fragment | None) -> Fragment:
        del latest
        now = asyncio.get_running_loop().time
        self.begun.append((now(), key.token))
        self.more.set()
        await asyncio.sleep(self.took_s)
        self.ended.append(now())
        return Fragment("x")


def _all(_: Key) -> bool:
    return True


def test_an_event_after_a_quiet_time_begins_a_read_at_once() -> None:
    async def events() -> None:
        reads = _Reads()
        readers = Readers(reads.make, lambda _: 10.0)
        stream = readers.follow(_key())
        await anext(stream)
        now = asyncio.get_running_loop().time
        for _ in range(5):
            await asyncio.sleep(reads.ended[-1] + 9.0 - now())
            before = len(reads.begun)
            readers.wake("", _all)
            await asyncio.sleep(0.001)
            assert len(reads.begun) == before + 1
            await asyncio.sleep(0.1)
        await stream.aclose()
        readers.close()

    _in_skipped_time(events())


def test_an_event_during_a_read_begins_another_read() -> None:
    async def events() -> None:
        reads = _Reads(took_s=0.5)
        readers = Readers(reads.make, lambda _: 10.0)
        stream = readers.follow(_key())
        begun = asyncio.ensure_future(anext(stream))
        await reads.more.wait()
        readers.wake("", _all)
        await begun
        await asyncio.sleep(1.0)
        assert [at for at, _ in reads.begun] == [0.0, 0.5]
        await stream.aclose()
        readers.close()

    _in_skipped_time(events())


@pytest.mark.parametrize("took_s", [0.001, 0.02, 0.5])
def test_events_without_end_make_no_more_reads_than_the_interval(took_s: float) -> None:
    async def events() -> None:
        reads = _Reads(took_s)
        readers = Readers(reads.make, lambda _: 2.0)
        streams = [readers.follow(_key("", f"{number}")) for number in range(FEW)]
        await asyncio.gather(*map(anext, streams))
        for _ in range(6000):
            readers.wake("", _all)
            await asyncio.sleep(0.01)
        interval_s = max(2.0, (1 + REST_FACTOR) * took_s)
        most = 60 / interval_s + BURST + 1
        assert 60 / (interval_s + TOGETHER_S) <= len(reads.begun) / FEW <= most
        for one in streams:
            await one.aclose()
        readers.close()

    _in_skipped_time(events())


def test_events_begin_reads_of_a_few_pages_more_often() -> None:
    async def events() -> None:
        reads = _Reads()
        readers = Readers(reads.make, lambda _: 2.0)
        stream = readers.follow(_key())
        await anext(stream)
        for _ in range(60):
            await asyncio.sleep(0.9)
            before = len(reads.begun)
            readers.wake("", _all)
            await asyncio.sleep(0.1)
            assert len(reads.begun) == before + 1
        await stream.aclose()
        readers.close()

    _in_skipped_time(events())


def test_pages_that_wait_are_read_together() -> None:
    async def events() -> None:
        reads = _Reads()
        readers = Readers(reads.make, lambda _: 1.0)
        streams = []
        for token in "abc":
            streams.append(readers.follow(_key(token)))
            await anext(streams[-1])
            await asyncio.sleep(0.1)
        await asyncio.sleep(10.0)
        instants = {at for at, _ in reads.begun[3:]}
        assert all(at % TOGETHER_S == 0 for at in instants)
        assert len(reads.begun) >= 3 * 6
        for one in streams:
            await one.aclose()
        readers.close()

    _in_skipped_time(events())


async def test_an_event_wakes_only_the_pages_that_it_concerns() -> None:
    reads = _Reads(0.0)
    readers = Readers(reads.make, lambda _: 600.0)
    keys = (_key("ada"), _key("bob"), _key("ada", "decisions"))
    streams = [readers.follow(key) for key in keys]
    for one in streams:
        await anext(one)
    reads.begun.clear()
    reads.more.clear()
    readers.wake("ada", lambda key: key.view == "queues")
    await asyncio.wait_for(reads.more.wait(), PATIENCE_S)
    assert [token for _, token in reads.begun] == ["ada"]
    for one in streams:
        await one.aclose()
    readers.close()


def test_views_name_kinds_of_events_that_there_are() -> None:
    assert {kind for view in VIEWS for kind in view.kinds} <= set(KINDS)


# Streams --------------------------------------------------------------------------------------------------------


class _Events:
    """Streams that say what the test puts into the queue of their token: kinds, or a fault with which they end."""

    def __init__(self) -> None:
        self.said: dict[str, _Said] = defaultdict(_Said)
        self.opened: list[str] = []
        self.refuses: set[str] = set()

    def kinds(self, token: str, hold: Callable[[Cancellable], None]) -> Iterator[Kinds]:
        self.opened.append(token)
        hold(self.said[token])
        if token in self.refuses:
            raise LogInFault("no")
        while (one := self.said[token].get(timeout=PATIENCE_S)) is not None:
            if isinstance(one, Fault):
                raise one
            yield one


class _Said(queue.Queue[Kinds | Fault | None]):
    def cancel(self) -> None:
        self.put(None)


Woken = asyncio.Queue[tuple[str, Kinds]]


@pytest.fixture
def woken(monkeypatch: pytest.MonkeyPatch) -> Woken:
    monkeypatch.setattr(waking, "AGAIN_S", 0.0)
    return asyncio.Queue()


async def _next(woken: Woken) -> tuple[str, Kinds]:
    return await asyncio.wait_for(woken.get(), PATIENCE_S)


async def test_pages_of_one_token_share_a_stream_that_ends_with_the_last(woken: Woken) -> None:
    events = _Events()
    streams = Waking(events, lambda *one: woken.put_nowait(one))
    streams.open("ada")
    streams.open("ada")
    for one in (frozenset[str](), PLACED):
        events.said["ada"].put(one)
    assert await _next(woken) == ("ada", PLACED)
    streams.close("ada")
    events.said["ada"].put(PLACED)
    assert await _next(woken) == ("ada", PLACED)
    streams.close("ada")
    await asyncio.to_thread(until, lambda: not _threads())
    assert events.opened == ["ada"]


def _threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "console-events"]


async def test_after_a_lost_stream_all_pages_are_read(woken: Woken) -> None:
    events = _Events()
    streams = Waking(events, lambda *one: woken.put_nowait(one))
    streams.open("")
    for one in (frozenset[str](), Fault("the core is away"), frozenset[str](), PLACED):
        events.said[""].put(one)
    assert [await _next(woken) for _ in range(2)] == [("", frozenset()), ("", PLACED)]
    assert events.opened == ["", ""]
    streams.close("")


async def test_there_is_a_limit_of_streams(monkeypatch: pytest.MonkeyPatch, woken: Woken) -> None:
    monkeypatch.setattr(waking, "STREAMS_MAX", 1)
    events = _Events()
    streams = Waking(events, lambda *one: woken.put_nowait(one))
    streams.open("ada")
    streams.open("bob")
    events.said["ada"].put(PLACED)
    assert (await _next(woken))[0] == "ada"
    assert events.opened == ["ada"]
    for token in ("ada", "bob"):
        streams.close(token)


async def test_the_end_of_a_stream_makes_room_for_another_token(
    monkeypatch: pytest.MonkeyPatch, woken: Woken
) -> None:
    monkeypatch.setattr(waking, "STREAMS_MAX", 1)
    events = _Events()
    streams = Waking(events, lambda *one: woken.put_nowait(one))
    streams.open("ada")
    streams.open("bob")
    streams.close("ada")
    events.said["bob"].put(PLACED)
    assert await _next(woken) == ("bob", PLACED)
    streams.close("bob")


async def test_a_refused_stream_takes_no_room_and_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, woken: Woken
) -> None:
    monkeypatch.setattr(waking, "STREAMS_MAX", 1)
    monkeypatch.setattr(waking, "AGAIN_MAX_S", 0.0)
    events = _Events()
    events.refuses.add("tenant")
    streams = Waking(events, lambda *one: woken.put_nowait(one))
    streams.open("tenant")
    streams.open("ada")
    events.said["ada"].put(PLACED)
    assert await _next(woken) == ("ada", PLACED)
    events.refuses.clear()
    streams.close("ada")
    events.said["tenant"].put(PLACED)
    assert await _next(woken) == ("tenant", PLACED)
    streams.close("tenant")
    await asyncio.to_thread(until, lambda: not _threads())


def test_the_wait_before_a_stream_is_opened_again_depends_on_its_end() -> None:
    for code, refused, wait in (
        (grpc.StatusCode.PERMISSION_DENIED, True, 3.0),
        (grpc.StatusCode.UNAVAILABLE, False, 3.0),
        (grpc.StatusCode.DEADLINE_EXCEEDED, False, 0.0),
    ):
        fault = _fault(FakeCore(WatchEvents=Failure(code, "because")), code)
        assert waking._is_refused(fault) is refused
        assert waking._wait_after(fault, 3.0) == wait
    assert waking._is_refused(LogInFault(""))


def _fault(fake: FakeCore, code: grpc.StatusCode) -> Fault:
    fake.kinds_fault = Failure(code, "because")
    with running(fake), pytest.raises(Fault) as found:
        list(_source(fake).kinds("", lambda _: None))
    assert status_of(found.value) is code
    return found.value


def _source(fake: FakeCore) -> Source:
    context = Context(core=fake.address)
    return Source(Connection(lambda _token: connected_core(context, "", 5.0), lambda: 0.0))


# The console ----------------------------------------------------------------------------------------------------


def test_an_event_changes_a_page_before_its_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenhand_console.app.VIEWS", SELDOM)
    fake, later = core(), core("later")
    fake.kinds = queue.Queue()
    with console(fake) as client:
        for path in ("/queues", "/decisions"):
            assert "later" not in client.get(path).text
        for method in ("GetQueueTree", "ListDecisions"):
            fake.answers[method] = later.answers[method]
        fake.kinds.put(["placed"])
        until(lambda: "root.later" in client.get("/queues").text)
        assert "later" not in client.get("/decisions").text
        fake.kinds.put(["decision"])
        until(lambda: "later" in client.get("/decisions").text)


def test_the_calls_of_a_page_are_made_at_the_same_time() -> None:
    together = threading.Barrier(2, timeout=PATIENCE_S)
    other = begin(together.wait)
    assert {together.wait(), other.result()} == {0, 1}


def test_the_core_accepts_as_many_calls_at_once_as_the_console_makes() -> None:
    """All pages may have one identity. A reader may make a call itself while other threads make its other calls."""
    assert THREADS_MAX + CALLS_MAX + ASKS_MAX <= CALLER_READS_MAX
