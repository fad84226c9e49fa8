"""Text for problems and changes of a configuration, findings of the consistency check, and events."""

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.text import Text

from evenhand.v1 import config_pb2, inspect_pb2, watch_pb2
from evenhand_cli.output import word
from evenhand_cli.render.amounts import span
from evenhand_cli.render.columns import Hanging, facts
from evenhand_cli.render.fits import Pointer
from evenhand_cli.render.lines import line
from evenhand_cli.render.words import STYLES, instant, plural
from server.config.codes import counted

INDENT = 10
"""Column at which the facts of a problem begin.

Lines that continue a fact begin at this column, too.
"""
KIND_SIGNS = {"added": ("+", "good"), "removed": ("-", "bad"), "changed": ("~", "warn")}


def problems(
    found: Sequence[config_pb2.ConfigProblem],
    source: str,
    silenced: Sequence[config_pb2.ConfigProblem] = (),
    notes: Sequence[str] = (),
) -> RenderableType:
    """Return each problem with its place, its code and its consequence, then the number of problems by severity."""
    parts: list[RenderableType] = [Text(one, style="faint") for one in notes]
    for one in found:
        severity = word(config_pb2.ProblemSeverity.DESCRIPTOR, one.severity)
        place = f"{source}:{one.line}" if one.line else source
        said = Text.assemble(
            (f"{place}: ", "key"),
            (severity, STYLES[severity]),
            f": {one.message}",
            (f"  [{one.code}]" if one.code else "", "faint"),
        )
        parts.append(Hanging(said, INDENT))
        named = (("at", one.path), ("then", one.consequence), ("do", one.advice))
        parts += [_beside(name, value) for name, value in named if value]
    if silenced:
        parts.append(_silenced(silenced))
    return Group(*parts, verdict(found, source))


def _beside(name: str, value: str) -> Hanging:
    """Return a fact that is shown below a problem or change, aligned with the facts above and below it."""
    return Hanging(Text(f"{f'    {name}':<{INDENT}}{value}", style="faint"), INDENT)


def verdict(found: Sequence[config_pb2.ConfigProblem], source: str) -> Text:
    """Return the last line of a check: whether the file can be applied, and how many problems it has."""
    errors = count_errors(found)
    warnings = len(found) - errors
    if errors:
        counts = f"{plural(errors, 'error')}, {plural(warnings, 'warning')}"
        return Text(f"{source}: {counts}; it cannot be applied", style="bad")
    if warnings:
        return Text(f"{source}: good, with {plural(warnings, 'warning')}", style="warn")
    return Text(f"{source}: good", style="good")


def warned(
    found: Sequence[config_pb2.ConfigProblem],
    source: str,
    silenced: Sequence[config_pb2.ConfigProblem] = (),
    notes: Sequence[str] = (),
    *,
    whole: bool = False,
) -> Iterator[RenderableType]:
    """Yield the warnings of a file that can be applied: only their codes, or with `whole` their whole text."""
    if whole:
        if found or silenced or notes:
            yield problems(found, source, silenced, notes)
        return
    yield from (Text(one, style="faint") for one in notes)
    if found:
        codes = _codes(one.code or one.message for one in found)
        said = f"{plural(len(found), 'warning')}: {codes}"
        yield Pointer(said, f"evenhand config check {source}", "warn", ";")
    if silenced:
        yield _silenced(silenced)


def _silenced(found: Sequence[config_pb2.ConfigProblem]) -> Text:
    codes = ", ".join(
        f"{code} ({count})" for code, count in counted(one.code for one in found).items()
    )
    return Text(f"{plural(len(found), 'warning')} silenced: {codes}", style="faint")


def _codes(found: Iterable[str]) -> str:
    """Return each code once, with its number of occurrences when that is more than one."""
    each = counted(found).items()
    return ", ".join(code if number == 1 else f"{code} ({number})" for code, number in each)


