"""Views read at a follower that follows closely, and else at the core that decides, and no page goes back in time."""

import queue
import socket
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2  # type: ignore[import-untyped]

from evenhand.v1 import inspect_pb2, inspect_pb2_grpc, replication_pb2
from evenhand_cli.connect import MIN_POSITION, Core, connected_core
from evenhand_cli.contexts import Context
from evenhand_cli.faults import Fault
from evenhand_cli.follower_choice import BEHIND_MAX, SILENT_MS_MAX, is_close, is_follower
from evenhand_console import followers, presence
from evenhand_console.connection import RENEW_S, Connection
from evenhand_console.followers import FollowerChannel, Newest
from evenhand_console.presence import KEEP_S
from evenhand_console.reading import Source, status_of
from tests.cli.fake import Answer, Failure, FakeCore, Turns, running
from tests.cli.processes import until

NOW = 1_000_000
LEADER = "core-a:50051"
PATIENCE_S = 60.0


def picture(position: int, term: str = "t", **given: Any) -> inspect_pb2.Picture:
    return inspect_pb2.Picture(taken_at_ms=NOW, position=position, term=term, **given)


def followed(position: int, heard_ms: int = NOW, behind: int = 0) -> inspect_pb2.Picture:
    return picture(position, follows=LEADER, heard_ms=heard_ms, behind=behind)


def partitions(name: str, of: inspect_pb2.Picture) -> inspect_pb2.ListPartitionsResponse:
    return inspect_pb2.ListPartitionsResponse(
        partitions=[inspect_pb2.Partition(name=name)], picture=of
    )


def refused(code: grpc.StatusCode, reason: str = "") -> Failure:
    details = (error_details_pb2.ErrorInfo(reason=reason, domain="evenhand"),) if reason else ()
    return Failure(code, "refused", details)


@dataclass(slots=True)
class Pair:
    """A leader and a follower, a console's source that reads from them, and its clock."""

    leader: FakeCore
    follower: FakeCore
    source: Source
    now: list[float]
    opened: list[bool] = field(default_factory=list)
    """Whether each connection that was opened had a follower."""

    def read(self) -> tuple[str, str, tuple[str, ...]]:
        """Read a page. Return the core that answered, the line that names the follower, and the notices."""
        found = self.source.read("", _name)
        return found.value, found.read_at, found.notices

    def positions(self) -> list[str]:
        """Return the oldest states that the calls to the follower accepted."""
        return [one.get(MIN_POSITION, "") for one in self.follower.metadata]


def _name(core: Core) -> str:
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    answer = core.ask(stub.ListPartitions, inspect_pb2.ListPartitionsRequest())
    return answer.partitions[0].name


@contextmanager
def pair(
    follower: Answer, leader: Answer | None = None, position: int = 0, **more: Answer
) -> Iterator[Pair]:
    """Hold a leader and a follower that answer as given. The leader says that it has got to a position."""
    of_leader = leader or partitions("leader", picture(100))
    reached = replication_pb2.GetReplicationResponse(position=position, term="t")
    first = FakeCore(ListPartitions=of_leader, GetReplication=reached, **more)
    second = FakeCore(ListPartitions=follower, WatchEvents=())
    now, opened = [0.0], list[bool]()

    @contextmanager
    def opener(_token: str) -> Iterator[Core]:
        with (
            connected_core(Context(core=first.address), "", 5.0) as core,
            connected_core(Context(core=second.address), "", 5.0) as other,
        ):
            opened.append(True)
            yield replace(core, follower=other, one_of_several=True)

    with (
        running(first),
        running(second),
        closing(Connection(opener, lambda: now[0])) as connection,
    ):
        yield Pair(first, second, Source(connection), now, opened)


# The choice ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "close"),
    [
        (picture(1), True),
        (followed(1), True),
        (followed(1, NOW - SILENT_MS_MAX, BEHIND_MAX), True),
        (followed(1, NOW - SILENT_MS_MAX - 1), False),
        (followed(1, behind=BEHIND_MAX + 1), False),
        (followed(1, heard_ms=0), False),
    ],
)
def test_an_answer_is_from_a_core_that_follows_closely(
    found: inspect_pb2.Picture, *, close: bool
) -> None:
    assert is_close(found) is close


CLOSE = replication_pb2.GetReplicationResponse(
    state="follower", position=7, leader_position=9, heard_ms=NOW, now_ms=NOW, term="t"
)


