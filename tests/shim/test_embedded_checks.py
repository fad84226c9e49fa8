"""Faults of manifests: each is refused, or said to have no effect, and nothing vanishes in silence."""

from pathlib import Path
from typing import Any

import pytest

from shim_client.bootstrap import open_directory
from shim_client.embedded.cluster import EmbeddedCluster
from shim_client.embedded.faults import object_faults

NODE = "kind: Node\nmetadata: {name: n1}\nstatus: {capacity: {cpu: 4}}\n"
SPEC = "{schedulerName: evenhand, containers: [{name: c}]}"
POD = "kind: Pod\nmetadata: {name: p}\nspec: %s\n"
WORK = "kind: %s\nmetadata: {name: w}\nspec: {%s}\n"
TEMPLATE = "template: {spec: %s}" % SPEC  # noqa: UP031 - the braces are YAML


def opened(folder: Path, *documents: str) -> EmbeddedCluster:
    (folder / "objects.yaml").write_text("---\n".join([NODE, *documents]))
    return open_directory(folder).cluster


def faults(folder: Path, *documents: str) -> list[tuple[str, bool, str, str]]:
    found = object_faults(opened(folder, *documents).events.all())
    return [(one.reason, one.refused, one.example, one.message) for one in found]


@pytest.mark.parametrize(
    ("document", "name", "words"),
    [
        (POD % "{priorityClassName: gold, containers: [{name: c}]}", "default/p", "gold"),
        (
            POD % "{containers: [{name: c, resources: {requests: {memory: 32GB}}}]}",
            "default/p",
            "c.requests.memory: '32GB' is not a quantity; write",
        ),
        ("kind: Node\nmetadata: {name: n2}\nstatus: {capacity: {memory: 32GB}}\n", "n2", "memory"),
        (
            "kind: Node\nmetadata: {name: n2}\nstatus: {allocatable: {cpu: one}}\n",
            "n2",
            "status.allocatable.cpu: 'one' is not a quantity",
        ),
        (WORK % ("Deployment", f"replicas: three, {TEMPLATE}"), "default/w", "spec.replicas"),
        (WORK % ("Job", "parallelism: 1"), "default/w", "spec.template"),
        (WORK % ("Job", f"completions: -1, {TEMPLATE}"), "default/w", "spec.completions"),
        (
            WORK
            % (
                "ReplicaSet",
                "template: {spec: {containers: [{name: c, resources: {limits: {memory: 1X}}}]}}",
            ),
            "default/w",
            "spec.template.c.limits.memory: '1X' is not a quantity",
        ),
        ("kind: Deployment\nmetadata: {name: w}\nspec: text\n", "default/w", "spec: is not"),
        (
            "kind: Pod\nmetadata: {name: p, annotations: {size: 3}}\nspec: %s\n" % SPEC,  # noqa: UP031
            "default/p",
            "metadata.annotations[size]: is not text; put it in quotes",
        ),
        (
            WORK % ("StatefulSet", "template: {metadata: {labels: {a: 1}}, spec: %s}" % SPEC),  # noqa: UP031
            "default/w",
            "spec.template.metadata.labels[a]: is not text; put it in quotes",
        ),
        (POD % "{nodeName: n7, containers: [{name: c}]}", "default/p", "no node 'n7'"),
        (WORK % ("PodDisruptionBudget", "minAvailable: 1o%"), "default/w", "'1o%'"),
        (
            WORK % ("PodDisruptionBudget", "minAvailable: 1, maxUnavailable: 1"),
            "default/w",
            "cannot both be given",
        ),
    ],
)
def test_what_cannot_be_used_is_refused(
    tmp_path: Path, document: str, name: str, words: str
) -> None:
    ((reason, refused, example, message),) = faults(tmp_path, document)
    assert (reason, refused, example) == ("Refused", True, name)
    assert message.startswith("objects.yaml")
    assert words in message


def test_the_same_pod_twice(tmp_path: Path) -> None:
    ((reason, _, example, message),) = faults(tmp_path, POD % SPEC, POD % SPEC)
    assert (reason, example) == ("Refused", "default/p")
    assert "exists already" in message


def test_a_pod_of_another_scheduler_would_wait_for_ever(tmp_path: Path) -> None:
    ((reason, refused, example, message),) = faults(tmp_path, POD % "{containers: [{name: c}]}")
    assert (reason, refused, example) == ("NoScheduler", False, "default/p")
    assert "write schedulerName: evenhand" in message


def test_a_pod_of_another_scheduler_that_runs_is_no_fault(tmp_path: Path) -> None:
    assert faults(tmp_path, POD % "{nodeName: n1, containers: [{name: c}]}") == []


def test_a_template_without_our_scheduler(tmp_path: Path) -> None:
    spec = "template: {spec: {containers: [{name: c}]}}"
    ((reason, _, example, _),) = faults(tmp_path, WORK % ("Deployment", spec))
    assert (reason, example) == ("NoScheduler", "default/w")


def test_a_workload_with_an_unknown_class_gets_its_pods_when_the_class_comes(
    tmp_path: Path,
) -> None:
    spec = "{schedulerName: evenhand, priorityClassName: gold, containers: [{name: c}]}"
    cluster = opened(tmp_path, WORK % ("ReplicaSet", f"replicas: 2, template: {{spec: {spec}}}"))
    (fault,) = object_faults(cluster.events.all())
    assert (fault.reason, fault.refused, fault.kind) == ("FailedCreate", True, "ReplicaSet")
    cluster.create({"kind": "PriorityClass", "metadata": {"name": "gold"}, "value": 7})
    cluster.step()
    assert [pod["spec"]["priority"] for pod in cluster.pods()] == [7, 7]


@pytest.mark.parametrize("example", ["small", "claim", "gang", "placeholders"])
def test_the_examples_have_no_fault(example: str) -> None:
    folder = Path(__file__).parents[2] / "examples" / "clusters" / example
    found: Any = open_directory(folder)
    assert object_faults(found.cluster.events.all()) == []
