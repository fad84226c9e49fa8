"""The counting of a pod, and of its volumes, at a node.

The affinity, anti-affinity and spread rules of other pods use the counts of pods.
"""

from __future__ import annotations

from shim_client.state_machine.attachments import Attached
from shim_client.state_machine.state import PodRecord, State
from shim_client.state_machine.topology_counts import Assignment
from shim_client.translate.matching import Labels
from shim_client.translate.pod import PodFacts

_NO_LABELS: Labels = {}
_NO_GROUPS: frozenset[str] = frozenset()


def settle(state: State, pod: PodRecord, node: str) -> None:
    """Count the pod at a node, and stop counting it at its former node. The node may be unknown."""
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
    settle_volumes(state, pod, node)


def settle_volumes(state: State, pod: PodRecord, node: str) -> None:
    """Count the volumes of the pod's claims at a node, as the claims are now.

    If the pod is already counted at this node and one of its claims is being deleted, the count stays as it is,
    because the volume is still attached.
    """
    uid = pod.facts.ref.uid
    if not pod.facts.claims:
        return
    lacks_claim = any(state.claim_of(pod, name) is None for name in pod.facts.claims)
    if not (lacks_claim and state.attachments.place_of(uid) == node):
        state.attachments.settle(uid, node, volumes_of(state, pod))


def unsettle(state: State, pod: PodRecord) -> None:
    """Count the pod and its volumes nowhere."""
    state.neighbourhood.unsettle(pod.facts.ref.uid)
    state.attachments.unsettle(pod.facts.ref.uid)


def volumes_of(state: State, pod: PodRecord) -> tuple[Attached, ...]:
    """Return the volumes of CSI drivers that the pod's claims have or will get. Each volume occurs once.

    A claim without a volume, or with an unknown volume, counts as a new volume of the CSI driver of the claim's class.
    """
    found: dict[Attached, None] = {}
    for name in pod.facts.claims:
        claim = state.claim_of(pod, name)
        if claim is None:
            continue
        volume = state.volumes.get(claim.volume)
        kind = state.storage_classes.get(claim.storage_class)
        if volume is not None and volume.driver and volume.handle:
            found[Attached(volume.driver, volume.handle)] = None
        elif volume is None and kind is not None and kind.driver:
            found[Attached(kind.driver, f"claim {pod.facts.ref.namespace}/{name}")] = None
    return tuple(found)


def _groups(facts: PodFacts) -> frozenset[str]:
    """Return the groups in which the core counts a pod of this scheduler; pods of other schedulers are in no group."""
    if not facts.ours or facts.demands is None or not facts.demands.preferred:
        return _NO_GROUPS
    return frozenset(one.group for one in facts.demands.preferred if one.group)
