"""Facts about the demonstration at an instant, as pure functions.

The functions get instants as arguments. Queues and counts come from the core, and pods come from the cluster. The
demonstration compares core and cluster.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from evenhand.v1 import inspect_pb2

WINDOW_S = 1.0
"""Seconds over which the shown rate is measured."""
TELLING_S = 1.0
"""Shortest time, in seconds, over which a mean rate is computed.

Over a shorter time, the rate would depend on the instants at which the screen was updated.
"""


@dataclass(frozen=True, slots=True)
class PodCounts:
    """Counts of the cluster's pods by their state."""

    total: int = 0
    bound: int = 0
    pending: int = 0
    finished: int = 0
    refused: int = 0
    others: int = 0
    """Pods of another scheduler, which are in none of the other counts."""
    leaving: int = 0
    """Pods that run and are being evicted. Until such a pod has ended, it is also counted as bound."""


@dataclass(frozen=True, slots=True)
class Picture:
    """The state of core and cluster at one instant."""

    tree: inspect_pb2.QueueTree
    summary: inspect_pb2.Partition
    pods: PodCounts

    def fingerprint(self) -> tuple[object, ...]:
        """Return a value that changes when a count of pods, nodes, applications or asks changes."""
        counts = self.summary.counts
        return (
            self.pods,
            counts.nodes,
            counts.draining_nodes,
            counts.applications,
            counts.allocations,
            counts.waiting_asks,
            counts.placed_total,
        )

    def done(self) -> int:
        """Return the number of pods that have a node or have finished."""
        return self.pods.bound + self.pods.finished

    def waiting(self) -> int:
        """Return the number of pods without a node.

        Pods that the core does not have as asks are included.
        """
        return self.pods.pending + self.pods.refused


@dataclass(slots=True)
class Progress:
    """The course of the demonstration: the latest state, placements over time, and the last change."""

    started_s: float
    latest: Picture | None = None
    moved_s: float = 0.0
    first_placed_s: float | None = None
    last_placed_s: float = 0.0
    points: list[tuple[float, int]] = field(default_factory=list)

    def see(self, now_s: float, picture: Picture) -> None:
        """Record a state of core and cluster, and the instants of the last placement and of the last change."""
        before = self.latest
        self.latest = picture
        if before is None or before.fingerprint() != picture.fingerprint():
            self.moved_s = now_s
        placed = picture.summary.counts.placed_total
        known = self.points[-1][1] if self.points else 0
        if placed > known:
            if self.first_placed_s is None:
                self.first_placed_s = self.points[-1][0] if self.points else self.started_s
            self.last_placed_s = now_s
        self.points = [*(p for p in self.points if now_s - p[0] <= WINDOW_S), (now_s, placed)]

    def quiet_s(self, now_s: float) -> float:
        """Return the seconds since the last change."""
        return now_s - self.moved_s if self.latest is not None else 0.0

    def elapsed_s(self, now_s: float) -> float:
        """Return the seconds since the start."""
        return now_s - self.started_s

    def rate(self) -> float:
        """Return the placements per second over the last second."""
        if len(self.points) < 2:  # noqa: PLR2004
            return 0.0
        (first_s, first), (last_s, last) = self.points[0], self.points[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else 0.0

    def mean_rate(self) -> float:
        """Return placements per second between the first and the last placement.

        Return 0 when the time between these placements was too short.
        """
        seconds = self.placing_s()
        if self.latest is None or seconds < TELLING_S:
            return 0.0
        return self.latest.summary.counts.placed_total / seconds

    def placing_s(self) -> float:
        """Return the seconds between the first and the last placement."""
        return 0.0 if self.first_placed_s is None else self.last_placed_s - self.first_placed_s


def count_pods(pods: Iterable[Mapping[str, Any]], schedulers: Iterable[str]) -> PodCounts:
    """Count the pods of a cluster by state; pods that name none of the given schedulers are counted as others."""
    names = frozenset(schedulers)
    known = [(fate(pod, names), pod["metadata"].get("deletionTimestamp")) for pod in pods]
    counts = Counter(name for name, _ in known)
    own = sum(count for name, count in counts.items() if name != "others")
    leaving = sum(name == "bound" and bool(going) for name, going in known)
    return PodCounts(total=own, leaving=leaving, **counts)


def fate(pod: Mapping[str, Any], schedulers: frozenset[str]) -> str:
    """Return the name of the field of `PodCounts` in which a pod is counted, such as `bound` or `others`."""
    spec = pod.get("spec") or {}
    if spec.get("schedulerName") not in schedulers:
        return "others"
    phase = (pod.get("status") or {}).get("phase")
    if phase == "Succeeded":
        return "finished"
    if phase == "Failed":
        return "finished" if spec.get("nodeName") else "refused"
    return "bound" if spec.get("nodeName") else "pending"
