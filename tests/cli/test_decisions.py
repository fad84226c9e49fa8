"""Decisions as text and as JSON: the list, one decision rule by rule, the stream of changes, and the text of `explain`."""

from collections.abc import Iterator

import grpc
import pytest

from evenhand.v1 import decisions_pb2 as pb
from evenhand.v1 import explain_pb2, history_pb2, inspect_pb2
from evenhand_cli.commands.past import PAST_MAX
from server.model.policies import TABLE
from tests.cli import decided, samples
from tests.cli.fake import Failure, FakeCore, running
from tests.cli.run import evenhand
from tests.cli.samples import T0

NOW = T0 + 95_000


@pytest.fixture(scope="module")
def core() -> Iterator[FakeCore]:
    claim, run, side = decided.claim(), decided.quota_run(), decided.tenants_side()
    pages = [
        pb.ListDecisionsResponse(
            decisions=[claim],
            next_page_token="1",  # noqa: S106 - a page, not a secret
            taken_at_ms=NOW,
        ),
        pb.ListDecisionsResponse(decisions=[run, side], taken_at_ms=NOW),
    ]
    made = pb.DecisionChange(
        number=1,
        time_ms=T0,
        decision_id=claim.decision_id,
        policy="guaranteed",
        state=claim.state,
        decision=claim,
    )
    vetoed = pb.DecisionChange(
        number=2,
        time_ms=T0 + 3_000,
        decision_id=claim.decision_id,
        policy="guaranteed",
        state=pb.DECISION_STATE_ORDERED,
        vetoed_key="uid-of-count-2",
        vetoed_name="batch/count-2",
        reason="429",
    )
    done = pb.DecisionChange(
        number=3,
        time_ms=T0 + 4_000,
        decision_id=claim.decision_id,
        policy="guaranteed",
        state=pb.DECISION_STATE_FULFILLED,
        reason="it is placed",
    )
    prepared = FakeCore(
        ListDecisions=pages,
        GetDecision=pb.GetDecisionResponse(decision=claim, lines=["One."], taken_at_ms=NOW),
        WatchDecisions=[
            pb.WatchDecisionsResponse(changes=[made]),
            pb.WatchDecisionsResponse(changes=[vetoed, done], missed=4),
        ],
        ServerInfo=inspect_pb2.ServerInfoResponse(now_ms=NOW),
        GetQueueTree=inspect_pb2.GetQueueTreeResponse(tree=samples.queue_tree()),
    )
    with running(prepared) as started:
        yield started


def test_a_line_for_each_decision(core: FakeCore) -> None:
    ended = evenhand("decisions", "--core", core.address, width=200)
    assert ended.words("g-19aa1b2c3d4-17") == [
        "g-19aa1b2c3d4-17", "1", "m", "35", "s", "guaranteed", "lab/train-1", "root.research",
        "node-a", "1/2", "gone", "root.batch", "ordered",
    ]  # fmt: skip
    assert ended.words("q-19aa1b2c3d5-18")[4:] == [
        "s", "quota", "max", "of", "root.batch", "root.batch", "node-a", "3", "root.batch", "fulfilled",
    ]  # fmt: skip
    assert ended.words("g-19aa1b2c3d6-19")[6:] == [
        "1", "ask", "another", "queue", "node-a", "3", "root.batch,", "another", "queue", "ordered",
    ]  # fmt: skip
    assert ended.out.splitlines()[-1] == "3 decisions, 2 of them open"


def test_as_json_they_have_every_field(core: FakeCore) -> None:
    value = evenhand("decisions", "--core", core.address, "-o", "json").value()
    claim, run, _ = value["decisions"]
    assert set(claim) == {field.name for field in pb.Decision.DESCRIPTOR.fields}
    assert (claim["state"], claim["victims"][0]["state"]) == ("ordered", "gone")
    assert claim["levels"][0]["max"] == 72_000
    assert claim["levels"][1]["max"] is None
    assert (run["quota_run"]["result"], run["quota_run"]["missing"]) == (
        "shortfall",
        {"vcore": 2_000},
    )
    assert value["taken_at_ms"] == NOW


def with_history(memory: int, past: int, more: str = "") -> FakeCore:
    """Return a core with decisions in memory, and a history that has these and earlier ones, the latest first."""

    def made(numbers: range) -> list[pb.Decision]:
        return [pb.Decision(decision_id=f"g-1-{n}", policy="quota", at_ms=T0 + n) for n in numbers]

    ids = range(past, past + memory)
    first = history_pb2.ListPastDecisionsResponse(
        decisions=made(ids)[::-1],
        next_page_token="1",  # noqa: S106 - a page, not a secret
    )
    second = history_pb2.ListPastDecisionsResponse(
        decisions=made(range(past))[::-1], next_page_token=more
    )
    return FakeCore(
        ListDecisions=pb.ListDecisionsResponse(decisions=made(ids), taken_at_ms=NOW),
        ListPastDecisions=[first, second],
        ServerInfo=inspect_pb2.ServerInfoResponse(now_ms=NOW, started_at_ms=T0 + past),
    )


