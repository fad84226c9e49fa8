"""A core and a shim in separate processes, which a test may kill and start again."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from scripts.real.cluster import free_ports
from tests.cli.processes import line_of
from tests.kubernetes.kube import until

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 60.0
LOG_LINES = 40
COMMAND = (sys.executable, "-m", "evenhand_cli")


class Process:
    """A command of `evenhand` that runs; each start appends to its log."""

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        self.log = log
        with log.open("a") as errors:
            self.popen = subprocess.Popen(
                [*COMMAND, *arguments],
                cwd=ROOT,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def line(self) -> str:
        """Return the next line that the process prints; empty when it has ended or prints nothing in time."""
        return line_of(self.popen).strip()

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """End the process if it runs, and return its exit code."""
        if self.popen.poll() is None:
            self.popen.send_signal(how)
        try:
            self.popen.communicate(timeout=SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.communicate()
        return self.popen.returncode

    def end_by_itself(self) -> int:
        """Wait until the process ends by itself, and return its exit code."""
        until(lambda: not self.is_running())
        return self.end()

    def is_running(self) -> bool:
        return self.popen.poll() is None


class Stack:
    """Core and shim of one test. The ports stay the same over restarts."""

    def __init__(self, folder: Path, kubeconfig: Path, namespace: str) -> None:
        self._folder, self.kubeconfig, self._namespace = folder, kubeconfig, namespace
        self.address, self.health = (f"127.0.0.1:{port}" for port in free_ports(2))
        self.core: Process | None = None
        self.shim: Process | None = None

    def start_core(self) -> None:
        """Start a core, and wait until it listens."""
        self.core = Process(["serve", "--listen", self.address], self._folder / "core.log")
        assert self.core.line() == f"listening on {self.address}", self.told()

    def start_shim(self, *options: str) -> None:
        """Start a shim, without waiting until it is ready."""
        self.shim = Process(
            [
                *("shim", "--kubernetes", f"--kubeconfig={self.kubeconfig}"),
                *(f"--namespace={self._namespace}", f"--core={self.address}"),
                *(f"--health={self.health}", *options),
            ],
            self._folder / "shim.log",
        )

    def start(self) -> None:
        """Start both, and wait until the core knows the whole cluster."""
        self.start_core()
        self.start_shim()
        until(self.is_ready, SECONDS_MAX)

    def is_ready(self) -> bool:
        """Return whether the shim reports that the core knows everything. Fails when the shim has ended."""
        assert self.shim is not None
        assert self.shim.is_running(), self.told()
        return serves(self.health, "readiness")

    def kill_core(self) -> None:
        """Kill the core with SIGKILL."""
        assert self.core is not None
        self.core.end(signal.SIGKILL)

    def kill_shim(self) -> None:
        """Kill the shim with SIGKILL."""
        assert self.shim is not None
        self.shim.end(signal.SIGKILL)

    def stop(self) -> None:
        """End shim and core with SIGTERM, the shim first."""
        for process in (self.shim, self.core):
            if process is not None:
                process.end()

    def evenhand(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run one command of the command line against this core."""
        return run(*words, f"--core={self.address}")

    def told(self) -> str:
        """Return the end of both logs."""
        parts: list[str] = []
        for log in (self._folder / "core.log", self._folder / "shim.log"):
            lines = log.read_text().splitlines() if log.exists() else []
            parts.extend((f"--- {log}", *lines[-LOG_LINES:], ""))
        return "\n".join(parts)


def serves(address: str, service: str) -> bool:
    """Return whether a health port reports the service as serving; the request is that of a Kubernetes probe."""
    question = health_pb2.HealthCheckRequest(service=service)
    with grpc.insecure_channel(address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(
            channel
        )  # The library's type annotations declare no methods for this stub.
        try:
            answer = stub.Check(question, timeout=1)
        except grpc.RpcError:
            return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run one command of `evenhand` to its end."""
    return subprocess.run(
        [*COMMAND, *words],
        cwd=ROOT,
        env=environment() | variables,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


def environment() -> dict[str, str]:
    """Return the environment with the sources on Python's path, and without the caller's own settings."""
    own = ("EVENHAND_", "KUBECONFIG", "NAMESPACE")
    given = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    paths = os.pathsep.join((str(ROOT), str(ROOT / "gen")))
    return given | {"PYTHONPATH": paths, "NO_COLOR": "1", "COLUMNS": "160"}
