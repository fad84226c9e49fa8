"""The reads that are answered in copies of this process, so that no read delays a decision.

A copy is a child process made by `fork` between two slices of the pump. A copy has the whole core as of the fork. Copy and parent
share memory until one of the two processes writes to it. The copy answers its questions, and ends. A fork stops the parent for
1.5 ms with 50,000 pods. A copy runs at a lower priority than its parent and has a time limit. When memory is short, the kernel
ends a copy first. A copy uses nothing of gRPC, whose threads do not exist in the child. Answers are sent through a pipe.
"""

import asyncio
import contextlib
import gc
import os
import pickle
import resource
import signal
import struct
import time
import traceback
import warnings
from collections.abc import AsyncIterator, Callable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import islice
from pathlib import Path
from typing import Final, NoReturn

import grpc
import structlog

from server.model.decisions import Decisions
from server.rpc.errors import CallError, draining, too_many, unexpected
from server.rpc.fork_pace import ForkPace
from server.rpc.limits import COPIES_MAX, COPY_CPU_S_MAX, COPY_S_MAX, READS_WAITING_MAX
from server.rpc.reads import Question, Read
from server.rpc.slices import give_way

_log = structlog.get_logger(__name__)

_HEADER: Final = struct.Struct("!IBdI")
"""The header of an answer in the pipe: the number of its question, the kind of outcome, the seconds of processor time that the answer
took, and the number of bytes that follow."""
_GATHER_S: Final = 0.001
"""The time in seconds without a further question after which a copy is made.

A client often asks several questions at the same time.
"""
_GATHER_S_MAX: Final = 0.005
"""The longest time in seconds for which a question waits for others."""
_IDLE_S_MAX: Final = 0.05
"""The longest time in seconds for which a copy waits until a core that makes many decisions is idle for a moment."""
_QUICK_S: Final = 0.15
"""The processor time in seconds up to which a copy takes further questions.

The time of a question is estimated from the latest answer of its method.

Each further copy takes processor time itself: with 50,000 pods 6 ms of the core to make it, and 10 ms of its own. If the pause
of the latest fork was longer, the pause is the limit, because questions in another copy would begin only after the pause.
"""
_PRIORITY: Final = 10
"""The amount by which the nice value of a copy is higher than that of its parent."""
_FIRST_OWN_DESCRIPTOR: Final = 3
"""The first file descriptor after the standard streams."""


