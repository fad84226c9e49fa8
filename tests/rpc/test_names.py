"""Pods are named by their names in all texts of the core, over real gRPC and in the log."""

from dataclasses import replace
from typing import Any

from evenhand.v1 import decisions_pb2 as decisions
from evenhand.v1 import decisions_pb2_grpc as decisions_rpc
from evenhand.v1 import explain_pb2 as explain
from evenhand.v1 import explain_pb2_grpc as explain_rpc
from evenhand.v1 import inspect_pb2 as pb
from evenhand.v1 import inspect_pb2_grpc as rpc
from server.model.decisions import Decisions, Noted
from server.model.reasons import Code
from server.model.records import Spared
from server.observe import logs
from server.rpc.names import name_of, names_now
from si.v1 import si_pb2 as si
from tests.rpc.decided import claim, keep
from tests.rpc.harness import Served
from tests.rpc.test_evenhand import cluster

HOUR_MS = 3_600_000


def call(served: Served, key: str, pod: str, namespace: str = "lab") -> None:
    """Give an ask the tags that the shim sends for a pod."""
    tags = {"kubernetes.io/meta/namespace": namespace, "kubernetes.io/meta/podName": pod}
    ask = served.core.state.partitions["default"].asks[key]
    ask.tags = (si.Allocation(allocationTags=tags).SerializeToString(),)


async def explained(served: Served, key: str) -> Any:
    stub = explain_rpc.ExplainServiceStub(served.channel)
    return await stub.Explain(explain.ExplainRequest(key=key))


async def test_what_runs_on_a_node_is_named() -> None:
    async with cluster() as (served, _):
        call(served, "small", "front-1")
        node = served.core.state.partitions["default"].asks["small"].node
        assert node is not None
        answer = await explained(served, node.node_id)
        (told,) = [line for line in answer.lines if line.startswith("Here run")]
        assert "lab/front-1" in told
        assert "small" not in told


async def test_the_first_waiting_ask_of_an_application_is_named() -> None:
    async with cluster() as (served, _):
        call(served, "large", "train-1")
        ask = served.core.state.partitions["default"].asks["large"]
        answer = await explained(served, ask.application.application_id)
        assert any("Its first waiting ask is lab/train-1:" in line for line in answer.lines)
        (group,) = answer.application.groups
        assert (group.example_key, group.example_name) == ("large", "lab/train-1")


async def test_the_doctor_names_what_waits() -> None:
    async with cluster() as (served, _):
        call(served, "large", "train-1")
        served.clock.ms += HOUR_MS
        stub = rpc.InspectServiceStub(served.channel)
        answer = await stub.CheckConsistency(pb.CheckConsistencyRequest())
        told = [one.message for one in answer.findings if one.code.startswith("waiting-")]
        assert len(told) == 1
        assert told[0].startswith("1 ask waiting")
        assert told[0].endswith(": lab/train-1")


async def test_listings_carry_the_name_beside_the_key() -> None:
    async with cluster() as (served, _):
        call(served, "small", "front-1")
        stub = rpc.InspectServiceStub(served.channel)
        answer = await stub.ListAllocations(pb.ListAllocationsRequest())
        names = {one.allocation_key: one.name for one in answer.allocations}
        assert names["small"] == "lab/front-1"
        assert names["other"] == ""


async def test_protected_pods_keep_their_names_when_they_are_gone() -> None:
    async with cluster() as (served, _):
        call(served, "small", "front-1")
        spared = (Spared("below-guarantee", "root.a", 1, ("small",)),)
        keep(served, replace(claim(), spared=spared))
        del served.core.state.partitions["default"].asks["small"]
        stub = decisions_rpc.DecisionServiceStub(served.channel)
        (one,) = (await stub.ListDecisions(decisions.ListDecisionsRequest())).decisions
        assert [list(group.examples) for group in one.spared] == [["lab/front-1"]]


async def test_the_log_names_the_pod_of_a_note() -> None:
    async with cluster() as (served, _):
        call(served, "small", "front-1")
        asked: list[tuple[str, str]] = []
        now = names_now(served.core)

        def name(partition: str, key: str) -> str:
            asked.append((partition, key))
            return now(partition, key)

        assert now("default", "small") == "lab/front-1"
        assert (now("default", "other"), now("default", "gone"), now("no", "small")) == ("", "", "")
        noted = Noted("ask", "small", Code.RESERVED, "it is reserved", "default")
        queue = Noted("queue", "root.a", Code.OVER_MAX, "too much", "default")
        logs.NoteLog(name).decided(Decisions([noted, queue]), 0)
        assert asked == [("default", "small")]
        assert name_of(served.core.state.partitions["default"].asks["other"]) == "other"
