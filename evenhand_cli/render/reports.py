"""Guarantees that are not met, and work that was destroyed, for a tired operator."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from evenhand.v1 import reports_pb2 as pb
from evenhand_cli.render.amounts import PODS, amount, heading, in_order, phrase, span
from evenhand_cli.render.columns import ALWAYS, Column, facts, table, titled
from evenhand_cli.render.words import instant, plural

MILLION = 1_000_000
HOUR = 3_600
LINES_SHOWN_MAX = 20
UNMET_ROWS_MAX = 8
"""Queues and types below their guarantee that are listed; `--all` has all."""
CASES_MAX = 3
"""Kinds of asks below an unmet guarantee that are told; `--all` has all."""
OTHER = "of "
"""Begins the key of a resource type among the sums."""


def unmet(
    found: pb.GetUnmetGuaranteesResponse, width: int, *, whole: bool = False
) -> RenderableType:
    """A line a queue and type, then for each kind of asks what binds it and what would help; ``whole`` leaves none out."""
    if not found.queues:
        return Text("every queue with waiting asks has what it is guaranteed", style="good")
    rows = [(queue, one) for queue in found.queues for one in queue.types]
    parts: list[RenderableType] = [_lacking(rows if whole else rows[:UNMET_ROWS_MAX], width)]
    if not whole and len(rows) > UNMET_ROWS_MAX:
        parts.append(
            Text(f"{plural(len(rows) - UNMET_ROWS_MAX, 'more row')}: --all", style="faint")
        )
    if found.over_promised:
        more = (
            f"\nall guarantees together are {phrase(found.over_promised)} more than the nodes have"
        )
        parts.append(Text(more, style="warn"))
    cases = _cases(found)
    for queues, one in cases if whole else cases[:CASES_MAX]:
        parts += [_title(one), facts(_facts(queues, one))]
    parts += _uncounted(found, 0 if whole else max(len(cases) - CASES_MAX, 0))
    return Group(*parts)


def _lacking(rows: Sequence[tuple[pb.UnmetQueue, pb.UnmetType]], width: int) -> RenderableType:
    """Return the table of what each queue lacks."""
    columns = (
        Column("queue", [Text(queue.queue, style="key") for queue, _ in rows]),
        Column("type", [heading(one.resource_type) for _, one in rows]),
        Column(
            "guaranteed", [amount(one.resource_type, one.entitled) for _, one in rows], right=True
        ),
        Column("held", [amount(one.resource_type, one.held) for _, one in rows], 2, right=True),
        Column(
            "missing",
            [Text(amount(one.resource_type, one.missing), style="bad") for _, one in rows],
            right=True,
        ),
        Column("bound by", [_bindings(queue) for queue, _ in rows], 1),
    )
    return table(columns, width)


def _bindings(queue: pb.UnmetQueue) -> str:
    return ", ".join(dict.fromkeys(one.binding for one in queue.asks))


_Case = tuple[Sequence[str], pb.UnmetAsks]
"""Asks with one reason and cure, and the queues on their path that lack something, the first one first."""


def _cases(found: pb.GetUnmetGuaranteesResponse) -> list[_Case]:
    """Return each kind of asks once: a leaf and its parents often lack the same."""
    cases: dict[tuple[str, ...], tuple[list[str], pb.UnmetAsks]] = {}
    for queue in found.queues:
        for one in queue.asks:
            key = (one.leaf, one.job or one.allocation_key, one.binding, one.because, one.cure.text)
            cases.setdefault(key, ([], one))[0].append(queue.queue)
    return list(cases.values())


def _uncounted(found: pb.GetUnmetGuaranteesResponse, left: int) -> Iterator[RenderableType]:
    """Say what is not shown: cases that this picture leaves out, and asks and queues that the report does."""
    if left:
        yield Text(f"\n{plural(left, 'more kind')} of asks: --all", style="faint")
    for queue in found.queues:
        if queue.asks_left_out:
            said = f"\n{queue.queue}: {plural(queue.asks_left_out, 'ask')} of other kinds"
            yield Text(said, style="faint")
    if found.queues_left_out:
        yield Text(f"\n{plural(found.queues_left_out, 'more queue')}", style="faint")


def _title(one: pb.UnmetAsks) -> Text:
    asks = f"{plural(one.count, 'ask')} for {phrase(one.resources)}"
    if one.job:
        asks = f"job {one.job}: {plural(one.count, 'member')} for {phrase(one.resources)} together"
    return Text.assemble(("\n" + one.leaf, "key"), f"  {asks}, priority {one.priority}")


def _facts(queues: Sequence[str], one: pb.UnmetAsks) -> list[tuple[str, str | Text]]:
    """Return which ask it is, for the guarantee of which queues above its own, what binds it, and the cure."""
    name, rest = one.name or one.allocation_key, one.because or one.rule
    above = [queue for queue in queues if queue != one.leaf]
    counts = f" (counts for {', '.join(above)})" if above else ""
    lines: list[tuple[str, str | Text]] = [
        ("first", name + counts),
        ("bound by", Text.assemble((one.binding, "warn"), f": {rest}" if rest else "")),
    ]
    if one.HasField("cure"):
        lines.append(("cure", Text(one.cure.text, style="good")))
    elif not one.searched:
        lines.append(("cure", "not looked for: ask for this queue alone"))
    elif one.binding not in {"being-served", "not-ready"}:
        said = f"no single change cures it: evenhand explain {name}"
        lines.append(("cure", Text(said, style="bad")))
    return lines


# Lost work ----------------------------------------------------------------------------------------------------------


def core_time(millicore_ms: int) -> str:
    """`0.4 core s`, `42 core s`, `3.5 core h`."""
    seconds = millicore_ms / MILLION
    if seconds >= HOUR:
        return f"{seconds / HOUR:,.1f} core h"
    return f"{seconds:,.1f} core s" if seconds < 100 else f"{seconds:,.0f} core s"  # noqa: PLR2004


def lost_work(
    found: pb.GetLostWorkResponse, width: int, *, narrowed: bool = False
) -> RenderableType:
    """Sums by policy, by claimant and by victim queue, each with the largest first."""
    if not found.lines:
        since = (
            f"{instant(found.since_ms)}, of what was asked for"
            if narrowed
            else "the server started"
        )
        return Text(f"preemption has destroyed no work since {since}", style="good")
    total = _summed(found.lines, lambda _: "all")["all"]
    parts: list[RenderableType] = [_head(total, found)]
    for title, key in _VIEWS:
        parts += _table(title, _summed(found.lines, key), width)
    return Group(*parts)


_Key = Callable[[pb.LostWork], str]
_VIEWS: Sequence[tuple[str, _Key]] = (
    ("policy", lambda one: one.policy),
    ("claimant", lambda one: one.claimant or "unknown"),
    ("victim", lambda one: one.victim),
)


def _summed(lines: Sequence[pb.LostWork], key: _Key) -> dict[str, Counter[str]]:
    sums: dict[str, Counter[str]] = {}
    for one in lines:
        counts = {"victims": one.victims, "ran": one.ran_ms, "cores": one.millicore_ms}
        others = {f"{OTHER}{kind}": held for kind, held in one.resource_seconds.items()}
        sums.setdefault(key(one), Counter()).update(counts | others)
    return sums


def _others(sums: Iterable[Counter[str]]) -> list[str]:
    """Return the types besides cores of which something was lost: memory, then the others by name."""
    keys = {key for one in sums for key, held in one.items() if key.startswith(OTHER) and held}
    return in_order({key.removeprefix(OTHER) for key in keys} - {"vcore", PODS})


def type_time(kind: str, held: int) -> str:
    """`12 GiB h` of MiB seconds, `20 gpu h` of GPU seconds; below an hour in seconds."""
    value, noun = (held / 1024, "GiB") if kind == "memory" else (held, heading(kind))
    if value >= HOUR:
        return f"{value / HOUR:,.1f} {noun} h"
    return f"{value:,.1f} {noun} s" if value < 100 else f"{value:,.0f} {noun} s"  # noqa: PLR2004


def _head(total: Counter[str], found: pb.GetLostWorkResponse) -> Text:
    since = f"since {instant(found.since_ms)} ({span(found.taken_at_ms - found.since_ms)})"
    times = [core_time(total["cores"])]
    times += [type_time(kind, total[f"{OTHER}{kind}"]) for kind in _others([total])]
    lost = f"{', '.join(times)} of {plural(total['victims'], 'victim')}"
    return Text.assemble((lost, "key"), f" were lost {since}")


def _table(title: str, sums: dict[str, Counter[str]], width: int) -> list[RenderableType]:
    ranked = sorted(sums.items(), key=lambda one: (-one[1]["cores"], one[0]))
    shown = ranked[:LINES_SHOWN_MAX]
    columns = [
        Column(title, [Text(name, style="key") for name, _ in shown]),
        Column("victims", [f"{one['victims']:,}" for _, one in shown], right=True),
        Column("had run", [span(one["ran"]) for _, one in shown], 1, right=True),
        Column("lost", [core_time(one["cores"]) for _, one in shown], right=True),
        *(
            Column(
                heading(kind),
                [type_time(kind, one[f"{OTHER}{kind}"]) for _, one in shown],
                2 if kind == "memory" else ALWAYS,
                right=True,
            )
            for kind in _others(sums.values())
        ),
    ]
    parts = titled(f"by {title}", columns, width)
    if len(ranked) > len(shown):
        parts.append(Text(f"{len(ranked) - len(shown):,} more: see --output json", style="faint"))
    return parts
