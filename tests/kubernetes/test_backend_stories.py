"""Core and shim on a real API server: what happens to pods, nodes, quotas and settings."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shim_client.cluster import (
    Bind,
    DeletePod,
    ElsewhereError,
    MissingError,
    ObjectRef,
    PatchPod,
    RecordEvent,
)
from shim_client.kubernetes.access import access_config, http_client
from shim_client.kubernetes.api import Api
from shim_client.kubernetes.cluster import KubernetesCluster
from tests.kubernetes import objects
from tests.kubernetes.kube import Kube, Object, until
from tests.kubernetes.seen import condition, placed, reasons, running
from tests.kubernetes.stack import Stack, serves

HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
QUEUES = """
partitions:
  - name: default
    placementrules:
      - {name: provided, create: false}
      - {name: tag, value: namespace, create: true}
    queues:
      - name: root
        submitacl: "*"
        queues: [%s]
"""


ONE_QUEUE = """
partitions: [{name: default, queues: [{name: root, submitacl: "*", queues: [{name: a}]}]}]
"""


def named(application: str, queue: str = "root.a") -> dict[str, str]:
    """Return labels that name application and queue."""
    return {"applicationId": application, "queue": queue}


def anti_affinity(labels: dict[str, str], key: str = HOST) -> Object:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": labels}}
    return {"podAntiAffinity": {REQUIRED: [term]}}


def daemon_pod(name: str, of: str, node: str, **given: Any) -> Object:
    """Return a pod as the DaemonSet controller creates it: for one node, which its affinity names."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}
    made = objects.pod(name, of, affinity=affinity, **given)
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agents", "uid": "uid-agents"}
    made["metadata"]["ownerReferences"] = [owner]
    return made


def test_several_hundred_pods_are_bound_run_and_go(
    kube: Kube, namespace: str, stack: Stack
) -> None:
    kube.ensure(objects.priority_class("story-high", 1000))
    kube.create(*objects.nodes(10, namespace))
    stack.start()
    pods = objects.pods(300, namespace, prefix="web")
    pods += objects.pods(40, namespace, prefix="high", priorityClassName="story-high")
    pods += [daemon_pod(f"agent-{n}", namespace, f"{namespace}-{n}") for n in range(10)]
    others = objects.pods(3, namespace, prefix="other", schedulerName="somebody-else")
    kube.create(*pods, *others)
    until(lambda: running(kube, namespace) == len(pods))
    nodes = placed(kube, namespace)
    assert not [name for name in nodes if name.startswith("other-")]
    assert all(nodes[f"agent-{n}"] == f"{namespace}-{n}" for n in range(10))
    assert max(Counter(nodes.values()).values()) <= 80
    until(lambda: all("Scheduled" in reasons(kube, namespace, f"web-{n}") for n in (0, 299)))
    said = kube.kubectl("get", "events", "-n", namespace).stdout
    assert f"assigned {namespace}/web-0 to {nodes['web-0']}" in said
    kube.delete_all("Pod", namespace)
    until(lambda: not kube.all("Pod", namespace))
    until(lambda: "web-0" not in stack.evenhand("allocations").stdout)


def test_what_does_not_fit_says_why_and_is_placed_when_there_is_capacity(
    kube: Kube, namespace: str, stack: Stack
) -> None:
    kube.create(*objects.nodes(1, namespace, cpu="1"))
    stack.start()
    kube.create(objects.pod("large", namespace, requests={"cpu": "3"}))
    until(lambda: condition(kube, namespace, "large").get("reason") == "Unschedulable")
    assert condition(kube, namespace, "large")["status"] == "False"
    allocatable = {"allocatable": {"cpu": "4"}, "capacity": {"cpu": "4"}}
    path = f"/api/v1/nodes/{namespace}-0/status"
    said = kube.kubectl(
        "patch",
        "node",
        f"{namespace}-0",
        "--subresource=status",
        "--type=merge",
        f"--patch={json.dumps({'status': allocatable})}",
    )
    assert said.returncode == 0, (path, said.stderr)
    until(lambda: "large" in placed(kube, namespace))


