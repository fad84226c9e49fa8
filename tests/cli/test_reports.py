"""`queues --unmet` and `decisions --lost-work` as text and as JSON."""

from collections.abc import Iterator

import pytest

from evenhand.v1 import decisions_pb2, history_pb2, inspect_pb2
from evenhand.v1 import reports_pb2 as pb
from evenhand_cli.render.lost_work import core_time
from tests.cli import samples
from tests.cli.fake import FakeCore, running
from tests.cli.run import evenhand
from tests.cli.samples import T0, cores_and_gib, waiting_ask

HOUR = 3_600_000


def unmet() -> pb.GetUnmetGuaranteesResponse:
    cured = pb.UnmetAsks(
        leaf="root.research.vision",
        allocation_key="uid-1",
        name="lab/train-1",
        count=12,
        resources=cores_and_gib(4, 8),
        priority=100,
        binding="fence",
        because="no queue from its leaf up to its fence guarantees what it asks for",
        law="no-guarantee",
        searched=True,
        cure=pb.Cure(
            change="lift-fence",
            subject="root.research.vision",
            text="lift the fence of queue root.research.vision (preemption.policy: default)",
        ),
    )
    hopeless = pb.UnmetAsks(
        leaf="root.research",
        allocation_key="uid-2",
        count=1,
        resources=cores_and_gib(64, 8),
        binding="node-shape",
        because="no node that takes placements could hold it, were it empty",
        searched=True,
    )
    gang = pb.UnmetAsks(
        leaf="root.shop",
        allocation_key="uid-4",
        name="shop/fit-0",
        count=3,
        resources={"vcore": 6_000},
        job="fit",
        binding="being-served",
        because="the next round decides on it",
        searched=True,
    )
    unjudged = pb.UnmetAsks(
        leaf="root.shop", allocation_key="uid-3", count=1, binding="not-judged", searched=False
    )
    types = [
        pb.UnmetType(resource_type="vcore", entitled=24_000, held=8_000, missing=16_000),
        pb.UnmetType(resource_type="memory", entitled=64 << 30, held=16 << 30, missing=48 << 30),
    ]
    return pb.GetUnmetGuaranteesResponse(
        partition="default",
        queues=[
            pb.UnmetQueue(
                queue="root.research", types=types, asks=[cured, hopeless], asks_left_out=5
            ),
            pb.UnmetQueue(
                queue="root.shop",
                types=[pb.UnmetType(resource_type="vcore", entitled=2_000, held=0, missing=2_000)],
                asks=[gang, unjudged],
            ),
        ],
        over_promised=cores_and_gib(10, 0),
        taken_at_ms=T0,
        plans=40,
    )


def lost() -> pb.GetLostWorkResponse:
    def line(policy: str, claimant: str, victim: str, victims: int) -> pb.LostWork:
        return pb.LostWork(
            partition="default",
            policy=policy,
            claimant=claimant,
            victim=victim,
            victims=victims,
            ran_ms=victims * HOUR,
            millicore_ms=victims * HOUR * 2_000,
        )

    lines = [
        line("guaranteed", "root.shop", "root.batch", 4),
        line("guaranteed", "root.research", "root.batch", 1),
        line("quota", "root.batch", "root.batch", 2),
    ]
    return pb.GetLostWorkResponse(lines=lines, since_ms=T0, taken_at_ms=T0 + 2 * HOUR)


@pytest.fixture(scope="module")
def core() -> Iterator[FakeCore]:
    prepared = FakeCore(GetUnmetGuarantees=unmet(), GetLostWork=lost())
    with running(prepared) as started:
        yield started


@pytest.fixture(scope="module")
def calm() -> Iterator[FakeCore]:
    nothing = FakeCore(
        GetUnmetGuarantees=pb.GetUnmetGuaranteesResponse(), GetLostWork=pb.GetLostWorkResponse()
    )
    with running(nothing) as started:
        yield started


