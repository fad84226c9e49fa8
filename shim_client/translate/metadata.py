"""Facts from a pod's labels, annotations and owners, read once for all pods in which these are equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shim_client.cluster import ObjectRef
from shim_client.config import Settings
from shim_client.messages import DEFAULT_PARTITION, JobTrigger
from shim_client.translate import labels
from shim_client.translate.alike import ReadOnce
from shim_client.translate.applications import Marked, Membership, is_by_uid, membership
from shim_client.translate.fields import Fields, items, text, texts
from shim_client.translate.jobs import GangMarks, job_marks, owner_with_size, truth
from shim_client.translate.priority import pod_opinion
from shim_client.translate.task_groups import Gang, read_gang

NOTES = (
    labels.APP_ID,
    labels.QUEUE,
    labels.USER_INFO,
    labels.PLACEHOLDER,
    labels.TASK_GROUP,
    labels.TASK_GROUPS,
    labels.POLICY_PARAMETERS,
    labels.GANG_SIZE,
    labels.PLACEHOLDERS_MADE,
    labels.ALLOW_PREEMPTION,
)
"""Annotations that are read here; all others belong to other software, and often differ on each pod."""
_NO_JOB = GangMarks("", 0, JobTrigger.UNSPECIFIED)
_NO_MEMBERSHIP = Membership("", "", "", ())


@dataclass(frozen=True, slots=True)
class MetadataFacts:
    """Facts from a pod's metadata.

    For a pod of another scheduler, only labels, tags, owner and `opinion` (its own annotation about preemption) are
    used.
    """

    labels: Mapping[str, str]
    tags: Mapping[str, str]
    """Tags of the pod that are sent to the core."""
    opinion: bool | None
    owner_uid: str
    placeholders_made: bool
    membership: Membership = _NO_MEMBERSHIP
    by_uid: bool = False
    """Whether the application's id contains the pod's uid, which is not among these facts."""
    partition: str = DEFAULT_PARTITION
    task_group: str = ""
    placeholder: bool = False
    gang: Gang | None = None
    job: GangMarks = _NO_JOB
    preemptible: bool | None = None
    of_daemon: bool = False
    """Whether one of the owners is a DaemonSet."""
    sized_by: ObjectRef | None = None
    problems: tuple[str, ...] = ()


def read_metadata(
    metadata: Fields, namespace: str, settings: Settings, *, ours: bool, group: str = ""
) -> MetadataFacts:
    """Return the facts from a pod's metadata.

    Raises BadObjectError if a field has another form than in the Kubernetes API.

    `ours` says that the pod names the shim's scheduler, and `group` is the PodGroup that the pod's spec names.
    """
    notes = texts(metadata, "annotations", "metadata.")
    parts = (
        namespace,
        metadata.get("labels"),
        [notes.get(key) for key in NOTES] if notes else [],
        metadata.get("ownerReferences"),
        group,
    )
    honours = settings.honour_pod_annotation
    if not ours:
        return foreign(parts, [honours])
    return own(parts, [honours, settings.generate_unique_app_id, settings.gangs])


Parts = tuple[str, object, Sequence[str | None], object, str]


@ReadOnce
def own(parts: Parts, switches: Sequence[bool]) -> MetadataFacts:
    """Read the metadata of a pod that names the shim's scheduler."""
    marked, metadata = _marked(parts), _metadata(parts)
    marks, notes = marked.labels, marked.annotations
    honours, unique, gangs = switches
    problems: list[str] = []
    member = membership(marked, problems, unique=unique)
    gang = _gang(notes, problems) if gangs else None
    job = job_marks(marks, problems)
    if job.key and marked.group not in ("", job.key):
        problems.append(
            f"labels name the gang {job.key!r}; its podgroup {marked.group!r} does not count"
        )
    placeholder = notes.get(labels.PLACEHOLDER) == "true"
    if placeholder and labels.GANG_SIZE in notes:
        job = job.of_gang(_owner_uid(metadata), notes)
    return MetadataFacts(
        labels=dict(
            marks
        ),  # Equal pods share these labels, so a copy is stored instead of the labels in the first pod's own object.
        tags=_tags(marked),
        opinion=pod_opinion(notes, honoured=honours),
        owner_uid=_owner_uid(metadata),
        placeholders_made=labels.PLACEHOLDERS_MADE in notes,
        membership=member,
        by_uid=is_by_uid(marked, unique=unique),
        partition=marks.get(labels.PARTITION) or DEFAULT_PARTITION,
        task_group=notes.get(labels.TASK_GROUP, ""),
        placeholder=placeholder,
        gang=gang,
        job=job,
        preemptible=truth(marks, labels.PREEMPTIBLE, problems),
        of_daemon=_is_owned_by(metadata, "DaemonSet"),
        sized_by=owner_with_size(metadata, marked.namespace),
        problems=tuple(problems),
    )


