"""A changed quota of a namespace on a real API server: waiting pods are placed at once when the quota is raised."""

from tests.kubernetes import objects
from tests.kubernetes.kube import Kube, until
from tests.kubernetes.seen import placed, reasons
from tests.kubernetes.stack import Stack

QUOTA = "yunikorn.apache.org/namespace.quota"


def four(namespace: str) -> list[objects.Object]:
    """Return four pods of 400 millicores that name no application, as in an ordinary namespace."""
    made = objects.pods(4, namespace, requests={"cpu": "400m"})
    for pod in made:
        pod["metadata"]["labels"] = {}
    return made


def annotate(kube: Kube, namespace: str, quota: str) -> None:
    said = kube.kubectl("annotate", "ns", namespace, "--overwrite", f"{QUOTA}={quota}")
    assert said.returncode == 0, said.stderr


def test_a_raised_quota_reaches_waiting_pods(kube: Kube, namespace: str, stack: Stack) -> None:
    annotate(kube, namespace, '{"cpu":"1"}')
    kube.create(*objects.nodes(1, namespace))
    stack.start()
    kube.create(*four(namespace))
    until(lambda: len(placed(kube, namespace)) == 2)
    until(lambda: sum(is_skipped(kube, namespace, f"pod-{n}") for n in range(4)) == 2)
    annotate(kube, namespace, '{"cpu" "2"}')
    until(lambda: "AnnotationNotClear" in reasons(kube, "default", namespace, "Namespace"))
    assert len(placed(kube, namespace)) == 2
    annotate(kube, namespace, '{"cpu":"2"}')
    until(lambda: len(placed(kube, namespace)) == 4)


def is_skipped(kube: Kube, namespace: str, name: str) -> bool:
    """Return whether the pod's condition says that its queue has no headroom."""
    pod = kube.find("Pod", name, namespace) or {}
    listed = pod.get("status", {}).get("conditions") or []
    return any(one.get("reason") == "SchedulingSkipped" for one in listed)