def test_a_line_for_each_queue_and_type_then_what_binds(core: FakeCore) -> None:
    ended = evenhand("queues", "--unmet", "--core", core.address, width=160)
    assert ended.code == 0
    assert [line.rstrip() for line in ended.out.splitlines()] == [
        "queue          type    guaranteed    held  missing  bound by",
        "root.research  cores           24       8       16  fence, node-shape",
        "root.research  memory      64 GiB  16 GiB   48 GiB  fence, node-shape",
        "root.shop      cores            2       0        2  being-served, not-judged",
        "",
        "all guarantees together are 10 cores more than the nodes have",
        "",
        "root.research.vision  12 asks for 4 cores, 8 GiB memory, priority 100",
        "  first     lab/train-1 (counts for root.research)",
        "  bound by  fence: no queue from its leaf up to its fence guarantees what it asks for",
        "  cure      lift the fence of queue root.research.vision (preemption.policy: default)",
        "",
        "root.research  1 ask for 64 cores, 8 GiB memory, priority 0",
        "  first     uid-2",
        "  bound by  node-shape: no node that takes placements could hold it, were it empty",
        "  cure      no single change cures it: evenhand explain uid-2",
        "",
        "root.shop  gang fit: 3 members for 6 cores together, priority 0",
        "  first     shop/fit-0",
        "  bound by  being-served: the next round decides on it",
        "",
        "1 more kind of asks: --all",
        "",
        "root.research: 5 asks of other kinds",
    ]
    whole = evenhand("queues", "--unmet", "--all", "--core", core.address, width=160)
    assert [line.rstrip() for line in whole.out.splitlines()][-7:] == [
        "",
        "root.shop  1 ask for nothing, priority 0",
        "  first     uid-3",
        "  bound by  not-judged",
        "  cure      not looked for: ask for this queue alone",
        "",
        "root.research: 5 asks of other kinds",
    ]


def test_a_case_of_a_leaf_and_its_parent_is_listed_once() -> None:
    answer = unmet()
    parent = answer.queues.add(queue="root")
    parent.asks.append(answer.queues[0].asks[0])
    other = parent.asks.add()
    other.CopyFrom(answer.queues[0].asks[1])
    other.cure.text = "raise something else"
    with running(FakeCore(GetUnmetGuarantees=answer)) as core:
        ended = evenhand("queues", "--unmet", "--all", "--core", core.address, width=160)
        value = evenhand("queues", "--unmet", "--core", core.address, "-o", "json").value()
    assert ended.out.count("lab/train-1") == 1
    assert "root.research.vision  12 asks for 4 cores" in ended.out
    assert "lab/train-1 (counts for root.research, root)" in ended.out
    assert ended.out.count("first     uid-2") == 2
    assert len(value["queues"][2]["asks"]) == 2


def test_keys_of_pods_are_written_as_names() -> None:
    key = "3b722fa2-40d2-52dd-bf3d-3e0250da4f14"
    answer = unmet()
    hopeless = answer.queues[0].asks[1]
    hopeless.allocation_key, hopeless.because = key, f"{key} gets no node"
    hopeless.cure.text = f"wait for {key}"
    listed = inspect_pb2.ListAllocationsResponse(allocations=[waiting_ask(key)])
    tags = listed.allocations[0].tags
    tags["kubernetes.io/meta/namespace"] = "lab"
    tags["kubernetes.io/meta/podName"] = "big"
    with running(FakeCore(GetUnmetGuarantees=answer, ListAllocations=listed)) as core:
        ended = evenhand("queues", "--unmet", "--core", core.address, width=160)
    assert key not in ended.out
    assert "first     lab/big" in ended.out
    assert "lab/big gets no node" in ended.out
    assert "wait for lab/big" in ended.out


def test_a_narrow_terminal_keeps_what_matters(core: FakeCore) -> None:
    ended = evenhand("queues", "--unmet", "--core", core.address, width=50)
    assert "missing" in ended.out
    assert "lift the fence" in ended.out


def test_the_report_as_json_has_every_field(core: FakeCore) -> None:
    value = evenhand(
        "queues", "--unmet", "root.research", "--core", core.address, "-o", "json"
    ).value()
    assert set(value) == {field.name for field in pb.GetUnmetGuaranteesResponse.DESCRIPTOR.fields}
    asks = value["queues"][0]["asks"]
    assert asks[0]["cure"]["change"] == "lift-fence"
    assert asks[1]["cure"] is None
    request = core.requests[-1]
    assert isinstance(request, pb.GetUnmetGuaranteesRequest)
    assert request.queue == "root.research"


def test_it_is_no_live_picture(core: FakeCore) -> None:
    ended = evenhand("queues", "--unmet", "--watch", "--core", core.address)
    assert ended.code == 2
    assert "--unmet and --watch cannot be combined" in ended.err


def test_nothing_unmet_is_said_so(calm: FakeCore) -> None:
    ended = evenhand("queues", "--unmet", "--core", calm.address)
    assert ended.out == "every queue with waiting asks has what it is guaranteed\n"


