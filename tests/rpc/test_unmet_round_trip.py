"""The unmet-guarantee report over a socket: its remedy is written into the YAML text and applied, and the guarantee is met.

The configuration, the nodes and the asks are sent over the wire, as by a shim; the client confirms the evictions.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml

from evenhand.v1 import config_pb2 as config
from evenhand.v1 import config_pb2_grpc as config_rpc
from si.v1 import si_pb2 as si
from tests.rpc.harness import RM, Served, Stream, ask, node, resource, serving
from tests.rpc.test_reports import unmet

POLLS = 500
ROUND_MS = 31_000
"""Longer than a claim's delay and its back-off."""

TEAM = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: team
            parent: true
            resources: {guaranteed: {vcore: 32, GPUS}}
            properties: {PROPERTIES}
            queues:
              - name: a
                resources: {MAX}
              - name: b
          - name: batch
"""


def team(gpus: str = "", properties: str = "", most: str = "") -> str:
    """Return a configuration: a team guarantees 32 cores to its two queues, and batch is guaranteed nothing."""
    text = TEAM.replace(", GPUS", gpus and f", {gpus}")
    return text.replace("PROPERTIES", properties).replace("MAX", most)


@dataclass(frozen=True)
class Case:
    """Pods that fill a node; the one that waits in root.team.a; what binds it, and the change that is printed."""

    binding: str
    cure: str
    queues: str
    runs_in: str
    runs: tuple[dict[str, int], int]
    waits: dict[str, int]
    holds: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.binding


CORE = 1_000
CASES = [
    Case(
        "closed-type",
        "raise the guarantee of queue root.team.a by 1 gpu",
        team("gpu: 8"),
        "root.team.b",
        ({"vcore": CORE, "gpu": 1}, 8),
        {"vcore": CORE, "gpu": 1},
    ),
    Case(
        "undecided-type",
        "raise the guarantee of queue root.team.a by 1 gpu",
        team(),
        "root.team.b",
        ({"vcore": CORE, "gpu": 1}, 8),
        {"vcore": CORE, "gpu": 1},
    ),
    Case(
        "fence",
        "lift the fence of queue root.team (preemption.policy: default)",
        team(properties="preemption.policy: fence"),
        "root.batch",
        ({"vcore": 16 * CORE}, 4),
        {"vcore": 8 * CORE},
    ),
    Case(
        "own-max",
        "raise the max of queue root.team.a by 8 cores",
        team(most="max: {vcore: 8}"),
        "root.batch",
        ({"vcore": 14 * CORE}, 4),
        {"vcore": 8 * CORE},
        holds={"vcore": 8 * CORE},
    ),
    Case(
        "node-shape",
        "add a node with 65 cores free",
        team(),
        "root.batch",
        ({"vcore": 16 * CORE}, 4),
        {"vcore": 65 * CORE},
    ),
]


@asynccontextmanager
async def cluster(case: Case) -> AsyncIterator[tuple[Served, Stream]]:
    """Hold a node of 64 cores and 8 GPUs with the case's pods, and a waiting ask older than its delay."""
    async with serving() as served:
        await served.register(config=case.queues)
        await add_node(served, "n1", {"vcore": 64 * CORE, "gpu": 8})
        await served.submit("runs", case.runs_in)
        await served.submit("waits", "root.team.a")
        each, many = case.runs
        pods = [
            ask(f"pod-{number}", applicationID="runs", resourcePerAlloc=resource(**each))
            for number in range(many)
        ]
        if case.holds:
            pods.append(ask("held", applicationID="waits", resourcePerAlloc=resource(**case.holds)))
        stream = await served.open(
            "UpdateAllocation", si.AllocationRequest(rmID=RM, allocations=pods)
        )
        placed = 0
        while placed < len(pods):
            placed += len((await stream.read(si.AllocationResponse)).new)
        wanted = ask("wants", applicationID="waits", resourcePerAlloc=resource(**case.waits))
        await stream.send(si.AllocationRequest(rmID=RM, allocations=[wanted]))
        confirming = asyncio.create_task(confirm(stream))
        try:
            yield served, stream
        finally:
            stream.call.cancel()
            confirming.cancel()


async def add_node(served: Served, name: str, capacity: dict[str, int]) -> None:
    """Bring a node, as a shim does."""
    made = node(name, schedulableResource=resource(**capacity))
    nodes = await served.open("UpdateNode", si.NodeRequest(rmID=RM, nodes=[made]))
    await nodes.next()


async def confirm(stream: Stream) -> None:
    """Confirm each release as soon as it is ordered."""
    while (answer := await stream.next()) is not None:
        gone = [
            si.AllocationRelease(
                allocationKey=one.allocationKey,
                applicationID="runs",
                terminationType=si.PREEMPTED_BY_SCHEDULER,
            )
            for one in answer.released
        ]
        if gone:
            releases = si.AllocationReleasesRequest(allocationsToRelease=gone)
            await stream.send(si.AllocationRequest(rmID=RM, releases=releases))


async def told(served: Served, stream: Stream) -> Any:
    """Return the entry of the ask that waits, once its delay is over."""
    for _ in range(POLLS):
        queues = (await unmet(served)).queues
        if queues and queues[0].asks[0].binding == "delay":
            await later(served, stream)
        elif queues:
            return queues[0].asks[0]
    raise AssertionError("the ask is not in the report")


async def later(served: Served, stream: Stream) -> None:
    """Let time pass; a message makes the core look at its clock."""
    served.clock.ms += ROUND_MS
    await stream.send(si.AllocationRequest(rmID=RM))


async def met(served: Served, stream: Stream) -> bool:
    """Return whether nothing is unmet any more after some rounds."""
    for turn in range(POLLS):
        if not (await unmet(served)).queues:
            return True
        if turn % 20 == 0:
            await later(served, stream)
    return False


def written(text: str, cure: Any) -> str:
    """Return the configuration with the cure in it, as a user would write it."""
    tree = yaml.safe_load(text)
    queue = tree["partitions"][0]["queues"][0]
    for name in cure.subject.split(".")[1:]:
        queue = next(one for one in queue["queues"] if one["name"] == name)
    if cure.change == "lift-fence":
        queue["properties"]["preemption.policy"] = "default"
        return yaml.safe_dump(tree)
    where = {"raise-guarantee": "guaranteed", "raise-max": "max"}[cure.change]
    amounts = queue.setdefault("resources", {}).setdefault(where, {})
    for kind, more in cure.amounts.items():
        cores = kind == "vcore"
        before = int(amounts.get(kind, 0)) * (CORE if cores else 1)
        amounts[kind] = f"{before + more}m" if cores else before + more
    return yaml.safe_dump(tree)


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_the_guarantee_is_met_with_the_change_that_is_printed(case: Case) -> None:
    async with cluster(case) as (served, stream):
        asks = await told(served, stream)
        assert (asks.binding, asks.cure.text) == (case.binding, case.cure), asks.because
        await later(served, stream)
        assert (await unmet(served)).queues, "it is met without the change"
        if asks.cure.change == "add-node":
            await add_node(served, "n2", dict(asks.cure.amounts))
        else:
            stub: Any = config_rpc.ConfigurationServiceStub(served.channel)
            request = config.ApplyRequest(yaml=written(case.queues, asks.cure))
            answer = await stub.Apply(request)
            assert answer.applied, answer.problems
        assert await met(served, stream)
