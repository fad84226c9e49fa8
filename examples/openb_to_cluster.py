"""The conversion of the node and pod list of a real GPU cluster (openb) into a directory of Kubernetes YAML.

    python examples/openb_to_cluster.py DIRECTORY_WITH_CSV CLUSTER_DIRECTORY [--seed N]

The input is `nodes.csv` and `pods.csv` of the public Alibaba trace cluster-trace-gpu-v2023. The pods are
used as a set, not as a timeline: all of them want to run at once.

A pod wants `num_gpu` whole devices: sharing inside a device (`gpu_milli`) is not modelled. The list names no
models. So a seeded rule gives a third of the GPU pods a node selector with a model, in proportion to the
GPUs of each model on the nodes. Queues and priorities follow `qos`.

Documents are JSON, which is YAML too and loads much faster.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zlib import crc32

GPU = "nvidia.com/gpu"
MODEL_LABEL = "openb/gpu-model"
PODS_PER_NODE = "110"
PODS_PER_APPLICATION = 32
"""Number of consecutive pods of one quality class that form an application, because the list names no applications."""
DAY_ZERO = datetime(2026, 1, 1, tzinfo=UTC)

QUEUES = {"LS": "online", "Guaranteed": "standard", "Burstable": "standard", "BE": "batch"}
PRIORITIES = {"online": 1000, "standard": 500, "batch": 100}
SHARES = {"online": (55, 100), "standard": (5, 20), "batch": (20, 70)}
"""Guarantee and max of each queue, in percent of the cluster."""

Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Totals:
    """The sum over all nodes.

    Also, for each GPU model and number, the GPUs on nodes with at least that number of them.
    """

    cpu_milli: int
    memory_mib: int
    gpus: int
    models: Mapping[int, Counter[str]]


def main(arguments: list[str]) -> int:
    """Write the directory; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("source", type=Path, help="directory with nodes.csv and pods.csv")
    parser.add_argument("target", type=Path, help="cluster directory to write")
    parser.add_argument("--seed", type=int, default=1, help="of the rule that gives pods a model")
    given = parser.parse_args(arguments)
    try:
        nodes, pods = convert(given.source, given.target, given.seed)
    except (OSError, KeyError, ValueError) as bad:
        sys.stderr.write(f"{given.source}: {bad}\n")
        return 1
    print(f"{given.target}: {nodes} nodes, {pods} pods, queues.yaml")
    return 0


def convert(source: Path, target: Path, seed: int = 1) -> tuple[int, int]:
    """Write a cluster directory; return how many nodes and pods it has."""
    nodes, pods = _rows(source / "nodes.csv"), _rows(source / "pods.csv")
    totals = _totals(nodes)
    target.mkdir(parents=True, exist_ok=True)
    _write(target / "classes.yaml", map(_class, PRIORITIES))
    _write(target / "nodes.yaml", map(_node, nodes))
    _write(target / "pods.yaml", _pods(pods, totals, seed))
    queues = json.dumps(_queues(totals), indent=2)
    (target / "queues.yaml").write_text(queues + "\n", encoding="utf-8")
    return len(nodes), len(pods)


def _rows(path: Path) -> list[Row]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _totals(nodes: list[Row]) -> Totals:
    models: dict[int, Counter[str]] = {}
    for row in nodes:
        for wanted in range(1, int(row["gpu"]) + 1):
            models.setdefault(wanted, Counter())[row["model"]] += int(row["gpu"])
    return Totals(
        cpu_milli=sum(int(row["cpu_milli"]) for row in nodes),
        memory_mib=sum(int(row["memory_mib"]) for row in nodes),
        gpus=sum(int(row["gpu"]) for row in nodes),
        models=models,
    )


def _node(row: Row) -> dict[str, Any]:
    name, gpus = row["sn"], int(row["gpu"])
    marks = {"kubernetes.io/hostname": name}
    allocatable = {
        "cpu": f"{row['cpu_milli']}m",
        "memory": f"{row['memory_mib']}Mi",
        "pods": PODS_PER_NODE,
    }
    if gpus:
        marks[MODEL_LABEL] = row["model"]
        allocatable[GPU] = str(gpus)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": marks},
        "status": {"allocatable": allocatable},
    }


def _class(queue: str) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": queue},
        "value": PRIORITIES[queue],
    }


def _pods(pods: list[Row], totals: Totals, seed: int) -> Iterator[dict[str, Any]]:
    seen: Counter[str] = Counter()
    for row in sorted(pods, key=lambda row: int(row["creation_time"])):
        qos = row["qos"]
        application = f"{qos.lower()}-{seen[qos] // PODS_PER_APPLICATION:03}"
        seen[qos] += 1
        yield _pod(row, application, _model(row, totals, seed))


def _pod(row: Row, application: str, model: str) -> dict[str, Any]:
    queue, gpus = QUEUES[row["qos"]], int(row["num_gpu"])
    created = DAY_ZERO + timedelta(seconds=int(row["creation_time"]))
    requests = {"cpu": f"{row['cpu_milli']}m", "memory": f"{row['memory_mib']}Mi"}
    if gpus:
        requests[GPU] = str(gpus)
    spec: dict[str, Any] = {
        "schedulerName": "evenhand",
        "priorityClassName": queue,
        "containers": [{"name": "main", "image": "openb", "resources": {"requests": requests}}],
    }
    if model:
        spec["nodeSelector"] = {MODEL_LABEL: model}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": row["name"],
            "namespace": "openb",
            "creationTimestamp": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "labels": {"applicationId": application, "queue": f"root.{queue}", "qos": row["qos"]},
        },
        "spec": spec,
    }


def _model(row: Row, totals: Totals, seed: int) -> str:
    """Return the GPU model for the third of the GPU pods that the seed chooses.

    Return "" for the other pods.
    """
    models = totals.models.get(int(row["num_gpu"]))
    lot = crc32(f"{seed}/{row['name']}".encode())
    if not models or lot % 3:
        return ""
    drawn = (lot // 3) % models.total()
    for model in sorted(models):
        drawn -= models[model]
        if drawn < 0:
            return model
    raise AssertionError("the draw lies within the total")


def _queues(totals: Totals) -> dict[str, Any]:
    return {
        "partitions": [
            {
                "name": "default",
                "queues": [
                    {
                        "name": "root",
                        "submitacl": "*",
                        "queues": [_queue(name, totals) for name in SHARES],
                    }
                ],
            }
        ]
    }


def _queue(name: str, totals: Totals) -> dict[str, Any]:
    guaranteed, most = SHARES[name]
    return {
        "name": name,
        "resources": {"guaranteed": _part(totals, guaranteed), "max": _part(totals, most)},
    }


def _part(totals: Totals, percent: int) -> dict[str, str]:
    return {
        "vcore": f"{totals.cpu_milli * percent // 100}m",
        "memory": f"{totals.memory_mib * percent // 100}Mi",
        GPU: str(totals.gpus * percent // 100),
    }


def _write(path: Path, documents: Iterable[Mapping[str, Any]]) -> None:
    lines = (json.dumps(document, separators=(",", ":")) for document in documents)
    path.write_text("\n---\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
