"""A story as text for users and as plain values for programs.

Text and values have the story's queues and steps, and say whether its expectations hold.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from evenhand.v1 import decisions_pb2, explain_pb2
from evenhand_cli.output import plain
from evenhand_cli.render.amounts import phrase
from evenhand_cli.render.columns import Indented
from evenhand_cli.render.explanation import explanation
from evenhand_cli.render.words import plural
from evenhand_cli.story.answers import Answers
from evenhand_cli.story.checks import Check
from evenhand_cli.story.decided import Entry, decided, first_lines
from evenhand_cli.story.form import Example
from evenhand_cli.story.happenings import happening
from evenhand_cli.story.lines import ON_DEMAND, told
from evenhand_cli.story.play import Player, Turn
from evenhand_cli.story.words import START
from evenhand_cli.terminal import wrapped
from server.config import diff
from server.config.difference import Change
from server.model.decisions import AskStateChanged, Decided, Noted
from server.model.quota import ROOT, Configuration, PartitionSpec, QueueSpec
from server.model.reasons import Code

QUEUES_MAX: Final = 12
"""Maximum number of queues that are listed at the start."""
EXPLAINED_MAX: Final = 8
"""Maximum number of decisions and asks that are explained at one step."""
SECOND: Final = 1_000
_ROLE: Final = re.compile(r" \([a-z]+\)$")


@dataclass(frozen=True, slots=True)
class Told:
    """A step with its decisions as the core explains them, and their entries in plain words."""

    turn: Turn
    answers: dict[str, decisions_pb2.Decision]
    entries: list[Entry]

    @classmethod
    def of(cls, turn: Turn, answers: Answers) -> "Told":
        """Return a step that has just run, with its decisions and their entries."""
        answers.note(turn)
        ids = [one.record.decision_id for one in turn.decisions if isinstance(one, Decided)]
        found = answers.explain(dict.fromkeys(ids))
        known = {
            one.decision.decision_id: one.decision for one in found if one.HasField("decision")
        }
        return cls(turn, known, decided(turn.decisions, known, answers.player.names))

    def explained(self) -> list[str]:
        """Return the keys of the decisions and asks of this step for which full explanations are shown."""
        keys = dict.fromkeys(self.answers)
        for one in self.turn.decisions:
            if isinstance(one, AskStateChanged):
                keys[one.key] = None
            elif isinstance(one, Noted) and one.code is Code.PREEMPTION_REFUSED:
                keys[one.subject] = None
        return list(keys)[:EXPLAINED_MAX]


def opening(player: Player, width: int, *, brief: bool = False) -> RenderableType:
    """Return the title of a story and, unless `brief` is set, the queues with which the story begins."""
    example = player.example
    title = Text.assemble((f"{example.number} ", "faint"))
    if example.title != example.source:
        title.append(f"{_line(example.title)}  ", style="heading")
    if example.rule:
        title.append(f"{_line(example.rule)}  ", style="faint")
    title.append(example.source, style="faint")
    if brief:
        return title
    lines = [*_settings(player.configuration), *_queues(player.configuration)]
    return Group(title, *(_indented(line, 2, width) for line in lines), Text())


@dataclass(slots=True)
class Steps:
    """The steps of one story as text. `label` is the width of the column with the instants."""

    label: int
    brief: bool = False
    said: dict[str, str] = field(default_factory=dict)
    """The reasons that were printed already, each with its instant."""

    def step(self, one: Told, width: int) -> RenderableType:
        """Return a step as text: the instant, the events, the decisions with their reasons, and the expectations that do not hold."""
        left = width - self.label
        body = list(self._brief(one, left) if self.brief else self._full(one, left))
        for check in one.turn.checks:
            if not check.holds:
                body += _failed(check, left)
        at = [f"{instant(one.turn.now):<{self.label}}", *([" " * self.label] * len(body))]
        return Group(
            *(Text.assemble((head, "key"), line) for head, line in zip(at, body, strict=False))
        )

    def _full(self, one: Told, width: int) -> Iterator[Text]:
        happens = [*map(_changed, one.turn.changes), *map(happening, one.turn.moment.step.do)]
        if happens:
            yield from map(Text, wrapped(_line("; ".join(happens)), width))
        for entry in one.entries:
            for line in first_lines(entry.lines):
                yield from _hanging("- ", line, width)
            why = "; ".join(self._why(entry, instant(one.turn.now)))
            if why:
                yield from _hanging("  why: ", why, width, "faint")
        if not one.entries:
            yield Text("- nothing is decided")

    def _why(self, entry: Entry, now: str) -> Iterator[str]:
        """Yield the numbers and the reason of an entry. A reason that was printed before is not repeated."""
        yield from (_held(told) for told in entry.held)
        if entry.because:
            before = self.said.setdefault(entry.because, now)
            ids = f" ({', '.join(entry.rules)})" if entry.rules else ""
            yield entry.because if before == now else f"as at {before}{ids}"

    def _brief(self, one: Told, width: int) -> Iterator[Text]:
        for entry in one.entries:
            for line in first_lines(entry.short):
                yield from _hanging("", line, width)
        if not one.entries:
            yield Text("nothing is decided")


def _held(told: str) -> str:
    """Return the numbers of a queue as a phrase: `root.shop held 0/4 cores guaranteed`."""
    path, _, rest = told.partition(" ")
    return f"{path} held {_ROLE.sub('', rest)}"


def details(found: Iterable[explain_pb2.ExplainResponse], label: int, width: int) -> RenderableType:
    """Return the full explanations that are shown below a step."""
    parts: list[RenderableType] = []
    for one in found:
        parts += [Text(), Indented(explanation(one, one.key, width - label), label)]
    return Group(*parts, *([Text()] if parts else []))


def verdict(told: Sequence[Told], width: int, *, brief: bool = False) -> RenderableType:
    """Return whether the story holds, and where to read about the rules that its reasons name."""
    checks = [check for one in told for check in one.turn.checks]
    failed = [one for one in told if not one.turn.holds]
    steps = plural(len(told), "step")
    if failed:
        count = sum(not check.holds for check in checks)
        where = ", ".join(
            f"{instant(one.turn.now)} (line {one.turn.moment.line})" for one in failed[:3]
        )
        line = f"does not hold: {count:,} of {plural(len(checks), 'expectation')}, at {where}"
        parts = [Text(line, style="bad")]
    elif checks:
        parts = [Text(f"holds: {plural(len(checks), 'expectation')} in {steps}", style="good")]
    else:
        parts = [Text(f"{steps}; the story expects nothing", style="warn")]
    ids = rule_ids(told)
    if ids and not brief:
        named = ", ".join(ids)
        parts += [
            Text(line, style="faint")
            for line in wrapped(
                f"rules: {named}; what one says: `evenhand explain {ids[0]}`", width
            )
        ]
    return Group(*parts)


def rule_ids(told: Iterable[Told]) -> list[str]:
    """Return the ids of the rules in reasons, in the order of their first appearance."""
    named = (rule for one in told for entry in one.entries for rule in entry.rules)
    return list(dict.fromkeys(named))


def label_width(example: Example) -> int:
    """Return the width of the column with the instants of a story."""
    last = START
    widths = []
    for moment in example.moments:
        last = last if moment.step.at is None else START + moment.step.at
        widths.append(len(instant(last)))
    return max(widths, default=0) + 2


def instant(now: int) -> str:
    """Return an instant as seconds after the start: `10 s`, `0.5 s`, `359.999 s`."""
    whole, rest = divmod(now - START, SECOND)
    return f"{whole}.{rest:03}".rstrip("0").rstrip(".") + " s" if rest else f"{whole} s"


def value(example: Example, told: Sequence[Told]) -> dict[str, Any]:
    """Return a story as plain values."""
    return {
        "number": example.number,
        "title": example.title,
        "rule": example.rule,
        "file": example.source,
        "line": example.line,
        "holds": all(one.turn.holds for one in told),
        "expectations": sum(len(one.turn.checks) for one in told),
        "steps": [_step_value(one) for one in told],
    }


def _step_value(one: Told) -> dict[str, Any]:
    turn = one.turn
    return {
        "at_ms": turn.now - START,
        "line": turn.moment.line,
        "do": list(turn.moment.step.do),
        "changes": [str(change) for change in turn.changes],
        "decisions": [
            {"decision": line, "reason": reason}
            for line, reason in told(turn.decisions, ON_DEMAND, {})
        ],
        "explained": [
            {"lines": entry.lines, "held": entry.held, "because": entry.because}
            for entry in one.entries
        ],
        "preemption": [plain(answer) for answer in one.answers.values()],
        "holds": turn.holds,
        "expectations": len(turn.checks),
        "failed": [
            {"what": check.what, "wanted": list(check.wanted), "found": list(check.found)}
            for check in turn.checks
            if not check.holds
        ],
    }


def _settings(configuration: Configuration) -> Iterator[str]:
    """Yield those settings of the partitions that do not have their default values."""
    for one in configuration.partitions:
        usual = Configuration((PartitionSpec(one.name, one.root, one.rules),))
        changes = diff(usual, Configuration((one,)))
        told = ", ".join(f"{change.field} {change.after}" for change in changes if change.field)
        if told:
            yield f"partition {one.name}: {told}"


def _queues(configuration: Configuration) -> Iterator[str]:
    lines = [line for one in configuration.partitions for line in _below(one.root, ROOT)]
    yield from lines[:QUEUES_MAX]
    if len(lines) > QUEUES_MAX:
        yield f"and {plural(len(lines) - QUEUES_MAX, 'more queue')}"


def _below(queue: QueueSpec, path: str) -> Iterator[str]:
    told = "; ".join(_of_queue(queue))
    if told or path != ROOT:
        yield f"{path}: {told}" if told else path
    for child in queue.children:
        yield from _below(child, f"{path}.{child.name}")


def _of_queue(queue: QueueSpec) -> Iterator[str]:
    if any(amount for _, amount in queue.guaranteed):
        yield f"guaranteed {phrase(dict(queue.guaranteed))}"
    if queue.max:
        yield f"max {phrase(dict(queue.max))}"
    if queue.weight != 1:
        yield f"weight {queue.weight}"
    if queue.max_applications:
        yield f"max {plural(queue.max_applications, 'application')}"
    yield from (f"{name} {text}" for name, text in queue.raw_properties.items())


def _changed(change: Change) -> str:
    return f"configuration: {change}"


def _failed(check: Check, width: int) -> Iterator[Text]:
    yield from _hanging("! ", f"{check.what} does not hold", width, "bad")
    for name, lines in (("wanted: ", check.wanted), ("found:  ", check.found)):
        for number, line in enumerate(lines or ("nothing",)):
            yield from _hanging(f"  {name if not number else ' ' * len(name)}", line, width)


def _hanging(mark: str, text: str, width: int, style: str = "") -> Iterator[Text]:
    """Yield the lines of a text behind a mark.

    The second and all later lines are indented by the width of the mark.
    """
    for number, line in enumerate(wrapped(_line(text), width - len(mark))):
        yield Text((mark if not number else " " * len(mark)) + line, style=style)


def _indented(text: str, indent: int, width: int) -> Text:
    lines = wrapped(_line(text), width - indent - 2)
    return Text(
        "\n".join(
            " " * (indent if not number else indent + 2) + line for number, line in enumerate(lines)
        )
    )


def _line(text: str) -> str:
    """Return a text in one line, without line ends."""
    return " ".join(text.split())
