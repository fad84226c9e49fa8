"""The history as text: usage and waits of queues, the life of a pod, configurations, starts of the core."""

from collections.abc import Callable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from evenhand.v1 import history_pb2 as pb
from evenhand_cli.render.amounts import NOTHING, amount, heading, in_order, phrase, span
from evenhand_cli.render.columns import ANSWER, Column, table
from evenhand_cli.render.fits import NextSteps
from evenhand_cli.render.sparks import Sparkline
from evenhand_cli.render.words import instant, plural

PODS = ""
"""The resource type of the series that counts pods."""
REASONS_MAX = 3
QUEUES_MAX = 15
PODS_MAX = 3
LINES_MAX = 4
"""Maximum number of sentences of a decision that are shown unless the user requests all."""
CHANGES_MAX = 4
LATE_MS = 30_000
"""Milliseconds by which the history may be late before the output mentions this.

If the history is later, the output says up to which instant the history is written.
"""


def _title(name: str, what: str, period: pb.HistoryPeriod | None = None) -> Text:
    title = Text.assemble((name, "key"), (f"  {what}", "heading"))
    if period is not None:
        length = span(period.until_ms - period.since_ms)
        title.append(f"  {length} since {instant(period.since_ms)}", style="faint")
    return title


def _indented(text: str | Text, by: int = 2) -> Padding:
    """Return a text in which all lines are indented, including lines that result from folding."""
    return Padding(text, (0, 0, 0, by), expand=False)


def late_since(period: pb.HistoryPeriod) -> int:
    """Return the instant up to which the history is written; 0 if the history is not late."""
    is_late = period.written_to_ms and period.until_ms - period.written_to_ms > LATE_MS
    return period.written_to_ms if is_late else 0


def notes(period: pb.HistoryPeriod) -> Iterator[Text]:
    """Yield lines that say whether an answer lacks records."""
    if written_to_ms := late_since(period):
        text = f"the history is written up to {instant(written_to_ms)}: evenhand doctor says why"
        yield Text(text, style="warn")
    if period.gaps:
        last = period.gaps[-1]
        lost = plural(sum(one.lost for one in period.gaps), "record")
        when = f"{instant(last.from_ms)} to {instant(last.to_ms)}"
        yield Text(f"{lost} of this time were lost, last {when}: {last.why}", style="warn")


# Queues ---------------------------------------------------------------------------------------------------------------


def queue(found: pb.GetQueueHistoryResponse, width: int) -> RenderableType:
    """Return the usage of a queue by resource type, and the waits of its pods."""
    known = {one.resource_type: one for one in found.series}
    kinds = [kind for kind in in_order(known) if kind not in {PODS, "pods"}]
    shown = [known[kind] for kind in kinds] + [known[PODS] for _ in (1,) if PODS in known]
    parts: list[RenderableType] = [_title(found.queue, "history", found.period)]
    if not shown:
        parts.append(_indented(Text("Nothing is known of this queue in this time.", style="warn")))
    else:
        parts += [_indented(_used(known, kinds)), Text(), _usage(shown, width)]
    parts += [Text(), *_waited(found.waits), *notes(found.period)]
    parts.append(NextSteps([f"evenhand history waits --queue {found.queue}: each queue below it"]))
    return Group(*parts)


def _used(known: dict[str, pb.UsageSeries], kinds: Sequence[str]) -> str:
    """Return the first sentence: the usage of the queue in its first resource type, and the number of pods that ran."""
    words = [
        f"{amount(kind, known[kind].average.usage)} {heading(kind)} on average, "
        f"{amount(kind, known[kind].average.usage_peak)} at most"
        for kind in kinds[:1]
    ]
    if PODS in known:
        words.append(f"{plural(known[PODS].average.usage_peak, 'pod')} at most")
    return f"It used {'; '.join(words)}." if words else "It used nothing."


def _usage(shown: Sequence[pb.UsageSeries], width: int) -> RenderableType:
    def values(name: str) -> list[str]:
        return [_amount(one.resource_type, getattr(one.average, name)) for one in shown]

    names = [heading(one.resource_type) if one.resource_type else "pods" for one in shown]
    columns = [
        Column("type", [Text(one, style="key") for one in names]),
        Column("used over time", [_sparkline(one) for one in shown]),
        Column("average", values("usage"), right=True),
        Column("most", values("usage_peak"), right=True),
        Column("guaranteed", values("guaranteed"), 2, right=True),
        Column("promised", values("promised"), 4, right=True),
        Column("waiting", values("waiting"), ANSWER, right=True),
    ]
    if any(one.average.deserved for one in shown):
        columns.insert(5, Column("deserved", values("deserved"), 3, right=True))
    return table(columns, width)


