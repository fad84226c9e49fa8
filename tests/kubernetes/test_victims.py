"""Victims on a real API server, ordered by a minimal fake core: what the shim does with its own rights."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from shim_client.bootstrap import make_shim, run_shim, wall_clock
from shim_client.config import Settings
from shim_client.core_client.address import CoreAddress
from shim_client.kubernetes.access import access_config, http_client
from shim_client.kubernetes.api import Api
from shim_client.kubernetes.cluster import KubernetesCluster
from si.v1 import si_pb2
from tests.kubernetes import objects
from tests.kubernetes.kube import Kube, Object, until
from tests.shim.fake_core import FakeCore

MARK = "evenhand.io/released-for"
pytestmark = pytest.mark.usefixtures("shim")
DECISION = "g-19aa1b2c3d4-17"
SECONDS_MAX = 30


@pytest.fixture
async def core() -> AsyncIterator[FakeCore]:
    made = FakeCore()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def shim(namespace: str, shim_kubeconfig: Path, core: FakeCore) -> AsyncIterator[None]:
    """Start a shim in this process, with the rights that deploy/ gives it."""
    api = Api(http_client(access_config(shim_kubeconfig, None)))
    cluster = KubernetesCluster(api, namespace, wall_clock())
    settings = Settings(cluster_id=namespace, namespace=namespace)
    task = asyncio.create_task(
        run_shim(make_shim(cluster, CoreAddress(f"127.0.0.1:{core.port}"), settings), cluster)
    )
    await soon(lambda: core.synced == 1 or task.done())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await cluster.close()


async def soon(condition: Callable[[], bool]) -> None:
    """Wait beside the shim; errors: TimeoutError."""
    await asyncio.to_thread(until, condition, SECONDS_MAX)


def release(uid: str, delivery: str = "delete") -> si_pb2.AllocationResponse:
    end = si_pb2.AllocationRelease(
        allocationKey=uid,
        terminationType="PREEMPTED_BY_SCHEDULER",
        message=f"queue root.b claims its guarantee, decision {DECISION}",
        decisionID=DECISION,
        nodes=["n1"],
        delivery=delivery,
    )
    return si_pb2.AllocationResponse(released=[end])


def requests(core: FakeCore) -> list[si_pb2.AllocationRequest]:
    return [one for one in core.messages if isinstance(one, si_pb2.AllocationRequest)]


def told(core: FakeCore, uid: str) -> si_pb2.Allocation:
    """Return the allocation that the core received last for a pod."""
    return core.allocations.get(uid, si_pb2.Allocation())


def budgets(core: FakeCore) -> list[int]:
    return [one.allowed for request in requests(core) for one in request.disruptionBudgets]


def ends(core: FakeCore) -> dict[str, Any]:
    return {
        end.allocationKey: end.terminationType
        for request in requests(core)
        for end in request.releases.allocationsToRelease
    }


def condition(kube: Kube, namespace: str, name: str) -> tuple[str, str]:
    """Return status and reason of a pod's DisruptionTarget, empty without one."""
    pod = kube.find("Pod", name, namespace) or {}
    for one in pod.get("status", {}).get("conditions") or []:
        if one["type"] == "DisruptionTarget":
            return one["status"], one["reason"]
    return "", ""


def marked(kube: Kube, namespace: str, name: str) -> bool:
    pod = kube.find("Pod", name, namespace)
    assert pod is not None
    return MARK in (pod["metadata"].get("annotations") or {})


def budget(of: str) -> Object:
    selector = {"matchLabels": {"app": "web"}}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": of},
        "spec": {"minAvailable": 1, "selector": selector},
    }


