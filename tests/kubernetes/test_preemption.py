"""Preemption on a real API server with kwok as kubelet: which pods are evicted, which stay, and what is recorded on them."""

import json
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.kubernetes import objects
from tests.kubernetes.kube import Kube, Object, until
from tests.kubernetes.stack import Stack

DELAY_S = 2
QUIET_S = 4.0
"""The time in which nothing more may happen: more than delay and back-off of these queues together."""
KEEP = "evenhand.test/keep"
MARK = "evenhand.io/released-for"
OPT_OUT = {"yunikorn.apache.org/allow-preemption": "false"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
QUEUES = """
partitions:
  - name: default
    preemption: {{quotapreemptionenabled: true, backoff: 1s{partition}}}
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: prod
            resources: {{guaranteed: {{vcore: 4}}}}
            properties: {{preemption.delay: 1s}}
          - name: batch
            resources: {{max: {{vcore: {most}}}}}
            properties: {{quota.preemption.delay: {delay}s}}
          - {{name: system}}
"""


def queues(*, most: int = 100, partition: str = "") -> dict[str, str]:
    return {"queues.yaml": QUEUES.format(most=most, partition=partition, delay=DELAY_S)}


def pods(count: int, of: str, queue: str, **given: Any) -> list[Object]:
    """Return pods of one core in a queue, `QUEUE-0` and on."""
    labels = {"applicationId": f"{of}-{queue}", "queue": f"root.{queue}", **given.pop("labels", {})}
    prefix = given.pop("prefix", queue)
    return objects.pods(count, of, prefix, labels=labels, requests={"cpu": "1"}, **given)


def alive(kube: Kube, namespace: str) -> set[str]:
    """Return the names of the pods that have a node and are not being deleted."""
    return {
        pod["metadata"]["name"]
        for pod in kube.all("Pod", namespace)
        if pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp")
    }


def running(kube: Kube, namespace: str) -> Counter[str]:
    """Return the number of these pods by the first part of their names."""
    return Counter(name.split("-")[0] for name in alive(kube, namespace))


def events(kube: Kube, namespace: str, reason: str) -> dict[str, str]:
    """Return the last message of a reason by pod."""
    found = [one for one in kube.all("Event", namespace) if one["reason"] == reason]
    return {one["involvedObject"]["name"]: one["message"] for one in found}


def told(kube: Kube, namespace: str, reason: str, count: int) -> dict[str, str]:
    """Return the last message of a reason by pod, once `count` pods have one.

    Events are written in a lane of their own, after the changes that they report.
    """
    until(lambda: len(events(kube, namespace, reason)) >= count)
    found = events(kube, namespace, reason)
    assert len(found) == count
    return found


def stays(condition: Callable[[], bool]) -> None:
    """Assert that a condition holds for QUIET_S."""
    end = time.monotonic() + QUIET_S
    while time.monotonic() < end:
        assert condition()
        time.sleep(0.2)


@pytest.fixture
def full(kube: Kube, namespace: str, stack: Stack) -> Stack:
    """Provide a stack of two nodes of four cores, which batch has filled with pods of low priority."""
    kube.ensure(objects.priority_class("preemption-low", -5))
    kube.create(objects.config_map(namespace, queues()))
    kube.create(*objects.nodes(2, namespace, cpu="4"))
    stack.start()
    kube.create(*pods(8, namespace, "batch", priorityClassName="preemption-low"))
    until(lambda: running(kube, namespace) == {"batch": 8})
    return stack


def test_a_queue_under_its_guarantee_gets_its_share_of_a_full_cluster(
    kube: Kube, namespace: str, full: Stack
) -> None:
    kube.create(*pods(6, namespace, "prod"))
    until(lambda: running(kube, namespace) == {"prod": 4, "batch": 4})
    stays(lambda: running(kube, namespace) == {"prod": 4, "batch": 4})
    victims = told(
        kube, namespace, "Preempted", 4
    )  # One for each, nobody for those beyond the guarantee.
    assert set(victims).isdisjoint(alive(kube, namespace))
    planned = told(kube, namespace, "PreemptionPlanned", 4)
    assert set(planned) == {name for name in alive(kube, namespace) if name.startswith("prod")}
    for message in victims.values():
        assert "queue root.batch" in message
        assert "policy guaranteed" in message
        assert "prod" not in message, "no word of who gets the capacity"
    said = kube.kubectl("get", "events", f"-n={namespace}").stdout
    assert "capacity is being freed on node" in said
    assert full.evenhand("doctor").returncode == 0


def test_pods_that_must_be_spread_get_their_share_evenly(
    kube: Kube, namespace: str, full: Stack
) -> None:
    web = {"labels": {"app": "web"}, **objects.spread_over_nodes("web")}
    kube.create(*pods(4, namespace, "prod", **web))
    until(lambda: running(kube, namespace) == {"prod": 4, "batch": 4})
    stays(lambda: running(kube, namespace) == {"prod": 4, "batch": 4})
    told(kube, namespace, "Preempted", 4)
    where = Counter(
        pod["spec"]["nodeName"]
        for pod in kube.all("Pod", namespace)
        if pod["metadata"]["name"].startswith("prod")
    )
    assert sorted(where.values()) == [2, 2]
    assert events(kube, namespace, "FailedBinding") == {}
    assert full.evenhand("doctor").returncode == 0


@pytest.mark.usefixtures("full")
def test_a_maximum_that_is_lowered_in_the_config_map_is_enforced_after_the_delay(
    kube: Kube, namespace: str
) -> None:
    lowered = time.monotonic()
    kube.patch("ConfigMap", "yunikorn-configs", {"data": queues(most=3)}, namespace)
    until(lambda: bool(events(kube, namespace, "Preempted")))
    assert time.monotonic() - lowered >= DELAY_S
    until(lambda: running(kube, namespace) == {"batch": 3})
    stays(lambda: running(kube, namespace) == {"batch": 3})
    assert len(told(kube, namespace, "Preempted", 5)) == 5
    assert events(kube, namespace, "PreemptionPlanned") == {}


def daemon_pod(of: str, node: str) -> Object:
    """Return a pod as the DaemonSet controller creates it: for one node, which its affinity names."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}
    [made] = pods(1, of, "system", affinity=affinity)
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agents", "uid": "uid-agents"}
    made["metadata"]["ownerReferences"] = [owner]
    return made


@pytest.mark.usefixtures("full")
def test_a_daemons_pod_gets_its_node(kube: Kube, namespace: str) -> None:
    node = f"{namespace}-1"
    before = {
        pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in kube.all("Pod", namespace)
    }
    kube.create(daemon_pod(namespace, node))
    until(lambda: running(kube, namespace) == {"batch": 7, "system": 1})
    found = kube.find("Pod", "system-0", namespace)
    assert found is not None
    assert found["spec"]["nodeName"] == node
    [victim] = told(kube, namespace, "Preempted", 1)
    assert before[victim] == node
    assert node in told(kube, namespace, "PreemptionPlanned", 1)["system-0"]


def test_an_opt_out_of_the_class_is_honoured_until_the_last_resort(
    kube: Kube, namespace: str, stack: Stack
) -> None:
    """One node, so that preemptible pods and the others run side by side."""
    spared = f"spared-{namespace}"[:60].rstrip("-")
    kube.create(objects.priority_class(spared, -5, annotations=OPT_OUT))
    kube.create(objects.config_map(namespace, queues()))
    kube.create(*objects.nodes(1, namespace, cpu="6"))
    stack.start()
    kube.create(*pods(4, namespace, "batch", prefix="spared", priorityClassName=spared))
    kube.create(*pods(2, namespace, "batch", prefix="willing"))
    until(lambda: running(kube, namespace) == {"spared": 4, "willing": 2})
    kube.create(*pods(2, namespace, "prod"))
    until(lambda: running(kube, namespace) == {"spared": 4, "prod": 2})
    kube.create(*pods(1, namespace, "prod", prefix="last"))
    until(lambda: running(kube, namespace) == {"spared": 3, "prod": 2, "last": 1})
    assert len(told(kube, namespace, "Preempted", 3)) == 3


def ending(kube: Kube, namespace: str) -> set[str]:
    return {
        pod["metadata"]["name"]
        for pod in kube.all("Pod", namespace)
        if pod["metadata"].get("deletionTimestamp")
    }


@pytest.mark.parametrize("whom", ["core", "shim", "both"])
def test_whoever_is_killed_between_release_and_confirmation_nobody_else_goes(
    kube: Kube, namespace: str, full: Stack, whom: str
) -> None:
    """Finalizers hold the victims, so that their end has to wait for us."""
    for name in alive(kube, namespace):
        kube.patch("Pod", name, {"metadata": {"finalizers": [KEEP]}}, namespace)
    kube.create(*pods(3, namespace, "prod"))
    until(lambda: len(ending(kube, namespace)) == 3)
    victims = ending(kube, namespace)
    if whom != "core":
        full.kill_shim()
    if whom != "shim":
        full.kill_core()
        full.start_core()
    if whom != "core":
        full.start_shim()
    until(full.is_ready)
    stays(lambda: ending(kube, namespace) == victims)
    for name in {pod["metadata"]["name"] for pod in kube.all("Pod", namespace)}:
        kube.patch("Pod", name, {"metadata": {"finalizers": None}}, namespace)
    until(lambda: running(kube, namespace) == {"prod": 3, "batch": 5})
    stays(lambda: running(kube, namespace) == {"prod": 3, "batch": 5})
    assert victims.isdisjoint(alive(kube, namespace))
    assert full.evenhand("doctor").returncode == 0


def test_an_eviction_that_a_budget_refuses_makes_another_pod_go(
    kube: Kube, namespace: str, stack: Stack
) -> None:
    """Nobody counts this budget, so that it refuses always; the core is told to try all the same."""
    guard = {"guard": "yes"}
    kube.create(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "guard", "namespace": namespace},
            "spec": {"minAvailable": 3, "selector": {"matchLabels": guard}},
        }
    )
    text = queues(partition=", delivery: evict, disruptionbudgets: ignore")
    kube.create(objects.config_map(namespace, text))
    kube.create(*objects.nodes(1, namespace, cpu="4"))
    stack.start()
    kube.create(*pods(1, namespace, "batch", prefix="free"))
    until(lambda: running(kube, namespace)["free"] == 1)
    kube.create(*pods(3, namespace, "batch", prefix="guarded", labels=guard))
    until(lambda: running(kube, namespace) == {"free": 1, "guarded": 3})
    kube.create(*pods(1, namespace, "prod"))
    until(lambda: running(kube, namespace) == {"guarded": 3, "prod": 1})
    for pod in kube.all("Pod", namespace):
        assert MARK not in (pod["metadata"].get("annotations") or {}), json.dumps(pod)
