"""Volume claims, volumes and storage classes.

A pod is reported as an ask only after those that it needs exist.
"""

from __future__ import annotations

from shim_client.cluster import KubeObject
from shim_client.state_machine import pods
from shim_client.state_machine.state import State
from shim_client.translate.fields import mapping
from shim_client.translate.volumes import read_claim, read_storage_class, read_volume


def observe_claim(state: State, item: KubeObject) -> None:
    """Record a volume claim; a claim that is being deleted counts as deleted."""
    facts, key = read_claim(item), claim_key(item)
    if facts.deleting:
        state.claims.pop(key, None)
    elif state.claims.get(key) != facts:
        state.claims[key] = facts
        _look_again(state)


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
    if state.volumes.get(name) != facts:
        state.volumes[name] = facts
        _look_again(state, f"volume {name}")


def forget_volume(state: State, item: KubeObject) -> None:
    """Record that a volume was deleted."""
    name = _name(item)
    state.volumes.pop(name, None)
    state.pledged_volumes.pop(name, None)
    _look_again(state, f"volume {name}")


def observe_class(state: State, item: KubeObject) -> None:
    """Record a storage class."""
    facts, name = read_storage_class(item), _name(item)
    if state.storage_classes.get(name) != facts:
        state.storage_classes[name] = facts
        _look_again(state, f"class {name}")


def forget_class(state: State, item: KubeObject) -> None:
    """Record that a storage class was deleted."""
    state.storage_classes.pop(_name(item), None)


def claim_key(item: KubeObject) -> str:
    """Return namespace and name of the volume claim as one text."""
    return f"{mapping(item, 'metadata').get('namespace')}/{_name(item)}"


def _look_again(state: State, changed: str = "") -> None:
    """Report the pods that waited for a claim, volume or storage class that exists now.

    Have the other asks reviewed. ``changed`` names the volume or class whose nodes have to be found again.
    """
    state.outlook += 1
    if changed:
        state.reachable.pop(changed, None)
        state.free_volumes.clear()
    for pod in list(state.pods.values()):
        if pod.facts.claims and pod.sent is None:
            pods.offer(state, pod)


def _name(item: KubeObject) -> str:
    return str(mapping(item, "metadata").get("name"))