def allow(kube: Kube, namespace: str, count: int) -> None:
    """Write the budget's status as the disruption controller would; a real controller agrees with it."""
    said = {
        "observedGeneration": 1,
        "currentHealthy": 1 + count,
        "desiredHealthy": 1,
        "expectedPods": 2,
        "disruptionsAllowed": count,
    }
    patch = f"--patch={json.dumps({'status': said})}"
    done = kube.kubectl(
        "patch", "pdb", "web", f"-n={namespace}", "--subresource=status", "--type=merge", patch
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def running(kube: Kube, namespace: str) -> dict[str, str]:
    """Provide the uids of two running pods by name."""
    kube.create(*objects.nodes(1, namespace))
    label = {"app": "web"}
    made = kube.create(
        *objects.pods(2, namespace, "web", labels=label, nodeName=f"{namespace}-0"),
    )
    names = [pod["metadata"]["name"] for pod in made]
    until(
        lambda: all(
            (kube.find("Pod", name, namespace) or {})["status"]["phase"] == "Running"
            for name in names
        )
    )
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in made}


async def test_a_budget_that_refuses_is_a_veto_and_one_that_allows_lets_go(
    kube: Kube, namespace: str, running: dict[str, str], core: FakeCore
) -> None:
    victim = running["web-0"]
    kube.create(budget(namespace))
    await soon(lambda: bool(told(core, victim).disruptionGroups))
    assert set(budgets(core)) == {0}, "a budget that nobody has counted yet allows nothing"
    core.say("allocations", release(victim, "evict"))
    await soon(lambda: any(request.vetoes for request in requests(core)))
    [veto] = [veto for request in requests(core) for veto in request.vetoes]
    assert (veto.decisionID, veto.allocationKey) == (DECISION, victim)
    assert veto.reason.startswith("429 Cannot evict pod")
    gone = ("False", "PreemptionWithdrawn")
    await soon(lambda: condition(kube, namespace, "web-0") == gone)
    assert not marked(kube, namespace, "web-0")
    allow(kube, namespace, 1)
    await soon(lambda: budgets(core)[-1] == 1)
    core.say("allocations", release(victim, "evict"))
    await soon(lambda: ends(core).get(victim) == si_pb2.PREEMPTED_BY_SCHEDULER)
    assert kube.find("Pod", "web-0", namespace) is None
    assert kube.find("Pod", "web-1", namespace) is not None
    await soon(lambda: budgets(core)[-1] == 0)
    said = kube.kubectl("get", "events", f"-n={namespace}", "--field-selector=reason=Preempted")
    assert "root.b claims its guarantee" in said.stdout


async def test_a_pod_that_its_owner_deletes_is_told_as_going_while_it_ends(
    kube: Kube, namespace: str, running: dict[str, str], core: FakeCore
) -> None:
    kube.patch("Pod", "web-0", {"metadata": {"finalizers": ["evenhand.test/keep"]}}, namespace)
    kube.delete("Pod", "web-0", namespace)
    uid = running["web-0"]
    await soon(lambda: told(core, uid).HasField("releasing"))
    assert told(core, uid).releasing.decisionID == ""
    kube.patch("Pod", "web-0", {"metadata": {"finalizers": None}}, namespace)
    await soon(lambda: ends(core).get(uid) == si_pb2.STOPPED_BY_RM)


async def test_a_victim_whose_name_another_pod_has_is_not_touched(
    kube: Kube, namespace: str, running: dict[str, str], core: FakeCore
) -> None:
    """The watch tells of the new pod at any moment: what holds is the UID."""
    kube.delete("Pod", "web-0", namespace, grace_s=0)
    again = objects.pod("web-0", namespace, nodeName=f"{namespace}-0", labels={"app": "web"})
    [made] = kube.create(again)
    core.say("allocations", release(running["web-0"]))
    core.say("allocations", release(running["web-1"]))
    await soon(lambda: ends(core).get(running["web-1"]) == si_pb2.PREEMPTED_BY_SCHEDULER)
    await soon(lambda: running["web-0"] in ends(core))
    left = kube.find("Pod", "web-0", namespace)
    assert left is not None
    assert left["metadata"]["uid"] == made["metadata"]["uid"]
    assert "deletionTimestamp" not in left["metadata"]
    assert not marked(kube, namespace, "web-0")
