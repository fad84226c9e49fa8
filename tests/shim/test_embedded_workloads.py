"""Admission as in the API server, and the controllers for workloads."""

from typing import Any

import pytest

from shim_client.cluster import ConflictError
from shim_client.embedded.admission import InvalidError
from shim_client.embedded.cluster import EmbeddedCluster
from tests.shim.kept import number_of
from tests.shim.objects import Item, node, pod

LABELS = {"applicationId": "web"}
TEMPLATE: Item = {
    "metadata": {"labels": LABELS},
    "spec": {"schedulerName": "evenhand", "containers": [{"name": "c"}]},
}


class Clock:
    """An instant that tests move."""

    now = 1_767_225_600_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def cluster() -> EmbeddedCluster:
    made = EmbeddedCluster(Clock())
    for name, zone in (("n1", "a"), ("n2", "a"), ("n3", "b")):
        made.create(node(name, labels={"zone": zone}))
    return made


def workload(kind: str, name: str, template: Any = None, **spec: Any) -> Item:
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "work"},
        "spec": {"template": TEMPLATE if template is None else template, **spec},
    }


def grown(cluster: EmbeddedCluster, *items: Item) -> list[Any]:
    for item in items:
        cluster.create(item)
    cluster.step()
    return list(cluster.pods())


def test_a_deployment_has_a_replica_set_with_pods(cluster: EmbeddedCluster) -> None:
    pods = grown(cluster, workload("Deployment", "web", replicas=3))
    assert len({item["metadata"]["name"] for item in pods}) == 3
    owner = pods[0]["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["controller"]) == ("ReplicaSet", True)
    assert pods[0]["metadata"]["labels"].keys() == {"applicationId", "pod-template-hash"}
    assert number_of(cluster, "ReplicaSet") == 1


def test_a_deployment_scales_and_rolls_over(cluster: EmbeddedCluster) -> None:
    grown(cluster, workload("Deployment", "web", replicas=2))
    known = cluster.store.get("Deployment", ("work", "web"))
    assert known is not None
    cluster.replace({**known, "spec": {**known["spec"], "replicas": 5}})
    cluster.step()
    assert number_of(cluster, "Pod") == 5
    cluster.replace({**known, "spec": {**known["spec"], "replicas": 1}})
    cluster.step()
    before = [item["metadata"]["uid"] for item in cluster.pods()]
    assert len(before) == 1
    other = {**TEMPLATE, "metadata": {"labels": {"applicationId": "web2"}}}
    cluster.replace({**known, "spec": {"template": other}})
    cluster.step()
    after = list(cluster.pods())
    assert [item["metadata"]["labels"]["applicationId"] for item in after] == ["web2"]
    assert after[0]["metadata"]["uid"] not in before


def test_a_deleted_pod_of_a_replica_set_is_made_anew(cluster: EmbeddedCluster) -> None:
    first = grown(cluster, workload("ReplicaSet", "rs"))[0]
    cluster.delete("Pod", ("work", first["metadata"]["name"]))
    cluster.step()
    second = next(cluster.pods())
    assert second["metadata"]["uid"] != first["metadata"]["uid"]


def test_a_failed_pod_is_not(cluster: EmbeddedCluster) -> None:
    first = grown(cluster, workload("ReplicaSet", "rs"))[0]
    cluster.replace({**first, "status": {"phase": "Failed"}})
    cluster.step()
    assert number_of(cluster, "Pod") == 1


def test_what_a_deleted_workload_made_goes_with_it(cluster: EmbeddedCluster) -> None:
    grown(cluster, workload("Deployment", "web", replicas=2))
    cluster.delete("Deployment", ("work", "web"))
    cluster.step()
    assert (number_of(cluster, "ReplicaSet"), number_of(cluster, "Pod")) == (0, 0)


def finish(cluster: EmbeddedCluster, phase: str = "Succeeded") -> None:
    for item in cluster.pods():
        if item["status"]["phase"] == "Pending":
            cluster.replace({**item, "status": {"phase": phase}})
    cluster.step()


def test_a_job_runs_its_completions_beside_each_other(cluster: EmbeddedCluster) -> None:
    pods = grown(cluster, workload("Job", "sum", parallelism=2, completions=3))
    assert len(pods) == 2
    assert pods[0]["spec"]["restartPolicy"] == "Never"
    assert pods[0]["metadata"]["labels"]["job-name"] == "sum"
    finish(cluster)
    assert number_of(cluster, "Pod") == 3
    finish(cluster)
    job = cluster.store.get("Job", ("work", "sum"))
    assert job is not None
    assert job["status"] == {
        "active": 0, "succeeded": 3, "failed": 0,
        "conditions": [{"type": "Complete", "status": "True"}],
    }  # fmt: skip


def test_a_job_is_given_up_after_its_failures(cluster: EmbeddedCluster) -> None:
    grown(cluster, workload("Job", "sum", backoffLimit=1))
    finish(cluster, "Failed")
    assert number_of(cluster, "Pod") == 2
    finish(cluster, "Failed")
    assert number_of(cluster, "Pod") == 2
    job = cluster.store.get("Job", ("work", "sum"))
    assert job is not None
    assert job["status"]["conditions"][0]["type"] == "Failed"


def pinned(cluster: EmbeddedCluster) -> list[str]:
    path = ("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
    found = []
    for item in cluster.pods():
        value = item["spec"]["affinity"]
        for field in path:
            value = value[field]
        found += value[0]["matchFields"][0]["values"]
    return sorted(found)


def test_a_daemon_has_a_pod_for_each_node_that_suits(cluster: EmbeddedCluster) -> None:
    template = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "nodeSelector": {"zone": "a"}}}
    grown(cluster, workload("DaemonSet", "agent", template))
    assert pinned(cluster) == ["n1", "n2"]
    cluster.create(node("n4", labels={"zone": "a"}, unschedulable=True))
    cluster.create(node("n5", labels={"zone": "a"}, taints=[{"key": "k", "effect": "NoExecute"}]))
    cluster.delete("Node", ("", "n1"))
    cluster.step()
    assert pinned(cluster) == ["n2", "n4"]


