"""Gangs on a real API server: placeholder pods are created, replaced by real pods, and removed in the end."""

import json
from typing import Any

import pytest

from tests.kubernetes import objects
from tests.kubernetes.kube import Kube, Object, until
from tests.kubernetes.stack import Stack

PLACEHOLDER = "internal.yunikorn.apache.org/placeholder"
GROUP = "yunikorn.apache.org/task-group-name"
GROUPS = "yunikorn.apache.org/task-groups"
PARAMETERS = "yunikorn.apache.org/schedulingPolicyParameters"
MADE = "evenhand.io/placeholders-made"
SETTINGS = {
    "service.placeholderImage": "none",
    "service.placeholderRunAsUser": "65532",
}


def member(name: str, of: str, count: int, parameters: str = "", **given: Any) -> Object:
    """Return a pod of one core in a task group of `count` members, which select the test's own nodes."""
    group = {
        "name": "g",
        "minMember": count,
        "minResource": {"cpu": "1", "memory": "64Mi"},
        "nodeSelector": {objects.OF: of},
        "labels": {"team": "gang"},
    }
    notes = {GROUPS: json.dumps([group]), GROUP: "g", PARAMETERS: parameters}
    requests = {"cpu": "1", "memory": "64Mi"}
    return objects.pod(name, of, annotations=notes, requests=requests, **given)


def placeholders(kube: Kube, namespace: str) -> list[Object]:
    return [
        pod
        for pod in kube.all("Pod", namespace)
        if PLACEHOLDER in (pod["metadata"].get("annotations") or {})
    ]


def placed(kube: Kube, namespace: str) -> set[str]:
    """Real pods with a node."""
    held = {pod["metadata"]["name"] for pod in placeholders(kube, namespace)}
    return {
        pod["metadata"]["name"]
        for pod in kube.all("Pod", namespace)
        if pod["spec"].get("nodeName") and pod["metadata"]["name"] not in held
    }


@pytest.fixture
def small(kube: Kube, namespace: str, stack: Stack) -> Stack:
    """Provide a stack with one node of three cores."""
    kube.create(objects.config_map(namespace, SETTINGS))
    kube.create(*objects.nodes(1, namespace, cpu="3"))
    stack.start()
    return stack


@pytest.mark.usefixtures("small")
def test_real_pods_take_the_places_of_their_placeholders(kube: Kube, namespace: str) -> None:
    kube.create(member("first", namespace, 3))
    until(lambda: placed(kube, namespace) == {"first"})
    until(lambda: len(placeholders(kube, namespace)) == 2)
    left = placeholders(kube, namespace)[0]
    first = kube.find("Pod", "first", namespace)
    assert first is not None
    [owner] = left["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Pod", first["metadata"]["uid"])
    assert left["metadata"]["labels"]["team"] == "gang"
    assert left["spec"]["terminationGracePeriodSeconds"] == 0
    assert left["spec"]["securityContext"]["runAsUser"] == 65532
    assert first["metadata"]["annotations"][MADE] == "true"
    kube.create(member("second", namespace, 3), member("third", namespace, 3))
    until(lambda: placed(kube, namespace) == {"first", "second", "third"})
    until(lambda: not placeholders(kube, namespace))


@pytest.mark.usefixtures("small")
def test_a_gang_that_is_too_large_fails_after_its_time(kube: Kube, namespace: str) -> None:
    parameters = "placeholderTimeoutInSeconds=3 gangSchedulingStyle=Hard"
    kube.create(member("first", namespace, 4, parameters))
    until(lambda: len(placeholders(kube, namespace)) == 4)

    def failed() -> bool:
        pod = kube.find("Pod", "first", namespace)
        return pod is not None and pod["status"].get("reason") == "ResourceReservationTimeout"

    until(failed)
    until(lambda: not placeholders(kube, namespace))


def test_a_restart_of_the_shim_makes_no_placeholder_twice(
    kube: Kube, namespace: str, small: Stack
) -> None:
    kube.create(member("first", namespace, 3))
    until(lambda: placed(kube, namespace) == {"first"} and len(placeholders(kube, namespace)) == 2)
    before = {pod["metadata"]["uid"] for pod in placeholders(kube, namespace)}
    small.kill_shim()
    small.start_shim()
    until(small.is_ready)
    kube.create(member("second", namespace, 3))
    until(lambda: placed(kube, namespace) == {"first", "second"})
    until(lambda: len(placeholders(kube, namespace)) == 1)
    assert {pod["metadata"]["uid"] for pod in placeholders(kube, namespace)} < before
