"""The composition root, which makes a running server from options. Only this module reads the clock and the environment."""

import asyncio
import importlib.metadata
import logging
import os
import signal
import ssl
import sys
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

import structlog
from opentelemetry.sdk.metrics.export import MetricReader

from server import MAY_FORK
from server.core.core import Core
from server.history.settings import DEFAULT, Settings
from server.model.assignment import Assignment
from server.model.reports import Finding
from server.observe import endpoint as metrics_endpoint
from server.observe import logs, otlp
from server.observe.metrics import Around, Metrics
from server.observe.traces import Traces
from server.record.file_modes import findings as open_files
from server.record.file_modes import refused_folder, warned_mount
from server.record.holding import Holding
from server.record.keeper import NO_PLACE, Keeper, NotKept, locked
from server.record.kept import Kept, kept_file
from server.record.previous import Previous, previous_configuration
from server.record.record_file import RecordError
from server.record.recording import Recording
from server.record.start import Start, begin
from server.record.writer import Scribe
from server.replication.feed import Feed
from server.rpc.access import Access, BadOptionError, address
from server.rpc.call_observers import calls, hearing
from server.rpc.copies import Copies
from server.rpc.endpoint import Endpoint, Setting
from server.rpc.evenhand.inspect_service import About
from server.rpc.first_table import FirstTable
from server.rpc.following import Joining
from server.rpc.garbage import Garbage
from server.rpc.identity import refused_metrics
from server.rpc.level import gauges
from server.rpc.memory import resident_bytes
from server.rpc.names import names_now
from server.rpc.pump import Observer, Time
from server.rpc.reads import InPlace, Reads
from server.rpc.remembering import Remembering, remembering
from server.rpc.scraping import scrapes
from server.rpc.secrets import LOOK_S, Secrets
from server.rpc.sessions import Sessions
from server.rpc.trimming import Trimming
from server.startup.configuration import Begun, chosen
from server.startup.configuration import begun as begin_with
from server.startup.state import replica as replica_of
from server.startup.state import saving

DEFAULT_LISTEN: Final = "127.0.0.1:50051"
GRACE_S: Final = 10.0
"""The seconds that a drain waits for clients that read slowly."""
SYNC_S: Final = 1.0
"""The seconds between two syncs of records to disk. Each sync also retries the lines that could not be written."""
EXPORT_S: Final = 10.0
"""The seconds between two computations of the gauges that are exported without a request."""

_log = structlog.get_logger("server")


class Exit(IntEnum):
    """The exit codes of `serve`."""

    DRAINED = 0
    NO_ADDRESS = 1
    BAD_OPTIONS = 2
    CORE_FAILED = 70


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The options of `evenhand serve`. Addresses are HOST:PORT. Port 0 means any free port."""

    listen: str = DEFAULT_LISTEN
    config_file: Path | None = None
    """The configuration file. The file takes precedence over registrations.

    `config apply` takes precedence over the file until the file changes.
    """
    metrics: str | None = None
    access: Access = field(default_factory=Access)
    health: str | None = None
    """The address that serves health alone, in plain text, for probes without a certificate."""
    decision_log: Path | None = None
    """The file of the decision log. New lines continue the chain of an earlier run."""
    trace: Path | None = None
    """The file of the input trace, which has all input of the core, for a replay."""
    state_dir: Path | None = None
    """The folder where the configuration in force is kept for the next run.

    Without this folder, the configuration is kept beside the decision log, if there is a log.
    """
    config_text: str | None = None
    """The text of the file if the caller has read it, as from a ConfigMap. If the text is None, this process reads the file."""
    durable: bool = False
    """Whether decisions are sent only after their lines in the decision log are on disk."""
    follow: Joining = field(default_factory=Joining)
    """The cores that this core may follow. The core follows one of these cores until a manager registers with it.

    Without cores to follow, this core leads from its start.
    """
    follower_acknowledges_ms: int = 0
    """The milliseconds that decisions wait until a follower has them, or 0 if decisions do not wait."""
    history: str = ""
    """The file or URL of the history; `off` for none. By default the history is a file in ``state_dir``, if ``state_dir`` is given."""
    history_settings: Settings = DEFAULT
    assignment: Assignment | None = None
    """The partitions for which this core decides, or None if it decides for all partitions."""
    moved_from: Path | None = None
    """The saved state of the core that owned some of this core's partitions before."""
    own_process: bool = False
    """Whether this process runs only the server, so that the memory of the process counts as the memory of the core."""


