"""DecisionService over a socket: lists, one decision, the watch, and what a viewer may see of them."""

from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from evenhand.v1 import decisions_pb2 as pb
from evenhand.v1 import decisions_pb2_grpc as rpc
from evenhand.v1 import explain_pb2 as explain
from evenhand.v1 import explain_pb2_grpc as explain_rpc
from evenhand.v1 import inspect_pb2 as inspect
from evenhand.v1 import inspect_pb2_grpc as inspect_rpc
from server.model.decisions import Decided, DecisionMoved
from server.model.records import DecisionState, Spared, Verdict
from server.preemption.policy import Rule
from server.rpc.evenhand.decision_text import verdict_sentence
from server.rpc.evenhand.redaction import without
from server.rpc.evenhand.rule_text import words
from server.rpc.event_buffer import record
from si.v1 import si_pb2 as si
from tests.rpc.decided import T0, claim, keep, move, quota_run, tell, victim
from tests.rpc.harness import RM, Served, Stream, refusal
from tests.rpc.test_evenhand import VIEWER, cluster

FOREIGN = ("other", "side", "root.b", "kept-b", "root.c", "kept-c", "n1")
"""Names that the viewer of root.a may never read."""


def stub_of(served: Served) -> Any:
    return rpc.DecisionServiceStub(served.channel)


async def listed(served: Served, metadata: Any = None, **wanted: Any) -> list[pb.Decision]:
    request = pb.ListDecisionsRequest(**wanted)
    return list((await stub_of(served).ListDecisions(request, metadata=metadata)).decisions)


def ids(found: list[pb.Decision]) -> list[str]:
    return [one.decision_id for one in found]


async def test_a_decision_is_told_whole_to_an_operator() -> None:
    async with cluster() as (served, _):
        keep(served, claim())
        (one,) = await listed(served)
        assert (one.policy, one.state) == ("guaranteed", pb.DECISION_STATE_ORDERED)
        (gets,) = one.beneficiaries
        assert (gets.allocation_key, gets.node_id, dict(gets.resources)) == (
            "large",
            "n1",
            {"vcore": 50},
        )
        (goes,) = one.victims
        assert (goes.queue, goes.state) == ("root.b", pb.VICTIM_STATE_LEAVING)
        assert [(kept.law, kept.queue, kept.count) for kept in one.spared] == [
            ("below-guarantee", "root.c", 3),
            ("below-guarantee", "root.b", 2),
            ("below-guarantee", "root.a.deep", 1),
        ]
        assert "(rule 2, G4, Q12)" in one.spared[0].rule
        assert not one.levels[0].HasField("max")
        assert (one.levels[1].max, one.levels[1].held) == (10, 6)


async def test_one_decision_comes_with_sentences_rule_by_rule() -> None:
    async with cluster() as (served, _):
        keep(served, claim())
        served.clock.ms += 60_000
        answer = await stub_of(served).GetDecision(pb.GetDecisionRequest(decision_id="g-1-1"))
        text = "\n".join(answer.lines)
        assert answer.lines[0] == "Ask large of root.a takes the capacity of other of root.b."
        assert (
            "decided it 60 s ago; the eviction of its victims is ordered, and has 9 min more"
            in text
        )
        assert "of 0.06 cores that it is owed: that let the ask claim (G2, W6)" in text
        assert "is evicted from node n1 (0.001 cores, priority 3): over its guarantee" in text
        assert (
            "3 candidates of queue root.c keep running by `below-guarantee`: without it a queue"
            in text
        )


async def test_lists_are_narrowed() -> None:
    async with cluster() as (served, _):
        first, run = claim(), quota_run("root.b", victim("other", "root.b"))
        keep(served, first, run)
        move(served, first, state=DecisionState.FULFILLED, ended_ms=T0 + 5_000)
        assert ids(await listed(served)) == ["g-1-1", "q-1-2"]
        assert ids(await listed(served, policy="quota")) == ["q-1-2"]
        assert ids(await listed(served, open_only=True)) == ["q-1-2"]
        assert ids(await listed(served, since_ms=T0 + 4_000)) == ["g-1-1"]
        assert ids(await listed(served, queue="root.A")) == ["g-1-1"]
        assert ids(await listed(served, queue="root")) == ["g-1-1", "q-1-2"]
        assert ids(await listed(served, queue="root.bb")) == []
        assert ids(await listed(served, partition="default")) == ["g-1-1", "q-1-2"]


