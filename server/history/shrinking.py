"""The size limit of a history in SQLite: if the file becomes too large, old rows are deleted early.

First, usage is summed up by the minute, then by ten minutes. Then the oldest rows of usage, waits, changes of decisions, and pods
are deleted. When no such rows are left, decisions and their victims are deleted, and fail-overs as well. Configurations and the
last hour stay. Free pages are used again, so that the file grows no further. A PostgreSQL database has no such limit, because
deleting rows does not make such a database smaller at once.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Column, Connection, Table, func, insert, select, text, update

from server.history import schema
from server.history.settings import HOUR_MS, MINUTE_MS, SECOND_MS, TEN_MINUTES_MS, Settings
from server.history.upkeep import AGES, forget, thin
from server.model.phrases import count

PARTS_MAX: Final = 50
"""The largest number of parts (see `PART`) that one call deletes. The next call continues."""
PART: Final = 20
"""The number of equal intervals into which the time from the oldest row until now is divided.

A part consists of the rows in the oldest interval.
"""
WHY: Final = "the history had reached its size limit"

_LATER: Final = (schema.DECISIONS, schema.VICTIMS, schema.FAILOVERS)
_NEVER: Final = (schema.GAPS,)

Ages = Sequence[tuple[Table, Column[Any]]]
_RAW: Final[Ages] = [one for one in AGES if one[0] not in (*_LATER, *_NEVER)]
_DECIDED: Final[Ages] = [one for one in AGES if one[0] in _LATER]


def size(connection: Connection) -> int:
    """Return the number of bytes that a database of SQLite uses, without its free pages."""
    pages, free, each = (
        int(connection.execute(text(f"PRAGMA {name}")).scalar_one())
        for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * each


def shrink(
    connection: Connection, now: int, settings: Settings, next_number: Callable[[], int]
) -> None:
    """Shorten a history of SQLite that is larger than its limit. A row of `gaps` says what was deleted."""
    if connection.dialect.name != "sqlite" or not settings.size_max:
        return
    for _ in range(PARTS_MAX):
        if size(connection) <= settings.size_max:
            return
        if _sum_up(connection, now, next_number):
            continue
        if not any(_cut(connection, now, ages, next_number) for ages in (_RAW, _DECIDED)):
            return


def latest_cut(connection: Connection) -> str:
    """Return a sentence that names the rows that were deleted early. Return "" if no rows were deleted early."""
    row = connection.execute(select(schema.GAPS).where(schema.GAPS.c.why == WHY)).mappings().first()
    if row is None:
        return ""
    at = datetime.fromtimestamp(row["to_ms"] / SECOND_MS, UTC)
    return f"{count(row['lost'], 'row')} of the time before {at:%Y-%m-%d %H:%M:%S} UTC"


def _sum_up(connection: Connection, now: int, next_number: Callable[[], int]) -> int:
    """Sum usage up earlier than the settings say. Return how many rows were replaced."""
    for step, age in ((MINUTE_MS, TEN_MINUTES_MS), (TEN_MINUTES_MS, HOUR_MS)):
        if found := thin(connection, (now - age) // step * step, step, next_number):
            return found
    return 0


def _cut(connection: Connection, now: int, ages: Ages, next_number: Callable[[], int]) -> bool:
    """Delete the oldest part of some tables. Return whether a row was deleted."""
    oldest = [
        found
        for _, column in ages
        if (found := connection.execute(select(func.min(column))).scalar_one()) is not None
    ]
    if not oldest:
        return False
    begin = min(oldest)
    before = min(begin + max((now - begin) // PART, MINUTE_MS), now - HOUR_MS)
    lost = sum(forget(connection, table, column, before) for table, column in ages)
    if lost:
        _note(connection, begin, before, lost, next_number)
    return bool(lost)


def _note(
    connection: Connection, begin: int, before: int, lost: int, next_number: Callable[[], int]
) -> None:
    """Record that `lost` rows were deleted because of the size limit.

    The table `gaps` has one row for all such deletions. Each deletion extends the interval of this row and raises its count.
    """
    table = schema.GAPS
    row = connection.execute(select(table).where(table.c.why == WHY)).mappings().first()
    if row is None:
        values = {"id": next_number(), "from_ms": begin, "to_ms": before, "lost": lost, "why": WHY}
        connection.execute(insert(table), [values])
        return
    values = {
        "from_ms": min(begin, row["from_ms"]),
        "to_ms": max(before, row["to_ms"]),
        "lost": row["lost"] + lost,
    }
    connection.execute(update(table).where(table.c.id == row["id"]).values(**values))
