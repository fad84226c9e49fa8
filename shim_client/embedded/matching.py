"""The nodes that get a DaemonSet's pods, according to the DaemonSet's node selector, affinity and tolerations."""

from __future__ import annotations

from collections.abc import Iterable

from shim_client.cluster import KubeObject
from shim_client.messages import NodeConstraints, Taint, Toleration
from shim_client.translate.constraints import node_constraints
from shim_client.translate.fields import BadObjectError, Fields
from shim_client.translate.matching import term_holds
from shim_client.translate.node import NodeFacts, read_node

DAEMON_TAINTS = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
"""Taints that the DaemonSet controller makes its pods tolerate."""


def nodes_for(spec: Fields, nodes: Iterable[KubeObject]) -> list[str]:
    """Return the names of the nodes that match a DaemonSet's pod spec.

    Raises BadObjectError if a field of the pod spec is invalid. A node that cannot be read gets no DaemonSet pod. The
    shim's state machine records an event on an unreadable node.
    """
    wanted = node_constraints(spec) or NodeConstraints()
    readable = filter(None, map(_readable, nodes))
    return [facts.ref.name for facts in readable if _belongs_on(wanted, facts)]


def _readable(node: KubeObject) -> NodeFacts | None:
    try:
        return read_node(node)
    except BadObjectError:
        return None


def _belongs_on(wanted: NodeConstraints, facts: NodeFacts) -> bool:
    name, marks = facts.ref.name, facts.labels
    stands = [Toleration(key, "Exists", "", effect) for key, effect in DAEMON_TAINTS]
    stands += wanted.tolerations
    if any(marks.get(key) != value for key, value in wanted.node_selector):
        return False
    terms = wanted.required_terms
    if terms and not any(term_holds(term, name, marks) for term in terms):
        return False
    hard = [taint for taint in facts.taints if taint.effect in {"NoSchedule", "NoExecute"}]
    return all(any(_stands(item, taint) for item in stands) for taint in hard)


def _stands(item: Toleration, taint: Taint) -> bool:
    if item.effect not in {"", taint.effect}:
        return False
    if item.operator == "Exists":
        return item.key in {"", taint.key}
    return (item.key, item.value) == (taint.key, taint.value)
