"""PodGroups. A PodGroup says how many of its pods are placed together.

The members of a PodGroup are reported again when this number changes.
"""

from __future__ import annotations

from collections.abc import Iterable

from shim_client.cluster import KubeObject, Listing, ObjectRef
from shim_client.state_machine import pods
from shim_client.state_machine.state import State
from shim_client.translate.fields import mapping, text
from shim_client.translate.pod_groups import read_pod_group


def observe(state: State, item: KubeObject) -> None:
    """Record a PodGroup. If the group is new or has another size, report the pods of the group."""
    ref = _ref(item)
    key = f"{ref.namespace}/{ref.name}"
    facts = read_pod_group(item)
    before = state.pod_groups.get(key)
    state.pod_groups[key] = facts
    if facts.without_effect and (before is None or before.without_effect != facts.without_effect):
        names = ", ".join(facts.without_effect)
        state.note(ref, "PodGroupNotClear", f"{names} of its spec: no effect here", warning=True)
    if before != facts:
        _offer(state, state.grouped.get(key, ()))


def forget(state: State, item: KubeObject) -> None:
    """Record that a PodGroup was deleted.

    Members that the core knows keep their gang.
    """
    ref = _ref(item)
    state.pod_groups.pop(f"{ref.namespace}/{ref.name}", None)


def refresh(state: State, listing: Listing) -> None:
    """Record whether the cluster serves PodGroups.

    If this has changed, update the reason on pods that are not reported as asks because of a PodGroup.
    """
    if state.has_pod_groups != listing.served:
        state.has_pod_groups = listing.served
        for members in list(state.grouped.values()):
            _offer(state, members)


def _offer(state: State, members: Iterable[str]) -> None:
    for uid in list(members):
        pods.offer(state, state.pods[uid])


def _ref(item: KubeObject) -> ObjectRef:
    metadata = mapping(item, "metadata")
    namespace, name = (text(metadata, key, "metadata.") for key in ("namespace", "name"))
    return ObjectRef("PodGroup", namespace, name)
