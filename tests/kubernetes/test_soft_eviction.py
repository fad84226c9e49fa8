"""Soft evictions on a real API server: the test acts as the operator that deletes marked pods (J11)."""

import json

import pytest
from lightkube import ApiError

from tests.kubernetes import objects
from tests.kubernetes.gangs import SOFT
from tests.kubernetes.kube import Kube, Object, until
from tests.kubernetes.stack import Stack
from tests.kubernetes.test_preemption import (
    MARK,
    alive,
    ending,
    events,
    pods,
    queues,
    running,
    stays,
    told,
)

INVALID = 422


@pytest.fixture
def softly(kube: Kube, namespace: str, stack: Stack) -> Stack:
    """Provide a stack whose only node batch has filled; prod waits for a core, and a victim is marked."""
    kube.create(objects.config_map(namespace, queues(partition=", delivery: soft")))
    kube.create(*objects.nodes(1, namespace, cpu="4"))
    stack.start()
    kube.create(*pods(4, namespace, "batch"))
    until(lambda: running(kube, namespace) == {"batch": 4})
    kube.create(*pods(1, namespace, "prod"))
    until(lambda: len(marked(kube, namespace)) == 1)
    return stack


def marked(kube: Kube, namespace: str) -> list[Object]:
    """Return the pods with the label of soft eviction, as another operator would select them."""
    return kube.all("Pod", namespace, {SOFT: "true"})


def test_j11_a_soft_eviction_waits_for_the_other_operator(
    kube: Kube, namespace: str, softly: Stack
) -> None:
    [victim] = marked(kube, namespace)
    stays(lambda: running(kube, namespace) == {"batch": 4} and not ending(kube, namespace))
    assert [one["metadata"]["name"] for one in marked(kube, namespace)] == [
        victim["metadata"]["name"]
    ]
    kube.delete("Pod", victim["metadata"]["name"], namespace)
    until(lambda: running(kube, namespace) == {"batch": 3, "prod": 1})
    stays(lambda: marked(kube, namespace) == [])
    assert softly.evenhand("doctor").returncode == 0


@pytest.mark.usefixtures("softly")
def test_j11_the_json_stands_where_it_is_legal_and_names_nobody_else(
    kube: Kube, namespace: str
) -> None:
    [victim] = marked(kube, namespace)
    name, notes = victim["metadata"]["name"], victim["metadata"]["annotations"]
    written = json.loads(notes[SOFT])
    assert written == {"preemptJob": written["decision"], "decision": written["decision"]}
    assert notes[MARK].startswith(written["decision"])
    assert "prod" not in told(kube, namespace, "Preempted", 1)[name]
    change = {"metadata": {"labels": {SOFT: notes[SOFT]}}}
    with pytest.raises(ApiError) as refused:
        kube.patch("Pod", name, change, namespace)
    assert refused.value.status.code == INVALID, "as a label's value it would be refused"


@pytest.mark.parametrize("whom", ["core", "shim"])
def test_1_7_whoever_is_killed_meanwhile_nobody_else_is_marked(
    kube: Kube, namespace: str, softly: Stack, whom: str
) -> None:
    [victim] = marked(kube, namespace)
    if whom == "core":
        softly.kill_core()
        softly.start_core()
    else:
        softly.kill_shim()
        softly.start_shim()
    until(softly.is_ready)
    name = victim["metadata"]["name"]
    stays(lambda: [one["metadata"]["name"] for one in marked(kube, namespace)] == [name])
    kube.delete("Pod", name, namespace)
    until(lambda: running(kube, namespace) == {"batch": 3, "prod": 1})
    assert name not in alive(kube, namespace)


