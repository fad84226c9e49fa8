"""Resident memory of a core: after refused calls (D2), and within the limits of docs/overload.md.

`tests/rpc/test_memory_soak.py` makes 20,000 calls of every kind, and fills larger clusters.
"""

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from server.model.reports import Holdings
from server.rpc.evenhand.inspect_service import About
from server.rpc.memory import (
    APPLICATION_KIB,
    BASE_MIB,
    MIB,
    NODE_KIB,
    POD_KIB,
    QUEUE_KIB,
    STREAM_KIB,
    Load,
    Memory,
    budget_bytes,
    findings,
)
from tests.cli.processes import finished, until
from tests.cli.run import evenhand
from tests.effort import cases, drawn
from tests.rpc.harness import SETTING, serving
from tests.rpc.memory_calls import LIMITED, REFUSED, core, guarded, make
from tests.rpc.memory_cluster import MANAGERS, budget_mib, fill, with_streams

pytestmark = pytest.mark.alone

CALLS: Final = cases(10_000)
"""Refused calls of each kind that cost the core little, and as many again."""
LEFT_MIB: Final = 40
"""The memory that a core may keep after calls of one kind: reserves of Python and gRPC for the next ones."""
MORE_MIB: Final = 10
"""The memory that a core may keep after as many calls again."""
ROOT: Final = Path(__file__).parents[2]


@pytest.mark.parametrize("name", [*drawn(REFUSED, 4), *drawn(LIMITED)])
def test_refused_calls_leave_nothing_behind(tmp_path: Path, name: str) -> None:
    kind = (REFUSED | LIMITED)[name]
    with guarded(tmp_path) as process:
        idle = process.mib
        asyncio.run(make(process, kind, CALLS // kind.costly))
        until(lambda: process.mib < idle + LEFT_MIB)
        first = process.mib
        asyncio.run(make(process, kind, CALLS // kind.costly))
        until(lambda: process.mib < first + MORE_MIB)


def test_a_core_keeps_to_its_budget(tmp_path: Path) -> None:
    nodes, pods = 2_000, 20_000
    with core(tmp_path) as process:
        fill(process, nodes, pods)
        assert asyncio.run(with_streams(process)) < budget_mib(nodes, pods, 3 * MANAGERS)
        until(lambda: process.mib < budget_mib(nodes, pods, 0))
        found = json.loads(finished("doctor", "--core", process.where, "-o", "json").stdout)
        resident = process.mib
    memory = found["memory"]
    assert (memory["nodes"], memory["pods"], memory["streams"]) == (nodes, pods, 0)
    counts = ("nodes", "pods", "applications", "queues")
    held = Holdings(**{name: memory[name] for name in counts})
    assert memory["budget_bytes"] == budget_bytes(Load(held, 0, memory["waiting_bytes"]))
    assert abs(memory["resident_bytes"] / MIB - resident) < MORE_MIB
    assert "memory-over-budget" not in {one["code"] for one in found["findings"]}


LOAD: Final = Load(Holdings(nodes=1_000, pods=10_000, applications=100, queues=10), 9)


def test_the_budget_is_the_sum_of_its_parts() -> None:
    assert budget_bytes(Load(Holdings(0, 0, 0, 0), 0)) == 128 * MIB
    kib = 8 * 1_000 + 2 * 10_000 + 2 * 100 + 8 * 10 + 128 * 9
    assert budget_bytes(LOAD) == 128 * MIB + kib * 1_024
    assert budget_bytes(replace(LOAD, waiting_bytes=7)) == budget_bytes(LOAD) + 7


@pytest.mark.parametrize("resident", [0, budget_bytes(LOAD)])
def test_memory_within_the_budget_is_no_finding(resident: int) -> None:
    assert not list(findings(Memory(resident, LOAD)))


def test_memory_over_the_budget_is_a_finding_with_its_numbers() -> None:
    (found,) = findings(Memory(budget_bytes(LOAD) + MIB, LOAD))
    assert (found.severity, found.subject, found.code) == (
        "warning",
        "memory",
        "memory-over-budget",
    )
    assert found.message == (
        "158 MiB resident, the budget is 157 MiB for 1,000 nodes, 10,000 pods, 100 applications, 10 queues, 9 streams"
    )
    assert "restart the core" in found.advice


async def test_the_doctor_says_that_the_core_is_over_its_budget() -> None:
    setting = replace(SETTING, about=About("test", 1, resident_bytes=lambda: 300 * MIB))
    async with serving(setting) as served:
        await served.ready(nodes=2)
        arguments = "doctor", "--core", f"127.0.0.1:{served.port}"
        told = await asyncio.to_thread(evenhand, *arguments)
        as_json: Any = (await asyncio.to_thread(evenhand, *arguments, "-o", "json")).value()
    assert told.code == 0
    said = "warning  memory  300 MiB resident, the budget is 129 MiB for 2 nodes, 1 application, "
    assert said in told.out
    memory = as_json["memory"]
    assert memory["resident_bytes"] == 300 * MIB
    assert (memory["nodes"], memory["applications"], memory["streams"]) == (2, 1, 3)
    assert memory["budget_bytes"] < 129 * MIB
    assert "memory-over-budget" in {one["code"] for one in as_json["findings"]}


def test_the_page_states_this_budget() -> None:
    page = (ROOT / "docs" / "overload.md").read_text()
    parts = (
        f"{BASE_MIB} MiB",
        f"{NODE_KIB} KiB a node",
        f"{POD_KIB} KiB a pod",
        f"{APPLICATION_KIB} KiB an application",
        f"{QUEUE_KIB} KiB a queue",
        f"{STREAM_KIB} KiB a stream",
    )
    stated = " + ".join(parts)
    assert stated in page


def test_the_manifest_has_capacity_for_the_cluster_that_the_page_names() -> None:
    page = (ROOT / "docs" / "overload.md").read_text()
    found = re.search(r"is enough for ([\d,]+)\s+nodes and ([\d,]+)\s+pods", page)
    assert found is not None
    nodes, pods = (int(number.replace(",", "")) for number in found.groups())
    manifest = (ROOT / "deploy" / "core.yaml").read_text()
    limit = re.search(r"limits: \{memory: (\d+)Gi\}", manifest)
    assert limit is not None
    # As much again is left for copies that answer reads, and for answers that wait.
    assert 2 * budget_mib(nodes, pods, 9) <= 1_024 * int(limit[1])