class _Outcome(IntEnum):
    ANSWER = 0
    FAILURE = 1
    """The answer is a pickled CallError."""
    DEFECT = 2
    """The answer is the traceback of an unexpected exception, in UTF-8."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """A question without an answer yet, with all callers that wait for it."""

    question: Question
    read: Callable[[], bytes]
    futures: list[asyncio.Future[bytes]] = field(default_factory=list)

    @property
    def wanted(self) -> bool:
        """Whether a caller still waits for the answer."""
        return any(not one.done() for one in self.futures)

    def settle(self, answer: bytes | CallError) -> None:
        """Pass the answer to all callers that wait for it."""
        for one in self.futures:
            if one.done():
                continue
            if isinstance(answer, CallError):
                one.set_exception(answer)
            else:
                one.set_result(answer)


@dataclass(slots=True, eq=False)
class _Copy:
    """A child process with the questions that it answers, in their order."""

    pid: int
    pipe: int
    questions: Sequence[_Waiting]
    answered: int = 0
    ended: bool = False

    @property
    def wanted(self) -> bool:
        """Whether a caller waits for an answer that the copy has not given yet."""
        return any(one.wanted for one in self.questions[self.answered :])

    def end(self) -> None:
        """Kill the process. Only the first call has an effect, because later another process may have the same process id."""
        if not self.ended:
            self.ended = True
            os.kill(self.pid, signal.SIGKILL)


class Copies:
    """The copies of this process, and the questions that they answer or that wait for a copy.

    If a copy can be made now, it is made when no further question has arrived for `_GATHER_S`, but at the latest
    `_GATHER_S_MAX` after the first question. Questions that arrive while no copy can be made are answered by the next copies.
    Equal questions are answered once. The waiting questions are divided among the copies that may be made, and a copy also
    takes further ones that are quick.

    The pool observes the pump. While the core makes many decisions, a copy is made when the pump has just become idle, so that few
    asks wait for the fork.
    """

    apart = True

    def __init__(
        self, seconds: Callable[[], float], cpu_seconds: Callable[[], float] | None = None
    ) -> None:
        """Make the pool, still without copies. ``seconds`` returns the time.

        ``cpu_seconds`` returns the processor time of the event loop's thread. Without ``cpu_seconds``, the processor time of a
        fork is measured by ``seconds``.
        """
        self._seconds = seconds
        self._cpu_seconds = cpu_seconds or seconds
        self._pace = ForkPace(seconds)
        self._awaits_idle = False
        """Whether the timer is for a copy that waits until the core is idle."""
        self._timer: asyncio.TimerHandle | None = None
        self._gather_until: float | None = None
        """The latest instant at which questions stop waiting for further questions.

        The value is None while no such wait is in progress.
        """
        self._waiting: dict[Question, _Waiting] = {}
        self._took: dict[str, float] = {}
        """The seconds of processor time that the latest answer of each method took.

        If a copy ended before its answer, the value is the time until the copy ended, or the earlier value if that is larger.
        """
        self.running: dict[_Copy, asyncio.Task[None]] = {}
        """The copies that have not ended yet, each with the task that reads its answers."""
        self._open = 0
        self._held = self._closed = False

    async def answer(self, question: Question, read: Read) -> bytes:
        """Return the result of ``read`` in a copy, or raise the CallError that ``read`` raises.

        Raise CallError also if too many reads wait, if the server stops, or if the copy cannot be made, ends early or takes too
        long.
        """
        if self._closed:
            raise draining()
        if self._open >= READS_WAITING_MAX:
            raise too_many("reads that wait for answers", READS_WAITING_MAX)
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._wait(question, read, copy_context(), future)
        self._open += 1
        try:
            return await future
        finally:
            self._open -= 1
            if future.cancelled():
                self._give_up()

    def hold(self) -> None:
        """Make no copy until `go_on` is called."""
        self._held = True

    def go_on(self) -> None:
        """Resume making copies. If a question waits and the limits allow a copy, make a copy at once."""
        self._held = False
        self._make()

    def decided(self, decisions: Decisions, now: int) -> None:
        """Do nothing."""

    def sliced(self, events: int, _seconds: float, _now: int) -> None:
        """Count a slice of the pump that had events."""
        if events:
            self._pace.sliced()

    def idle(self) -> None:
        """Make the copy that waits until the core is idle."""
        if self._awaits_idle and self._timer is not None:
            self._timer.cancel()
            self._waited()

    def close(self) -> None:
        """End all copies. Waiting callers get the error that the server stops."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for one in self._waiting.values():
            one.settle(draining())
        self._waiting.clear()
        for copy in self.running:
            copy.end()

    def _wait(
        self, question: Question, read: Read, context: Context, future: asyncio.Future[bytes]
    ) -> None:
        waiting = self._waiting.get(question)
        if waiting is None:
            waiting = self._waiting[question] = _Waiting(question, lambda: context.run(read))
        waiting.futures.append(future)
        self._gather()

    def _gather(self) -> None:
        """Schedule copies for `_GATHER_S` from now, but at most `_GATHER_S_MAX` after the first question of this wait.

        Do nothing if the timer waits for the pause of a fork, because copies are made after this pause.
        """
        now = self._seconds()
        if self._timer is None:
            until = self._gather_until = now + _GATHER_S_MAX
        elif self._gather_until is None:
            return
        else:
            until = self._gather_until
            self._timer.cancel()
        wait = max(0.0, min(_GATHER_S, until - now))
        self._timer = asyncio.get_running_loop().call_later(wait, self._rested)

    def _give_up(self) -> None:
        """Drop each question for which no caller waits any longer, and end each copy for whose answers no caller waits."""
        for one in [one for one in self._waiting.values() if not one.wanted]:
            del self._waiting[one.question]
        for copy in self.running:
            if not copy.wanted:
                copy.end()

    def _make(self, *, now: bool = False) -> None:
        """Make copies for the waiting questions, each as soon as the limits allow.

        Without ``now``, a copy also waits until a busy core is idle.
        """
        while not self._held and self._waiting and self._timer is None:
            free = COPIES_MAX - len(self.running)
            if not free:
                return
            loop = asyncio.get_running_loop()
            rest = self._pace.not_before - self._seconds()
            if rest > 0:
                self._timer = loop.call_later(rest, self._rested)
                return
            if self._pace.is_busy and not now:
                self._awaits_idle = True
                self._timer = loop.call_later(_IDLE_S_MAX, self._waited)
                return
            self._fork(self._chosen(-(-len(self._waiting) // free)))

    def _chosen(self, share: int) -> list[_Waiting]:
        """Remove and return the questions of the next copy, the quickest first.

        The copy gets the first ``share`` waiting questions. The copy gets a further question if this question and all quicker
        waiting questions together take no longer than the limit that `_QUICK_S` describes. In a copy, a question waits only for
        quicker questions.
        """
        first = {one.question for one in islice(self._waiting.values(), share)}
        chosen: list[_Waiting] = []
        whole, most = 0.0, max(_QUICK_S, self._pace.pause)
        for one in sorted(self._waiting.values(), key=self._seconds_of):
            whole += self._seconds_of(one)
            if one.question in first or whole <= most:
                chosen.append(self._waiting.pop(one.question))
        return chosen

    def _seconds_of(self, one: _Waiting) -> float:
        return self._took.get(one.question.method, _QUICK_S)

    def _rested(self) -> None:
        self._timer = self._gather_until = None
        self._make()

    def _waited(self) -> None:
        self._timer, self._awaits_idle = None, False
        self._make(now=True)

    def _fork(self, questions: Sequence[_Waiting]) -> None:
        ends: tuple[int, ...] = ()
        try:
            ends = reading, writing = os.pipe()
            started, cpu = self._seconds(), self._cpu_seconds()
            pid = _forked()
        except OSError as error:
            for end in ends:
                os.close(end)
            for one in questions:
                one.settle(_no_copy(f"none could be made: {error.strerror}"))
            return
        if pid == 0:
            _answer_all(writing, questions)
        self._pace.forked(started, self._seconds(), self._cpu_seconds() - cpu)
        os.close(writing)
        copy = _Copy(pid, reading, questions)
        self.running[copy] = asyncio.create_task(self._follow(copy))

    async def _follow(self, copy: _Copy) -> None:
        """Pass on the answers of a copy, then kill the copy.

        `_leave` handles the questions that the copy left without an answer.
        """
        failure: CallError | None = None
        try:
            async with asyncio.timeout(COPY_S_MAX):
                await self._receive(copy)
        except TimeoutError:
            failure = _too_long(f"{COPY_S_MAX:.0f} s")
        finally:
            copy.end()
            status = await asyncio.to_thread(_ended, copy.pid)
            del self.running[copy]
            failure = failure or _failure(status)
            if self._closed:
                for one in copy.questions[copy.answered :]:
                    one.settle(draining())
            else:
                self._leave(copy, failure)
                self._make()

    def _leave(self, copy: _Copy, failure: CallError) -> None:
        """Fail the question on which a copy worked when the copy ended. The later questions of this copy wait for another copy."""
        if copy.answered == len(copy.questions):
            return
        examined, *behind = copy.questions[copy.answered :]
        examined.settle(failure)
        for one in behind:
            if one.wanted:
                known = self._waiting.setdefault(one.question, one)
                if known is not one:
                    known.futures += one.futures

    async def _receive(self, copy: _Copy) -> None:
        """Read answers from the pipe of a copy and pass them on, until all questions are answered or the pipe ends."""
        begun = self._seconds()
        try:
            async for number, cpu, answer in _answers(copy):
                one = copy.questions[number]
                one.settle(answer)
                copy.answered = number + 1
                begun = self._seconds()
                self._took[one.question.method] = cpu
        finally:
            if copy.answered < len(copy.questions):
                one = copy.questions[copy.answered]
                least = self._seconds() - begun
                self._took[one.question.method] = max(least, self._seconds_of(one))


async def _answers(copy: _Copy) -> AsyncIterator[tuple[int, float, bytes | CallError]]:
    """Yield the answers of a copy, until all questions are answered or the pipe ends.

    Each answer comes with the number of its question and the seconds of processor time that it took.
    """
    stream = asyncio.StreamReader()
    file = os.fdopen(copy.pipe, "rb", buffering=0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), file
    )
    try:
        while copy.answered < len(copy.questions):
            number, kind, cpu, length = _HEADER.unpack(await stream.readexactly(_HEADER.size))
            yield number, cpu, _answer(kind, await stream.readexactly(length))
    except asyncio.IncompleteReadError:
        return
    finally:
        transport.close()


def _answer(kind: int, data: bytes) -> bytes | CallError:
    match _Outcome(kind):
        case _Outcome.ANSWER:
            return data
        case _Outcome.FAILURE:
            failure: CallError = pickle.loads(data)  # noqa: S301 - of our own child
            return failure
        case _Outcome.DEFECT:
            _log.error("rpc.read-failed", traceback=data.decode())
            return unexpected()


def _no_copy(why: str) -> CallError:
    message = f"reads are answered by a copy of the process, and {why}"
    return CallError(grpc.StatusCode.UNAVAILABLE, "READ_ENDED", message)


def _failure(status: int) -> CallError:
    """Return the error for the question on which a copy worked when the copy ended with this wait status."""
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
        return _too_long(f"{COPY_CPU_S_MAX} s of processor time")
    return _no_copy("it ended before its answer")


def _ended(pid: int) -> int:
    """Wait for the end of a child and return its wait status. Return 0 if the status is not known."""
    try:
        return os.waitpid(pid, 0)[1]
    except ChildProcessError:
        return 0


def _too_long(limit: str) -> CallError:
    message = f"the read took longer than {limit}: ask for less at once"
    return CallError(grpc.StatusCode.DEADLINE_EXCEEDED, "READ_ENDED", message)


def _forked() -> int:
    """Fork, as `os.fork` does, without its warning and with garbage collection off in the child.

    Python warns if other threads exist. The child uses nothing that these threads might have locked. The child must not collect
    garbage, because garbage may include objects of gRPC, which only gRPC's threads can end.
    """
    collecting = gc.isenabled()
    gc.disable()
    pid = 0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
    finally:
        if collecting and pid:
            gc.enable()
    return pid


def _answer_all(pipe: int, questions: Sequence[_Waiting]) -> NoReturn:
    """Answer the questions in the child, then exit without touching anything that the parent opened."""
    try:
        _settle_in(pipe)
        for number, one in enumerate(questions):
            begun = time.process_time()
            kind, data = _read(one.read)
            cpu = time.process_time() - begun
            _write(pipe, _HEADER.pack(number, kind, cpu, len(data)) + data)
    finally:
        os._exit(0)


def _settle_in(pipe: int) -> None:
    os.nice(_PRIORITY)  # Until this call, the copy has the priority of the core.
    give_way()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    # A connection that the parent closes must end even while this child lives. Therefore the child closes its own
    # descriptors.
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor >= _FIRST_OWN_DESCRIPTOR and descriptor != pipe:
            with contextlib.suppress(OSError):  # `listdir` has closed the descriptor that it used.
                os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_CPU, (COPY_CPU_S_MAX, COPY_CPU_S_MAX + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # SIGXCPU would write the memory to disk.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _read(read: Callable[[], bytes]) -> tuple[_Outcome, bytes]:
    try:
        return _Outcome.ANSWER, read()
    except CallError as error:
        return _Outcome.FAILURE, pickle.dumps(error)
    except Exception:
        return _Outcome.DEFECT, traceback.format_exc().encode()


def _write(pipe: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(pipe, rest) :]
