"""Simulations of a pod, a gang or another configuration on the present state. Only the function `applied` changes the core."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from evenhand.v1 import (
    config_pb2,
    config_pb2_grpc,
    history_pb2,
    history_pb2_grpc,
    inspect_pb2,
    inspect_pb2_grpc,
    simulate_pb2,
    simulate_pb2_grpc,
)
from evenhand_cli.asks import documents
from evenhand_cli.asks.reading import asks_of
from evenhand_cli.asks.simulated import Options
from evenhand_cli.connect import Core
from evenhand_cli.escaping import acts
from evenhand_cli.faults import Fault
from evenhand_cli.output import word
from evenhand_cli.render.amounts import PODS, in_order
from evenhand_cli.render.forecasts import decision_rows, headline
from evenhand_console.queue_numbers import Numbers, kinds_of, numbers, placed
from evenhand_console.reading import unless_absent

SIMULATION_S: Final = 120.0
"""Longest time, in seconds, that the simulation of a configuration may take."""
TEXT: Final = "text"
"""The name by which messages call a text that was sent from a page."""
SOURCE: Final = "console"
"""The name under which the core records the source of a text that was sent from a page."""
AROUND: Final = 2
"""Number of lines that are shown before and after a line with an error."""
ROWS_MAX: Final = 200
"""Largest number of rows of each table of an answer."""


@dataclass(frozen=True, slots=True)
class Present:
    """The configuration in force, and the text from which the editor begins."""

    revision: int
    digest: str
    text: str
    origin: str
    """The origin of the text in words, such as `revision 7`."""
    source: str = ""
    applied_by: str = ""
    at_ms: int = 0
    not_editable: str = ""
    """The reason why the text cannot be edited in a page, "" if it can be edited."""

    @property
    def identity(self) -> tuple[int, str]:
        """The revision and the digest. The core identifies a configuration by revision and digest."""
        return self.revision, self.digest


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of a text, with its number. `is_marked` is true on the line with the problem."""

    number: int
    text: str
    is_marked: bool


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of a configuration, with the lines around it."""

    severity: str
    found: config_pb2.ConfigProblem
    lines: tuple[SourceLine, ...]


@dataclass(frozen=True, slots=True)
class Forecast:
    """The amounts of a queue in one resource type, now and with the simulated configuration.

    An amount is None if the queue has no such limit or share.
    """

    queue: str
    fate: str
    """The effect of the configuration on the queue itself: `new`, `removed`, `draining`, or "" if the queue stays.

    A queue that drains takes no new applications, and is removed when it is empty.
    """
    kind: str
    held: tuple[int, int]
    guaranteed: tuple[int | None, int | None]
    max: tuple[int | None, int | None]
    deserved: tuple[int | None, int | None]
    pods: tuple[int, int]
    waiting: tuple[int, int]


@dataclass(frozen=True, slots=True)
class PartitionAnswer:
    """The simulated effects in one partition."""

    partition: str
    notes: tuple[str, ...]
    decisions: tuple[tuple[str, ...], ...]
    decisions_left_out: int
    forecasts: tuple[Forecast, ...]
    forecasts_left_out: int


@dataclass(frozen=True, slots=True)
class ConfigurationAnswer:
    """The simulated effects of a configuration, next to the present state."""

    valid: bool
    problems: tuple[Problem, ...]
    changes: tuple[config_pb2.ConfigChange, ...]
    headline: str = ""
    partitions: tuple[PartitionAnswer, ...] = ()
    assumptions: tuple[str, ...] = ()
    until_ms: int = 0
    complete: bool = True
    base_revision: int = 0
    base_digest: str = ""


@dataclass(frozen=True, slots=True)
class PodAnswer:
    """The outcome for one simulated pod."""

    outcome: str
    found: simulate_pb2.AskSimulation
    notes: tuple[str, ...]
    assumed: tuple[simulate_pb2.Assumption, ...]


@dataclass(frozen=True, slots=True)
class QueueNow:
    """The present numbers of a queue for which pods were simulated."""

    path: str
    numbers: tuple[Numbers, ...]
    waiting: int


@dataclass(frozen=True, slots=True)
class PodsAnswer:
    """The outcome for simulated pods, next to the present state of their queues."""

    pods: tuple[PodAnswer, ...]
    pods_left_out: int
    groups: tuple[simulate_pb2.SimulatedGroup, ...]
    queues: tuple[QueueNow, ...]
    ignored: tuple[tuple[str, int], ...]
    now_ms: int
    partition: str


def present(core: Core, revision: int) -> Present | None:
    """Return the configuration in force. If a ``revision`` is named, the text is that of this revision in the history.

    Return None if the caller may not see configurations.

    Raises Fault if the core does not answer, or has no such revision.
    """
    stub = config_pb2_grpc.ConfigurationServiceStub(core.channel)
    found = unless_absent(lambda: core.ask(stub.Get, config_pb2.GetRequest()))
    if found is None:
        return None
    text, origin = found.yaml, f"revision {found.revision}, which is in force"
    is_past = bool(revision) and revision != found.revision
    if is_past:
        history = history_pb2_grpc.HistoryServiceStub(core.channel)
        request = history_pb2.GetConfigurationRequest(revision=revision)
        text = core.ask(history.GetConfiguration, request).yaml
        origin = f"revision {revision}, from the history"
    text = unified(text)
    return Present(
        revision=found.revision,
        digest=found.digest,
        text=text,
        origin=origin,
        source="" if is_past else found.source,
        applied_by=found.applied_by,
        at_ms=found.applied_at_ms,
        not_editable=why_not_editable(text),
    )


def why_not_editable(text: str) -> str:
    """Return the reason why a text cannot be edited in a page, "" if it can be edited."""
    return "It has control characters, which a page cannot show unchanged." if acts(text) else ""


def unified(text: str) -> str:
    """Return a text with the line ends of a file (LF), because browsers send forms with CRLF."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def tried(core: Core, text: str) -> ConfigurationAnswer:
    """Simulate a configuration, and compare it with the configuration in force.

    Raises Fault if the core does not answer or refuses.
    """
    configuration = config_pb2_grpc.ConfigurationServiceStub(core.channel)
    differences = core.ask(configuration.Diff, config_pb2.DiffRequest(yaml=text, source=SOURCE))
    simulation = simulate_pb2_grpc.SimulateServiceStub(core.channel)
    request = simulate_pb2.SimulateConfigurationRequest(yaml=text, source=SOURCE)
    patient = replace(core, timeout_s=max(core.timeout_s, SIMULATION_S))
    return shown_configuration(
        text, differences, patient.ask(simulation.SimulateConfiguration, request)
    )


