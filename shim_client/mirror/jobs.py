"""Jobs: who belongs to one, and how many it will be (J1).

The size is what a label says, else what the pods' owners want, else the members that are there once none
came for a while.  Until it is known no member is told to the core, which would place it alone.
"""

from __future__ import annotations

from collections import Counter

from shim_client.cluster import ObjectRef, ReadOwner
from shim_client.mirror.state import JobRecord, OwnerRecord, PodRecord, State
from shim_client.translate.jobs import MEMBERS_MAX

_SPLIT = (
    "other pods of job {key!r} belong to another application than {id!r}: the members of a job are "
    "of one application, and of its queue; these will wait for each other in vain"
)
GATHERS = "the size of job {key!r} is not known yet: {how}"
_BY_OWNER = "its owner is asked how many pods it wants"
_BY_PATIENCE = "it is whole when no further member has come for {seconds} s"


def join(state: State, pod: PodRecord) -> None:
    """Count the pod in its job, as its labels and its application say it now."""
    facts = pod.facts
    key = facts.report.job_key
    if pod.job is None and not key:
        return
    name = _name_of(pod)
    counted = (facts.sized_by, facts.report.job_members)
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
    """Take the pod out of its job; how many are left is counted within a second, if anybody waits for them."""
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


def size(job: JobRecord) -> int | None:
    """Return how many members the job has at least, None while that is not known."""
    if job.labelled:
        return max(job.labelled)
    return size_by_owners(job) or min(job.seen, MEMBERS_MAX) or None


def size_by_owners(job: JobRecord) -> int | None:
    """Return what the owners of all members want together, None when one does not say it."""
    wanted = [owner.wanted for owner in job.owners.values()]
    known = [number for number in wanted if number is not None]
    if job.without_owner or not known or len(known) < len(wanted):
        return None
    return max(1, min(sum(known), MEMBERS_MAX))


def size_told(pod: PodRecord) -> int:
    """Return the size that the core hears with a pod; for one that runs what is there will do."""
    if pod.job is None:
        return pod.facts.report.job_members
    return size(pod.job) or min(len(pod.job.members), MEMBERS_MAX)


def lacks_size(state: State, pod: PodRecord) -> bool:
    """Return whether a waiting pod's job is of a size that is not known yet, said on the pod once."""
    job = pod.job
    if pod.node or job is None or size(job) is not None:
        return False
    how = _BY_OWNER if is_asking(job) else _BY_PATIENCE.format(seconds=state.settings.gathering_s)
    state.note_once(pod, "JobGathering", GATHERS.format(key=job.key, how=how))
    return True


def ask(state: State, job: JobRecord) -> None:
    """Ask the owners of the job's members how many they want."""
    job.stale = False
    for ref in job.owners:
        _ask(state, job, ref)


def is_asking(job: JobRecord) -> bool:
    """Return whether the answer of an owner is awaited."""
    return any(owner.asked for owner in job.owners.values())


def tell_if_changed(state: State, job: JobRecord, before: int | None) -> None:
    """Have the members told when the job is of another size than before."""
    if size(job) != before:
        state.jobs_to_tell[job.name] = None


def _ask(state: State, job: JobRecord, ref: ObjectRef) -> None:
    if not job.owners[ref].asked:
        job.owners[ref].asked = True
        state.actions.append(ReadOwner(ref, job.name))


def _begin(state: State, pod: PodRecord, name: str, key: str) -> JobRecord:
    """Begin a job; one of the same key in another application of the namespace is a mistake to be told (J1)."""
    application = pod.application
    assert application is not None
    called = f"{application.partition}/{pod.facts.ref.namespace}/{key}"
    others = state.jobs_called.setdefault(called, {})
    if others:
        state.note_once(pod, "JobIsSplit", _SPLIT.format(key=key, id=application.id), warning=True)
    others[name] = None
    job = state.jobs[name] = JobRecord(name, key, called)
    return job


def _end(state: State, job: JobRecord) -> None:
    """Forget a job without members."""
    del state.jobs[job.name]
    others = state.jobs_called[job.called]
    del others[job.name]
    if not others:
        del state.jobs_called[job.called]


def _name_of(pod: PodRecord) -> str:
    application = pod.application
    assert application is not None
    return f"{application.partition}/{application.id}/{pod.facts.report.job_key}"


def _count(state: State, job: JobRecord, pod: PodRecord, change: int) -> None:
    """Count what the pod says of the size, or no longer says."""
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
