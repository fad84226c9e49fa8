"""The composition root: options to a running server. The only reader of the clock and of the environment."""

import asyncio
import importlib.metadata
import logging
import os
import signal
import ssl
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Final

import grpc
import structlog
from opentelemetry.sdk.metrics.export import MetricReader

from server import MAY_FORK
from server.config import load
from server.config.header import without_header
from server.core.core import Core
from server.model.quota import Configuration
from server.model.reports import Finding
from server.observe import endpoint as metrics_endpoint
from server.observe import logs, otlp
from server.observe.metrics import Around, Metrics
from server.observe.traces import Traces
from server.record.beginning import Start, begin
from server.record.opening import RecordError
from server.record.previous import Previous, previous_configuration
from server.record.recording import Recording
from server.record.scribe import Scribe
from server.rpc.access import Access, BadOptionError, address
from server.rpc.calls import Called, Context
from server.rpc.copies import Copies
from server.rpc.endpoint import Endpoint, Setting
from server.rpc.evenhand.inspect import About
from server.rpc.garbage import Garbage
from server.rpc.identity import refused_metrics
from server.rpc.names import names_now
from server.rpc.pump import Observer, Time
from server.rpc.reads import InPlace, Reads
from server.rpc.secrets import LOOK_S, Secrets
from server.rpc.servicer import Received
from server.rpc.sessions import Kind, Sessions

DEFAULT_LISTEN: Final = "127.0.0.1:50051"
GRACE_S: Final = 10.0
"""How long a drain waits for clients that read slowly."""
SYNC_S: Final = 1.0
"""How often what was recorded is made safe from a loss of power."""
EXPORT_S: Final = 10.0
"""How often gauges are looked up for an export that nobody asks for."""

DIGEST_SHOWN: Final = 12
"""Characters of a digest that tell it from others."""
REPLACED_ADVICE: Final = "what was applied lasted until that run ended: write it into the file of `serve --config`, or apply it again"
_log = structlog.get_logger("server")


class Exit(IntEnum):
    """How `serve` ends."""

    DRAINED = 0
    NO_ADDRESS = 1
    BAD_OPTIONS = 2
    CORE_FAILED = 70


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What `evenhand serve` takes. Addresses are HOST:PORT; port 0 means any free one."""

    listen: str = DEFAULT_LISTEN
    config_file: Path | None = None
    """A file wins over the configurations of registrations; `config apply` wins over the file."""
    metrics: str | None = None
    access: Access = field(default_factory=Access)
    health: str | None = None
    """Health alone, in plain text: for probes that come without a certificate."""
    decision_log: Path | None = None
    """Where decisions are written down; an earlier run's chain of lines goes on."""
    trace: Path | None = None
    """Where everything that the core is given is written down, for a replay."""
    config_text: str | None = None
    """The text of the file where the caller has read it, as out of a ConfigMap; else the file is read."""


