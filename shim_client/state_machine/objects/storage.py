"""Volume claims, volumes, storage classes and attach limits.

A pod is reported as an ask only after the objects that it needs exist.
"""

from __future__ import annotations

from shim_client.cluster import KubeObject
from shim_client.state_machine import pods, settling
from shim_client.state_machine.state import PodRecord, State
from shim_client.translate.fields import mapping
from shim_client.translate.volumes import (
    read_attach_limits,
    read_claim,
    read_storage_class,
    read_volume,
)

ALL_CLAIMS = "*"


def observe_claim(state: State, item: KubeObject) -> None:
    """Record a volume claim; a claim that is being deleted counts as deleted."""
    facts, key = read_claim(item), claim_key(item)
    if facts.deleting:
        state.claims.pop(key, None)
    elif state.claims.get(key) != facts:
        state.claims[key] = facts
        _look_again(state, claim=key)


def forget_claim(state: State, item: KubeObject) -> None:
    """Record that a volume claim was deleted.

    Asks that were already reported stay.
    """
    state.claims.pop(claim_key(item), None)


def observe_volume(state: State, item: KubeObject) -> None:
    """Record a volume and the nodes that can mount it."""
    facts, name = read_volume(item), _name(item)
    if not facts.is_free:
        state.pledged_volumes.pop(name, None)
    before = state.volumes.get(name)
    if before != facts:
        state.volumes[name] = facts
        is_other = before is None or (before.driver, before.handle) != (facts.driver, facts.handle)
        _look_again(state, f"volume {name}", facts.claim if is_other else "")


def forget_volume(state: State, item: KubeObject) -> None:
    """Record that a volume was deleted."""
    name = _name(item)
    before = state.volumes.pop(name, None)
    state.pledged_volumes.pop(name, None)
    _look_again(state, f"volume {name}", before.claim if before else "")


def observe_class(state: State, item: KubeObject) -> None:
    """Record a storage class."""
    facts, name = read_storage_class(item), _name(item)
    if state.storage_classes.get(name) != facts:
        state.storage_classes[name] = facts
        _look_again(state, f"class {name}", ALL_CLAIMS)


def forget_class(state: State, item: KubeObject) -> None:
    """Record that a storage class was deleted."""
    state.storage_classes.pop(_name(item), None)


def observe_limits(state: State, item: KubeObject) -> None:
    """Record how many volumes a node can have attached (CSINode)."""
    state.attachments.limit(_name(item), read_attach_limits(item))


def forget_limits(state: State, item: KubeObject) -> None:
    """Record that a CSINode was deleted: its node has no limits."""
    state.attachments.limit(_name(item), {})


def claim_key(item: KubeObject) -> str:
    """Return namespace and name of the volume claim as one text."""
    return f"{mapping(item, 'metadata').get('namespace')}/{_name(item)}"


def _look_again(state: State, changed: str = "", claim: str = "") -> None:
    """Report the pods that waited for a claim, a volume or a storage class that exists now.

    Let the suitable nodes of all other waiting pods be computed again. ``changed`` names the volume or class whose
    nodes have to be computed again. ``claim`` is the claim whose volume has to be counted again, or ALL_CLAIMS. The
    volume is counted at the node of each pod that mounts the claim.
    """
    state.outlook += 1
    if changed:
        state.reachable.pop(changed, None)
        state.free_volumes.clear()
    for pod in list(state.pods.values()):
        if not pod.facts.claims:
            continue
        if claim and (at := pod.node or pod.promised) and _mounts(pod, claim):
            settling.settle_volumes(state, pod, at)
        if pod.sent is None:
            pods.offer(state, pod)


def _mounts(pod: PodRecord, claim: str) -> bool:
    namespace = pod.facts.ref.namespace
    return claim == ALL_CLAIMS or any(claim == f"{namespace}/{name}" for name in pod.facts.claims)


def _name(item: KubeObject) -> str:
    return str(mapping(item, "metadata").get("name"))
