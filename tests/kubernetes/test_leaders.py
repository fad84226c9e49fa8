"""Two shims that elect one, on a real API server: killed, stopped and continued, cut off, and ended in order (design 7.2).

Nothing is bound twice, and nobody is evicted twice: counted from the API server's audit log. The seed of the random moments is
printed; EVENHAND_SEED sets one.
"""

import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from scripts.real.cluster import Cluster, free_ports
from tests.effort import TRIES_ALL
from tests.faults.journal import Line
from tests.faults.kubernetes import audit
from tests.kubernetes import objects
from tests.kubernetes.claims import Witness, is_healthy, true_of_cluster
from tests.kubernetes.kube import Kube, Object, until
from tests.kubernetes.proxy import Proxy
from tests.kubernetes.seen import placed
from tests.kubernetes.stack import Process, Stack, serves
from tests.kubernetes.test_kills import pause
from tests.kubernetes.test_kills_with_volumes import (
    LOW,
    QUEUES,
    known,
    low,
    spread,
    waiting_for_prod,
)

KILLS = 12 if TRIES_ALL else 3
NODES = 3
LEASE_S = 6.0
FAIL_OVER_S = LEASE_S + 1.0
BUSY_S = 8.0
"""Seconds that a busy machine may take longer."""
SETTLE_S = 180.0
QPS = 20
"""Requests a second of a shim: so few that a shim that is stopped while it binds many pods still has some to bind."""


