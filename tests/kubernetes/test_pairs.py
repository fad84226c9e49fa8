"""Two cores that follow each other and two shims that elect one, on a real API server, killed in random order.

Nothing is bound twice, and nobody is evicted twice: counted from the API server's audit log. The seed is printed;
EVENHAND_SEED sets one. `tests/faults/pairs` makes many more kills, without a real API server.
"""

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.real.cluster import Cluster, free_ports
from tests.effort import TRIES_ALL
from tests.faults.pairs.schedule import FOLLOWER, LEADING_CORE, LEADING_SHIM, ROLES
from tests.kubernetes.claims import Witness, is_healthy, true_of_cluster
from tests.kubernetes.kube import Kube, until
from tests.kubernetes.stack import Process, Stack, run, serves
from tests.kubernetes.test_kills import pause
from tests.kubernetes.test_kills_with_volumes import known, spread, waiting_for_prod
from tests.kubernetes.test_leaders import SETTLE_S, fill_nodes, make_nodes, nothing_twice, small

ROUNDS = 3 if TRIES_ALL else 1
"""Rounds in each of which every role is killed once."""


class Pairs:
    """Two cores and two shims, which may be killed and started again."""

    def __init__(self, folder: Path, kubeconfig: Path, namespace: str) -> None:
        self._folder, self._kubeconfig, self._namespace = folder, kubeconfig, namespace
        addresses = [f"127.0.0.1:{port}" for port in free_ports(4)]
        self.cores = dict(zip(("core-1", "core-2"), addresses[:2], strict=True))
        self._health = dict(zip(("shim-1", "shim-2"), addresses[2:], strict=True))
        self.stack = Stack(folder, kubeconfig, namespace)
        self.stack.address = ",".join(self.cores.values())
        self._running: dict[str, Process] = {}

    def start(self, name: str) -> None:
        """Start a process, without waiting until it is ready."""
        log = self._folder / f"{name}.log"
        if name in self.cores:
            (other,) = {*self.cores.values()} - {self.cores[name]}
            serve = ("serve", "--listen", self.cores[name], "--follow", other)
            files = ("--state-dir", str(self._folder / name))
            (self._folder / name).mkdir(exist_ok=True)
            self._running[name] = Process([*serve, *files], log)
            return
        self._running[name] = Process(
            [
                *("shim", "--kubernetes", "--elect", f"--instance={name}"),
                *(f"--kubeconfig={self._kubeconfig}", f"--namespace={self._namespace}"),
                *(f"--core={self.stack.address}", f"--health={self._health[name]}"),
                *("--lease-duration=3s", "--lease-renew=1s"),
            ],
            log,
        )

    def start_all(self) -> None:
        """Start everything, and wait until it works."""
        for name in (*self.cores, *self._health):
            self.start(name)
        until(self.is_whole, SETTLE_S)

    def state(self, core: str) -> str:
        """Return whether a core leads or follows; empty when it does not answer."""
        said = run("replication", f"--core={self.cores[core]}")
        if said.stdout.startswith("this core decides"):
            return LEADING_CORE
        return FOLLOWER if "level" in said.stdout else ""

    def with_role(self, role: str) -> str:
        """Return the process that has a role."""
        if role in {LEADING_CORE, FOLLOWER}:
            return next(core for core in self.cores if self.state(core) == role)
        leads = next(name for name, port in self._health.items() if serves(port, "leader"))
        (warm,) = self._health.keys() - {leads}
        return leads if role == LEADING_SHIM else warm

    def is_whole(self) -> bool:
        """Return whether one core leads and the other is level, and one shim leads and the other is ready to."""
        health = self._health.values()
        return (
            sum(serves(one, "leader") for one in health) == 1
            and all(serves(one, "readiness") for one in health)
            and {self.state(core) for core in self.cores} == {LEADING_CORE, FOLLOWER}
        )

    def kill(self, name: str) -> None:
        """Kill a process and start another one."""
        self._running[name].end(signal.SIGKILL)
        self.start(name)

    def stop(self) -> None:
        """End everything, the shims first."""
        for name in sorted(self._running, reverse=True):
            self._running[name].end()

    def told(self) -> str:
        """Return the end of what each process said."""
        logs = (self._folder / f"{name}.log" for name in self._running)
        return "\n".join(line for log in logs for line in log.read_text().splitlines()[-30:])


@pytest.fixture
def pairs(kube: Kube, namespace: str, shim_kubeconfig: Path, tmp_path: Path) -> Iterator[Pairs]:
    """Provide both pairs on nodes that low pods fill, but for a little."""
    pairs = Pairs(tmp_path, shim_kubeconfig, namespace)
    make_nodes(kube, namespace)
    try:
        pairs.start_all()
        fill_nodes(kube, namespace)
        yield pairs
    finally:
        pairs.stop()
        print(pairs.told())  # noqa: T201


def test_kills_of_both_pairs(
    own: Cluster, kube: Kube, namespace: str, pairs: Pairs, chance: random.Random
) -> None:
    with Witness(kube, namespace) as witness:
        for turn in range(ROUNDS):
            for number, role in enumerate(chance.sample(ROLES, len(ROLES))):
                name = f"{turn}-{number}"
                kube.create(spread(f"s-{name}", namespace, chance.randint(500, 3_000)))
                pause(chance, 1.5)
                until(pairs.is_whole, SETTLE_S)
                pairs.kill(pairs.with_role(role))
                kube.create(small(f"p-{name}", namespace))
        until(lambda: pairs.is_whole() and not waiting_for_prod(kube, namespace), SETTLE_S)
        until(lambda: known(pairs.stack, namespace) == true_of_cluster(kube, namespace), SETTLE_S)
    assert witness.faults == []
    assert is_healthy(pairs.stack)
    nothing_twice(kube, own, namespace)
