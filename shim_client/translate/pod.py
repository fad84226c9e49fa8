"""A pod as the shim needs it: its facts, and its report for the core.

The facts hold no reference to the pod's original object, so that a large cluster takes little memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from sys import intern

from shim_client.cluster import ObjectRef
from shim_client.config import Settings
from shim_client.messages import (
    DEFAULT_PARTITION,
    PodReport,
    Protection,
    Releasing,
    TerminationType,
)
from shim_client.translate import labels
from shim_client.translate.applications import Membership
from shim_client.translate.fields import BadObjectError, Fields, instant_ms, items, mapping, text
from shim_client.translate.metadata import MetadataFacts, own_membership, read_metadata
from shim_client.translate.neighbours import Demands, demands
from shim_client.translate.pod_groups import group_of
from shim_client.translate.preferences import node_preferences
from shim_client.translate.priority import lowered, protection
from shim_client.translate.spec import SpecFacts, read_spec
from shim_client.translate.task_groups import Gang

REPLACEMENT = "p-"
"""Beginning of the ids of decisions by which a real pod replaces a placeholder."""
_REPLACED = TerminationType.PLACEHOLDER_REPLACED
ENDED = ("Succeeded", "Failed")
"""Phases of a pod that has ended."""


@dataclass(frozen=True, slots=True)
class PodFacts:
    """The facts of one pod that the state machine keeps."""

    ref: ObjectRef
    report: PodReport
    membership: Membership
    ours: bool
    created_ms: int
    deleting: bool
    gates: tuple[str, ...]
    claims: tuple[str, ...]
    devices: tuple[str, ...]
    priority_class: str
    opinion: bool | None
    """The value of the pod's own annotation about preemption; None when its PriorityClass decides."""
    delivery: str
    """The way in which the pod is being evicted, if the shim has marked the pod as a victim."""
    owner_uid: str
    """Uid of the first owner; the owner of a placeholder is the pod for which it was created."""
    sized_by: ObjectRef | None
    """The owner that knows the size of the pod's job, when no label says it (J1)."""
    labels: Mapping[str, str]
    demands: Demands | None
    """Demands of the pod on the pods around it.

    The demands are read for the pods of all schedulers, because the pods of every scheduler can exclude other pods.
    """
    gang: Gang | None = None
    """The task groups of the application that this pod creates."""
    placeholders_made: bool = False
    """Whether the placeholders of these task groups were created, so that they are not created again."""
    pull_secrets: tuple[str, ...] = ()
    own_claims: tuple[str, ...] = ()
    """The claims of generic ephemeral volumes, which must be owned by this pod."""
    pod_group: str = ""
    """The PodGroup that a pod of this scheduler names; "" for none."""
    problems: tuple[str, ...] = field(default=(), compare=False)


def read_ref(pod: Fields) -> ObjectRef:
    """Return the reference of a pod (namespace, name and uid). Raises BadObjectError when name or uid is missing."""
    metadata = mapping(pod, "metadata")
    namespace = text(metadata, "namespace", "metadata.")
    uid = text(metadata, "uid", "metadata.")
    name = text(metadata, "name", "metadata.")
    if not name or not uid:
        raise BadObjectError("metadata", "has no name or no uid")
    return ObjectRef("Pod", intern(namespace), name, uid)


def is_terminated(pod: Fields) -> bool:
    """Return whether the pod has ended; such a pod counts as deleted."""
    status = pod.get("status")
    return isinstance(status, dict) and status.get("phase") in ENDED


def read_pod(pod: Fields, settings: Settings, known: ObjectRef | None = None) -> PodFacts:
    """Return the pod's facts.

    Raises BadObjectError, which names the unreadable field. `known` is the pod's reference from an
    earlier reading, so that only one copy of it is kept.
    """
    metadata, spec = mapping(pod, "metadata"), mapping(pod, "spec")
    ref = known or read_ref(pod)
    ours = text(spec, "schedulerName", "spec.") in settings.scheduler_names
    group = intern(group_of(spec)) if ours else ""
    marks = read_metadata(metadata, ref.namespace, settings, ours=ours, group=group)
    created_ms = instant_ms(metadata, "creationTimestamp", "metadata.")
    found = read_spec(spec, mapping(pod, "status"), ours=ours)
    member = own_membership(metadata, ref, settings) if marks.by_uid else marks.membership
    notes = mapping(metadata, "annotations")
    around = _demands(spec, ref, marks.labels, ours=ours)
    own_claims = tuple(f"{ref.name}-{volume}" for volume in found.ephemeral)
    report = (
        _own_report(pod, ref, member.application, marks, found)
        if ours
        else _foreign(spec, ref, created_ms, marks, found)
    )
    preferences = node_preferences(found.preferred, around) if ours else None
    return PodFacts(
        ref=ref,
        report=report if preferences is None else replace(report, preferences=preferences),
        membership=member,
        ours=ours,
        created_ms=created_ms,
        deleting=bool(metadata.get("deletionTimestamp")),
        gates=found.gates,
        claims=found.claims + own_claims,
        devices=found.devices,
        priority_class=found.priority_class,
        opinion=marks.opinion,
        delivery=notes.get(labels.DELIVERY, ""),
        owner_uid=marks.owner_uid,
        sized_by=marks.sized_by,
        labels=marks.labels,
        demands=around,
        gang=marks.gang,
        placeholders_made=marks.placeholders_made,
        pull_secrets=_pull_secrets(spec) if marks.gang else (),
        own_claims=own_claims,
        pod_group=group,
        problems=marks.problems,
    )