@pytest.mark.usefixtures("softly")
def test_j11_an_operator_that_takes_the_label_away_keeps_its_pod(
    kube: Kube, namespace: str
) -> None:
    [victim] = marked(kube, namespace)
    name = victim["metadata"]["name"]
    kube.patch("Pod", name, {"metadata": {"labels": {SOFT: None}}}, namespace)
    until(lambda: name in events(kube, namespace, "PreemptionWithdrawn"))
    until(lambda: len(marked(kube, namespace)) == 1)
    assert marked(kube, namespace)[0]["metadata"]["name"] != name, "another one is asked to go"

    def notes() -> set[str]:
        found = kube.find("Pod", name, namespace)
        assert found is not None
        return set(found["metadata"].get("annotations") or {})

    until(lambda: notes().isdisjoint({SOFT, MARK}))


def unmarked(kube: Kube, namespace: str, name: str) -> bool:
    """Return whether a running pod has no mark of an eviction left."""
    found = kube.find("Pod", name, namespace)
    assert found is not None, "it runs on"
    notes = set(found["metadata"].get("annotations") or {})
    said = [one for one in found["status"]["conditions"] if one["type"] == "DisruptionTarget"]
    return notes.isdisjoint({SOFT, MARK}) and all(one["status"] == "False" for one in said)


def test_j11_the_mark_goes_when_whoever_waited_is_gone(
    kube: Kube, namespace: str, softly: Stack
) -> None:
    [victim] = marked(kube, namespace)
    name = victim["metadata"]["name"]
    kube.delete("Pod", "prod-0", namespace)
    until(lambda: marked(kube, namespace) == [])
    until(lambda: unmarked(kube, namespace, name))
    until(lambda: name in events(kube, namespace, "PreemptionWithdrawn"))
    assert "no pod waits" in events(kube, namespace, "PreemptionWithdrawn")[name]
    stays(lambda: running(kube, namespace) == {"batch": 4} and marked(kube, namespace) == [])
    assert softly.evenhand("doctor").returncode == 0
    kube.create(*pods(1, namespace, "prod"))
    until(lambda: len(marked(kube, namespace)) == 1)
    kube.delete("Pod", marked(kube, namespace)[0]["metadata"]["name"], namespace)
    until(lambda: running(kube, namespace) == {"batch": 3, "prod": 1})


@pytest.mark.parametrize("whom", ["core", "shim"])
def test_1_7_whoever_waited_and_left_meanwhile_leaves_no_mark(
    kube: Kube, namespace: str, softly: Stack, whom: str
) -> None:
    [victim] = marked(kube, namespace)
    if whom == "core":
        softly.kill_core()
    else:
        softly.kill_shim()
    kube.delete("Pod", "prod-0", namespace)
    if whom == "core":
        softly.start_core()
    else:
        softly.start_shim()
    until(softly.is_ready)
    until(lambda: marked(kube, namespace) == [])
    until(lambda: unmarked(kube, namespace, victim["metadata"]["name"]))
    stays(lambda: running(kube, namespace) == {"batch": 4} and marked(kube, namespace) == [])
    assert softly.evenhand("doctor").returncode == 0


def test_j11_a_maximum_that_is_raised_again_lets_the_marked_ones_run(
    kube: Kube, namespace: str, stack: Stack
) -> None:
    lenient = queues(partition=", delivery: soft")
    kube.create(objects.config_map(namespace, lenient))
    kube.create(*objects.nodes(1, namespace, cpu="4"))
    stack.start()
    kube.create(*pods(4, namespace, "batch"))
    until(lambda: running(kube, namespace) == {"batch": 4})
    lowered = queues(most=2, partition=", delivery: soft")
    kube.patch("ConfigMap", "yunikorn-configs", {"data": lowered}, namespace)
    until(lambda: len(marked(kube, namespace)) == 2)
    kube.patch("ConfigMap", "yunikorn-configs", {"data": lenient}, namespace)
    until(lambda: marked(kube, namespace) == [])
    stays(lambda: running(kube, namespace) == {"batch": 4} and marked(kube, namespace) == [])
    assert stack.evenhand("doctor").returncode == 0
