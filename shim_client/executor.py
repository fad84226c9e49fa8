"""The executor of the shim's actions on the cluster.

The executor acts on many objects at a time, and carries out the actions on one object in order. An action is tried
again if its failure may be temporary, and the final result of each action is reported. Bindings and deletions are
carried out before conditions, and conditions before events, because information for users must not delay the other
actions. Events have their own queues.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Protocol

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt

from shim_client.cluster import (
    Action,
    Bind,
    ClusterError,
    ConflictError,
    CreatePod,
    DeletePod,
    EventWriter,
    EvictPod,
    FencedError,
    MissingError,
    ObjectRef,
    OwnerReader,
    PatchPod,
    PodWriter,
    ReadOwner,
    RecordEvent,
    ReleasePod,
)
from shim_client.config import VOLUME_BIND_MS

IN_FLIGHT_MAX = 40
"""Maximum number of requests to the cluster that are in flight."""
EVENTS_IN_FLIGHT_MAX = 2
"""Maximum number of requests in flight that record events."""
EVENTS_WAITING_MAX = 10_000
"""Maximum number of events that wait to be recorded.

When this number is reached, new events are dropped and counted.
"""
BIND_PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0)
"""Seconds between the attempts to bind a pod that waits for no volume."""
VOLUME_PAUSE_MAX = 30.0
"""Longest pause, in seconds, between two checks whether the volumes of a pod are bound."""
POD_PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Seconds between the attempts to create, delete or change a pod; in total long enough for an API server to restart."""
EVENT_PAUSES = (1.0, 2.0, 4.0)
"""Seconds between the attempts to record an event."""
OWNER_PAUSES = (1.0, 2.0)
"""Seconds between the attempts to read an owner.

There are few attempts, because a job waits for the answer. Without an answer, the shim counts the members of the job.
"""
RETRY_AFTER_MAX = 60.0
"""Longest pause, in seconds, that the cluster can request."""

Told = Callable[[Action, ClusterError | None], Awaitable[None]]
Sleep = Callable[[float], Awaitable[None]]


class Writer(PodWriter, EventWriter, OwnerReader, Protocol):
    """The part of a cluster that carries out actions."""


@dataclass(slots=True)
class Progress:
    """Counts of the actions that are not done yet."""

    waiting: int = 0
    """Number of actions that are queued or being carried out."""
    events_waiting: int = 0
    """Number of events among the waiting actions."""


