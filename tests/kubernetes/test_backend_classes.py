"""PriorityClasses that change on a real API server, and the effect on their pods in the core."""

import json

from tests.kubernetes import objects
from tests.kubernetes.kube import Kube, until
from tests.kubernetes.seen import placed, reasons, running
from tests.kubernetes.stack import Stack

GATE = {"name": "evenhand.test/wait"}


def test_a_class_may_change_and_go(kube: Kube, namespace: str, stack: Stack) -> None:
    name = f"class-{namespace}"[:60]
    kube.create(objects.priority_class(name, 5))
    kube.create(*objects.nodes(1, namespace))
    kube.create(objects.pod("gated", namespace, priorityClassName=name, schedulingGates=[GATE]))
    stack.start()
    kube.create(objects.pod("before", namespace, priorityClassName=name))
    until(lambda: "before" in placed(kube, namespace))
    notes = {"yunikorn.apache.org/allow-preemption": "false"}
    kube.patch("PriorityClass", name, {"metadata": {"annotations": notes}})
    kube.delete("PriorityClass", name)
    until(lambda: "SchedulingGated" in reasons(kube, namespace, "gated"))
    kube.patch("Pod", "gated", {"spec": {"schedulingGates": None}}, namespace)
    until(lambda: "gated" in placed(kube, namespace))
    until(lambda: "PriorityClassUnknown" in reasons(kube, namespace, "gated"))


def preemptible(stack: Stack) -> dict[str, bool]:
    """Return by name whether the core sees each pod as preemptible."""
    said = stack.evenhand("allocations", "--asks", "--output=json")
    assert said.returncode == 0, said.stderr
    return {
        one["tags"]["kubernetes.io/meta/podName"]: one["may_be_preempted"]
        for one in json.loads(said.stdout)["allocations"]
    }


def test_a_classs_opinion_on_preemption_reaches_pods_that_run_and_that_wait(
    kube: Kube, namespace: str, stack: Stack
) -> None:
    """The annotation changes on the API server only; no pod is touched (docs/yunikorn/migrate.md)."""
    name = f"class-{namespace}"[:60]

    def write(opinion: str | None) -> None:
        notes = {"yunikorn.apache.org/allow-preemption": opinion}
        kube.patch("PriorityClass", name, {"metadata": {"annotations": notes}})

    kube.create(objects.priority_class(name, 5))
    kube.create(*objects.nodes(1, namespace))
    stack.start()
    kube.create(
        objects.pod("runs", namespace, priorityClassName=name),
        objects.pod("waits", namespace, priorityClassName=name, requests={"cpu": "99"}),
        objects.pod("apart", namespace),
    )
    until(lambda: running(kube, namespace) == 2)
    all_may = {"runs": True, "waits": True, "apart": True}
    until(lambda: preemptible(stack) == all_may)
    write("false")
    until(lambda: preemptible(stack) == all_may | {"runs": False, "waits": False})
    write("False")  # Only the exact word opts out.
    until(lambda: preemptible(stack) == all_may)
    write("false")
    until(lambda: preemptible(stack) == all_may | {"runs": False, "waits": False})
    stack.kill_core()
    stack.start_core()
    until(lambda: preemptible(stack) == all_may | {"runs": False, "waits": False})
    kube.delete("PriorityClass", name)
    until(lambda: preemptible(stack) == all_may)
