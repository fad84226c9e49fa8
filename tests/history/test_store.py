"""A real database keeps what the ledger gives, and fails in ways that lose nothing silently: SQLite and PostgreSQL."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import BigInteger, event, inspect, select, text

from server.core.core import Core
from server.history import reading, records, runs, schema, upkeep
from server.history.address import INSTALL, Address, HistoryError, address
from server.history.database import reading as read_only
from server.history.ledger import Ledger
from server.history.reading import Period
from server.history.series import usage_row
from server.history.settings import DAY_MS, HOUR_MS, MINUTE_MS, Beginning, Settings
from server.history.spans import constant
from server.history.store import Store
from server.history.upkeep import keep_up
from server.history.writing import Writer
from server.rpc.pod_names import pod_name
from tests.history.frames import T0, Told
from tests.real.needs import absent
from tests.record.preempting import Driver, configuration

ROOT = Path(__file__).parents[2]
NO_MOUNT = 77
SETTINGS = Settings()


@contextmanager
def opened(place: Address, now: int = T0) -> Iterator[Writer]:
    writer = Writer(place, SETTINGS, pod_name)
    writer.open(now, Beginning("1"), is_start=True)
    try:
        yield writer
    finally:
        writer.close()


def ledger_of(writer: Writer) -> Ledger:
    found = writer._ledger
    assert found is not None
    return found


def story(ledger: Ledger, steps: int = 30) -> Told:
    one = Told(Core(configuration(12)), ledger)
    Driver(1, one.tap).live(steps)
    one.pass_on()
    return one


def test_the_migrations_make_the_schema(place: Address) -> None:
    store = Store(place)
    store.open()
    with store.engine.connect() as connection:
        found = MigrationContext.configure(connection)
        assert compare_metadata(found, schema.METADATA) == []
        assert found.get_current_revision() == schema.REVISION
    store.close()


class Killed(BaseException):
    """The end of a writer between two statements."""


def test_a_writer_that_ends_amid_the_migrations_leaves_nothing_in_the_way(place: Address) -> None:
    left = 0

    def count(*_: object) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed

    for kept in (*range(3, 40, 8 if place.file is not None else 30),):
        store = Store(place)
        event.listen(store.engine, "before_cursor_execute", count)
        left = kept
        with pytest.raises(Killed):
            store.open()
        store.close()
        with read_only(place) as connection:
            assert inspect(connection).get_table_names() == [], f"after {kept} statements"
    test_the_migrations_make_the_schema(place)


def test_a_later_schema_is_refused(place: Address) -> None:
    store = Store(place)
    store.open()
    with store.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    store.close()
    store = Store(place)
    with pytest.raises(HistoryError, match="schema 9999 is of a later version of evenhand"):
        store.open()
    store.close()


def test_a_second_writer_is_refused(place: Address) -> None:
    store, other = Store(place), Store(place)
    store.open()
    with pytest.raises(HistoryError, match="another"):
        other.open()
    other.close()
    store.close()


def test_what_is_written_is_read(place: Address) -> None:
    with opened(place) as writer:
        one = story(ledger_of(writer))
        expected = {each["id"]: each for each in one.rows(schema.PODS)}
        writer.write(one.ledger._now)
        assert writer.failing == ""
        with read_only(place) as connection:
            rows = connection.execute(select(schema.PODS)).mappings()
            assert {each["id"]: dict(each) for each in rows} == expected
            when = reading.period(connection, 1, one.ledger._now)
            made = list(records.decisions(connection, records.Which(when), 7))
            assert made
            for place_, record, names in made:
                found = records.decision(connection, place_.decision_id)
                assert found == (record, names)
                assert record is not None
                assert place_ == (record.at_ms, record.partition, record.decision_id)


def test_each_write_replaces_all_that_changed(place: Address) -> None:
    """Rows are written in many transactions, and are then as if each had been written once: no changing column is left out."""
    with opened(place) as writer:
        one = Told(Core(configuration(12)), ledger_of(writer))
        driver = Driver(3, one.tap)
        expected: dict[str, dict[object, object]] = {"pods": {}, "waits": {}}
        driver.live(2)
        for _ in range(60):
            driver.now += 700
            driver._answer()
            driver.dice.choice((driver._claim, driver._fill, driver._end))()
            driver._tick()
            one.pass_on()
            for table in (schema.PODS, schema.WAITS):
                expected[table.name] |= {each["id"]: each for each in one.rows(table)}
            writer.write(one.ledger._now)
            assert not one.ledger.pending
        with read_only(place) as connection:
            for table in (schema.PODS, schema.WAITS):
                rows = connection.execute(select(table)).mappings()
                assert {each["id"]: dict(each) for each in rows} == expected[table.name]


def test_a_run_takes_up_what_the_run_before_left(place: Address) -> None:
    with opened(place) as writer:
        one = story(ledger_of(writer))
        writer.write(one.ledger._now)
        before = {each.key: each.row() for each in one.ledger.pods.of_partition("default")}
        assert before
    with opened(place, one.ledger._now + 60_000) as writer:
        ledger = ledger_of(writer)
        assert {each.key: each.row() for each in ledger.pods.of_partition("default")} == before
        waiting = [each for each in ledger.pods.of_partition("default") if each.placed_ms is None]
        kept = [each.wait for each in waiting if each.wait is not None]
        assert kept
        assert all(each.is_kept for each in kept)
        rows = ledger.pending[schema.FAILOVERS].values()
        assert [row["kind"] for row in rows] == ["leads", "core-killed", "core-started", "leads"]
        ended = [json.loads(row["facts"]).get("until_ms") for row in rows]
        assert ended == [T0, None, None, None]  # The story has earlier instants than the start.


def test_the_end_of_a_run_is_known_to_the_next(place: Address) -> None:
    with opened(place) as writer:
        writer.end(T0 + 5_000, "the server ended", in_order=True)
    with opened(place, T0 + 9_000) as writer:
        rows = list(ledger_of(writer).pending[schema.FAILOVERS].values())
        assert [row["kind"] for row in rows] == ["core-started", "leads"]
        assert rows[0]["facts"] == '{"away_ms": 4000}'


def test_readers_do_not_wait_for_an_open_transaction(place: Address) -> None:
    with opened(place) as writer:
        one = story(ledger_of(writer))
        writer.write(one.ledger._now)
        with writer._store.engine.begin() as connection:
            runs.seen(connection, 1, T0 + 77)
            with read_only(place) as other:
                assert reading.period(other, 0, T0).written_to_ms == one.ledger._now


def test_a_reader_cannot_write(place: Address) -> None:
    with (
        opened(place),
        read_only(place) as connection,
        pytest.raises(Exception, match=r"read-?only"),
    ):
        connection.execute(text("DELETE FROM pods"))


def test_a_writer_that_is_killed_leaves_whole_transactions(tmp_path: Path) -> None:
    place = address(str(tmp_path / "h.sqlite"))
    with opened(place) as writer:
        writer.write(T0)
    script = (
        "import sys\n"
        "from server.history.address import address\n"
        "from server.history.store import Store\n"
        "from server.history import schema\n"
        "store = Store(address(sys.argv[1])); store.open()\n"
        "row = lambda n, at: {'id': n, 'from_ms': at, 'to_ms': at, 'lost': 1, 'why': 'x' * 500}\n"
        "for at in range(10_000):\n"
        "    store.write({schema.GAPS: {n: row(at * 100 + n, at) for n in range(100)}})\n"
        "    print(at, flush=True)\n"
    )
    command = [sys.executable, "-c", script, str(place)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        written = max(int(process.stdout.readline()) for _ in range(20))
        process.send_signal(signal.SIGKILL)
    with opened(place), read_only(place) as connection:
        found = connection.execute(
            text("SELECT from_ms, count(*) FROM gaps GROUP BY from_ms")
        ).all()
    assert len(found) > written
    assert {count for _, count in found} == {100}


def test_a_locked_file_keeps_rows_pending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.history.database.BUSY_S", 0.05)
    place = address(str(tmp_path / "h.sqlite"))
    with opened(place) as writer:
        one = story(ledger_of(writer))
        other = sqlite3.connect(str(place))
        other.execute("BEGIN IMMEDIATE")
        writer.write(one.ledger._now)
        assert "locked" in writer.failing
        pods = len(one.ledger.pending[schema.PODS])
        assert pods
        other.rollback()
        other.close()
        writer.write(one.ledger._now)
        assert writer.failing == ""
        with read_only(place) as connection:
            rows = connection.execute(text("SELECT count(*) FROM pods")).scalar_one()
            assert rows == pods


FULL = """
import sys
from pathlib import Path
from sqlalchemy import text
from server.history import schema
from server.history.database import reading as read_only
from server.history.address import address
from server.history.settings import Beginning, Settings
from server.history.writing import Writer
place = address("/mnt/h.sqlite")
writer = Writer(place, Settings(), lambda tags: "")
writer.open(1, Beginning("1"), is_start=True)
filler = Path("/mnt/filler")
filler.write_bytes(b"x" * (560 << 10))
ledger = writer._ledger
for number in range(4_000):
    row = {"id": number + 1, "from_ms": 1, "to_ms": 1, "lost": 1, "why": "x" * 200}
    ledger.put(schema.GAPS, number, row)