def test_lost_work_by_policy_claimant_and_victim(core: FakeCore) -> None:
    ended = evenhand("decisions", "--lost-work", "--all", "--core", core.address, width=120)
    lines = [line.split() for line in ended.out.splitlines() if line]
    assert lines[0][:8] == ["14.0", "core", "h", "of", "7", "victims", "were", "lost"]
    assert lines[1:] == [
        ["by", "policy"],
        ["policy", "victims", "had", "run", "lost"],
        ["guaranteed", "5", "5", "h", "00", "m", "10.0", "core", "h"],
        ["quota", "2", "2", "h", "00", "m", "4.0", "core", "h"],
        ["by", "claimant"],
        ["claimant", "victims", "had", "run", "lost"],
        ["root.shop", "4", "4", "h", "00", "m", "8.0", "core", "h"],
        ["root.batch", "2", "2", "h", "00", "m", "4.0", "core", "h"],
        ["root.research", "1", "1", "h", "00", "m", "2.0", "core", "h"],
        ["by", "victim"],
        ["victim", "victims", "had", "run", "lost"],
        ["root.batch", "7", "7", "h", "00", "m", "14.0", "core", "h"],
    ]


def test_lost_work_in_one_table(core: FakeCore) -> None:
    ended = evenhand("decisions", "--lost-work", "--core", core.address, width=80)
    lines = [line.split() for line in ended.out.splitlines() if line]
    assert lines[1:] == [
        ["by", "name", "victims", "had", "run", "lost"],
        ["policy", "guaranteed", "5", "5", "h", "00", "m", "10.0", "core", "h"],
        ["quota", "2", "2", "h", "00", "m", "4.0", "core", "h"],
        ["claimant", "root.shop", "4", "4", "h", "00", "m", "8.0", "core", "h"],
        ["root.batch", "2", "2", "h", "00", "m", "4.0", "core", "h"],
        ["root.research", "1", "1", "h", "00", "m", "2.0", "core", "h"],
        ["victim", "root.batch", "7", "7", "h", "00", "m", "14.0", "core", "h"],
    ]


def crowded(names: int, length: int) -> pb.GetLostWorkResponse:
    """Return much lost work of many queues, users and applications with long names."""
    found = pb.GetLostWorkResponse(since_ms=T0, taken_at_ms=T0 + HOUR)
    for number in range(names):
        name = f"{number}-{'long-name-' * length}"
        amounts = {"memory": 3_600 * 2_048 * number, "nvidia.com/gpu": 7_200 * number, "pods": 9}
        counted = {"victims": 1, "ran_ms": HOUR, "millicore_ms": HOUR * 1_000 * (number + 1)}
        queues = {"policy": "quota", "claimant": f"root.{name}", "victim": f"root.of.{name}"}
        found.lines.add(**queues, **counted, resource_seconds=amounts)
        owner = {"user": f"user-{number % 6}", "application_id": f"app-{name}"}
        found.owners.add(**queues, **counted, **owner, resource_seconds=amounts)
    return found


def test_lost_work_of_the_past_names_its_own_command() -> None:
    found = crowded(40, 1)
    answer = history_pb2.GetPastLostWorkResponse(lines=found.lines, owners=found.owners)
    server = inspect_pb2.ServerInfoResponse(now_ms=T0 + HOUR)
    with running(FakeCore(GetPastLostWork=answer, ServerInfo=server)) as core:
        brief = evenhand("history", "lost-work", "--since", str(T0), "--core", core.address)
    assert "everything: evenhand history lost-work --all" in brief.out


@pytest.mark.parametrize(("names", "length"), [(3, 0), (40, 1), (40, 6)])
def test_lost_work_fits_a_screen_with_users_and_applications(names: int, length: int) -> None:
    with running(FakeCore(GetLostWork=crowded(names, length))) as core:
        brief = evenhand("decisions", "--lost-work", "--core", core.address, width=80).out
        every = evenhand("decisions", "--lost-work", "--all", "--core", core.address, width=160).out
        wide = evenhand("decisions", "--lost-work", "-o", "wide", "--core", core.address).out
    assert len(brief.splitlines()) <= 30, brief
    assert all(len(line) <= 80 for line in brief.splitlines())
    firsts = [line.split()[0] for line in brief.splitlines() if line[:1].isalpha()]
    assert [one for one in firsts if one in {"user", "application"}] == ["user", "application"]
    assert (" more " in brief) == (names > 4)
    assert ("--lost-work --all" in brief) == (names > 4)
    for text in (every, wide):
        assert text.count("app-") == names
        assert "by user" in text


def test_the_rest_of_lost_work_is_summed() -> None:
    with running(FakeCore(GetLostWork=crowded(6, 0))) as core:
        out = evenhand("decisions", "--lost-work", "--core", core.address, width=120).out
    user = out.splitlines().index(next(line for line in out.splitlines() if line[:4] == "user"))
    rows = [line.split() for line in out.splitlines()[user : user + 4]]
    assert [row[-3] for row in rows] == ["10.0", "8.0", "6.0", "6.0"]
    assert rows[0][:3] == ["user", "user-5", "1"]
    assert rows[3][:3] == ["3", "more", "3"]


