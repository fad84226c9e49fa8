"""Why pods have no node, by reason: from the core where they are asks there, else from the pod itself."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from evenhand.v1 import inspect_pb2
from evenhand_cli.demo.facts import fate

UNDECIDED = frozenset({"", "not-tried", "not-synced"})
"""Codes that are no reason yet: nobody has looked."""
WITHOUT_NODE = frozenset({"pending", "refused"})


@dataclass(frozen=True, slots=True)
class WaitingGroup:
    """Pods that have no node for the same reason, with one of them as the example."""

    code: str
    pods: int
    pod: str
    """The example's namespace and name."""
    key: str
    """The example's key at the core, for `evenhand explain`; empty when the core does not know it."""
    why: str = ""


def waiting_groups(
    pods: Iterable[Mapping[str, Any]],
    asks: Iterable[inspect_pb2.Allocation],
    schedulers: Iterable[str],
) -> list[WaitingGroup]:
    """The pods without a node by reason, the most frequent first."""
    names = frozenset(schedulers)
    codes = {ask.allocation_key: ask.waiting_code for ask in asks}
    found: dict[tuple[str, bool], list[Mapping[str, Any]]] = {}
    for pod in pods:
        if fate(pod, names) in WITHOUT_NODE:
            key = _uid(pod)
            code = codes[key] if key in codes else _own_reason(pod)[0]
            found.setdefault((code, key in codes), []).append(pod)
    groups = [_group(code, known, members) for (code, known), members in found.items()]
    return sorted(groups, key=lambda group: (-group.pods, group.code))


def _group(code: str, known: bool, members: list[Mapping[str, Any]]) -> WaitingGroup:
    first = min(members, key=_name)
    why = "" if known else _own_reason(first)[1]
    return WaitingGroup(code, len(members), _name(first), _uid(first) if known else "", why)


def _own_reason(pod: Mapping[str, Any]) -> tuple[str, str]:
    """What the pod's condition or status says: reason and message."""
    status = pod.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return condition.get("reason", ""), condition.get("message", "")
    return status.get("reason", ""), status.get("message", "")


def _uid(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"].get("uid", ""))


def _name(pod: Mapping[str, Any]) -> str:
    metadata = pod["metadata"]
    return f"{metadata.get('namespace', 'default')}/{metadata['name']}"