@pytest.mark.parametrize(
    ("other", "chosen"),
    [
        ({}, True),
        ({"state": "leader"}, False),
        ({"state": "joining"}, False),
        ({"state": "restored"}, False),
        ({"term": "earlier"}, False),
        ({"difference": "decision 3 differs"}, False),
        ({"leader_position": 8 + BEHIND_MAX}, False),
        ({"now_ms": NOW + SILENT_MS_MAX + 1}, False),
    ],
)
def test_a_core_that_follows_closely_is_chosen(other: dict[str, Any], *, chosen: bool) -> None:
    found = replication_pb2.GetReplicationResponse()
    found.CopyFrom(CLOSE)
    found.MergeFrom(replication_pb2.GetReplicationResponse(**other))
    assert is_follower(found, "t") is chosen


def test_of_several_cores_the_deciding_one_and_a_close_follower_are_connected() -> None:
    leads = replication_pb2.GetReplicationResponse(state="leader", term="t")
    with (
        running(FakeCore(GetReplication=CLOSE)) as follower,
        running(FakeCore(GetReplication=leads)) as leader,
    ):
        listed = Context(core=f"127.0.0.1:1,{follower.address},{leader.address}")
        with connected_core(listed, "", 5.0, follower=True) as core:
            assert core.address == leader.address
            assert core.one_of_several
            assert core.follower is not None
            assert core.follower.address == follower.address
        with connected_core(listed, "", 5.0) as core:
            assert (core.address, core.follower) == (leader.address, None)
        with connected_core(listed, "", 5.0, follower=True, token="visitor") as core:  # noqa: S106
            assert core.address == leader.address
        for one in (leader, follower):
            asked = [given.get("authorization", "") for given in one.metadata]
            assert asked == ["", "", "Bearer visitor"]
        alone = Context(core=leader.address)
        with connected_core(alone, "", 5.0, follower=True) as core:
            assert (core.one_of_several, core.follower) == (False, None)
        no_leader = Context(core=f"127.0.0.1:1,{follower.address}")
        with connected_core(no_leader, "", 5.0, follower=True) as core:
            assert (core.address, core.follower) == (follower.address, None)


class _Knowing(FakeCore):
    """A core that knows one token."""

    def _unary(self, answer: Answer, request: Message, context: grpc.ServicerContext) -> Message:
        if ("authorization", "Bearer known") not in context.invocation_metadata():
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "unknown token")
        return super()._unary(answer, request, context)


def test_a_visitor_with_an_unknown_token_chooses_no_core_for_others() -> None:
    leads = replication_pb2.GetReplicationResponse(state="leader", term="t")
    now = [0.0]
    with running(
        _Knowing(GetReplication=leads, ListPartitions=partitions("leader", picture(9)))
    ) as leader:
        listed = Context(core=f"127.0.0.1:1,{leader.address}")

        def opener(token: str) -> AbstractContextManager[Core]:
            return connected_core(listed, "", 5.0, follower=True, token=token)

        with closing(Connection(opener, lambda: now[0])) as connection:
            source = Source(connection)
            with pytest.raises(Fault) as found:
                source.read("unknown", _name)
            assert status_of(found.value) is grpc.StatusCode.UNAUTHENTICATED
            assert source.read("known", _name).value == "leader"
            now[0] = RENEW_S
            with pytest.raises(Fault):
                source.read("unknown", _name)
            until(lambda: not connection._renewing)
            assert source.read("known", _name).value == "leader"


# The newest state ------------------------------------------------------------------------------------------------


def test_the_newest_state_never_goes_back() -> None:
    newest = Newest()
    assert newest.metadata() == ()
    for position, term, shown in (
        (5, "a", "5@a"),
        (4, "a", "5@a"),
        (3, "b", "3@b"),
        (9, "a", "3@b"),
        (4, "b", "4@b"),
    ):
        newest.note(position, term)
        assert newest.metadata() == ((MIN_POSITION, shown),)


def test_a_core_that_leads_again_shows_the_newest_state() -> None:
    """The terms of one process have one name: a handover and its return lead back to the first name."""
    leader = Turns(
        *(partitions("leader", picture(*one)) for one in ((5, "a"), (7, "b"), (20, "a")))
    )
    follower = partitions("follower", followed(30))
    with pair(follower, leader) as cores:
        cores.leader.answers["GetReplication"] = Turns(
            *(
                replication_pb2.GetReplicationResponse(position=position, term=term)
                for position, term in ((5, "a"), (7, "b"), (20, "a"))
            )
        )
        for _ in range(3):
            cores.source.ask("", _name)
        cores.read()
        assert cores.positions() == ["20@a"]


