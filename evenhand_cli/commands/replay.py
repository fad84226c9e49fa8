"""The command `evenhand replay`: it passes the recorded input of a core to another core, and compares the decisions."""

import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Annotated, BinaryIO, cast

import typer
from rich.console import Group, RenderableType
from rich.progress import Progress
from rich.text import Text

from evenhand.v1 import explain_pb2
from evenhand_cli import terminal
from evenhand_cli.durations import instant_ms
from evenhand_cli.faults import ExitCode, Fault
from evenhand_cli.files import opened, unreadable
from evenhand_cli.output import Form, Output, plain, show
from evenhand_cli.render import records
from evenhand_cli.render.explanation import explanation
from server.record.chain import Chain, Entry
from server.record.comparing import Comparison, NotThisLogError
from server.record.reading import BadTraceError, TraceReader
from server.record.replay import CoreFailedError, Replay
from server.record.verify import files_of
from server.rpc.evenhand.decision_log import DecisionLog
from server.rpc.evenhand.explain_service import ExplainService
from server.rpc.pump import Pump
from server.rpc.roles import CALLER, LOCAL_OPERATOR

Trace = Annotated[
    Path, typer.Argument(metavar="TRACE", help="File that `evenhand serve --trace FILE` wrote.")
]
Log = Annotated[
    Path | None,
    typer.Option(
        "--log", metavar="OUT", help="Write the decision log of the replay to this new file."
    ),
]
Compare = Annotated[
    Path | None,
    typer.Option(
        "--compare",
        metavar="LOG",
        help="Compare the decisions with this decision log of the recorded run, up to the first line that differs.",
    ),
]
Until = Annotated[
    str,
    typer.Option(
        "--until",
        metavar="TIME",
        help="End after this instant: 2026-11-24 14:30:00 (local time; with Z or +01:00 in that zone), or Unix "
        "milliseconds.",
    ),
]
Explain = Annotated[
    list[str] | None,
    typer.Option(
        "--explain",
        metavar="KEY",
        help="Explain this ask, allocation, application, node or decision as it is at the end of the replay; may "
        "be repeated.",
    ),
]

STEPS_A_PICTURE = 500
"""Number of lines of a trace between two updates of the progress bar."""


@dataclass(slots=True)
class Sinks:
    """The receivers of the log entries that a replay produces."""

    chain: Chain
    out: BinaryIO | None = None
    comparison: Comparison | None = None
    entries: int = 0

    def take(self, entry: Entry) -> None:
        """Count an entry.

        Write the entry if there is an output, and compare the entry with the recorded log if there is one.
        """
        self.entries += 1
        if self.out is not None:
            written = self.chain.line(entry)
            self.out.write(written)
            self.chain.passed(written)
        if self.comparison is not None:
            self.comparison.entry(entry)


@dataclass(slots=True)
class Outcome:
    """The result of the command; `failure` is an error in the core with its stack."""

    replay: Replay
    sinks: Sinks
    decisions: DecisionLog
    failure: CoreFailedError | None = None
    explained: list[explain_pb2.ExplainResponse] = field(default_factory=list)

    @property
    def same(self) -> bool:
        """Return whether the replay made the same decisions as the recorded core.

        Only decisions that the record contains are compared. Return False if the core failed.
        """
        comparison = self.sinks.comparison
        differs = comparison is not None and comparison.difference is not None
        return not (differs or self.failure or self.replay.summary.parted)


def replay(
    trace: Trace,
    log: Log = None,
    compare: Compare = None,
    until: Until = "",
    explain: Explain = None,
    output: Output = Form.TABLE,
) -> None:
    """Run a recorded trace again, and say whether the core makes the same decisions.

    docs/decision-log.md says what a trace contains and how to make one. Exit code 1: the decisions differ, or the core
    failed.

    Examples:
        evenhand replay trace.jsonl --compare decisions.jsonl
        evenhand replay trace.jsonl --until "2026-11-24 14:30:00"
        evenhand replay trace.jsonl --explain science/train-1

    """
    if explain and not all(explain):
        advice = "name an ask, allocation, application, node or decision"
        raise Fault("the key is empty", where="--explain", advice=advice, code=ExitCode.USAGE)
    end = instant_ms(until) if until else None
    with ExitStack() as stack:
        reader = _reader(stack.enter_context(opened(trace, "argument TRACE")), trace, end)
        sinks = Sinks(Chain(reader.header.number, reader.header.previous))
        sinks.comparison = _comparison(compare, reader)
        if log is not None:
            sinks.out = stack.enter_context(_created(log))
        _say_version(reader.header.version)
        outcome = _played(reader, sinks, trace)
    _finish(outcome, explain or [], to_the_end=end is None)
    show(output, _value(outcome, trace), lambda console: _picture(outcome, console.width))
    if not outcome.same:
        raise typer.Exit(ExitCode.PROBLEM)


def _say_version(recorded: str) -> None:
    """Print a notice if another version of Evenhand recorded the trace, because differences may come from this."""
    own = metadata.version("evenhand")
    if recorded != own:
        terminal.say(
            f"Evenhand {recorded} wrote this trace, this is {own}: it may decide otherwise"
        )


