"""Job-level preemption on a real API server: a gang gets all its places, or evicts no pod (J8, J10, J11)."""

import json

import pytest

from tests.kubernetes import objects
from tests.kubernetes.gangs import JOB, SOFT, gang
from tests.kubernetes.kube import Kube, until
from tests.kubernetes.seen import condition, placed
from tests.kubernetes.stack import Stack
from tests.kubernetes.test_preemption import alive, ending, events, stays, told

QUEUES = """
partitions:
  - name: default
    preemption:
      backoff: 1s
      policies: [required-node, guaranteed, job]
      job: {{podShouldBeDeletedWhenPreempted: {delete}}}
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: prod
            resources: {{guaranteed: {{vcore: 8}}}}
            properties: {{preemption.delay: 1s}}
          - name: batch
"""
FIRM = {"quota.scheduling.koordinator.sh/preemptible": "false"}
LENDABLE = {"quota.scheduling.koordinator.sh/preemptible": "true"}


def filled(kube: Kube, namespace: str, stack: Stack, *, delete: str = "true") -> None:
    """Fill two nodes of four cores with lendable pods of batch."""
    kube.create(objects.config_map(namespace, {"queues.yaml": QUEUES.format(delete=delete)}))
    kube.create(*objects.nodes(2, namespace, cpu="4"))
    stack.start()
    labels = {"applicationId": f"{namespace}-batch", "queue": "root.batch"}
    given = {"requests": {"cpu": "1"}, "priorityClassName": "gang-low"}
    kube.create(*objects.pods(8, namespace, "lent", labels=labels | LENDABLE, **given))
    until(lambda: len(alive(kube, namespace)) == 8)


@pytest.fixture(autouse=True)
def _low(kube: Kube) -> None:
    kube.ensure(objects.priority_class("gang-low", -5))


def waits(kube: Kube, namespace: str, name: str) -> bool:
    """Return whether the core has seen a pod and said why it is not placed."""
    said = condition(kube, namespace, name)
    return (said.get("status"), said.get("reason")) == ("False", "Unschedulable")


def members(kube: Kube, namespace: str) -> set[str]:
    return {name for name in placed(kube, namespace) if name.startswith("gang")}


def test_j8_a_gang_of_eight_gets_all_eight(kube: Kube, namespace: str, stack: Stack) -> None:
    filled(kube, namespace, stack)
    kube.create(*gang(8, namespace, "prod", labels=FIRM))
    until(lambda: len(members(kube, namespace)) == 8)
    said = told(kube, namespace, "Preempted", 8)
    decisions = {message.split("decision ")[1].split(" ")[0] for message in said.values()}
    assert len(decisions) == 1, "all of them go by one decision"
    assert stack.evenhand("doctor").returncode == 0


def test_j8_or_evicts_nobody(kube: Kube, namespace: str, stack: Stack) -> None:
    """Nine cores are asked for, eight there are: no victim at all."""
    filled(kube, namespace, stack)
    kube.create(*gang(9, namespace, "prod", labels=FIRM))
    until(lambda: all(waits(kube, namespace, f"gang-{number}") for number in range(9)))
    stays(lambda: len(alive(kube, namespace)) == 8 and not ending(kube, namespace))
    assert events(kube, namespace, "Preempted") == {}
    assert members(kube, namespace) == set()


def test_j11_victims_of_jobs_are_marked_where_the_partition_says_so(
    kube: Kube, namespace: str, stack: Stack
) -> None:
    """The test plays the other operator. The gang is in its victims' namespace, so that they may read its name."""
    filled(kube, namespace, stack, delete="false")
    kube.create(*gang(8, namespace, "prod", labels=FIRM))
    until(lambda: len(kube.all("Pod", namespace, {SOFT: "true"})) == 8)
    stays(lambda: not ending(kube, namespace) and members(kube, namespace) == set())
    for victim in kube.all("Pod", namespace, {SOFT: "true"}):
        written = json.loads(victim["metadata"]["annotations"][SOFT])
        assert written["preemptJob"] == "gang"
        assert victim["metadata"]["labels"].get(JOB) is None
        kube.delete("Pod", victim["metadata"]["name"], namespace)
    until(lambda: len(members(kube, namespace)) == 8)
