"""A history that is larger than its limit: detail goes first, then the oldest rows, and a gap says which."""

import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import BigInteger, Connection, Table, func, select

from server.history import reading, schema, shrinking
from server.history.address import Address
from server.history.database import reading as read_only
from server.history.series import usage_row
from server.history.settings import DAY_MS, HOUR_MS, Beginning, Settings
from server.history.spans import constant
from server.history.writing import Writer
from server.rpc.pod_names import pod_name
from tests.cli.processes import address_of, running, until
from tests.cli.run import evenhand
from tests.history.frames import T0
from tests.history.places import sqlite

NOW = T0 // DAY_MS * DAY_MS
ROWS = 2_000
SERIES = ("default", "root.a", "vcore")


def rows_of(table: Table, begin: int, every: int) -> list[dict[str, Any]]:
    """Return rows of a table whose instants lie a fixed time apart."""
    return [
        {
            one.name: begin + number * every
            if one.name.endswith("_ms") and one.name != "ran_ms"
            else number
            if isinstance(one.type, BigInteger)
            else f"{one.name} {number} " + "x" * 40
            for one in table.columns
        }
        for number in range(1, ROWS + 1)
    ]


def usage(begin: int) -> list[dict[str, Any]]:
    """Return samples of 10 s, each with another value."""
    spans = [
        constant(begin + at * 10_000, begin + (at + 1) * 10_000, (at, 1, 2, 3, 4))
        for at in range(ROWS)
    ]
    return [usage_row(at + 1, SERIES, span, 10_000) for at, span in enumerate(spans)]


def filled(place: Address, now: int, *tables: tuple[Table, list[dict[str, Any]]]) -> Writer:
    """Return the writer of a history with these rows, before its first upkeep."""
    writer = Writer(place, Settings(), pod_name)
    writer.open(now, Beginning("1"), is_start=True)
    writer._kept_up_ms = now
    ledger = writer._ledger
    assert ledger is not None
    for table, rows in tables:
        for row in rows:
            ledger.put(table, tuple(row[one.name] for one in table.primary_key), row)
    writer.write(now)
    assert writer.failing == ""
    return writer


def shrink(writer: Writer, now: int, limit: int) -> None:
    ledger = writer._ledger
    assert ledger is not None
    with writer._store.engine.begin() as connection:
        shrinking.shrink(connection, now, Settings(size_max=limit), ledger.next_number)


def sized(writer: Writer) -> int:
    with writer._store.engine.connect() as connection:
        return shrinking.size(connection)


def count(connection: Connection, table: Table) -> int:
    return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


def test_detail_goes_first_and_averages_stay(tmp_path: Path) -> None:
    place = sqlite(tmp_path)
    begin = NOW - 12 * HOUR_MS
    writer = filled(place, NOW, (schema.USAGE, usage(begin)))
    when = reading.Period(begin, begin + ROWS * 10_000, NOW)
    with read_only(place) as connection:
        before = reading.usage(connection, "default", "root.a", when, 1)
    shrink(writer, NOW, sized(writer) - 1)
    with read_only(place) as connection:
        assert reading.usage(connection, "default", "root.a", when, 1) == before
        assert 0 < count(connection, schema.USAGE) < ROWS
        assert count(connection, schema.GAPS) == 0
    writer.close()


def test_the_oldest_rows_go_and_decisions_last(tmp_path: Path) -> None:
    place, begin = sqlite(tmp_path), NOW - 30 * DAY_MS
    every = 30 * DAY_MS // ROWS
    tables = (schema.PODS, schema.WAITS, schema.MOVES, schema.DECISIONS)
    writer = filled(place, NOW, *((table, rows_of(table, begin, every)) for table in tables))
    limit = sized(writer) * 3 // 4
    shrink(writer, NOW, limit)
    assert sized(writer) <= limit
    with read_only(place) as connection:
        left = [count(connection, table) for table in tables]
        assert left[-1] == ROWS
        oldest = connection.execute(select(func.min(schema.PODS.c.ended_ms))).scalar_one()
        (gap,) = reading.period(connection, 1, NOW).gaps
        assert gap.why == shrinking.WHY
        assert gap.records == 3 * ROWS - sum(left[:-1])
        assert gap.from_ms == begin + every
        assert gap.to_ms <= oldest
        cut = shrinking.latest_cut(connection)
    assert cut.startswith(f"{gap.records} rows of the time before 2026-12-")
    for _ in range(10):
        shrink(writer, NOW, 1)
    with read_only(place) as connection:
        in_last_hour = HOUR_MS // every + 1
        assert [count(connection, table) for table in tables] == [in_last_hour] * 4
        (gap,) = reading.period(connection, 1, NOW).gaps
        assert gap.records == 4 * (ROWS - in_last_hour)
        assert gap.to_ms <= NOW - HOUR_MS
    writer.close()


@pytest.mark.parametrize("limit", [0, 1 << 30])
def test_a_history_within_its_limit_keeps_everything(tmp_path: Path, limit: int) -> None:
    place = sqlite(tmp_path)
    writer = filled(place, NOW, (schema.WAITS, rows_of(schema.WAITS, NOW - DAY_MS, 1_000)))
    shrink(writer, NOW, limit)
    with read_only(place) as connection:
        assert count(connection, schema.WAITS) == ROWS
        assert shrinking.latest_cut(connection) == ""
    writer.close()


def test_a_core_shortens_its_history_and_says_so(tmp_path: Path) -> None:
    state, now = tmp_path / "state", int(time.time() * 1_000)
    state.mkdir(mode=0o700)
    rows = rows_of(schema.WAITS, now - 2 * HOUR_MS, 1_000)
    filled(sqlite(state), now - HOUR_MS // 2, (schema.WAITS, rows)).close()
    log = tmp_path / "log"
    serve = ["serve", "--listen", "127.0.0.1:0", "--state-dir", str(state)]
    with running([*serve, "--history-size-max", "1KiB"], log) as process:
        core = address_of(process, log)
        until(lambda: "history-shortened" in evenhand("doctor", "--core", core).out)
        doctor = evenhand("doctor", "--core", core)
    assert doctor.code == 0
    assert "2000 rows of the time before" in " ".join(doctor.out.split())