def shown_configuration(
    text: str,
    differences: config_pb2.DiffResponse,
    found: simulate_pb2.SimulateConfigurationResponse,
) -> ConfigurationAnswer:
    """Return the values of the answer about a configuration."""
    return ConfigurationAnswer(
        valid=found.valid,
        problems=tuple(_problem(one, text) for one in found.problems),
        changes=tuple(differences.changes),
        headline=headline(found) if found.valid else "",
        partitions=tuple(map(_partition, found.partitions)),
        assumptions=tuple(found.assumptions),
        until_ms=found.until_ms,
        complete=found.complete,
        base_revision=differences.revision,
        base_digest=differences.digest,
    )


def _problem(one: config_pb2.ConfigProblem, text: str) -> Problem:
    severity = word(config_pb2.ProblemSeverity.DESCRIPTOR, one.severity)
    lines = text.split("\n")
    start, end = max(0, one.line - 1 - AROUND), one.line + AROUND
    shown = [
        SourceLine(start + at + 1, line, start + at + 1 == one.line)
        for at, line in enumerate(lines[start:end])
    ]
    return Problem(severity, one, tuple(shown) if one.line else ())


def _partition(one: simulate_pb2.PartitionSimulation) -> PartitionAnswer:
    rows = decision_rows(one.decisions, whole=False)
    forecasts = [each for queue in one.forecasts for each in _forecasts(queue)]
    return PartitionAnswer(
        partition=one.partition,
        notes=tuple(_notes(one)),
        decisions=tuple(rows[:ROWS_MAX]),
        decisions_left_out=max(0, len(rows) - ROWS_MAX),
        forecasts=tuple(forecasts[:ROWS_MAX]),
        forecasts_left_out=max(0, len(forecasts) - ROWS_MAX),
    )


def _notes(one: simulate_pb2.PartitionSimulation) -> Iterator[str]:
    if one.removed:
        yield "The text lacks the partition: what runs stays until it ends, and nothing more is placed."
    if one.observed:
        yield "The partition observes: decisions are recorded, and no pod is evicted."
    if one.unsynced:
        yield "Its resource manager has not sent everything yet, so that nothing was simulated."
    for each in one.queues:
        if each.why_not:
            yield f"The max of {each.queue} would not be enforced: {each.why_not}"