def _amount(kind: str, value: int) -> str:
    return amount(kind, value) if value else NOTHING


def _sparkline(series: pb.UsageSeries) -> Sparkline:
    values = [one.usage if one.covered_ms else None for one in series.points]
    return Sparkline(values, max((one.usage for one in series.points), default=0))


def _waited(found: pb.WaitSummary) -> Iterator[RenderableType]:
    if not found.asked:
        yield _indented("No pod asked for capacity in this time.")
        return
    yield _indented(_waits_text(found))
    for one in found.reasons[:REASONS_MAX]:
        yield Text.assemble(
            "  ",
            (f"{one.code}", "key"),
            f"  {span(one.total_ms)} in all, {plural(one.pods, 'pod')}",
        )


def _waits_text(found: pb.WaitSummary) -> str:
    parts = [f"Of {plural(found.asked, 'pod')} {found.placed:,} were placed"]
    if found.placed:
        parts.append(
            f"half of them within {span(found.median_ms)}, 90 % within {span(found.p90_ms)}, "
            f"99 % within {span(found.p99_ms)}"
        )
    if found.waiting:
        parts.append(f"{found.waiting:,} wait, up to {span(found.longest_waiting_ms)}")
    return "; ".join(parts) + "."


def waits(found: pb.GetWaitsResponse, width: int, *, full: bool = False) -> RenderableType:
    """Return the waits by queue; unless `full`, at most `QUEUES_MAX` queues."""
    total = found.total
    parts: list[RenderableType] = [_title(total.queue or "all queues", "waits", found.period)]
    if not found.queues:
        parts.append(_indented("No pod asked for capacity in this time."))
        return Group(*parts, *notes(found.period))
    shown = found.queues if full else found.queues[:QUEUES_MAX]
    parts += [_indented(_waits_text(total)), Text(), _waits_table(shown, width)]
    if len(shown) < len(found.queues):
        parts.append(Text(f"{plural(len(found.queues) - len(shown), 'more queue')}: --all"))
    if found.left_out:
        parts.append(Text(f"the oldest {plural(found.left_out, 'pod', 'are')} not counted", "warn"))
    parts += notes(found.period)
    if total.waiting:
        advice = "evenhand allocations --waiting: the pods that wait, and why"
    else:
        advice = f"evenhand history queue {shown[0].queue}: its usage over time"
    parts.append(NextSteps([advice]))
    return Group(*parts)


def _waits_table(shown: Sequence[pb.WaitSummary], width: int) -> RenderableType:
    def times(name: str) -> list[str]:
        return [span(getattr(one, name)) if one.placed else NOTHING for one in shown]

    longest = [span(one.longest_waiting_ms) if one.waiting else NOTHING for one in shown]
    reasons = [one.reasons[0].code if one.reasons else NOTHING for one in shown]
    return table(
        [
            Column("queue", [Text(one.queue, style="key") for one in shown], names=True),
            Column("placed", [f"{one.placed:,}" for one in shown], 3, right=True),
            Column("median", times("median_ms"), right=True),
            Column("90 %", times("p90_ms"), right=True),
            Column("99 %", times("p99_ms"), right=True),
            Column("longest", times("max_ms"), 4, right=True),
            Column("wait now", [f"{one.waiting:,}" for one in shown], ANSWER, right=True),
            Column("for", longest, 2, right=True),
            Column("most for", reasons, 2),
        ],
        width,
    )


# Pods -----------------------------------------------------------------------------------------------------------------

ENDS = {
    "ended": "ended",
    "preempted": "was evicted",
    "replaced": "was replaced by the pod it held a place for",
    "timeout": "timed out",
    "withdrawn": "was withdrawn before it had a place",
    "refused": "was refused",
    "bind-failed": "could not be bound to its node",
    "application-removed": "ended with its application",
    "removed": "was released by the core",
    "missed": "ended while the history did not watch",
}


