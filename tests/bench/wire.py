"""The core behind gRPC: a server process and a client process on loopback."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.bench.preemption import Cluster
from tests.bench.workloads import Workload

_ADDRESS = re.compile(rb"127\.0\.0\.1:\d+")
_CLIENT_TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class WireFigure:
    """One run over the wire; seconds of wall and of CPU on either side, memory of the server in MiB."""

    seconds: float
    client_cpu: float
    server_cpu: float
    server_mib: int


@dataclass(frozen=True, slots=True)
class Preempted:
    """So many claims served or victims announced; milliseconds of wall, and of the server's CPU."""

    count: int
    wall_ms: float
    server_cpu_ms: float


@contextmanager
def server() -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A core on a free loopback port, ended by its process at the end."""
    evenhand = Path(sys.executable).with_name("evenhand")
    process = subprocess.Popen(
        [str(evenhand), "serve", "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process, _address(process)
    finally:
        process.terminate()
        process.communicate(timeout=60)


def _address(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if found := _ADDRESS.search(line):
            return found[0].decode()
    raise RuntimeError("the core ended before it listened")


def run(workload: Workload, batch: int) -> WireFigure:
    """All asks in messages of ``batch``, as fast as the stream takes them."""
    with server() as (process, address):
        answer = _client(address, {"workload": asdict(workload), "batch": batch, "mode": "flood"})
        cpu, mib = usage(process.pid)
    return WireFigure(answer["seconds"], answer["client_cpu"], cpu, mib)


def ping(workload: Workload) -> list[float]:
    """One ask at a time: the milliseconds that each waited, ascending."""
    with server() as (_, address):
        order = {"workload": asdict(workload), "batch": 1, "mode": "ping"}
        return sorted(_client(address, order)["waits_ms"])


def preempt(cluster: Cluster, mode: str) -> Preempted:
    """Claims that are confirmed at once ("claims"), or a maximum that is lowered ("quota")."""
    with server() as (process, address):
        order = {"cluster": asdict(cluster), "mode": mode, "pid": process.pid}
        return Preempted(**_client(address, order, "tests.bench.preempting"))


def _client(address: str, order: Mapping[str, Any], module: str = "tests.bench.client") -> Any:
    done = subprocess.run(
        [sys.executable, "-m", module, address],
        input=json.dumps(order).encode(),
        stdout=subprocess.PIPE,
        check=True,
        timeout=_CLIENT_TIMEOUT_S,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([".", "gen"])},
    )
    return json.loads(done.stdout)


def usage(pid: int) -> tuple[float, int]:
    """CPU seconds so far and peak memory in MiB of a living process, as the kernel accounts them."""
    ticks = os.sysconf("SC_CLK_TCK")
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    peak = next(
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )
    return (int(stat[11]) + int(stat[12])) / ticks, int(peak.split()[1]) >> 10