def test_a_core_says_of_itself_what_only_it_knows() -> None:
    class Channel:
        def __init__(self, name: str) -> None:
            self.name = name

        def unary_unary(self, method: str, **_: Any) -> Any:
            return lambda _request, **how: (self.name, method, how.get("metadata", ()))

        def unary_stream(self, method: str, **_: Any) -> Any:
            return lambda _request, **_how: (self.name, method)

    newest = Newest()
    newest.note(5, "a")
    channel: Any = FollowerChannel(Channel("follower"), Channel("leader"), newest)  # type: ignore[arg-type]
    for method in ("HistoryService/GetWaits", "InspectService/CheckConsistency"):
        path = f"/evenhand.v1.{method}"
        assert channel.unary_unary(path)("", metadata=()) == ("leader", path, ())
    path = "/evenhand.v1.WatchService/WatchEvents"
    assert channel.unary_stream(path)("") == ("leader", path)
    path = "/evenhand.v1.InspectService/GetQueueTree"
    own, oldest = ("authorization", "Bearer x"), (MIN_POSITION, "5@a")
    assert channel.unary_unary(path)("", metadata=(own,)) == ("follower", path, (own, oldest))
    at_least = (MIN_POSITION, "3@a")
    assert channel.unary_unary(path)("", metadata=(own, at_least))[2] == (own, oldest)


# Reading ---------------------------------------------------------------------------------------------------------


def test_a_page_is_read_at_the_follower_and_says_so() -> None:
    with pair(partitions("follower", followed(5))) as cores:
        line = f"Read at {cores.follower.address}, which follows {LEADER}."
        assert cores.read() == ("follower", line, ())


def test_a_viewer_gets_no_address() -> None:
    hidden = picture(5, follows="another core", heard_ms=NOW)
    with pair(partitions("follower", hidden)) as cores:
        assert cores.read()[1] == "Read at a core that follows the one that decides."


def test_a_page_is_not_read_from_an_older_state_than_before() -> None:
    with pair(partitions("follower", followed(5))) as cores:
        cores.source.read("", lambda core: [_name(core), _name(core)])
        cores.read()
        assert cores.positions()[-1] in {"5@t", "100@t"}  # 100: the leader was asked for managers
        assert cores.positions()[0] == ""


def test_a_view_shows_what_a_visitor_has_changed_before() -> None:
    with pair(partitions("follower", followed(300)), position=200) as cores:
        assert cores.source.ask("", _name).value == "leader"
        assert cores.read()[0] == "follower"
        assert cores.positions() == ["200@t"]


def test_a_change_before_the_follower_is_read_again_is_shown_there() -> None:
    away = refused(grpc.StatusCode.UNAVAILABLE)
    answers = Turns(away, partitions("follower", followed(300)))
    with pair(answers, position=200) as cores:
        assert cores.read()[0] == "leader"
        cores.source.ask("", lambda _: None)
        cores.now[0] = RENEW_S
        cores.read()
        until(lambda: cores.read()[0] == "follower")
        assert cores.positions()[1] == "200@t"


def test_without_the_position_of_a_change_views_are_read_at_the_deciding_core() -> None:
    with pair(partitions("follower", followed(300))) as cores:
        cores.leader.answers["GetReplication"] = refused(grpc.StatusCode.INTERNAL)
        cores.source.ask("", _name)
        assert cores.read()[0] == "leader"


@pytest.mark.parametrize(
    "answer",
    [
        partitions("follower", followed(5, NOW - 60_000)),
        partitions("follower", followed(5, behind=1_000_000)),
        refused(grpc.StatusCode.UNAVAILABLE),
        refused(grpc.StatusCode.UNAUTHENTICATED),
        refused(grpc.StatusCode.RESOURCE_EXHAUSTED),
        refused(grpc.StatusCode.FAILED_PRECONDITION, "FOLLOWER_BEHIND"),
        refused(grpc.StatusCode.FAILED_PRECONDITION, "OTHER_HISTORY"),
    ],
)
def test_the_deciding_core_is_read_silently_while_the_follower_is_not_close(answer: Answer) -> None:
    with pair(Turns(answer, partitions("follower", followed(500)))) as cores:  # type: ignore[arg-type]
        assert cores.read() == ("leader", "", ())
        assert cores.read() == ("leader", "", ())
        cores.now[0] = RENEW_S
        cores.read()
        until(lambda: len(cores.opened) > 1)
        until(lambda: cores.read()[0] == "follower")
        assert cores.positions()[-1] == "100@t"


