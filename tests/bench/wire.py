"""The core behind gRPC: a server process and a client process on loopback, on separate processors.

Python runs one thread at a time, and gRPC's threads wake each other for each message. Waking a thread on another,
sleeping virtual processor takes longer than all other work. So the core gets one processor for itself, and the
client the others.
"""

import json
import os
import re
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from tests.bench.figures import most_of
from tests.bench.players import ROOT, Player, player, surroundings
from tests.bench.processes import child_of, peak_mib, resident_mib
from tests.bench.quiet import pace
from tests.bench.script import Played, Script

_ADDRESS = re.compile(rb"127\.0\.0\.1:\d+")
_CLIENT_TIMEOUT_S = 1_000


@dataclass(frozen=True, slots=True)
class WireFigure:
    """One run over the wire: the client's result, and the server's memory in MiB, at its peak and at the end."""

    played: Played
    server_mib: int
    resident_mib: int
    language: str
    pace: float
    """The mean seconds of a look in the server during the measurement (see `quiet`); 0 without looks."""
    aside_cpu: float = 0.0
    """CPU seconds of further processes from their start until they had done all work; 0 if there are none."""

    @property
    def client_share(self) -> float:
        """Return the client's share of a CPU; with a share close to 1, the measurement shows the client and not the core."""
        return self.played.client_cpu / self.played.seconds

    def values(self, placed: int) -> dict[str, float]:
        """Return the values by metric of a run that placed ``placed`` asks; those of waits only if the client measured waits."""
        seconds = self.played.seconds
        values = {
            "time": 1_000 * seconds,
            "placements": placed / seconds,
            "placed": placed,
            "resident memory": self.resident_mib,
        }
        if waits := sorted(self.played.waits_ms):
            values["median wait"] = statistics.median(waits)
            values["99 of 100 waits"] = most_of(waits)
        return values


@dataclass(slots=True)
class Server:
    """A core's process id and address; after its end, the instants and durations of its probe's looks."""

    pid: int
    address: str
    looks: Sequence[tuple[float, float]] = ()

    def pace(self, begun: float, seconds: float) -> float:
        """Return the mean seconds of a look in the server during the given time."""
        return pace([took for at, took in self.looks if begun <= at <= begun + seconds])


@contextmanager
def kept(*, client: bool, at: int = 0) -> Iterator[None]:
    """Bind the processes that the block starts to processor `at`, or, with `client`, to all other processors if there are any."""
    every = os.sched_getaffinity(0)
    first = sorted(every)[at % len(every)]
    os.sched_setaffinity(0, (every - {first} or every) if client else {first})
    try:
        yield
    finally:
        os.sched_setaffinity(0, every)


def _free(pid: int) -> None:
    """Let all threads of a process run on every processor.

    A profiler that had to wait for the core's processor would sample the core mostly when it is idle.
    """
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), os.sched_getaffinity(0))


@contextmanager
def server(
    before: Sequence[str] = (), options: Sequence[str] = (), at: int = 0
) -> Iterator[Server]:
    """Hold a core on a free loopback port while the block runs; a core behind a profiler's command has no probe.

    `options` are further options of the core, and `at` is the number of its processor.
    """
    evenhand = str(Path(sys.executable).with_name("evenhand"))
    command = [*before, evenhand] if before else [sys.executable, "-m", "tests.bench.served"]
    with kept(client=False, at=at):
        process = subprocess.Popen(
            [*command, "serve", "--listen", "127.0.0.1:0", *options],
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


def play(script: Script, core: Server, client: Player) -> Played:
    """Play a script against a core in a process of a client, which gets the processors of this one."""
    done = subprocess.run(
        [*client.command, core.address],
        input=script.as_json(core.pid),
        stdout=subprocess.PIPE,
        check=True,
        timeout=_CLIENT_TIMEOUT_S,
        cwd=ROOT,
        env=surroundings(),
    )
    return Played(**json.loads(done.stdout))


Beside = Callable[[Server], AbstractContextManager[object]]
"""A function that runs something beside a core while a script is played."""


def run(
    script: Script,
    who: Player | None = None,
    before: Sequence[str] = (),
    options: Sequence[str] = (),
    beside: Beside = nullcontext,
) -> WireFigure:
    """Play a script against a separate core with further options; a profiler's command can be put before the core's."""
    client = who or player()
    with server(before, options) as core, beside(core), kept(client=True):
        played = play(script, core, client)
        most, now = peak_mib(core.pid), resident_mib(core.pid)
    paced = core.pace(played.begun, played.seconds)
    return WireFigure(played, most, now, client.language, paced)