def count_errors(found: Sequence[config_pb2.ConfigProblem]) -> int:
    """Return the number of problems that are errors. A file with errors cannot be applied."""
    return sum(one.severity == config_pb2.PROBLEM_SEVERITY_ERROR for one in found)


def changes(found: Sequence[config_pb2.ConfigChange], most: int | None = None) -> RenderableType:
    """Return one line for each change, at most `most` lines, and then the number of all other changes."""
    if not found:
        return Text("nothing changes", style="faint")
    parts: list[RenderableType] = []
    for one in found[:most]:
        sign, style = KIND_SIGNS.get(one.kind, ("~", "warn"))
        subject = f"{one.subject} {one.field}".rstrip()
        values = (
            f": {one.before or 'none'} -> {one.after or 'none'}" if one.before or one.after else ""
        )
        parts.append(Hanging(Text(f"{sign} {subject}{values}", style=style), INDENT))
        if one.consequence:
            parts.append(_beside("then", one.consequence))
    left = len(found) - len(found[:most])
    if left:
        parts.append(Text(f"and {plural(left, 'more difference')}: --all", style="faint"))
    return Group(*parts)


def diagnosis(answer: inspect_pb2.CheckConsistencyResponse) -> RenderableType:
    """Return the findings of a consistency check, each with advice."""
    parts: list[RenderableType] = []
    for one in answer.findings:
        severity = word(inspect_pb2.FindingSeverity.DESCRIPTOR, one.severity)
        worst = (severity, STYLES.get(severity, "faint"))
        subject, code = (f"  {one.subject}", "key"), (f"  [{one.code}]", "faint")
        parts.append(Text.assemble(worst, subject, f"  {one.message}", code))
        if one.advice:
            parts.append(facts([("  do  ", one.advice)]))
    checked = f" ({plural(len(answer.checks), 'check')})" if answer.checks else ""
    if answer.findings:
        verdict = Text(f"{plural(len(answer.findings), 'finding')}{checked}", style="key")
    else:
        verdict = Text(f"all is well{checked}", style="good")
    parts.append(verdict)
    if answer.started_at_ms:
        up_ms = answer.checked_at_ms - answer.started_at_ms
        reported = answer.recovered_allocations, answer.recovered_asks
        parts.append(memory(up_ms, reported, answer.decision_log))
    return Group(*parts)


def memory(up_ms: int, reported: tuple[int, int], decision_log: str) -> Text:
    """Return a text about the memory of the core.

    The text says how many allocations and asks the managers reported when they registered, and where the decisions of
    earlier runs are recorded.
    """
    allocations, asks = reported
    found = f"{plural(allocations, 'allocation')} and {plural(asks, 'ask')}"
    registered = f"; at registration its managers reported {found}" if any(reported) else ""
    earlier = f"in {decision_log}" if decision_log else "not kept, for want of --decision-log"
    return Text(f"core up {span(up_ms)}{registered}\ndecisions of earlier runs: {earlier}", "faint")


def count_error_findings(found: Sequence[inspect_pb2.Finding]) -> int:
    """Return how many findings are errors."""
    return sum(one.severity == inspect_pb2.FINDING_SEVERITY_ERROR for one in found)


def event(record: watch_pb2.EventRecord, console: Console) -> Text:
    """Return an event as text, in one line or in as many lines as the width requires.

    The event's code is added if the text does not contain it.
    """
    head = Text.assemble(
        (f"{record.number:>6}  ", "faint"),
        (instant(record.time_ms), "faint"),
        (f"  {record.kind:<13}", "heading"),
        (f" {record.name or record.object}", "key"),
    )
    body = record.message or record.code
    if record.node_id and record.node_id not in {record.object, *body.split()}:
        body += f"  -> {record.node_id}"
    is_told = record.code in {"", record.kind} or record.code in body
    return line(head, body, console, "" if is_told else f"[{record.code}]")
