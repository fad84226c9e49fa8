"""Queries that are answered in copies of the process: their answers, their failures, and that only the caller waits."""

import asyncio
import contextlib
import errno
import os
import platform
import select
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from evenhand.v1 import decisions_pb2, explain_pb2, inspect_pb2, reports_pb2, simulate_pb2
from server.rpc import copies as module
from server.rpc import fork_pace
from server.rpc.copies import Copies
from server.rpc.errors import CallError, not_found
from server.rpc.fork_pace import _BUSY_S, _BUSY_SLICES, ForkPace
from server.rpc.reads import InPlace, Question, Read, Reads
from server.rpc.roles import CALLER, LOCAL_OPERATOR, Caller, Role
from server.rpc.slices import LONG_NS
from tests.rpc.copied import SHARED
from tests.rpc.harness import PATIENCE_S, until
from tests.rpc.test_decisions_live import full

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(sys.platform != "linux", reason="copies are made on Linux alone"),
]
ANNA = Caller("anna", Role.OPERATOR)


@pytest_asyncio.fixture
async def busy() -> AsyncIterator[Copies]:
    """Make copies of a core that makes many decisions, at an instant that lasts for ever."""
    made = Copies(lambda: 0.0)
    for _ in range(_BUSY_SLICES):
        made.sliced(1, 0.0, 0)
    yield made
    made.close()
    await until(lambda: not made.running)


@pytest_asyncio.fixture
async def copies() -> AsyncIterator[Copies]:
    made = Copies(time.perf_counter)
    yield made
    made.close()
    await until(lambda: not made.running)


def question(request: bytes = b"", caller: Caller = LOCAL_OPERATOR) -> Question:
    return Question("a.Service.Read", request, caller)


def number(value: int) -> bytes:
    return str(value).encode()


async def failure(answer: asyncio.Future[bytes] | asyncio.Task[bytes]) -> CallError:
    with pytest.raises(CallError) as found:
        await asyncio.wait_for(answer, PATIENCE_S)
    return found.value


def asked(reads: Reads, read: Callable[[], bytes], name: bytes = b"") -> asyncio.Task[bytes]:
    return asyncio.create_task(reads.answer(question(name), read))


async def endless(reads: Reads) -> asyncio.Task[bytes]:
    """Begin a read that never ends."""
    never, begun = SHARED.Event(), SHARED.Event()

    def read() -> bytes:
        begun.set()
        never.wait()
        return b""

    answer = asked(reads, read)
    await until(begun.is_set)
    return answer


@pytest.mark.parametrize("size", [0, 1, 5_000_000])
async def test_an_answer_of_any_size_comes_back(copies: Copies, size: int) -> None:
    assert await copies.answer(question(), lambda: b"x" * size) == b"x" * size


async def test_a_read_runs_elsewhere_and_changes_nothing_here(copies: Copies) -> None:
    held = [1]

    def read() -> bytes:
        held.append(2)
        return number(os.getpid())

    assert int(await copies.answer(question(), read)) != os.getpid()
    assert held == [1]
    assert int(await InPlace().answer(question(), lambda: number(os.getpid()))) == os.getpid()


async def test_a_read_sees_what_was_there_when_it_began(copies: Copies) -> None:
    begun, changed = SHARED.Event(), SHARED.Event()
    held = [1]

    def read() -> bytes:
        before = held[0]
        begun.set()
        changed.wait(PATIENCE_S)
        return number(10 * before + held[0])

    answer = asked(copies, read)
    await until(begun.is_set)
    held[0] = 2
    changed.set()
    assert await answer == b"11"


async def test_a_read_knows_its_caller(copies: Copies) -> None:
    def read() -> bytes:
        return CALLER.get().name.encode()

    async def ask(caller: Caller) -> bytes:
        CALLER.set(caller)
        return await copies.answer(question(b"", caller), read)

    both = [asyncio.create_task(ask(one)) for one in (LOCAL_OPERATOR, ANNA)]
    assert await asyncio.gather(*both) == [b"local", b"anna"]


async def test_a_failure_comes_back_with_its_details(copies: Copies) -> None:
    def read() -> bytes:
        raise not_found("queue", "root.nowhere")

    found = await failure(asked(copies, read))
    assert (found.code, found.reason) == (grpc.StatusCode.NOT_FOUND, "NOT_FOUND")
    assert found.status() == not_found("queue", "root.nowhere").status()