def test_a_namespaces_quota_holds_and_a_lower_one_counts_for_new_pods(
    kube: Kube, namespace: str, stack: Stack
) -> None:
    quota = "yunikorn.apache.org/namespace.quota"

    def limit(cpu: str) -> None:
        change = {"metadata": {"annotations": {quota: json.dumps({"cpu": cpu})}}}
        kube.patch("Namespace", namespace, change)

    limit("1")
    kube.create(objects.config_map(namespace, {"queues.yaml": QUEUES % ""}))
    kube.create(*objects.nodes(2, namespace))
    stack.start()
    kube.create(*objects.pods(20, namespace, prefix="first"))
    until(lambda: running(kube, namespace) == 10)
    until(
        lambda: (
            sum(
                condition(kube, namespace, f"first-{n}").get("reason") == "SchedulingSkipped"
                for n in range(20)
            )
            == 10
        )
    )
    limit("500m")
    for name in placed(kube, namespace):
        kube.delete("Pod", name, namespace)
        break
    kube.create(*objects.pods(2, namespace, prefix="next", labels={"applicationId": "next"}))
    for n in range(2):
        until(lambda n=n: bool(condition(kube, namespace, f"next-{n}")))  # type: ignore[misc]
    assert not [name for name in placed(kube, namespace) if name.startswith("next")]
    assert len(placed(kube, namespace)) >= 9, "what runs stays"


def test_nodes_are_cordoned_drained_and_deleted(kube: Kube, namespace: str, stack: Stack) -> None:
    kube.create(*objects.nodes(2, namespace))
    stack.start()
    kube.patch("Node", f"{namespace}-0", {"spec": {"unschedulable": True}})
    until(lambda: "drain" in stack.evenhand("nodes", "--output=json").stdout.lower())
    kube.create(*objects.pods(6, namespace))
    until(lambda: running(kube, namespace) == 6)
    assert set(placed(kube, namespace).values()) == {f"{namespace}-1"}
    kube.patch("Node", f"{namespace}-0", {"spec": {"unschedulable": False}})
    said = kube.kubectl("drain", f"{namespace}-1", "--force", "--disable-eviction", "--timeout=30s")
    assert said.returncode == 0, said.stderr
    kube.create(*objects.pods(6, namespace, prefix="after"))
    until(lambda: running(kube, namespace) == 6)
    assert set(placed(kube, namespace).values()) == {f"{namespace}-0"}
    kube.delete("Node", f"{namespace}-0")
    until(lambda: "NodeDeleted" in reasons(kube, "default", f"{namespace}-0", "Node"))
    kube.patch("Node", f"{namespace}-1", {"spec": {"unschedulable": False}})
    kube.create(objects.pod("last", namespace))
    until(lambda: placed(kube, namespace).get("last") == f"{namespace}-1")


async def test_a_victim_is_told_why_and_keeps_its_own_grace(
    kube: Kube, namespace: str, shim_kubeconfig: Path
) -> None:
    """What the shim does when the core orders a pod away, with the shim's own rights.

    The pod's node is one that nobody plays the kubelet of, so that the deletion stands still.
    """
    low = objects.pod("low", namespace, terminationGracePeriodSeconds=7)
    low["metadata"]["finalizers"] = ["evenhand.test/keep"]
    [made] = kube.create(low)
    ref = ObjectRef("Pod", namespace, "low", made["metadata"]["uid"])
    api = Api(http_client(access_config(shim_kubeconfig, None)))
    cluster = KubernetesCluster(api, namespace, lambda: 1_767_225_600_000)
    await cluster.bind(Bind(ref, "nowhere"))
    await cluster.bind(Bind(ref, "nowhere"))
    with pytest.raises(ElsewhereError):
        await cluster.bind(Bind(ref, "another"))
    why = ("DisruptionTarget", "True", "PreemptionByScheduler", "for a more important one")
    await cluster.patch_pod(PatchPod(ref, annotations={"evenhand.io/released-for": "d/u/n"}))
    await cluster.patch_pod(PatchPod(ref, condition=why))
    await cluster.record_event(RecordEvent(ref, "Preempted", "for a more important one"))
    await cluster.record_event(RecordEvent(ref, "Preempted", "for a more important one"))
    for wrong in (replace(ref, uid="another"), replace(ref, name="gone")):
        with pytest.raises(MissingError):
            await cluster.delete_pod(DeletePod(wrong))
    await cluster.delete_pod(DeletePod(ref))
    await cluster.close()
    victim = kube.find("Pod", "low", namespace)
    assert victim is not None
    assert victim["metadata"]["deletionGracePeriodSeconds"] == 7
    assert victim["metadata"]["annotations"]["evenhand.io/released-for"] == "d/u/n"
    assert condition(kube, namespace, "low", "DisruptionTarget")["reason"] == why[2]
    assert condition(kube, namespace, "low")["status"] == "True", "other conditions stay"
    [event] = kube.all("Event", namespace)
    assert (event["reason"], event["count"]) == ("Preempted", 2)
    kube.patch("Pod", "low", {"metadata": {"finalizers": None}}, namespace)


