"""A pod as the shim needs it: facts, and the report that the core gets (specification 1.1-1.5).

The facts do not hold the pod's own object, so that a large cluster stays small in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from shim_client.cluster import ObjectRef
from shim_client.config import Settings
from shim_client.reports import (
    DEFAULT_PARTITION,
    PodReport,
    Protection,
    Releasing,
    TerminationType,
)
from shim_client.translate import labels
from shim_client.translate.applications import Marked, Membership, membership
from shim_client.translate.constraints import (
    needs_check_here,
    node_constraints,
    required_node,
    volume_claims,
)
from shim_client.translate.fields import (
    BadObjectError,
    Fields,
    instant_ms,
    items,
    mapping,
    text,
    texts,
    whole,
)
from shim_client.translate.jobs import job_marks, owner_with_size, truth
from shim_client.translate.neighbours import Demands, demands
from shim_client.translate.priority import (
    lowered,
    may_preempt_others,
    pod_opinion,
    protection,
)
from shim_client.translate.resources import pod_resource
from shim_client.translate.task_groups import Gang, read_gang

_PRIORITIES = (-(2**31), 2**31 - 1)
_GRACES = (0, 2**31)
GRACE_SECONDS_DEFAULT = 30
"""The API server's own default of terminationGracePeriodSeconds."""
REPLACEMENT = "p-"
"""Beginning of the core's decision ids by which a placeholder goes for a real pod."""
_REPLACED = TerminationType.PLACEHOLDER_REPLACED
ENDED = ("Succeeded", "Failed")
"""Phases of a pod that has ended."""
_FOREIGN_APPLICATION = Membership("", "", "", ())


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What the mirror knows of one pod."""

    ref: ObjectRef
    report: PodReport
    membership: Membership
    ours: bool
    created_ms: int
    deleting: bool
    gates: tuple[str, ...]
    claims: tuple[str, ...]
    priority_class: str
    opinion: bool | None
    """The pod's own annotation about being preempted, None when the class decides."""
    delivery: str
    """How the pod is to go, when it carries our mark."""
    owner_uid: str
    """The first owner's uid: who a placeholder was made for (1.4, originator)."""
    sized_by: ObjectRef | None
    """The owner that knows the size of the pod's job, when no label says it (J1)."""
    labels: Mapping[str, str]
    demands: Demands | None
    """What it demands of the pods around it; of any scheduler's pod, for it keeps others away."""
    gang: Gang | None = None
    """The task groups that its application wants places for, if it is the one that creates it."""
    placeholders_made: bool = False
    """They got their placeholders, so that nobody makes them again."""
    pull_secrets: tuple[str, ...] = ()
    problems: tuple[str, ...] = field(default=(), compare=False)


def read_ref(pod: Fields) -> ObjectRef:
    """Return the pod's names; errors: BadObjectError when it has none."""
    metadata = mapping(pod, "metadata")
    namespace = text(metadata, "namespace", "metadata.")
    uid = text(metadata, "uid", "metadata.")
    name = text(metadata, "name", "metadata.")
    if not name or not uid:
        raise BadObjectError("metadata", "has no name or no uid")
    return ObjectRef("Pod", namespace, name, uid)


def is_terminated(pod: Fields) -> bool:
    """Return whether the pod has ended, which is treated as its deletion (1.1)."""
    status = pod.get("status")
    return isinstance(status, dict) and status.get("phase") in ENDED


def read_pod(pod: Fields, settings: Settings) -> PodFacts:
    """Return the pod's facts; errors: BadObjectError names the field that cannot be read."""
    metadata, spec = mapping(pod, "metadata"), mapping(pod, "spec")
    ref = read_ref(pod)
    ours = text(spec, "schedulerName", "spec.") in settings.scheduler_names
    problems: list[str] = []
    marked = _marked(metadata, ref)
    member = membership(marked, settings, problems) if ours else _FOREIGN_APPLICATION
    created_ms = instant_ms(metadata, "creationTimestamp", "metadata.")
    gang = _gang(marked, settings, problems) if ours else None
    return PodFacts(
        ref=ref,
        report=(
            _own_report(pod, marked, member.application, problems)
            if ours
            else _foreign(pod, ref, created_ms)
        ),
        membership=member,
        ours=ours,
        created_ms=created_ms,
        deleting=bool(metadata.get("deletionTimestamp")),
        gates=tuple(text(gate, "name") for gate in items(spec, "schedulingGates", "spec.")),
        claims=volume_claims(spec) if ours else (),
        priority_class=text(spec, "priorityClassName", "spec."),
        opinion=pod_opinion(marked.annotations, honoured=settings.honour_pod_annotation),
        delivery=marked.annotations.get(labels.DELIVERY, ""),
        owner_uid=_owner_uid(metadata),
        sized_by=owner_with_size(metadata, ref.namespace) if ours else None,
        labels=marked.labels,
        demands=_demands(spec, ref, marked, ours=ours),
        gang=gang,
        placeholders_made=labels.PLACEHOLDERS_MADE in marked.annotations,
        pull_secrets=_pull_secrets(spec) if gang else (),
        problems=tuple(problems),
    )


def _gang(marked: Marked, settings: Settings, problems: list[str]) -> Gang | None:
    """Return the task groups of a real pod; a name of a group that they do not have is said."""
    notes = marked.annotations
    if not settings.gangs or notes.get(labels.PLACEHOLDER) == "true":
        return None
    gang = read_gang(notes, problems)
    name = notes.get(labels.TASK_GROUP, "")
    if gang is not None and name and all(group.name != name for group in gang.groups):
        problems.append(f"annotation {labels.TASK_GROUP}: there is no task group {name[:80]!r}")
    return gang


