"""Sizes of jobs without a size label (J1).

The shim reads the size from the owners of the pods. If the owners state no size, the shim waits until no member has
come for a while. The size of the job is then the number of members at that moment.
"""

from __future__ import annotations

from shim_client.cluster import ClusterError, ReadOwner
from shim_client.state_machine import jobs, pods
from shim_client.state_machine.state import GangRecord, State

ASK_AGAIN_S = 30
"""Seconds until the shim reads the owners of a waiting job again, because the number of pods that they want may have changed."""


def second(state: State) -> None:
    """Check every job without a size label.

    The function is called once a second.
    """
    for job in state.jobs.values():
        if not job.labelled:
            _second(state, job)


def _second(state: State, job: GangRecord) -> None:
    job.quiet_s += 1
    if jobs.is_asking(job):
        return
    again = job.stale or job.quiet_s % ASK_AGAIN_S == 0
    if again and job.owners and not job.without_owner and _waits(state, job):
        jobs.ask(state, job)
        return
    if job.uncounted and job.quiet_s > state.settings.gathering_s:
        _settle(state, job)


def _settle(state: State, job: GangRecord) -> None:
    """If a member of the job waits, take the number of present members as the size of the job.

    The function is called once no further member has come for a while.
    """
    if job.seen != len(job.members) and not _waits(state, job):
        return
    before = jobs.size(job)
    job.seen, job.uncounted = len(job.members), False
    jobs.tell_if_changed(state, job, before)


def _waits(state: State, job: GangRecord) -> bool:
    return any(not state.pods[uid].node for uid in job.members)


def answered(state: State, read: ReadOwner, error: ClusterError | None) -> None:
    """Record how many pods an owner wants, or None if the owner cannot be read."""
    job = state.jobs.get(read.about)
    owner = job.owners.get(read.owner) if job else None
    if job is None or owner is None:
        return
    before = jobs.size(job)
    owner.asked = False
    owner.wanted = read.wanted if error is None else None
    jobs.tell_if_changed(state, job, before)


def tell(state: State) -> None:
    """Report the members of jobs whose size has changed."""
    while state.jobs_to_tell:
        job = state.jobs.get(state.jobs_to_tell.popitem()[0])
        for uid in list(job.members) if job else ():
            pods.offer(state, state.pods[uid])
