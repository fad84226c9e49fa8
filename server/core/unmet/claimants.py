"""Who has to get room, a single ask or a job as a whole (J8), and the same with one thing different."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from server.books import snapshot
from server.preemption import job_terms
from server.preemption.claimants import Claimant
from server.view import changed
from server.view.waiting import ClassFacts, WaitingAsk, WaitingJob


def members(claimant: Claimant) -> tuple[WaitingAsk, ...]:
    """All who have to get a node."""
    return claimant.members if isinstance(claimant, WaitingJob) else (claimant,)


def kinds(claimant: Claimant) -> tuple[ClassFacts, ...]:
    """Their classes, each once."""
    return tuple({one.kind.number: one.kind for one in members(claimant)}.values())


def whole(claimant: Claimant) -> WaitingAsk:
    """All of them as one ask."""
    return job_terms.whole(claimant) if isinstance(claimant, WaitingJob) else claimant


def priority(claimant: Claimant) -> int:
    """Whom victims are measured against: the least important one (J7)."""
    return min(one.spec.priority for one in members(claimant))


def each(claimant: Claimant, change: Callable[[WaitingAsk], WaitingAsk]) -> Claimant:
    """The same claimant with every member changed."""
    if isinstance(claimant, WaitingAsk):
        return change(claimant)
    changed_ones = sorted(map(change, claimant.members), key=snapshot.job_order)
    return replace(claimant, members=tuple(changed_ones))


def saying(claimant: Claimant, **fields: Any) -> Claimant:  # noqa: ANN401 - fields of AskSpec
    """Every pod's template says something else."""
    return each(claimant, lambda one: changed.saying(one, **fields))


def at_least(claimant: Claimant, priority: int) -> Claimant:
    """Nobody has a lower priority than this."""
    return each(
        claimant, lambda one: changed.saying(one, priority=max(one.spec.priority, priority))
    )


def limitless(claimant: Claimant) -> Claimant:
    """The limits of its user and group have room."""
    found = each(claimant, lambda one: one._replace(within_limits=True))
    return replace(found, within_limits=True) if isinstance(found, WaitingJob) else found