def _pull_secrets(spec: Fields) -> tuple[str, ...]:
    listed = items(spec, "imagePullSecrets", "spec.")
    return tuple(text(each, "name", "spec.imagePullSecrets[].") for each in listed)


def for_core(facts: PodFacts, *, class_allows: bool, originator: bool) -> PodReport:
    """Return the report with what the pod alone does not know: its class and its rank."""
    if not facts.ours:
        return facts.report
    allowed = class_allows if facts.opinion is None else facts.opinion
    kept = lowered(facts.report.protection, allow_preempt_self=allowed)
    if allowed and not originator and kept is facts.report.protection:
        return facts.report
    return replace(facts.report, allow_preempt_self=allowed, protection=kept, originator=originator)


def _demands(spec: Fields, ref: ObjectRef, marked: Marked, *, ours: bool) -> Demands | None:
    """Return what the pod demands of its neighbours; another scheduler's pod keeps its room anyway."""
    try:
        return demands(spec, ref.namespace, marked.labels)
    except BadObjectError:
        if ours:
            raise
        return None


def _marked(metadata: Fields, ref: ObjectRef) -> Marked:
    marks = texts(metadata, "labels", "metadata.")
    return Marked(ref.namespace, ref.uid, marks, texts(metadata, "annotations", "metadata."))


def _own_report(pod: Fields, marked: Marked, application: str, problems: list[str]) -> PodReport:
    metadata, spec = mapping(pod, "metadata"), mapping(pod, "spec")
    marks, notes, ref = marked.labels, marked.annotations, read_ref(pod)
    pinned_to = required_node(pod)
    placeholder = notes.get(labels.PLACEHOLDER) == "true"
    class_name = text(spec, "priorityClassName", "spec.")
    job = job_marks(marks, problems)
    if placeholder and labels.GANG_SIZE in notes:
        job = job.of_gang(_owner_uid(metadata), notes)
    preemptible = truth(marks, labels.PREEMPTIBLE, problems)
    return PodReport(
        key=ref.uid,
        application=application,
        partition=marks.get(labels.PARTITION) or DEFAULT_PARTITION,
        resource=pod_resource(pod),
        priority=whole(spec, "priority", _PRIORITIES, "spec."),
        node=text(spec, "nodeName", "spec."),
        tags=_tags(ref, marks, instant_ms(metadata, "creationTimestamp"), pinned_to),
        task_group=notes.get(labels.TASK_GROUP, ""),
        placeholder=placeholder,
        allow_preempt_other=may_preempt_others(spec),
        constraints=node_constraints(spec),
        job_key=job.key,
        job_members=job.members,
        job_trigger=job.trigger,
        protection=protection(class_name, preemptible=preemptible, pinned=bool(pinned_to)),
        started_ms=instant_ms(mapping(pod, "status"), "startTime", "status."),
        grace_seconds=_grace(spec),
        rm_check=needs_check_here(spec),
        releasing=_releasing(metadata, notes),
    )


def _foreign(pod: Fields, ref: ObjectRef, created_ms: int) -> PodReport:
    """Return a pod of another scheduler: it takes room on its node and is nobody's victim."""
    owners = items(mapping(pod, "metadata"), "ownerReferences", "metadata.")
    static = any(owner.get("kind") == "Node" for owner in owners)
    return PodReport(
        key=ref.uid,
        application="",
        partition=DEFAULT_PARTITION,
        resource=pod_resource(pod),
        priority=0,
        node=text(mapping(pod, "spec"), "nodeName", "spec."),
        tags={
            labels.TAG_FOREIGN: "static" if static else "default",
            labels.TAG_CREATION: str(created_ms // 1000),
        },
        protection=Protection.UNTOUCHABLE,
    )


def _tags(
    ref: ObjectRef, marks: Mapping[str, str], created_ms: int, pinned_to: str
) -> dict[str, str]:
    # The core, which has it written, need not hear of its own mark.
    told = ((key, value) for key, value in marks.items() if key != labels.SOFT_EVICTION)
    tags = {labels.TAG_LABEL_PREFIX + key: value for key, value in told}
    tags[labels.TAG_POD_NAMESPACE] = ref.namespace
    tags[labels.TAG_POD_NAME] = ref.name
    tags[labels.TAG_CREATION] = str(created_ms // 1000)
    if pinned_to:
        tags[labels.TAG_REQUIRED_NODE] = pinned_to
    return tags


def _grace(spec: Fields) -> int:
    if spec.get("terminationGracePeriodSeconds") is None:
        return GRACE_SECONDS_DEFAULT
    return whole(spec, "terminationGracePeriodSeconds", _GRACES, "spec.")


def _owner_uid(metadata: Fields) -> str:
    owners = items(metadata, "ownerReferences", "metadata.")
    return text(owners[0], "uid", "metadata.ownerReferences[].") if owners else ""


def _releasing(metadata: Fields, notes: Mapping[str, str]) -> Releasing | None:
    """Return the mark of a pod on its way out: the annotation that we left, or a deletion (1.7)."""
    written = notes.get(labels.RELEASED_FOR, "").split("/")
    if written[0] and len(written) == len(("decision", "beneficiary", "node")):
        replaced = written[0].startswith(REPLACEMENT)
        kind = _REPLACED if replaced else TerminationType.PREEMPTED_BY_SCHEDULER
        decision, beneficiary, node = written
        return Releasing(kind, decision, beneficiary, node, notes.get(labels.DELIVERY, ""))
    if metadata.get("deletionTimestamp"):
        return Releasing(TerminationType.STOPPED_BY_RM)
    return None