@ReadOnce
def foreign(parts: Parts, switches: Sequence[bool]) -> MetadataFacts:
    """Read the metadata of another scheduler's pod."""
    marked, metadata = _marked(parts), _metadata(parts)
    static = _is_owned_by(metadata, "Node")
    return MetadataFacts(
        labels=dict(marked.labels),
        tags={
            labels.TAG_FOREIGN: "static" if static else "default",
            labels.TAG_POD_NAMESPACE: marked.namespace,
        },
        opinion=pod_opinion(marked.annotations, honoured=switches[0]),
        owner_uid=_owner_uid(metadata),
        placeholders_made=labels.PLACEHOLDERS_MADE in marked.annotations,
    )


def own_membership(metadata: Fields, ref: ObjectRef, settings: Settings) -> Membership:
    """Return application, queue and user of a pod whose application's id contains its uid, without reporting problems."""
    marks = texts(metadata, "labels", "metadata.")
    notes = texts(metadata, "annotations", "metadata.")
    marked = Marked(ref.namespace, ref.uid, marks, notes)
    return membership(marked, [], unique=settings.generate_unique_app_id)


def _marked(parts: Parts) -> Marked:
    namespace, written, notes, _, group = parts
    marks = texts({"labels": written}, "labels", "metadata.")
    found = {key: note for key, note in zip(NOTES, notes, strict=False) if note is not None}
    return Marked(namespace, "", marks, found, group)


def _metadata(parts: Parts) -> Fields:
    """Return metadata with nothing but the owners, for functions that read owners."""
    return {"ownerReferences": parts[3]}


def _gang(notes: Mapping[str, str], problems: list[str]) -> Gang | None:
    """Return the task groups of a pod, or None for a placeholder.

    A pod that names an unknown group is a problem.
    """
    if notes.get(labels.PLACEHOLDER) == "true":
        return None
    gang = read_gang(notes, problems)
    name = notes.get(labels.TASK_GROUP, "")
    if gang is not None and name and all(group.name != name for group in gang.groups):
        problems.append(f"annotation {labels.TASK_GROUP}: there is no task group {name[:80]!r}")
    return gang


def _tags(marked: Marked) -> dict[str, str]:
    # The annotation about the eviction is left out: the core has ordered the eviction, and need not receive it.
    told = ((key, value) for key, value in marked.labels.items() if key != labels.SOFT_EVICTION)
    tags = {labels.TAG_LABEL_PREFIX + key: value for key, value in told}
    tags[labels.TAG_POD_NAMESPACE] = marked.namespace
    return tags


def _is_owned_by(metadata: Fields, kind: str) -> bool:
    owners = items(metadata, "ownerReferences", "metadata.")
    return any(owner.get("kind") == kind for owner in owners)


def _owner_uid(metadata: Fields) -> str:
    owners = items(metadata, "ownerReferences", "metadata.")
    return text(owners[0], "uid", "metadata.ownerReferences[].") if owners else ""
