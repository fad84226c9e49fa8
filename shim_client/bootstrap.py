"""The assembly of a shim; the only module that reads the clock.

A process with a core in it (`evenhand demo`) and a process without a core (`evenhand shim`) run the same parts:

    opened = open_directory(Path("examples/clusters/small"))
    shim = make_shim(opened.cluster, CoreAddress("127.0.0.1:50051"), opened.settings)
    await run_shim(shim, opened.cluster)
"""

from __future__ import annotations

import asyncio
import gc
import socket
import time
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import structlog
from structlog.typing import FilteringBoundLogger

from shim_client.cluster import Cluster
from shim_client.config import Settings, settings_from
from shim_client.core_client.connection import Connection, Registration
from shim_client.core_client.spread import Cores, groups_of
from shim_client.core_client.streams import SupersededError
from shim_client.election.elector import Elector, LeaseLostError
from shim_client.embedded.cluster import Clock, EmbeddedCluster
from shim_client.embedded.folder import Folder, Report
from shim_client.embedded.keeping import StateFile
from shim_client.embedded.loading import Manifests, read_directory
from shim_client.embedded.saved import Saved
from shim_client.messages import ConfigurationReport
from shim_client.shim import Shim
from shim_client.state_machine.machine import Mirror
from shim_client.translate.config_map import merged

FINISH_SECONDS_MAX = 3.0
"""Longest wait, in seconds, for requests in flight when an elected shim ends."""
SUPERSEDED_PAUSE_SECONDS = 1.0
"""Seconds after which a shim becomes a candidate again, if the core accepted another process although this process held the lease."""


@dataclass(frozen=True, slots=True)
class OpenedDirectory:
    """The content of a cluster directory: the cluster, its settings, and the number of ignored objects."""

    cluster: EmbeddedCluster
    settings: Settings
    """The settings in the directory's ConfigMaps, and the text of queues.yaml if the directory has that file."""
    ignored: Counter[str]
    """Number of objects in the directory by kind, for the kinds that the embedded cluster does not keep."""


def open_directory(directory: Path, *, stop_ms: int = 0) -> OpenedDirectory:
    """Load a cluster directory. Raises BadFileError or BadSettingError.

    A deleted pod ends after `stop_ms` milliseconds, or after its grace period when that is shorter.
    """
    with _without_collection():
        manifests = read_directory(directory)
        settings = _settings(manifests)
        cluster = EmbeddedCluster(
            wall_clock(), stop_ms=stop_ms, schedulers=settings.scheduler_names
        )
        cluster.fill(manifests)
    return OpenedDirectory(cluster, settings, manifests.ignored)


@dataclass(frozen=True, slots=True)
class LiveDirectory:
    """A cluster directory whose later changes are applied, too.

    The fields are the opened directory, its manifests, and the report on the objects that were created, changed or
    deleted at the start.
    """

    opened: OpenedDirectory
    folder: Folder
    report: Report
    restored: int
    """Number of objects that the saved state contained."""


def open_live_directory(
    directory: Path, state: StateFile | None, *, stop_ms: int = 0, fresh: bool = False
) -> LiveDirectory:
    """Load a cluster directory, and prepare to apply later changes of its files.

    With `fresh`, ignore the state that is saved in `state`. Errors: those of `open_directory`, NoStateError,
    BadStateError.
    """
    with _without_collection():
        manifests = read_directory(directory)
        settings = _settings(manifests)
        saved = Saved() if state is None or fresh else state.read_for(directory)
        cluster = EmbeddedCluster(
            wall_clock(), stop_ms=stop_ms, schedulers=settings.scheduler_names
        )
        folder = Folder(directory, cluster, state)
        report = folder.start(manifests, saved)
    opened = OpenedDirectory(cluster, settings, manifests.ignored)
    return LiveDirectory(opened, folder, report, len(saved.objects) if saved.manifests else 0)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Suspend garbage collection while objects are loaded.

    The loaded objects stay in use, so that garbage collections would free almost nothing and double the loading time.
    Loaded objects are also excluded from later collections.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if was_on:
            gc.enable()


