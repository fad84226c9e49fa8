"""The core behind gRPC: a server process and a client process on loopback, each on processors of its own.

Python runs one thread at a time, and gRPC's wake each other for each message: from one virtual processor to another
that sleeps this takes longer than all the rest. So the core gets one processor for itself, the client the others.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.players import ROOT, Player, player, surroundings
from tests.bench.processes import child_of, peak_mib, resident_mib
from tests.bench.quiet import pace
from tests.bench.script import Played, Script

_ADDRESS = re.compile(rb"127\.0\.0\.1:\d+")
_CLIENT_TIMEOUT_S = 1_000


@dataclass(frozen=True, slots=True)
class WireFigure:
    """One run over the wire: what the client answers, and the memory of the server in MiB: the most that it had, and at the end."""

    played: Played
    server_mib: int
    resident_mib: int
    language: str
    pace: float
    """The pace of the server during the measurement, by which its neighbours disturbed it; 0 without looks."""

    @property
    def client_share(self) -> float:
        """Return the client's share of a CPU: the nearer to 1, the more the client itself is measured."""
        return self.played.client_cpu / self.played.seconds


@dataclass(slots=True)
class Server:
    """A core's process id and address, and at its end what its probe saw: instants, and seconds of a look."""

    pid: int
    address: str
    looks: Sequence[tuple[float, float]] = ()

    def pace(self, begun: float, seconds: float) -> float:
        """Return how busy the server's neighbours were for so many seconds."""
        return pace([took for at, took in self.looks if begun <= at <= begun + seconds])


@contextmanager
def kept(*, client: bool) -> Iterator[None]:
    """Hold processes started meanwhile on the first processor, or those of a client on the others, if any."""
    every = os.sched_getaffinity(0)
    first = min(every)
    os.sched_setaffinity(0, (every - {first} or every) if client else {first})
    try:
        yield
    finally:
        os.sched_setaffinity(0, every)


def _free(pid: int) -> None:
    """Let all threads of a process run on every processor.

    A profiler that waits for the core's processor would see the core mostly when it rests.
    """
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), os.sched_getaffinity(0))


@contextmanager
def server(before: Sequence[str] = ()) -> Iterator[Server]:
    """Hold a core on a free loopback port until the block ends; one behind a profiler's command has no probe."""
    evenhand = str(Path(sys.executable).with_name("evenhand"))
    command = [*before, evenhand] if before else [sys.executable, "-m", "tests.bench.served"]
    with kept(client=False):
        process = subprocess.Popen(
            [*command, "serve", "--listen", "127.0.0.1:0"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=surroundings(),
        )
    try:
        address = _address(process)
        found = Server(process.pid, address)
        if before:
            found.pid = child_of(process.pid)
            _free(process.pid)
        yield found
        os.kill(found.pid, signal.SIGTERM)
        said, _ = process.communicate(timeout=60)
        if not before:
            found.looks = json.loads(said.splitlines()[-1])
    finally:
        process.kill()
        process.wait()


def _address(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if found := _ADDRESS.search(line):
            return found[0].decode()
    raise RuntimeError("the core ended before it listened")


def run(script: Script, who: Player | None = None, before: Sequence[str] = ()) -> WireFigure:
    """Play a script to a core of its own, with a profiler's command before it."""
    client = who or player()
    with server(before) as core, kept(client=True):
        done = subprocess.run(
            [*client.command, core.address],
            input=script.as_json(core.pid),
            stdout=subprocess.PIPE,
            check=True,
            timeout=_CLIENT_TIMEOUT_S,
            cwd=ROOT,
            env=surroundings(),
        )
        most, now = peak_mib(core.pid), resident_mib(core.pid)
    played = Played(**json.loads(done.stdout))
    paced = core.pace(played.begun, played.seconds)
    return WireFigure(played, most, now, client.language, paced)
