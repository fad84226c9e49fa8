"""Reads of usage, pods and waits. Each read gets a connection that cannot write (see `database.reading`)."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, func, or_, select

from server.history import schema
from server.history.figures import MEDIAN, NINETIETH, NINETY_NINTH, percentile
from server.history.spans import Span, constant, cut, joined, quotients
from server.history.tap import Lost
from server.history.upkeep import span_of

PODS_MAX: Final = 500_000
"""The largest number of pods whose waits one answer counts."""
ASKS_MAX: Final = 100
"""The largest number of asks of one pod in an answer."""
GAPS_MAX: Final = 100
"""The largest number of gaps in an answer."""

Sees = Callable[[str], bool]
"""A function that says whether the caller may see a queue."""


class Period(NamedTuple):
    """The period of an answer. Within the period, the history is complete up to ``written_to_ms``, except for the ``gaps``."""

    since_ms: int
    until_ms: int
    written_to_ms: int
    gaps: tuple[Lost, ...] = ()


class Point(NamedTuple):
    """The amounts of a queue in one interval: averages in the order of `schema.MEASURES`, and peaks."""

    at_ms: int
    covered_ms: int
    values: tuple[int, ...]
    peaks: tuple[int, int]


@dataclass(slots=True)
class Waits:
    """The waits of the pods that arrived in a period. ``placed_ms`` has the sorted waiting times of the pods that were placed."""

    queue: str
    placed_ms: list[int] = field(default_factory=list)
    waiting_ms: list[int] = field(default_factory=list)
    withdrawn: int = 0
    reasons: dict[str, tuple[int, int]] = field(default_factory=dict)
    """For each reason, the number of pods that waited for this reason, and the sum of their waiting times in milliseconds."""

    @property
    def percentiles(self) -> tuple[int, int, int, int]:
        """The median, the 90th and 99th percentile, and the largest waiting time of the placed pods."""
        ordered = self.placed_ms
        ranks = (percentile(ordered, one) for one in (MEDIAN, NINETIETH, NINETY_NINTH))
        return (*ranks, ordered[-1] if ordered else 0)  # type: ignore[return-value]


def period(connection: Connection, since_ms: int, until_ms: int) -> Period:
    """Return the period of an answer, with the latest `GAPS_MAX` gaps at most."""
    runs, gaps = schema.RUNS, schema.GAPS
    written = connection.execute(select(func.coalesce(func.max(runs.c.seen_ms), 0))).scalar_one()
    inside = (gaps.c.to_ms >= since_ms) & (gaps.c.from_ms <= until_ms)
    found = connection.execute(
        select(gaps).where(inside).order_by(gaps.c.to_ms.desc()).limit(GAPS_MAX)
    ).mappings()
    lost = tuple(Lost(one["from_ms"], one["to_ms"], one["lost"], one["why"]) for one in found)
    return Period(since_ms, until_ms, int(written), lost[::-1])


# Usage ----------------------------------------------------------------------------------------------------------------


def usage(
    connection: Connection, partition: str, queue: str, when: Period, points: int
) -> dict[str, list[Point]]:
    """Return, by resource type, the usage of a queue in ``points`` equal parts of the period."""
    table = schema.USAGE
    inside = (table.c.from_ms < when.until_ms) & (
        table.c.to_ms.is_(None) | (table.c.to_ms > when.since_ms)
    )
    own = (table.c.partition == partition) & (table.c.queue == queue)
    found: dict[str, list[Span]] = defaultdict(list)
    for row in connection.execute(select(table).where(own & inside)).mappings():
        span = _span(row, when.written_to_ms)
        if span is not None:
            found[row["resource_type"]].append(span)
    edges = [
        when.since_ms + (when.until_ms - when.since_ms) * number // points
        for number in range(points + 1)
    ]
    return {kind: _points(spans, edges) for kind, spans in sorted(found.items())}


def whole(points: Sequence[Point]) -> Point:
    """Return the averages over all points."""
    covered = sum(one.covered_ms for one in points)
    sums = [
        sum(one.values[at] * one.covered_ms for one in points) for at in range(len(schema.MEASURES))
    ]
    values = tuple(one // covered if covered else 0 for one in sums)
    peaks = tuple(max((one.peaks[at] for one in points), default=0) for at in (0, 1))
    return Point(points[0].at_ms if points else 0, covered, values, peaks)  # type: ignore[arg-type]


def _span(row: Any, written_to_ms: int) -> Span | None:  # noqa: ANN401 - a row, as a mapping
    """Return the span of a row. An open span lasts until ``written_to_ms``. Return None for an open span that begins later."""
    if row["to_ms"] is not None:
        return span_of(row)
    if written_to_ms <= row["from_ms"]:
        return None
    return constant(row["from_ms"], written_to_ms, tuple(row[name] for name in schema.MEASURES))


def _points(spans: Iterable[Span], edges: Sequence[int]) -> list[Point]:
    ordered = sorted(spans)
    found: list[Point] = []
    first = 0
    for begin, end in pairwise(edges):
        while first < len(ordered) and ordered[first].to_ms <= begin:
            first += 1
        parts: list[Span] = []
        for span in ordered[first:]:
            if span.from_ms >= end:
                break
            part = cut(span, begin, end)
            if part is not None and part.covered_ms:
                parts.append(part)
        found.append(_point(begin, parts))
    return found


def _point(at_ms: int, parts: Sequence[Span]) -> Point:
    if not parts:
        return Point(at_ms, 0, (0,) * len(schema.MEASURES), (0, 0))
    every = joined(parts)
    averages, _ = quotients(every)
    return Point(at_ms, every.covered_ms, averages, every.peaks)


# Waits ----------------------------------------------------------------------------------------------------------------


def waits(
    connection: Connection, partition: str, queue: str, when: Period, sees: Sees
) -> tuple[list[Waits], int]:
    """Return, by queue, the waits of the pods that arrived in the period, and how many of the oldest pods were left out.

    Pods that already ran when the history first recorded them do not count, because their waiting times are not known.
    """
    pods = schema.PODS
    own = (pods.c.partition == partition) & within(pods.c.asked_ms, when) & (pods.c.brought == 0)
    if queue:
        own &= _below(pods.c.queue, queue)
    statement = select(pods.c.queue, pods.c.asked_ms, pods.c.placed_ms, pods.c.ended_ms).where(own)
    count = connection.execute(select(func.count()).select_from(pods).where(own)).scalar_one()
    found: dict[str, Waits] = {}
    latest = statement.order_by(pods.c.asked_ms.desc()).limit(PODS_MAX)
    for path, asked, placed, ended in connection.execute(latest):
        if not sees(path):
            continue
        one = found.setdefault(path, Waits(path))
        if placed is not None:
            one.placed_ms.append(max(placed - asked, 0))
        elif ended is None:
            one.waiting_ms.append(max(when.until_ms - asked, 0))
        else:
            one.withdrawn += 1
    for one in found.values():
        one.placed_ms.sort()
    _add_reasons(connection, own, when, found)
    return sorted(found.values(), key=_longest_first), max(int(count) - PODS_MAX, 0)


def together(queue: str, found: Iterable[Waits]) -> Waits:
    """Return the waits of several queues as one."""
    every = list(found)
    reasons: dict[str, tuple[int, int]] = {}
    for one in every:
        for code, (pods, total) in one.reasons.items():
            before = reasons.get(code, (0, 0))
            reasons[code] = (before[0] + pods, before[1] + total)
    return Waits(
        queue,
        sorted(ms for one in every for ms in one.placed_ms),
        [ms for one in every for ms in one.waiting_ms],
        sum(one.withdrawn for one in every),
        reasons,
    )


def _longest_first(one: Waits) -> tuple[int, int, str]:
    return (-max(one.waiting_ms, default=0) or -one.percentiles[1], -one.percentiles[1], one.queue)


def _add_reasons(
    connection: Connection, own: ColumnElement[bool], when: Period, found: Mapping[str, Waits]
) -> None:
    pods, table = schema.PODS, schema.WAITS
    length = func.coalesce(table.c.until_ms, when.until_ms) - table.c.since_ms
    statement = (
        select(pods.c.queue, table.c.code, func.count(pods.c.id.distinct()), func.sum(length))
        .select_from(pods.join(table, table.c.pod_id == pods.c.id))
        .where(own)
        .group_by(pods.c.queue, table.c.code)
    )
    for path, code, count, total in connection.execute(statement):
        if path in found:
            found[path].reasons[code] = (int(count), int(total))


# Pods -----------------------------------------------------------------------------------------------------------------


def pods_of(
    connection: Connection, partition: str, name: str, sees: Sees
) -> list[tuple[Mapping[str, Any], list[Mapping[str, Any]]]]:
    """Return the rows of the asks with this name or key, the latest ask first. Each ask comes with the rows of its waits."""
    table = schema.PODS
    named = or_(table.c.name == name, table.c.pod_key == name)
    if "/" not in name:
        named |= table.c.name.endswith(f"/{name}", autoescape=True)
    own = named & (table.c.partition == partition) if partition else named
    statement = select(table).where(own).order_by(table.c.asked_ms.desc(), table.c.id.desc())
    found = [
        dict(one)
        for one in connection.execute(statement.limit(ASKS_MAX)).mappings()
        if sees(one["queue"])
    ]
    waits_by_pod: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    of_pods = schema.WAITS.c.pod_id.in_([one["id"] for one in found])
    ordered = select(schema.WAITS).where(of_pods).order_by(schema.WAITS.c.since_ms)
    for row in connection.execute(ordered).mappings():
        waits_by_pod[row["pod_id"]].append(dict(row))
    return [(one, waits_by_pod[one["id"]]) for one in found]


def within(column: ColumnElement[int], when: Period) -> ColumnElement[bool]:
    """Return the SQL condition that an instant is in the period."""
    return (column >= when.since_ms) & (column <= when.until_ms)


def _below(column: ColumnElement[str], queue: str) -> ColumnElement[bool]:
    """Return the SQL condition that the column's queue is this queue or below it."""
    return or_(column == queue, column.startswith(f"{queue}.", autoescape=True))
