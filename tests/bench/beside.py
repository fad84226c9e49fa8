"""The time that an ask waits for its node while others read: 50 asks per second, and readers in a separate process."""

import asyncio
import base64
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import Message

from evenhand.v1 import explain_pb2, inspect_pb2, reports_pb2, simulate_pb2, watch_pb2
from server.preemption.nodes.reservation import RESERVE_AFTER_MS
from server.rpc.limits import SIMULATED_ASKS_MAX
from si.v1 import si_pb2 as si
from tests.bench import messages
from tests.bench.client import MESSAGE_MAX, Player
from tests.bench.figures import Run, most_of
from tests.bench.players import ROOT, surroundings
from tests.bench.processes import cpu_seconds, peak_mib
from tests.bench.wire import Server, kept, server
from tests.bench.workloads import RM, Workload, application, queues_yaml

RATE = 50
"""Number of asks per second."""
ASKS = 500
"""Maximum number of asks in one run, which then takes ten seconds."""
PATIENCE_S = 120
WARM_UP = 50
"""Number of asks before the measured ones; the readers already run then."""
SETTLED_S = RESERVE_AFTER_MS / 1000 + 2
"""Seconds after which the core has tried to reserve a node for the ask that waits. For that it takes its first snapshot of all pods."""


@dataclass(frozen=True, slots=True)
class Readers:
    """A kind of reader: a number of callers, each of which repeats its call as soon as it is answered."""

    name: str
    method: str
    callers: int
    request: bytes


Process = subprocess.Popen[bytes] | None
Cores = Callable[[Server], AbstractContextManager[str]]
"""A function that holds further cores beside a core. It yields the addresses of all of them, separated by commas."""
Reads = Callable[[Readers | None, str], AbstractContextManager[Process]]
"""A function that holds a process with readers of the core at an address, or None without readers."""


def everybody(workload: Workload) -> list[Readers]:
    """Return every kind of reader, each to be measured alone."""
    page = 5_000
    return [
        _readers(
            "the doctor",
            1,
            "InspectService/CheckConsistency",
            inspect_pb2.CheckConsistencyRequest(),
        ),
        _readers(
            "nodes", 4, "InspectService/ListNodes", inspect_pb2.ListNodesRequest(page_size=page)
        ),
        _readers(
            "allocations",
            4,
            "InspectService/ListAllocations",
            inspect_pb2.ListAllocationsRequest(page_size=page),
        ),
        _readers(
            "an application",
            20,
            "ExplainService/Explain",
            explain_pb2.ExplainRequest(key=application(workload, 0)[0]),
        ),
        _readers(
            "a waiting ask", 20, "ExplainService/Explain", explain_pb2.ExplainRequest(key=WAITING)
        ),
        _readers("watched queues", 64, "WatchService/WatchQueues", watch_pb2.WatchQueuesRequest()),
        _readers("simulated asks", 5, "SimulateService/SimulateAsks", _simulated(workload)),
        _readers(
            "a simulated configuration",
            100,
            "SimulateService/SimulateConfiguration",
            simulate_pb2.SimulateConfigurationRequest(yaml=queues_yaml(workload)),
        ),
        _readers(
            "the queue tree", 10, "InspectService/GetQueueTree", inspect_pb2.GetQueueTreeRequest()
        ),
        _readers("the server", 20, "InspectService/ServerInfo", inspect_pb2.ServerInfoRequest()),
        _readers(
            "unmet guarantees",
            5,
            "ReportService/GetUnmetGuarantees",
            reports_pb2.GetUnmetGuaranteesRequest(),
        ),
    ]


def _readers(name: str, callers: int, method: str, request: Message) -> Readers:
    """Return a number of readers that call a method of `evenhand.v1`."""
    told = f"{callers} readers of {name}" if callers > 1 else f"a reader of {name}"
    return Readers(told, f"/evenhand.v1.{method}", callers, request.SerializeToString())


def _simulated(workload: Workload) -> simulate_pb2.SimulateAsksRequest:
    asks = (large(workload, f"simulated-{at}") for at in range(SIMULATED_ASKS_MAX))
    return simulate_pb2.SimulateAsksRequest(
        asks=[simulate_pb2.SimulatedAsk(ask=one) for one in asks]
    )


WAITING = "waits"
"""The key of an ask that fits no node."""