def run(options: ServeOptions, ready: Callable[[str], None] | None = None) -> int:
    """Serves until SIGTERM or SIGINT; gives the exit code. Logs go to the error stream."""
    logs.configure(sys.stderr)
    return asyncio.run(_until_signal(options, ready or _say_ready))


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
    """Serves until `stop` is set or the task is cancelled; `ready` hears the address as HOST:PORT.

    The files of `Access` are read again when one has changed, and when `hangup` is set. What is wrong with the
    options is told to `errors`, by default on the error stream.
    """
    say = errors or _complain
    if not structlog.is_configured():
        logs.configure(sys.stderr, logging.WARNING)
    try:
        async with AsyncExitStack() as stack:
            endpoint, address_text = await _start(options, stack, hangup or asyncio.Event())
            pump = asyncio.create_task(endpoint.pump.run())
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
    """Until stopped, cancelled or failed."""
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({pump, stopped}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        if not pump.done():
            try:
                _log.info("draining", grace_s=GRACE_S)
            finally:
                # Also when nobody takes the line any more: the error stream may be gone before us.
                await endpoint.drain(pump, GRACE_S)
            _log.info("ended")
    error = pump.exception()
    if error is None:
        return Exit.DRAINED
    # Crash-only: nothing of a core that has raised can be trusted; clients resync with the next one.
    _log.critical("core-failed", exc_info=error)
    await endpoint.crash()
    return Exit.CORE_FAILED


async def _start(
    options: ServeOptions, stack: AsyncExitStack, hangup: asyncio.Event
) -> tuple[Endpoint, str]:
    """Everything up to the open port; raises BadOptionError, ExporterMissingError or OSError."""
    options.access.checked(options.listen, options.metrics)
    if options.health is not None:
        address("--health", options.health)
    clock = _clock()
    secrets = Secrets(options.access, clock)
    configuration = _configuration(options.config_file, options.config_text)
    core, sessions = Core(configuration), Sessions()
    if options.config_file is not None:
        source = f"file {options.config_file.name}"
        core.state.revision = core.state.revision._replace(source=source)
    recording = _recording(options, core, stack)
    health, written = (recording.health, recording.findings) if recording else (dict, tuple)
    about = _about(options, core, clock(), lambda: [*written(), *secrets.findings()])
    around = Around(
        sessions.depths,
        health,
        lambda: sessions.presence.connections(clock()),
        secrets.health,
    )
    meters = Metrics(core, around, _metric_readers())
    traces = _traces(stack)
    garbage = Garbage(asyncio.get_running_loop().call_later)
    stack.callback(garbage.close)
    notes = logs.NoteLog(names_now(core))
    observers: list[Observer] = [meters, notes, garbage, *([traces] if traces else [])]
    setting = Setting(
        secrets.identities,
        about,
        _hearing(traces, clock),
        configuration is not None,
        _calls(traces, clock, garbage.call_ended),
        recording,
        _reads(),
    )
    endpoint = Endpoint(core, sessions, Time(clock, time.perf_counter), setting, observers)
    await _metrics(options, partial(_refused, endpoint), secrets, meters, stack)
    listening = await _listen(options, endpoint, secrets)
    stack.push_async_callback(_end, asyncio.create_task(_watch(secrets, endpoint, hangup)))
    if recording is not None:
        start = Start(about.started_ms, about.version, configuration)
        _record(recording, start, options, stack)
    return endpoint, listening


async def _listen(options: ServeOptions, endpoint: Endpoint, secrets: Secrets) -> str:
    """Opens the port, and that for probes where it is wanted; gives the address. Raises OSError."""
    host, _ = address("--listen", options.listen)
    port = await endpoint.start(options.listen, secrets.credentials())
    if options.health is not None:
        _log.info("health", port=await endpoint.start_health(options.health))
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _about(
    options: ServeOptions, core: Core, started_ms: int, written: Callable[[], Iterable[Finding]]
) -> About:
    """What the server is; `written` gives the findings about what it records."""
    before = previous_configuration(options.decision_log) if options.decision_log else None
    replaced = _replaced(options, core, before)
    return About(
        importlib.metadata.version("evenhand"),
        started_ms,
        lambda: [*written(), *replaced()],
        str(options.decision_log or ""),
        *(before or ()),
    )


def _replaced(
    options: ServeOptions, core: Core, before: Previous | None
) -> Callable[[], list[Finding]]:
    """What the doctor says while the file's configuration is in force and the previous run ended with another one."""
    now = core.state.configuration.digest
    if options.config_file is None or before is None or before.digest in {"", now}:
        return list
    source = f" ({before.source})" if before.source else ""
    message = (
        f"the previous run ended with configuration {before.digest[:DIGEST_SHOWN]}{source}, "
        f"now {now[:DIGEST_SHOWN]} ({core.state.revision.source}) is in force"
    )
    _log.warning("configuration-replaced", message=message)
    found = Finding("note", "configuration", "configuration-replaced", message, REPLACED_ADVICE)
    return lambda: [found] if core.state.configuration.digest == now else []


def _recording(options: ServeOptions, core: Core, stack: AsyncExitStack) -> Recording | None:
    """The core, to be written down when it begins, as far as that is wanted."""
    if options.decision_log is None and options.trace is None:
        return None
    scribe = Scribe()
    stack.callback(scribe.close)
    return Recording(core, lambda: core.state.configuration.digest, scribe.run)


def _record(
    recording: Recording, start: Start, options: ServeOptions, stack: AsyncExitStack
) -> None:
    """Begins the files, after the port is ours and before the first event; raises BadOptionError."""
    stack.callback(recording.close)
    try:
        begin(recording, start, options.decision_log, options.trace)
    except RecordError as error:
        raise BadOptionError(str(error)) from error
    syncing = asyncio.create_task(_sync(recording))
    stack.callback(syncing.cancel)


async def _sync(recording: Recording) -> None:
    while True:
        await asyncio.sleep(SYNC_S)
        recording.sync()


def _configuration(file: Path | None, text: str | None) -> Configuration | None:
    """The checked configuration of a file; raises BadOptionError with every problem on its line."""
    if file is None:
        return None
    if text is None:
        text = _read(file)
    configuration, problems = load(text, str(file))
    if configuration is None:
        raise BadOptionError("\n".join(map(str, problems)))
    for problem in problems:
        _log.warning("configuration", problem=str(problem))
    return configuration


def _read(file: Path) -> str:
    try:
        return without_header(file.read_text(encoding="utf-8"))[1]
    except (OSError, UnicodeDecodeError) as error:
        raise BadOptionError(f"{file}: {error}") from error


def _clock() -> Callable[[], int]:
    """Unix milliseconds that never decrease, whatever happens to the machine's clock meanwhile."""
    offset = time.time() - time.monotonic()
    return lambda: int((time.monotonic() + offset) * 1000)


def _metric_readers() -> list[MetricReader]:
    reader = otlp.metric_reader(os.environ)
    return [reader] if reader else []


async def _watch(secrets: Secrets, endpoint: Endpoint, hangup: asyncio.Event) -> None:
    """Has secrets read again that have changed, and all of them at a hangup."""
    while True:
        with suppress(TimeoutError):
            await asyncio.wait_for(hangup.wait(), LOOK_S)
        whole = hangup.is_set()
        hangup.clear()
        if secrets.renew(whole=whole):
            ended = endpoint.renew(secrets.identities)
            if ended:
                _log.warning("calls-ended", calls=ended, why="their callers count no more")


async def _end(task: asyncio.Task[None]) -> None:
    """Cancels a task and waits for its end: what it refers to, such as the gRPC server, ends before the loop does."""
    task.cancel()
    await asyncio.wait({task})


def _refused(
    endpoint: Endpoint, peer: ssl.SSLObject | None, authorization: str
) -> tuple[int, str] | None:
    return refused_metrics(endpoint.identities, peer, authorization)


async def _metrics(
    options: ServeOptions,
    refused: metrics_endpoint.Refused,
    secrets: Secrets,
    metrics: Metrics,
    stack: AsyncExitStack,
) -> None:
    """Opens the metrics endpoint, and keeps the gauges fresh where they are exported unasked."""
    stack.callback(metrics.close)
    if otlp.wanted("metrics", os.environ):
        refreshing = asyncio.create_task(_refresh(metrics))
        stack.callback(refreshing.cancel)
    if options.metrics is not None:
        host, port = address("--metrics", options.metrics)
        server = await metrics_endpoint.start(
            host, port, metrics.text, secrets.metrics_tls(), refused
        )
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
    """Copies where they can be made without harm; elsewhere the event loop waits for each read."""
    if sys.platform == "linux" and MAY_FORK:
        return Copies(time.perf_counter)
    _log.warning("reads-in-place", message="each read delays placements")
    return InPlace()


def _hearing(traces: Traces | None, clock: Callable[[], int]) -> Received:
    """What is done with every message that comes: a span where somebody wants spans."""

    def hear(kind: Kind, objects: int, context: Context) -> None:
        if traces is not None:
            traces.message(kind, objects, context.invocation_metadata() or (), clock())

    return hear


def _calls(
    traces: Traces | None, clock: Callable[[], int], call_ended: Callable[[grpc.StatusCode], None]
) -> Called:
    """What is done with every call: a span where somebody wants spans, and a look at what it left behind."""
    if traces is None:
        return lambda _method, _context: call_ended

    def begin(method: str, context: Context) -> Callable[[grpc.StatusCode], None]:
        ended = traces.call(method, context.invocation_metadata() or (), clock())

        def both(code: grpc.StatusCode) -> None:
            ended(code, clock())
            call_ended(code)

        return both

    return begin
