"""Text for the result of a replay, its differences from a log, and the verification of a log."""

from collections.abc import Iterable
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from evenhand_cli.render.columns import facts
from evenhand_cli.render.words import instant, plural
from server.record.chain import Link
from server.record.comparing import Comparison, Difference
from server.record.replay import Summary
from server.record.verify import Remark, Verified

REMARKS_MAX = 20
"""Maximum number of remarks on a log that are shown; JSON has all of them."""
PARTS_MAX = 5
"""Maximum number of differing fields within one line that are shown."""
VALUE_CHARACTERS_MAX = 200


def summary_value(summary: Summary, entries: int) -> dict[str, Any]:
    """Return the summary as JSON."""
    line, wanted, given = summary.parted or (None, None, None)
    return {
        "from_ms": summary.from_ms,
        "to_ms": summary.to_ms,
        "ended": summary.ended,
        "events": dict(sorted(summary.events.items())),
        "ticks": summary.ticks,
        "decisions": summary.decisions,
        "placements": summary.placements,
        "releases": summary.releases,
        "preemption": dict(sorted(summary.policies.items())),
        "victims": summary.victims,
        "log_lines": entries,
        "parted": {"line": line, "recorded": wanted, "replayed": given} if line else None,
    }


def summary(found: Summary, entries: int) -> RenderableType:
    """Return the summary as text, one line for each number."""
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in found.events.most_common())
    policies = ", ".join(f"{count:,} {policy}" for policy, count in sorted(found.policies.items()))
    told = f": {kinds}" if kinds else ""
    return facts(
        [
            ("from", f"{instant(found.from_ms)} to {instant(found.to_ms)} ({found.to_ms})"),
            ("trace", f"ends: {found.ended}" if found.ended else "stops without an end"),
            ("events", f"{found.events.total():,}{told}"),
            ("ticks", f"{found.ticks:,}"),
            ("placements", f"{found.placements:,}"),
            ("preemption", policies or "nothing decided"),
            ("victims", f"{found.victims:,}"),
            ("log", plural(entries, "line")),
        ]
    )


def verdict(found: Summary, comparison: Comparison | None) -> list[RenderableType]:
    """Return whether the replay made the same decisions as the recorded run, and the first difference between the two runs."""
    parts: list[RenderableType] = []
    if found.parted:
        line, wanted, given = found.parted
        what = f"the replay parts from the recorded run before line {line} of the trace:"
        parts.append(
            Text(f"{what} {plural(wanted, 'decision')} there, {given:,} here", style="bad")
        )
    if comparison is None:
        return parts
    missed = f", {comparison.missed:,} missing in gaps of the log" if comparison.missed else ""
    if comparison.difference is None:
        same = f"the same decisions, byte for byte: {plural(comparison.same, 'line')}{missed}"
        return [*parts, Text(same, style="good")]
    return [*parts, *_difference(comparison.difference)]


def _difference(found: Difference) -> list[RenderableType]:
    """Return the first line that differs between the two runs, and the lines before it."""
    parts: list[RenderableType] = [Text(f"{found.where}: {_what(found)}", style="bad")]
    parts += [Text(f"  before  {_line(one)}", style="faint") for one in found.before]
    if found.logged is not None:
        parts.append(Text(f"  log     {_line(found.logged)}"))
    if found.replayed is not None:
        at_ms, kind, told = found.replayed
        parts.append(Text(f"  replay  {_brief(at_ms, kind, told)}"))
    for path, logged, replayed in found.parts[:PARTS_MAX]:
        parts.append(Text(f"  {path}", style="key"))
        parts.append(Text(f"    log     {_cut(logged)}"))
        parts.append(Text(f"    replay  {_cut(replayed)}"))
    if len(found.parts) > PARTS_MAX:
        parts.append(Text(f"  and {len(found.parts) - PARTS_MAX:,} places more", style="faint"))
    return parts


def _what(found: Difference) -> str:
    if found.short:
        return "the log ends, the replay goes on"
    if found.replayed is None:
        return "the log goes on, the replay ends"
    return "the first line that differs"


