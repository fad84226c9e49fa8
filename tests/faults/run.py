"""One run: processes, faults in the order of the schedule, a quiet end, and the evidence for the judge."""

import errno
import os
import resource
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Final, Protocol

from server.record.verify import files_of, lines_of, verify
from tests.cli.processes import finished
from tests.faults.children import (
    Core,
    Files,
    control,
    ended,
    free_port,
    now_ms,
    started,
    stops,
)
from tests.faults.cluster import FIRST, SECOND
from tests.faults.counts import Counts
from tests.faults.effects import CORE_AWAY, EFFECTS, has_struck
from tests.faults.evidence import Evidence, Replay, Window, log_parts
from tests.faults.journal import read, truth_of
from tests.faults.operator import Operator
from tests.faults.schedule import DISK, Fault

DISK_MIB: Final = 16
SMALL_MIB: Final = 1_100
"""Address space of a core under a memory limit."""
SETTLE_S: Final = 60.0
CLOCK_MS: Final = 7_200_000
SLOW_MS: Final = 80
LOOK_S: Final = 0.05


def has_placed(journal: Path) -> bool:
    """Return whether a pod was placed."""
    return any(line["kind"] == "placed" for line in read(journal))


class World(Protocol):
    """The users of a run's core: shims and their pods."""

    def begin(self, stack: ExitStack) -> None:
        """Start everything except the shim that suffers faults; the core runs already."""

    def shim(self, port: int) -> subprocess.Popen[bytes]:
        """Start the shim that suffers faults; it reaches the core through this port."""

    def look(self) -> bool:
        """Return whether everything is settled; called repeatedly after the last fault."""


class Harness:
    """A world without an API server: two harness shims, whose journals are the true state."""

    def __init__(self, files: Files, core_port: int, seed: int) -> None:
        self._files, self._core_port, self._seed = files, core_port, seed

    def begin(self, stack: ExitStack) -> None:
        """Start the shim of the second manager."""
        stack.callback(ended, self._started(SECOND.rm_id, self._core_port), signal.SIGKILL)

    def shim(self, port: int) -> subprocess.Popen[bytes]:
        """Start the shim of the first manager."""
        return self._started(FIRST.rm_id, port)

    def _started(self, rm_id: str, port: int) -> subprocess.Popen[bytes]:
        files = self._files
        arguments = (rm_id, port, files.folder, self._seed)
        return started("tests.faults.shim", *arguments, log=files.others_said)

    def look(self) -> bool:
        """Return whether every pod was placed and has ended."""
        return not any(truth_of(read(journal)).pods for journal in self._files.journals.values())