def run(options: ServeOptions, ready: Callable[[str], None] | None = None) -> int:
    """Serve until SIGTERM or SIGINT and return the exit code. Logs go to the error stream."""
    logs.configure(sys.stderr)
    own = replace(options, own_process=True)
    return asyncio.run(_until_signal(own, ready or _say_ready))


def _say_ready(listening: str) -> None:
    _log.info("ready", address=listening)


async def _until_signal(options: ServeOptions, ready: Callable[[str], None]) -> int:
    stop = asyncio.Event()
    hangup = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, hangup.set)
    return await serve(options, ready=ready, stop=stop, hangup=hangup)


async def serve(
    options: ServeOptions,
    *,
    ready: Callable[[str], None],
    stop: asyncio.Event | None = None,
    hangup: asyncio.Event | None = None,
    errors: Callable[[str], None] | None = None,
) -> int:
    """Serve until `stop` is set or the task is cancelled.

    `ready` is called with the address as HOST:PORT.

    The files of `Access` are read again when a file has changed, and when `hangup` is set. Messages about wrong options and
    unavailable addresses are passed to `errors`. By default, these messages are written to the error stream.
    """
    say = errors or _complain
    if not structlog.is_configured():
        logs.configure(sys.stderr, logging.WARNING)
    try:
        async with AsyncExitStack() as stack:
            endpoint, address_text = await _start(options, stack, hangup or asyncio.Event())
            pump = asyncio.create_task(endpoint.run())
            ready(address_text)
            return await _serve(endpoint, pump, stop or asyncio.Event())
    except (BadOptionError, otlp.ExporterMissingError) as error:
        say(str(error))
        return Exit.BAD_OPTIONS
    except OSError as error:
        say(str(error))
        return Exit.NO_ADDRESS


def _complain(message: str) -> None:
    sys.stderr.write(f"{message}\n")


