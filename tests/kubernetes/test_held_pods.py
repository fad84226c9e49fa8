"""Pods that are held on a real API server: the condition PodScheduled says why, and no node gets them."""

from functools import partial

from tests.kubernetes import objects
from tests.kubernetes.kube import Kube, until
from tests.kubernetes.seen import condition, placed, reasons
from tests.kubernetes.stack import Stack

CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
SCRATCH = {"name": "s", "ephemeral": {"volumeClaimTemplate": {"spec": CLAIM}}}


def test_held_pods_say_why(kube: Kube, namespace: str, stack: Stack) -> None:
    devices = [{"name": "g", "resourceClaimName": "missing"}]
    kube.create(
        *objects.nodes(1, namespace),
        objects.pod("devices", namespace, resourceClaims=devices),
        objects.pod("scratch", namespace, volumes=[SCRATCH]),
        objects.pod("plain", namespace),
    )
    stack.start()
    until(lambda: "plain" in placed(kube, namespace))
    for name, reason, named in (
        ("devices", "SchedulingSkipped", "missing"),
        ("scratch", "Unschedulable", "'scratch-s'"),
    ):
        until(partial(is_held, kube, namespace, name, reason))
        assert named in condition(kube, namespace, name)["message"]
    assert set(placed(kube, namespace)) == {"plain"}


def is_held(kube: Kube, namespace: str, name: str, reason: str) -> bool:
    """Return whether condition and event of the pod say that it is held."""
    said = condition(kube, namespace, name).get("reason")
    return said == reason and "FailedScheduling" in reasons(kube, namespace, name)
