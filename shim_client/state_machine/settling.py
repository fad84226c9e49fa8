"""The counting of a pod at a node, for the affinity, anti-affinity and spread rules of other pods."""

from __future__ import annotations

from shim_client.state_machine.state import PodRecord, State
from shim_client.state_machine.topology_counts import Assignment
from shim_client.translate.matching import Labels
from shim_client.translate.pod import PodFacts

_NO_LABELS: Labels = {}
_NO_GROUPS: frozenset[str] = frozenset()


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
            groups=_groups(facts),
        )
    )


def _groups(facts: PodFacts) -> frozenset[str]:
    """Return the groups of a pod of this scheduler, which the core knows; pods of other schedulers are in no group."""
    if not facts.ours or facts.demands is None or not facts.demands.preferred:
        return _NO_GROUPS
    return frozenset(one.group for one in facts.demands.preferred if one.group)