async def test_pages_end_where_they_hold_enough_victims(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.rpc.evenhand.decision_service.PAGE_MAX", 4)
    async with cluster() as (served, _):
        many = [victim(f"v{number}", "root.b") for number in range(6)]
        keep(served, claim("g-1-1"), quota_run("root.b", *many), claim("g-1-3", at_ms=T0 + 2_000))
        found, token = [], ""
        for _ in range(3):
            request = pb.ListDecisionsRequest(page_token=token)
            answer = await stub_of(served).ListDecisions(request)
            found.append(ids(answer.decisions))
            token = answer.next_page_token
        assert (found, token) == ([["g-1-1"], ["q-1-2"], ["g-1-3"]], "")
        two = await stub_of(served).ListDecisions(pb.ListDecisionsRequest(page_size=1))
        assert (ids(two.decisions), two.next_page_token) == (["g-1-1"], "1")


async def test_a_message_names_so_many_victims_and_counts_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("server.rpc.evenhand.encode_decisions.VICTIMS_TOLD_MAX", 4)
    async with cluster() as (served, _):
        keep(served, quota_run("root.b", *(victim(f"v{number}", "root.b") for number in range(6))))
        (one,) = await listed(served)
        assert (len(one.victims), one.victims_left_out) == (4, 2)


async def test_lost_work_beyond_int64_is_told_as_the_largest_number() -> None:
    async with cluster() as (served, _):
        large = victim("v", "root.b")._replace(resource=(("vcore", 2**62 - 1),), ran_ms=60_000)
        keep(served, quota_run("root.b", large))
        (one,) = await listed(served)
        assert (one.lost_ran_ms, one.lost_millicore_ms) == (60_000, 2**63 - 1)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (DecisionState.PLANNED, ["GONE", "VETOED", "LEAVING"]),
        (DecisionState.CONFIRMED, ["GONE", "VETOED", "GONE"]),
        (DecisionState.ABORTED, ["GONE", "VETOED", "KEPT"]),
        (DecisionState.OBSERVED, ["GONE", "VETOED", "UNSPECIFIED"]),
    ],
)
async def test_how_each_victim_stands(state: DecisionState, expected: list[str]) -> None:
    async with cluster() as (served, _):
        record = quota_run("root.b", *(victim(key, "root.b") for key in "abc"))
        keep(served, record)
        move(served, record, state=state, confirmed=("a",), vetoed=("b",))
        (one,) = await listed(served)
        assert [pb.VictimState.Name(goes.state)[13:] for goes in one.victims] == expected