@pytest.mark.parametrize(
    ("past", "shown", "note"),
    [
        (0, 0, None),
        (3, 3, "3 decisions made before the core was started at"),
        (PAST_MAX, PAST_MAX, "200 decisions made before"),
        (PAST_MAX + 1, PAST_MAX, "the latest 200 decisions made before"),
    ],
)
def test_without_a_time_the_latest_of_the_last_day_come_from_the_history(
    past: int, shown: int, note: str | None
) -> None:
    with running(with_history(5, past)) as core:
        ended = evenhand("decisions", "--core", core.address, width=200)
        value = evenhand("decisions", "--core", core.address, "-o", "json").value()
        asked = [
            one for one in core.requests if isinstance(one, history_pb2.ListPastDecisionsRequest)
        ]
    ids = [int(one["decision_id"].rpartition("-")[2]) for one in value["decisions"]]
    assert ids == [*range(past - shown, past + 5)]
    assert value["from_history"] == shown
    assert all((one.since_ms, one.latest_first) == (0, True) for one in asked)
    if note is None:
        assert "history" not in ended.out
    else:
        assert ended.out.splitlines()[-1].startswith(note)
        assert ended.out.endswith(": from the history of the last day; more: --since 7d\n")


def test_old_decisions_of_the_same_run_come_from_the_history() -> None:
    prepared = with_history(1, 2)
    prepared.answers["ServerInfo"] = inspect_pb2.ServerInfoResponse(now_ms=NOW, started_at_ms=T0)
    with running(prepared) as core:
        ended = evenhand("decisions", "--core", core.address, width=200)
    assert "2 decisions that the core no longer has in memory: from the history" in ended.out


def test_filters_reach_the_core(core: FakeCore) -> None:
    arguments = ("--policy", "quota", "--queue", "root.batch", "--open", "--since", "10m")
    assert evenhand("decisions", *arguments, "-p", "blue", "--core", core.address).code == 0
    last = [one for one in core.requests if isinstance(one, pb.ListDecisionsRequest)][-1]
    assert (last.partition, last.policy, last.queue) == ("blue", "quota", "root.batch")
    assert (last.open_only, last.since_ms) == (True, NOW - 600_000)


@pytest.mark.parametrize("wrong", ["10", "m", "-5m", "1.5h", "10 m", "ten"])
def test_a_length_of_time_of_another_form_is_refused(core: FakeCore, wrong: str) -> None:
    ended = evenhand("decisions", f"--since={wrong}", "--core", core.address)
    assert (ended.code, ended.out) == (2, "")
    assert "90s, 10m, 2h or 1d" in ended.err


def test_an_unknown_policy_is_refused(core: FakeCore) -> None:
    ended = evenhand("decisions", "--policy", "kindness", "--core", core.address)
    assert ended.code == 2
    shown = [one.name for one in TABLE if not one.replaces_placeholder]
    assert all(policy in ended.err for policy in shown)


def test_a_queue_that_does_not_exist_is_a_fault() -> None:
    tree = inspect_pb2.GetQueueTreeResponse(tree=samples.queue_tree())
    with running(FakeCore(ListDecisions=pb.ListDecisionsResponse(), GetQueueTree=tree)) as core:
        missing = evenhand("decisions", "--queue", "root.reserch", "--core", core.address)
        empty = evenhand("decisions", "--queue", "root.research", "--core", core.address)
    assert missing.code == 1
    assert "did you mean `root.research`" in missing.err
    assert (empty.code, empty.out) == (0, "No decision matches --queue root.research.\n")


def test_one_decision_rule_by_rule(core: FakeCore) -> None:
    ended = evenhand("decisions", "g-19aa1b2c3d4-17", "--all", "--core", core.address, width=200)
    assert ended.out.startswith("g-19aa1b2c3d4-17  decision  partition default\n")
    assert "gets the capacity of 2 pods on node-a" in ended.out
    assert ended.words("given up")[:2] == ["state", "ordered,"]
    assert "lab/train-1 on node-a: 4 cores, 8 GiB memory, priority 100" in ended.out
    assert "victims: 2, 1 of them gone" in ended.out
    assert ended.words("crunch/count-2")[:3] == ["crunch/count-2", "root.batch", "count"]
    assert "opted out" in ended.out
    assert "root.batch is over its guarantee (rule 5, G4)" in ended.out
    assert ended.words("below-guarantee")[:4] == ["12", "of", "root.services", "below-guarantee:"]
    assert "(rule 2, G4, Q12); such as web/front-1, web/front-2" in ended.out
    assert ended.words("deciding") == ["root.research", "cores", "16", "24", "72", "deciding"]
    value = evenhand("decisions", "g-19aa1b2c3d4-17", "--core", core.address, "-o", "json").value()
    assert (value["decision"]["decision_id"], value["lines"]) == ("g-19aa1b2c3d4-17", ["One."])