def make_shim(  # noqa: PLR0913 - the parts of a session
    cluster: Cluster,
    cores: Cores,
    settings: Settings,
    instance: str = "",
    *,
    wait: bool = True,
    forget: bool = False,
) -> Shim:
    """Return a shim that is ready to run.

    A shim that watches ConfigMaps takes the queue configuration from them, and sends it after each registration and
    after each change. Without ConfigMaps, the registration carries the queue configuration, and the core refuses an
    invalid one. With `wait` the shim waits for a core that does not answer yet. `instance` and `forget`: see
    `Registration`. If a group has several cores, the shim uses the first core that accepts the shim.
    """
    registration = Registration(
        rm_id=settings.cluster_id,
        version=_version(),
        policy_group=settings.policy_group,
        queues="" if settings.namespace else settings.queues,
        instance=instance,
        forget=forget,
    )
    log = structlog.get_logger("evenhand.shim").bind(cluster=settings.cluster_id)
    groups = groups_of(cores)
    connections = {
        one.name: Connection(
            one.addresses,
            replace(registration, table_revision=one.revision),
            wait=wait,
            session_name=lambda: uuid.uuid4().hex,
        )
        for one in groups
    }
    if settings.namespace and settings.queues:
        source = f"ConfigMaps of namespace {settings.namespace}"
        for connection in connections.values():
            connection.send([ConfigurationReport(settings.queues, source)])
    owners = {partition: one.name for one in groups for partition in one.partitions}
    mirror = Mirror(settings, owners, groups[0].name, connections)
    return Shim(mirror, cluster, connections, log)


async def run_shim(
    shim: Shim, cluster: Cluster, beside: Sequence[Coroutine[Any, Any, None]] = ()
) -> None:
    """Run a shim until cancelled, together with the coroutines in `beside`.

    If the cluster is embedded, run the cluster, too. Raises CoreRefusedError (bad configuration, no permission, no core
    at that address) and NoCoreError (no core answers, and the shim does not wait). Raises SupersededError when another
    shim took over, and PartitionOwnedError when the cluster's partition belongs to another resource manager.
    """
    try:
        async with asyncio.TaskGroup() as tasks:
            if isinstance(cluster, EmbeddedCluster):
                tasks.create_task(cluster.run())
            tasks.create_task(shim.run())
            for work in beside:
                tasks.create_task(work)
    except BaseExceptionGroup as errors:
        raise _first(errors) from errors


async def run_elected(
    make: Callable[[], Shim], elector: Elector, log: FilteringBoundLogger
) -> None:
    """Run one Shim object for each term in which this process leads, until cancelled.

    A Shim object is made when the previous term has ended. The object waits until this process leads again, and is used
    until that term ends (design 7.2).

    When cancelled, finish the requests in flight and give the lease back, so that another process leads at once.
    Errors: those of `run_shim`, except LeaseLostError and SupersededError, after which another shim begins.
    """
    electing = asyncio.create_task(elector.run())
    try:
        while True:
            shim = make()
            life = asyncio.create_task(shim.run())
            try:
                await asyncio.wait({life, electing}, return_when=asyncio.FIRST_COMPLETED)
                if electing.done():
                    electing.result()
                why = _end_of_term(life)
            except BaseException:
                await shim.finish(min(FINISH_SECONDS_MAX, elector.seconds_left()))
                raise
            finally:
                life.cancel()
                await asyncio.gather(life, return_exceptions=True)
            elector.resign()
            log.warning("this shim does not lead any more", why=str(why))
            if isinstance(why, SupersededError):
                await asyncio.sleep(SUPERSEDED_PAUSE_SECONDS)
    finally:
        electing.cancel()
        await asyncio.gather(electing, return_exceptions=True)
        await elector.release()


def _end_of_term(life: asyncio.Task[None]) -> BaseException:
    """Return the error that ended a shim, if this process may run another shim after that error. Raises any other error."""
    try:
        life.result()
    except BaseExceptionGroup as errors:
        error = _first(errors)
        if isinstance(error, LeaseLostError | SupersededError):
            return error
        raise error from errors
    raise AssertionError("a shim ended without an error")


def elapsed_clock() -> Callable[[], float]:
    """Return a clock in seconds that never goes back.

    If the system supports it, the clock also counts while the machine sleeps.
    """
    number = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic if number is None else partial(time.clock_gettime, number)


def process_name(instance: str) -> str:
    """Return a name that no other process has or had: the name of the instance, followed by random characters."""
    return f"{instance or socket.gethostname()}_{uuid.uuid4().hex[:12]}"


def wall_clock() -> Clock:
    """Return a clock: a function that returns Unix milliseconds, which never decrease."""
    latest = 0

    def now_ms() -> int:
        nonlocal latest
        latest = max(latest, time.time_ns() // 1_000_000)
        return latest

    return now_ms


def _settings(manifests: Manifests) -> Settings:
    flat, _ = merged(found.item for found in manifests.objects if found.kind == "ConfigMap")
    settings = settings_from(flat)
    return replace(settings, queues=manifests.queues) if manifests.queues else settings


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first single error of nested exception groups."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _version() -> str:
    try:
        return version("evenhand")
    except PackageNotFoundError:
        return "0"
