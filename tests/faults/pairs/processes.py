"""The processes of a run that are killed, each with the function that starts it.

Another kind of process needs only one more entry in the table of the run.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.faults.children import catches, ended, started, stops
from tests.faults.journal import Journal
from tests.faults.pairs.schedule import ENDED, KILLED, STARTING

SIGNALS: Final = {KILLED: signal.SIGKILL, ENDED: signal.SIGTERM}
LEASE: Final = ("--lease-duration=3s", "--lease-renew=1s", "--lease-margin=1s")
"""A short lease, so that many shims can be killed in a minute."""


@dataclass
class Child:
    """A process that is started repeatedly. It records how each of its runs ended."""

    name: str
    start_it: Callable[[], subprocess.Popen[bytes]]
    journal: Journal
    process: subprocess.Popen[bytes] | None = None
    exits: list[tuple[str, str, int]] = field(default_factory=list)
    """The name, how each run was ended, and its exit code."""
    is_paused: bool = False
    has_caught: bool = False
    """Whether this run was seen to have a function for SIGTERM. It has started then, and may not lose the function again."""

    @property
    def is_running(self) -> bool:
        """Return whether the process runs and is not stopped."""
        return self.process is not None and not self.is_paused

    def start(self) -> None:
        """Start a run."""
        assert self.process is None, self.name
        self.process, self.has_caught = self.start_it(), False
        self.journal.write("started", name=self.name)

    async def end(self, how: str) -> None:
        """End the run, and wait until it has ended."""
        process, self.process = self.process, None
        if process is not None:
            if self.is_paused:
                os.kill(process.pid, signal.SIGCONT)
                self.is_paused = False
            self.journal.write("ending", name=self.name, how=how)
            has_begun = self.has_caught or catches(process, signal.SIGTERM)
            is_starting = how == ENDED and not has_begun
            code = await asyncio.to_thread(ended, process, SIGNALS[how])
            self.exits.append((self.name, STARTING if is_starting else how, code))

    def look(self) -> None:
        """When the process has ended by itself, record that and start another run. Else look whether it has begun to work."""
        if self.process is None:
            return
        if self.process.poll() is not None:
            self.exits.append((self.name, "by itself", self.process.returncode))
            self.process = None
            self.start()
        elif not self.has_caught:
            self.has_caught = catches(self.process, signal.SIGTERM)

    def pause(self) -> None:
        """Stop the process."""
        assert self.process is not None
        self.is_paused = stops(self.process)

    def resume(self) -> None:
        """Let the process continue."""
        if self.process is not None and self.is_paused:
            os.kill(self.process.pid, signal.SIGCONT)
        self.is_paused = False


def core_command(folder: Path, port: int, way: tuple[str, str], *, durable: bool) -> list[str]:
    """Return the command line of a core whose state, decision log and history are in a folder.

    `way` is the option that names the other core, or the log.
    """
    folder.mkdir(parents=True, exist_ok=True)
    where = ["--listen", f"127.0.0.1:{port}", *way]
    files = ["--state-dir", str(folder), "--decision-log", str(folder / "decisions.jsonl")]
    return ["serve", *where, *files, *(["--durable"] if durable else [])]


def shim_command(name: str, kubeconfig: Path, cores: list[int]) -> list[str]:
    """Return the command line of a shim that stands for election."""
    addresses = ",".join(f"127.0.0.1:{port}" for port in cores)
    where = [f"--kubeconfig={kubeconfig}", "--namespace=evenhand", f"--core={addresses}"]
    return ["shim", "--kubernetes", "--elect", f"--instance={name}", *where, *LEASE]


def start_core(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a core."""
    return started("evenhand_cli", *command, log=log)


def start_engine(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a NATS server."""
    with log.open("ab") as said:
        return subprocess.Popen(command, stdout=said, stderr=said, stdin=subprocess.DEVNULL)


def start_shim(name: str, command: list[str], heard: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start a shim that writes the messages that it receives to a journal."""
    return started("tests.faults.pairs.shim", heard, name, *command, log=log)