def pods(
    name: str,
    found: pb.GetPodHistoryResponse,
    lines: Sequence[str] = (),
    *,
    full: bool = False,
) -> RenderableType:
    """Return the life of a pod, the latest ask first; unless `full`, at most `PODS_MAX` asks.

    `lines` are the sentences of the decision that evicted the pod.
    """
    shown = found.pods if full else found.pods[:PODS_MAX]
    parts: list[RenderableType] = [_title(found.pods[0].name or name, "history")]
    parts.append(_indented(life(found.pods[0], found.period.until_ms)))
    for one in shown:
        parts += [Text(), _pod(one, found.period.until_ms)]
    if len(shown) < len(found.pods):
        parts.append(Text(f"{plural(len(found.pods) - len(shown), 'earlier ask')}: --all"))
    if lines:
        parts += [Text(), *map(_indented, lines if full else lines[:LINES_MAX])]
    parts += notes(found.period)
    latest = found.pods[0]
    if latest.decision_id:
        parts.append(NextSteps([f"evenhand decisions {latest.decision_id}: why it was evicted"]))
    elif not latest.ended_ms:
        parts.append(NextSteps([f"evenhand explain {latest.name or latest.key}: what holds now"]))
    return Group(*parts)


def life(one: pb.PastPod, now: int) -> str:
    """Return the first sentence: how long the pod waited and ran, and how it ended."""
    if not one.placed_ms:
        waited = span((one.ended_ms or now) - one.asked_ms)
        if not one.ended_ms:
            return f"It has waited for {waited}."
        return f"It waited for {waited} and {ENDS.get(one.end_code, one.end_code)}."
    waited, ran = span(one.placed_ms - one.asked_ms), span((one.ended_ms or now) - one.placed_ms)
    where = f" on {one.node_id}" if one.node_id else ""
    if not one.ended_ms:
        return f"It waited for {waited}, and has run for {ran}{where}."
    return (
        f"It waited for {waited}, ran for {ran}{where}, and {ENDS.get(one.end_code, one.end_code)}."
    )


def _pod(one: pb.PastPod, now: int) -> RenderableType:
    rows = [("asked", f"{instant(one.asked_ms)}, for {phrase(one.resources)}, in {one.queue}")]
    rows += [
        ("waited", f"{span((each.until_ms or now) - each.since_ms)} for {each.code}")
        for each in one.waits
    ]
    if one.placed_ms:
        where = f", on {one.node_id}" if one.node_id else ""
        rows.append(("placed", f"{instant(one.placed_ms)}{where}"))
    if one.ended_ms:
        by = f" by decision {one.decision_id}" if one.decision_id else ""
        text = f": {one.end_text}" if one.end_text else ""
        rows.append(("ended", f"{instant(one.ended_ms)}, {one.end_code}{by}{text}"))
    facts = Table.grid(padding=(0, 2, 0, 0))
    for name, value in rows:
        facts.add_row(Text(name, style="heading"), value)
    return Padding(facts, (0, 0, 0, 2), expand=False)


# Configurations and starts --------------------------------------------------------------------------------------------


def configurations(found: pb.ListConfigurationsResponse, *, full: bool = False) -> RenderableType:
    """Return the configurations, the latest first. Each configuration has its changes and the evictions that followed."""
    if not found.configurations:
        return Text("no configuration came into force in this time")
    parts: list[RenderableType] = []
    for one in found.configurations:
        parts += [*_configuration(one, full=full), Text()]
    latest = found.configurations[0]
    if len(found.configurations) > 1 and found.configurations[1].source:
        before = found.configurations[1].revision
        advice = f"evenhand config rollback {before}: apply revision {before} again"
    else:
        advice = f"evenhand config show: the text of revision {latest.revision}"
    parts.append(NextSteps([advice]))
    return Group(*parts, *notes(found.period))