async def _serve(endpoint: Endpoint, pump: asyncio.Task[None], stop: asyncio.Event) -> int:
    """Wait until stopped, cancelled or failed. Then end the endpoint, and return the exit code."""
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({pump, stopped}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        if not pump.done():
            try:
                _log.info("draining", grace_s=GRACE_S)
            finally:
                # Drain even when the log line cannot be written: the error stream may be closed before this process ends.
                await endpoint.drain(pump, GRACE_S)
            _log.info("ended")
    if pump.cancelled():
        _log.warning(
            "not-drained",
            why="what was decided last did not leave: the disk took nothing, or it took too long",
        )
        return Exit.DRAINED
    error = pump.exception()
    if error is None:
        return Exit.DRAINED
    # Crash-only: the state of a core that has raised cannot be trusted. Clients resync with the next process.
    _log.critical("core-failed", exc_info=error)
    await endpoint.crash()
    return Exit.CORE_FAILED


class _Reasons(NamedTuple):
    """The functions that return why the configuration is not on disk, and why no decision is sent.

    Each function returns "" if there is no reason.
    """

    not_kept: Callable[[], str]
    held: Callable[[], str]


async def _start(
    options: ServeOptions, stack: AsyncExitStack, hangup: asyncio.Event
) -> tuple[Endpoint, str]:
    """Start all parts, and return the endpoint and its address. Raise BadOptionError, ExporterMissingError or OSError."""
    _check(options)
    clock = _clock()
    secrets = Secrets(options.access, clock)
    core, begun, keeper = _core(options, stack)
    sessions = Sessions()
    feed = Feed(core, importlib.metadata.version("evenhand"))
    replica, begun = replica_of(options, feed, core, begun, uuid.uuid4().hex)
    recording, holding = _recording(options, feed, core, stack)
    keeping = keeper or NotKept(lambda: core.state.revision)
    past = remembering(core, options, replica, clock)
    writers = [one for one in (recording, keeping, past) if one is not None]
    findings: list[Callable[[], Iterable[Finding]]] = [
        *(one.findings for one in writers),
        *(secrets.findings, chosen(core, begun), partial(_open_files, options), replica.findings),
        (first := FirstTable(options.assignment, core)).findings,
    ]
    reasons = _Reasons(keeping.why_not_kept, recording.held if recording else str)
    about = _about(options, begun.before, clock(), findings, reasons)
    meters = _meters(core, sessions, secrets, writers, clock).add(gauges(replica, feed, clock))
    traces, (garbage, trimming) = _traces(stack), _sweepers(stack, reads := _reads())
    observers: list[Observer] = [meters, logs.NoteLog(names_now(core)), garbage, trimming, first]
    observers += (one for one in (traces, keeper, _observing(reads)) if one is not None)
    setting = Setting(
        secrets.identities,
        about,
        hearing(traces, clock),
        options.config_file is not None,
        calls(traces, clock, (garbage.call_ended, trimming.call_ended)),
        past.tap(recording or feed) if past else recording,
        holding,
        reads,
        keeping,
        feed,
        replica,
        past.place if past else None,
        options.follower_acknowledges_ms / 1000,
    )
    endpoint = Endpoint(core, sessions, Time(clock, time.perf_counter), setting, observers)
    _follow(endpoint, options, meters)
    stack.push_async_exit(partial(_stop_failed, endpoint))
    await _metrics(options, endpoint, secrets, meters, stack)
    listening = await _listen(options, endpoint, secrets)
    stack.push_async_callback(_end, asyncio.create_task(_watch(secrets, endpoint, hangup)))
    _record(
        recording,
        Start(about.started_ms, about.version, begun.configuration, begun.beginning),
        options,
        stack,
    )
    _keep(keeper, stack)
    findings += saving(options, feed, endpoint, stack)
    await _remember(past, endpoint.reads, listening, options, stack)
    return endpoint, listening


def _follow(endpoint: Endpoint, options: ServeOptions, meters: Metrics) -> None:
    """Let the core follow another core, if requested, and add the metrics of decisions that wait for followers to ``meters``."""
    endpoint.follow(options.follow.opened(options.listen))
    meters.add(endpoint.gauges)


async def _remember(
    past: Remembering | None, reads: Reads, name: str, options: ServeOptions, stack: AsyncExitStack
) -> None:
    """Start the recording of the history before the first event, if requested.

    Raise BadOptionError if the recording cannot start. If an option names the history, the history must be usable at the start.
    """
    if past is None:
        return
    stack.callback(past.close)
    past.start(name)
    stack.callback(asyncio.create_task(past.sample(reads)).cancel)
    if options.history and (why := await past.refused()):
        raise BadOptionError(f"--history: {why}")


def _meters(
    core: Core,
    sessions: Sessions,
    secrets: Secrets,
    writers: Iterable[Recording | Keeper | NotKept | Remembering],
    clock: Callable[[], int],
) -> Metrics:
    """Return the meters of the core, its streams, records, managers and secrets."""
    around = Around(
        sessions.depths,
        lambda: dict(chain.from_iterable(one.health().items() for one in writers)),
        lambda: sessions.presence.connections(clock()),
        secrets.health,
        clock,
    )
    return Metrics(core, around, _metric_readers())


def _open_files(options: ServeOptions) -> Iterable[Finding]:
    """Return a warning for each file of the options that other users of the machine can read or write at this moment."""
    records = [one for one in (options.decision_log, options.trace) if one is not None]
    access = options.access
    return open_files([*access.private_files, *records], access.public_files)


async def _stop_failed(endpoint: Endpoint, _kind: object, error: object, _trace: object) -> None:
    """Close the ports of a start that failed with BadOptionError or OSError."""
    if isinstance(error, BadOptionError | OSError):
        await endpoint.stop()


def _check(options: ServeOptions) -> None:
    """Check the options before anything is started.

    Raise BadOptionError if options contradict each other, or if a named file or address cannot be used.
    """
    options.access.checked(options.listen, options.metrics)
    if options.durable and options.decision_log is None:
        raise BadOptionError(
            "--durable: there is no decision log to write decisions to before they leave; add --decision-log FILE"
        )
    if options.health is not None:
        address("--health", options.health)
    options.follow.check(traced=options.trace is not None)
    if options.trace is not None and options.moved_from is not None:
        raise BadOptionError(
            "--trace: a core with --moved-from begins with a state, which a trace does not hold"
        )
    for finding in _open_files(options):
        _log.warning(finding.code, problem=finding.message)


async def _listen(options: ServeOptions, endpoint: Endpoint, secrets: Secrets) -> str:
    """Open the port, and the port for probes if requested. Return the address. Raise OSError if a port cannot be opened."""
    host, _ = address("--listen", options.listen)
    port = await endpoint.start(options.listen, secrets.credentials())
    if options.health is not None:
        _log.info("health", port=await endpoint.start_health(options.health))
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _core(options: ServeOptions, stack: AsyncExitStack) -> tuple[Core, Begun, Keeper | None]:
    """Return the core, the configuration with which it starts, and the keeper of the configuration in force, if there is one.

    Raise BadOptionError if a file or folder of the options cannot be used.
    """
    path = _kept_file(options, stack)
    begun = begin_with(options, path)
    if options.decision_log is not None:
        begun = begun._replace(before=previous_configuration(options.decision_log))
    core = Core(begun.configuration, begun.beginning)
    return core, begun, _keeper(path, begun.file, core, stack)


def _kept_file(options: ServeOptions, stack: AsyncExitStack) -> Path | None:
    """Return the path at which the configuration is kept, or None. Lock the folder of `--state-dir`.

    Raise BadOptionError if the folder cannot be used, or if another process has locked the folder.
    """
    path = kept_file(options.state_dir, options.decision_log)
    if path is None:
        _log.info("configuration-not-kept", why=NO_PLACE)
        return None
    _check_folder(path.parent, "--decision-log" if options.state_dir is None else "--state-dir")
    _log.info("keeps-configuration", file=str(path))
    if options.state_dir is not None:
        try:
            stack.callback(os.close, locked(options.state_dir))
        except RecordError as error:
            raise BadOptionError(f"--state-dir: {error}") from error
    return path


def _check_folder(folder: Path, option: str) -> None:
    """Raise BadOptionError for a folder in which all users may put files. Only warn if the folder is a mounted volume."""
    try:
        refused, warned = refused_folder(folder), warned_mount(folder)
    except OSError as error:
        what = "name a folder that exists"
        raise BadOptionError(f"{option}: {folder}: {error.strerror}; {what}") from error
    if refused:
        raise BadOptionError(f"{option}: {refused}")
    if warned:
        _log.warning("folder-open-to-others", problem=warned)


def _keeper(path: Path | None, file: str, core: Core, stack: AsyncExitStack) -> Keeper | None:
    """Return the keeper of the configuration in force, or None if the options give no path for it. The keeper writes nothing yet."""
    if path is None:
        return None
    scribe = Scribe()
    stack.callback(scribe.close)

    def kept() -> Kept | None:
        state = core.state
        text = state.configuration.text
        return Kept(state.revision, text, state.given, file) if text else None

    return Keeper(path, lambda: (core.state.revision, core.state.given), kept, scribe.run)


def _keep(keeper: Keeper | None, stack: AsyncExitStack) -> None:
    """Start the keeper of the configuration, if any. Call this after the records are locked and before the first event."""
    if keeper is None:
        return
    keeper.sliced(0, 0, 0)
    stack.callback(asyncio.create_task(_time_and_again(keeper.retry)).cancel)


def _about(
    options: ServeOptions,
    before: Previous | None,
    started_ms: int,
    findings: Iterable[Callable[[], Iterable[Finding]]],
    reasons: _Reasons,
) -> About:
    """Return the facts about the server. `findings` has functions that return the findings of `doctor` about the server."""
    return About(
        importlib.metadata.version("evenhand"),
        started_ms,
        lambda: chain.from_iterable(each() for each in findings),
        str(options.decision_log or ""),
        *(before or Previous("", "")),
        reasons.not_kept,
        options.durable,
        resident_bytes=partial(resident_bytes, os.getpid()) if options.own_process else int,
        held=reasons.held,
    )


def _recording(
    options: ServeOptions, feed: Feed, core: Core, stack: AsyncExitStack
) -> tuple[Recording | None, Holding | None]:
    """Return the recording of the core, if requested.

    Return also the `Holding` that delays decisions until their lines are safe, if requested. Files are opened later, by
    `_record`.
    """
    if options.decision_log is None and options.trace is None:
        return None, None
    scribe = Scribe()
    stack.callback(scribe.close)
    recording = Recording(feed, lambda: core.state.revision, scribe.run)
    return recording, Holding(recording, scribe.asked) if options.durable else None


def _record(
    recording: Recording | None, start: Start, options: ServeOptions, stack: AsyncExitStack
) -> None:
    """Open the files of the recording, if there is one. Do so after the port is open and before the first event.

    Raise BadOptionError if a file cannot be used.
    """
    if recording is None:
        return
    stack.callback(recording.close)
    try:
        begin(recording, start, options.decision_log, options.trace, durable=options.durable)
    except RecordError as error:
        raise BadOptionError(str(error)) from error
    stack.callback(asyncio.create_task(_time_and_again(recording.sync)).cancel)


async def _time_and_again(job: Callable[[], object]) -> None:
    while True:
        await asyncio.sleep(SYNC_S)
        job()


def _clock() -> Callable[[], int]:
    """Return a clock in Unix milliseconds that never decreases, even if the machine's clock is set back."""
    offset = time.time() - time.monotonic()
    return lambda: int((time.monotonic() + offset) * 1000)


def _metric_readers() -> list[MetricReader]:
    reader = otlp.metric_reader(os.environ)
    return [reader] if reader else []


async def _watch(secrets: Secrets, endpoint: Endpoint, hangup: asyncio.Event) -> None:
    """Read changed secrets again, or all secrets when ``hangup`` is set. End calls that are then no longer allowed."""
    while True:
        with suppress(TimeoutError):
            await asyncio.wait_for(hangup.wait(), LOOK_S)
        whole = hangup.is_set()
        hangup.clear()
        secrets.renew(whole=whole)
        if ended := endpoint.renew(secrets.identities):
            _log.warning("calls-ended", calls=ended, why="their callers count no more")


async def _end(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait for its end, so that objects to which it refers, such as the gRPC server, end before the event loop."""
    task.cancel()
    await asyncio.wait({task})


def _refused(
    endpoint: Endpoint, peer: ssl.SSLObject | None, authorization: str
) -> tuple[int, str] | None:
    return refused_metrics(endpoint.identities, peer, authorization, endpoint.pump.now())


async def _metrics(
    options: ServeOptions,
    endpoint: Endpoint,
    secrets: Secrets,
    metrics: Metrics,
    stack: AsyncExitStack,
) -> None:
    """Open the metrics endpoint.

    If an exporter is configured, recompute the gauges regularly, because an exporter sends them without a request. The exporter
    is a thread that may hold locks at a fork. With an exporter, no copy of this process may compute metrics.
    """
    stack.callback(metrics.close)
    reads = endpoint.reads
    if otlp.wanted("metrics", os.environ):
        reads = InPlace()
        refreshing = asyncio.create_task(_refresh(metrics))
        stack.callback(refreshing.cancel)
    if options.metrics is not None:
        host, port = address("--metrics", options.metrics)
        text, refused = scrapes(reads, metrics), partial(_refused, endpoint)
        server = await metrics_endpoint.start(host, port, text, secrets.metrics_tls(), refused)
        stack.callback(server.close)
        bound = server.sockets[0].getsockname()[1]
        _log.info("metrics", address=f"{host}:{bound}", path="/metrics")


async def _refresh(metrics: Metrics) -> None:
    while True:
        metrics.refresh()
        await asyncio.sleep(EXPORT_S)


def _traces(stack: AsyncExitStack) -> Traces | None:
    processor = otlp.span_processor(os.environ)
    if processor is None:
        return None
    traces = Traces(processor)
    stack.callback(traces.close)
    return traces


def _reads() -> Reads:
    """Return the object that answers read calls.

    The reads run in copies of this process if a fork is safe, and else in the event loop.
    """
    if sys.platform == "linux" and MAY_FORK:
        return Copies(time.perf_counter, time.thread_time)
    _log.warning("reads-in-place", message="each read delays placements")
    return InPlace()


def _observing(reads: Reads) -> Observer | None:
    """Return the copies as an observer of the pump, because copies are made while it is idle. Return None without copies."""
    return reads if isinstance(reads, Copies) else None


def _sweepers(stack: AsyncExitStack, reads: Reads) -> tuple[Garbage, Trimming]:
    """Return the observers that free memory after calls and after slices of the pump."""
    later = asyncio.get_running_loop().call_later
    garbage, trimming = Garbage(later, reads), Trimming(later)
    stack.callback(garbage.close)
    stack.callback(trimming.close)
    return garbage, trimming
