"""Pods without a node, grouped by reason.

For an ask, the reason comes from the core. For any other pod, the reason comes from the pod's status.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from evenhand.v1 import inspect_pb2
from evenhand_cli.demo.facts import fate

UNDECIDED = frozenset({"", "not-tried", "not-synced"})
"""Codes for asks that the core has not tried to place yet."""
WITHOUT_NODE = frozenset({"pending", "refused"})


Reason = tuple[str, str]
"""The code and the sentence of a reason."""


@dataclass(frozen=True, slots=True)
class WaitingGroup:
    """The pods that have no node for the same reason, with one of them as an example."""

    code: str
    pods: int
    pod: str
    """The example's namespace and name."""
    key: str
    """The key of the example at the core, for `evenhand explain`.

    The key is empty when the core does not know the pod.
    """
    why: str = ""


def waiting_groups(
    pods: Iterable[Mapping[str, Any]],
    asks: Iterable[inspect_pb2.Allocation],
    schedulers: Iterable[str],
    events: Mapping[str, Reason],
) -> list[WaitingGroup]:
    """Return the pods without a node, grouped by reason, the largest group first.

    `events` has the last event on each pod, by namespace and name. For a pod that is not an ask yet, the event of the
    shim has the reason.
    """
    names = frozenset(schedulers)
    codes = {ask.allocation_key: ask.waiting_code for ask in asks}
    found: dict[tuple[str, bool], list[tuple[str, str, str]]] = {}
    for pod in pods:
        if fate(pod, names) in WITHOUT_NODE:
            key, name = _uid(pod), _name(pod)
            code, why = (codes[key], "") if key in codes else _own_reason(pod, events.get(name))
            found.setdefault((code, key in codes), []).append((name, key, why))
    groups = [_group(code, known, members) for (code, known), members in found.items()]
    return sorted(groups, key=lambda group: (-group.pods, group.code))


def _group(code: str, known: bool, members: list[tuple[str, str, str]]) -> WaitingGroup:
    name, key, why = min(members)
    return WaitingGroup(code, len(members), name, key if known else "", why)


def _own_reason(pod: Mapping[str, Any], event: Reason | None) -> Reason:
    """Return reason and message of the pod's condition or status.

    When condition and status have no reason, return reason and message of the last event on the pod.
    """
    status = pod.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return condition.get("reason", ""), condition.get("message", "")
    if status.get("reason"):
        return status["reason"], status.get("message", "")
    return event or ("", "")


def _uid(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"].get("uid", ""))


def _name(pod: Mapping[str, Any]) -> str:
    metadata = pod["metadata"]
    return f"{metadata.get('namespace', 'default')}/{metadata['name']}"
