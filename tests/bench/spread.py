"""Four partitions in one process, and spread over two processes on two processors (design 7.6).

Both runs place the same asks. With two processes, each has a client of its own, and the measurement lasts from the first start to
the last end.
"""

import json
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

from si.v1 import si_pb2 as si
from tests.bench import messages, wire
from tests.bench.figures import Run
from tests.bench.players import player
from tests.bench.processes import peak_mib, resident_mib
from tests.bench.script import Script, Step
from tests.bench.workloads import Workload, applications, queues_yaml

PARTITIONS = ("p0", "p1", "p2", "p3")
BATCH = 100


def placing(workload: Workload, processes: int, before: Sequence[str]) -> Run:
    """Place the asks of a workload in each of four partitions, in one process or in two; the workload is that of one partition."""
    if before:
        raise SystemExit("profile the cases of one partition instead")
    shares = [PARTITIONS[at::processes] for at in range(processes)]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        table = _table(Path(folder), shares)
        cores = [
            stack.enter_context(
                wire.server(options=("--cores", str(table), "--group", f"g{at}"), at=at)
            )
            for at in range(processes)
        ]
        client = player()
        clients = stack.enter_context(ThreadPoolExecutor(processes))
        jobs = [
            clients.submit(wire.play, script(workload, names), core, client)
            for names, core in zip(shares, cores, strict=True)
        ]
        played = [job.result() for job in jobs]
        peak = sum(peak_mib(core.pid) for core in cores)
        resident = sum(resident_mib(core.pid) for core in cores)
    begun = min(one.begun for one in played)
    seconds = max(one.begun + one.seconds for one in played) - begun
    placed = len(PARTITIONS) * workload.asks
    values = {
        "time": 1_000 * seconds,
        "placements": placed / seconds,
        "placed": placed,
        "resident memory": resident,
    }
    share = sum(one.client_cpu for one in played) / seconds
    note = f"clients in {client.language}: {share:.0%} of a core"
    paced = max(core.pace(begun, seconds) for core in cores)
    return Run(values, sum(one.server_cpu for one in played), peak, note, paced)


def _table(folder: Path, shares: Sequence[Sequence[str]]) -> Path:
    """Write the table of the groups; the cores read only the partitions in it."""
    rows = [
        {"name": f"g{at}", "addresses": [f"127.0.0.1:{at + 1}"], "partitions": [*names]}
        for at, names in enumerate(shares)
    ]
    path = folder / "cores.yaml"
    path.write_text(json.dumps({"cores": rows}))
    return path


def script(workload: Workload, partitions: Sequence[str]) -> Script:
    """Return the script that sends the asks of a workload to each of some partitions in turn, until the last placement."""
    one = messages.flood(workload, BATCH)
    before = one.steps[: one.measured]
    nodes, asks = before[1], one.steps[one.measured]
    many = len(partitions)
    steps = [
        messages.registered(_queues(workload), explicit_sync=True),
        _joined([_moved(nodes, name, _node) for name in partitions]),
        *(_moved(before[2], name, _application) for name in partitions),
        _synced(workload, many),
        _joined([_moved(asks, name, _ask) for name in partitions]),
    ]
    assert len(applications(workload)) == before[2].until
    return Script(steps, len(steps) - 1)


def _queues(workload: Workload) -> str:
    """Return a configuration with all partitions, each with the queues of the workload."""
    head, _, rest = queues_yaml(workload).partition("- name: default\n")
    return head + "".join(f"- name: {name}\n{rest}" for name in PARTITIONS)


def _synced(workload: Workload, partitions: int) -> Step:
    counts = si.SyncComplete(
        nodes=partitions * workload.nodes, applications=partitions * workload.applications
    )
    return messages.sync_ended(counts)


def _joined(steps: Sequence[Step]) -> Step:
    """Return one step with the messages of all steps, taken from each step in turn."""
    first = steps[0]
    mixed = list(chain.from_iterable(zip(*(one.messages for one in steps), strict=True)))
    until = sum(one.until for one in steps)
    return Step(first.method, mixed, first.counted, until, first.refused)


def _moved(step: Step, partition: str, move: Callable[[bytes, str], bytes]) -> Step:
    moved = [move(one, partition) for one in step.messages]
    return Step(step.method, moved, step.counted, step.until, step.refused)


def _node(message: bytes, partition: str) -> bytes:
    request = si.NodeRequest.FromString(message)
    for one in request.nodes:
        one.nodeID = f"{partition}-{one.nodeID}"
        one.attributes["evenhand.io/partition"] = partition
    return request.SerializeToString()


def _application(message: bytes, partition: str) -> bytes:
    request = si.ApplicationRequest.FromString(message)
    for one in request.new:
        one.applicationID = f"{partition}-{one.applicationID}"
        one.partitionName = partition
    return request.SerializeToString()


def _ask(message: bytes, partition: str) -> bytes:
    request = si.AllocationRequest.FromString(message)
    for one in request.allocations:
        one.allocationKey = f"{partition}-{one.allocationKey}"
        one.applicationID = f"{partition}-{one.applicationID}"
        one.partitionName = partition
    return request.SerializeToString()
