"""The processes of a run: the core, the proxy before it, the shim, and hostile clients. Each is ended by its id."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.bench.processes import resident_mib
from tests.cli.processes import environment
from tests.faults import counts
from tests.faults.cluster import FIRST, OPERATOR_TOKEN, QUEUES, SECOND, TOKENS

ROOT: Final = Path(__file__).parents[2]
READY_S: Final = 90.0
"""The longest time, in seconds, from a core's start to its open port on a busy machine."""
END_S: Final = 30.0
STOP_S: Final = 5.0
"""Maximum number of seconds until a signal has stopped a process."""
LOOK_S: Final = 0.02


def now_ms() -> int:
    """Return the machine's monotonic clock in milliseconds, which all journals use."""
    return time.monotonic_ns() // 1_000_000


def until(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait until a condition holds; return whether it held in time."""
    latest = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > latest:
            return False
        time.sleep(LOOK_S)
    return True


def free_port() -> int:
    """Return a loopback port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def started(module: str, *arguments: object, log: Path) -> subprocess.Popen[bytes]:
    """Start a module as a process; its output is appended to a file."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    with log.open("ab") as said:
        return subprocess.Popen(
            command, cwd=ROOT, env=environment(), stdout=said, stderr=said, stdin=subprocess.DEVNULL
        )


def ended(process: subprocess.Popen[bytes], number: int) -> int:
    """Send a signal, wait for the end and return the exit code; a process that does not end is killed."""
    if process.poll() is None:
        process.send_signal(number)
    try:
        return process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return -signal.SIGALRM


def is_stopped(process: subprocess.Popen[bytes]) -> bool:
    """Return whether the kernel holds a process stopped."""
    after_name = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2]
    return after_name.split()[0] == "T"


def catches(process: subprocess.Popen[bytes], number: int) -> bool:
    """Return whether a process has a function for a signal, so that the signal does not end it at once."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def stops(process: subprocess.Popen[bytes]) -> bool:
    """Stop a process, as a debugger or an overloaded machine does; return whether the kernel holds it stopped in time."""
    os.kill(process.pid, signal.SIGSTOP)
    return until(lambda: is_stopped(process), STOP_S)


@dataclass
class Files:
    """The files of a run. The faults of the disk concern the files on `disk`."""

    folder: Path
    queues: str = QUEUES

    def __post_init__(self) -> None:
        self.disk = self.folder / "disk"
        self.log = self.disk / "decisions.jsonl"
        self.journal = self.folder / "journal.jsonl"
        self.second_journal = self.folder / "second-journal.jsonl"
        self.journals = {FIRST.rm_id: self.journal, SECOND.rm_id: self.second_journal}
        self.codes = self.folder / "codes"
        self.core_said = self.folder / "core.log"
        self.others_said = self.folder / "others.log"
        self.disk_control = self.folder / "core.control"
        self.net_control = self.folder / "net.control"
        self.mode = self.folder / "mode"
        self.operator_token = self.folder / "operator.token"
        self.counts = self.folder / "counts"

    def make(self) -> None:
        """Make the files that the processes read."""
        self.disk.mkdir(exist_ok=True)
        for one in (self.disk_control, self.net_control, self.codes, *self.journals.values()):
            one.write_text("")
        self.mode.write_text("work")
        counts.make(self.counts)
        (self.folder / "queues.yaml").write_text(self.queues)
        tokens = self.folder / "tokens.yaml"
        tokens.write_text(TOKENS)
        self.operator_token.write_text(OPERATOR_TOKEN)
        for one in (tokens, self.operator_token):
            one.chmod(0o600)


def control(file: Path, faults: dict[str, int]) -> None:
    """Set all faults that are in force, at once."""
    new = file.with_suffix(".new")
    new.write_text(json.dumps(faults))
    new.replace(file)


@dataclass
class Core:
    """The core, which is started repeatedly, with one trace for each run and one decision log for all runs."""

    files: Files
    durable: bool
    port: int = field(default_factory=free_port)
    runs: int = 0
    exits: list[tuple[str, int]] = field(default_factory=list)
    """How each run was ended, and its exit code."""
    begun_ms: list[int] = field(default_factory=list)
    """The instants at which runs were started, except refused ones; at each of them, the previous run has ended."""
    process: subprocess.Popen[bytes] | None = None
    resident: list[tuple[int, int]] = field(default_factory=list)

    @property
    def traces(self) -> list[Path]:
        """Return the traces of all runs that began one."""
        paths = [self.files.folder / f"trace-{run}.jsonl" for run in range(1, self.runs + 1)]
        return [path for path in paths if path.exists() and path.stat().st_size]

    def start(self, memory_mib: int = 0) -> bool:
        """Start a run; return whether its port opened."""
        self.runs += 1
        before = self.files.core_said.stat().st_size if self.files.core_said.exists() else 0
        options = ["serve", "--listen", f"127.0.0.1:{self.port}"]
        options += ["--config", str(self.files.folder / "queues.yaml")]
        options += ["--tokens", str(self.files.folder / "tokens.yaml")]
        options += ["--decision-log", str(self.files.log)]
        options += ["--trace", str(self.files.folder / f"trace-{self.runs}.jsonl")]
        options += ["--durable"] if self.durable else []
        begun_ms = now_ms()
        self.process = started(
            "tests.faults.launcher",
            self.files.disk_control,
            self.files.counts,
            memory_mib,
            *options,
            log=self.files.core_said,
        )
        process = self.process

        def is_over() -> bool:
            said = self.files.core_said.read_bytes()[before:]
            return process.poll() is not None or b"listening on " in said

        until(is_over, READY_S)
        if process.poll() is not None:
            return False
        self.begun_ms.append(begun_ms)
        return True

    def end(self, how: str, number: int) -> None:
        """End the run by a signal."""
        if self.process is not None:
            self.exits.append((how, ended(self.process, number)))
            self.process = None

    def refused(self) -> None:
        """Record the exit code of a run that did not start."""
        if self.process is not None:
            self.end(
                "refused" if self.process.poll() is not None else "not refused", signal.SIGTERM
            )

    def sample(self) -> None:
        """Record the core's memory; if the core has ended by itself, record that."""
        if self.process is None:
            return
        if self.process.poll() is not None:
            self.end("by itself", signal.SIGKILL)
            return
        try:
            self.resident.append((now_ms(), resident_mib(self.process.pid)))
        except (OSError, StopIteration):
            return  # The process ends at this moment.

    def resume(self) -> None:
        """Let the process continue."""
        if self.process is not None:
            os.kill(self.process.pid, signal.SIGCONT)
