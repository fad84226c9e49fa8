"""The counting of a pod at a node, for the affinity, anti-affinity and spread rules of other pods."""

from __future__ import annotations

from shim_client.state_machine.state import PodRecord, State
from shim_client.state_machine.topology_counts import Assignment
from shim_client.translate.matching import Labels

_NO_LABELS: Labels = {}


def settle(state: State, pod: PodRecord, node: str) -> None:
    """Count the pod at a node, and no longer where it was counted before. The node may be unknown."""
    facts, known = pod.facts, state.nodes.get(node)
    state.neighbourhood.settle(
        Assignment(
            uid=facts.ref.uid,
            namespace=facts.ref.namespace,
            labels=facts.labels,
            node_labels=known.facts.labels if known else _NO_LABELS,
            going=facts.deleting,
            apart=facts.demands.apart if facts.demands else (),
        )
    )
