"""When a job whose size nobody said is whole: once no further member has come for `job.gathering` (J1).

It is whole with the members that are there then, and needs all of them; one that comes later joins it, and the job does
not need it. When a member is lost before all have their places, the job gathers anew. Those that run already when they
are made known count at once: they were placed together, and who sends them knows all of them. A job of one is an ask like
others and is not remembered: who comes after it gathers again.
"""

from dataclasses import replace
from typing import NamedTuple, TypeVar

from server.books import backlog, gathering
from server.books.applications import Application, Ask, Job
from server.books.partition import Partition
from server.model.asks import UNSIZED, AskSpec, values
from server.model.events import AllocationAdded, AskAdded

E = TypeVar("E", AskAdded, AllocationAdded)

# Who comes ----------------------------------------------------------------------------------------------------------


class _Size(NamedTuple):
    """The size of a job, whether it was counted, and the spec of some member."""

    needed: int
    counted: bool
    example: AskSpec | None


def sized(partition: Partition, application: Application, event: E, known: Ask | None) -> E:
    """The event with the spec as the books have it: with the size of its job, where its client writes none."""
    spec = event.spec
    if not spec.job_key or spec.min_members:
        return event
    size = _size(partition, application, spec.job_key, known)
    made, like = replace(spec, min_members=size.needed, counted=size.counted), size.example
    same = like is not None and values(like) == values(made)
    return event._replace(spec=like if like is not None and same else made)


def _size(partition: Partition, application: Application, key: str, known: Ask | None) -> _Size:
    if known is not None and known.spec.job_key == key:
        return _of_member(known)
    job = application.jobs.get(key)
    if job is not None:
        return _Size(job.min_members, job.counted, job.example)
    held = (one.ask for one in partition.pledges.values() if one.ask.application is application)
    gangs = (ask for ask in held if ask.spec.job_key == key and ask.spec.min_members > 1)
    member = next(gangs, None)
    return _Size(UNSIZED, counted=True, example=None) if member is None else _of_member(member)


def _of_member(ask: Ask) -> _Size:
    return _Size(ask.spec.min_members, ask.spec.counted, ask.spec)


def joins(
    partition: Partition, application: Application, spec: AskSpec, known: Ask | None = None
) -> int | None:
    """A member comes to its job: one that gathers waits anew, or has no more to count where the size is said.

    Who is a member already (``known``) and says something new about itself is no further one: gives since when its job
    gathers.
    """
    job = application.jobs.get(spec.job_key)
    if job is None or not job.counted:
        return None
    further = known is None or known.spec.job_key != spec.job_key
    if further:
        partition.came[job] = True
    if not spec.counted:
        gathering.resize(partition, job, spec.min_members, counted=False)
    return None if further else partition.gathering.get(job)


def goes_on(partition: Partition, ask: Ask, since_ms: int | None) -> None:
    """The ask has changed; its job, were it the only member, was made anew, and gathers no longer for that."""
    job = ask.group
    if since_ms is not None and isinstance(job, Job) and job in partition.came:
        partition.gathering.setdefault(job, since_ms)


def existing(
    partition: Partition, application: Application, event: AllocationAdded, known: Ask | None
) -> AllocationAdded:
    """The same for a member that runs; one that nobody knew is one of those that its job needs."""
    event = sized(partition, application, event, known)
    joins(partition, application, event.spec, known)
    job = application.jobs.get(event.spec.job_key)
    if known is None and job is not None and job.counted:
        job.min_members = UNSIZED
        if job.members:
            backlog.job_changed(partition, job)
    return event


# Time passes --------------------------------------------------------------------------------------------------------


def note(partition: Partition, now: int) -> None:
    """After an event or a tick: which jobs gather, and since when nobody joined them."""
    changed, partition.came = partition.came, {}
    for job, further in changed.items():
        since_ms = partition.gathering.get(job, now)
        if further or not gathering.gathers(partition, job):
            partition.gathering.pop(job, None)
        if gathering.gathers(partition, job):
            partition.gathering[job] = now if further else since_ms


def count(partition: Partition, now: int) -> None:
    """Jobs that have gathered for long enough are as many as they are now."""
    for job in [one for one in partition.gathering if whole_ms(partition, one) <= now]:
        whole(partition, job)


def whole(partition: Partition, job: Job) -> None:
    """It needs the members that are there, all of them."""
    gathering.resize(partition, job, gathering.present(partition, job), counted=True)


def whole_ms(partition: Partition, job: Job) -> int:
    """When a job that gathers is whole, unless a further member comes."""
    since_ms = partition.gathering[job]
    at_once = job.placed and job.min_members == UNSIZED
    return since_ms if at_once else since_ms + partition.spec.preemption.job_gathering_ms


def next_due(partition: Partition) -> int | None:
    """The instant at which the next job is whole, None when none gathers."""
    return min((whole_ms(partition, one) for one in partition.gathering), default=None)


def resumed(partition: Partition) -> None:
    """All is known after a restart: a job for which a decision was open was whole before (J10)."""
    for marks in partition.marks.values():
        for mark in marks.values():
            ask = partition.asks.get(mark.released_for)
            job = None if ask is None else ask.group
            if isinstance(job, Job) and job in partition.gathering:
                whole(partition, job)
