"""Runs the mirror's actions on the cluster: many objects at once, one object's actions in order.

What fails for a reason that may pass is tried again; how it ended in the end is told back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from shim_client.cluster import (
    Action,
    Bind,
    ClusterError,
    ConflictError,
    DeletePod,
    EventWriter,
    MissingError,
    PatchPod,
    PodWriter,
    RecordEvent,
)

IN_FLIGHT_MAX = 40
"""Most requests to the cluster at the same time."""
BIND_PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0)
"""Seconds between the tries of a binding (specification 1.8)."""
OTHER_PAUSES = (1.0, 2.0, 4.0)
"""Seconds between the tries of everything else."""

Told = Callable[[Action, ClusterError | None], Awaitable[None]]
Sleep = Callable[[float], Awaitable[None]]


class Writer(PodWriter, EventWriter, Protocol):
    """What actions are done with."""


@dataclass(slots=True)
class Progress:
    """What was done so far."""

    done: int = 0
    failed: int = 0
    waiting: int = 0
    """Actions that are queued or under way."""


class Applier:
    """Does actions; `told` hears how each binding and deletion ended, and each failure."""

    def __init__(self, writer: Writer, told: Told, sleep: Sleep = asyncio.sleep) -> None:
        self._writer = writer
        self._told = told
        self._sleep = sleep
        self._lanes: dict[str, deque[Action]] = {}
        self._ready: asyncio.Queue[str] = asyncio.Queue()
        self.progress = Progress()

    def submit(self, actions: Iterable[Action]) -> None:
        """Queue actions, each behind those of the same object."""
        for action in actions:
            self.progress.waiting += 1
            key = _object_of(action)
            lane = self._lanes.get(key)
            if lane is None:
                self._lanes[key] = deque((action,))
                self._ready.put_nowait(key)
            else:
                lane.append(action)

    async def run(self) -> None:
        """Do what is queued until cancelled."""
        async with asyncio.TaskGroup() as workers:
            for _ in range(IN_FLIGHT_MAX):
                workers.create_task(self._work())

    async def _work(self) -> None:
        while True:
            key = await self._ready.get()
            lane = self._lanes[key]
            await self._finish(lane[0])
            lane.popleft()
            if lane:
                self._ready.put_nowait(key)
            else:
                del self._lanes[key]

    async def _finish(self, action: Action) -> None:
        error = await self._tried(action)
        self.progress.waiting -= 1
        self.progress.done += 1
        self.progress.failed += error is not None
        if error is not None or isinstance(action, Bind | DeletePod):
            await self._told(action, error)

    async def _tried(self, action: Action) -> ClusterError | None:
        """Return None when the action was done in the end, else the last error."""
        pauses = iter(BIND_PAUSES if isinstance(action, Bind) else OTHER_PAUSES)
        while True:
            try:
                await self._do(action)
            except (ConflictError, MissingError) as final:
                return final
            except ClusterError as error:
                pause = next(pauses, None)
                if pause is None:
                    return error
                await self._sleep(pause)
            else:
                return None

    async def _do(self, action: Action) -> None:
        match action:
            case Bind():
                await self._writer.bind(action)
            case DeletePod():
                await self._writer.delete_pod(action)
            case PatchPod():
                await self._writer.patch_pod(action)
            case RecordEvent():
                await self._writer.record_event(action)


def _object_of(action: Action) -> str:
    ref = action.about if isinstance(action, RecordEvent) else action.pod
    return ref.uid or f"{ref.kind}/{ref.namespace}/{ref.name}"
