"""Resident memory after 20,000 calls of every kind and 20,000 more, and with large clusters; the figures are printed.

PYTHONPATH=.:gen .venv/bin/python -m pytest -m soak tests/rpc/test_memory_soak.py
"""

import asyncio
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc
import pytest
from google.protobuf.message import Message

from evenhand.v1 import config_pb2, decisions_pb2, explain_pb2, simulate_pb2
from server.rpc.limits import CALLER_SIMULATIONS_MAX, COPY_S_MAX, READS_MAX, WATCHERS_MAX
from server.rpc.roles import TABLE, Role
from server.rpc.trimming import TRIM_S
from tests.cli.processes import LOOK_S, until
from tests.rpc.memory_calls import (
    ALL_OPERATORS,
    LIMITED,
    OPERATORS,
    REFUSED,
    SHIM,
    VIEWER,
    Kind,
    Process,
    core,
    guarded,
    make,
)
from tests.rpc.memory_cluster import MANAGERS, budget_mib, fill, with_streams
from tests.rpc.test_memory import LEFT_MIB, MORE_MIB

pytestmark = pytest.mark.soak
CALLS: Final = 20_000
_GOOD: Final = "partitions:\n- name: default\n  queues:\n  - name: root\n"
_ASK: Final = simulate_pb2.SimulatedAsk(queue="root.a")
_ASK.ask.allocationKey = "pod"
_ASK.ask.applicationID = "app"
_ASK.ask.resourcePerAlloc.resources["vcore"].value = 1

REQUESTS: Final[dict[str, Message]] = {
    "GetDecision": decisions_pb2.GetDecisionRequest(decision_id="unknown"),
    "Explain": explain_pb2.ExplainRequest(key="unknown"),
    "SimulateAsks": simulate_pb2.SimulateAsksRequest(asks=[_ASK]),
    "SimulateConfiguration": simulate_pb2.SimulateConfigurationRequest(yaml=_GOOD),
    "Validate": config_pb2.ValidateRequest(yaml=_GOOD),
    "Apply": config_pb2.ApplyRequest(yaml=_GOOD, source="test"),
    "Diff": config_pb2.DiffRequest(yaml=_GOOD),
}
"""The requests by method; methods that are missing here get an empty one."""
ENDS: Final = {"GetDecision": grpc.StatusCode.NOT_FOUND}
ONE_AT_ONCE: Final = {"Validate", "Apply", "Diff"}
"""A caller has one configuration read at once."""
WATCH_S: Final = 0.05
AT_ONCE_OF_ONE: Final = READS_MAX // OPERATORS - 2
"""Number of reads that one caller has open at once: enough to keep the copies of the core busy."""


def _answered(method: str) -> Kind:
    name = method.rpartition("/")[2]
    is_watch = name.startswith("Watch")
    code = grpc.StatusCode.DEADLINE_EXCEEDED if is_watch else ENDS.get(name, grpc.StatusCode.OK)
    at_once = AT_ONCE_OF_ONE
    if is_watch:
        at_once = WATCHERS_MAX // OPERATORS
    if "Simulate" in name:
        at_once = CALLER_SIMULATIONS_MAX
    if name in ONE_AT_ONCE:
        at_once = 1
    data = REQUESTS[name].SerializeToString() if name in REQUESTS else b""
    return Kind(method, code, ALL_OPERATORS, data, at_once, watch_s=WATCH_S * is_watch)


ANSWERED: Final = {
    f"{method.rpartition('.')[2]} that are answered": _answered(method)
    for method in TABLE
    if method.startswith("/evenhand.v1.")
}
FORBIDDEN: Final = {
    f"{method.rpartition('.')[2]} of a {role}": Kind(
        method, grpc.StatusCode.PERMISSION_DENIED, (caller,)
    )
    for method, roles in TABLE.items()
    for role, caller in ((Role.VIEWER, VIEWER), (Role.SHIM, SHIM))
    if role not in roles and not method.startswith("/grpc.")
}
KINDS: Final = REFUSED | LIMITED | FORBIDDEN | ANSWERED


@dataclass(slots=True)
class Look:
    """Resident MiB of a core and of its children, as large as they were at once."""

    core: float = 0
    children: float = 0

    async def watch(self, process: Process) -> None:
        """Look on until cancelled."""
        while True:
            self.core = max(self.core, process.mib)
            self.children = max(self.children, process.children_mib)
            await asyncio.sleep(LOOK_S)


def _settled(process: Process) -> float:
    """Return the least memory of the core until it has given back what the C library keeps; nothing of its copies is left."""
    until(lambda: process.children_mib == 0, COPY_S_MAX)
    latest, least = time.monotonic() + TRIM_S + 1, process.mib
    while time.monotonic() < latest:
        time.sleep(LOOK_S)
        least = min(least, process.mib)
    return least


async def _made(process: Process, kind: Kind) -> Look:
    look = Look()
    looking = asyncio.create_task(look.watch(process))
    await make(process, kind, CALLS)
    looking.cancel()
    return look


def _tell(capsys: pytest.CaptureFixture[str], line: str) -> None:
    with capsys.disabled():
        sys.stdout.write(f"\n{line}\n")


@pytest.mark.parametrize("name", KINDS)
def test_calls_leave_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    with guarded(tmp_path) as process:
        idle = process.mib
        began = time.monotonic()
        look = asyncio.run(_made(process, KINDS[name]))
        rate = CALLS / (time.monotonic() - began)
        first = _settled(process)
        asyncio.run(_made(process, KINDS[name]))
        second = _settled(process)
    figures = f"{idle:.0f} -> {first:.0f} -> {second:.0f} MiB"
    most = f"meanwhile {look.core:.0f}, children {look.children:.0f} MiB"
    _tell(capsys, f"{name}: {figures}; {most}; {rate:.0f}/s")
    assert first < idle + LEFT_MIB
    assert second < first + MORE_MIB


@pytest.mark.parametrize(("nodes", "pods"), [(5_000, 50_000), (10_000, 100_000)])
def test_a_core_keeps_to_its_budget(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], nodes: int, pods: int
) -> None:
    with core(tmp_path) as process:
        empty = process.mib
        fill(process, nodes, pods)
        filled = _settled(process)
        opened = asyncio.run(with_streams(process))
    budgets = budget_mib(nodes, pods, 0), budget_mib(nodes, pods, 3 * MANAGERS)
    sizes = f"{nodes:,} nodes, {pods:,} pods: {empty:.0f} -> {filled:.0f} of {budgets[0]:.0f} MiB"
    _tell(capsys, f"{sizes}; with {3 * MANAGERS} streams {opened:.0f} of {budgets[1]:.0f} MiB")
    assert filled < budgets[0]
    assert opened < budgets[1]