def test_one_decision_fits_a_narrow_terminal(core: FakeCore) -> None:
    ended = evenhand("decisions", "g-19aa1b2c3d4-17", "--core", core.address, width=80)
    assert all(len(line) <= 80 for line in ended.out.splitlines())
    assert "crunch/count-2" in ended.out
    assert "below-guarantee" in ended.out
    assert "root.batch is over its guarantee (rule 5, G4)" in ended.out
    ended = evenhand("decisions", "g-19aa1b2c3d4-17", "--all", "--core", core.address, width=80)
    assert all(len(line) <= 80 for line in ended.out.splitlines())
    assert "2 victims  root.batch is over its guarantee (rule 5, G4)" in ended.out


def test_all_shows_every_victim() -> None:
    run = decided.quota_run()
    run.victims.extend(decided.victim(f"more-{number}") for number in range(60))
    answer = pb.GetDecisionResponse(decision=run, taken_at_ms=NOW)
    with running(FakeCore(GetDecision=answer)) as core:
        every = evenhand("decisions", "q-19aa1b2c3d5-18", "--all", "--core", core.address)
        wide = evenhand("decisions", "q-19aa1b2c3d5-18", "-o", "wide", "--core", core.address)
        brief = evenhand("decisions", "q-19aa1b2c3d5-18", "--core", core.address)
    assert every.out.count("crunch/") == wide.out.count("crunch/") == 63
    assert "63 victims  root.batch is over its guarantee" in every.out
    assert "crunch/count-3, crunch/count-4, crunch/count-5 and 60 more of root.batch" in brief.out


def test_all_alone_is_refused(core: FakeCore) -> None:
    ended = evenhand("decisions", "--all", "--core", core.address)
    assert (ended.code, ended.out) == (2, "")
    assert "--all has no effect without an ID or --lost-work" in ended.err


def test_a_trim_is_for_the_shares_below_its_queue() -> None:
    answer = pb.ListDecisionsResponse(decisions=[decided.trim()], taken_at_ms=NOW)
    with running(FakeCore(ListDecisions=answer)) as core:
        ended = evenhand("decisions", "--core", core.address, width=200)
    assert ended.words("t-19aa1b2c3d7-20")[4:] == [
        "s", "trim", "shares", "below", "root", "root", "node-a", "2", "root.batch,", "root.services",
        "ordered",
    ]  # fmt: skip


def test_a_quota_run_says_what_it_cannot_free() -> None:
    answer = pb.GetDecisionResponse(decision=decided.quota_run(), taken_at_ms=NOW)
    with running(FakeCore(GetDecision=answer)) as core:
        ended = evenhand("decisions", "q-19aa1b2c3d5-18", "--core", core.address)
    assert ended.words("has to free") == ["has", "to", "free", "8", "cores"]
    assert "6 cores of 9 candidates: shortfall" in ended.out
    assert ended.words("missing") == ["missing", "2", "cores"]
    assert "below-guarantee, which protects root.batch.night" in ended.out
    assert "fulfilled, 1 m 05 s ago: all victims have ended" in ended.out


def test_a_tenant_reads_of_another_queue_and_no_name() -> None:
    answer = pb.GetDecisionResponse(decision=decided.tenants_side(), taken_at_ms=NOW)
    with running(FakeCore(GetDecision=answer)) as core:
        ended = evenhand("decisions", "g-19aa1b2c3d6-19", "--core", core.address)
    assert "1 ask of another queue" in ended.out
    assert "2 victims of other queues" in ended.out
    assert "crunch/count-7" in ended.out


def test_an_unknown_decision_is_a_fault_with_near_matches() -> None:
    none = Failure(grpc.StatusCode.NOT_FOUND, "there is no decision")
    listed = pb.ListDecisionsResponse(decisions=[decided.claim()])
    with running(FakeCore(GetDecision=none, ListDecisions=listed)) as core:
        ended = evenhand("decisions", "g-19aa1b2c3d4-1", "--core", core.address)
    assert (ended.code, ended.out) == (1, "")
    assert "did you mean `g-19aa1b2c3d4-17`" in ended.err


