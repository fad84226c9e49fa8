"""Core and shim killed while pods are evicted for pods with volumes and spread rules, counted from the API server's audit log.

The seed of the random moments is printed; EVENHAND_SEED sets one.
"""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.real.cluster import Cluster
from tests.effort import TRIES_ALL
from tests.faults.kubernetes import audit
from tests.kubernetes import objects
from tests.kubernetes.claims import Witness, is_healthy, known_to_core, true_of_cluster
from tests.kubernetes.kube import Kube, Object, until
from tests.kubernetes.stack import Stack
from tests.kubernetes.test_kills import kill, pause
from tests.kubernetes.test_volumes import (
    claim,
    local_volume,
    remove_volumes,
    storage_class,
    volume_controller,
    volumes_of,
)

KILLS_OF_EACH = 10 if TRIES_ALL else 3
NODES = 3
VOLUMES_EACH = 3
VOLUME_PODS = len(range(1, 2 * KILLS_OF_EACH, 4))
SETTLE_S = 180.0
LOW = "kills-with-volumes-low"
QUEUES = """
partitions:
  - name: default
    preemption: {backoff: 1s}
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: prod
            resources: {guaranteed: {vcore: 9}}
            properties: {preemption.delay: 1s}
          - {name: batch}
"""


@pytest.fixture
def log(own: Cluster) -> Path:
    return audit.log_in(own.folder)


def pod(name: str, of: str, queue: str, runs_ms: int = 0, **spec: object) -> Object:
    """Return a pod of one core in a queue; it ends after `runs_ms`, or never when that is 0."""
    return objects.pod(
        name,
        of,
        labels={"applicationId": f"{of}-{queue}", "queue": f"root.{queue}", "app": queue},
        annotations={"evenhand.test/runs-for": f"{runs_ms}ms"} if runs_ms else {},
        requests={"cpu": "1", "memory": "64Mi"},
        **spec,
    )


def with_volume(name: str, of: str) -> list[Object]:
    """Return a claim of a local volume, and a pod that mounts it and runs on."""
    mounts = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
    return [claim(name, of), pod(name, of, "prod", volumes=mounts)]


def spread(name: str, of: str, runs_ms: int) -> Object:
    return pod(name, of, "prod", runs_ms, **objects.spread_over_nodes("prod"))


@pytest.fixture
def full(kube: Kube, namespace: str, stack: Stack) -> Iterator[Stack]:
    """Core and shim on nodes that batch fills, with local volumes; volumes are removed afterwards."""
    of = namespace
    kube.ensure(objects.priority_class(LOW, -5))
    nodes = objects.nodes(NODES, of, cpu="4")
    volumes = [
        local_volume(of, node["metadata"]["name"], f"{10 + number}Gi")
        for node in nodes
        for number in range(VOLUMES_EACH)
    ]
    kube.create(objects.config_map(of, {"queues.yaml": QUEUES}), *nodes, storage_class(of))
    kube.create(*volumes)
    stack.start()
    kube.create(*(low(f"b-{number}", of) for number in range(4 * NODES)))
    yield stack
    remove_volumes(kube, of)


def low(name: str, of: str) -> Object:
    return pod(name, of, "batch", priorityClassName=LOW)


def test_nothing_is_bound_or_deleted_twice(
    kube: Kube, namespace: str, full: Stack, log: Path, chance: random.Random
) -> None:
    with volume_controller(kube, namespace), Witness(kube, namespace) as witness:
        live(kube, namespace, full, chance)
        until(lambda: full.is_ready() and not waiting_for_prod(kube, namespace), SETTLE_S)
        until(lambda: known(full, namespace) == true_of_cluster(kube, namespace), SETTLE_S)
    assert witness.faults == []
    assert is_healthy(full)
    check_volumes(kube, namespace)
    check_log(kube, namespace, log)


def live(kube: Kube, of: str, stack: Stack, chance: random.Random) -> None:
    """Kill core and shim, each KILLS_OF_EACH times, while pods of both queues arrive."""
    whom = [*["core"] * KILLS_OF_EACH, *["shim"] * KILLS_OF_EACH]
    chance.shuffle(whom)
    for turn, one in enumerate(whom):
        kube.create(spread(f"s-{turn}", of, chance.randint(500, 3_000)), low(f"c-{turn}", of))
        if turn % 4 == 1:
            kube.create(*with_volume(f"v-{turn // 4}", of))
        pause(chance, 2.0)
        kill(stack, one, chance)
        if chance.random() < 0.5:
            until(stack.is_ready)


def known(stack: Stack, of: str) -> dict[str, str]:
    """Return the node of each pod of both applications that the core has placed, by uid."""
    return known_to_core(stack, f"{of}-prod") | known_to_core(stack, f"{of}-batch")


def check_log(kube: Kube, of: str, log: Path) -> None:
    """Check the accepted requests of the shim: no pod was bound twice, or deleted twice."""
    mine = {one["metadata"]["uid"] for one in kube.all("Pod", of)}
    lines = [one for one in audit.requests(log.read_text(), 0) if one["accepted"]]
    binds = Counter(one["key"] for one in lines if one["kind"] == "bind" and one["key"])
    ends = Counter(one["key"] for one in lines if one["kind"] == "end" and one["key"])
    assert mine & binds.keys(), "the audit log has these pods"
    assert {uid: count for uid, count in binds.items() if count > 1} == {}
    assert {uid: count for uid, count in ends.items() if count > 1} == {}
    assert sum(ends.values()) >= VOLUME_PODS, "pods were evicted"
    print(f"{len(binds)} bindings, {len(ends)} deletions")  # noqa: T201


def waiting_for_prod(kube: Kube, of: str) -> list[str]:
    return [
        one["metadata"]["name"]
        for one in kube.all("Pod", of)
        if one["metadata"]["labels"]["app"] == "prod" and not one["spec"].get("nodeName")
    ]


def check_volumes(kube: Kube, of: str) -> None:
    """Check that each pod with a claim runs on the node of its volume, and that no volume has two claims."""
    owners = {
        one["spec"]["claimRef"]["name"]: one["metadata"]["name"]
        for one in volumes_of(kube, of)
        if one["spec"].get("claimRef")
    }
    found = {one["metadata"]["name"]: one["spec"].get("nodeName") for one in kube.all("Pod", of)}
    assert len(owners) == VOLUME_PODS
    for name, volume in owners.items():
        assert volume.startswith(f"{found[name]}-")
