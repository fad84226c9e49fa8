"""The pods that have not ended, according to the writing process: waiting asks and running allocations."""

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

NOT_TRIED: Final = "not-tried"
"""The reason of an ask for which the core has reported no reason yet."""
BRIEF_MS: Final = 1_000
"""The milliseconds from which on the first interval of a wait is kept. In this interval no reason was reported yet."""


@dataclass(slots=True, eq=False)
class Wait:
    """The interval in which an ask waits for one reason, since ``since_ms``. ``is_kept`` says that the interval has a row."""

    number: int
    code: str
    since_ms: int
    is_kept: bool = False


@dataclass(slots=True, eq=False)
class Pod:
    """An ask from its arrival to its end. Once it has a node, it is an allocation."""

    number: int
    rm_id: str
    partition: str
    key: str
    name: str
    application_id: str
    queue: str
    user: str
    resource: tuple[tuple[str, int], ...]
    priority: int
    asked_ms: int
    arrived_ms: int
    placed_ms: int | None = None
    node_id: str = ""
    ended_ms: int | None = None
    end_code: str = ""
    end_text: str = ""
    decision_id: str = ""
    is_brought: bool = False
    """Whether the pod already ran when the history first recorded the pod."""
    order: tuple[str, str, str] | None = None
    """The core's order to end the pod: how, why, and by which decision."""
    wait: Wait | None = None
    touched: int = 0
    """The number of the latest item in which the pod arrived, was placed, or got another reason for waiting."""

    def row(self) -> dict[str, Any]:
        """Return the row of the table `pods`."""
        return {
            "id": self.number,
            "rm_id": self.rm_id,
            "partition": self.partition,
            "pod_key": self.key,
            "name": self.name,
            "application_id": self.application_id,
            "queue": self.queue,
            "user_name": self.user,
            "resources": resource_text(self.resource),
            "priority": self.priority,
            "asked_ms": self.asked_ms,
            "placed_ms": self.placed_ms,
            "node_id": self.node_id,
            "ended_ms": self.ended_ms,
            "end_code": self.end_code,
            "end_text": self.end_text,
            "decision_id": self.decision_id,
            "brought": int(self.is_brought),
        }


@lru_cache(4_096)
def resource_text(resource: tuple[tuple[str, int], ...]) -> str:
    """Return a resource as a JSON object. The texts are cached, because the pods of one template have equal resources."""
    return json.dumps(dict(resource), separators=(",", ":"))


def resource_of(text: str) -> dict[str, int]:
    """Return the resource of a JSON object."""
    found: dict[str, int] = json.loads(text)
    return found


class Pods:
    """The live pods by partition and key, and by application."""

    def __init__(self) -> None:
        self._by_key: dict[tuple[str, str], Pod] = {}
        self._by_application: dict[tuple[str, str], dict[str, Pod]] = {}
        self._partitions: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, partition: str, key: str) -> Pod | None:
        """Return a live pod, or None."""
        return self._by_key.get((partition, key))

    def of_manager(self, rm_id: str, key: str) -> Pod | None:
        """Return a live pod of a manager in any partition, or None."""
        found = (self._by_key.get((name, key)) for name in self._partitions)
        return next((one for one in found if one is not None and one.rm_id == rm_id), None)

    def of_application(self, partition: str, application_id: str) -> list[Pod]:
        """Return the live pods of an application."""
        return list(self._by_application.get((partition, application_id), {}).values())

    def of_partition(self, partition: str) -> list[Pod]:
        """Return the live pods of a partition."""
        return [one for one in self._by_key.values() if one.partition == partition]

    def counts(self, rm_id: str) -> tuple[int, int]:
        """Return how many allocations and how many asks a manager has."""
        own = [one for one in self._by_key.values() if one.rm_id == rm_id]
        running = sum(one.placed_ms is not None for one in own)
        return running, len(own) - running

    def add(self, pod: Pod) -> None:
        """Add a live pod."""
        self._by_key[pod.partition, pod.key] = pod
        self._by_application.setdefault((pod.partition, pod.application_id), {})[pod.key] = pod
        self._partitions.setdefault(pod.partition, 0)

    def remove(self, pod: Pod) -> None:
        """Remove a pod that has ended."""
        del self._by_key[pod.partition, pod.key]
        place = (pod.partition, pod.application_id)
        own = self._by_application[place]
        del own[pod.key]
        if not own:
            del self._by_application[place]
