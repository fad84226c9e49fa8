"""The core behind gRPC: a server process and a client process on loopback."""

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

    @property
    def client_share(self) -> float:
        """Of a CPU's time, what the client took: the nearer to 1, the more it is the client that is measured."""
        return self.played.client_cpu / self.played.seconds


@contextmanager
def server(before: Sequence[str] = ()) -> Iterator[tuple[int, str]]:
    """The process id and the address of a core on a free loopback port, ended at the end."""
    evenhand = Path(sys.executable).with_name("evenhand")
    process = subprocess.Popen(
        [*before, str(evenhand), "serve", "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=surroundings(),
    )
    try:
        address = _address(process)
        pid = child_of(process.pid) if before else process.pid
        yield pid, address
        os.kill(pid, signal.SIGTERM)
        process.communicate(timeout=60)
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
    """Plays a script to a core of its own, with a profiler's command before it."""
    client = who or player()
    with server(before) as (pid, address):
        done = subprocess.run(
            [*client.command, address],
            input=script.as_json(pid),
            stdout=subprocess.PIPE,
            check=True,
            timeout=_CLIENT_TIMEOUT_S,
            cwd=ROOT,
            env=surroundings(),
        )
        most, now = peak_mib(pid), resident_mib(pid)
    return WireFigure(Played(**json.loads(done.stdout)), most, now, client.language)