class Pair:
    """A core and two shims, each with its own way to the API server."""

    def __init__(self, folder: Path, kubeconfigs: dict[str, Path], namespace: str) -> None:
        self.stack = Stack(folder, next(iter(kubeconfigs.values())), namespace)
        self.namespace = namespace
        self.shims: dict[str, Process] = {}
        self._folder, self._kubeconfigs = folder, kubeconfigs
        core, *ports = free_ports(1 + len(kubeconfigs))
        self.stack.address = f"127.0.0.1:{core}"
        self._health = {
            name: f"127.0.0.1:{port}" for name, port in zip(kubeconfigs, ports, strict=True)
        }

    def start(self) -> None:
        """Start the core and both shims, and wait until one leads and the other is ready to."""
        self.stack.start_core()
        for name in self._kubeconfigs:
            self.start_shim(name)
        until(self.is_whole, SETTLE_S)

    def start_shim(self, name: str) -> None:
        self.shims[name] = Process(
            [
                *("shim", "--kubernetes", "--elect", f"--instance={name}"),
                f"--kubeconfig={self._kubeconfigs[name]}",
                *(f"--namespace={self.namespace}", f"--core={self.stack.address}"),
                *(f"--health={self._health[name]}", f"--qps={QPS}", f"--burst={QPS}"),
            ],
            self.log_of(name),
        )

    def log_of(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def leader(self) -> str:
        """Return the name of the shim that leads and has told the core everything; empty while there is none."""
        return next((name for name in self.shims if serves(self._health[name], "leader")), "")

    def other(self) -> str:
        """Return the name of the shim that does not lead."""
        leader = self.leader()
        return next(name for name in self.shims if name != leader)

    def is_ready(self, name: str) -> bool:
        return serves(self._health[name], "readiness")

    def is_whole(self) -> bool:
        ended = [name for name, shim in self.shims.items() if not shim.is_running()]
        assert ended == [], self.told()
        return bool(self.leader()) and all(map(self.is_ready, self.shims))

    def stop(self) -> None:
        for shim in self.shims.values():
            shim.popen.send_signal(signal.SIGCONT)
            shim.end()
        self.stack.stop()

    def told(self) -> str:
        logs = (self.log_of(name).read_text().splitlines()[-30:] for name in self.shims)
        return "\n".join([self.stack.told(), *("\n".join(one) for one in logs)])


@pytest.fixture
def proxies(own: Cluster) -> Iterator[dict[str, Proxy]]:
    with ExitStack() as stack:
        yield {name: stack.enter_context(Proxy(own.port)) for name in ("one", "two")}


@pytest.fixture
def ways(
    own: Cluster, shim_kubeconfig: Path, proxies: dict[str, Proxy], tmp_path: Path
) -> dict[str, Path]:
    """Provide by name of the shim the kubeconfig that leads through its own proxy."""
    found = {}
    for name, proxy in proxies.items():
        (tmp_path / name).mkdir()
        found[name] = proxy.kubeconfig(own, shim_kubeconfig, tmp_path / name)
    return found


def make_nodes(kube: Kube, of: str) -> None:
    """Create nodes, the configuration and the priority class of `fill_nodes`."""
    kube.ensure(objects.priority_class(LOW, -5))
    nodes = objects.nodes(NODES, of, cpu="4500m")
    kube.create(objects.config_map(of, {"queues.yaml": QUEUES}), *nodes)


def fill_nodes(kube: Kube, of: str) -> None:
    """Fill the nodes with low pods, but for a little."""
    kube.create(*(low(f"b-{number}", of) for number in range(4 * NODES)))


@pytest.fixture
def pair(kube: Kube, namespace: str, ways: dict[str, Path], tmp_path: Path) -> Iterator[Pair]:
    """Provide a core and two shims on nodes that low pods fill, but for a little."""
    pair = Pair(tmp_path, ways, namespace)
    make_nodes(kube, namespace)
    try:
        pair.start()
        fill_nodes(kube, namespace)
        yield pair
    finally:
        pair.stop()
        print(pair.told())  # noqa: T201


def small(name: str, of: str) -> Object:
    """Return a pod that always has a place."""
    return objects.pod(
        name,
        of,
        labels={"applicationId": f"{of}-prod", "queue": "root.prod", "app": "prod"},
        requests={"cpu": "10m", "memory": "16Mi"},
    )


def seconds_to_placement(kube: Kube, of: str, name: str, began: float) -> float:
    """Create a pod, wait until it has a node, and return the seconds since the given instant."""
    kube.create(small(name, of))
    until(
        lambda: bool((kube.find("Pod", name, of) or {"spec": {}})["spec"].get("nodeName")), SETTLE_S
    )
    return time.monotonic() - began


def requests(own: Cluster, since_ms: int = 0) -> list[Line]:
    """Return the shims' requests that the API server received since an instant in Unix milliseconds."""
    every = audit.requests(audit.log_in(own.folder).read_text(), 0)
    return [one for one in every if one["at"] >= since_ms]


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def check(kube: Kube, pair: Pair, own: Cluster, witness: Witness) -> None:
    """Check that everything is placed and known, and that no pod was bound or ended twice."""
    of = pair.namespace
    until(lambda: pair.is_whole() and not waiting_for_prod(kube, of), SETTLE_S)
    until(lambda: known(pair.stack, of) == true_of_cluster(kube, of), SETTLE_S)
    assert witness.faults == []
    assert is_healthy(pair.stack)
    nothing_twice(kube, own, of)


def nothing_twice(kube: Kube, own: Cluster, of: str) -> None:
    """Check in the audit log that no pod of a namespace was bound or ended twice."""
    accepted = [one for one in requests(own) if one["accepted"] and one["key"]]
    binds, ends = (
        Counter(one["key"] for one in accepted if one["kind"] == kind) for kind in ("bind", "end")
    )
    assert {one["metadata"]["uid"] for one in kube.all("Pod", of)} & binds.keys()
    assert {uid: count for uid, count in binds.items() if count > 1} == {}
    assert {uid: count for uid, count in ends.items() if count > 1} == {}
    print(f"{len(binds)} bindings, {len(ends)} deletions")  # noqa: T201


def test_a_killed_leader_is_followed_after_its_lease(
    kube: Kube, own: Cluster, namespace: str, pair: Pair, chance: random.Random
) -> None:
    took = []
    with Witness(kube, namespace) as witness:
        for turn in range(KILLS):
            until(pair.is_whole, SETTLE_S)
            kube.create(
                *(spread(f"s-{turn}-{n}", namespace, chance.randint(500, 3_000)) for n in range(2))
            )
            pause(chance, 2.0)
            leader, other = pair.leader(), pair.other()
            killed = time.monotonic()
            pair.shims[leader].end(signal.SIGKILL)
            took.append(seconds_to_placement(kube, namespace, f"p-{turn}", killed))
            assert pair.leader() == other
            pair.start_shim(leader)
        check(kube, pair, own, witness)
    print("fail-over of the shim:", *(f"{one:.2f} s" for one in took))  # noqa: T201
    assert max(took) <= FAIL_OVER_S + BUSY_S
    assert min(took) >= 3.0, "nobody takes a lease that is held"


def test_a_leader_that_ends_in_order_is_followed_at_once(
    kube: Kube, own: Cluster, namespace: str, pair: Pair
) -> None:
    took = []
    with Witness(kube, namespace) as witness:
        for turn in range(3):
            until(pair.is_whole, SETTLE_S)
            leader = pair.leader()
            ended = time.monotonic()
            pair.shims[leader].popen.send_signal(signal.SIGTERM)
            took.append(seconds_to_placement(kube, namespace, f"p-{turn}", ended))
            assert pair.shims[leader].end_by_itself() == 0
            pair.start_shim(leader)
        check(kube, pair, own, witness)
    print("hand-over of the shim:", *(f"{one:.2f} s" for one in took))  # noqa: T201
    assert max(took) < LEASE_S


def test_a_leader_that_was_stopped_does_nothing_when_it_goes_on(
    kube: Kube, own: Cluster, namespace: str, pair: Pair, chance: random.Random
) -> None:
    """Stop a leader while it binds many pods, and let it go on after its successor has bound the others."""
    with Witness(kube, namespace) as witness:
        leader, other = pair.leader(), pair.other()
        with ThreadPoolExecutor(1) as aside:
            many = aside.submit(kube.create, *(small(f"m-{n}", namespace) for n in range(120)))
            until(lambda: any(name.startswith("m-") for name in placed(kube, namespace)))
            pause(chance, 0.5)
            pair.shims[leader].popen.send_signal(signal.SIGSTOP)
            many.result()
        assert waiting_for_prod(kube, namespace), "it was not done yet"
        kube.create(*(small(f"l-{number}", namespace) for number in range(20)))
        until(lambda: serves(pair._health[other], "leader"), SETTLE_S)
        until(lambda: not waiting_for_prod(kube, namespace), SETTLE_S)
        since = wall_ms()
        pair.shims[leader].popen.send_signal(signal.SIGCONT)
        until(lambda: "does not lead any more" in pair.log_of(leader).read_text(), SETTLE_S)
        until(pair.is_whole, SETTLE_S)
        assert pair.leader() == other
        assert requests(own, since) == []
        check(kube, pair, own, witness)


def test_a_leader_that_is_cut_off_stops_and_follows_again(
    kube: Kube, own: Cluster, namespace: str, pair: Pair, proxies: dict[str, Proxy]
) -> None:
    with Witness(kube, namespace) as witness:
        leader, other = pair.leader(), pair.other()
        kube.create(*(small(f"m-{number}", namespace) for number in range(30)))
        cut = time.monotonic()
        proxies[leader].part()
        took = seconds_to_placement(kube, namespace, "p", cut)
        assert pair.leader() == other
        assert "does not lead any more" in pair.log_of(leader).read_text()
        until(lambda: not waiting_for_prod(kube, namespace), SETTLE_S)
        since = wall_ms()
        proxies[leader].mend()
        until(pair.is_whole, SETTLE_S)
        assert pair.leader() == other
        assert requests(own, since) == []
        check(kube, pair, own, witness)
    print(f"fail-over after a partition: {took:.2f} s")  # noqa: T201
    assert took <= FAIL_OVER_S + BUSY_S
