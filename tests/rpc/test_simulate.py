"""SimulateService over a socket: which fields of an ask reach the core, its answers, and what a viewer sees of them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from evenhand.v1 import simulate_pb2 as pb
from evenhand.v1 import simulate_pb2_grpc as rpc
from server.core.queries.simulation_answers import SimulatedAsk
from server.model.forecast import (
    Forecast,
    ForeseenDecision,
    ForeseenPlacement,
    PartitionForecast,
    QueueForecast,
    QueueNumbers,
)
from server.model.records import (
    AskSimulation,
    DecisionState,
    Level,
    QueueSimulation,
    Shrink,
    ShrinkResult,
    Spared,
    Verdict,
)
from si.v1 import si_pb2 as si
from tests.rpc.decided import T0, claim, victim
from tests.rpc.harness import Served, ask, refusal, resource
from tests.rpc.test_decisions import speaks_of
from tests.rpc.test_evenhand import QUEUES, VIEWER, cluster

Answers = Callable[..., Sequence[AskSimulation]]
PREEMPTS = AskSimulation(
    "preempts",
    "root.a",
    "n1",
    victims=(victim("small", "root.a"), victim("other", "root.b")),
    spared=(Spared("below-guarantee", "root.b", 2, ("kept-b",)),),
    levels=(Level("root.a", "deciding", "vcore", 60, None, 1),),
    lines=("It takes the capacity of other of root.b.",),
)
WAITS = AskSimulation(
    "waits",
    "root.a",
    verdict=Verdict(
        "guaranteed",
        "no-covering-victims",
        "node n1 comes nearest, less other of root.b",
        "n1",
        {"vcore": 7},
        spared=(Spared("outside-fence", "root.b", 1, ("kept-b",)),),
    ),
)


def simulated(key: str = "new", queue: str = "", **more: Any) -> pb.SimulatedAsk:
    return pb.SimulatedAsk(queue=queue, ask=ask(key, **more))


async def simulate(
    served: Served, *asks: pb.SimulatedAsk, metadata: Any = None
) -> list[pb.AskSimulation]:
    stub: Any = rpc.SimulateServiceStub(served.channel)
    request = pb.SimulateAsksRequest(asks=asks)
    return list((await stub.SimulateAsks(request, metadata=metadata)).asks)


def answered(answers: Iterable[AskSimulation]) -> SimpleNamespace:
    """Return a simulation of the core that has these answers."""
    return SimpleNamespace(answers=lambda: iter(answers), groups=[])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[SimulatedAsk]:
    """Replace the simulation by one that places everything, and provide the asks that it receives."""
    seen: list[SimulatedAsk] = []

    def place(_core: object, _partition: str, asks: Sequence[SimulatedAsk], _now: int) -> Any:
        seen.extend(asks)
        return answered(AskSimulation("placed", one.queue, "n0") for one in asks)

    monkeypatch.setattr("server.core.queries.simulate.prepared", place)
    return seen


def answering(monkeypatch: pytest.MonkeyPatch, *answers: AskSimulation) -> None:
    monkeypatch.setattr("server.core.queries.simulate.prepared", lambda *_: answered(answers))


async def test_an_ask_reaches_the_core_as_the_wire_reads_it(asked: list[SimulatedAsk]) -> None:
    async with cluster() as (served, _):
        before = served.core.digest()
        tags = {"yunikorn.apache.org/requiredNode": "n1"}
        (one,) = await simulate(served, simulated(queue="root.A", priority=5, allocationTags=tags))
        assert (one.allocation_key, one.outcome, one.node_id) == (
            "new",
            pb.ASK_OUTCOME_PLACED,
            "n0",
        )
        assert (one.priority, dict(one.resources)) == (5, {"vcore": 1})
        assert list(one.lines) == ["It would be placed at once, on node n0."]
        (seen,) = asked
        assert (seen.queue, seen.application_id) == ("root.a", "app")
        assert (seen.spec.priority, seen.spec.constraints.required_node) == (5, "n1")
        assert served.core.digest() == before


async def test_the_queue_is_named_or_the_application_s_or_that_of_the_rules(
    asked: list[SimulatedAsk],
) -> None:
    async with cluster() as (served, _):
        announced = si.AddApplicationRequest(queueName="root.b")
        by_rules = pb.SimulatedAsk(ask=ask("r", applicationID="new"), application=announced)
        await simulate(served, simulated("q", "root.b"), simulated("a"), by_rules)
        assert [one.queue for one in asked] == ["root.b", "root.a", "root.b"]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (simulated(queue="root.x"), "there is no queue root.x"),
        (simulated(queue="root"), "queue root is no leaf"),
        (simulated(applicationID="new"), "no placement rule matched"),
        (simulated(key=""), "allocationKey: is empty"),
        (simulated(resourcePerAlloc=resource()), "asks for nothing"),
        (simulated(resourcePerAlloc=resource(vcore=-1)), "is negative"),
        (simulated(queue="x" * 2000), "queue: has 2000 characters"),
    ],
)
async def test_an_ask_that_would_not_be_taken_in(
    asked: list[SimulatedAsk], wrong: pb.SimulatedAsk, told: str
) -> None:
    async with cluster() as (served, _):
        found = await simulate(served, simulated("first"), wrong, simulated("last"))
        assert [one.outcome for one in found] == [
            pb.ASK_OUTCOME_PLACED,
            pb.ASK_OUTCOME_REFUSED,
            pb.ASK_OUTCOME_PLACED,
        ]
        assert told in found[1].lines[0]
        assert found[1].advice
        assert not found[0].advice
        assert len(asked) == 2


async def test_a_queue_that_is_not_there_is_answered_with_the_nearest_leaves(
    asked: list[SimulatedAsk],
) -> None:
    async with cluster() as (served, _):
        (one,) = await simulate(served, simulated(queue="root.aa"))
        assert one.advice.startswith("did you mean root.a")
        assert one.advice.endswith("evenhand queues lists them")
        assert not asked


async def test_no_asks_too_many_and_an_unknown_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("server.rpc.evenhand.simulate_service.SIMULATED_ASKS_MAX", 1)
    async with cluster() as (served, _):
        stub: Any = rpc.SimulateServiceStub(served.channel)
        for request in (
            pb.SimulateAsksRequest(),
            pb.SimulateAsksRequest(asks=[simulated("a"), simulated("b")]),
        ):
            code, why, fields = await refusal(stub.SimulateAsks(request))
            assert (code, why, fields) == (
                grpc.StatusCode.INVALID_ARGUMENT,
                "INVALID_ASKS",
                ["asks"],
            )
        unknown = stub.SimulateAsks(pb.SimulateAsksRequest(partition="x", asks=[simulated()]))
        assert (await refusal(unknown))[1] == "NOT_FOUND"


async def test_an_operator_reads_who_would_go(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, PREEMPTS, WAITS)
    async with cluster() as (served, _):
        goes, waits = await simulate(served, simulated("a"), simulated("b"))
        assert [one.allocation_key for one in goes.victims] == ["small", "other"]
        assert list(goes.lines) == ["It takes the capacity of other of root.b."]
        assert (goes.spared[0].queue, list(goes.spared[0].examples)) == ("root.b", ["kept-b"])
        assert not goes.levels[0].hidden
        assert waits.outcome == pb.ASK_OUTCOME_WAITS
        assert (waits.verdict.node_id, dict(waits.verdict.missing)) == ("n1", {"vcore": 7})
        assert "(G8, G12)" in waits.verdict.rule
        assert waits.verdict.spared[0].queue == "root.b"
        assert waits.lines[-1].startswith(
            "Preemption frees no capacity for it (`no-covering-victims`)"
        )


async def test_a_viewer_reads_how_many_of_others_would_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answering(monkeypatch, PREEMPTS, WAITS)
    async with cluster() as (served, _):
        found = await simulate(served, simulated("a"), simulated("b"), metadata=VIEWER)
        goes, waits = found
        assert [one.allocation_key for one in goes.victims] == ["small"]
        assert goes.victims_elsewhere == 1
        assert list(goes.lines) == ["It would get a node: 2 allocations would be evicted."]
        assert goes.node_id == "", (
            "answers for many sizes would name every node and what is free there"
        )
        assert (goes.spared[0].queue, list(goes.spared[0].examples)) == ("another queue", [])
        assert (waits.verdict.law, waits.verdict.node_id) == ("no-covering-victims", "")
        assert waits.verdict.spared[0].queue == "another queue"
        for one in found:
            assert not speaks_of(one, "other", "root.b", "kept-b")


async def test_a_viewer_reads_that_nothing_would_go(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, replace(PREEMPTS, victims=()))
    async with cluster() as (served, _):
        (found,) = await simulate(served, simulated("a"), metadata=VIEWER)
        assert list(found.lines) == ["It would get a node later, without evictions for it."]


async def test_a_viewer_reads_how_many_nodes_are_large_enough_and_excluded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lacks = "no node that it may run on is large enough; 2 nodes are, but it does not tolerate their taint"
    answering(monkeypatch, replace(WAITS, brief=lacks))
    async with cluster() as (served, _):
        (found,) = await simulate(served, simulated("a"), metadata=VIEWER)
        assert found.lines[0] == f"It would wait: {lacks}."


async def test_a_viewer_simulates_in_its_own_queues_only(asked: list[SimulatedAsk]) -> None:
    async with cluster() as (served, _):
        named = pb.SimulatedAsk(
            ask=ask("r", applicationID="new"),
            application=si.AddApplicationRequest(queueName="root.b"),
        )
        found = await simulate(
            served,
            simulated("own"),
            simulated("theirs", "root.b"),
            simulated("nowhere", "root.x"),
            simulated("application", applicationID="side"),
            named,
            metadata=VIEWER,
        )
        assert [one.outcome == pb.ASK_OUTCOME_PLACED for one in found] == [
            True, False, False, False, False,
        ]  # fmt: skip
        assert {line for one in found[1:] for line in one.lines} == {
            "it would be placed in a queue that is not yours."
        }
        assert [one.queue for one in asked] == ["root.a"]


# Another configuration ------------------------------------------------------------------------------------------


async def configured(served: Served, yaml: str, metadata: Any = None) -> Any:
    stub: Any = rpc.SimulateServiceStub(served.channel)
    request = pb.SimulateConfigurationRequest(yaml=yaml, source="queues.yaml")
    return await stub.SimulateConfiguration(request, metadata=metadata)


async def test_a_configuration_says_who_would_go_and_when(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shrink = Shrink("root.a", {"vcore": 3}, {"vcore": 2}, {"vcore": 1}, ShrinkResult.SHORTFALL, 5)
    due = QueueSimulation(
        "root.a", {"vcore": 3}, 300_000, T0 + 300_000, (victim("small", "root.a"),), shrink
    )
    never = QueueSimulation("root.b", {"vcore": 1}, 0, 0, why_not="it has no delay")
    before = QueueNumbers({"vcore": 1}, {}, {"vcore": 10}, 1, 1, 2)
    applied = replace(before, max={"vcore": 5}, deserved={"vcore": 4}, entitled={"vcore": 4})
    record = claim()
    part = PartitionForecast(
        "default",
        (ForeseenDecision(4_000, record, DecisionState.FULFILLED, frozenset({"other"})),),
        (ForeseenPlacement(4_000, "large", "app", "root.a", "n1", record.decision_id),),
        queues=(
            QueueForecast("root.a", before, applied, applied),
            QueueForecast("root.b", before, None, before),
        ),
        quotas=(due, never),
    )
    found = Forecast((part,), 20_000, 7, "it ends after 24 hours")
    monkeypatch.setattr("server.core.queries.forecast.forecast", lambda *_: found)
    async with cluster() as (served, _):
        before_it = served.core.digest()
        answer = await configured(served, QUEUES.replace("10m", "5m"))
        assert (answer.valid, answer.taken_at_ms) == (True, served.clock.ms)
        assert (answer.complete, answer.cut, answer.until_ms) == (
            False,
            "it ends after 24 hours",
            20_000,
        )
        assert len(answer.assumptions) == 3
        (partition,) = answer.partitions
        first, second = partition.queues
        assert (dict(first.usage), dict(first.max)) == ({"vcore": 1}, {"vcore": 5})
        assert (first.delay_ms, first.due_ms) == (300_000, T0 + 300_000)
        assert (first.run.result, dict(first.run.missing)) == (3, {"vcore": 1})
        assert first.victims[0].allocation_key == "small"
        assert (second.why_not, second.HasField("run")) == ("it has no delay", False)
        (decided,) = partition.decisions
        assert (decided.after_ms, list(decided.unchanged)) == (4_000, ["other"])
        assert [one.allocation_key for one in decided.decision.victims] == ["other"]
        assert (decided.decision.state, partition.placements[0].decision_id) == (4, "g-1-1")
        changed, gone = partition.forecasts
        assert (changed.before.proportional, dict(changed.applied.deserved)) == (
            False,
            {"vcore": 4},
        )
        assert not gone.HasField("applied")
        assert served.core.digest() == before_it


async def test_a_raised_guarantee_names_what_is_not_judged() -> None:
    """An ACL concerns only applications that come later; a maximum was judged."""
    async with cluster() as (served, _):
        answer = await configured(
            served, QUEUES.replace("10m", "60m").replace('submitacl: "*"', "submitacl: ann")
        )
        assert [one.field for one in answer.not_judged] == ["submitacl"]
        assert [one.allocation_key for one in answer.partitions[0].placements] == ["large"]
        assert answer.complete


async def test_a_configuration_with_errors_is_not_simulated() -> None:
    async with cluster() as (served, _):
        answer = await configured(served, "partitions: 7")
        assert (answer.valid, list(answer.partitions)) == (False, [])
        assert answer.problems[0].line == 1


async def test_a_configuration_is_simulated_for_operators_only() -> None:
    async with cluster() as (served, _):
        code, why, _ = await refusal(configured(served, QUEUES, VIEWER))
        assert (code, why) == (grpc.StatusCode.PERMISSION_DENIED, "ROLE_DENIED")