@pytest.mark.parametrize(
    "code",
    [
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.INTERNAL,
    ],
)
def test_a_visitor_whom_both_cores_refuse_moves_no_other_visitor(code: grpc.StatusCode) -> None:
    answers = Turns(refused(code), partitions("follower", followed(5)))
    with pair(answers, refused(code)) as cores:
        with pytest.raises(Fault):
            cores.source.read("unknown", _name)
        assert cores.read()[0] == "follower"


def test_what_is_absent_at_the_follower_is_absent() -> None:
    with pair(refused(grpc.StatusCode.NOT_FOUND)) as cores:
        with pytest.raises(Fault) as found:
            cores.read()
        assert status_of(found.value) is grpc.StatusCode.NOT_FOUND
        assert len(cores.follower.requests) == 1


def test_the_last_core_that_answers_is_read_with_its_age() -> None:
    late = partitions("follower", followed(5, NOW - 60_000))
    with pair(late, refused(grpc.StatusCode.UNAVAILABLE)) as cores:
        name, line, notices = cores.read()
        assert (name, line) == ("follower", "")
        (notice,) = notices
        assert notice.startswith("picture of a core that does not decide")


def test_a_core_that_was_restored_shows_no_older_state_than_before() -> None:
    restored = partitions("leader", picture(90, follows="the state of an earlier run"))
    answers = Turns(
        partitions("leader", picture(100)), restored, partitions("leader", picture(7, "u"))
    )
    with pair(refused(grpc.StatusCode.UNAVAILABLE), answers) as cores:
        assert cores.source.ask("", _name).value == "leader"
        with pytest.raises(Fault, match="older state"):
            cores.source.ask("", _name)
        assert cores.source.ask("", _name).value == "leader", (
            "another core decides, in a term of its own"
        )


def test_managers_that_are_away_are_known_to_the_deciding_core() -> None:
    away = [inspect_pb2.AbsentManager(rm_id="shim", since_ms=NOW - 10_000)]
    leader = Turns(partitions("leader", picture(9, away=away)), partitions("leader", picture(9)))
    with pair(partitions("follower", followed(10)), leader) as cores:
        until(lambda: any("is away" in one for one in cores.read()[2]))
        asked = len(cores.leader.requests)
        assert asked == 1
        cores.now[0] = KEEP_S
        until(lambda: not cores.read()[2])
        assert len(cores.leader.requests) == asked + 1


