"""Shares in proportion to weights on a real API server: a third queue gets pods and receives its deserved share (W1, W6)."""

import pytest

from tests.kubernetes import objects
from tests.kubernetes.kube import Kube, until
from tests.kubernetes.stack import Stack
from tests.kubernetes.test_preemption import pods, running, stays, told

QUEUES = """
partitions:
  - name: default
    preemption: {entitlement: proportional, backoff: 1s}
    queues:
      - name: root
        submitacl: "*"
        queues:
"""
WEIGHTS = {"ads": 2, "web": 4, "lab": 3}


def queues(*names: str) -> dict[str, str]:
    lines = [f"          - {{name: {name}, weight: {WEIGHTS[name]}}}\n" for name in names]
    return {"queues.yaml": QUEUES + "".join(lines)}


@pytest.fixture
def shared(kube: Kube, namespace: str, stack: Stack) -> Stack:
    """Provide a stack of three nodes of three cores, which two queues with weights 2 and 4 share."""
    kube.create(objects.config_map(namespace, queues("ads", "web")))
    kube.create(*objects.nodes(3, namespace, cpu="3"))
    stack.start()
    kube.create(*pods(3, namespace, "ads"), *pods(6, namespace, "web"))
    until(lambda: running(kube, namespace) == {"ads": 3, "web": 6})
    return stack


def test_a_third_queue_gets_what_it_deserves_and_no_more(
    kube: Kube, namespace: str, shared: Stack
) -> None:
    deserved = {"ads": 2, "web": 4, "lab": 3}
    kube.patch("ConfigMap", "yunikorn-configs", {"data": queues(*WEIGHTS)}, namespace)
    until(lambda: "lab" in shared.evenhand("queues").stdout)
    kube.create(*pods(5, namespace, "lab"))
    until(lambda: running(kube, namespace) == deserved)
    stays(lambda: running(kube, namespace) == deserved)
    assert len(told(kube, namespace, "Preempted", 3)) == 3, "one of ads, two of web, nobody twice"
    said = shared.evenhand("queues").stdout
    assert "deserves" in said
