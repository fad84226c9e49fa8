"""The demonstration itself: core, shim and embedded cluster on one event loop, connected over a loopback socket.

The shim and the screen are ordinary clients of the core: all their requests go through its port.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc

from evenhand_cli.demo.facts import Picture, Progress, count_pods
from evenhand_cli.demo.preempted import preempted
from evenhand_cli.demo.questions import Observer
from evenhand_cli.demo.reasons import UNDECIDED, Reason, waiting_groups
from evenhand_cli.demo.screen import Stage
from evenhand_cli.demo.summary import Outcome
from evenhand_cli.demo.view import Update
from evenhand_cli.faults import Fault
from shim_client.bootstrap import OpenedDirectory, make_shim, run_shim
from shim_client.core_client.address import CoreAddress
from shim_client.embedded.cluster import EmbeddedCluster
from shim_client.embedded.faults import object_faults
from shim_client.shim import Shim

FRAME_S = 0.2
QUIET_S = 1.0
"""Seconds without a change after which the cluster has settled."""

Ready = Callable[[str], None]
CoreProcess = Callable[[Ready], Awaitable[None]]
"""A function that runs a core until cancelled, and reports its address when it listens."""

Beside = Callable[[Shim], Sequence[Coroutine[Any, Any, None]]]
"""A function that returns the tasks that run in addition to the shim.

The function is called when the event loop runs.
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """The cluster to show, and when the demonstration ends."""

    opened: OpenedDirectory
    core: CoreProcess
    cluster_name: str
    watch: bool
    limit_s: float
    beside: Beside | None = None
    console: str = ""
    """The URL of the web console; empty without a web console."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The running parts of the demonstration."""

    stage: Stage
    opened: OpenedDirectory
    shim: Shim
    observer: Observer
    before: int
    """Number of pods that ran when the demonstration began."""

    def picture(self) -> Picture | None:
        """Return the present state of core and cluster; None before the first answer of the core."""
        look = self.observer.latest
        if look is None:
            return None
        names = self.opened.settings.scheduler_names
        return Picture(look.tree, look.summary, count_pods(self.opened.cluster.pods(), names))


async def demonstrate(
    plan: Plan, view: Callable[[Stage], AbstractContextManager[Update]], stop: asyncio.Event
) -> tuple[Progress, Outcome]:
    """Run all parts until the cluster has settled, the time limit is over or `stop` is set.

    With `watch`, only `stop` ends the demonstration. Raises Fault when a part ends by itself, and the error of a part
    that fails.
    """
    clock = asyncio.get_running_loop().time
    progress = Progress(started_s=clock())
    async with _running(plan) as (parts, tasks):
        with view(parts.stage) as show:
            settled = False
            while not (stop.is_set() or (settled and not plan.watch)):
                await _pause(stop)
                _raise_failure(tasks)
                _see(parts, progress, clock())
                show(progress, clock())
                at_rest = _at_rest(parts, progress, clock())
                settled = at_rest and (settled or await _all_decided(parts))
                if progress.elapsed_s(clock()) > plan.limit_s and not plan.watch:
                    break
            outcome = await _outcome(parts, progress, settled=settled, stopped=stop.is_set())
            show(progress, clock())
            return progress, outcome


@asynccontextmanager
async def _running(plan: Plan) -> AsyncIterator[tuple[Parts, list[asyncio.Task[None]]]]:
    """Run core, shim and observer while the block runs. End observer, shim and core in this order."""
    before = count_pods(plan.opened.cluster.pods(), plan.opened.settings.scheduler_names).bound
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    core = asyncio.ensure_future(_as_coroutine(plan.core(listening.set_result)))
    tasks = [core]
    try:
        first: set[asyncio.Future[Any]] = {core, listening}
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        _raise_failure(tasks)
        address = listening.result()
        shim = make_shim(plan.opened.cluster, CoreAddress(address), plan.opened.settings)
        beside = plan.beside(shim) if plan.beside else ()
        tasks.append(asyncio.create_task(run_shim(shim, plan.opened.cluster, beside)))
        async with grpc.aio.insecure_channel(address) as channel:
            observer = Observer(channel)
            tasks.append(asyncio.create_task(observer.follow()))
            stage = Stage(plan.cluster_name, address, plan.console)
            yield Parts(stage, plan.opened, shim, observer, before), tasks
    finally:
        await _end(reversed(tasks))


async def _as_coroutine(work: Awaitable[None]) -> None:
    await work


async def _end(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _raise_failure(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Raise the error of a part that failed, or a Fault when a part ended by itself."""
    for task in tasks:
        if task.done() and not task.cancelled():
            error = task.exception()
            if error is not None:
                raise error
            raise Fault("a part of the demonstration ended by itself", where="core or shim")


async def _pause(stop: asyncio.Event) -> None:
    """Wait until the screen is to be drawn again, or until `stop` is set."""
    waiter = asyncio.ensure_future(stop.wait())
    await asyncio.wait([waiter], timeout=FRAME_S)
    waiter.cancel()


def _see(parts: Parts, progress: Progress, now_s: float) -> None:
    picture = parts.picture()
    if picture is not None:
        progress.see(now_s, picture)


def _at_rest(parts: Parts, progress: Progress, now_s: float) -> bool:
    """Return whether the core has not changed for a while and the shim has done all its work."""
    return progress.quiet_s(now_s) >= QUIET_S and parts.shim.progress().is_settled


def _last_events(cluster: EmbeddedCluster) -> dict[str, Reason]:
    """Return the last event on each pod, by namespace and name."""
    return {
        f"{one.about.namespace}/{one.about.name}": (one.reason, one.message)
        for one in sorted(cluster.events.all(), key=lambda one: one.last_ms)
        if one.about.kind == "Pod"
    }


async def _all_decided(parts: Parts) -> bool:
    """Return whether the core has a reason for every ask that waits."""
    return all(ask.waiting_code not in UNDECIDED for ask in await parts.observer.asks())


async def _outcome(parts: Parts, progress: Progress, *, settled: bool, stopped: bool) -> Outcome:
    """Query the core once more, and compare the core's state with the cluster's."""
    clock = asyncio.get_running_loop().time
    elapsed_s = progress.elapsed_s(clock())
    await parts.observer.look()
    asks = await parts.observer.asks()
    names = parts.opened.settings.scheduler_names
    cluster = parts.opened.cluster
    groups = waiting_groups(cluster.pods(), asks, names, _last_events(cluster))
    _see(parts, progress, clock())
    assert progress.latest is not None
    return Outcome(
        stage=parts.stage,
        picture=progress.latest,
        settled=settled,
        stopped=stopped,
        seconds=elapsed_s,
        placing_seconds=progress.placing_s(),
        waiting=tuple(await parts.observer.explained(groups)),
        findings=tuple(await parts.observer.findings()),
        before=parts.before,
        preempted=preempted(await parts.observer.decisions()),
        faults=tuple(object_faults(cluster.events.all())),
    )
