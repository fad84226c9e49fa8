"""An API server, its users and operators, and the real shim between it and the core."""

import json
import random
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

from scripts.real.cluster import Cluster
from tests.cli.processes import finished
from tests.faults.children import Files, started
from tests.faults.cluster import FIRST
from tests.faults.evidence import Evidence
from tests.faults.journal import Journal, read
from tests.faults.kubernetes import audit
from tests.faults.kubernetes.evidence import ClusterEvidence, Waiting
from tests.faults.kubernetes.load import NAMESPACE, TURN_S, Operators, Users, node
from tests.faults.kubernetes.queues import queues
from tests.faults.kubernetes.truth import Truth, watch
from tests.kubernetes import objects
from tests.kubernetes.conftest import DEPLOY
from tests.kubernetes.kube import Kube

APPLY_S: Final = 4
"""Maximum number of seconds to apply a configuration, because a stopped core does not answer."""


class KubernetesWorld:
    """All parts of a run except the core and the faults."""

    def __init__(self, files: Files, core_port: int, seed: int) -> None:
        self._files, self._core_port, self._seed = files, core_port, seed
        self._folder = files.folder / "cluster"
        self._folder.mkdir()
        self._cluster = Cluster(self._folder, audit.flags(self._folder))
        self._shims: list[subprocess.Popen[bytes]] = []
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._account = self._folder / "evenhand-shim.kubeconfig"
        self._token = files.folder / "shim.token"
        self._end = ClusterEvidence(Evidence())

    def begin(self, stack: ExitStack) -> None:
        """Start the API server with its nodes, and watch it. Raise ClusterFault if it does not start."""
        stack.callback(self._stop.set)
        self._cluster.start()
        kube = self._kube()
        for file in ("namespace.yaml", "rbac.yaml"):
            said = kube.kubectl("apply", "--server-side", "-f", str(DEPLOY / file))
            assert said.returncode == 0, said.stderr
        kube.account("evenhand-shim", "evenhand", self._folder)
        kube.create(objects.namespace(NAMESPACE))
        kube.ensure(objects.service_account("default", NAMESPACE))
        self._journal = Journal(self._files.journal)
        self.truth = Truth(self._journal)
        watch(self._kube(), "Pod", NAMESPACE, self.truth)
        watch(self._kube(), "Node", "", self.truth)
        for name in FIRST.nodes:
            kube.create(node(name))
        self._token.write_text(FIRST.token)
        self._token.chmod(0o600)
        self._begin_work()

    def _kube(self) -> Kube:
        """Return a new connection, because each thread needs its own."""
        return Kube(self._cluster.kubeconfig(), self._cluster)

    def _begin_work(self) -> None:
        self._users = Users(
            self._kube(), self.truth, self._files.mode, random.Random(f"{self._seed}/users")
        )
        self._operators = Operators(
            self._kube(),
            self.truth,
            self._journal,
            self._apply,
            random.Random(f"{self._seed}/operators"),
            self._stop,
        )
        self._thread(self._use)
        self._thread(self._operators.run)

    def _thread(self, work: Callable[[], None]) -> None:
        """Start a thread. If it ends too early, record that for the judge."""

        def guarded() -> None:
            try:
                work()
            except Exception as error:
                self._journal.write("blind", why=repr(error))

        self._threads.append(threading.Thread(target=guarded, daemon=True))
        self._threads[-1].start()

    def _use(self) -> None:
        number = 0
        while True:
            number += 1
            self._users.turn(number)
            time.sleep(TURN_S)

    def shim(self, port: int) -> subprocess.Popen[bytes]:
        """Start the real shim with the service account that deploy/ defines."""
        words = ["shim", "--kubernetes", f"--kubeconfig={self._account}", "--namespace=evenhand"]
        words += [f"--core=127.0.0.1:{port}", f"--token-file={self._token}"]
        shim = started("evenhand_cli", *words, log=self._files.others_said)
        self._shims.append(shim)
        return shim

    def look(self) -> bool:
        """Return whether core and API server agree, all placeable pods are placed, and the other pods say why they wait."""
        self._stop.set()
        if not (self._operators.is_over.is_set() and self._users.is_settling):
            return False
        alive = self.truth.alive()
        if not all(pod.told if pod.impossible else pod.node for pod in alive):
            return False
        end = self._end
        end.core_says = {one["allocation_key"]: one["node_id"] for one in self._allocations()}
        end.api_says = {pod.key: pod.node for pod in self.truth.alive() if pod.node}
        end.waiting = [
            Waiting(pod.name, pod.impossible, pod.told, self._asked("explain", pod.key))
            for pod in alive
            if pod.impossible
        ]
        end.configuration = self._asked("config", "show")
        return end.core_says == end.api_says

    def _allocations(self) -> list[dict[str, Any]]:
        said = self._asked("allocations", "--output=json")
        found: list[dict[str, Any]] = json.loads(said)["allocations"] if said else []
        return found

    def _asked(self, *words: str) -> str:
        """Return the output of a command about the core; empty when the command fails."""
        said = self._evenhand(*words)
        return "" if said.returncode else said.stdout

    def _evenhand(self, *words: str) -> subprocess.CompletedProcess[str]:
        token = self._files.operator_token
        where = (f"--core=127.0.0.1:{self._core_port}", f"--token-file={token}")
        return finished(*words, *where)

    def _apply(self, cores: int) -> int:
        """Apply the configuration that gives `low` this number of cores, and return the exit code."""
        file = self._files.folder / "changed.yaml"
        file.write_text(queues(cores))
        return self._evenhand("config", "apply", str(file), f"--timeout={APPLY_S}").returncode

    def collected(self, run: Evidence) -> ClusterEvidence:
        """End the cluster and return all evidence."""
        lines = list(read(self._files.journal))
        self._cluster.kill_api_server()  # An orderly end would wait until the watches end.
        self._cluster.stop()
        wall_ahead_ms = (time.time_ns() - time.monotonic_ns()) // 1_000_000
        asked = audit.requests(audit.log_in(self._folder).read_text(), wall_ahead_ms)
        journal = audit.merged(lines, asked, self.truth.marks)
        run.journal = list(audit.with_sessions(journal, run))
        self._end.run = run
        killed, last = self._shims[:-1], self._shims[-1]
        self._end.shim_exits = [
            *(("killed", shim.returncode) for shim in killed),
            ("at the end", last.returncode),
        ]
        return self._end