class Run:
    """The processes of a run, and what the driver observed."""

    def __init__(self, folder: Path, seed: int, *, durable: bool) -> None:
        self.files = Files(folder)
        self.seed = seed
        self.core = Core(self.files, durable)
        self.world: World = Harness(self.files, self.core.port, seed)
        self.windows: list[Window] = []
        self.pauses_ms = 0
        self._proxy_port = free_port()
        self._shim: subprocess.Popen[bytes] | None = None
        self._net: dict[str, int] = {}
        self._operator = Operator(self.files, self.core.port)
        self._seen: Counter[str] = Counter()
        """What the driver itself observed of the effect of the present fault."""

    def evidence(self, faults: list[Fault]) -> Evidence:
        """Run everything and return the evidence; all processes are ended, whatever happens."""
        with ExitStack() as stack:
            stack.callback(self._end_all)
            self._begin(stack)
            for fault in faults:
                self._wait(fault.calm_ms)
                self._inject(fault)
            self.files.mode.write_text("settle")
            began = now_ms()
            settled = self._until(self.world.look, SETTLE_S)
            settling_ms = now_ms() - began
            doctor = self._doctor()
            self.core.end("at the end", signal.SIGTERM)
        return self._collected(settled=settled, settling_ms=settling_ms, doctor=doctor)

    def _begin(self, stack: ExitStack) -> None:
        self.files.make()
        self._counts = Counts(self.files.counts)
        disk = str(self.files.disk)
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "none", disk], check=True
        )
        self._restart()
        ports = (self._proxy_port, self.core.port)
        proxy = started(
            "tests.faults.proxy",
            *ports,
            self.files.net_control,
            self.files.counts,
            log=self.files.others_said,
        )
        stack.callback(ended, proxy, signal.SIGKILL)
        self.world.begin(stack)
        self._start_shim()
        self._until(lambda: all(map(has_placed, self.files.journals.values())), 60)

    def put_away(self) -> None:
        """Copy the files on the run's disk to `records` and unmount it, because it ends with the namespace."""
        records = self.files.folder / "records"
        shutil.copytree(self.files.disk, records, dirs_exist_ok=True)
        subprocess.run(["umount", "--lazy", str(self.files.disk)], check=False)

    def _end_all(self) -> None:
        if self._shim is not None:
            ended(self._shim, signal.SIGTERM)
        self.core.end("cleared away", signal.SIGKILL)

    def _start_shim(self) -> None:
        self._shim = self.world.shim(self._proxy_port)

    def _restart(self, memory_mib: int = 0) -> None:
        if not self.core.start(memory_mib):
            self.core.refused()

    def _wait(self, milliseconds: int) -> None:
        latest = now_ms() + milliseconds
        self._until(lambda: now_ms() >= latest, milliseconds / 1000 + 60)

    def _until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait for a condition, sample the core meanwhile, and add up the time in which this process itself was not running."""
        latest = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > latest:
                return False
            before = now_ms()
            time.sleep(LOOK_S)
            self.pauses_ms += max(0, now_ms() - before - int(LOOK_S * 2_000))
            self.core.sample()
        return True

    def _inject(self, fault: Fault) -> None:
        """Put a fault in force for its time and until it has taken effect; its window ends when the core is back."""
        began = now_ms()
        self._seen = Counter({CORE_AWAY: int(self.core.process is None)})
        counts, exits = self._counts.read(), len(self.core.exits)
        applied = len(self._operator.applied)

        def seen() -> Counter[str]:
            ended_so = Counter(f"{how} {code}" for how, code in self.core.exits[exits:])
            answered = Counter({"configurations applied": len(self._operator.applied) - applied})
            return self._seen + (self._counts.read() - counts) + ended_so + answered

        if fault.kind in DISK:
            self.files.mode.write_text("claims")
        beside = self._operator.applying() if fault.apply_amid else nullcontext()
        with beside, FAULTS[fault.kind](self, fault):
            self._until(lambda: has_struck(fault.kind, seen()), EFFECTS[fault.kind].within_s)
            self._wait(fault.lasts_ms // 2)
            if fault.kill_amid:
                self.core.end("killed", signal.SIGKILL)
            self._wait(fault.lasts_ms // 2)
            found = seen()
        self.files.mode.write_text("work")
        if self.core.process is None:
            self._restart()
        if self._operator.applied and exits < len(self.core.exits) and self.core.process:
            self._operator.look()
        self.windows.append(Window(fault.kind, began, now_ms(), found))

    @contextmanager
    def configuration(self, _fault: Fault) -> Iterator[None]:
        """Let an operator apply a configuration and read the answer."""
        with self._operator.applying():
            pass
        yield

    def _doctor(self) -> tuple[int, str]:
        token = str(self.files.operator_token)
        where = ("--core", f"127.0.0.1:{self.core.port}", "--token-file", token)
        said = finished("doctor", *where)
        return said.returncode, said.stdout + said.stderr

    def _collected(self, *, settled: bool, settling_ms: int, doctor: tuple[int, str]) -> Evidence:
        files = files_of(self.files.log)
        return Evidence(
            journal=list(read(self.files.journal)),
            second_journal=list(read(self.files.second_journal)),
            windows=self.windows,
            pauses_ms=self.pauses_ms,
            settled=settled,
            settling_ms=settling_ms,
            verified=verify(files),
            log=log_parts(line.written for line in lines_of(files)),
            begun_ms=self.core.begun_ms,
            applied=self._operator.applied,
            in_force=self._operator.in_force,
            durable=self.core.durable,
            replays=self._replays(),
            exits=self.core.exits,
            resident_mib=self.core.resident,
            core_said=self.files.core_said.read_text(errors="replace"),
            others_said=self.files.others_said.read_text(errors="replace"),
            codes=self.files.codes.read_text().splitlines(),
            doctor=doctor,
        )

    def _replays(self) -> list[Replay]:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(self._replay, self.core.traces))

    def _replay(self, trace: Path) -> Replay:
        said = finished("replay", str(trace), "--compare", str(self.files.log))
        return Replay(trace.name, said.returncode, said.stdout + said.stderr)

    @contextmanager
    def governed(self, **faults: int) -> Iterator[None]:
        """Apply faults of the core's disk and clock while the block runs."""
        control(self.files.disk_control, faults)
        yield
        control(self.files.disk_control, {})

    @contextmanager
    def full(self, _fault: Fault) -> Iterator[None]:
        """Fill the disk completely while the block runs."""
        filler = self.files.disk / "filler"
        with filler.open("wb", buffering=0) as file:
            try:
                for size in (1 << 16, 1):
                    self._fill(file.write, size)
                yield
            finally:
                filler.unlink()

    def _fill(self, write: Callable[[bytes], int], size: int) -> None:
        """Write until the disk is full, but at most `size` bytes, so that no other disk is ever filled."""
        try:
            for _ in range((DISK_MIB << 20) // size + 1):
                write(bytes(size))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
        else:
            raise RuntimeError("the filler is not on the disk of the run")

    @contextmanager
    def read_only(self, _fault: Fault) -> Iterator[None]:
        """Start a core whose disk is read-only: it refuses to start, and starts when the disk is writable."""
        self.core.end("ended", signal.SIGTERM)
        disk = str(self.files.disk)
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        self.core.start()
        self.core.refused()
        subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
        self._restart()
        yield

    @contextmanager
    def stopped_core(self, _fault: Fault) -> Iterator[None]:
        """Stop the core."""
        self._seen["core stopped"] += self.core.process is not None and stops(self.core.process)
        yield
        self.core.resume()

    @contextmanager
    def small_core(self, _fault: Fault) -> Iterator[None]:
        """Start the core again under a memory limit."""
        self.core.end("ended", signal.SIGTERM)
        self._restart(SMALL_MIB)
        if self.core.process is not None:
            found = resource.prlimit(self.core.process.pid, resource.RLIMIT_AS)
            self._seen["core limited"] += found[0] == SMALL_MIB << 20
        yield
        self.core.end("ended", signal.SIGTERM)

    @contextmanager
    def wrong_clock(self, fault: Fault) -> Iterator[None]:
        """Start the core again with a wrong clock, and once more with the correct one."""
        shift = CLOCK_MS if fault.lasts_ms % 2 else -CLOCK_MS
        with self.governed(clock_ms=shift):
            self.core.end("killed", signal.SIGKILL)
            self._restart()
            yield
        self.core.end("killed", signal.SIGKILL)

    @contextmanager
    def killed_shim(self, _fault: Fault) -> Iterator[None]:
        """Kill the shim; a new one reads the true state from the journal."""
        assert self._shim is not None
        self._seen["shim killed"] += ended(self._shim, signal.SIGKILL) == -signal.SIGKILL
        yield
        self._start_shim()

    @contextmanager
    def stopped_shim(self, _fault: Fault) -> Iterator[None]:
        """Stop the shim."""
        assert self._shim is not None
        self._seen["shim stopped"] += stops(self._shim)
        yield
        self._shim.send_signal(signal.SIGCONT)

    @contextmanager
    def net(self, **faults: int) -> Iterator[None]:
        """Apply faults of the network between shim and core; `cut` and `half` are counters that only grow."""
        counted = {name: self._net.get(name, 0) + faults.get(name, 0) for name in ("cut", "half")}
        self._net = counted
        control(self.files.net_control, {**faults, **counted})
        yield
        control(self.files.net_control, counted)

    @contextmanager
    def hostile(self, fault: Fault) -> Iterator[None]:
        """Run a hostile client while the block runs."""
        kind = fault.kind.removeprefix("hostile-")
        seed = self.seed + len(self.windows)
        arguments = (kind, self.core.port, seed, self.files.codes, self.files.counts)
        client = started("tests.faults.hostile", *arguments, log=self.files.others_said)
        try:
            yield
        finally:
            ended(client, signal.SIGKILL)

    @contextmanager
    def selectors(self, _fault: Fault) -> Iterator[None]:
        """Let each of a tenant's pods have a different node selector while the block runs."""
        self.files.mode.write_text("selectors")
        yield

    @contextmanager
    def gone_core(self, fault: Fault) -> Iterator[None]:
        """Kill or end the core; it is started again at the end of the block."""
        if fault.kind == "core-killed":
            self.core.end("killed", signal.SIGKILL)
        else:
            self.core.end("ended", signal.SIGTERM)
        yield


FAULTS: Final[dict[str, Callable[[Run, Fault], AbstractContextManager[None]]]] = {
    "disk-full": Run.full,
    "disk-slow": lambda run, _: run.governed(write_ms=SLOW_MS),
    "disk-failing": lambda run, fault: run.governed(
        errno=errno.EIO if fault.lasts_ms % 2 else errno.EROFS
    ),
    "disk-read-only": Run.read_only,
    "core-killed": Run.gone_core,
    "core-ended": Run.gone_core,
    "core-stopped": Run.stopped_core,
    "core-small": Run.small_core,
    "shim-killed": Run.killed_shim,
    "shim-stopped": Run.stopped_shim,
    "clock-ahead": lambda run, _: run.governed(clock_ms=CLOCK_MS),
    "clock-behind": lambda run, _: run.governed(clock_ms=-CLOCK_MS),
    "clock-wrong-at-start": Run.wrong_clock,
    "net-slow": lambda run, _: run.net(delay_ms=100),
    "net-narrow": lambda run, _: run.net(bytes_per_s=20_000),
    "net-stalled": lambda run, _: run.net(stalled=1),
    "net-cut": lambda run, _: run.net(cut=1),
    "net-half-closed": lambda run, _: run.net(half=1),
    "hostile-bytes": Run.hostile,
    "hostile-refused": Run.hostile,
    "hostile-reads": Run.hostile,
    "hostile-deaf": Run.hostile,
    "hostile-configurations": Run.hostile,
    "hostile-raw": Run.hostile,
    "hostile-selectors": Run.selectors,
    "config-applied": Run.configuration,
}
