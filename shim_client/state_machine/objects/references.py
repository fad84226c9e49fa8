"""PriorityClasses and namespaces, to which pods refer, and the removal of objects that were deleted without a watch event."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from shim_client.cluster import KubeObject, Listing, ObjectRef
from shim_client.state_machine import application_answers, applications, nodes, pods
from shim_client.state_machine.objects import budgets, configuration, pod_groups, policies, storage
from shim_client.state_machine.state import State
from shim_client.translate.applications import read_namespace
from shim_client.translate.fields import BadObjectError, mapping
from shim_client.translate.policies import GUARD
from shim_client.translate.priority import read_priority_class


def observe_class(state: State, item: KubeObject) -> None:
    """Record a PriorityClass. If its annotation on preemption has changed, report the pods of this class again."""
    facts = read_priority_class(item)
    _set_class(state, facts.name, allows=facts.allow_preemption)


def forget_class(state: State, item: KubeObject) -> None:
    """Record that a PriorityClass was deleted; pods of an unknown class allow preemption."""
    name = _name(item)
    _set_class(state, name, allows=True)
    state.classes.pop(name, None)


def observe_namespace(state: State, item: KubeObject) -> None:
    """Record a namespace.

    If the annotations of the namespace changed, send the new tags of its applications, so that a quota takes effect
    at once. While an annotation cannot be read, no tags are sent, because a mistake must not remove the quota in
    force.
    """
    facts = read_namespace(item)
    known = state.namespaces.get(facts.name)
    if known is None or known.problems != facts.problems:
        for problem in facts.problems:
            ref = ObjectRef("Namespace", "", facts.name)
            state.note(ref, "AnnotationNotClear", problem, warning=True)
    state.namespaces[facts.name] = facts
    state.neighbourhood.name_namespace(facts.name, facts.labels)
    is_new = known is None or known.problems or known.tags != facts.tags
    if is_new and not facts.problems:
        state.bad.pop(application_answers.refusal_key(facts.name), None)
        applications.retag(state, facts.name)


def forget_namespace(state: State, item: KubeObject) -> None:
    """Record that a namespace was deleted."""
    state.namespaces.pop(_name(item), None)
    state.neighbourhood.name_namespace(_name(item), None)


def remove_vanished(state: State, listing: Listing) -> None:
    """Remove known objects that a list lacks: they were deleted without a watch event."""
    present = {_identity(listing.kind, item) for item in listing.items}
    for gone in [known for known in _known(state, listing.kind) if known not in present]:
        _remove(state, listing.kind, gone)


def _identity(kind: str, item: KubeObject) -> str:
    if kind == "Pod":
        return str(mapping(item, "metadata").get("uid"))
    namespaced = kind in {"PersistentVolumeClaim", "PodDisruptionBudget", "PodGroup"}
    return storage.claim_key(item) if namespaced else _name(item)


def _known(state: State, kind: str) -> list[str]:
    if kind == "PodDisruptionBudget":
        return [f"{namespace}/{name}" for namespace, kept in state.budgets.items() for name in kept]
    known: dict[str, Iterable[str]] = {
        "Pod": state.pods,
        "Node": state.nodes,
        "ValidatingAdmissionPolicy": [GUARD] if state.guard.policy else [],
        "ValidatingAdmissionPolicyBinding": state.guard.bindings,
        "PriorityClass": state.classes,
        "Namespace": state.namespaces,
        "PersistentVolumeClaim": state.claims,
        "PersistentVolume": state.volumes,
        "PodGroup": state.pod_groups,
        "StorageClass": state.storage_classes,
        "CSINode": state.attachments.nodes(),
        "ConfigMap": state.config_maps,
    }
    return list(known[kind])


def _remove(state: State, kind: str, gone: str) -> None:
    match kind:
        case "Pod":
            pods.remove(state, gone)
        case "Node":
            nodes.remove(state, gone)
        case "ConfigMap":
            configuration.remove(state, gone)
        case _:
            _forget(state, kind, gone)


def _forget(state: State, kind: str, gone: str) -> None:
    namespace, _, name = gone.rpartition("/")
    _FORGETTERS[kind](state, {"metadata": {"namespace": namespace, "name": name}})


_FORGETTERS: Mapping[str, Callable[[State, KubeObject], None]] = {
    "PriorityClass": forget_class,
    "Namespace": forget_namespace,
    "PodDisruptionBudget": budgets.forget,
    "PodGroup": pod_groups.forget,
    "PersistentVolumeClaim": storage.forget_claim,
    "PersistentVolume": storage.forget_volume,
    "StorageClass": storage.forget_class,
    "CSINode": storage.forget_limits,
    "ValidatingAdmissionPolicy": policies.forget_policy,
    "ValidatingAdmissionPolicyBinding": policies.forget_binding,
}
"""The handler of a deletion, for the kinds that are neither pods, nodes nor ConfigMaps."""


def _set_class(state: State, name: str, *, allows: bool) -> None:
    before = state.classes.get(name, True)
    state.classes[name] = allows
    if before == allows:
        return
    for pod in list(state.pods.values()):
        if pod.facts.priority_class == name and pod.sent is not None:
            pods.offer(state, pod)


def _name(item: KubeObject) -> str:
    return str(mapping(item, "metadata").get("name"))


def complain(state: State, kind: str, item: KubeObject, bad: BadObjectError) -> None:
    """Record an event with the reason on an unreadable object, once."""
    metadata = item.get("metadata")
    names = metadata if isinstance(metadata, dict) else {}
    namespace, name = (str(names.get(key) or "")[:253] for key in ("namespace", "name"))
    key = f"{kind}/{namespace}/{name}"
    if state.bad.get(key) != str(bad):
        state.bad[key] = str(bad)
        ref = ObjectRef(kind, namespace, name or "unnamed")
        state.note(ref, f"{kind}NotReadable", str(bad), warning=True)