def _forecasts(one: simulate_pb2.QueueForecast) -> Iterator[Forecast]:
    """Yield a row for each resource type in which a queue changes.

    For a queue that is new or removed, yield at least one row.
    """
    before, applied, after = one.before, one.applied, one.after
    fate = ""
    if not one.HasField("before") or not one.HasField("applied"):
        fate = "new" if one.HasField("applied") else "removed"
    elif applied.draining and not before.draining:
        fate = "draining"
    kinds = {*before.held, *after.held, *before.guaranteed, *applied.guaranteed}
    kinds |= {*before.max, *applied.max, *before.deserved, *applied.deserved}
    some = False
    for kind in in_order(kinds - {PODS}):
        row = Forecast(
            queue=one.queue,
            fate=fate,
            kind=kind,
            held=(before.held.get(kind, 0), after.held.get(kind, 0)),
            guaranteed=(before.guaranteed.get(kind), applied.guaranteed.get(kind)),
            max=(before.max.get(kind), applied.max.get(kind)),
            deserved=(_share(before, kind), _share(applied, kind)),
            pods=(before.allocations, after.allocations),
            waiting=(before.waiting, after.waiting),
        )
        pairs = (row.held, row.guaranteed, row.max, row.deserved, row.pods, row.waiting)
        if fate or any(pair[0] != pair[1] for pair in pairs):
            some = True
            yield row
    if fate and not some:
        counts = (before.allocations, after.allocations), (before.waiting, after.waiting)
        nothing = (None, None)
        yield Forecast(one.queue, fate, "", (0, 0), nothing, nothing, nothing, *counts)


def _share(found: simulate_pb2.QueueNumbers, kind: str) -> int | None:
    return found.deserved.get(kind) if found.proportional else None


def applied(core: Core, edited: Present) -> config_pb2.ApplyResponse:
    """Put a text in force, if the configuration from which it was made is still in force.

    Raises Fault if the core does not answer or refuses; the status is ABORTED if another configuration is in force.
    """
    stub = config_pb2_grpc.ConfigurationServiceStub(core.channel)
    request = config_pb2.ApplyRequest(
        yaml=edited.text,
        source=f"apply {SOURCE}",
        base_revision=edited.revision,
        base_digest=edited.digest,
    )
    return core.ask(stub.Apply, request)


@dataclass(frozen=True, slots=True)
class Given:
    """The content of the form about pods: the manifests, and the choices for reading them."""

    text: str
    queue: str = ""
    namespace: str = "default"
    priority: str = ""

    @property
    def options(self) -> Options:
        """The options for reading the text. Raises Fault for a priority that is no whole number."""
        try:
            priority = int(self.priority) if self.priority.strip() else None
        except ValueError as bad:
            raise Fault(
                f"`{self.priority}` is no whole number",
                where="priority",
                advice="leave it empty for the priority that the text says",
            ) from bad
        return Options(self.queue.strip(), self.namespace.strip() or "default", priority)


def simulated(core: Core, given: Given) -> PodsAnswer:
    """Simulate the pods of a text.

    Raises Fault if the core does not answer or refuses. If the text cannot be read, raises a Fault whose `__cause__`
    is None.
    """
    reading = asks_of(documents.parsed(given.text, TEXT), TEXT, given.options)
    named = sorted({one.partition for one in reading.asks})
    if len(named) > 1:
        raise Fault(
            f"the pods belong to several partitions: {', '.join(named)}",
            where=TEXT,
            advice="simulate them apart",
        )
    stub = simulate_pb2_grpc.SimulateServiceStub(core.channel)
    request = simulate_pb2.SimulateAsksRequest(
        partition=named[0], asks=[one.message for one in reading.asks]
    )
    answer = core.ask(stub.SimulateAsks, request)
    inspect = inspect_pb2_grpc.InspectServiceStub(core.channel)
    asked = inspect_pb2.GetQueueTreeRequest(partition=named[0])
    tree = core.ask(inspect.GetQueueTree, asked).tree
    notes = [one.notes for one in reading.asks]
    assumed = [one.assumed for one in reading.asks]
    return shown_pods(answer, tree, notes, assumed, reading.ignored)


def shown_pods(
    answer: simulate_pb2.SimulateAsksResponse,
    tree: inspect_pb2.QueueTree,
    notes: Sequence[Sequence[str]],
    assumed: Sequence[Sequence[simulate_pb2.Assumption]],
    ignored: Mapping[str, int],
) -> PodsAnswer:
    """Return the values of the answer about pods, in the order of the pods."""
    pods = [
        PodAnswer(
            word(simulate_pb2.AskOutcome.DESCRIPTOR, one.outcome),
            one,
            tuple(told),
            (*given, *one.assumed),
        )
        for one, told, given in zip(answer.asks, notes, assumed, strict=True)
    ]
    paths = dict.fromkeys(one.queue for one in answer.asks)
    return PodsAnswer(
        pods=tuple(pods[:ROWS_MAX]),
        pods_left_out=max(0, len(pods) - ROWS_MAX),
        groups=tuple(answer.groups),
        queues=tuple(_queues(tree, paths)),
        ignored=tuple(sorted(ignored.items())),
        now_ms=answer.taken_at_ms,
        partition=tree.partition,
    )


def _queues(tree: inspect_pb2.QueueTree, paths: Iterable[str]) -> Iterator[QueueNow]:
    wanted = set(paths)
    for one in placed(tree.root, {}):
        if one.queue.path in wanted:
            values = tuple(numbers(one, kind) for kind in kinds_of(one))
            yield QueueNow(one.queue.path, values, one.queue.asks_waiting)
