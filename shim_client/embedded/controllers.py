"""The controllers: they create and delete pods until every workload has as many pods as its spec says.

After an event, only the workloads that the event concerns are checked. A pod that is deleted is replaced. A failed pod
of a ReplicaSet, StatefulSet or DaemonSet is not replaced. Otherwise a pod that the scheduler refuses would be created
again for ever. A Job replaces failed pods until its `backoffLimit` is passed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from shim_client.cluster import Change, ConflictError, KubeObject, ObjectRef, WatchEvent
from shim_client.embedded import stateful, workloads
from shim_client.embedded.admission import InvalidError
from shim_client.embedded.matching import nodes_for
from shim_client.embedded.store import Key, Store, key_of
from shim_client.embedded.workloads import BadWorkloadError
from shim_client.translate.fields import BadObjectError

KINDS = ("Deployment", "ReplicaSet", "StatefulSet", "Job", "DaemonSet")
FAILURES_MAX = 6
"""The `backoffLimit` of a Job whose spec sets none.

When more than this number of pods have failed, the Job creates no further pods.
"""
_FINAL = frozenset({"Succeeded", "Failed"})


class Hands(Protocol):
    """The operations of the cluster that controllers need."""

    def create(self, item: dict[str, Any]) -> KubeObject:
        """Create an object.

        Raises InvalidError, or ConflictError when the name is taken.
        """
        ...

    def delete(self, kind: str, key: Key) -> None:
        """Delete an object; a pod gets its grace period."""
        ...

    def complain(self, about: ObjectRef, reason: str, message: str) -> None:
        """Record a warning on an object."""
        ...


class Controllers:
    """The reconciliation of workloads.

    Each change of the store is noted at once, and `step` does the work that follows from the changes.
    """

    def __init__(self, store: Store, hands: Hands) -> None:
        self._store = store
        self._hands = hands
        self._dirty: dict[tuple[str, Key], None] = {}
        self._children: dict[str, dict[tuple[str, Key], None]] = {}
        """Pods and ReplicaSets by their owner's uid."""
        self._failed: dict[tuple[str, Key], None] = {}
        """Workloads whose pods were refused. When a PriorityClass changes, these workloads are checked again."""
        self.serial = 0
        """The number in the name of the pod that was created last."""
        store.noticed.append(self._notice)

    def is_idle(self) -> bool:
        """Return whether no workload waits to be checked."""
        return not self._dirty

    def step(self) -> None:
        """Reconcile every workload that an event concerned.

        A workload whose pods are refused gets a warning.
        """
        while self._dirty:
            kind, key = next(iter(self._dirty))
            del self._dirty[kind, key]
            self._failed.pop((kind, key), None)
            owner = self._store.get(kind, key)
            if owner is None:
                continue
            try:
                self._reconcile(owner)
            except (BadWorkloadError, BadObjectError, InvalidError, ConflictError) as bad:
                self._failed[kind, key] = None
                ref = ObjectRef(kind, key[0], key[1], owner["metadata"]["uid"])
                self._hands.complain(ref, "FailedCreate", str(bad))

    def _notice(self, event: WatchEvent) -> None:
        if event.kind in KINDS:
            self._notice_owner(event)
        elif event.kind == "Node":
            for daemon in self._store.all("DaemonSet"):
                self._dirty["DaemonSet", key_of(daemon)] = None
        elif event.kind == "PriorityClass":
            self._dirty |= self._failed
            self._failed.clear()
        if event.kind in {"Pod", "ReplicaSet"}:
            self._notice_child(event)

    def _notice_owner(self, event: WatchEvent) -> None:
        if event.change is not Change.DELETED:
            self._dirty[event.kind, key_of(event.item)] = None
            return
        for child in list(self._children.get(event.item["metadata"]["uid"], ())):
            self._hands.delete(*child)

    def _notice_child(self, event: WatchEvent) -> None:
        for owner in event.item["metadata"].get("ownerReferences") or ():
            kind, uid = owner.get("kind"), owner.get("uid")
            if kind not in KINDS:
                continue
            child = (event.kind, key_of(event.item))
            children = self._children.setdefault(uid, {})
            if event.change is Change.DELETED:
                children.pop(child, None)
                if not children:
                    del self._children[uid]
            else:
                children[child] = None
            self._dirty[kind, (child[1][0], owner.get("name", ""))] = None

    def _reconcile(self, owner: KubeObject) -> None:
        reconcile: dict[str, Callable[[KubeObject], None]] = {
            "Deployment": self._deployment,
            "ReplicaSet": self._replica_set,
            "StatefulSet": self._stateful_set,
            "Job": self._job,
            "DaemonSet": self._daemon_set,
        }
        reconcile[owner["kind"]](owner)

    def _deployment(self, owner: KubeObject) -> None:
        present = workloads.replica_set(owner)
        key = key_of(present)
        for kind, other in self._keys_of(owner):
            if other != key:
                self._hands.delete(kind, other)
        known = self._store.get("ReplicaSet", key)
        if known is None:
            self._hands.create(present)
        elif known["spec"]["replicas"] != present["spec"]["replicas"]:
            self._store.put({**known, "spec": present["spec"]})

    def _replica_set(self, owner: KubeObject) -> None:
        have = [pod for pod in self._pods_of(owner) if not _is_going(pod)]
        want = workloads.wanted(owner, "replicas")
        for _ in range(want - len(have)):
            self._hands.create(workloads.pod_of(owner, self._next()))
        surplus = sorted(have, key=lambda pod: bool(pod["spec"].get("nodeName")))
        for pod in surplus[: max(0, len(have) - want)]:
            self._hands.delete("Pod", key_of(pod))

    def _stateful_set(self, owner: KubeObject) -> None:
        pods = stateful.by_ordinal(owner, self._pods_of(owner))
        steps = stateful.steps(owner, pods)
        for ordinal in steps.delete:
            self._hands.delete("Pod", key_of(pods[ordinal]))
        for ordinal in steps.create:
            self._hands.create(stateful.stateful_pod(owner, ordinal))

    def _job(self, owner: KubeObject) -> None:
        pods = self._pods_of(owner)
        phases = [pod["status"]["phase"] for pod in pods]
        done, failed = phases.count("Succeeded"), phases.count("Failed")
        active = sum(not _is_going(pod) for pod in pods if pod["status"]["phase"] not in _FINAL)
        want = workloads.wanted(owner, "completions", workloads.wanted(owner, "parallelism"))
        given_up = failed > workloads.wanted(owner, "backoffLimit", FAILURES_MAX)
        missing = min(workloads.wanted(owner, "parallelism"), want - done) - active
        for _ in range(0 if given_up else missing):
            self._hands.create(workloads.job_pod(owner, self._next()))
            active += 1
        status = {"active": active, "succeeded": done, "failed": failed}
        if done >= want or given_up:
            kind = "Failed" if given_up else "Complete"
            status["conditions"] = [{"type": kind, "status": "True"}]  # type: ignore[assignment]
        if status != owner.get("status"):
            self._store.put({**owner, "status": status})

    def _daemon_set(self, owner: KubeObject) -> None:
        wanted = dict.fromkeys(nodes_for(workloads.pod_spec(owner), self._store.all("Node")))
        for pod in self._pods_of(owner):
            name = _pinned_to(pod)
            if name not in wanted:
                self._hands.delete("Pod", key_of(pod))
            wanted.pop(name, None)
        for name in wanted:
            self._hands.create(workloads.daemon_pod(owner, self._next(), name))

    def _pods_of(self, owner: KubeObject) -> list[KubeObject]:
        found = (self._store.get("Pod", key) for kind, key in self._keys_of(owner) if kind == "Pod")
        return [pod for pod in found if pod is not None]

    def _keys_of(self, owner: KubeObject) -> list[tuple[str, Key]]:
        return list(self._children.get(owner["metadata"]["uid"], ()))

    def _next(self) -> int:
        self.serial += 1
        return self.serial


def _is_going(pod: KubeObject) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _pinned_to(pod: KubeObject) -> str:
    """Return the node for which a DaemonSet's pod was created."""
    affinity = pod["spec"]["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return str(terms[0]["matchFields"][0]["values"][0])