def _pull_secrets(spec: Fields) -> tuple[str, ...]:
    listed = items(spec, "imagePullSecrets", "spec.")
    return tuple(text(each, "name", "spec.imagePullSecrets[].") for each in listed)


def for_core(facts: PodFacts, *, class_allows: bool, originator: bool) -> PodReport:
    """Return the report of a pod, completed with two facts: whether the pod may be preempted, and whether it is the originator.

    ``class_allows`` says whether the pod's PriorityClass allows the preemption of the pod. ``class_allows`` is used only if the
    pod has no annotation of its own. If the pod opted out and its protection is unspecified, the report has the level
    prefer-not. The report of another scheduler's pod is returned unchanged.
    """
    if not facts.ours:
        return facts.report
    allowed = class_allows if facts.opinion is None else facts.opinion
    kept = lowered(facts.report.protection, allow_preempt_self=allowed)
    if allowed and not originator and kept is facts.report.protection:
        return facts.report
    return replace(facts.report, allow_preempt_self=allowed, protection=kept, originator=originator)


def _demands(
    spec: Fields, ref: ObjectRef, marks: Mapping[str, str], *, ours: bool
) -> Demands | None:
    """Return the pod's demands on its neighbours; unreadable demands of another scheduler's pod are ignored."""
    try:
        return demands(spec, ref.namespace, marks)
    except BadObjectError:
        if ours:
            raise
        return None


def _own_report(
    pod: Fields, ref: ObjectRef, application: str, marks: MetadataFacts, found: SpecFacts
) -> PodReport:
    metadata, spec = mapping(pod, "metadata"), mapping(pod, "spec")
    pinned_to = found.named_node if marks.of_daemon else ""
    return PodReport(
        key=ref.uid,
        application=application,
        partition=marks.partition,
        resource=found.resource,
        priority=found.priority,
        node=intern(text(spec, "nodeName", "spec.")),
        tags=_pinned(marks.tags, pinned_to) if pinned_to else marks.tags,
        pod_name=ref.name,
        created_s=instant_ms(metadata, "creationTimestamp") // 1000,
        task_group=marks.task_group,
        placeholder=marks.placeholder,
        allow_preempt_other=found.allow_preempt_other,
        constraints=found.constraints,
        job_key=marks.job.key,
        job_members=marks.job.members,
        job_trigger=marks.job.trigger,
        protection=protection(
            found.priority_class, preemptible=marks.preemptible, pinned=bool(pinned_to)
        ),
        started_ms=instant_ms(mapping(pod, "status"), "startTime", "status."),
        grace_seconds=found.grace_seconds,
        rm_check=found.rm_check,
        releasing=_releasing(metadata),
    )


def _pinned(tags: Mapping[str, str], node: str) -> Mapping[str, str]:
    """Return the tags of a DaemonSet's pod, with a tag for the node for which the pod was created."""
    return {**tags, labels.TAG_REQUIRED_NODE: node}


def _foreign(
    spec: Fields, ref: ObjectRef, created_ms: int, marks: MetadataFacts, found: SpecFacts
) -> PodReport:
    """Return the report of another scheduler's pod, which occupies its node and is never a victim."""
    return PodReport(
        key=ref.uid,
        application="",
        partition=DEFAULT_PARTITION,
        resource=found.resource,
        priority=0,
        node=intern(text(spec, "nodeName", "spec.")),
        tags=marks.tags,
        pod_name=ref.name,
        created_s=created_ms // 1000,
        protection=Protection.UNTOUCHABLE,
    )


def _releasing(metadata: Fields) -> Releasing | None:
    """Return why a pod is ending: because of an eviction that the shim's annotation names, or because of a deletion.

    Return None for a pod that is not ending.
    """
    notes = mapping(metadata, "annotations")
    written = notes.get(labels.RELEASED_FOR, "").split("/")
    if written[0] and len(written) == len(("decision", "beneficiary", "node")):
        replaced = written[0].startswith(REPLACEMENT)
        kind = _REPLACED if replaced else TerminationType.PREEMPTED_BY_SCHEDULER
        decision, beneficiary, node = written
        return Releasing(kind, decision, beneficiary, node, notes.get(labels.DELIVERY, ""))
    if metadata.get("deletionTimestamp"):
        return Releasing(TerminationType.STOPPED_BY_RM)
    return None
