"""Jobs on a real API server: placed as a whole or not at all, with the size from a label or from the owner (J1)."""

import pytest

from tests.kubernetes import objects
from tests.kubernetes.gangs import create_replica_set, gang
from tests.kubernetes.kube import Kube, until
from tests.kubernetes.seen import condition, placed
from tests.kubernetes.stack import Stack
from tests.kubernetes.test_preemption import queues, stays


@pytest.fixture
def small(kube: Kube, namespace: str, stack: Stack) -> Stack:
    """Provide a stack of two nodes of four cores, of which a pod on one leaves seven cores free."""
    kube.create(objects.config_map(namespace, queues()))
    kube.create(*objects.nodes(2, namespace, cpu="4"))
    other = {"queue": "root.system"}
    kube.create(objects.pod("other", namespace, labels=other, requests={"cpu": "1"}))
    stack.start()
    until(lambda: set(placed(kube, namespace)) == {"other"})
    return stack


def test_j1_a_gang_that_does_not_fit_takes_nothing_and_one_that_does_is_placed_whole(
    kube: Kube, namespace: str, small: Stack
) -> None:
    kube.create(*gang(8, namespace, "batch"))
    until(lambda: all(condition(kube, namespace, f"gang-{number}") for number in range(8)))
    stays(lambda: set(placed(kube, namespace)) == {"other"})
    kube.delete("Pod", "other", namespace, grace_s=0)
    until(lambda: len(placed(kube, namespace)) == 8)
    assert small.evenhand("doctor").returncode == 0


def test_j1_a_gang_waits_for_its_last_member(kube: Kube, namespace: str, small: Stack) -> None:
    members = gang(6, namespace, "batch")
    kube.create(*members[:5])
    until(lambda: all(condition(kube, namespace, f"gang-{number}") for number in range(5)))
    stays(lambda: set(placed(kube, namespace)) == {"other"})
    kube.create(members[5])
    until(lambda: len(placed(kube, namespace)) == 7)
    assert small.is_ready()


@pytest.mark.usefixtures("small")
def test_j1_the_owner_says_how_many_when_no_label_does(kube: Kube, namespace: str) -> None:
    """The shim reads the ReplicaSet with its own rights; seven of eight would fit."""
    create_replica_set(kube, 8, namespace, "batch")
    until(lambda: len(kube.all("Pod", namespace)) == 9)
    names = [one["metadata"]["name"] for one in kube.all("Pod", namespace)]
    members = [name for name in names if name != "other"]
    until(lambda: all(condition(kube, namespace, name) for name in members))
    stays(lambda: set(placed(kube, namespace)) == {"other"})
    kube.delete("Pod", "other", namespace, grace_s=0)
    until(lambda: len(placed(kube, namespace)) == 8)