def _played(reader: TraceReader, sinks: Sinks, trace: Path) -> Outcome:
    replayed = Replay(reader)
    outcome = Outcome(replayed, sinks, DecisionLog(replayed.core))
    replayed.observers.append(outcome.decisions.decided)
    with progress(trace) as tell:
        outcome.failure = _run(outcome, trace, tell)
    return outcome


def _reader(file: BinaryIO, trace: Path, until: int | None) -> TraceReader:
    try:
        return TraceReader(file, until)
    except BadTraceError as error:
        raise _bad(trace, error) from error


def _bad(trace: Path, error: BadTraceError) -> Fault:
    return Fault(error.what, where=f"{trace}:{error.line}", advice=error.advice)


@contextmanager
def _created(log: Path) -> Iterator[BinaryIO]:
    """Open a new file for writing; an existing log is never overwritten.

    Raises Fault if the file exists or cannot be written.
    """
    try:
        with log.open("xb") as file:
            yield file
    except FileExistsError as error:
        advice = "name a file that is not there yet"
        raise Fault(f"{log} exists", where="--log", advice=advice) from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        advice = "name a file that can be written"
        raise Fault(f"cannot write {log}: {reason}", where="--log", advice=advice) from error


def _comparison(compare: Path | None, reader: TraceReader) -> Comparison | None:
    if compare is None:
        return None
    files = files_of(compare)
    if not files:
        advice = "name the FILE of `evenhand serve --decision-log FILE`"
        raise Fault(f"there is no {compare}", where="--compare", advice=advice)
    try:
        return Comparison(files, reader.header)
    except NotThisLogError as error:
        raise Fault(
            f"{compare} holds no run that began as this trace did",
            where="--compare",
            advice="name the decision log of the server that wrote the trace, of the same run",
        ) from error
    except OSError as error:
        raise unreadable(Path(error.filename or compare), error, "--compare") from error


@contextmanager
def progress(trace: Path) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal.

    Yield a function that is called with the number of bytes read so far.
    """
    console = terminal.notices()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(f"replaying {trace.name}", total=trace.stat().st_size)
        steps = 0

        def tell(read: int) -> None:
            nonlocal steps
            steps += 1
            if steps % STEPS_A_PICTURE == 0:
                bar.update(task, completed=read)

        yield tell


def _run(outcome: Outcome, trace: Path, tell: Callable[[int], None]) -> CoreFailedError | None:
    """Replay the trace.

    Return the error in the core that ended the replay, or None if the replay reached its end.
    """
    try:
        for entry in outcome.replay.entries(tell):
            outcome.sinks.take(entry)
    except BadTraceError as error:
        raise _bad(trace, error) from error
    except CoreFailedError as failure:
        return failure
    return None


def _finish(outcome: Outcome, keys: list[str], *, to_the_end: bool) -> None:
    comparison = outcome.sinks.comparison
    if comparison is not None and outcome.failure is None and to_the_end:
        comparison.finish()
    if outcome.failure is not None:
        traceback.print_exception(outcome.failure.__cause__)
        return
    if keys:
        outcome.explained = copy_context().run(_explained, outcome, keys)


def _explained(outcome: Outcome, keys: list[str]) -> list[explain_pb2.ExplainResponse]:
    """Return the answers that the core's explain service would give an operator at the last instant of the replay."""
    CALLER.set(LOCAL_OPERATOR)
    instant = cast("Pump", Instant(outcome.replay.summary.to_ms))
    service = ExplainService(outcome.replay.core, instant, outcome.decisions)
    found = [_key_of(outcome, key) for key in keys]
    return [service.explain(explain_pb2.ExplainRequest(key=key)) for key in found]


def _key_of(outcome: Outcome, name: str) -> str:
    """Return the key of the ask or allocation whose pod has this name at the end of the replay.

    Return the name itself when no pod has this name.
    """
    for known, state in outcome.replay.core.state.partitions.items():
        names = outcome.decisions.names(known)
        for key in state.asks if name not in state.asks else ():
            if name in {names(key), names(key).partition("/")[2]}:
                return key
    return name


@dataclass(frozen=True, slots=True)
class Instant:
    """The clock of a replay.

    The explain service gets this object instead of the pump, the loop that drives a running core, because the service
    uses only the pump's clock.
    """

    ms: int

    def now(self) -> int:
        """Return the instant in Unix milliseconds."""
        return self.ms


def _value(outcome: Outcome, trace: Path) -> dict[str, object]:
    failure = outcome.failure
    return {
        "trace": str(trace),
        "same": outcome.same,
        **records.summary_value(outcome.replay.summary, outcome.sinks.entries),
        "comparison": records.comparison_value(outcome.sinks.comparison),
        "failed_at_line": failure.line if failure else None,
        "explained": [plain(one) for one in outcome.explained],
    }


def _picture(outcome: Outcome, width: int) -> RenderableType:
    parts: list[RenderableType] = [
        records.summary(outcome.replay.summary, outcome.sinks.entries),
        *records.verdict(outcome.replay.summary, outcome.sinks.comparison),
    ]
    if outcome.failure is not None:
        failure, cause = outcome.failure, outcome.failure.__cause__
        what = f"the core failed at line {failure.line}: {type(cause).__name__}: {cause}"
        parts.append(Text(what, style="bad"))
    for one in outcome.explained:
        parts += [Text(), explanation(one, one.key, width)]
    return Group(*parts)
