"""The page of restarts: what the latest one lost, starts and ends of cores, and gaps of the history."""

from evenhand.v1 import history_pb2
from evenhand_console.query import Query, query_of
from evenhand_console.views import restarts
from tests.cli.samples import T0
from tests.console import replies, samples
from tests.console.serving import console


def _query(**given: str) -> Query:
    return query_of(restarts.VIEW.path, restarts.VIEW.parameters, given.items())


def _restarted(gone: int) -> history_pb2.ListFailoversResponse:
    synced = history_pb2.Failover(
        at_ms=T0 + 9_000,
        kind="synced",
        subject="evenhand",
        facts={"allocations_before": 7, "allocations_after": 7 - gone, "gone": gone},
    )
    started = history_pb2.Failover(at_ms=T0 + 8_000, kind="core-started", facts={"away_ms": 5_000})
    return history_pb2.ListFailoversResponse(failovers=[synced, started])


def test_the_recorded_core_was_started_and_its_manager_has_synced() -> None:
    page = restarts.shape(replies.load(restarts.Read, "restarts"), _query())
    assert [one.what for one in page.rows][-1] == "core started"
    assert "manager synced" in {one.what for one in page.rows}
    assert page.answer.startswith("The core was started, and has ")
    assert (page.of_several, page.gaps, page.written_to_ms) == (False, (), 0)


def test_the_first_sentence_says_what_the_latest_restart_lost() -> None:
    for gone, lost in ((0, "no pod was lost"), (2, "2 pods had ended meanwhile")):
        page = restarts.shape(restarts.Read(_restarted(gone)), _query())
        assert page.answer.endswith(f"{lost}.")
        assert "after 5.0 s" in page.answer
        assert page.rows[0].facts.startswith("7 allocations")
    assert restarts.shape(restarts.Read(_restarted(0)), _query(after="token")).answer == ""


def test_a_term_of_a_core_ends_at_an_instant_in_utc() -> None:
    leads = history_pb2.Failover(
        at_ms=T0, kind="leads", core="a:1", facts={"until_ms": T0 + 60_000, "away_ms": 3_000}
    )
    follows = history_pb2.Failover(at_ms=T0, kind="follows", core="b:1")
    listed = history_pb2.ListFailoversResponse(failovers=[leads, follows])
    page = restarts.shape(restarts.Read(listed), _query())
    assert page.of_several
    assert "UTC" in page.answer
    assert "UTC" in page.rows[0].facts


def test_gaps_and_a_late_history_are_shown() -> None:
    period = history_pb2.HistoryPeriod(until_ms=T0 + 60_000, written_to_ms=T0)
    for at in (1, 2):
        period.gaps.add(from_ms=T0 + at, to_ms=T0 + at + 1, lost=at, why="a full disk")
    listed = history_pb2.ListFailoversResponse(period=period)
    page = restarts.shape(restarts.Read(listed), _query())
    assert ([one.lost for one in page.gaps], page.written_to_ms) == ([2, 1], T0)


def test_a_core_without_a_history_says_how_to_keep_one() -> None:
    fake = samples.core()
    del fake.answers["ListFailovers"]
    with console(fake) as client:
        assert "--state-dir" in client.get("/restarts").text
