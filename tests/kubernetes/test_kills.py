"""Processes killed and connections cut at random moments: no pod is bound twice or forgotten, no node is over capacity.

The seed of the random moments is printed; EVENHAND_SEED sets one.
"""

import random
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scripts.real.cluster import Cluster
from tests.effort import cases
from tests.kubernetes import objects
from tests.kubernetes.claims import (
    Witness,
    is_healthy,
    known_to_core,
    node_of,
    running,
    true_of_cluster,
    waiting,
)
from tests.kubernetes.kube import Kube, until
from tests.kubernetes.proxy import Proxy
from tests.kubernetes.stack import Stack

KILLS = cases(30, 6)
CUTS = cases(12, 4)
SETTLE_S = 120.0


@pytest.fixture
def own(kube: Kube) -> Cluster:
    """Provide the cluster that the tests started, set up before the stack of a test that restarts it."""
    if kube.own is None:
        pytest.skip("the cluster is not ours to restart")
    return kube.own


@pytest.fixture
def busy(kube: Kube, namespace: str, stack: Stack) -> Iterator[Stack]:
    """Core and shim on a cluster that is too small for what will come, watched all the while."""
    kube.create(*objects.nodes(4, namespace, cpu="2"))
    stack.start()
    with Witness(kube, namespace) as witness:
        yield stack
        check_settled(kube, namespace, stack)
    assert witness.looks
    assert witness.faults == []


def check_settled(kube: Kube, namespace: str, stack: Stack) -> None:
    """Check that all pods are placed in the end, and that the core knows exactly the running ones."""
    until(lambda: stack.is_ready() and not waiting(kube.all("Pod", namespace)), SETTLE_S)
    until(lambda: known_to_core(stack, namespace) == true_of_cluster(kube, namespace))
    assert is_healthy(stack)


def wave(chance: random.Random, of: str, name: str) -> list[objects.Object]:
    """Return some pods: most end after a while, a few small ones run on."""
    pods = []
    for number in range(chance.randint(3, 8)):
        runs = {"evenhand.test/runs-for": f"{chance.randint(300, 4000)}ms"}
        stays = chance.random() < 0.1
        cpu = "50m" if stays else f"{chance.choice((250, 500, 750, 1000))}m"
        requests = {"cpu": cpu, "memory": "64Mi"}
        annotations = {} if stays else runs
        pods.append(objects.pod(f"{name}-{number}", of, requests=requests, annotations=annotations))
    return pods


def pause(chance: random.Random, seconds: float) -> None:
    """Wait for a random time, so that the kill after it comes at a random moment."""
    threading.Event().wait(chance.uniform(0, seconds))


def delete_one(kube: Kube, namespace: str, chance: random.Random) -> None:
    """Delete a random pod, running or waiting, in three of ten calls, as a user might."""
    pods = kube.all("Pod", namespace)
    if pods and chance.random() < 0.3:
        kube.delete("Pod", chance.choice(pods)["metadata"]["name"], namespace)


def test_kills_at_random_moments(
    kube: Kube, namespace: str, busy: Stack, chance: random.Random
) -> None:
    kills = turn = 0
    while kills < KILLS:
        kube.create(*wave(chance, namespace, f"w{turn}"))
        delete_one(kube, namespace, chance)
        pause(chance, 1.0)
        turn += 1
        kills += kill(busy, chance.choice(("core", "shim", "both")), chance)
        if chance.random() < 0.5:
            until(busy.is_ready)


def kill(stack: Stack, whom: str, chance: random.Random) -> int:
    """Kill and restart processes, and return how many were killed."""
    assert stack.shim is not None
    assert stack.shim.is_running(), "a shim outlives its core"
    if whom != "core":
        stack.kill_shim()
    if whom != "shim":
        stack.kill_core()
        pause(chance, 0.5)
        stack.start_core()
    if whom != "core":
        pause(chance, 0.5)
        stack.start_shim()
    return 2 if whom == "both" else 1


def test_the_api_server_killed_and_started_again(
    own: Cluster, kube: Kube, namespace: str, busy: Stack, chance: random.Random
) -> None:
    for turn in range(3):
        kube.create(*wave(chance, namespace, f"a{turn}"))
        pause(chance, 1.0)
        own.kill_api_server()
        pause(chance, 2.0)
        own.start_api_server()
        kube.create(*wave(chance, namespace, f"b{turn}"))
    assert busy.shim is not None
    assert busy.shim.is_running(), "a shim outlives the API server"


@pytest.fixture
def proxied(
    own: Cluster, namespace: str, shim_kubeconfig: Path, tmp_path: Path
) -> Iterator[tuple[Proxy, Stack]]:
    """Provide core and shim, not started yet, with a proxy before the API server that may be cut."""
    with Proxy(own.port) as proxy:
        stack = Stack(tmp_path, proxy.kubeconfig(own, shim_kubeconfig, tmp_path), namespace)
        yield proxy, stack
        stack.stop()
        print(stack.told())  # noqa: T201


def test_cut_watches(
    kube: Kube, namespace: str, proxied: tuple[Proxy, Stack], chance: random.Random
) -> None:
    proxy, stack = proxied
    kube.create(*objects.nodes(4, namespace, cpu="2"))
    stack.start()
    with Witness(kube, namespace) as witness:
        cuts = cut_often(proxy, lambda name: kube.create(*wave(chance, namespace, name)), chance)
        check_settled(kube, namespace, stack)
    assert cuts >= CUTS, "there was something to cut"
    assert witness.faults == []


def cut_often(proxy: Proxy, more: Callable[[str], object], chance: random.Random) -> int:
    cuts = 0
    for turn in range(CUTS):
        more(f"c{turn}")
        pause(chance, 1.0)
        cuts += proxy.cut()
    return cuts


def test_a_resource_version_that_is_too_old(
    own: Cluster, kube: Kube, namespace: str, busy: Stack, chance: random.Random
) -> None:
    """What the shim slept through is gone from the history when it asks: it has to list again."""
    assert busy.shim is not None
    kube.create(*wave(chance, namespace, "before"))
    until(lambda: bool(running(kube.all("Pod", namespace))))
    version = kube.version()
    busy.shim.popen.send_signal(signal.SIGSTOP)
    own.kill_api_server()
    own.start_api_server()
    for pod in kube.all("Pod", namespace):
        if node_of(pod):
            kube.delete("Pod", pod["metadata"]["name"], namespace)
    kube.create(*wave(chance, namespace, "meanwhile"))
    own.forget_history()
    assert kube.is_too_old(version)
    busy.shim.popen.send_signal(signal.SIGCONT)
