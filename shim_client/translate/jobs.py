"""Jobs: pods that run together or not at all, as their labels say (J1 to J3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from shim_client.cluster import ObjectRef
from shim_client.messages import JobTrigger
from shim_client.quantity import counted
from shim_client.translate import labels
from shim_client.translate.fields import BadObjectError, Fields, items, mapping, text, whole

MEMBERS_MAX = 100_000
"""Maximum number of members that a job may need; the core has the same limit."""
SIZED = {"Job": "batch/", "ReplicaSet": "apps/", "StatefulSet": "apps/"}
"""Kinds of owners whose spec has the number of wanted pods, each with its API group."""
_COUNTS = (0, 2**31 - 1)
_TRUTHS = {"true": True, "false": False}


class GangMarks(NamedTuple):
    """The job that a pod's labels declare.

    An empty `key` means no job. If `members` is 0, the labels do not give the size of the job.
    """

    key: str
    members: int
    trigger: JobTrigger

    def of_gang(self, maker: str, notes: Mapping[str, str]) -> GangMarks:
        """Return the job of a placeholder: all placeholders that `maker` declares are one job.

        Raises BadObjectError if the annotation with the gang's size is invalid.
        """
        where = f"metadata.annotations[{labels.GANG_SIZE}]"
        members = _members_of(notes[labels.GANG_SIZE], where)
        return GangMarks(f"placeholders/{maker}", members, self.trigger)


def job_marks(marks: Mapping[str, str], problems: list[str]) -> GangMarks:
    """Return the job that labels declare. Raises BadObjectError for a size that is not a whole number of 1 to MEMBERS_MAX.

    The labels `pod-group.scheduling.sigs.k8s.io` and `.../min-available` take precedence over Evenhand's own labels.
    Contradictions are added to `problems`.
    """
    key = job_key(marks, problems)
    may = truth(marks, labels.CAN_PREEMPT, problems)
    triggers = {None: JobTrigger.UNSPECIFIED, True: JobTrigger.YES, False: JobTrigger.NO}
    return GangMarks(key, _members(marks, problems) if key else 0, triggers[may])


def job_key(marks: Mapping[str, str], problems: list[str]) -> str:
    """Return the key of the job that labels declare, "" if there is none; a contradiction is added to `problems`."""
    return _first(marks, labels.JOB_KEY, labels.JOB_KEY_OWN, problems)


def truth(marks: Mapping[str, str], key: str, problems: list[str]) -> bool | None:
    """Return the boolean value of a label, or None when it is absent.

    For any value other than `true` and `false`, add a problem to `problems` and return None.
    """
    written = marks.get(key)
    if written is not None and written not in _TRUTHS:
        problems.append(
            f'label {key}: {written!r} is neither "true" nor "false"; it does not count'
        )
    return _TRUTHS.get(written or "")


def owner_with_size(metadata: Fields, namespace: str) -> ObjectRef | None:
    """Return the pod's owner if it is of a kind whose spec has the number of pods that the owner wants (J1).

    Return None for owners of all other kinds.
    """
    for owner in items(metadata, "ownerReferences", "metadata."):
        kind, name, uid, group = (text(owner, key) for key in ("kind", "name", "uid", "apiVersion"))
        if name and kind in SIZED and group.startswith(SIZED[kind]):
            return ObjectRef(kind, namespace, name, uid)
    return None


def pods_wanted(owner: Fields) -> int:
    """Return how many pods an owner wants to run now. Raises BadObjectError if a number is invalid.

    A Job wants `parallelism` pods, or fewer if fewer completions are left. An owner of any other kind wants
    `replicas` pods.
    """
    spec, status = mapping(owner, "spec"), mapping(owner, "status")
    if owner.get("kind") != "Job":
        return _count(spec, "replicas", "spec.")
    parallel = _count(spec, "parallelism", "spec.")
    if spec.get("completions") is None:
        return parallel
    left = _count(spec, "completions", "spec.") - whole(status, "succeeded", _COUNTS, "status.")
    return max(0, min(parallel, left))


def _count(spec: Fields, key: str, path: str) -> int:
    """Return a count of a spec, 1 when it is absent, as in the API server."""
    return 1 if spec.get(key) is None else whole(spec, key, _COUNTS, path)


def _first(marks: Mapping[str, str], seed: str, own: str, problems: list[str]) -> str:
    written, ours = marks.get(seed, ""), marks.get(own, "")
    if written and ours and written != ours:
        problems.append(f"labels {seed} and {own} say different things; {written!r} counts")
    return written or ours


def _members(marks: Mapping[str, str], problems: list[str]) -> int:
    written = _first(marks, labels.JOB_MEMBERS, labels.JOB_MEMBERS_OWN, problems)
    if not written:
        return 0
    name = labels.JOB_MEMBERS if labels.JOB_MEMBERS in marks else labels.JOB_MEMBERS_OWN
    return _members_of(written, f"metadata.labels[{name}]")


def _members_of(written: str, where: str) -> int:
    members = counted(written, (1, MEMBERS_MAX))
    if members is None:
        raise BadObjectError(where, f"is not 1 to {MEMBERS_MAX}")
    return members
