"""Jobs whose size nobody said: they gather members, then they are as many as are there (J1).

A member of such a job is written with the size `UNSIZED`, which no job reaches, so that nobody takes the job for
complete. Once it has gathered, all its members are written with their number, and it is a job like others. A member
that was a job of one when it had its turn stays one, whoever comes after it.
"""

from collections.abc import Iterator
from dataclasses import replace

from server.books import backlog
from server.books.applications import Application, Ask, Job
from server.books.partition import Partition
from server.books.reserves import PLACEHOLDERS, is_reserving
from server.model.asks import UNSIZED, AskSpec


def gathers(partition: Partition, job: Job) -> bool:
    """Is its size to be counted: never done yet, or some of those that were counted are gone and others wait for them?"""
    if not job.counted or job.application.jobs.get(job.key) is not job or job.key == PLACEHOLDERS:
        return False
    missing = bool(job.members) and not job.gathered
    return job.min_members == UNSIZED or (missing and present(partition, job) < job.min_members)


def present(partition: Partition, job: Job) -> int:
    """How many members there are: waiting, with room that is kept for them, and placed."""
    return len(job.members) + job.placed + sum(1 for _ in _pledged(partition, job))


def _pledged(partition: Partition, job: Job) -> Iterator[Ask]:
    for held in partition.pledges.values():
        ask = held.ask
        if ask.application is job.application and _is_one_of(job, ask):
            yield ask


def _is_one_of(job: Job, ask: Ask) -> bool:
    """Is it a member? A job of one with this key is not: nobody counts it."""
    return ask.spec.job_key == job.key and ask.spec.min_members > 1


def agree(partition: Partition, job: Job, ask: Ask) -> None:
    """It has its place among the members, after all or as one of them: it says of their number what the job says.

    One that went meanwhile, or that waited elsewhere, did not hear of it. What clients said of an ask stays as it is.
    """
    alone = not job.members and not job.placed
    waiting = next(_pledged(partition, job), None) if alone else None
    if waiting is not None:
        job.min_members, job.counted = waiting.spec.min_members, waiting.spec.counted
    spec = ask.spec
    if spec.min_members != job.min_members and (spec.counted or job.counted):
        ask.spec = replace(spec, min_members=job.min_members, counted=job.counted)


def resize(partition: Partition, job: Job, size: int, *, counted: bool) -> None:
    """The job needs so many from now on: they were counted, or somebody said it."""
    sizes: dict[AskSpec, AskSpec] = {}
    for ask in [*job.members, *_pledged(partition, job), *_beside(job)]:
        spec = sizes.get(ask.spec)
        if spec is None:
            spec = sizes[ask.spec] = replace(ask.spec, min_members=size, counted=counted)
        ask.spec = spec
        if ask.node is not None:
            partition.changed[ask] = None
    job.min_members, job.counted = size, counted
    job.example = sizes.get(job.example, job.example) if job.example else None
    partition.gathering.pop(job, None)
    _seat_anew(partition, job)


def size_placeholders(partition: Partition, application: Application) -> None:
    """Placeholders of no job of their own are a whole once they sum up to what their application declared (1.9).

    Those that have their places count. When the application goes on, with them or without, they are asks like others.
    """
    job, reserve = application.jobs.get(PLACEHOLDERS), application.reserve
    if job is None or reserve is None:
        return
    if not is_reserving(application):
        size = 1
    elif reserve.has_come:
        size = present(partition, job)
    else:
        return
    if job.min_members != size:
        resize(partition, job, size, counted=True)


def _beside(job: Job) -> list[Ask]:
    """Its members that have their places, and those that wait by themselves because these are enough."""
    if not job.placed:
        return []
    application = job.application
    known = (*application.asks.values(), *application.allocations.values())
    return [
        one for one in known if _is_one_of(job, one) and one.pledge is None and one.group is not job
    ]


def _seat_anew(partition: Partition, job: Job) -> None:
    """Its waiting members stand where their size has them: in the job, or by themselves."""
    if job.min_members <= 1:
        job.placed = 0  # nobody counts the members of a job of one
        backlog.drop_empty_job(partition, job)
        backlog.regroup(partition, job)
    elif job.placed:
        backlog.regroup(partition, job)
    else:
        partition.untold[job] = None
        backlog.job_changed(partition, job)
