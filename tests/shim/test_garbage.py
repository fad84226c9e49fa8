"""Garbage in any field of an object is refused or reported in an event; nothing fails, and other objects are processed."""

import copy
import random
from contextlib import suppress
from typing import Any

import pytest

from shim_client.cluster import KINDS, ClusterError
from shim_client.config import Settings
from shim_client.core_client.packing import allocation_requests, application_requests, node_requests
from shim_client.embedded.cluster import EmbeddedCluster
from shim_client.messages import (
    ApplicationRemoval,
    ApplicationReport,
    NodeReport,
    PodRelease,
    PodReport,
    SyncComplete,
)
from tests.effort import cases
from tests.shim.objects import Item, claim, named, node, pod
from tests.shim.story import Story
from tests.shim.test_embedded_store import Clock

ROUNDS = cases(1500)
JUNK: list[Any] = [
    None, True, -1, 2**70, 1.5, float("nan"), "", " ", "x" * 300, "\ud800", "\x00", "9e99", "-5",
    [], [None], [1], ["a"], [[]], {}, {"a": None}, {1: 2}, {"name": 5}, {"\udfff": "\udfff"}, b"x",
]  # fmt: skip

NEAR = {
    "topologyKey": "zone",
    "namespaces": ["work"],
    "namespaceSelector": {"matchLabels": {"a": "b"}},
    "labelSelector": {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]},
}
RICH_POD = pod(
    "victim",
    labels={"yunikorn.apache.org/queue": "root.a", "pod-group.scheduling.sigs.k8s.io": "j"},
    annotations={"yunikorn.apache.org/user.info": '{"user":"a"}', "evenhand.io/run-seconds": "5"},
    metadata={"ownerReferences": [{"kind": "DaemonSet", "name": "d", "uid": "u"}]},
    spec={
        "nodeSelector": {"zone": "a"},
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "schedulingGates": [{"name": "g"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
        "overhead": {"cpu": "1m"},
        "terminationGracePeriodSeconds": 5,
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchFields": [
                                {"key": "metadata.name", "operator": "In", "values": ["good"]}
                            ],
                            "matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}],
                        }
                    ]
                }
            },
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [NEAR]},
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [NEAR]},
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "minDomains": 2,
                "topologyKey": "zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"a": "b"}},
                "matchLabelKeys": ["applicationId"],
            }
        ],
        "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "1"}}}],
        "containers": [
            {
                "name": "c",
                "ports": [{"containerPort": 1, "hostPort": 2}],
                "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2"}},
            }
        ],
    },
    status={"conditions": [{"type": "Ready"}], "containerStatuses": [{"name": "c"}]},
)
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": RICH_POD["spec"]}


def workload(kind: str, **spec: Any) -> Item:
    metadata = {"name": "victim", "namespace": "work"}
    return {"kind": kind, "metadata": metadata, "spec": {"template": TEMPLATE, **spec}}


def kept(kind: str, name: str, **more: Any) -> Item:
    """Return an object of the namespace `work`."""
    return {"kind": kind, "metadata": {"name": name, "namespace": "work"}, **more}


SEEDLINGS: list[Item] = [
    RICH_POD,
    {**RICH_POD, "spec": {**RICH_POD["spec"], "nodeName": "good"}},
    node("victim", labels={"zone": "a"}, taints=[{"key": "k", "effect": "NoSchedule"}]),
    named("PriorityClass", "victim", value=5, annotations={"a": "b"}),
    named("Namespace", "victim", annotations={"yunikorn.apache.org/namespace.quota": "{}"}),
    claim("victim"),
    {**claim("c"), "spec": {"volumeName": "victim"}, "status": {"phase": "Bound"}},
    named(
        "StorageClass",
        "victim",
        volumeBindingMode="WaitForFirstConsumer",
        allowedTopologies=[{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}],
    ),
    named(
        "PersistentVolume",
        "victim",
        spec={
            "nodeAffinity": {
                "required": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
                    ]
                }
            }
        },
    ),
    kept("PodDisruptionBudget", "victim", spec={"selector": {"matchLabels": {"a": "b"}}}),
    kept(
        "ConfigMap",
        "yunikorn-configs",
        data={"queues.yaml": "a", "kubernetes.qps": "5"},
        binaryData={"x.gz": "H4sI"},
    ),
    workload("Deployment", replicas=2),
    workload("ReplicaSet", replicas=2),
    workload("Job", parallelism=1, completions=2, backoffLimit=1),
    workload("DaemonSet"),
]


def spots(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return every place in an object."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, item in inside:
        found.append((*path, key))
        if isinstance(item, dict | list):
            found += spots(item, (*path, key))
    return found


def spoiled(item: Item, chance: random.Random) -> Item:
    """Return the object with junk in one or two places."""
    changed: Item = copy.deepcopy(item)
    for _ in range(chance.randint(1, 2)):
        path = chance.choice([path for path in spots(changed) if path != ("kind",)])
        target: Any = changed
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = copy.deepcopy(chance.choice(JUNK))
    return changed


def serialise(story: Story) -> None:
    """Serialise everything that the mirror reported and ordered."""
    reports = story.reports
    pods = [one for one in reports if isinstance(one, PodReport | PodRelease)]
    applications = [
        one for one in reports if isinstance(one, ApplicationReport | ApplicationRemoval)
    ]
    nodes = [one for one in reports if isinstance(one, NodeReport | SyncComplete)]
    for requests in (
        allocation_requests(pods, "rm"),
        application_requests(applications, "rm"),
        node_requests(nodes, "rm"),
    ):
        for request in requests:
            assert request.SerializeToString()


@pytest.mark.parametrize("seed", range(3))
def test_garbage_breaks_nothing(seed: int) -> None:
    print(f"seed {seed}")  # noqa: T201
    chance = random.Random(seed)
    for number in range(ROUNDS // 3):
        seedling = chance.choice(SEEDLINGS)
        item = spoiled(seedling, chance)
        try:
            play(seedling, item)
        except Exception:
            print(f"round {number}: {item!r}")  # noqa: T201
            raise


SETTINGS = Settings(generate_unique_app_id=True, namespace="work")


def play(seedling: Item, item: Item) -> None:
    """Put the junk into an embedded cluster, and before a mirror as a real API server might send it."""
    cluster = EmbeddedCluster(Clock())
    cluster.create(node("good"))
    cluster.create(pod("good"))
    with suppress(ClusterError):
        cluster.create(item)
    cluster.step()
    told = Story().start(*(dict(one) for kind in KINDS for one in cluster.store.all(kind)))
    assert told.mirror.is_live()
    assert "ask good" in [line for line in told.told() if line == "ask good"]
    raw = Story(settings=SETTINGS).start(node("good"), seedling)
    if item["kind"] in KINDS and isinstance(item.get("metadata"), dict):
        raw.see(item)
        serialise(raw)
        raw.gone(item)
    serialise(raw)
