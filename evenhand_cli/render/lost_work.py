"""Work that preemption destroyed: sums by policy, by pair of queues, by user and by application.

A pair of queues is a preempting queue and the queue of its victims.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from evenhand.v1 import reports_pb2 as pb
from evenhand_cli.render.amounts import PODS, heading, in_order, span
from evenhand_cli.render.columns import ANSWER, Column, table, titled
from evenhand_cli.render.screen import first_that_fits
from evenhand_cli.render.words import instant, plural

MILLION = 1_000_000
HOUR = 3_600
ROWS_MAX = 4
"""Maximum number of rows of each view unless the user requests all of them."""
NAME_LEAST = 18
"""Smallest width to which the name of a row may be folded."""
UNNAMED = "unknown"
"""The word that replaces the name of a user or application if the name is unknown, or if the caller may not see it."""
OTHER = "of "
"""Beginning of the keys under which the sums have resource types other than cores."""


def core_time(millicore_ms: int) -> str:
    """Return core time with its unit: `0.4 core s`, `42 core s`, `3.5 core h`."""
    return _held_for(millicore_ms / MILLION, "core")


def lost_work(
    found: pb.GetLostWorkResponse,
    width: int,
    *,
    narrowed: bool = False,
    full: bool = False,
    command: str = "decisions --lost-work",
) -> RenderableType:
    """Return sums by policy, queue, user and application, the largest first; with `full` no line is left out.

    `command` is the command that shows all lines with `--all`.
    """
    if not found.lines:
        since = (
            f"{instant(found.since_ms)}, of what was asked for"
            if narrowed
            else "the server started"
        )
        return Text(f"preemption has destroyed no work since {since}", style="good")
    head = _head(_summed(found.lines, lambda _: "all")["all"], found)
    views = [
        *((title, _summed(found.lines, key)) for title, key in _VIEWS),
        *((title, _summed(found.owners, key)) for title, key in _OWNERS if found.owners),
    ]
    if full:
        return Group(head, *(part for title, sums in views for part in _table(title, sums, width)))
    forms = (
        Group(head, *_side_by_side(views, rows, width, command)) for rows in range(ROWS_MAX, 0, -1)
    )
    return first_that_fits(forms, width)


_Key = Callable[[pb.LostWork], str]
_Sums = Mapping[str, Counter[str]]
_VIEWS: Sequence[tuple[str, _Key]] = (
    ("policy", lambda one: one.policy),
    ("claimant", lambda one: one.claimant or "unknown"),
    ("victim", lambda one: one.victim),
)
_OWNERS: Sequence[tuple[str, _Key]] = (
    ("user", lambda one: one.user or UNNAMED),
    ("application", lambda one: one.application_id or UNNAMED),
)
"""The views by user and by application of the victims."""


def _side_by_side(
    views: Sequence[tuple[str, _Sums]], rows: int, width: int, command: str
) -> Iterator[RenderableType]:
    """Yield one table with the first rows of every view.

    In each view, one more row has the sum of the rows that are not shown.
    """
    lines = [
        (title if first else "", name, sums)
        for title, view in views
        for first, (name, sums) in _first_rows(view, rows)
    ]
    by = Column("by", [Text(title, style="heading") for title, _, _ in lines])
    names = Column(
        "name", [Text(name, style="key") for _, name, _ in lines], least=NAME_LEAST, names=True
    )
    yield Text()
    yield table([by, names, *_sums([sums for _, _, sums in lines])], width)
    if any(len(view) > rows for _, view in views):
        yield Text(f"everything: evenhand {command} --all", style="faint")


def _first_rows(view: _Sums, most: int) -> Iterator[tuple[bool, tuple[str, Counter[str]]]]:
    """Yield the largest sums of a view, then one sum of all its other rows.

    Each yielded row has a flag, which is true for the first row of the view.
    """
    ranked = _ranked(view)
    shown = ranked if len(ranked) <= most else ranked[: most - 1]
    rest = ranked[len(shown) :]
    if rest:
        counted = Counter[str]()
        for _, sums in rest:
            counted.update(sums)
        shown = [*shown, (f"{len(rest):,} more" if shown else f"{len(rest):,} of them", counted)]
    yield from ((number == 0, one) for number, one in enumerate(shown))


def _ranked(sums: _Sums) -> list[tuple[str, Counter[str]]]:
    return sorted(sums.items(), key=lambda one: (-one[1]["cores"], one[0]))


def _summed(lines: Sequence[pb.LostWork], key: _Key) -> dict[str, Counter[str]]:
    sums: dict[str, Counter[str]] = {}
    for one in lines:
        counts = {"victims": one.victims, "ran": one.ran_ms, "cores": one.millicore_ms}
        others = {f"{OTHER}{kind}": held for kind, held in one.resource_seconds.items()}
        sums.setdefault(key(one), Counter()).update(counts | others)
    return sums


def _others(sums: Iterable[Counter[str]]) -> list[str]:
    """Return the lost resource types other than cores: memory first, then all other types by name."""
    keys = {key for one in sums for key, held in one.items() if key.startswith(OTHER) and held}
    return in_order({key.removeprefix(OTHER) for key in keys} - {"vcore", PODS})


def type_time(kind: str, held: int) -> str:
    """Return `12 GiB h` for MiB seconds, or `20 gpu h` for GPU seconds.

    An amount of less than one unit for one hour is shown in seconds.
    """
    value, noun = (held / 1024, "GiB") if kind == "memory" else (held, heading(kind))
    return _held_for(value, noun)


def _held_for(seconds: float, noun: str) -> str:
    """Return a product of units and seconds as text: in seconds if it is less than one unit for one hour, else in hours."""
    if seconds >= HOUR:
        return f"{seconds / HOUR:,.1f} {noun} h"
    return f"{seconds:,.1f} {noun} s" if seconds < 100 else f"{seconds:,.0f} {noun} s"  # noqa: PLR2004


def _head(total: Counter[str], found: pb.GetLostWorkResponse) -> Text:
    since = f"since {instant(found.since_ms)} ({span(found.taken_at_ms - found.since_ms)})"
    times = [core_time(total["cores"])]
    times += [type_time(kind, total[f"{OTHER}{kind}"]) for kind in _others([total])]
    lost = f"{', '.join(times)} of {plural(total['victims'], 'victim')}"
    return Text.assemble((lost, "key"), f" were lost {since}")


def _table(title: str, sums: _Sums, width: int) -> list[RenderableType]:
    ranked = _ranked(sums)
    names = Column(title, [Text(name, style="key") for name, _ in ranked], names=True)
    return titled(f"by {title}", [names, *_sums([one for _, one in ranked])], width)


def _sums(lines: Sequence[Counter[str]]) -> list[Column]:
    """Return the columns of lost work: the number of victims, how long they had run, and the lost amounts by type."""
    return [
        Column("victims", [f"{one['victims']:,}" for one in lines], right=True),
        Column("had run", [span(one["ran"]) for one in lines], 3, right=True),
        Column("lost", [core_time(one["cores"]) for one in lines], right=True),
        *(
            Column(
                heading(kind),
                [type_time(kind, one[f"{OTHER}{kind}"]) for one in lines],
                2 if kind == "memory" else ANSWER,
                right=True,
            )
            for kind in _others(lines)
        ),
    ]
