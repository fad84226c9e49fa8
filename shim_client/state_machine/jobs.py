"""Jobs: their members, and the number of members that they will have (J1).

A label or a PodGroup may give the size of a job. Without label and PodGroup, the size is the number of pods that the
owners want. If the owners state no number, the size is the number of members that exist once no further member has
come for a while. While the size is unknown, waiting members are not reported to the core, because the core would
place them one by one.
"""

from __future__ import annotations

from collections import Counter

from shim_client.cluster import ObjectRef, ReadOwner
from shim_client.state_machine import pod_groups
from shim_client.state_machine.state import GangRecord, OwnerRecord, PodRecord, State
from shim_client.translate.jobs import MEMBERS_MAX

_SPLIT = (
    "other pods of gang {key!r} belong to another application than {id!r}, so neither part is ever "
    "complete: give all members of a gang the same application and queue"
)
GATHERS = "the size of gang {key!r} is not known yet: {how}"
_BY_OWNER = "the shim has asked its owner for the number of pods"
_BY_PATIENCE = "it counts as complete when no further member arrives for {seconds} s"


def join(state: State, pod: PodRecord) -> None:
    """Count the pod as a member of its present job, which follows from its labels or its PodGroup, and from its application."""
    facts = pod.facts
    key, declared = pod_groups.gang_of(state, pod)
    if pod.job is None and not key:
        return
    name = _name_of(pod, key)
    counted = (facts.sized_by, declared)
    if pod.job is not None and (pod.job.name, pod.counted) == (name, counted):
        return
    leave(state, pod)
    if not key:
        return
    job = state.jobs.get(name) or _begin(state, pod, name, key)
    pod.job, pod.counted = job, counted
    before = size(job)
    job.members[facts.ref.uid] = None
    job.quiet_s, job.stale, job.uncounted = 0, True, True
    _count(state, job, pod, 1)
    tell_if_changed(state, job, before)


def leave(state: State, pod: PodRecord) -> None:
    """Remove the pod from its job.

    A job without members is forgotten. If a member of the job still waits and no label gives the size, the owners are
    asked for the size again within a second. If the owner of a member states no size, the members are counted again
    once no further member has come for a while.
    """
    job = pod.job
    if job is None:
        return
    before = size(job)
    pod.job = None
    del job.members[pod.facts.ref.uid]
    if not job.members:
        _end(state, job)
        return
    job.stale = job.uncounted = True
    _count(state, job, pod, -1)
    tell_if_changed(state, job, before)


def size(job: GangRecord) -> int | None:
    """Return the minimum number of members of the job.

    Return None while this number is not known.
    """
    if job.labelled:
        return max(job.labelled)
    return size_by_owners(job) or min(job.seen, MEMBERS_MAX) or None


def size_by_owners(job: GangRecord) -> int | None:
    """Return the number of pods that the owners of all members want together.

    Return None if an owner states no number.
    """
    wanted = [owner.wanted for owner in job.owners.values()]
    known = [number for number in wanted if number is not None]
    if job.without_owner or not known or len(known) < len(wanted):
        return None
    return max(1, min(sum(known), MEMBERS_MAX))


def reported_key(pod: PodRecord) -> str:
    """Return the job key to report with a pod."""
    return pod.job.key if pod.job else ""


def reported_size(pod: PodRecord) -> int:
    """Return the job size to report with a pod.

    For a running pod of a job of unknown size, return the number of present members.
    """
    if pod.job is None:
        return 0
    return size(pod.job) or min(len(pod.job.members), MEMBERS_MAX)


def lacks_size(state: State, pod: PodRecord) -> bool:
    """Return whether the size of a waiting pod's job is unknown.

    If the size is unknown, record an event on the pod, once.
    """
    job = pod.job
    if pod.node or job is None or size(job) is not None:
        return False
    how = _BY_OWNER if is_asking(job) else _BY_PATIENCE.format(seconds=state.settings.gathering_s)
    state.note_once(pod, "JobGathering", GATHERS.format(key=job.key, how=how))
    return True


def ask(state: State, job: GangRecord) -> None:
    """Ask the owners of the job's members how many pods they want."""
    job.stale = False
    for ref in job.owners:
        _ask(state, job, ref)


def is_asking(job: GangRecord) -> bool:
    """Return whether an owner of the job's pods has not answered yet."""
    return any(owner.asked for owner in job.owners.values())


def tell_if_changed(state: State, job: GangRecord, before: int | None) -> None:
    """Mark the job's members to be reported again if the size of the job differs from `before`."""
    if size(job) != before:
        state.jobs_to_tell[job.name] = None


def _ask(state: State, job: GangRecord, ref: ObjectRef) -> None:
    if not job.owners[ref].asked:
        job.owners[ref].asked = True
        state.actions.append(ReadOwner(ref, job.name))


def _begin(state: State, pod: PodRecord, name: str, key: str) -> GangRecord:
    """Create a job.

    Record an event if another application of the namespace has a job with this key (J1).
    """
    application = pod.application
    assert application is not None
    called = f"{application.partition}/{pod.facts.ref.namespace}/{key}"
    others = state.jobs_called.setdefault(called, {})
    if others:
        state.note_once(pod, "JobIsSplit", _SPLIT.format(key=key, id=application.id), warning=True)
    others[name] = None
    job = state.jobs[name] = GangRecord(name, key, called)
    return job


def _end(state: State, job: GangRecord) -> None:
    """Forget a job without members."""
    del state.jobs[job.name]
    others = state.jobs_called[job.called]
    del others[job.name]
    if not others:
        del state.jobs_called[job.called]


def _name_of(pod: PodRecord, key: str) -> str:
    application = pod.application
    assert application is not None
    return f"{application.partition}/{application.id}/{key}"


def _count(state: State, job: GangRecord, pod: PodRecord, change: int) -> None:
    """Add the owner and the labelled size of a pod to the counts of its job (`change` 1), or remove them (`change` -1)."""
    ref, labelled = pod.counted
    if labelled:
        job.labelled[labelled] += change
        job.labelled += Counter()
    if ref is None:
        job.without_owner += change
        return
    owner = job.owners.get(ref)
    if owner is None:
        owner = job.owners[ref] = OwnerRecord()
    owner.members += change
    if not owner.members:
        del job.owners[ref]
    elif not job.labelled and owner.wanted is None and change > 0:
        _ask(state, job, ref)
