"""The upkeep of the history: old usage is downsampled, and rows that are older than the retention are deleted.

Each call does a bounded part of the work, so that the writing process is soon free to write.
"""

from collections.abc import Callable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import Column, Connection, Table, bindparam, delete, insert, select, tuple_

from server.history import schema
from server.history.series import usage_row
from server.history.settings import MINUTE_MS, TEN_MINUTES_MS, Settings
from server.history.spans import Span, downsample, sums_of

ROWS_MAX: Final = 20_000
"""The largest number of rows that one call reads or deletes of each table."""


AGES: Final[tuple[tuple[Table, Column[Any]], ...]] = (
    (schema.PODS, schema.PODS.c.ended_ms),
    (schema.WAITS, schema.WAITS.c.until_ms),
    (schema.USAGE, schema.USAGE.c.to_ms),
    (schema.DECISIONS, schema.DECISIONS.c.moved_ms),
    (schema.VICTIMS, schema.VICTIMS.c.at_ms),
    (schema.MOVES, schema.MOVES.c.at_ms),
    (schema.FAILOVERS, schema.FAILOVERS.c.at_ms),
    (schema.GAPS, schema.GAPS.c.to_ms),
)
"""The tables whose old rows are deleted, each with the column of the instant that decides how old a row is.

Configurations are kept, because a rollback may need each of them.
"""


def keep_up(
    connection: Connection, now: int, settings: Settings, next_number: Callable[[], int]
) -> None:
    """Delete rows that are older than the retention, and downsample usage that has become old enough."""
    for table, column in AGES:
        forget(connection, table, column, now - settings.retention_ms)
    for step, age in (
        (MINUTE_MS, settings.minutes_after_ms),
        (TEN_MINUTES_MS, settings.ten_minutes_after_ms),
    ):
        thin(connection, (now - age) // step * step, step, next_number)


def forget(connection: Connection, table: Table, column: Column[Any], before: int) -> int:
    """Delete rows of a table that are older than an instant. Return how many rows were deleted."""
    keys = list(table.primary_key)
    old = select(*keys).where(column < before).limit(ROWS_MAX)
    return connection.execute(delete(table).where(tuple_(*keys).in_(old))).rowcount


def thin(connection: Connection, before: int, step_ms: int, next_number: Callable[[], int]) -> int:
    """Downsample usage to this step: replace the rows that ended by ``before`` and have a smaller step.

    Return how many rows were replaced.
    """
    table = schema.USAGE
    fine = (table.c.step_ms < step_ms) & (table.c.to_ms <= before)
    series = (table.c.partition, table.c.queue, table.c.resource_type)
    statement = select(table).where(fine).order_by(*series, table.c.from_ms).limit(ROWS_MAX)
    found = [dict(one) for one in connection.execute(statement).mappings()]
    if not found:
        return 0
    connection.execute(
        delete(table).where(table.c.id == bindparam("old")), [{"old": one["id"]} for one in found]
    )
    connection.execute(insert(table), list(_thinned(found, step_ms, next_number)))
    return len(found)


def _thinned(
    found: list[dict[str, Any]], step_ms: int, next_number: Callable[[], int]
) -> Iterator[dict[str, Any]]:
    place = itemgetter("partition", "queue", "resource_type")
    for series, rows in groupby(found, place):
        for span in downsample(map(span_of, rows), step_ms):
            yield usage_row(next_number(), series, span, step_ms)


def span_of(row: Any) -> Span:  # noqa: ANN401 - a row of the table `usage`, as a mapping
    """Return the span of a row that has ended."""
    averages = (row[name] for name in schema.MEASURES)
    rests = (row[f"{name}_rest"] for name in schema.MEASURES)
    sums = sums_of(averages, rests, row["covered_ms"])
    peaks = (row["usage_peak"], row["waiting_peak"])
    return Span(row["from_ms"], row["to_ms"], row["covered_ms"], sums, peaks)
