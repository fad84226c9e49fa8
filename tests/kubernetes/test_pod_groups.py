"""PodGroups on a real API server with the feature gates of Kubernetes' own gangs (alpha in 1.36, beta in 1.37).

The API server first does not serve PodGroups, and the shim has the role of an earlier version; then both change.
"""

import json
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from scripts.real import provision
from scripts.real.cluster import Cluster
from tests.kubernetes import objects
from tests.kubernetes.conftest import DEPLOY
from tests.kubernetes.kube import Kube, until
from tests.kubernetes.seen import condition, placed
from tests.kubernetes.stack import Stack
from tests.kubernetes.test_preemption import stays
from tests.real.needs import absent

FIRST = 36
"""The minor version from which Kubernetes has PodGroups."""
MINOR = int(provision.kubernetes().removeprefix("1."))
GATES, API = (
    ("GenericWorkload=true,GangScheduling=true", "scheduling.k8s.io/v1alpha2")
    if MINOR == FIRST
    else ("GenericWorkload=true", "scheduling.k8s.io/v1beta1")
)
SERVED = (f"--feature-gates={GATES}", f"--runtime-config={API}=true")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    if os.environ.get("REAL_KUBECONFIG") or os.environ.get("KUBECONFIG"):
        pytest.skip("the feature gates of that cluster are not ours to choose")
    if MINOR < FIRST:
        pytest.skip(f"Kubernetes 1.{MINOR} has no PodGroups")
    if missing := provision.missing():
        absent(f"not built: {', '.join(missing)} (`make real` builds them)")
    return tmp_path / "cluster"


@pytest.fixture
def kube(folder: Path) -> Iterator[Kube]:
    """Provide an API server that serves no PodGroups, with the role of a shim that did not know them."""
    cluster = Cluster(folder)
    cluster.start()
    try:
        with closing(Kube(cluster.kubeconfig(), cluster)) as kube:
            for file in ("namespace.yaml", "rbac.yaml"):
                apply(kube, (DEPLOY / file).read_text().replace(", podgroups", ""))
            yield kube
    finally:
        cluster.stop()


@pytest.fixture
def shim_kubeconfig(kube: Kube, tmp_path: Path) -> Path:
    return kube.account("evenhand-shim", "evenhand", tmp_path)


def apply(kube: Kube, text: str) -> None:
    said = kube.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", given=text)
    assert said.returncode == 0, said.stderr


def serve(folder: Path) -> None:
    """Restart the API server so that it serves PodGroups."""
    cluster = Cluster(folder, SERVED)
    cluster.kill_api_server()
    cluster.start_api_server()


def create(kube: Kube, *items: dict[str, Any]) -> None:
    """Create objects as they are written; the other client of these tests leaves out fields that it does not know."""
    given = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    said = kube.kubectl("create", "--validate=false", "-f", "-", given=given)
    assert said.returncode == 0, said.stderr


def group(namespace: str, policy: dict[str, Any], name: str = "pg") -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    spec = {"schedulingPolicy": policy}
    return {"apiVersion": API, "kind": "PodGroup", "metadata": metadata, "spec": spec}


def members(
    count: int, namespace: str, prefix: str = "pod", of: str = "pg"
) -> list[objects.Object]:
    """Return pods of six cores that name a PodGroup."""
    named = {"schedulingGroup": {"podGroupName": of}}
    return objects.pods(count, namespace, prefix, requests={"cpu": "6"}, **named)


def test_kubernetes_own_gangs_are_placed_whole_once_they_are_served(
    kube: Kube, namespace: str, stack: Stack, folder: Path
) -> None:
    kube.create(*objects.nodes(5, namespace))
    stack.start()
    kube.create(objects.pod("plain", namespace))
    until(lambda: set(placed(kube, namespace)) == {"plain"})
    kube.delete("Pod", "plain", namespace, grace_s=0)

    serve(folder)
    create(kube, *members(9, namespace))
    until(lambda: all("not served" in message(kube, namespace, f"pod-{n}") for n in range(9)))
    assert placed(kube, namespace) == {}

    apply(kube, (DEPLOY / "rbac.yaml").read_text())
    create(kube, group(namespace, {"basic": {}}, "single"))
    until(lambda: all("is not there" in message(kube, namespace, f"pod-{n}") for n in range(9)))
    create(kube, *members(1, namespace, "single", of="single"))
    until(lambda: set(placed(kube, namespace)) == {"single-0"})
    kube.delete("Pod", "single-0", namespace, grace_s=0)

    create(kube, group(namespace, {"gang": {"minCount": 9}}))
    until(lambda: all("gang" in message(kube, namespace, f"pod-{n}") for n in range(9)))
    stays(lambda: placed(kube, namespace) == {})
    kube.create(*[objects.node(f"{namespace}-{n}", namespace) for n in range(5, 9)])
    until(lambda: len(placed(kube, namespace)) == 9)
    assert stack.evenhand("doctor").returncode == 0


def message(kube: Kube, namespace: str, name: str) -> str:
    return str(condition(kube, namespace, name).get("message", ""))
