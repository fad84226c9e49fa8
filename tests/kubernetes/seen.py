"""The state of pods on an API server: their nodes, conditions and events."""

from tests.kubernetes.kube import Kube, Object


def placed(kube: Kube, namespace: str) -> dict[str, str]:
    """Return the node of each pod that has one, by the pod's name."""
    pods = kube.all("Pod", namespace)
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in pods
        if pod["spec"].get("nodeName")
    }


def running(kube: Kube, namespace: str) -> int:
    return sum(pod["status"]["phase"] == "Running" for pod in kube.all("Pod", namespace))


def condition(kube: Kube, namespace: str, name: str, kind: str = "PodScheduled") -> Object:
    """Return a pod's condition, empty when it has none of that kind."""
    pod = kube.find("Pod", name, namespace) or {}
    listed = pod.get("status", {}).get("conditions") or []
    return next((dict(one) for one in listed if one["type"] == kind), {})


def reasons(kube: Kube, namespace: str, name: str, kind: str = "Pod") -> set[str]:
    """Return the reasons of the events on one object."""
    return {
        event["reason"]
        for event in kube.all("Event", namespace)
        if (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == (kind, name)
    }
