"""The true state of a run on Kubernetes: the changes that the API server's watches report, one journal line each.

The lines about pods are those that the harness shim writes (`ask`, `placed`, `gone`), with uids as keys, so that
equal checks apply to both. Further lines are `leaving`, `node-open` and `node-closed` (cordoned or gone).
"""

import threading
from dataclasses import dataclass, field
from typing import Final

from shim_client.quantity import milli_units
from tests.faults.journal import Journal
from tests.kubernetes.kube import Kube, Object, resource

ENDED: Final = frozenset({"Succeeded", "Failed"})
PROBE: Final = "evenhand.test/probe"
IMPOSSIBLE: Final = "evenhand.test/impossible"
"""The label of pods that cannot be placed; its value is the reason."""
RELEASED_FOR: Final = "evenhand.io/released-for"


@dataclass
class Seen:
    """A pod in the form in which the API server showed it last."""

    key: str
    name: str
    queue: str
    impossible: str
    node: str = ""
    leaving: bool = False
    ended: bool = False
    told: str = ""
    """The message of the pod's condition PodScheduled while it waits."""


@dataclass
class Truth:
    """Pods by uid and nodes by name, and the journal lines that led to this state."""

    journal: Journal
    pods: dict[str, Seen] = field(default_factory=dict)
    marks: dict[str, str] = field(default_factory=dict)
    """For each pod by uid, the annotation that the shim wrote before it ended the pod: decision, preemptor and node."""
    nodes: dict[str, bool] = field(default_factory=dict)
    """For each existing node, whether it takes pods."""
    lock: threading.RLock = field(default_factory=threading.RLock)

    def pod(self, change: str, item: Object) -> None:
        """Process one event of the watch of pods."""
        key = item["metadata"]["uid"]
        with self.lock:
            pod = self.pods.get(key)
            if pod is None:
                if change == "DELETED":
                    return  # The pod had ended, or was never observed.
                pod = self.pods[key] = self._asked(item)
            self._changed(pod, item)
            if change == "DELETED":
                self._gone(pod)
                del self.pods[key]

    def _asked(self, item: Object) -> Seen:
        metadata = item["metadata"]
        marks = metadata.get("labels", {})
        queue = marks.get("queue", "").removeprefix("root.")
        pod = Seen(metadata["uid"], metadata["name"], queue, marks.get(IMPOSSIBLE, ""))
        self.journal.write(
            "ask",
            key=pod.key,
            name=pod.name,
            queue=queue,
            size=_size(item),
            impossible=bool(pod.impossible),
        )
        return pod

    def _changed(self, pod: Seen, item: Object) -> None:
        metadata, status = item["metadata"], item.get("status", {})
        node = item["spec"].get("nodeName", "")
        if node != pod.node:
            pod.node = node
            self.journal.write("placed", key=pod.key, node=node)
        mark = (metadata.get("annotations") or {}).get(RELEASED_FOR, "")
        if mark:
            self.marks[pod.key] = mark
        if metadata.get("deletionTimestamp") and not pod.leaving:
            pod.leaving = True
            self.journal.write("leaving", key=pod.key)
        if status.get("phase") in ENDED:
            self._gone(pod)
        pod.told = next(
            (
                one.get("message", "")
                for one in status.get("conditions") or []
                if (one["type"], one["status"]) == ("PodScheduled", "False")
            ),
            "",
        )

    def _gone(self, pod: Seen) -> None:
        if not pod.ended:
            pod.ended = True
            self.journal.write("gone", key=pod.key)

    def node(self, change: str, item: Object) -> None:
        """Process one event of the watch of nodes."""
        name = item["metadata"]["name"]
        takes = not item["spec"].get("unschedulable", False)
        with self.lock:
            if change == "DELETED":
                del self.nodes[name]
                self.journal.write("node-closed", node=name)
            elif self.nodes.get(name) != takes:
                self.nodes[name] = takes
                self.journal.write("node-open" if takes else "node-closed", node=name)

    def alive(self) -> list[Seen]:
        """Return the pods that have not ended."""
        with self.lock:
            return [pod for pod in self.pods.values() if not pod.ended]

    def ended(self) -> list[Seen]:
        """Return the pods that have ended and still exist."""
        with self.lock:
            return [pod for pod in self.pods.values() if pod.ended and not pod.leaving]

    def on(self, node: str) -> list[Seen]:
        """Return the pods of a node that have not ended."""
        return [pod for pod in self.alive() if pod.node == node]


def _size(item: Object) -> dict[str, int]:
    asked = item["spec"]["containers"][0]["resources"]["requests"]
    if PROBE in asked:
        return {"probe": int(asked[PROBE])}
    return {"vcore": milli_units(asked["cpu"])}


def watch(kube: Kube, kind: str, namespace: str, truth: Truth) -> None:
    """Start a thread that watches all objects of a kind until this process ends; if it fails, the journal says why."""
    within = {"namespace": namespace} if namespace else {}
    take = truth.node if kind == "Node" else truth.pod

    def follow() -> None:
        try:
            for change, item in kube.client.watch(resource(kind), **within):
                take(change, item.to_dict())
        except Exception as error:
            truth.journal.write("blind", why=f"{kind}: {error!r}")

    threading.Thread(target=follow, daemon=True, name=f"watch of {kind}").start()