def _configuration(one: pb.PastConfiguration, *, full: bool) -> Iterator[RenderableType]:
    by = f" by {one.applied_by}" if one.applied_by else ""
    state = "in force" if not one.until_ms else f"until {instant(one.until_ms)}"
    head = f"  {instant(one.at_ms)}{by}, {one.source or 'the built-in default'}; {state}"
    yield Text.assemble((f"revision {one.revision}", "key"), head)
    changes = one.changes if full else one.changes[:CHANGES_MAX]
    for each in changes:
        values = f"{each.before or 'none'} -> {each.after or 'none'}" if each.field else each.kind
        words = " ".join(filter(None, (each.subject, each.field, values)))
        yield _indented(words)
    if len(changes) < len(one.changes):
        yield Text(f"  {plural(len(one.changes) - len(changes), 'more change')}: --all", "faint")
    if one.changes_unknown:
        yield Text(f"  what it changed is not known: {one.changes_unknown}", "faint")
    elif not one.changes:
        yield Text("  it changed nothing that the core does", "faint")
    effects = [
        f"{plural(each.decisions, 'decision')} of {each.policy} evicted {plural(each.victims, 'pod')}"
        for each in one.effects
    ]
    meanwhile = "since then" if not one.until_ms else "while it was in force"
    yield _indented(f"{meanwhile}: {'; '.join(effects) if effects else 'no pod was evicted'}")


RESTART_KINDS = {
    "core-started": "core started",
    "core-ended": "core ended",
    "core-killed": "core was killed",
    "leads": "core leads",
    "follows": "core follows",
    "registered": "manager registered",
    "synced": "manager synced",
}


def failovers(found: pb.ListFailoversResponse, width: int) -> RenderableType:
    """Return a sentence about the latest restart, then the starts and ends of the core, the latest first."""
    if not found.failovers:
        return Text("no core started, and no manager registered, in this time")
    rows = found.failovers
    of_several = len({one.core for one in rows if one.core}) > 1
    columns = [
        Column("when", [instant(one.at_ms) for one in rows]),
        Column("what", [Text(RESTART_KINDS.get(one.kind, one.kind), style="key") for one in rows]),
        *(
            [Column("core", [one.core or NOTHING for one in rows], names=True)]
            if of_several
            else []
        ),
        Column("manager", [one.subject or NOTHING for one in rows], 3, names=True),
        Column("before and after", [restart_facts(one) for one in rows], ANSWER, least=24),
    ]
    sentence = _indented(restart(rows))
    parts = [_title("core", "restarts"), sentence, Text(), table(columns, width)]
    return Group(*parts, *notes(found.period))


def restart(rows: Sequence[pb.Failover], when: Callable[[int], str] = instant) -> str:
    """Return a sentence that says which pods the latest restart lost. `when` returns an instant as text."""
    synced = next((one for one in rows if one.kind == "synced"), None)
    latest = next(
        (one for one in rows if one.kind == "core-started" or _follows_another(one)), None
    )
    away = 0 if latest is None else latest.facts.get("away_ms", 0)
    began = f"The latest core was started after {span(away)}" if away else "The core was started"
    if latest is not None and latest.kind == "leads":
        began = (
            f"{latest.core} leads since {when(latest.at_ms)}, {span(away)} after the core before it"
        )
    if synced is None:
        return f"{began}; no manager has completed its sync since."
    gone, after = synced.facts.get("gone", 0), synced.facts.get("allocations_after", 0)
    if not away:
        return f"{began}, and has {plural(after, 'allocation')} from {synced.subject}."
    lost = "no pod was lost" if not gone else f"{plural(gone, 'pod')} had ended meanwhile"
    return f"{began}: {plural(after, 'allocation', 'are')} there again, {lost}."


def _follows_another(one: pb.Failover) -> bool:
    """Return whether a row reports that a core began to lead after another core had led."""
    return one.kind == "leads" and "away_ms" in one.facts


def restart_facts(one: pb.Failover, when: Callable[[int], str] = instant) -> str:
    """Return the numbers of pods and nodes before and after a start, an end or a sync. `when` returns an instant as text."""
    facts = one.facts
    if one.kind == "leads":
        until = facts.get("until_ms", 0)
        return f"until {when(until)}, for {span(until - one.at_ms)}" if until else "until now"
    if one.kind == "synced":
        before = facts.get("allocations_before", 0), facts.get("asks_before", 0)
        after = facts.get("allocations_after", 0), facts.get("asks_after", 0)
        return (
            f"{plural(before[0], 'allocation')}, {plural(before[1], 'ask')} before; {after[0]:,} and {after[1]:,} after; "
            f"{facts.get('gone', 0):,} gone, {facts.get('added', 0):,} new"
        )
    if facts.get("away_ms"):
        return f"{one.text}; away for {span(facts['away_ms'])}"
    return one.text
