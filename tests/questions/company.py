"""A company's cluster: 40 nodes, 13 queues and about 310 pods, as a new user of Evenhand would bring it.

24 nodes for services and batch, 10 tainted GPU nodes and 6 tainted nodes with much memory. Batch work fills the
ordinary nodes before the start, `root.research.nlp` holds 60 of 80 GPUs, and pods of `root.batch.adhoc` take the
cores of node gpu-01. The other pods arrive later: services, notebooks, gangs, short jobs, tenants and DaemonSets.
"""

import json
from pathlib import Path
from typing import Any

KubeObject = dict[str, Any]

QUEUES = """\
partitions:
  - name: default
    nodesortpolicy: {type: binpacking}
    placementrules:
      - {name: provided, create: false}
      - {name: tag, value: namespace, create: true, parent: {name: fixed, value: root.tenants}}
    preemption:
      quotapreemptionenabled: true
      policies: [required-node, guaranteed, job, in-queue]
      disruptionbudgets: respect
      shadow: {entitlement: proportional}
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: prod
            weight: 5
            resources: {guaranteed: {vcore: 400, memory: 2Ti}, max: {vcore: 900, memory: 6Ti}}
            properties: {priority.offset: "100"}
            queues:
              - {name: web, resources: {guaranteed: {vcore: 200, memory: 400Gi}}, properties: {preemption.delay: 2s}}
              - {name: data, resources: {guaranteed: {vcore: 180, memory: 1200Gi}}, properties: {preemption.delay: 5s}}
              - {name: edge, resources: {guaranteed: {vcore: 20, memory: 40Gi}}, properties: {preemption.delay: 5s}}
          - name: research
            weight: 3
            resources: {guaranteed: {vcore: 300, memory: 2Ti, nvidia.com/gpu: 64}, max: {vcore: 700, memory: 6Ti, nvidia.com/gpu: 80}}
            properties: {preemption.policy: fence}
            queues:
              - {name: vision, resources: {guaranteed: {nvidia.com/gpu: 40}, max: {nvidia.com/gpu: 64}}, properties: {preemption.delay: 3s}}
              - {name: nlp, resources: {guaranteed: {nvidia.com/gpu: 24}}}
              - {name: notebooks, resources: {guaranteed: {vcore: 64}}, properties: {preemption.delay: 3s}}
          - name: batch
            weight: 2
            resources: {guaranteed: {vcore: 100}, max: {vcore: 800, memory: 4Ti}}
            properties: {quota.preemption.delay: 2m}
            queues:
              - {name: etl, resources: {guaranteed: {vcore: 60}}}
              - {name: adhoc, properties: {preemption.minruntime: 30s}}
          - {name: system}
          - name: tenants
            parent: true
            childtemplate: {maxapplications: 5, resources: {max: {vcore: 10, memory: 64Gi}}}
"""
"""The queues that share the cluster. Lowering `max` of `root.batch` to 440 cores arms its quota timer of two minutes."""

GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
MEMORY_TAINT = {"key": "high-memory", "value": "present", "effect": "NoSchedule"}