def test_a_bad_configuration_changes_nothing_and_a_good_one_counts_at_once(
    kube: Kube, namespace: str, stack: Stack
) -> None:
    kube.create(objects.config_map(namespace, {"queues.yaml": QUEUES % "{name: a}"}))
    kube.create(*objects.nodes(1, namespace))
    stack.start()

    def apply(text: str) -> None:
        kube.patch("ConfigMap", "yunikorn-configs", {"data": {"queues.yaml": text}}, namespace)

    def told() -> set[str]:
        return reasons(kube, namespace, "yunikorn-configs", "ConfigMap")

    until(lambda: told() == {"ConfigurationApplied"})
    apply("partitions: [{name: default, queues: [{name: root, colour: red}]}]")
    until(lambda: "ConfigurationRefused" in told())
    kube.create(objects.pod("a", namespace, labels={"queue": "root.a"}))
    until(lambda: "a" in placed(kube, namespace))
    apply(QUEUES % "{name: a}, {name: b}")
    until(lambda: "root.b" in stack.evenhand("queues", "--output=json").stdout)
    labels = {"queue": "root.b", "applicationId": f"{namespace}-b"}
    kube.create(objects.pod("b", namespace, labels=labels))
    until(lambda: "b" in placed(kube, namespace))


def test_pods_keep_apart_and_spread_as_they_demand(
    kube: Kube, namespace: str, stack: Stack
) -> None:
    nodes = objects.nodes(4, namespace)
    for number, node in enumerate(nodes):
        node["metadata"]["labels"][ZONE] = f"{namespace}-{number % 2}"
    kube.create(*nodes)
    stack.start()
    alone = {"app": "alone"}
    kube.create(*objects.pods(5, namespace, "alone", labels=alone, affinity=anti_affinity(alone)))
    until(lambda: len(placed(kube, namespace)) == 4)
    assert len(set(placed(kube, namespace).values())) == 4
    left = next(f"alone-{n}" for n in range(5) if f"alone-{n}" not in placed(kube, namespace))
    until(lambda: condition(kube, namespace, left).get("reason") == "Unschedulable")
    rule = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "even"}},
    }
    even = {"labels": {"app": "even"}, "topologySpreadConstraints": [rule]}
    kube.create(*objects.pods(9, namespace, "even", **even))
    until(lambda: len(placed(kube, namespace)) == 4 + 9)
    zones = Counter(
        int(node[-1]) % 2
        for name, node in placed(kube, namespace).items()
        if name.startswith("even")
    )
    assert sorted(zones.values()) == [4, 5]
    freed = next(name for name in placed(kube, namespace) if name.startswith("alone"))
    home = placed(kube, namespace)[freed]
    for name in (left, freed):
        kube.delete("Pod", name, namespace)
    new = objects.pod("new", namespace, labels=alone, affinity=anti_affinity(alone))
    kube.create(new)
    until(lambda: placed(kube, namespace).get("new") == home)


