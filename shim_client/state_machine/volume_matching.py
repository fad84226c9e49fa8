"""The existing volumes for a pod's claims whose class waits for the first pod (volumeBindingMode WaitForFirstConsumer).

For a claim of a class with this binding mode, Kubernetes leaves the choice of a volume to the scheduler. The volume
must be free, of the claim's class, large enough, and one that the pod's node can mount. The volume must also have the
access modes, volume mode and labels that the claim demands. If several volumes are suitable, the claim gets the
smallest of them. If the smallest volumes are equally large, the claim gets the first of them by name. If no existing
volume is suitable, the claim gets a new volume if its class provisions volumes for that node. A volume is pledged to a
pod when the order to bind the pod is given, until the claim is written into the volume.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from heapq import merge
from typing import NamedTuple

from shim_client.messages import SelectorTerm
from shim_client.state_machine.state import PodRecord, State
from shim_client.translate.matching import selects, term_holds
from shim_client.translate.volumes import ClaimFacts, StorageClassFacts, VolumeFacts

ANYWHERE = ""
"""The name under which `State.free_volumes` has the volumes that every node can mount."""
ALL = "*"
"""The name under which all free volumes of a class are found."""

Sized = tuple[int, str]
"""Size and name of a volume. Claims take volumes in the order of these pairs."""


class Unbound(NamedTuple):
    """A claim of a pod that has no volume yet, and its class."""

    name: str
    facts: ClaimFacts
    kind: StorageClassFacts


def unbound(state: State, pod: PodRecord) -> list[Unbound]:
    """Return the pod's claims that get a volume only when the pod gets a node, the smallest claim first."""
    found = []
    for name in pod.facts.claims:
        claim = state.claim_of(pod, name)
        kind = state.storage_classes.get(claim.storage_class) if claim else None
        if claim is not None and claim.phase == "Pending" and kind is not None:
            found.append(Unbound(name, claim, kind))
    return sorted(found, key=lambda one: (one.facts.size, one.name))


def lacking(state: State, pod: PodRecord) -> str:
    """Return the name of a claim of the pod that cannot get a volume on any node.

    Return "" when every claim can get a volume.
    """
    for one in unbound(state, pod):
        may_get_new = one.kind.provisions and not one.facts.selector
        if may_get_new or any(_suits(state, one, name, ()) for name in _large(state, one)):
            continue
        return (
            f"no free volume of class {one.facts.storage_class!r} suits persistentvolumeclaim {one.name!r}: "
            "size, access modes, volume mode and labels count"
        )
    return ""


def plan(state: State, pod: PodRecord, node: str) -> dict[str, str] | None:
    """Return, for each unbound claim of the pod, the volume that the claim would get on this node; "" for a new volume.

    Return None if a claim of the pod gets no volume on this node.
    """
    chosen: dict[str, str] = {}
    for one in unbound(state, pod):
        free = _free(state, one.facts.storage_class)
        at_hand = merge(free.get(node, ()), free.get(ANYWHERE, ()))
        taken = chosen.values()
        found = next((name for _, name in at_hand if _suits(state, one, name, taken)), "")
        if not found and not _provisions(state, one, node):
            return None
        chosen[one.name] = found
    return chosen


def nodes(state: State, pod: PodRecord) -> set[str] | None:
    """Return the nodes where all unbound claims of the pod get volumes.

    Return None if every node is possible.
    """
    wanted = unbound(state, pod)
    limits = [near for one in wanted if (near := _near(state, one)) is not None]
    if not limits:
        return None
    found = set.intersection(*limits)
    if len(wanted) > 1:
        return {node for node in found if plan(state, pod, node) is not None}
    return found


def pledge(state: State, pod: PodRecord, volumes: Mapping[str, str]) -> None:
    """Pledge the volumes of a plan to the pod, so that claims of other pods do not get these volumes."""
    for name in filter(None, volumes.values()):
        state.pledged_volumes[name] = pod.facts.ref.uid
        _change(state, name)