def write(folder: Path, queues: str = QUEUES) -> Path:
    """Write the cluster as a directory that `evenhand shim --cluster` reads; return the directory."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(one) for one in objects())
    (folder / "objects.json").write_text("\n".join(lines))
    (folder / "queues.yaml").write_text(queues)
    return folder


def objects() -> list[KubeObject]:
    """Return every object of the cluster: nodes, classes, budgets, running pods and what arrives."""
    return [*_nodes(), *classes(), *_budgets(), *_running(), *_arriving(), *_daemons()]


def _nodes() -> list[KubeObject]:
    cpu = [_node(f"cpu-{n:02}", "32", "128Gi", {}, []) for n in range(1, 25)]
    gpu = [
        _node(f"gpu-{n:02}", "64", "512Gi", {"nvidia.com/gpu": "8"}, [GPU_TAINT])
        for n in range(1, 11)
    ]
    mem = [_node(f"mem-{n:02}", "64", "1Ti", {}, [MEMORY_TAINT]) for n in range(1, 7)]
    return [*cpu, *gpu, *mem]


def _node(name: str, cpu: str, memory: str, more: dict[str, str], taints: list[Any]) -> KubeObject:
    pool = name.split("-", maxsplit=1)[0]
    labels = {"kubernetes.io/hostname": name, "pool": pool}
    amounts = {"cpu": cpu, "memory": memory, "pods": "110"} | more
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def classes() -> list[KubeObject]:
    """Return the PriorityClasses."""
    return [
        _class("urgent", 1000),
        _class("service", 500),
        _class("normal", 100, default=True),
        _class("training", 200),
        _class("low", -50),
        _class("kept", 0, annotations={"yunikorn.apache.org/allow-preemption": "false"}),
        _class("scavenger", -10, never=True),
        _class("night", 0),
    ]


def _class(
    name: str,
    value: int,
    *,
    default: bool = False,
    never: bool = False,
    annotations: dict[str, str] | None = None,
) -> KubeObject:
    found = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name, "annotations": annotations or {}},
        "value": value,
        "globalDefault": default,
    }
    return found | ({"preemptionPolicy": "Never"} if never else {})


def _budgets() -> list[KubeObject]:
    return [
        _budget("night", "night-kept-apart", {"guarded": "yes"}, 0),
        _budget("shop", "cache", {"app": "cache"}, 1),
    ]


def _budget(namespace: str, name: str, labels: dict[str, str], most: int) -> KubeObject:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"matchLabels": labels}, "maxUnavailable": most},
    }


def _running() -> list[KubeObject]:
    """Return 193 pods that run before the start: seven of four cores on each ordinary node, and those of nlp, vision and adhoc."""
    found, number, etl = [], 0, 0
    for node in range(1, 25):
        for place in range(7):
            number += 1
            queue = "etl" if place < 5 else "adhoc"
            etl += queue == "etl"
            labels = {"guarded": "yes"} if queue == "etl" and etl % 7 == 0 else {}
            found.append(
                pod(
                    f"night/b-{number:03}",
                    f"root.batch.{queue}",
                    f"night-{queue}",
                    {"cpu": "4", "memory": "8Gi"},
                    priority_class="kept" if number % 5 == 0 else "night",
                    labels=labels,
                    node=f"cpu-{node:02}",
                )
            )
    gpu = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "4"}
    nlp = [
        _on_gpu(f"lab/nlp-{number:02}", "root.research.nlp", gpu, f"gpu-{1 + number // 2:02}")
        for number in range(15)
    ]
    vision = [
        _on_gpu(f"lab/vision-{number}", "root.research.vision", gpu, "gpu-09")
        for number in range(2)
    ]
    cores = {"cpu": "6", "memory": "8Gi"}
    squatters = [
        _on_gpu(f"night/squat-{number}", "root.batch.adhoc", cores, "gpu-01", "urgent")
        for number in range(8)
    ]
    return [*found, *nlp, *vision, *squatters]


def _on_gpu(
    name: str, queue: str, requests: dict[str, str], node: str, priority_class: str = "normal"
) -> KubeObject:
    application = name.split("/")[1].rsplit("-", maxsplit=1)[0]
    tolerations = [GPU_TAINT]
    return pod(
        name,
        queue,
        application,
        requests,
        priority_class=priority_class,
        node=node,
        tolerations=tolerations,
    )


def _arriving() -> list[KubeObject]:
    gpu, mem = [GPU_TAINT], [MEMORY_TAINT]
    nodes = {"pool": "gpu"}
    return [
        deployment("shop/web", 40, "root.prod.web", {"cpu": "4", "memory": "8Gi"}, "service"),
        deployment("shop/api", 10, "root.prod.web", {"cpu": "6", "memory": "8Gi"}, "service"),
        deployment(
            "shop/cache",
            6,
            "root.prod.data",
            {"cpu": "30", "memory": "200Gi"},
            "service",
            tolerations=mem,
            selector={"pool": "mem"},
        ),
        deployment("shop/edge", 8, "root.prod.edge", {"cpu": "2", "memory": "4Gi"}, "service"),
        deployment(
            "lab/notebook", 8, "root.research.notebooks", {"cpu": "2", "memory": "8Gi"}, "normal"
        ),
        gang(
            "lab/train",
            8,
            "root.research.vision",
            {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "4"},
            gpu,
            nodes,
        ),
        gang(
            "lab/bigtrain",
            6,
            "root.research.vision",
            {"cpu": "16", "memory": "128Gi", "nvidia.com/gpu": "8"},
            gpu,
            nodes,
        ),
        deployment(
            "lab/fence-break",
            4,
            "root.research.notebooks",
            {"cpu": "16", "memory": "16Gi"},
            "training",
        ),
        job(
            "night/short",
            60,
            6,
            "root.batch.etl",
            {"cpu": "1", "memory": "1Gi"},
            "night",
            seconds=20,
        ),
        deployment(
            "night/scav", 10, "root.batch.adhoc", {"cpu": "4", "memory": "4Gi"}, "scavenger"
        ),
        deployment("team-a/a-app", 6, "", {"cpu": "2", "memory": "4Gi"}, "normal"),
        deployment("team-b/b-app", 6, "", {"cpu": "2", "memory": "4Gi"}, "normal"),
    ]


def _daemons() -> list[KubeObject]:
    return [
        daemon("kube-system/node-agent", {"cpu": "100m", "memory": "128Mi"}, "normal", {}),
        daemon("kube-system/profiler", {"cpu": "15", "memory": "4Gi"}, "low", {"pool": "gpu"}),
    ]


def pod(  # noqa: PLR0913 -- the fields of a pod, each by its name
    name: str,
    queue: str,
    application: str,
    requests: dict[str, str],
    *,
    priority_class: str = "normal",
    labels: dict[str, str] | None = None,
    node: str = "",
    tolerations: list[Any] | None = None,
    selector: dict[str, str] | None = None,
) -> KubeObject:
    """Return a pod; `name` is namespace/name, an empty queue leaves the choice to the placement rules."""
    namespace, short = name.split("/")
    known = {"applicationId": application} | ({"queue": queue} if queue else {}) | (labels or {})
    spec: KubeObject = {
        "schedulerName": "evenhand",
        "priorityClassName": priority_class,
        "containers": [{"name": "main", "image": "main", "resources": {"requests": requests}}],
        "tolerations": [_tolerated(one) for one in tolerations or ()],
    }
    if node:
        spec["nodeName"] = node
    if selector:
        spec["nodeSelector"] = selector
    metadata = {"name": short, "namespace": namespace, "labels": known}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _tolerated(taint: dict[str, str]) -> dict[str, str]:
    return {"key": taint["key"], "operator": "Exists", "effect": taint["effect"]}


def deployment(  # noqa: PLR0913 -- the fields of a Deployment, each by its name
    name: str,
    replicas: int,
    queue: str,
    requests: dict[str, str],
    priority_class: str,
    *,
    tolerations: list[Any] | None = None,
    selector: dict[str, str] | None = None,
) -> KubeObject:
    """Return a Deployment; its application has the same name."""
    short = name.split("/")[1]
    template = pod(
        name,
        queue,
        short,
        requests,
        priority_class=priority_class,
        labels={"app": short},
        tolerations=tolerations,
        selector=selector,
    )
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": short, "namespace": name.split("/", maxsplit=1)[0]},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": short}},
            "template": _template(template),
        },
    }


def job(  # noqa: PLR0913, PLR0917 -- the fields of a Job
    name: str,
    completions: int,
    parallelism: int,
    queue: str,
    requests: dict[str, str],
    priority_class: str,
    *,
    seconds: int = 0,
) -> KubeObject:
    """Return a Job; its pods end by themselves after this number of seconds; with 0 they never end."""
    namespace, short = name.split("/")
    template = pod(name, queue, short, requests, priority_class=priority_class)
    if seconds:
        template["metadata"]["annotations"] = {"evenhand.io/run-seconds": str(seconds)}
    template["spec"]["restartPolicy"] = "Never"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": short, "namespace": namespace},
        "spec": {
            "completions": completions,
            "parallelism": parallelism,
            "template": _template(template),
        },
    }


def gang(  # noqa: PLR0913, PLR0917 -- the fields of a gang
    name: str,
    members: int,
    queue: str,
    requests: dict[str, str],
    tolerations: list[Any],
    selector: dict[str, str],
) -> KubeObject:
    """Return a Job whose pods are placed together or not at all, by their pod-group labels."""
    found = job(name, members, members, queue, requests, "training")
    template = found["spec"]["template"]
    short = name.split("/")[1]
    group = "pod-group.scheduling.sigs.k8s.io"
    template["metadata"]["labels"] |= {group: short, f"{group}/min-available": str(members)}
    template["spec"] |= {
        "tolerations": [_tolerated(one) for one in tolerations],
        "nodeSelector": selector,
    }
    return found


def daemon(
    name: str, requests: dict[str, str], priority_class: str, selector: dict[str, str]
) -> KubeObject:
    """Return a DaemonSet in `root.system` that tolerates every taint."""
    namespace, short = name.split("/")
    template = pod(
        name,
        "root.system",
        short,
        requests,
        priority_class=priority_class,
        labels={"app": short},
        selector=selector,
    )
    template["spec"]["tolerations"] = [{"operator": "Exists"}]
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": short, "namespace": namespace},
        "spec": {"selector": {"matchLabels": {"app": short}}, "template": _template(template)},
    }


def _template(item: KubeObject) -> KubeObject:
    metadata = {
        key: item["metadata"][key] for key in ("labels", "annotations") if key in item["metadata"]
    }
    return {"metadata": metadata, "spec": item["spec"]}