def test_an_old_answer_about_managers_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two visits of a page, a manager may have come back long ago."""
    away = [inspect_pb2.AbsentManager(rm_id="shim", since_ms=NOW - 10_000)]
    leader = partitions("leader", picture(9, away=away))
    with pair(partitions("follower", followed(10)), leader) as cores:
        until(lambda: bool(cores.read()[2]))
        cores.leader.answers["ListPartitions"] = partitions("leader", picture(9))
        cores.now[0] = 3_600.0
        assert cores.read()[2] == ()
    with pair(partitions("follower", followed(10)), leader) as cores:
        monkeypatch.setattr(presence, "WAIT_S", 0.0)
        cores.read()
        until(lambda: all(one.running is None or one.running.done() for one in _kept(cores)))
        cores.leader.answers["ListPartitions"] = partitions("leader", picture(9))
        cores.now[0] = 3_600.0
        assert cores.read()[2] == (), "nobody has seen the answer yet, but it is old"


def _kept(cores: "Pair") -> list[presence._Kept]:
    return list(cores.source._presence._kept._values.values())


def test_a_failure_of_the_question_for_managers_fails_no_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[float] = []

    def fails(core: Core) -> presence._Answer:
        asked.append(core.timeout_s)
        raise ValueError("a defect")

    with pair(partitions("follower", followed(10))) as cores:
        monkeypatch.setattr(presence, "_asked", fails)
        assert cores.read()[0] == "follower"
        until(lambda: bool(asked))
        assert cores.read()[0] == "follower"
        monkeypatch.undo()
        away = [inspect_pb2.AbsentManager(rm_id="shim", since_ms=NOW - 10_000)]
        cores.leader.answers["ListPartitions"] = partitions("leader", picture(9, away=away))
        cores.now[0] = KEEP_S
        until(lambda: any("is away" in one for one in cores.read()[2]))


def test_the_question_for_managers_occupies_a_thread_for_a_short_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(presence, "ANSWER_S", 0.1)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        connected_core(
            Context(core=f"127.0.0.1:{silent.getsockname()[1]}"), "", PATIENCE_S
        ) as core,
    ):
        begun = time.monotonic()
        assert presence._asked(core).lines == ()
        assert time.monotonic() - begun < PATIENCE_S / 2


def test_a_core_that_no_longer_decides_says_nothing_about_managers() -> None:
    away = [inspect_pb2.AbsentManager(rm_id="shim", since_ms=NOW - 10_000)]
    deposed = partitions("leader", picture(9, "t", away=away))
    with pair(partitions("follower", followed(10)), deposed) as cores:
        until(lambda: bool(cores.read()[2]))
        following = picture(11, "u", follows="core-c:50051", heard_ms=NOW)
        cores.follower.answers["ListPartitions"] = partitions("follower", following)
        assert cores.read()[2] == ()
        cores.now[0] = KEEP_S
        asked = len(cores.leader.requests)
        until(lambda: cores.read()[2] == () and len(cores.leader.requests) > asked)
    follows = partitions("leader", picture(9, "t", away=away, follows="core-c:50051"))
    with (
        running(FakeCore(ListPartitions=follows)) as core,
        connected_core(Context(core=core.address), "", PATIENCE_S) as connected,
    ):
        assert presence._asked(connected).lines == ()


def test_a_core_that_was_deposed_while_it_was_paused_is_not_shown() -> None:
    """Its answer names a term that has ended. The core does not know that yet, and says that it decides."""
    first, second = partitions("first", picture(90)), partitions("second", picture(100, "u"))
    deposed = partitions("deposed", picture(95))
    with pair(refused(grpc.StatusCode.UNAVAILABLE), first) as cores:
        assert cores.read()[0] == "first"
        until(lambda: len(cores.leader.requests) > 1)  # The managers were asked for, too.
        cores.leader.answers["ListPartitions"] = Turns(second, deposed, second)
        assert cores.read()[0] == "second"
        assert cores.source.read("", _name).value == "second"
        assert len(cores.opened) > 1, "the console looked again for the core that decides"
        cores.leader.answers["ListPartitions"] = deposed
        with pytest.raises(Fault, match="no longer decides"):
            cores.source.read("", _name)
        with pytest.raises(Fault, match="no longer decides"):
            cores.source.ask("", _name)


def test_events_come_from_the_core_that_is_read() -> None:
    with pair(partitions("follower", followed(5)), WatchEvents=()) as cores:
        cores.follower.kinds, cores.leader.kinds = _kinds("placed"), _kinds("node")
        calls: list[grpc.Call] = []
        stream = cores.source.kinds("", calls.append)
        assert [next(stream), next(stream)] == [frozenset(), {"placed"}]
        cores.follower.answers["ListPartitions"] = refused(grpc.StatusCode.UNAVAILABLE)
        assert cores.read()[0] == "leader"
        with pytest.raises(Fault) as ended:
            next(stream)
        assert status_of(ended.value) is grpc.StatusCode.CANCELLED
        stream = cores.source.kinds("", calls.append)
        assert [next(stream), next(stream)] == [frozenset(), {"node"}]
        stream.close()  # type: ignore[attr-defined]


def _kinds(name: str) -> Any:
    found: queue.Queue[list[str]] = queue.Queue()
    found.put([name])
    return found


def test_a_follower_that_says_nothing_is_not_waited_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(followers, "ANSWER_S", 0.1)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        running(FakeCore(ListPartitions=partitions("leader", picture(9)))) as leader,
    ):
        address = f"127.0.0.1:{silent.getsockname()[1]}"

        @contextmanager
        def opener(_token: str) -> Iterator[Core]:
            with (
                connected_core(Context(core=leader.address), "", 60.0) as core,
                connected_core(Context(core=address), "", 60.0) as other,
            ):
                yield replace(core, follower=other, one_of_several=True)

        with closing(Connection(opener, lambda: 0.0)) as connection:
            assert Source(connection).read("", _name).value == "leader"
