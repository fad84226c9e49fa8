"""The run of a story: a core in this process on simulated time, and the decisions and checks of each step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from evenhand_cli.faults import ExitCode, Fault
from evenhand_cli.story.checks import Check, Checker
from evenhand_cli.story.form import Example, Moment, Text
from evenhand_cli.story.lines import checked, released, told
from evenhand_cli.story.words import MANAGER, START, Known, UnknownWordError, events
from server.config import diff, load
from server.config.difference import Change
from server.core.core import Core
from server.model.decisions import Decision
from server.model.events import ConfigurationApplied, Event, ManagerRegistered
from server.model.quota import Configuration

EVENTS_MAX = 100_000
"""Maximum number of events of one story."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A step after the core has decided: `changes` are the changes of the configuration, and `now` is in Unix milliseconds."""

    moment: Moment
    now: int
    changes: tuple[Change, ...]
    decisions: tuple[Decision, ...]
    told: tuple[tuple[str, str], ...]
    """The decisions of the kinds that the story lists, each as a line with its reason."""
    checks: tuple[Check, ...]

    @property
    def holds(self) -> bool:
        """Whether every expectation of the step holds."""
        return all(one.holds for one in self.checks)


@dataclass(slots=True)
class Player:
    """A story in progress: the core, the instant, and the names to which later lines may refer."""

    example: Example
    configuration: Configuration
    core: Core
    now: int = START
    known: Known = field(default_factory=Known)
    names: dict[str, str] = field(default_factory=dict)
    """The name of each decision in the story."""
    events: int = 0

    @classmethod
    def of(cls, example: Example) -> "Player":
        """Return a player for a story of which no step has run yet.

        Raises Fault for a configuration with errors and for unknown words.
        """
        configuration = configured(example.configuration, example.source)
        _check(example)
        core = Core(configuration)
        if example.register_first:
            core.handle(ManagerRegistered(MANAGER), START)
        return cls(example, configuration, core)

    def turns(self) -> Iterator[Turn]:
        """Yield the steps one after the other. Raises Fault for a story with too many events."""
        return map(self.take, self.example.moments)

    def take(self, moment: Moment) -> Turn:
        """Run one step and check all expectations of the step.

        Raises Fault if the story has more than EVENTS_MAX events.
        """
        step = moment.step
        now = self.now if step.at is None else START + step.at
        self.now, before = now, self.configuration
        decisions = self.decide(moment)
        self.core.validate()
        self.known.decisions |= {one.key: one.decision_id for one in released(decisions)}
        self.known.checks |= checked(decisions)
        lines = told(decisions, self.example.also, self.names)
        checks = tuple(Checker(self.core, step, now).checks(lines, decisions))
        changes = () if before is self.configuration else diff(before, self.configuration)
        return Turn(moment, now, tuple(changes), tuple(decisions), tuple(lines), checks)

    def decide(self, moment: Moment) -> Sequence[Decision]:
        """Return the decisions of the core for the events of a step, and for the time that has passed."""
        decisions: list[Decision] = []
        if moment.applied is not None:
            self.configuration = configured(moment.applied, self.example.source)
            applied = ConfigurationApplied(self.configuration, "story")
            decisions += self.core.handle(applied, self.now)
        for line, number in zip(moment.step.do, moment.lines, strict=True):
            for event in self._events(line, number):
                decisions += self.core.handle(event, self.now)
        return decisions + run(self.core, self.now)

    def _events(self, line: str, number: int) -> Iterator[Event]:
        for event in events(line, self.known):
            self.events += 1
            if self.events > EVENTS_MAX:
                what = f"more than {EVENTS_MAX:,} events"
                raise _fault(self.example, what, number, "shorten the story")
            yield event


def _check(example: Example) -> None:
    """Check the configurations, events and instants of all steps, so that no story ends before its last step.

    Raises Fault if a configuration, a word in the line of an event, or an instant is invalid.
    """
    last = 0
    for moment in example.moments:
        if moment.applied is not None:
            configured(moment.applied, example.source)
        for line, number in zip(moment.step.do, moment.lines, strict=True):
            try:
                next(events(line, Known()))
            except UnknownWordError as error:
                raise _fault(example, error.what, number, error.advice) from error
        at = last if moment.step.at is None else moment.step.at
        if at < last:
            what = f"`at: {at}` is before the step above it, at {last}"
            raise _fault(example, what, moment.line, "write the steps in the order of time")
        last = at


def _fault(example: Example, what: str, line: int, advice: str) -> Fault:
    where = f"{example.source}:{line}"
    return Fault(what, where=where, advice=advice, code=ExitCode.USAGE)


def configured(text: Text, source: str) -> Configuration:
    """Return the configuration of a story. Raises Fault for the first error in the text, with its line in the file."""
    configuration, problems = load(text.text, source)
    if configuration is None:
        first = next(one for one in problems if one.severity == "error")
        line = text.line if text.made else text.line + first.line - 1
        what = f"{first.path}: {first.message}" if first.path else first.message
        raise Fault(what, where=f"{source}:{line}", advice=first.advice, code=ExitCode.USAGE)
    return configuration


def run(core: Core, now: int) -> list[Decision]:
    """Send ticks until the core has nothing left to do at this instant, and return its decisions."""
    decisions: list[Decision] = []
    more = True
    while more:
        tick = core.tick(now)
        decisions += tick.decisions
        more = tick.more
    return decisions
