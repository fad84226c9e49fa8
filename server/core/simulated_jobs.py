"""Simulated asks of one job key are one job: all of them get places, or none does (J8).

Together with members that run already they have to be as many as the job's size; the answer of each names the whole.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from server.books import snapshot
from server.books.partition import Partition
from server.core import describe, simulated, verdicts
from server.core.simulated import SimulatedAsk
from server.model.asks import UNSIZED
from server.model.fit import fits
from server.model.records import AskSimulation
from server.preemption import job as job_policy
from server.preemption.job_terms import added
from server.preemption.policy import Plan, Refusal
from server.preemption.trial import Trial
from server.view.waiting import WaitingAsk, WaitingJob

Key = tuple[str, str, str]
"""Queue, application, job key."""


def sized(partition: Partition, asks: Sequence[SimulatedAsk]) -> list[SimulatedAsk]:
    """The asks with the sizes of their jobs: one that nobody said is how many are there, as if no further one came (J1)."""
    keys = Counter(_name(ask) for ask in asks if _is_unsized(ask))
    sizes = {key: _counted(partition, key, asked) for key, asked in keys.items()}
    specs = {
        (ask.spec, _name(ask)): replace(ask.spec, min_members=sizes[_name(ask)])
        for ask in asks
        if _is_unsized(ask)
    }
    return [ask._replace(spec=specs.get((ask.spec, _name(ask)), ask.spec)) for ask in asks]


def _is_unsized(ask: SimulatedAsk) -> bool:
    return bool(ask.spec.job_key) and not ask.spec.min_members


def _counted(partition: Partition, key: Key, asked: int) -> int:
    application = partition.applications.get(key[1])
    known = application.jobs.get(key[2]) if application else None
    if known is None:
        return asked
    if known.min_members == UNSIZED:
        return asked + known.placed
    return 1 if known.placed >= known.min_members else known.min_members


def whole(
    partition: Partition, asks: Sequence[SimulatedAsk], read: Sequence[WaitingAsk | str]
) -> dict[Key, WaitingJob | str]:
    """The jobs among the asks, or why one would not be taken in: some member would not."""
    members: dict[Key, list[WaitingAsk]] = {}
    broken: dict[Key, WaitingJob | str] = {}
    for ask, waiting in zip(asks, read, strict=True):
        key = _key(ask)
        if key is None:
            continue
        if isinstance(waiting, str):
            broken[key] = waiting
        else:
            members.setdefault(key, []).append(waiting)
    return {key: _job(partition, key, some) for key, some in members.items()} | broken


def _key(ask: SimulatedAsk) -> Key | None:
    spec = ask.spec
    gang = bool(spec.job_key) and spec.min_members > 1
    return _name(ask) if gang else None


def _name(ask: SimulatedAsk) -> Key:
    return ask.queue, ask.application_id, ask.spec.job_key


def _job(partition: Partition, key: Key, members: list[WaitingAsk]) -> WaitingJob:
    application = partition.applications.get(key[1])
    known = application.jobs.get(key[2]) if application else None
    placed, number = (known.placed, known.number) if known else (0, 0)
    demand = added(one.kind.demand for one in members)
    people = [one for one in application.limiters if one.kind != "queue"] if application else []
    within = all(fits(demand, one.room) for one in people)
    order = sorted(members, key=snapshot.job_order)
    return WaitingJob(key[2], number, tuple(order), placed, members[0].spec.min_members, within)


def answers(
    trial: Trial,
    asks: Sequence[SimulatedAsk],
    read: Sequence[WaitingAsk | str],
    jobs: Mapping[Key, WaitingJob | str],
    now: int,
) -> Iterator[AskSimulation]:
    """What each ask would get after those before it; a job stands where its first member does."""
    known: dict[Key, dict[str, AskSimulation]] = {}
    for ask, waiting in zip(asks, read, strict=True):
        key = _key(ask)
        if key is None or isinstance(waiting, str):
            yield simulated.answer(trial, ask, waiting, now)
            continue
        job = jobs[key]
        if isinstance(job, str):
            yield simulated.refused(ask, job)
            continue
        if key not in known:
            known[key] = _answer(trial, asks, read, job, now)
        yield known[key][waiting.key]


def _answer(
    trial: Trial,
    asks: Sequence[SimulatedAsk],
    read: Sequence[WaitingAsk | str],
    job: WaitingJob,
    now: int,
) -> dict[str, AskSimulation]:
    """The answers of all members by their keys."""
    by_key = {
        waiting.key: ask
        for ask, waiting in zip(asks, read, strict=True)
        if not isinstance(waiting, str)
    }
    if job.gathered and job.within_limits:
        found = _placed(trial, by_key, job)
        if found:
            return found
    answer = verdicts.plan_job(trial, job)
    if isinstance(answer, Refusal):
        return {
            one.key: simulated.waits(trial, by_key[one.key], one, answer, now)
            for one in job.members
        }
    trial.apply(answer)
    return _preempts(trial, by_key, job, answer, now)


def _placed(
    trial: Trial, by_key: Mapping[str, SimulatedAsk], job: WaitingJob
) -> dict[str, AskSimulation]:
    """A node for each member now, {} unless all have one."""
    mark, found = trial.mark(), {}
    for one in job.members:
        row = simulated.free_row(trial, one)
        if row < 0:
            trial.rollback(mark)
            return {}
        found[one.key] = simulated.placed(trial, by_key[one.key], one, row)
    return found


def _preempts(
    trial: Trial,
    by_key: Mapping[str, SimulatedAsk],
    job: WaitingJob,
    plan: Plan,
    now: int,
) -> dict[str, AskSimulation]:
    """All members share the victims, which are named with the first; each has its own node."""
    found = {}
    nodes = {one.ask.key: one.node_id for one in plan.pledges}
    shown = simulated.victims(trial, plan)
    for one in job.members:
        verdict = verdicts.of_plan(job_policy.NAME, plan, nodes[one.key], now)
        found[one.key] = AskSimulation(
            simulated.PREEMPTS,
            one.leaf,
            nodes[one.key],
            by_key[one.key].spec.resource,
            shown if one is job.members[0] else (),
            describe.spared(plan),
            plan.levels,
            verdict,
            (f"As a member of job {job.key}: {describe.would_job(plan)}.",),
        )
    return found
