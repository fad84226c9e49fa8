"""One answer of several groups of cores: pages, unknown objects, managers, refusals, and streams (design 7.6)."""

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2

from evenhand.v1 import config_pb2, decisions_pb2, explain_pb2, inspect_pb2, watch_pb2
from evenhand_cli.core_table import read_core_table
from evenhand_cli.spread_answers import join
from evenhand_cli.spread_channel import Reached, SpreadChannel
from tests.cli.fake import Answer, Failure, FakeCore, Turns, running
from tests.cli.run import Ended, evenhand
from tests.cli.test_spread import table

INFO: dict[str, Answer] = {"ServerInfo": inspect_pb2.ServerInfoResponse(config_revision=3)}
ABSENT = Failure(grpc.StatusCode.NOT_FOUND, "there is no decision")


@contextmanager
def two(tmp_path: Path, *cores: Mapping[str, Answer]) -> Iterator[tuple[str, list[FakeCore]]]:
    """Serve two cores, and give the path of their table."""
    fakes = [FakeCore(**answers) for answers in cores]
    with ExitStack() as stack:
        for one in fakes:
            stack.enter_context(running(one))
        yield str(table(tmp_path / "cores.yaml", *(one.address for one in fakes))), fakes


def asked(tmp_path: Path, command: list[str], *cores: dict[str, Answer]) -> Ended:
    with two(tmp_path, *cores) as (path, _):
        return evenhand(*command, "--cores", path)


def test_threads_that_need_a_group_at_the_same_time_open_one_channel(tmp_path: Path) -> None:
    opened: list[str] = []
    both = threading.Barrier(2, timeout=30)

    def reach(addresses: str) -> Reached:
        opened.append(addresses)
        return Reached(addresses, grpc.insecure_channel(addresses))

    found = read_core_table(table(tmp_path / "cores.yaml", "127.0.0.1:1", "127.0.0.1:2"))
    with closing(SpreadChannel(found, reach, secure=False)) as channel:
        (group, _) = found.groups

        def use() -> Reached:
            both.wait()
            return channel.reached(group)

        with ThreadPoolExecutor(2) as threads:
            first, second = (one.result() for one in [threads.submit(use), threads.submit(use)])
        assert first is second
    assert opened == ["127.0.0.1:1"]


def test_a_group_that_cannot_be_reached_delays_no_other_group(tmp_path: Path) -> None:
    trying, over = threading.Event(), threading.Event()

    def reach(addresses: str) -> Reached:
        if addresses.endswith(":1"):
            trying.set()
            assert over.wait(30)
        return Reached(addresses, grpc.insecure_channel(addresses))

    found = read_core_table(table(tmp_path / "cores.yaml", "127.0.0.1:1", "127.0.0.1:2"))
    with (
        closing(SpreadChannel(found, reach, secure=False)) as channel,
        ThreadPoolExecutor(2) as threads,
    ):
        away, other = found.groups
        waits = threads.submit(channel.reached, away)
        assert trying.wait(30)
        try:
            assert (
                threads.submit(channel.reached, other).result(timeout=10).address == "127.0.0.1:2"
            )
        finally:
            over.set()
        assert waits.result().address == "127.0.0.1:1"


def page(*ids: str, after: str = "", at: int = 0) -> decisions_pb2.ListDecisionsResponse:
    found = [decisions_pb2.Decision(decision_id=one, at_ms=at + n) for n, one in enumerate(ids)]
    return decisions_pb2.ListDecisionsResponse(decisions=found, next_page_token=after)


def test_pages_of_one_group_go_on_after_those_of_the_other_have_ended(tmp_path: Path) -> None:
    pages = Turns(page("g-1", after="x", at=1), page("g-2", at=7))
    first, second = {"ListDecisions": pages}, {"ListDecisions": page("g-3", at=5)}
    with two(tmp_path, first, second) as (path, cores):
        ended = evenhand("decisions", "--cores", path, "-o", "json")
    found = [one["decision_id"] for one in ended.value()["decisions"]]
    assert found == ["g-1", "g-3", "g-2"]
    kind = decisions_pb2.ListDecisionsRequest
    lists = [[one.page_token for one in core.requests if isinstance(one, kind)] for core in cores]
    assert lists == [["", "x"], [""]]


def test_the_group_that_knows_an_object_answers(tmp_path: Path) -> None:
    unknown = explain_pb2.ExplainResponse(
        kind=explain_pb2.SUBJECT_KIND_UNKNOWN, key="k", lines=["unknown"]
    )
    known = explain_pb2.ExplainResponse(
        kind=explain_pb2.SUBJECT_KIND_NODE, key="k", partition="gpu", lines=["a node"]
    )
    for answers in ([unknown, known], [known, unknown]):
        assert join(answers) == known
    assert join([unknown, unknown]) == unknown
    decision = decisions_pb2.GetDecisionResponse(
        decision=decisions_pb2.Decision(decision_id="g-1", partition="gpu")
    )
    ended = asked(
        tmp_path, ["decisions", "g-1"], {"GetDecision": ABSENT}, {"GetDecision": decision}
    )
    assert (ended.code, "partition gpu" in ended.out) == (0, True)