class Gate:
    """A semaphore that admits the waiter with the lowest urgency number first."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._arrivals = 0

    @asynccontextmanager
    async def place(self, urgency: int) -> AsyncIterator[None]:
        """Hold one place of the semaphore while the block runs. Waiters with the lowest `urgency` are admitted first."""
        if self._free:
            self._free -= 1
        else:
            await self._queue(urgency)
        try:
            yield
        finally:
            self._leave()

    async def _queue(self, urgency: int) -> None:
        self._arrivals += 1
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (urgency, self._arrivals, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave()
            raise

    def _leave(self) -> None:
        while self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class Applier:
    """The queues of actions on the cluster.

    `told` is called with the result of each binding, creation, deletion, release and reading, and with each failure. A pod
    waits for the volumes of its claims for at most `volumes_ms` milliseconds.
    """

    def __init__(
        self,
        writer: Writer,
        told: Told,
        sleep: Sleep = asyncio.sleep,
        *,
        volumes_ms: int = VOLUME_BIND_MS,
    ) -> None:
        self._writer = writer
        self._volume_pauses = volume_pauses(volumes_ms / 1000)
        self._told = told
        self._sleep = sleep
        self._gate = Gate(IN_FLIGHT_MAX)
        self._events_gate = Gate(EVENTS_IN_FLIGHT_MAX)
        self._lanes: dict[str, deque[Action]] = {}
        """Waiting actions by object, without the action that is being carried out."""
        self._ready: asyncio.Queue[str] = asyncio.Queue()
        self._in_flight = 0
        self._is_ending = False
        self._idle = asyncio.Event()
        self._idle.set()
        self.progress = Progress()

    def submit(self, actions: Iterable[Action]) -> None:
        """Queue actions.

        An action begins after the earlier actions on its object have ended. An event is recorded after the earlier
        events on its object. Events beyond EVENTS_WAITING_MAX are dropped.
        """
        for action in actions:
            if not self._accepts(action):
                continue
            key = _lane_of(action)
            lane = self._lanes.get(key)
            if lane is None:
                lane = self._lanes[key] = deque()
                self._ready.put_nowait(key)
            self._drop_stale(lane, action)
            lane.append(action)
            self._count(action, 1)

    async def run(self) -> None:
        """Carry out queued actions until cancelled."""
        async with asyncio.TaskGroup() as lanes:
            while True:
                key = await self._ready.get()
                lanes.create_task(self._run_lane(key))

    async def finish(self, seconds: float) -> None:
        """Begin no further action, and wait for the requests that are in flight, for at most `seconds`."""
        self._is_ending = True
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()

    def _accepts(self, action: Action) -> bool:
        crowded = self.progress.events_waiting >= EVENTS_WAITING_MAX
        return not (crowded and isinstance(action, RecordEvent))

    def _count(self, action: Action, change: int) -> None:
        self.progress.waiting += change
        self.progress.events_waiting += change * isinstance(action, RecordEvent)

    def _drop_stale(self, lane: deque[Action], action: Action) -> None:
        """Remove a waiting order to write a condition, if the new action writes a newer condition or binds the pod."""
        if lane and _is_condition(lane[-1]) and (_is_bind_at_once(action) or _is_condition(action)):
            self._count(lane.pop(), -1)

    async def _run_lane(self, key: str) -> None:
        lane = self._lanes[key]
        while lane:
            await self._finish(lane.popleft())
        del self._lanes[key]

    async def _finish(self, action: Action) -> None:
        error = await self._tried(action)
        self._count(action, -1)
        if error is not None or isinstance(action, Bind | CreatePod | DeletePod | ReleasePod):
            await self._told(action, error)

    async def _read(self, order: ReadOwner) -> None:
        """Read an owner, and report at once how many pods it wants."""
        wanted = await self._writer.pods_wanted(order.owner)
        await self._told(replace(order, wanted=wanted), None)

    async def _tried(self, action: Action) -> ClusterError | None:
        """Carry out an action; return None when an attempt succeeded, else the last error."""
        try:
            await self._once(action)
        except ClusterError as error:
            return await self._retried(action, error) if _may_pass(error) else error
        return None

    async def _retried(self, action: Action, error: ClusterError) -> ClusterError | None:
        """Retry an action whose first attempt failed; return None when an attempt succeeded, else the last error.

        The caller makes the first attempt, without the cost of the retry library, because the first attempt mostly
        succeeds.
        """
        failed = [error]

        async def once() -> None:
            if failed:
                raise failed.pop()
            await self._once(action)

        waits = isinstance(action, Bind) and action.claims
        pauses = self._volume_pauses if waits else _pauses(action)
        if not pauses:
            return error
        tries = AsyncRetrying(
            sleep=self._sleep,
            retry=retry_if_exception(_may_pass),
            wait=_pause_of(pauses),
            stop=stop_after_attempt(len(pauses) + 1),
            reraise=True,
        )
        try:
            await tries(once)
        except ClusterError as last:
            return last
        return None

    async def _once(self, action: Action) -> None:
        if isinstance(action, RecordEvent):
            async with self._events_gate.place(0), self._gate.place(_urgency(action)):
                await self._counted(action)
        else:
            async with self._gate.place(_urgency(action)):
                await self._counted(action)

    async def _counted(self, action: Action) -> None:
        """Carry out an action and count it as in flight. Raises FencedError while no action may begin."""
        if self._is_ending:
            raise FencedError("this shim is ending")
        self._in_flight += 1
        self._idle.clear()
        try:
            await self._do(action)
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._idle.set()

    async def _do(self, action: Action) -> None:
        match action:
            case Bind():
                await self._writer.bind(action)
            case CreatePod():
                await self._writer.create_pod(action)
            case DeletePod():
                await self._writer.delete_pod(action)
            case PatchPod():
                await self._writer.patch_pod(action)
            case ReleasePod():
                await self._release(action)
            case ReadOwner():
                await self._read(action)
            case RecordEvent():
                await self._writer.record_event(action)

    async def _release(self, order: ReleasePod) -> None:
        """Write the annotations that mark a pod as a victim, and end the pod only if the annotations were written.

        Without these annotations, a restarted shim could evict further pods for the preemptor.
        """
        if order.note is not None:
            await self._writer.patch_pod(order.note)
        if isinstance(order.end, EvictPod):
            await self._writer.evict_pod(order.end)
        elif order.end is not None:
            await self._writer.delete_pod(order.end)


def _lane_of(action: Action) -> str:
    ref = _subject(action)
    name = ref.uid or f"{ref.kind}/{ref.namespace}/{ref.name}"
    return f"event {name}" if isinstance(action, RecordEvent) else name


def _subject(action: Action) -> ObjectRef:
    match action:
        case RecordEvent(about=ref) | ReadOwner(owner=ref):
            return ref
        case _:
            return action.pod


def _is_condition(action: Action) -> bool:
    """Return whether an action only writes why a pod waits."""
    if not isinstance(action, PatchPod) or action.annotations or action.labels or action.phase:
        return False
    return action.condition is not None and action.condition[0] == "PodScheduled"


def _is_bind_at_once(action: Action) -> bool:
    """Return whether an action binds a pod without waiting for volumes."""
    return isinstance(action, Bind) and not action.claims


def _urgency(action: Action) -> int:
    if isinstance(action, RecordEvent):
        return 2
    return 1 if _is_condition(action) else 0


def _pauses(action: Action) -> tuple[float, ...]:
    if isinstance(action, RecordEvent):
        return EVENT_PAUSES
    if isinstance(action, ReadOwner):
        return OWNER_PAUSES
    return BIND_PAUSES if isinstance(action, Bind) else POD_PAUSES


def volume_pauses(seconds: float) -> tuple[float, ...]:
    """Return the pauses between the attempts to bind a pod that waits for volumes, in seconds; their sum is `seconds`."""
    pauses: list[float] = []
    left = seconds
    while left > 0:
        pauses.append(min(left, 2.0 ** len(pauses), VOLUME_PAUSE_MAX))
        left -= pauses[-1]
    return tuple(pauses)


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, ClusterError) and not isinstance(error, _FINAL)


_FINAL = (ConflictError, MissingError, FencedError)


def _pause_of(pauses: tuple[float, ...]) -> Callable[[RetryCallState], float]:
    """Return a function that returns the seconds to wait after a failed attempt.

    The wait is at least as long as the cluster requested.
    """

    def pause(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        asked = error.retry_after if isinstance(error, ClusterError) else 0.0
        usual = pauses[min(state.attempt_number, len(pauses)) - 1]
        return max(usual, min(asked, RETRY_AFTER_MAX))

    return pause
