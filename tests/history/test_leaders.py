"""Which core led from when to when: one core alone, and two cores that write one database in turn."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.exc import OperationalError

from server.core.core import Core
from server.history import schema, writing
from server.history.address import Address, LockedError
from server.history.database import reading as read_only
from server.history.reading import Period
from server.history.records import failovers
from server.history.rows import Frame, Row
from server.history.settings import Beginning, Settings
from server.history.store import Store
from server.history.writing import Writer, _take
from server.model.events import LeadershipTaken, ManagerRegistered
from server.rpc.pod_names import pod_name
from tests.cli.processes import running, until
from tests.cli.run import evenhand
from tests.cli.test_cluster import said
from tests.cli.test_followers import CLAIM
from tests.cli.test_takeover import Pair
from tests.history.frames import T0, Told
from tests.history.places import database

FIRST = Beginning("1", "a:50051", leads=True, shares=True)
SECOND = Beginning("1", "b:50051", leads=False, shares=True)


def writer(place: Address) -> Writer:
    return Writer(place, Settings(), pod_name)


def take(one: Writer, about: Beginning, now: int, *row: Any) -> None:
    """Let the writing process of a core take a row."""
    _take(one, Frame(0, now, [row]), about, lambda _status: None)


def rows(place: Address) -> list[tuple[str, str, int, Any]]:
    """Return the starts and ends, oldest first: the kind, the core, and how long after `T0` it began and ended."""
    with read_only(place) as connection:
        found = failovers(connection, Period(1, T0 + 1_000_000, 0), 0, 100)
    ends = [one["facts"].get("until_ms") for one in found]
    every = [
        (one["kind"], one["core"], one["at_ms"] - T0, end and end - T0)
        for one, end in zip(found, ends, strict=True)
    ]
    return every[::-1]


def test_a_core_alone_leads_from_its_start_to_its_end(place: Address) -> None:
    for number in range(2):
        one = writer(place)
        about = Beginning("1", "a:50051")
        one.open(T0 + number * 5_000, about, is_start=True)
        one.end(T0 + number * 5_000 + 2_000, "the server ended", in_order=True)
        one.close()
    assert rows(place) == [
        ("core-started", "a:50051", 0, None),
        ("leads", "a:50051", 0, 2_000),
        ("core-ended", "a:50051", 2_000, None),
        ("core-started", "a:50051", 5_000, None),
        ("leads", "a:50051", 5_000, 7_000),
        ("core-ended", "a:50051", 7_000, None),
    ]


def test_a_term_ends_with_a_kill(place: Address) -> None:
    one = writer(place)
    one.open(T0, FIRST._replace(shares=False), is_start=True)
    one.write(T0 + 3_000)
    one.close()
    one = writer(place)
    one.open(T0 + 9_000, FIRST._replace(shares=False), is_start=True)
    one.write(T0 + 10_000)
    one.close()
    assert rows(place) == [
        ("core-started", "a:50051", 0, None),
        ("leads", "a:50051", 0, 3_000),
        ("core-killed", "a:50051", 3_000, None),
        ("core-started", "a:50051", 9_000, None),
        ("leads", "a:50051", 9_000, None),
    ]


def test_a_restart_of_the_writing_process_ends_no_term(place: Address) -> None:
    for is_start in (True, False):
        one = writer(place)
        one.open(T0, FIRST, is_start=is_start)
        one.write(T0 + 1_000)
        one.close()
    assert rows(place) == [("core-started", "a:50051", 0, None), ("leads", "a:50051", 0, None)]


def test_a_core_that_follows_again_and_leads_again_has_two_terms(place: Address) -> None:
    one, about = writer(place), FIRST._replace(shares=False)
    one.open(T0, about, is_start=True)
    take(one, about, T0 + 1_000, Row.FOLLOWS.value, "b:50051")
    take(one, about, T0 + 4_000, Row.LEADS.value)
    one.write(T0 + 5_000)
    one.close()
    assert rows(place)[1:] == [
        ("leads", "a:50051", 0, 1_000),
        ("follows", "a:50051", 1_000, None),
        ("leads", "a:50051", 4_000, None),
    ]


def gaps(place: Address) -> list[tuple[int, int, int]]:
    """Return the gaps: how long after `T0` each began and ended, and how many rows were lost."""
    with read_only(place) as connection:
        found = connection.execute(select(schema.GAPS)).mappings().all()
    return [(one["from_ms"] - T0, one["to_ms"] - T0, one["lost"]) for one in found]


@pytest.mark.parametrize("leads_again", [False, True])
def test_rows_that_are_lost_when_a_core_begins_to_follow_make_a_gap(
    place: Address,
    monkeypatch: pytest.MonkeyPatch,
    leads_again: bool,  # noqa: FBT001
) -> None:
    """The database is away when the core begins to follow, and for one beat after that."""
    one, about = writer(place), FIRST
    monkeypatch.setattr(writing, "RETRY_S", 0)
    away = OperationalError("INSERT", {}, Exception("the database is away"))

    def fail(*_: object) -> None:
        raise away

    one.open(T0, about, is_start=True)
    one.write(T0 + 1_000)
    take(one, about, T0 + 1_500, Row.APPLICATION.value, "default", "app", "")
    for key in ("a", "b"):
        ask = (Row.ASK.value, "rm", "default", key, "app", None, (), 0, ())
        take(one, about, T0 + 1_500, *ask)
    with monkeypatch.context() as broken:
        broken.setattr(Store, "write", fail)
        take(one, about, T0 + 2_000, Row.FOLLOWS.value, "b:50051")
        take(one, about, T0 + 3_000, Row.BEAT.value)
    assert gaps(place) == []
    if leads_again:
        take(one, about, T0 + 4_000, Row.LEADS.value)
    for _ in range(2):
        take(one, about, T0 + 5_000, Row.BEAT.value)
    ((begin, end, lost),) = gaps(place)
    assert (begin, end) == (1_000, 2_000)
    assert lost >= 2
    assert one.failing == ""
    one.close()


def test_two_cores_write_one_database_in_turn(postgres: str) -> None:
    place = database(postgres)
    first, second = writer(place), writer(place)
    first.open(T0, FIRST, is_start=True)
    second.rest(T0, "")
    take(second, SECOND, T0 + 500, Row.TERM.value, "rm", 3)
    assert (second.status.idle, second.status.ready) == (True, False)
    second.open(T0 + 900, SECOND._replace(leads=True), is_start=False)
    assert "another core writes its history there" in second.failing
    first.write(T0 + 1_000)
    first.close()  # The first core is gone, without an end.
    take(second, SECOND, T0 + 2_500, Row.LEADS.value)
    assert second.status.ready
    first = writer(place)
    first.rest(T0 + 3_000, "")
    take(second, SECOND, T0 + 4_000, Row.FOLLOWS.value, "a:50051")
    assert second.status.idle
    take(first, FIRST._replace(leads=False), T0 + 4_200, Row.LEADS.value)
    first.write(T0 + 5_000)
    first.close()
    second.close()
    assert rows(place) == [
        ("core-started", "a:50051", 0, None),
        ("leads", "a:50051", 0, 1_000),
        ("core-killed", "a:50051", 1_000, None),
        ("leads", "b:50051", 2_500, 4_000),
        ("follows", "b:50051", 4_000, None),
        ("leads", "a:50051", 4_200, None),
    ]


def test_a_core_that_shares_with_nobody_is_refused_a_database_in_use(postgres: str) -> None:
    place = database(postgres)
    first, second = writer(place), writer(place)
    first.open(T0, FIRST, is_start=True)
    with pytest.raises(LockedError, match="let one follow the other"):
        second.open(T0, FIRST._replace(shares=False), is_start=True)
    first.close()
    second.close()


def test_registrations_have_the_epoch_of_the_shim() -> None:
    one = Told(Core())
    for epoch in (4, 7):
        registered = ManagerRegistered("rm", epoch=epoch, instance="shim-b", explicit_sync=True)
        one.take(registered, now=epoch)
    one.take(ManagerRegistered("rm", epoch=5, instance="shim-a", explicit_sync=True), now=9)
    found = one.rows(schema.FAILOVERS)
    assert [(each["kind"], json.loads(each["facts"])["epoch"]) for each in found] == [
        ("registered", 4),
        ("registered", 7),
    ]
    assert "in epoch 7 as 'shim-b'" in found[-1]["text"]


def test_a_core_that_begins_to_lead_gives_its_configuration_and_a_picture() -> None:
    one = Told(Core())
    one.take(now=1)
    one.queue.picture_wanted = False
    one.tap.take([LeadershipTaken()], T0 + 2)
    kinds = [row[0] for frame in one.frames() for row in frame.rows]
    assert kinds == [Row.LEADS, Row.CONFIGURATION]
    assert one.queue.picture_wanted


@pytest.mark.parametrize("shared", [False, True])
def test_a_pair_of_cores_knows_who_led_before(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    unused_tcp_port_factory: Callable[[], int],
    *,
    shared: bool,
) -> None:
    more: list[str] = []
    if shared:
        more = ["--history", database(request.getfixturevalue("postgres")).text]
    with ExitStack() as stack:
        ports = [unused_tcp_port_factory() for _ in range(2)]
        pair = Pair(tmp_path, [f"127.0.0.1:{port}" for port in ports], stack, more=more)
        pair.start(0)
        pair.start(1)
        log = tmp_path / "shim.log"
        shim = ["shim", "--cluster", str(CLAIM), "--core", pair.both]
        process = stack.enter_context(running([*shim, "--cluster-listen", "127.0.0.1:0"], log))
        said(process, "cluster commands at")
        until(lambda: len(terms(pair.both)) == 1)
        killed = pair.leader()
        until(lambda: pair.is_level(1 - killed))
        pair.kill(killed)
        until(lambda: pair.state(1 - killed) == "leader")
        expected = [ports[killed], ports[1 - killed]] if shared else [ports[1 - killed]]
        until(lambda: [one[0] for one in terms(pair.both)] == expected)
        found = terms(pair.both)
        assert [end is None for _, end in found] == [*[False] * (len(found) - 1), True]
        shown = evenhand("history", "failovers", "--core", pair.both).out
    assert ("leads since" in shown) is shared


def terms(core: str) -> list[tuple[int, Any]]:
    """Return the terms of leaders, oldest first: the port of the core, and the end, None if it still leads."""
    ended = evenhand("history", "failovers", "--core", core, "-o", "json")
    found = [] if ended.code else ended.value()["failovers"]
    leads = [one for one in found if one["kind"] == "leads"]
    return [
        (int(one["core"].rpartition(":")[2]), one["facts"].get("until_ms")) for one in leads[::-1]
    ]