def test_a_core_that_may_not_be_asked_is_no_unknown_decision() -> None:
    denied = Failure(grpc.StatusCode.PERMISSION_DENIED, "role shim may not call this")
    with running(FakeCore(GetDecision=denied)) as core:
        ended = evenhand("decisions", "g-1-1", "--core", core.address)
    assert ended.code == 3
    assert "role shim" in ended.err


def test_changes_are_followed(core: FakeCore) -> None:
    ended = evenhand("decisions", "--follow", "--count", "3", "--core", core.address)
    made, vetoed, done = ended.out.splitlines()
    assert made.endswith("ordered    " + decided.claim().summary)
    assert vetoed.endswith("batch/count-2 stays: 429")
    assert done.endswith("fulfilled  it is placed")
    assert "4 changes were missed" in ended.err


def test_followed_as_json_a_change_is_a_line(core: FakeCore) -> None:
    arguments = ("-f", "--count", "2", "--since", "93s", "--queue", "root.batch", "-o", "json")
    ended = evenhand("decisions", *arguments, "--core", core.address)
    lines = ended.out.splitlines()
    assert [line[:14] for line in lines] == ['{"number": 2, ', '{"number": 3, ']
    assert core.requests[-1] == pb.WatchDecisionsRequest(queue="root.batch")


def test_following_ends_with_a_fault_when_the_core_does(core: FakeCore) -> None:
    ended = evenhand("decisions", "--follow", "--core", core.address)
    assert ended.code == 3
    assert "ended the stream" in ended.err
    assert evenhand("decisions", "--follow", "--open", "--core", core.address).code == 2


# In what `explain` says -----------------------------------------------------------------------------------------


def explained(answer: explain_pb2.ExplainResponse, *more: str, width: int = 160) -> str:
    with running(FakeCore(Explain=answer)) as core:
        ended = evenhand("explain", answer.key, *more, "--core", core.address, width=width)
    assert ended.code == 0, ended.err
    return ended.out


def test_a_waiting_ask_says_which_rule_blocks() -> None:
    answer = samples.why_it_waits("pod-2")
    answer.waiting.preemption.CopyFrom(decided.verdict())
    out = explained(answer)
    assert "guaranteed frees no capacity (`no-covering-victims`): node-b comes nearest; " in out
    assert "node-b lacks 1.5 cores; next try in 10 s at the latest" in out
    assert "12 candidates: 12 below-guarantee (all: --output wide)" in out
    out = explained(answer, "--output", "wide")
    assert "no-covering-victims: on no node do the victims" in out
    assert "node-b, which lacks 1.5 cores" in out
    assert "what keeps running, and by which rule" in out
    answer.waiting.preemption.CopyFrom(pb.PreemptionVerdict(policy="guaranteed"))
    assert "guaranteed can free capacity" in explained(answer)
    assert "nothing" in explained(answer, "--output", "wide")


@pytest.mark.parametrize(
    ("retry_ms", "expected"), [(0, "when something changes"), (T0 + 1_000, "next try now")]
)
def test_when_it_is_tried_again(retry_ms: int, expected: str) -> None:
    answer = samples.why_it_waits("pod-2")
    answer.waiting.preemption.CopyFrom(decided.verdict())
    answer.waiting.preemption.retry_ms = retry_ms
    assert expected in explained(answer)


def test_a_victim_says_by_which_decision_it_goes() -> None:
    release = explain_pb2.OrderedRelease(
        decision_id="g-19aa1b2c3d4-17",
        policy="guaranteed",
        because="root.batch is over its guarantee (rule 5, G4)",
        state=pb.DECISION_STATE_ORDERED,
        at_ms=T0,
    )
    placed = explain_pb2.PlacedAllocation(
        node_id="node-a", decision_id="g-19aa1b2c3d4-17", released_for="uid-9", release=release
    )
    answer = explain_pb2.ExplainResponse(
        kind=explain_pb2.SUBJECT_KIND_ALLOCATION, key="pod-1", placed=placed, taken_at_ms=NOW
    )
    out = explained(answer)
    assert "by g-19aa1b2c3d4-17 (guaranteed) for uid-9" in out
    assert "evenhand explain g-19aa1b2c3d4-17" in out
    answer.placed.released_for = ""
    assert "for uid-9" not in explained(answer)


def test_a_decision_is_explained_by_its_id() -> None:
    answer = explain_pb2.ExplainResponse(
        kind=explain_pb2.SUBJECT_KIND_DECISION,
        key="g-19aa1b2c3d4-17",
        partition="default",
        decision=decided.claim(),
        taken_at_ms=NOW,
    )
    out = explained(answer)
    assert out.startswith("g-19aa1b2c3d4-17  decision  partition default\n")
    assert "victims: 2, 1 of them gone" in out