def test_a_pod_follows_its_volume(kube: Kube, namespace: str, stack: Stack) -> None:
    kube.create(*objects.nodes(3, namespace))
    term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [f"{namespace}-2"]}]}
    volume_spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "local": {"path": "/nowhere"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    claim_spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "",
        "volumeName": namespace,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    head = {"apiVersion": "v1"}
    mounts = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    stack.start()
    kube.create(objects.pod("p", namespace, volumes=mounts))
    until(lambda: "FailedScheduling" in reasons(kube, namespace, "p"))
    until(lambda: "data" in condition(kube, namespace, "p").get("message", ""))
    assert condition(kube, namespace, "p")["reason"] == "Unschedulable"
    metadata = {"name": "data", "namespace": namespace}
    volume = {"kind": "PersistentVolume", "metadata": {"name": namespace}, "spec": volume_spec}
    claim = {"kind": "PersistentVolumeClaim", "metadata": metadata, "spec": claim_spec}
    kube.create(head | volume, head | claim)
    bound = f"--patch={json.dumps({'status': {'phase': 'Bound'}})}"
    said = kube.kubectl(
        "patch", "pvc", "data", f"-n={namespace}", "--subresource=status", "--type=merge", bound
    )
    assert said.returncode == 0, said.stderr
    until(lambda: placed(kube, namespace).get("p") == f"{namespace}-2")
    kube.delete("PersistentVolume", namespace)


def test_a_pod_with_device_claims_is_held_and_says_so(
    kube: Kube, namespace: str, stack: Stack
) -> None:
    """Neither an existing claim nor one that is not there sends a pod to a node without the device (K3)."""
    kube.create(*objects.nodes(1, namespace))
    stack.start()
    claims = [{"name": "gpu", "resourceClaimName": "missing"}]
    kube.create(objects.pod("held", namespace, resourceClaims=claims))
    until(lambda: "FailedScheduling" in reasons(kube, namespace, "held"))
    until(lambda: condition(kube, namespace, "held").get("status") == "False")
    found = condition(kube, namespace, "held")
    assert found["reason"] == "SchedulingSkipped"
    assert found["message"].startswith("device claims are not supported: missing")
    kube.create(objects.pod("plain", namespace))
    until(lambda: "plain" in placed(kube, namespace))
    assert "held" not in placed(kube, namespace)


def test_odd_pods_say_what_is_odd_and_the_rest_goes_on(
    kube: Kube, namespace: str, stack: Stack
) -> None:
    kube.create(objects.config_map(namespace, {"queues.yaml": ONE_QUEUE}))
    kube.create(*objects.nodes(1, namespace))
    stack.start()
    notes = {"yunikorn.apache.org/user.info": "{broken"}
    odd = {"example.com/odd": "1e1", "cpu": "0.1"}
    resources = {"requests": odd, "limits": odd}
    kube.create(
        objects.pod("json", namespace, annotations=notes, labels=named("json")),
        objects.pod("queue", namespace, labels=named("queue", "root.not.there")),
        objects.pod(
            "quantity",
            namespace,
            labels=named("good"),
            containers=[{"name": "main", "image": "none", "resources": resources}],
        ),
        objects.pod("elsewhere", namespace, nodeName="not-there", labels=named("good")),
        objects.pod("good", namespace, labels=named("good")),
    )
    until(lambda: {"good", "json"} <= placed(kube, namespace).keys())
    for name, reason in (("json", "PodNotClear"), ("elsewhere", "NodeUnknown")):
        until(lambda name=name, reason=reason: reason in reasons(kube, namespace, name))  # type: ignore[misc]
    until(
        lambda: reasons(kube, namespace, "queue") & {"ApplicationRejected", "TaskRejected"} != set()
    )
    until(lambda: condition(kube, namespace, "quantity").get("reason") == "Unschedulable")


def test_the_older_of_two_shims_ends_and_says_why(kube: Kube, namespace: str, stack: Stack) -> None:
    kube.create(*objects.nodes(1, namespace))
    stack.start()
    older = stack.shim
    assert older is not None
    stack.start_shim("--health=127.0.0.1:0")
    assert older.end_by_itself() == 1
    assert "another shim took over" in older.log.read_text()
    kube.create(objects.pod("p", namespace))
    until(lambda: "p" in placed(kube, namespace))
    assert stack.shim is not None
    assert stack.shim.is_running()


def test_two_shims_that_are_started_again_and_again_do_not_take_turns(
    kube: Kube, namespace: str, stack: Stack
) -> None:
    """Two pods of Deployments behave so: a container that ends comes back under its pod's name."""
    kube.create(*objects.nodes(1, namespace))
    stack.start_core()
    stack.start_shim("--instance=older")
    until(stack.is_ready)
    older = stack.shim
    assert older is not None
    stack.start_shim("--instance=newer", "--health=127.0.0.1:0")
    newer = stack.shim
    assert newer is not None
    assert older.end_by_itself() == 1
    stack.start_shim("--instance=older")
    again = stack.shim
    assert again is not None
    until(lambda: serves(stack.health, ""))
    for number in range(5):
        kube.create(objects.pod(f"p-{number}", namespace))
        until(lambda number=number: f"p-{number}" in placed(kube, namespace))  # type: ignore[misc]
        assert newer.is_running()
    assert again.is_running()
    assert not serves(stack.health, "readiness")
    newer.end()
    until(stack.is_ready)
    kube.create(objects.pod("last", namespace))
    until(lambda: "last" in placed(kube, namespace))


def test_the_api_server_goes_and_comes_back(kube: Kube, namespace: str, stack: Stack) -> None:
    if kube.own is None:
        pytest.skip("the cluster is not ours to restart")
    kube.create(*objects.nodes(4, namespace))
    stack.start()
    kube.create(*objects.pods(100, namespace, prefix="before"))
    kube.own.kill_api_server()
    kube.own.start_api_server()
    kube.create(*objects.pods(100, namespace, prefix="after"))
    until(lambda: running(kube, namespace) == 200)
    assert max(Counter(placed(kube, namespace).values()).values()) <= 80
