"""The day of a company, played on a core, a shim and a console: a restart, claims, a gang, a lowered max, an opt-out."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlencode
from urllib.request import urlopen

from evenhand.v1 import history_pb2, history_pb2_grpc, inspect_pb2
from evenhand_cli.connect import Core, connected_core
from evenhand_cli.contexts import Context
from evenhand_cli.faults import Fault
from scripts.real.cluster import free_ports
from tests.cli.processes import ROOT, SECONDS_MAX, environment, finished, until
from tests.console.record import asks_and_pods, decisions
from tests.pictures.clock import BEGAN, FAST_S, passed_s

FOLDER: Final = Path(__file__).parent
PODS: Final = {"batch": 45, "film": 28, "research": 4}
WAIT: Final = inspect_pb2.ALLOCATION_STATE_WAITING


class Scene:
    """The processes, and the events of the day."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self._began = time.monotonic()
        core, console, cluster = free_ports(3)
        self.core, self._cluster = f"127.0.0.1:{core}", f"127.0.0.1:{cluster}"
        self.console = f"127.0.0.1:{console}"
        state = folder / "state"
        state.mkdir()
        self._serve = ["serve", "--listen", self.core, "--state-dir", str(state)]
        self._serve += ["--history-sample", "500ms"]

    def start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a process on the fast clock, which ends with the scene."""
        log = (self._folder / f"{name}.log").open("wb")
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.pictures.clock", *arguments],
            cwd=ROOT,
            env=environment() | {BEGAN: str(self._began), "TZ": "UTC"},
            stdout=log,
            stderr=log,
        )
        self._stack.callback(log.close)
        self._stack.callback(process.wait, SECONDS_MAX)
        self._stack.callback(process.terminate)
        return process

    def play(self) -> None:
        """Play the day up to the instant of the pictures."""
        core = self.start("core", *self._serve)
        with connected_core(Context(core=self.core), "", SECONDS_MAX) as asked:
            self.start(
                *("shim", "shim", "--cluster", str(FOLDER / "company"), "--core", self.core),
                *("--cluster-listen", self._cluster, "--state", str(self._folder / "kept")),
            )
            until(lambda: _has(asked, sum(PODS.values())))
            self._pass(240)
            core.send_signal(signal.SIGKILL)
            core.wait()
        self._pass(300)
        self.start("core-again", *self._serve)
        with connected_core(Context(core=self.core), "", SECONDS_MAX) as asked:
            until(lambda: _has(asked, sum(PODS.values())))
            self._events(asked)
        self.start("console", "console", "--core", self.core, "--listen", self.console)
        until(self._has_console)

    def _has_console(self) -> bool:
        try:
            with urlopen(f"http://{self.console}/healthz", timeout=SECONDS_MAX) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _events(self, core: Core) -> None:
        self._pass(1500)
        self._apply("web")
        until(lambda: _running(core, "storefront") == 22)
        self._pass(2400)
        self._apply("training")
        until(lambda: _running(core, "train") == 6)
        self._pass(3600)
        lowered = self._folder / "queues.yaml"
        text = (FOLDER / "company" / "queues.yaml").read_text()
        lowered.write_text(text.replace("max: {vcore: 64}", "max: {vcore: 48}"))
        self._command("config", "apply", str(lowered), "--core", self.core)
        self._command(
            *("cluster", "scale", "deployment", "render", "--replicas", "31"),
            *("--namespace", "film", "--address", self._cluster),
        )
        self._pass(4200)
        self._apply("search")
        until(lambda: _running(core, "search") == 10 and not decisions(core, open_only=True))
        self._pass(FAST_S)

    def _apply(self, name: str) -> None:
        file = FOLDER / "events" / f"{name}.yaml"
        self._command("cluster", "apply", str(file), "--address", self._cluster)

    def _command(self, *words: str) -> None:
        said = finished(*words)
        assert said.returncode == 0, said.stderr + said.stdout

    def _pass(self, seconds: float) -> None:
        """Wait until the clock shows this number of seconds since the beginning of the day."""
        until(lambda: passed_s(time.monotonic() - self._began) >= seconds)


@contextmanager
def played(folder: Path) -> Iterator[Scene]:
    """Play the day, and keep its processes while the block runs."""
    with ExitStack() as stack:
        scene = Scene(folder, stack)
        scene.play()
        yield scene


def paths(core: str) -> dict[str, str]:
    """Return the path of each page that needs parameters, with the objects that it shows in the picture."""
    with connected_core(Context(core=core), "", SECONDS_MAX) as asked:
        waits = (one for one in asks_and_pods(asked) if one.state == WAIT)
        waiting = next(one for one in waits if "search" in one.name)
        chosen = max(decisions(asked), key=lambda one: (len(one.victims), one.decision_id))
        past = history_pb2_grpc.HistoryServiceStub(asked.channel)
        first = asked.ask(past.ListConfigurations, history_pb2.ListConfigurationsRequest())
        revision = str(first.configurations[1].revision)
    return {
        "queue": _path("/queue", queue="root.batch"),
        "why": _path("/why", key=waiting.allocation_key),
        "decision": _path("/decision", id=chosen.decision_id),
        "configurations": _path("/configurations", revision=revision),
        "tenant": _path("/tenant", queue="root.batch"),
    }


def _path(path: str, **parameters: str) -> str:
    return f"{path}?{urlencode(parameters)}"


def _has(core: Core, number: int) -> bool:
    """Return whether the core is there and this number of pods run."""
    try:
        return _running(core) == number
    except Fault:
        return False


def _running(core: Core, name: str = "") -> int:
    """Return the number of running pods, of all workloads or of the named one."""
    return sum(
        one.state == inspect_pb2.ALLOCATION_STATE_ALLOCATED and name in {"", one.application_id}
        for one in asks_and_pods(core)
    )