writer.write(2)
print(writer.failing, len(ledger.pending[schema.GAPS]))
filler.unlink()
for number in range(500, 4_000):
    del ledger.pending[schema.GAPS][number]
writer.write(3)
with read_only(place) as connection:
    print(writer.failing, connection.execute(text("SELECT count(*) FROM gaps")).scalar_one())
writer.close()
"""
"""A history on a file system of 1 MiB, which exists for this process alone. SQLite follows links, so the path must be real."""


def test_a_full_disk_keeps_rows_pending_until_there_is_space() -> None:
    unshare = shutil.which("unshare")
    if unshare is None:
        absent("there is no unshare here")
    mount = 'mount -t tmpfs -o size=1024k none /mnt || exit 77; exec "$0" -c "$1"'
    command = [unshare, "-Urm", "sh", "-c", mount, sys.executable, FULL]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "gen")])
    done = subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == NO_MOUNT:
        absent("no file system can be mounted here")
    first, second = done.stdout.splitlines()
    assert first == "database or disk is full 4000", done.stderr
    assert second == " 500"


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    path.write_text("no database " * 100)
    store = Store(address(str(path)))
    with pytest.raises(HistoryError, match="not a database"):
        store.open()
    store.close()
    assert path.read_text().startswith("no database")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("mysql://x/y", "mysql:// is not known; name a file, or postgresql"),
        ("postgresql://x/y", "postgresql:// is not known"),
    ],
)
def test_another_url_is_refused(given: str, why: str) -> None:
    with pytest.raises(HistoryError, match=why):
        address(given)


def test_a_missing_client_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("server.history.address.find_spec", lambda _name: None)
    with pytest.raises(HistoryError, match="evenhand\\[postgres\\]") as raised:
        address("postgresql+psycopg://ada:secret@db/history")
    assert INSTALL in str(raised.value)


def test_a_place_does_not_show_its_password() -> None:
    found = Address("postgresql+psycopg://ada:secret@db:5432/history?sslmode=require")
    assert str(found) == "postgresql+psycopg://ada@db:5432/history"


def test_each_call_deletes_a_bounded_part(place: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "ROWS_MAX", 10)
    with opened(place) as writer:
        ledger = ledger_of(writer)
        for number in range(25):
            row: dict[str, object] = {
                one.name: 1 if isinstance(one.type, BigInteger) else f"{one.name} {number}"
                for one in schema.VICTIMS.columns
            }
            ledger.put(schema.VICTIMS, number, row)
        writer.write(T0)  # The first write is followed by the first upkeep.
        left = []
        for _ in range(3):
            with writer._store.engine.begin() as connection:
                found = connection.execute(text("SELECT count(*) FROM victims"))
                left.append(found.scalar_one())
                keep_up(connection, T0, SETTINGS, ledger.next_number)
    assert left == [15, 5, 0]


def test_old_usage_is_summed_up_and_older_rows_go(place: Address) -> None:
    now = T0 // DAY_MS * DAY_MS
    series = ("default", "root.a", "vcore")
    with opened(place, now) as writer:
        ledger = ledger_of(writer)
        begin = now - 5 * HOUR_MS
        spans = [
            constant(begin + at * 10_000, begin + (at + 1) * 10_000, (at, 1, 2, 3, at % 7))
            for at in range(360)
        ]
        for span in spans:
            number = ledger.next_number()
            ledger.put(schema.USAGE, number, usage_row(number, series, span, 10_000))
        old = {"id": 7, "from_ms": 1, "to_ms": now - 90 * DAY_MS, "lost": 1, "why": ""}
        ledger.put(schema.GAPS, 7, old)
        writer.write(now)
        for later, step in ((2 * HOUR_MS, MINUTE_MS), (4 * DAY_MS, 10 * MINUTE_MS)):
            with writer._store.engine.begin() as connection:
                keep_up(connection, now + later, SETTINGS, ledger.next_number)
            with read_only(place) as connection:
                rows = connection.execute(select(schema.USAGE)).mappings().all()
                when = Period(begin, begin + HOUR_MS, now)
                (point,) = reading.usage(connection, "default", "root.a", when, 1)["vcore"]
            assert len(rows) == HOUR_MS // step
            assert point.covered_ms == HOUR_MS
            assert point.values == (
                sum(range(360)) // 360,
                1,
                2,
                3,
                sum(at % 7 for at in range(360)) // 360,
            )
            assert point.peaks == (359, 6)
        with read_only(place) as connection:
            assert connection.execute(text("SELECT count(*) FROM gaps")).scalar_one() == 0
        with writer._store.engine.begin() as connection:
            keep_up(connection, now + 91 * DAY_MS, SETTINGS, ledger.next_number)
        with read_only(place) as connection:
            assert connection.execute(text("SELECT count(*) FROM usage")).scalar_one() == 0