@pytest.mark.parametrize(
    ("expression", "nodes"),
    [
        ({"key": "zone", "operator": "NotIn", "values": ["a"]}, ["n3"]),
        ({"key": "zone", "operator": "Exists"}, ["n1", "n2", "n3"]),
        ({"key": "zone", "operator": "DoesNotExist"}, []),
        ({"key": "size", "operator": "Gt", "values": ["3"]}, []),
    ],
)
def test_a_daemon_follows_node_affinity(
    cluster: EmbeddedCluster, expression: Item, nodes: list[str]
) -> None:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    spec = {**TEMPLATE["spec"], "affinity": {"nodeAffinity": required}}
    grown(cluster, workload("DaemonSet", "agent", {**TEMPLATE, "spec": spec}))
    assert pinned(cluster) == nodes


@pytest.mark.parametrize(
    "bad",
    [
        workload("Deployment", "w", replicas="many"),
        workload("ReplicaSet", "w", replicas=-1),
        workload("ReplicaSet", "w", template={"metadata": {}}),
        workload("ReplicaSet", "w", template={"metadata": {"labels": {"a": 1}},
                                             "spec": {"containers": [{}]}}),
        workload("ReplicaSet", "w", template={"spec": {"containers": []}}),
        workload("Job", "w", template={"metadata": {"labels": 5}, "spec": {}}),
        workload("DaemonSet", "w", template={"spec": {"tolerations": "all"}}),
    ],
)  # fmt: skip
def test_a_workload_that_makes_no_sense_is_said_on_it(cluster: EmbeddedCluster, bad: Item) -> None:
    grown(cluster, bad)
    reasons = {(kept.about.kind, kept.reason) for kept in cluster.events.all()}
    assert any(reason == "FailedCreate" for _, reason in reasons)
    assert number_of(cluster, "Pod") == 0


# Admission.


def class_(name: str, value: Any = 10, **fields: Any) -> Item:
    return {"kind": "PriorityClass", "metadata": {"name": name}, "value": value, **fields}


def bare(name: str, **spec: Any) -> Item:
    return pod(name, spec=spec)


def priority_of(item: Any) -> tuple[Any, Any, Any]:
    spec = item["spec"]
    return spec.get("priorityClassName"), spec["priority"], spec["preemptionPolicy"]


def test_a_class_gives_priority_and_policy(cluster: EmbeddedCluster) -> None:
    cluster.create(class_("high", 100, preemptionPolicy="Never"))
    item = cluster.create(bare("a", priorityClassName="high"))
    assert priority_of(item) == ("high", 100, "Never")


def test_without_a_class_the_global_default_counts(cluster: EmbeddedCluster) -> None:
    assert priority_of(cluster.create(bare("a"))) == (None, 0, "PreemptLowerPriority")
    cluster.create(class_("usual", 5, globalDefault=True))
    cluster.create(class_("lower", 3, globalDefault=True))
    assert priority_of(cluster.create(bare("b"))) == ("lower", 3, "PreemptLowerPriority")


def test_system_classes_are_there(cluster: EmbeddedCluster) -> None:
    item = cluster.create(bare("a", priorityClassName="system-node-critical"))
    assert priority_of(item)[1] == 2_000_001_000


@pytest.mark.parametrize(
    "spec",
    [
        {"priorityClassName": "unknown"},
        {"priority": 7},
        {"preemptionPolicy": "Never"},
        {"containers": []},
        {"containers": None},
        {"nodeName": 5},
        {"terminationGracePeriodSeconds": -1},
    ],
)
def test_a_pod_that_an_api_server_would_refuse_is_refused(
    cluster: EmbeddedCluster, spec: Item
) -> None:
    with pytest.raises(InvalidError):
        cluster.create(bare("a", **spec))


@pytest.mark.parametrize(
    "item",
    [
        {"kind": "Pod", "metadata": {"name": "a", "labels": {"a": 5}}, "spec": {}},
        {"kind": "Pod", "metadata": {"name": "a", "annotations": []}, "spec": {}},
        {"kind": "Pod", "metadata": {"name": "a", "ownerReferences": ["me"]}},
        {"kind": "Pod", "metadata": {"name": ""}},
        {"kind": "Pod", "metadata": None},
        {"kind": "Node", "metadata": {"name": "a"}, "status": []},
        class_("a", "1"),
        class_("a", 2**31),
        class_("a", 1, preemptionPolicy="Maybe"),
    ],
)
def test_an_object_that_makes_no_sense_is_refused(cluster: EmbeddedCluster, item: Item) -> None:
    with pytest.raises(InvalidError):
        cluster.create(item)


def test_a_name_is_taken_once(cluster: EmbeddedCluster) -> None:
    cluster.create(pod("a"))
    with pytest.raises(ConflictError):
        cluster.create(pod("a"))


def test_limits_become_requests_where_there_are_none(cluster: EmbeddedCluster) -> None:
    resources = {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}
    item = cluster.create(bare("a", containers=[{"name": "c", "resources": resources}]))
    requests = item["spec"]["containers"][0]["resources"]["requests"]
    assert requests == {"cpu": "1", "memory": "1Gi"}


def test_a_namespace_is_made_when_it_is_missing(cluster: EmbeddedCluster) -> None:
    cluster.create(pod("a", ns="fresh"))
    assert cluster.store.get("Namespace", ("", "fresh")) is not None