def large(workload: Workload, key: str) -> si.Allocation:
    """Return an ask that no node can hold."""
    return si.Allocation(
        allocationKey=key,
        applicationID=application(workload, 0)[0],
        resourcePerAlloc=messages.as_resource({"vcore": 10**9}),
    )


@contextmanager
def alone(core: Server) -> Iterator[str]:
    """Hold no further core."""
    yield core.address


def placing(  # noqa: PLR0913 - the parts of a run
    workload: Workload,
    readers: Readers | None,
    before: Sequence[str] = (),
    reads: Reads | None = None,
    cores: Cores = alone,
    *,
    settled: bool = False,
) -> Run:
    """Fill a cluster; then, fifty times a second, end a pod and add another one.

    ``reads`` holds other readers than callers, and ``cores`` further cores that they may ask. Another ask waits all the time. With
    ``settled``, nothing is measured before SETTLED_S: the core's first snapshot of all pods delays asks for 0.2 s, and would fall
    into some runs and not into others.
    """
    with server(before) as core, cores(core) as addresses, kept(client=True):
        waits, begun, cpu, answers = asyncio.run(
            _placing(workload, (reads or reading)(readers, addresses), core, settled=settled)
        )
        mib = peak_mib(core.pid)
    waits.sort()
    values = {
        "median wait": waits[len(waits) // 2],
        "99 of 100 waits": most_of(waits),
        "longest wait": waits[-1],
    }
    return Run(values, cpu, mib, answers, core.pace(begun, len(waits) / RATE))


async def _placing(
    workload: Workload, reads: AbstractContextManager[Process], core: Server, *, settled: bool
) -> tuple[list[float], float, float, str]:
    options = (("grpc.max_receive_message_length", MESSAGE_MAX),)
    filled = messages.churn(workload, 1, WARM_UP + min(ASKS, workload.asks))
    *standing, paced = json.loads(filled.as_json(core.pid))["steps"]
    async with grpc.aio.insecure_channel(core.address, options=options) as channel:
        player = Player(channel)
        for step in standing:
            await player.play(step)
        coming = [base64.b64decode(one) for one in paced["messages"]]
        waiting = si.AllocationRequest(rmID=RM, allocations=[large(workload, WAITING)])
        with reads as process:
            paced = paced | {"messages": [], "after": None, "until": 0}
            await player.play(paced | {"messages": [base64.b64encode(waiting.SerializeToString())]})
            await player.sent()
            if settled:
                await asyncio.sleep(SETTLED_S)
            await _at_rate(player, paced, coming[:WARM_UP])
            begun, cpu = time.time(), cpu_seconds(core.pid)
            waits = await _at_rate(player, paced, coming[WARM_UP:])
            cpu = cpu_seconds(core.pid) - cpu
            answers = _answers(process)
        await player.end()
    return waits, begun, cpu, answers


async def _at_rate(player: Player, paced: dict[str, Any], coming: Sequence[bytes]) -> list[float]:
    """Send a message every fiftieth of a second without waiting for the answers; return how long each answer took, in ms."""
    call = player.call(paced["method"])
    sent: list[float] = []
    waits: list[float] = []

    async def hear() -> None:
        while len(waits) < len(coming):
            for _ in range(await player.heard(call, paced)):
                waits.append(1_000 * (time.perf_counter() - sent[len(waits)]))

    hearing = asyncio.create_task(hear())
    begun = time.perf_counter()
    for number, message in enumerate(coming):
        await asyncio.sleep(max(0.0, begun + number / RATE - time.perf_counter()))
        sent.append(time.perf_counter())
        await call.write(message)
    await asyncio.wait_for(hearing, PATIENCE_S)
    return waits


@contextmanager
def reading(readers: Readers | None, address: str) -> Iterator[Process]:
    """Hold a process with readers while the block runs, if readers are given."""
    if readers is None:
        yield None
        return
    command = [sys.executable, "-m", "tests.bench.reading", address]
    with subprocess.Popen(
        [*command, readers.method, str(readers.callers)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=surroundings(),
    ) as process:
        assert process.stdin is not None
        process.stdin.write(len(readers.request).to_bytes(4, "big") + readers.request)
        process.stdin.flush()
        try:
            yield process
        finally:
            process.stdin.close()


def _answers(process: Process) -> str:
    """Return a line with the number of answers that the readers got."""
    if process is None:
        return ""
    said, _ = process.communicate(timeout=PATIENCE_S)
    return "readers: " + ", ".join(f"{much:,} {what}" for what, much in json.loads(said).items())
