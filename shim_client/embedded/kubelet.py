"""One kubelet for all nodes.

The kubelet runs bound pods, ends finished and deleted pods, and removes pods of lost nodes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from heapq import heappop, heappush
from typing import Any

from shim_client.cluster import Change, KubeObject, WatchEvent
from shim_client.embedded.admission import instant
from shim_client.embedded.store import Key, Store, key_of
from shim_client.quantity import counted
from shim_client.translate.fields import BadObjectError, instant_ms

RUN_SECONDS = "evenhand.io/run-seconds"
"""Annotation of a pod of the embedded cluster: the seconds after which the pod succeeds.

Without this annotation the pod keeps running.
"""
RUN_SECONDS_MAX = 10**9


class Kubelet:
    """The life cycle of pods.

    A pod ends `stop_ms` milliseconds after its deletion, or after its grace period when that is shorter.
    """

    def __init__(self, store: Store, stop_ms: int) -> None:
        self._store = store
        self._stop_ms = stop_ms
        self._news: deque[Key] = deque()
        self._due: list[tuple[int, int, Key, str]] = []
        """Heap of (instant, arrival, pod, uid): the instants at which pods have to be checked again."""
        self._arrival = 0
        self._on_node: dict[str, dict[Key, None]] = {}
        store.noticed.append(self._notice)

    def is_idle(self) -> bool:
        """Return whether all pods that an event concerned have been examined.

        Work that becomes due at a later instant is not considered.
        """
        return not self._news

    def next_due(self) -> int | None:
        """Return the instant (Unix milliseconds) at which a pod has to be checked next.

        Return None when no pod has to be checked.
        """
        return self._due[0][0] if self._due else None

    def step(self, now_ms: int) -> None:
        """Do the work that is due at an instant (Unix milliseconds)."""
        while self._due and self._due[0][0] <= now_ms:
            _, _, key, uid = heappop(self._due)
            pod = self._store.get("Pod", key)
            if pod is not None and pod["metadata"]["uid"] == uid:
                self._advance(pod, now_ms)
        for _ in range(len(self._news)):
            pod = self._store.get("Pod", self._news.popleft())
            if pod is not None:
                self._look(pod, now_ms)

    def resume(self, pod: KubeObject) -> None:
        """Schedule the end of a pod that was running when the state of the cluster was saved.

        The running time counts from the pod's start.
        """
        if pod["status"].get("phase") != "Running":
            return
        with suppress(BadObjectError):  # The start time in a manifest can be any text.
            self._schedule_end(pod, instant_ms(pod["status"], "startTime"))

    def _notice(self, event: WatchEvent) -> None:
        if event.kind == "Node" and event.change is Change.DELETED:
            self._news.extend(self._on_node.get(event.item["metadata"]["name"], ()))
        elif event.kind == "Pod":
            self._notice_pod(event)

    def _notice_pod(self, event: WatchEvent) -> None:
        key, node = key_of(event.item), event.item["spec"].get("nodeName")
        if not node:
            return
        here = self._on_node.setdefault(node, {})
        if event.change is Change.DELETED:
            here.pop(key, None)
        else:
            here[key] = None
            self._news.append(key)

    def _look(self, pod: KubeObject, now_ms: int) -> None:
        """Start a bound pod, schedule the end of a deleted pod, or remove a pod whose node is gone."""
        key, metadata = key_of(pod), pod["metadata"]
        if self._store.get("Node", ("", pod["spec"]["nodeName"])) is None:
            self._store.remove("Pod", key)
            return
        if metadata.get("deletionTimestamp"):
            grace_ms = 1000 * int(metadata.get("deletionGracePeriodSeconds") or 0)
            self._later(now_ms + min(grace_ms, self._stop_ms), pod)
        elif pod["status"].get("phase") == "Pending":
            self._start(pod, now_ms)

    def _start(self, pod: KubeObject, now_ms: int) -> None:
        status = {**pod["status"], "phase": "Running", "startTime": instant(now_ms)}
        status["conditions"] = with_condition(status, {"type": "Ready", "status": "True"})
        self._schedule_end(self._store.put({**pod, "status": status}), now_ms)

    def _schedule_end(self, pod: KubeObject, started_ms: int) -> None:
        written = (pod["metadata"].get("annotations") or {}).get(RUN_SECONDS, "")
        seconds = counted(written, (0, RUN_SECONDS_MAX))
        if seconds is not None:
            self._later(started_ms + 1000 * seconds, pod)

    def _advance(self, pod: KubeObject, now_ms: int) -> None:
        """Remove a pod that is being deleted.

        Let a pod succeed whose running time has passed.
        """
        if pod["metadata"].get("deletionTimestamp"):
            self._store.remove("Pod", key_of(pod))
        elif pod["status"].get("phase") == "Running":
            finished = {"type": "Ready", "status": "False", "reason": "PodCompleted"}
            status = {**pod["status"], "phase": "Succeeded"}
            status["conditions"] = with_condition(status, finished)
            status["finishedAt"] = instant(now_ms)
            self._store.put({**pod, "status": status})

    def _later(self, due_ms: int, pod: KubeObject) -> None:
        self._arrival += 1
        heappush(self._due, (due_ms, self._arrival, key_of(pod), pod["metadata"]["uid"]))


def with_condition(status: Mapping[str, Any], condition: Mapping[str, Any]) -> list[Any]:
    """Return the conditions of a status with the given condition, which replaces a condition of the same type."""
    others = [
        known for known in status.get("conditions") or () if known.get("type") != condition["type"]
    ]
    return [*others, dict(condition)]
