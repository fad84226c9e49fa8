"""PodDisruptionBudgets: each status says how many pods may be evicted now.

The disruption controller of Kubernetes computes the same number. A pod is healthy when it runs, is ready and was not
deleted. The expected number of pods is the number of replicas of the pods' ReplicaSets and StatefulSets, plus the
number of other pods that were not deleted.
"""

from __future__ import annotations

from shim_client.cluster import Change, KubeObject, ObjectRef, WatchEvent
from shim_client.embedded.controllers import Hands
from shim_client.embedded.store import Key, Store, key_of
from shim_client.embedded.workloads import BadWorkloadError, wanted
from shim_client.translate.budgets import BudgetFacts, read_budget
from shim_client.translate.fields import BadObjectError
from shim_client.translate.matching import selects

KIND = "PodDisruptionBudget"
COUNTED = frozenset({"ReplicaSet", "StatefulSet"})
"""Kinds of owners whose `replicas` say how many pods are expected."""
_ENDED = frozenset({"Succeeded", "Failed"})


class Disruptions:
    """The pod counts of each disruption budget. `step` writes the counts that have changed."""

    def __init__(self, store: Store, hands: Hands) -> None:
        self._store = store
        self._hands = hands
        self._budgets: dict[str, dict[Key, None]] = {}
        """Budgets by namespace."""
        self._dirty: dict[str, None] = {}
        """Namespaces whose budgets must be counted again because of an event."""
        store.noticed.append(self._notice)

    def is_idle(self) -> bool:
        """Return whether the counts of all budgets are up to date."""
        return not self._dirty

    def step(self) -> None:
        """Write the status of every budget whose counts an event may have changed."""
        namespaces, self._dirty = self._dirty, {}
        for namespace in namespaces:
            for budget in self._of(namespace):
                self._refresh(budget)

    def refusal(self, pod: KubeObject) -> str:
        """Return why the eviction API would refuse to evict a pod.

        Return "" if the API would evict the pod, for example because the pod does not run.
        """
        if pod["status"]["phase"] != "Running" or pod["metadata"].get("deletionTimestamp"):
            return ""
        counting = [one for one in self._of(key_of(pod)[0]) if _counts(_facts(one), pod)]
        if len(counting) > 1:
            return "this pod has more than one PodDisruptionBudget, which evictions do not support"
        if counting and not self._status(counting[0])[0]["disruptionsAllowed"]:
            return "Cannot evict pod as it would violate the pod's disruption budget."
        return ""

    def _notice(self, event: WatchEvent) -> None:
        namespace = key_of(event.item)[0]
        if event.kind == KIND:
            here = self._budgets.setdefault(namespace, {})
            if event.change is Change.DELETED:
                here.pop(key_of(event.item), None)
            else:
                here[key_of(event.item)] = None
        if event.kind in {KIND, "Pod", *COUNTED} and self._budgets.get(namespace):
            self._dirty[namespace] = None

    def _of(self, namespace: str) -> list[KubeObject]:
        found = (self._store.get(KIND, key) for key in self._budgets.get(namespace, ()))
        return [budget for budget in found if budget is not None]

    def _refresh(self, budget: KubeObject) -> None:
        status, problem = self._status(budget)
        if problem:
            ref = ObjectRef(KIND, *key_of(budget), budget["metadata"]["uid"])
            self._hands.complain(ref, "CalculateExpectedPodCountFailed", problem)
        if status != budget.get("status"):
            self._store.put({**budget, "status": status})

    def _status(self, budget: KubeObject) -> tuple[dict[str, int], str]:
        """Return a budget's status and its error text; a budget with an error allows no disruption."""
        try:
            return self._count(budget), ""
        except (BadObjectError, BadWorkloadError) as bad:
            return {"disruptionsAllowed": 0}, str(bad)

    def _count(self, budget: KubeObject) -> dict[str, int]:
        facts, namespace = read_budget(budget), key_of(budget)[0]
        pods = [pod for pod in self._store.all("Pod") if key_of(pod)[0] == namespace]
        counted = [pod for pod in pods if _counts(facts, pod)]
        healthy = sum(map(_is_healthy, counted))
        expected = self._expected(counted)
        needed = desired(budget.get("spec") or {}, expected)
        return {
            "observedGeneration": budget["metadata"].get("generation", 0),
            "currentHealthy": healthy,
            "desiredHealthy": needed,
            "expectedPods": expected,
            "disruptionsAllowed": max(0, healthy - needed) if expected else 0,
        }

    def _expected(self, pods: list[KubeObject]) -> int:
        """Return the expected number of pods.

        The number is the sum of the replicas of all owners whose kind is in `COUNTED`, plus the number of pods without
        such an owner.
        """
        sets: dict[tuple[str, Key], int] = {}
        alone = 0
        for pod in pods:
            owned = pod["metadata"].get("ownerReferences") or ()
            found = [(one["kind"], one["name"]) for one in owned if one["kind"] in COUNTED]
            kind, name = found[0] if found else ("", "")
            key = (key_of(pod)[0], name)
            owner = self._store.get(kind, key) if found else None
            if owner is None:
                alone += not pod["metadata"].get("deletionTimestamp")
            else:
                sets[kind, key] = wanted(owner, "replicas")
        return sum(sets.values()) + alone


def _facts(budget: KubeObject) -> BudgetFacts | None:
    try:
        return read_budget(budget)
    except BadObjectError:
        return None


def _counts(facts: BudgetFacts | None, pod: KubeObject) -> bool:
    if facts is None or pod["status"]["phase"] in _ENDED:
        return False
    return selects(facts.selector, pod["metadata"].get("labels") or {})


def _is_healthy(pod: KubeObject) -> bool:
    ready = any(
        (one.get("type"), one.get("status")) == ("Ready", "True")
        for one in pod["status"].get("conditions") or ()
    )
    running = pod["status"]["phase"] == "Running"
    return ready and running and not pod["metadata"].get("deletionTimestamp")


def desired(spec: KubeObject, expected: int) -> int:
    """Return how many healthy pods a budget's spec requires, given the expected number of pods.

    Raises BadObjectError if the number in the spec is invalid.
    """
    if spec.get("maxUnavailable") is not None:
        return max(0, expected - _share(spec["maxUnavailable"], expected, "maxUnavailable"))
    return _share(spec.get("minAvailable", 1), expected, "minAvailable")


def _share(value: object, expected: int, field: str) -> int:
    """Return a number of pods that is given as a number, or in percent of `expected` and rounded up.

    Raises BadObjectError if the value is neither a number nor a percentage.
    """
    if type(value) is int and value >= 0:
        return value
    digits = value.removesuffix("%") if isinstance(value, str) and value.endswith("%") else ""
    if digits.isascii() and digits.isdigit() and len(digits) < 4:  # noqa: PLR2004 - 100 %
        return -(-expected * int(digits) // 100)
    raise BadObjectError(
        f"spec.{field}", f"{value!r:.40} is neither a number of pods nor a percentage"
    )