def test_lost_work_as_json(core: FakeCore) -> None:
    value = evenhand("decisions", "--lost-work", "--core", core.address, "-o", "json").value()
    assert value["lines"][0]["millicore_ms"] == 4 * HOUR * 2_000
    assert value["since_ms"] == T0


def test_nothing_lost_is_said_so(calm: FakeCore) -> None:
    ended = evenhand("decisions", "--lost-work", "--core", calm.address)
    assert ended.out == "preemption has destroyed no work since the server started\n"


def test_a_decision_says_what_its_victims_had_done() -> None:
    victim = decisions_pb2.Victim(allocation_key="v", queue="root.batch", ran_ms=90_000)
    one = decisions_pb2.Decision(
        decision_id="g-1-1",
        policy="guaranteed",
        victims=[victim],
        lost_ran_ms=90_000,
        lost_millicore_ms=90_000 * 2_000,
    )
    listed = decisions_pb2.ListDecisionsResponse(decisions=[one], taken_at_ms=T0)
    whole = decisions_pb2.GetDecisionResponse(decision=one, taken_at_ms=T0)
    with running(FakeCore(ListDecisions=[listed], GetDecision=whole)) as core:
        table = evenhand("decisions", "--core", core.address, width=200)
        assert "180 core s" in table.out
        detail = evenhand("decisions", "g-1-1", "--core", core.address, width=200)
        assert "180 core s: they had run 1 m 30 s in all" in detail.out


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (0, "0.0 core s"),
        (1_500_000, "1.5 core s"),
        (250 * 10**6, "250 core s"),
        (72 * 10**8, "2.0 core h"),
    ],
)
def test_core_time(value: int, told: str) -> None:
    assert core_time(value) == told


def test_lost_work_counts_gpus_and_memory_beside_cores() -> None:
    line = pb.LostWork(
        policy="guaranteed",
        claimant="root.shop",
        victim="root.ml",
        victims=5,
        ran_ms=HOUR,
        millicore_ms=HOUR * 1_000,
        resource_seconds={
            "vcore": 3_600_000,
            "memory": 3_600 * 2_048,
            "nvidia.com/gpu": 20 * 3_600,
            "pods": 3_600,
        },
    )
    with running(FakeCore(GetLostWork=pb.GetLostWorkResponse(lines=[line]))) as core:
        ended = evenhand("decisions", "--lost-work", "--core", core.address, width=80)
    assert ended.out.startswith("1.0 core h, 2.0 GiB h, 20.0 gpu h of 5 victims were lost")
    assert ended.words("root.ml")[-3:] == ["20.0", "gpu", "h"]


def test_filters_of_lost_work_reach_the_core() -> None:
    server = inspect_pb2.ServerInfoResponse(now_ms=T0)
    answer = pb.GetLostWorkResponse(since_ms=T0 - 60_000)
    tree = inspect_pb2.GetQueueTreeResponse(tree=samples.queue_tree())
    with running(FakeCore(GetLostWork=answer, ServerInfo=server, GetQueueTree=tree)) as core:
        ended = evenhand(
            *("decisions", "--lost-work", "--since", "1m", "--queue", "root.research"),
            *("--policy", "guaranteed", "--core", core.address),
        )
        unknown = evenhand("decisions", "--lost-work", "-q", "root.reserch", "--core", core.address)
        asked = next(one for one in core.requests if isinstance(one, pb.GetLostWorkRequest))
    assert asked == pb.GetLostWorkRequest(
        queue="root.research", policy="guaranteed", since_ms=T0 - 60_000
    )
    assert "of what was asked for" in ended.out
    assert unknown.code == 1
    assert "did you mean `root.research`" in unknown.err


@pytest.mark.parametrize(
    "options",
    [
        ("--lost-work", "--open"),
        ("--lost-work", "--follow"),
        ("--lost-work", "--count", "3"),
        ("--shadow", "--since", "1h"),
        ("--shadow", "--policy", "quota"),
        ("g-1", "--since", "1h"),
        ("g-1", "--queue", "root.a"),
        ("--count", "3"),
    ],
)
def test_an_option_of_decisions_that_cannot_act_is_refused(options: tuple[str, ...]) -> None:
    ended = evenhand("decisions", *options, "--core", "127.0.0.1:1")
    assert ended.code == 2, ended.err