async def test_a_defect_is_told_as_one(copies: Copies) -> None:
    def read() -> bytes:
        raise ZeroDivisionError

    assert (await failure(asked(copies, read))).code is grpc.StatusCode.INTERNAL


async def test_questions_that_wait_together_are_answered_together_and_equal_ones_once(
    copies: Copies,
) -> None:
    times = SHARED.Value("i", 0)

    def read() -> bytes:
        with times.get_lock():
            times.value += 1
        return number(os.getpid())

    # The first one has a copy of its own; the others come while no further one may be made yet.
    first = asked(copies, read, b"first")
    others = [asked(copies, read, name) for name in (b"a", b"a", b"b", b"a", b"b")]
    pids = await asyncio.gather(*others)
    assert times.value == 3
    assert pids[0] == pids[1] == pids[3]
    assert pids[2] == pids[4]
    assert await first not in pids


async def test_equal_questions_of_two_callers_are_two(copies: Copies) -> None:
    await copies.answer(question(), bytes)
    ours, theirs = (
        asyncio.create_task(copies.answer(question(b"", one), one.name.encode))
        for one in (LOCAL_OPERATOR, ANNA)
    )
    assert (await ours, await theirs) == (b"local", b"anna")


async def test_a_limit_says_so_when_it_is_reached(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "READS_WAITING_MAX", 1)
    never = SHARED.Event()
    running = asked(copies, lambda: bytes(never.wait()))
    await until(lambda: len(copies.running) > 0)
    found = await failure(asked(copies, bytes))
    assert (found.code, found.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_REACHED")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert await copies.answer(question(), bytes) == b""


async def test_more_copies_than_allowed_are_not_made(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COPIES_MAX", 1)
    free, begun = SHARED.Event(), SHARED.Event()

    def read() -> bytes:
        begun.set()
        free.wait(PATIENCE_S)
        return b"slow"

    slow = asked(copies, read, b"slow")
    await until(begun.is_set)
    others = [asked(copies, bytes, name) for name in (b"a", b"b")]
    await asyncio.sleep(0)
    assert len(copies.running) == 1
    free.set()
    assert await asyncio.gather(slow, *others) == [b"slow", b"", b""]


async def test_a_copy_ends_when_nobody_waits_for_it(copies: Copies) -> None:
    answer = await endless(copies)
    answer.cancel()
    await until(lambda: not copies.running)


async def test_who_waits_behind_one_that_gave_up_is_answered(copies: Copies) -> None:
    await copies.answer(question(), bytes)
    first, second = asked(copies, bytes, b"same"), asked(copies, lambda: b"same", b"same")
    await asyncio.sleep(0)
    first.cancel()
    assert await second == b""


async def test_a_read_that_takes_too_long_is_ended(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = SHARED.Event()
    monkeypatch.setattr(module, "COPY_S_MAX", 0.1)
    found = await failure(asked(copies, lambda: bytes(never.wait())))
    assert (found.code, found.reason) == (grpc.StatusCode.DEADLINE_EXCEEDED, "READ_ENDED")


async def test_a_read_that_takes_too_much_processor_time_is_ended(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read() -> bytes:
        while True:
            pass

    monkeypatch.setattr(module, "COPY_CPU_S_MAX", 1)
    found = await failure(asked(copies, read))
    assert (found.code, found.reason) == (grpc.StatusCode.DEADLINE_EXCEEDED, "READ_ENDED")
    assert "1 s of processor time" in found.message


async def test_a_copy_that_is_killed_fails_its_own_questions_only(copies: Copies) -> None:
    def read() -> bytes:
        os.kill(os.getpid(), signal.SIGKILL)
        return b""

    found = await failure(asked(copies, read))
    assert (found.code, found.reason) == (grpc.StatusCode.UNAVAILABLE, "READ_ENDED")
    assert await copies.answer(question(), lambda: b"fine") == b"fine"


async def test_a_question_that_ends_its_copy_takes_no_other_question_with_it(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COPIES_MAX", 1)

    def ends() -> bytes:
        os.kill(os.getpid(), signal.SIGKILL)
        return b""

    first = asked(copies, ends, b"first")
    others = [asked(copies, lambda: b"fine", name) for name in (b"a", b"b", b"a")]
    assert (await failure(first)).reason == "READ_ENDED"
    assert await asyncio.gather(*others) == [b"fine"] * 3


async def test_a_question_that_ran_into_the_limit_is_slow_from_then_on(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = SHARED.Event()
    monkeypatch.setattr(fork_pace, "_REST", 0)
    await asked(copies, bytes)
    with monkeypatch.context() as patched:
        patched.setattr(module, "COPY_S_MAX", 0.1)
        await failure(asked(copies, lambda: bytes(never.wait()), b"first"))
    free = SHARED.Event()

    def read() -> bytes:
        free.wait(PATIENCE_S)
        return number(os.getpid())

    both = [asked(copies, read, name) for name in (b"a", b"b")]
    await until(lambda: len(copies.running) > 1)
    free.set()
    first, second = await asyncio.gather(*both)
    assert first != second


async def test_where_no_copy_can_be_made_the_caller_is_told(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fork() -> int:
        raise OSError(errno.EAGAIN, "no more processes")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fork", fork)
        found = await failure(asked(copies, bytes))
    assert (found.code, found.reason) == (grpc.StatusCode.UNAVAILABLE, "READ_ENDED")
    assert "no more processes" in found.message
    assert await copies.answer(question(), bytes) == b""


async def test_where_no_pipe_can_be_made_the_caller_is_told(
    busy: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The many connections of clients may leave no file descriptor. The pump goes on, which calls `idle`."""

    def pipe() -> tuple[int, int]:
        raise OSError(errno.EMFILE, "too many open files")

    answer = asked(busy, bytes)
    await until(lambda: busy._awaits_idle)
    with monkeypatch.context() as patched:
        patched.setattr(os, "pipe", pipe)
        busy.idle()
    found = await failure(answer)
    assert (found.code, found.reason) == (grpc.StatusCode.UNAVAILABLE, "READ_ENDED")
    assert "too many open files" in found.message
    assert await asked(busy, bytes) == b""


async def test_what_is_not_answered_when_the_server_ends_is_told_so(copies: Copies) -> None:
    running = await endless(copies)
    waiting = asked(copies, bytes, b"later")
    await asyncio.sleep(0)
    copies.close()
    for one in (running, waiting, asked(copies, bytes)):
        assert (await failure(one)).reason == "DRAINING"


async def test_a_copy_keeps_nothing_of_its_parent_open_and_steps_back(copies: Copies) -> None:
    def read() -> bytes:
        names = sorted(map(int, os.listdir("/proc/self/fd")))
        # The standard streams, the pipe of answers, and the folder that is being listed.
        score = Path("/proc/self/oom_score_adj").read_text(encoding="ascii").strip()
        return f"{len([one for one in names if one > 2])} {os.nice(0)} {score}".encode()

    before = os.nice(0)
    assert await copies.answer(question(), read) == f"2 {min(before + 10, 19)} 1000".encode()


def slice_ns() -> int:
    """Return the time slice of the calling process."""
    lines = Path("/proc/self/sched").read_text(encoding="ascii").splitlines()
    return next(int(one.split(":")[1]) for one in lines if one.startswith("se.slice"))


SLICES = (6, 12)
"""The first version of Linux in which a process may choose its slice."""


@pytest.mark.skipif(
    tuple(map(int, platform.release().split(".")[:2])) < SLICES
    or not Path("/proc/self/sched").exists(),
    reason="this kernel lets no process choose its slice, or does not show it",
)
async def test_the_core_need_not_wait_for_the_slice_of_a_copy(copies: Copies) -> None:
    """A thread that wakes up takes the processor at once from a process with a longer slice."""
    before = slice_ns()
    assert int(await copies.answer(question(), lambda: number(slice_ns()))) == LONG_NS > before
    assert slice_ns() == before, "the core itself keeps its slice"


class Forks:
    """Forks and timers by a clock that stands still except in them: a fork takes a second, of which `cpu_s` are processor time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cpu_s: float = 1.0) -> None:
        self.now = self.cpu = 0.0
        self.begun: list[float] = []
        fork = module._forked

        def slow() -> int:
            self.begun.append(self.now)
            self.now += 1.0
            self.cpu += cpu_s
            return fork()

        self.copies = Copies(lambda: self.now, lambda: self.cpu)
        monkeypatch.setattr(module, "_forked", slow)
        loop = asyncio.get_running_loop()
        call_later = loop.call_later

        def call_soon(delay: float, callback: Any, *given: Any) -> asyncio.TimerHandle:
            if getattr(callback, "__self__", None) is not self.copies:
                return call_later(delay, callback, *given)
            self.now += delay
            return call_later(0.0, callback)

        monkeypatch.setattr(loop, "call_later", call_soon)

    async def ask(self, times: int) -> list[float]:
        """Ask questions one after the other, end the copies, and return the instants of the forks."""
        for number_ in range(times):
            assert await asked(self.copies, bytes, number(number_)) == b""
        self.copies.close()
        await until(lambda: not self.copies.running)
        return self.begun


async def test_forks_take_a_bounded_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a quiet time three forks follow each other, a second apart. Then each fork waits for the pause that one earns."""
    begun = await Forks(monkeypatch).ask(6)
    assert begun[:3] == pytest.approx([0.0, 2.0, 4.0], abs=0.01)
    assert begun[3:] == pytest.approx([21.0, 42.0, 63.0], abs=3.0)
    assert begun[5] - begun[3] >= 2 * 20.0


async def test_the_pause_after_a_fork_is_counted_in_processor_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Other processes may keep the processor from a fork for long: that says nothing about the time that forks take."""
    begun = await Forks(monkeypatch, cpu_s=0.01).ask(6)
    assert begun == pytest.approx([0.0, 2.0, 4.0, 6.0, 8.0, 10.0], abs=0.1)


async def test_a_busy_core_makes_a_copy_when_it_is_idle(busy: Copies) -> None:
    """Every ask that arrives during a fork waits for its end: just after a slice, the fewest arrive."""
    answer = asked(busy, lambda: number(os.getpid()))
    await until(lambda: busy._awaits_idle)
    assert not busy.running
    busy.idle()
    assert len(busy.running) == 1
    assert await answer != number(os.getpid())
    busy.idle()
    assert not busy._awaits_idle


async def test_a_busy_core_that_is_never_idle_makes_copies_too(busy: Copies) -> None:
    assert await asked(busy, lambda: number(os.getpid())) != number(os.getpid())


async def test_slices_without_events_keep_no_core_busy() -> None:
    copies = Copies(lambda: 0.0)
    for _ in range(_BUSY_SLICES):
        copies.sliced(0, 0.0, 0)
    assert not copies._pace.is_busy


async def test_a_core_is_busy_that_had_many_slices_within_a_second() -> None:
    now = [100.0]
    pace = ForkPace(lambda: now[0])
    for _ in range(_BUSY_SLICES):
        assert not pace.is_busy
        pace.sliced()
    assert pace.is_busy
    now[0] += _BUSY_S
    assert pace.is_busy
    now[0] += 0.001
    assert not pace.is_busy


async def test_forks_of_a_busy_core_take_a_hundredth_of_the_time() -> None:
    now = [0.0]
    pace = ForkPace(lambda: now[0])

    def forks(many: int) -> list[float]:
        """Make forks of 10 ms, each as soon as the pace allows, and return the times between them."""
        begun: list[float] = []
        for _ in range(many):
            now[0] = max(now[0], pace.not_before)
            begun.append(now[0])
            now[0] += 0.01
            pace.forked(begun[-1], now[0], 0.01)
        return [later - earlier for earlier, later in pairwise(begun)]

    assert forks(5) == pytest.approx([0.02, 0.02, 0.17, 0.2], abs=0.005)
    now[0] += 10.0
    for _ in range(_BUSY_SLICES):
        pace.sliced()
    assert forks(2) == pytest.approx([1.01])


async def test_the_time_of_a_question_is_its_processor_time(copies: Copies) -> None:
    """On a busy machine an answer may take long because other processes have the processor."""

    def waits() -> bytes:
        select.select([], [], [], 0.3)
        return b""

    def works() -> bytes:
        until_cpu = time.process_time() + 0.1
        while time.process_time() < until_cpu:
            pass
        return b""

    await asked(copies, waits)
    assert copies._took["a.Service.Read"] < 0.25
    await asked(copies, works)
    assert copies._took["a.Service.Read"] >= 0.1


async def test_questions_that_come_shortly_after_each_other_get_one_copy() -> None:
    """A question waits for others as long as they come, and for a bounded time."""
    seconds = [0.0]
    copies = Copies(lambda: seconds[0])
    copies._took["a.Service.Read"] = 0.01
    loop = asyncio.get_running_loop()
    pids: list[asyncio.Task[bytes]] = []
    for name in range(4):
        pids.append(asked(copies, lambda: number(os.getpid()), number(name)))
        await asyncio.sleep(0)
        timer = copies._timer
        assert timer is not None
        wait = timer.when() - loop.time()
        timer.cancel()
        seconds[0] += 0.0009
        assert wait <= module._GATHER_S
    assert not copies.running
    seconds[0] += module._GATHER_S_MAX
    copies._gather()
    assert len(set(await asyncio.gather(*pids))) == 1
    copies.close()
    await until(lambda: not copies.running)


async def test_questions_join_a_copy_if_another_one_would_begin_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a fork that earned a pause of 20 s, questions of 15 s get one copy. Two copies would answer the last one later."""
    forks = Forks(monkeypatch)
    copies = forks.copies
    await asked(copies, bytes)
    copies._took["a.Service.Read"] = 5.0
    pids = await asyncio.gather(
        *(asked(copies, lambda: number(os.getpid()), number(one)) for one in range(3))
    )
    assert len(set(pids)) == 1
    await forks.ask(0)


async def test_quick_questions_that_come_together_get_one_copy() -> None:
    copies = Copies(lambda: 0.0)

    def read() -> bytes:
        return number(os.getpid())

    assert await asked(copies, read) != number(os.getpid())
    pids = await asyncio.gather(*(asked(copies, read, number(one)) for one in range(8)))
    assert len(set(pids)) == 1
    copies.close()
    await until(lambda: not copies.running)


@pytest.mark.parametrize("copies_max", [1, 4])
async def test_slow_questions_are_divided_and_the_quickest_of_a_copy_is_first(
    monkeypatch: pytest.MonkeyPatch, copies_max: int
) -> None:
    monkeypatch.setattr(module, "COPIES_MAX", copies_max)
    copies = Copies(lambda: 0.0)
    copies._took |= {"slow": 1.0, "quick": 0.01}
    order: dict[bytes, list[str]] = {}

    async def ask(method: str, name: bytes = b"") -> None:
        given = Question(method, name, LOCAL_OPERATOR)
        pid = await copies.answer(given, lambda: number(os.getpid()))
        order.setdefault(pid, []).append(method)

    slow = [ask("slow", number(one)) for one in range(3)]
    await asyncio.gather(*slow, ask("quick"))
    # Nothing orders the answers of different copies.
    alone = [["slow"]] * 2 if copies_max > 1 else []
    together = ["quick", "slow"] if copies_max > 1 else ["quick", "slow", "slow", "slow"]
    assert sorted(order.values()) == [together, *alone], "the quick one needs no copy of its own"
    copies.close()
    await until(lambda: not copies.running)


class Both:
    """Reads made twice, in a copy and in place, with answers that must be equal."""

    apart = True

    def __init__(self) -> None:
        self._copies, self._here = Copies(time.perf_counter), InPlace()
        self.methods: set[str] = set()

    async def answer(self, question: Question, read: Read) -> bytes:
        """Return the answer, or raise the failure, of both."""
        self.methods.add(question.method)
        here, there = await asyncio.gather(
            self._here.answer(question, read),
            self._copies.answer(question, read),
            return_exceptions=True,
        )
        assert _told(here) == _told(there)
        if isinstance(here, BaseException):
            raise here
        return here

    def hold(self) -> None:
        """Hold both back."""
        self._copies.hold()
        self._here.hold()

    def go_on(self) -> None:
        """Let both go on."""
        self._here.go_on()
        self._copies.go_on()

    def close(self) -> None:
        """End what is not answered yet."""
        self._copies.close()


def _told(answer: object) -> object:
    return answer.status() if isinstance(answer, CallError) else answer


async def test_every_read_is_the_same_in_a_copy() -> None:
    both = Both()
    async with full(reads=both) as (served, _):
        for file in (inspect_pb2, explain_pb2, decisions_pb2, simulate_pb2, reports_pb2):
            for service in file.DESCRIPTOR.services_by_name.values():
                for method in service.methods:
                    if method.server_streaming:
                        continue
                    call: Any = served.channel.unary_unary(f"/{service.full_name}/{method.name}")
                    for request in _requests(method):
                        with contextlib.suppress(grpc.aio.AioRpcError):
                            await call(request.SerializeToString())
    assert len(both.methods) == 16


def _requests(method: Any) -> Iterator[Message]:
    """Yield an empty request, and one that names existing objects."""
    made = GetMessageClass(method.input_type)
    yield made()
    named = {"partition": "default", "queue": "root.lent", "key": "lent-1", "decision_id": "none"}
    fields = method.input_type.fields_by_name
    yield made(**{name: value for name, value in named.items() if name in fields})