@pytest.mark.parametrize(
    ("method", "request_", "expected"),
    [
        (
            "ListDecisions",
            pb.ListDecisionsRequest(since_ms=-1),
            (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_SINCE", ["since_ms"]),
        ),
        (
            "ListDecisions",
            pb.ListDecisionsRequest(partition="x"),
            (grpc.StatusCode.NOT_FOUND, "NOT_FOUND", []),
        ),
        (
            "GetDecision",
            pb.GetDecisionRequest(decision_id="x"),
            (grpc.StatusCode.NOT_FOUND, "NOT_FOUND", []),
        ),
    ],
)
async def test_bad_requests_are_refused(method: str, request_: Message, expected: Any) -> None:
    async with cluster() as (served, _):
        assert await refusal(getattr(stub_of(served), method)(request_)) == expected


async def test_a_bad_watch_is_refused() -> None:
    async with cluster() as (served, _):
        for request, why in (
            (pb.WatchDecisionsRequest(since=-1), "INVALID_SINCE"),
            (pb.WatchDecisionsRequest(partition="x"), "NOT_FOUND"),
        ):
            assert (await Stream(stub_of(served).WatchDecisions(request)).end())[1] == why


# The tenant's side ----------------------------------------------------------------------------------------------


def texts(value: Any) -> list[str]:
    """Return every text in a message."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Message):
        return [text for _, one in value.ListFields() for text in texts(one)]
    if hasattr(value, "values"):
        return [*texts(list(value)), *texts(list(value.values()))]
    return [text for one in value for text in texts(one)] if hasattr(value, "__iter__") else []


def speaks_of(message: Message, *names: str) -> set[str]:
    """Return which of these names occur anywhere in a message."""
    return {name for name in names for text in texts(message) if without(text, [name]) != text}


async def test_the_owner_of_a_victim_sees_its_own_pod_and_nobody_else() -> None:
    async with cluster() as (served, _):
        because = "root.a is over its guarantee, and large of root.b asks (rule 5, G4)"
        record = claim("g-1-1", "root.b", victim("small", "root.a", because))
        keep(served, record)
        answer = await stub_of(served).GetDecision(
            pb.GetDecisionRequest(decision_id="g-1-1"), metadata=VIEWER
        )
        one = answer.decision
        (goes,) = one.victims
        assert (goes.allocation_key, goes.queue, goes.priority) == ("small", "root.a", 3)
        assert (
            goes.because == "root.a is over its guarantee, and another of another asks (rule 5, G4)"
        )
        assert (one.decision_id, one.policy) == ("g-1-1", "guaranteed")
        assert (list(one.beneficiaries), one.beneficiaries_elsewhere) == ([], 1)
        assert one.summary == "1 allocation of root.a is evicted for another queue."
        assert [(kept.queue, kept.count, list(kept.examples)) for kept in one.spared] == [
            ("another queue", 5, []),
            ("root.a.deep", 1, ["kept-a"]),
        ]
        hidden = {level.queue: level.hidden for level in one.levels}
        assert hidden == {"root.a": False, "another queue": True, "root": True}
        assert not speaks_of(answer, "large", "root.b", "root.c", "kept-b", "kept-c", "app")


async def test_the_owner_of_the_ask_learns_how_many_go_for_it() -> None:
    async with cluster() as (served, _):
        keep(served, claim())
        (one,) = await listed(served, VIEWER)
        assert [gets.allocation_key for gets in one.beneficiaries] == ["large"]
        assert (list(one.victims), one.victims_elsewhere) == ([], 1)
        assert one.summary == "Capacity is freed for 1 ask of root.a."
        assert not speaks_of(one, *(name for name in FOREIGN if name != "n1"))


async def test_a_quota_run_above_tells_only_of_the_own_pods() -> None:
    async with cluster() as (served, _):
        keep(served, quota_run("root", victim("small", "root.a"), victim("other", "root.b")))
        (one,) = await listed(served, VIEWER)
        assert ([goes.allocation_key for goes in one.victims], one.victims_elsewhere) == (
            ["small"],
            1,
        )
        assert (one.quota_run.queue, dict(one.quota_run.target)) == ("root", {})
        assert not speaks_of(one, "other", "root.b", "root.b.inner")


async def test_a_quota_run_of_the_own_queue_is_told_whole() -> None:
    async with cluster() as (served, _):
        keep(served, quota_run("root.a", victim("small", "root.a")))
        (one,) = await listed(served, VIEWER)
        assert (dict(one.quota_run.target), one.quota_run.candidates) == ({"vcore": 3}, 5)
        assert one.quota_run.blocking_queue == "another queue"


async def test_what_does_not_concern_a_viewer_does_not_exist_for_it() -> None:
    async with cluster() as (served, _):
        keep(served, claim("g-1-1", "root.b"), quota_run("root.b", victim("other", "root.b")))
        assert await listed(served, VIEWER) == []
        stub = stub_of(served)
        hidden = stub.GetDecision(pb.GetDecisionRequest(decision_id="g-1-1"), metadata=VIEWER)
        nothing = stub.GetDecision(pb.GetDecisionRequest(decision_id="g-9-9"), metadata=VIEWER)
        assert await refusal(hidden) == await refusal(nothing)


async def test_a_filter_tells_a_viewer_nothing_of_other_queues() -> None:
    async with cluster() as (served, _):
        keep(served, claim())
        assert ids(await listed(served, VIEWER, queue="root.a")) == ["g-1-1"]
        assert ids(await listed(served, VIEWER, queue="root.b")) == []
        assert ids(await listed(served, queue="root.b")) == ["g-1-1"]


# The watch ------------------------------------------------------------------------------------------------------


async def test_a_watch_tells_what_is_held_and_then_what_happens() -> None:
    async with cluster() as (served, _):
        record = claim()
        keep(served, record)
        watch = Stream(stub_of(served).WatchDecisions(pb.WatchDecisionsRequest()))
        (made,) = (await watch.read(pb.WatchDecisionsResponse)).changes
        assert (made.number, made.decision.decision_id) == (1, "g-1-1")
        moves = [
            DecisionMoved(RM, "default", "g-1-1", DecisionState.ORDERED, T0 + 1, "429", "other"),
            DecisionMoved(RM, "default", "g-1-1", DecisionState.FULFILLED, T0 + 2, "placed"),
        ]
        tell(served, *moves)
        changes = (await watch.read(pb.WatchDecisionsResponse)).changes
        assert [(one.number, one.vetoed_key, one.reason) for one in changes] == [
            (2, "other", "429"),
            (3, "", "placed"),
        ]
        assert changes[1].state == pb.DECISION_STATE_FULFILLED
        assert not changes[1].HasField("decision")
        watch.call.cancel()


async def test_a_watch_goes_on_from_a_number_and_says_what_it_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("server.rpc.evenhand.decision_log.DECISION_CHANGES_KEPT_MAX", 2)
    async with cluster() as (served, _):
        served.endpoint._decisions.__init__(served.core)  # type: ignore[misc]
        keep(served, *(claim(f"g-1-{number}") for number in range(1, 6)))
        watch = Stream(stub_of(served).WatchDecisions(pb.WatchDecisionsRequest(since=1)))
        answer = await watch.read(pb.WatchDecisionsResponse)
        assert ([one.number for one in answer.changes], answer.missed) == ([4, 5], 2)
        watch.call.cancel()


async def test_a_watch_sends_decisions_of_many_victims_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("server.rpc.evenhand.decision_service.PAGE_MAX", 4)
    async with cluster() as (served, _):
        many = [victim(f"v{number}", "root.b") for number in range(6)]
        runs = [quota_run("root.b", *many, decision_id=f"q-1-{number}") for number in range(2)]
        keep(served, *runs)
        watch = Stream(stub_of(served).WatchDecisions(pb.WatchDecisionsRequest()))
        for number in range(2):
            (change,) = (await watch.read(pb.WatchDecisionsResponse)).changes
            assert change.decision_id == f"q-1-{number}"
        watch.call.cancel()


async def test_a_watch_is_narrowed_and_a_viewer_s_is_its_own() -> None:
    async with cluster() as (served, _):
        mine = claim("g-1-1", "root.b", victim("small", "root.a"), victim("other", "root.b"))
        theirs = claim("g-1-2", "root.b")
        run = quota_run("root.b", victim("other", "root.b"))
        keep(served, mine, theirs, run)
        stub = stub_of(served)
        own = Stream(stub.WatchDecisions(pb.WatchDecisionsRequest(), metadata=VIEWER))
        (made,) = (await own.read(pb.WatchDecisionsResponse)).changes
        assert [goes.allocation_key for goes in made.decision.victims] == ["small"]
        quota = Stream(stub.WatchDecisions(pb.WatchDecisionsRequest(policy="quota")))
        (ran,) = (await quota.read(pb.WatchDecisionsResponse)).changes
        assert ran.decision_id == "q-1-2"
        ended = DecisionState.ABORTED
        tell(
            served,
            DecisionMoved(RM, "default", "g-1-1", DecisionState.ORDERED, T0, "429", "other"),
            DecisionMoved(RM, "default", "g-1-2", ended, T0, "large is gone"),
            DecisionMoved(RM, "default", "g-1-1", ended, T0, "large is gone"),
        )
        (moved,) = (await own.read(pb.WatchDecisionsResponse)).changes
        assert (moved.decision_id, moved.reason, moved.vetoed_key) == ("g-1-1", "", "")
        for stream in (own, quota):
            stream.call.cancel()


async def test_a_decision_of_an_earlier_process_is_watched_too() -> None:
    async with cluster() as (served, _):
        move(served, claim("g-0-1"))
        tell(served, DecisionMoved(RM, "default", "g-0-1", DecisionState.EXPIRED, T0))
        tell(served, DecisionMoved(RM, "default", "nobody-knows", DecisionState.EXPIRED, T0))
        watch = Stream(stub_of(served).WatchDecisions(pb.WatchDecisionsRequest()))
        (one,) = (await watch.read(pb.WatchDecisionsResponse)).changes
        assert (one.decision_id, one.state) == ("g-0-1", pb.DECISION_STATE_EXPIRED)
        watch.call.cancel()


async def test_names_of_pods_outlive_the_pods() -> None:
    async with cluster() as (served, _):
        one_partition = served.core.state.partitions["default"]
        tags = {"kubernetes.io/meta/namespace": "lab", "kubernetes.io/meta/podName": "train-1"}
        one_partition.asks["other"].tags = (si.Allocation(allocationTags=tags).SerializeToString(),)
        one_partition.asks["large"].tags = one_partition.asks["other"].tags
        keep(served, claim())
        del one_partition.asks["other"]
        (one,) = await listed(served)
        assert [goes.name for goes in one.victims] == ["lab/train-1"]
        assert one.summary == "Ask lab/train-1 of root.a takes the capacity of other of root.b."
        again = victim("other", "root.b"), victim("small", "root.a")
        keep(served, claim("g-1-1", "root.a", *again))
        (one,) = await listed(served)
        assert [goes.name for goes in one.victims] == ["lab/train-1", ""]


def test_every_rule_has_words_that_are_not_its_own() -> None:
    assert {rule for rule in Rule if words(rule) == rule.value} == set()
    assert words("a-rule-of-later") == "a-rule-of-later"


@pytest.mark.parametrize(
    ("text", "names", "expected"),
    [
        ("queue root.b asks.", ["root.b"], "queue another asks."),
        ("queue root.b.c asks", ["root.b"], "queue root.b.c asks"),
        ("root.bb and root.b", ["root.b"], "root.bb and another"),
        ("app-1 and app", ["app", "app-1"], "another and another"),
        ("lab/x for x", ["x"], "lab/x for another"),
        ("nothing", [], "nothing"),
    ],
)
def test_names_are_taken_out_whole(text: str, names: list[str], expected: str) -> None:
    assert without(text, names) == expected


def test_a_decision_is_an_event() -> None:
    made = record(Decided(RM, claim()))
    assert (made.kind, made.subject, made.code, made.queue) == (
        "decision",
        "g-1-1",
        "ordered",
        "root.a",
    )
    vetoed = record(DecisionMoved(RM, "default", "g-1-1", DecisionState.ORDERED, T0, "429", "v"))
    assert (vetoed.code, vetoed.message) == ("vetoed", "victim v cannot be taken away: 429")
    ended = record(DecisionMoved(RM, "default", "g-1-1", DecisionState.EXPIRED, T0))
    assert (ended.code, ended.message) == ("expired", "now expired")


# In explanations ------------------------------------------------------------------------------------------------


async def explained(served: Served, key: str, metadata: Any = None, **more: str) -> Any:
    stub = explain_rpc.ExplainServiceStub(served.channel)
    return await stub.Explain(explain.ExplainRequest(key=key, **more), metadata=metadata)


async def test_explain_takes_the_id_of_a_decision() -> None:
    async with cluster() as (served, _):
        keep(served, claim())
        found = await explained(served, "g-1-1")
        assert (found.kind, found.partition) == (explain.SUBJECT_KIND_DECISION, "default")
        assert found.decision.victims[0].allocation_key == "other"
        assert found.lines[0] == found.decision.summary
        assert (await explained(served, "g-1-1", partition="default")).HasField("decision")
        own = await explained(served, "g-1-1", VIEWER)
        assert (own.decision.victims_elsewhere, own.lines[0]) == (1, own.decision.summary)


async def test_explain_hides_decisions_of_others() -> None:
    async with cluster() as (served, _):
        keep(served, claim("g-1-1", "root.b"))
        hidden, nothing = [await explained(served, key, VIEWER) for key in ("g-1-1", "g-9-9")]
        assert (hidden.kind, hidden.lines) == (nothing.kind, nothing.lines)


async def test_a_victim_says_by_which_decision_it_goes() -> None:
    async with cluster() as (served, _):
        because = "over its guarantee, and other asks (rule 5, G4)"
        keep(served, claim("g-1-1", "root.b", victim("small", "root.a", because)))
        before = await explained(served, "small")
        assert not before.placed.HasField("release")
        served.core.state.partitions["default"].asks["small"].releasing = True
        placed = (await explained(served, "small")).placed
        assert (placed.decision_id, placed.released_for) == ("g-1-1", "large")
        assert (placed.release.policy, placed.release.because) == ("guaranteed", because)
        assert placed.release.state == pb.DECISION_STATE_ORDERED
        own = await explained(served, "small", VIEWER)
        assert (own.placed.decision_id, own.placed.released_for) == ("g-1-1", "")
        assert own.lines[-1].startswith(
            "It is ordered to be evicted from queue root.a, with priority 3, by decision g-1-1 of policy guaranteed"
        )
        assert not speaks_of(own, "large", "root.b")
        served.core.state.partitions["default"].asks["small"].releasing = False


async def test_a_vetoed_victim_does_not_go() -> None:
    async with cluster() as (served, _):
        record = claim("g-1-1", "root.b", victim("small", "root.a"))
        keep(served, record)
        move(served, record, vetoed=("small",))
        served.core.state.partitions["default"].asks["small"].releasing = True
        assert not (await explained(served, "small")).placed.HasField("release")
        served.core.state.partitions["default"].asks["small"].releasing = False


async def test_a_listing_says_by_which_decision_an_allocation_goes() -> None:
    async with cluster() as (served, _):
        keep(served, claim("g-1-1", "root.b", victim("small", "root.a")))
        served.core.state.partitions["default"].asks["small"].releasing = True
        stub: Any = inspect_rpc.InspectServiceStub(served.channel)
        request = inspect.ListAllocationsRequest(queue="root.a")
        (one,) = (await stub.ListAllocations(request)).allocations
        assert one.state == inspect.ALLOCATION_STATE_RELEASING
        assert (one.decision_id, one.released_for) == ("g-1-1", "large")
        (own,) = (await stub.ListAllocations(request, metadata=VIEWER)).allocations
        assert (own.decision_id, own.released_for) == ("g-1-1", "")
        served.core.state.partitions["default"].asks["small"].releasing = False


async def test_a_waiting_ask_says_which_rule_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = Verdict(
        "guaranteed",
        "no-covering-victims",
        "n1 comes nearest, less other of root.b",
        "n1",
        {"vcore": 7},
        at_ms=T0,
        retry_ms=T0 + 15_000,
        spared=(Spared("outside-fence", "root.b", 1, ("kept-b",)),),
    )
    monkeypatch.setattr("server.core.queries.verdicts.verdict", lambda *_: verdict)
    async with cluster() as (served, _):
        found = await explained(served, "large")
        told = found.waiting.preemption
        assert (told.policy, told.law, told.node_id) == ("guaranteed", verdict.law, "n1")
        assert (dict(told.missing), told.retry_ms) == ({"vcore": 7}, T0 + 15_000)
        assert told.spared[0].queue == "root.b"
        assert found.lines[-1].endswith(
            "node n1 comes nearest and lacks 0.007 cores; next try: in 15 s at the latest."
        )
        own = await explained(served, "large", VIEWER)
        assert (own.waiting.preemption.law, own.waiting.preemption.node_id) == (verdict.law, "")
        assert own.waiting.preemption.spared[0].queue == "another queue"
        assert not speaks_of(own, "other", "root.b", "kept-b", "n1")


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (pb.PreemptionVerdict(policy="guaranteed"), "Policy guaranteed can free capacity for it."),
        (pb.PreemptionVerdict(), "No policy of preemption concerns it."),
        (
            pb.PreemptionVerdict(law="rm-check", rule="r", because="b."),
            "Preemption frees no capacity for it (`rm-check`): b; next try: when something changes.",
        ),
    ],
)
def test_a_verdict_in_one_sentence(verdict: pb.PreemptionVerdict, expected: str) -> None:
    assert verdict_sentence(verdict, T0) == expected