def comparison_value(comparison: Comparison | None) -> dict[str, Any] | None:
    """Return the comparison as JSON."""
    if comparison is None:
        return None
    found = comparison.difference
    return {
        "same_lines": comparison.same,
        "missed_lines": comparison.missed,
        "difference": None if found is None else _difference_value(found),
    }


def _difference_value(found: Difference) -> dict[str, Any]:
    return {
        "where": found.where,
        "what": _what(found),
        "logged": _link_value(found.logged),
        "replayed": None if found.replayed is None else found.replayed._asdict(),
        "parts": [
            {"path": path, "logged": logged, "replayed": replayed}
            for path, logged, replayed in found.parts
        ],
        "before": [_link_value(one) for one in found.before],
    }


def _link_value(link: Link | None) -> dict[str, Any] | None:
    return None if link is None else {"number": link.number, **link.entry._asdict()}


def verified_value(found: Verified) -> dict[str, Any]:
    """Return the result of a log's verification as JSON."""
    return {
        "whole": found.whole,
        "fits": found.fits,
        "missing": found.missing,
        "more_missing": found.more,
        "files": found.files,
        "lines": found.lines,
        "kinds": dict(sorted(found.kinds.items())),
        "from_ms": found.from_ms,
        "to_ms": found.to_ms,
        "last_number": found.number,
        "last_digest": found.digest,
        "remarks": [
            {**one._asdict(), "missing": one.missing and one.missing._asdict()}
            for one in found.remarks
        ],
    }


def verified(found: Verified) -> RenderableType:
    """Return the result of a log's verification as text: a judgement with its reason, and facts about the log."""
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in found.kinds.most_common())
    told = f": {kinds}" if kinds else ""
    told_facts = [
        ("lines", f"{found.lines:,} in {plural(found.files, 'file')}{told}"),
        ("from", f"{instant(found.from_ms)} to {instant(found.to_ms)}"),
        ("last", f"line {found.number}, digest {found.digest}"),
    ]
    judgement = Text(_judgement(found), style="good" if found.whole else "bad")
    return Group(judgement, *_remarks(found), facts(told_facts))


def _judgement(found: Verified) -> str:
    """Return a sentence that says whether the log can be trusted."""
    if not found.fits:
        return "the log does not fit together"
    fits = "every line fits the one before it"
    if not found.missing:
        return f"{fits}, but lines may be missing" if found.more else fits
    least = "at least " if found.more else ""
    return f"{fits}, but {least}{plural(found.missing, 'line', 'are')} missing"


def _remarks(found: Verified) -> Iterable[RenderableType]:
    for one in found.remarks[:REMARKS_MAX]:
        word, style = ("error", "bad") if one.wrong else ("note", "warn")
        yield Text.assemble((f"{one.where}: ", "key"), (word, style), f": {one.what}{_when(one)}")
    if len(found.remarks) > REMARKS_MAX:
        yield Text(f"and {len(found.remarks) - REMARKS_MAX:,} remarks more", style="faint")


def _when(remark: Remark) -> str:
    """Return the time span of missing lines; empty when no line is missing."""
    if remark.missing is None:
        return ""
    return f" ({instant(remark.missing.from_ms)} to {instant(remark.missing.to_ms)})"


def _line(link: Link) -> str:
    return f"{link.number}  {_brief(*link.entry)}"


def _brief(at_ms: int, kind: str, told: Any) -> str:  # noqa: ANN401
    """Return a short text for an entry of the decision log."""
    record = told.get("record") if isinstance(told.get("record"), dict) else told
    words = [record.get(name) for name in ("decision_id", "state", "key", "source", "summary")]
    return " ".join([f"{instant(at_ms)} ({at_ms})", kind, *(str(one) for one in words if one)])


def _cut(value: object) -> str:
    text = str(value)
    if len(text) <= VALUE_CHARACTERS_MAX:
        return text
    return f"{text[:VALUE_CHARACTERS_MAX]}... ({len(text):,} characters)"