def test_a_group_that_refuses_is_no_missing_group(tmp_path: Path) -> None:
    denied = Failure(grpc.StatusCode.PERMISSION_DENIED, "your role may not do that")
    answer = inspect_pb2.ListPartitionsResponse()
    ended = asked(tmp_path, ["partitions"], {"ListPartitions": answer}, {"ListPartitions": denied})
    assert (ended.code, "your role may not do that" in ended.err) == (3, True)


def test_a_manager_has_one_row_with_its_worst_state() -> None:
    rows = [
        inspect_pb2.ManagerInfo(
            rm_id="rm", nodes=2, allocations=3, sync_state=inspect_pb2.SYNC_STATE_SYNCED
        ),
        inspect_pb2.ManagerInfo(
            rm_id="rm",
            nodes=1,
            sync_state=inspect_pb2.SYNC_STATE_SYNCING,
            away=True,
            away_since_ms=7,
        ),
    ]
    for order in (rows, rows[::-1]):
        answers = [inspect_pb2.ServerInfoResponse(version="1", managers=[one]) for one in order]
        (row,) = join(answers).managers
        assert (row.nodes, row.allocations) == (3, 3)
        assert (row.away, row.away_since_ms) == (True, 7)
        assert row.sync_state == inspect_pb2.SYNC_STATE_SYNCING


def test_all_groups_serve_only_if_each_does() -> None:
    kind = health_pb2.HealthCheckResponse
    serves, stops = kind(status=kind.SERVING), kind(status=kind.NOT_SERVING)
    for answers, status in (
        ([serves, serves], kind.SERVING),
        ([serves, stops], kind.NOT_SERVING),
        ([stops, serves], kind.NOT_SERVING),
    ):
        assert join(answers).status == status


def test_checks_are_named_once_and_findings_are_those_of_all() -> None:
    answers = [
        inspect_pb2.CheckConsistencyResponse(
            checks=["usage", "nodes"],
            findings=[inspect_pb2.Finding(code=code)],
            recovered_allocations=2,
        )
        for code in ("one", "other")
    ]
    whole = join(answers)
    assert [*whole.checks] == ["usage", "nodes"]
    assert [one.code for one in whole.findings] == ["one", "other"]
    assert whole.recovered_allocations == 4


def test_a_configuration_with_errors_is_tried_and_never_applied(tmp_path: Path) -> None:
    error = config_pb2.ConfigProblem(
        severity=config_pb2.PROBLEM_SEVERITY_ERROR, message="wrong", line=1
    )
    refused = config_pb2.ApplyResponse(problems=[error])
    file = tmp_path / "queues.yaml"
    file.write_text("partitions: [{name: default, queues: [{name: root}]}]\n")
    taken = config_pb2.ApplyResponse()
    with two(tmp_path, INFO | {"Apply": taken}, INFO | {"Apply": refused}) as (path, cores):
        ended = evenhand("config", "apply", str(file), "--cores", path)
    assert (ended.code, "wrong" in ended.out + ended.err) == (1, True)
    requests = [one for core in cores for one in core.requests]
    assert [one.dry_run for one in requests if isinstance(one, config_pb2.ApplyRequest)] == [
        True,
        True,
    ]


def test_a_configuration_that_one_group_failed_to_take_is_said_to_be_in_the_others(
    tmp_path: Path,
) -> None:
    gone = Failure(grpc.StatusCode.UNAVAILABLE, "gone")
    taken = config_pb2.ApplyResponse(applied=True, revision=4)
    file = tmp_path / "queues.yaml"
    file.write_text("partitions: [{name: default, queues: [{name: root}]}]\n")
    ended = asked(
        tmp_path,
        ["config", "apply", str(file)],
        INFO | {"Apply": taken},
        INFO | {"Apply": Turns(config_pb2.ApplyResponse(), gone)},
    )
    assert ended.code == 3
    assert "the configuration is in force in cores a, not in cores b" in ended.err


def test_the_events_of_all_groups_come_and_a_broken_stream_is_named(tmp_path: Path) -> None:
    event = watch_pb2.EventRecord(number=1, kind="placed", object="p1")
    events = [watch_pb2.WatchEventsResponse(events=[event])]
    gone = Failure(grpc.StatusCode.UNAVAILABLE, "gone")
    both = asked(tmp_path, ["events"], {"WatchEvents": events}, {"WatchEvents": events})
    assert (both.code, both.out.count("p1")) == (0, 2)
    one = asked(tmp_path, ["events"], {"WatchEvents": events}, {"WatchEvents": gone})
    assert (one.code, one.out.count("p1")) == (3, 1)
    assert one.err.count("cores b are missing in this answer") == 1