def release(state: State, uid: str) -> None:
    """End the pledges of volumes to a pod, so that other pods can get these volumes."""
    for name in [name for name, holder in state.pledged_volumes.items() if holder == uid]:
        del state.pledged_volumes[name]
        _change(state, name)


def nodes_meeting(state: State, source: str, facts: VolumeFacts | StorageClassFacts) -> set[str]:
    """Return the nodes that meet one of the node terms of a volume or class.

    ``source`` is the name of the volume or class.
    """
    known = state.reachable.get(source)
    if known is None:
        known = {
            name
            for term in facts.terms
            for name in _candidates(state, term)
            if term_holds(term, name, state.nodes[name].facts.labels)
        }
        state.reachable[source] = known
    return known


def _candidates(state: State, term: SelectorTerm) -> Iterator[str]:
    """Yield the nodes that may meet a term.

    If the term lists values of a label, yield the nodes with one of these values; else yield all nodes.
    """
    anchor = next((one for one in term.match_expressions if one.operator == "In"), None)
    if anchor is None:
        yield from state.nodes
        return
    places = places_of(state, anchor.key)
    for value in anchor.values:
        yield from places.get(value, ())


def places_of(state: State, key: str) -> Mapping[str, list[str]]:
    """Return the names of nodes by the value of one of their labels."""
    places = state.places.get(key)
    if places is None:
        places = state.places[key] = {}
        for name, node in state.nodes.items():
            if (place := node.facts.labels.get(key)) is not None:
                places.setdefault(place, []).append(name)
    return places


def _free(state: State, storage_class: str) -> Mapping[str, list[Sized]]:
    """Return the free volumes of a class by node, in the order in which claims take them.

    The key `ALL` has all free volumes of the class.
    """
    known = state.free_volumes.get(storage_class)
    if known is None:
        known = state.free_volumes[storage_class] = {}
        known[ALL] = sorted(
            (facts.size, name)
            for name, facts in state.volumes.items()
            if facts.is_free
            and facts.storage_class == storage_class
            and name not in state.pledged_volumes
        )
        for size, name in known[ALL]:
            facts = state.volumes[name]
            near = nodes_meeting(state, f"volume {name}", facts) if facts.terms else (ANYWHERE,)
            for node in near:
                known.setdefault(node, []).append((size, name))
    return known


def _large(state: State, one: Unbound) -> Iterator[str]:
    """Yield the free volumes of the claim's class that are large enough, the largest first."""
    for size, name in reversed(_free(state, one.facts.storage_class)[ALL]):
        if size < one.facts.size:
            return
        yield name


def _suits(state: State, one: Unbound, name: str, taken: Collection[str]) -> bool:
    """Return whether a claim may get a free volume. ``taken`` are the volumes that other claims of the pod get."""
    claim, volume = one.facts, state.volumes[name]
    return (
        name not in taken
        and volume.size >= claim.size
        and volume.mode == claim.mode
        and claim.access_modes <= volume.access_modes
        and selects(claim.selector, volume.labels)
    )


def _provisions(state: State, one: Unbound, node: str) -> bool:
    """Return whether the claim's class makes a new volume for a node."""
    if not one.kind.provisions or one.facts.selector:
        return False
    source = f"class {one.facts.storage_class}"
    return not one.kind.terms or node in nodes_meeting(state, source, one.kind)


def _near(state: State, one: Unbound) -> set[str] | None:
    """Return the nodes where a claim gets a volume, given that the pod has no other unbound claim.

    Return None if every node is possible.
    """
    free = _free(state, one.facts.storage_class)
    found = {
        node
        for node, there in free.items()
        if node != ALL and any(_suits(state, one, name, ()) for _, name in there)
    }
    if ANYWHERE in found:
        return None
    if not one.kind.provisions or one.facts.selector:
        return found
    if not one.kind.terms:
        return None
    return found | nodes_meeting(state, f"class {one.facts.storage_class}", one.kind)


def _change(state: State, name: str) -> None:
    """Discard the list of free volumes of the volume's class, and let the waiting pods be reviewed."""
    facts = state.volumes.get(name)
    if facts is not None:
        state.free_volumes.pop(facts.storage_class, None)
    state.outlook += 1
