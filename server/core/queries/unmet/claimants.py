"""The claimants of the report, each a single ask or a whole gang (J8), and changed copies of claimants."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from server.preemption.claims.turn_order import Claimant
from server.preemption.gangs import eligibility
from server.snapshot import what_if
from server.snapshot.waiting import ClassFacts, WaitingAsk, WaitingGang
from server.state import snapshotting


def members(claimant: Claimant) -> tuple[WaitingAsk, ...]:
    """Return all asks of a claimant that have to get a node."""
    return claimant.members if isinstance(claimant, WaitingGang) else (claimant,)


def kinds(claimant: Claimant) -> tuple[ClassFacts, ...]:
    """Return the classes of the members, without repetitions."""
    return tuple({one.kind.number: one.kind for one in members(claimant)}.values())


def whole(claimant: Claimant) -> WaitingAsk:
    """Return a single ask that requests the sum of the requests of all members."""
    return eligibility.whole(claimant) if isinstance(claimant, WaitingGang) else claimant


def priority(claimant: Claimant) -> int:
    """Return the priority with which the claimant is compared with victims: for a gang, the priority of its least important member (J7)."""
    return min(one.spec.priority for one in members(claimant))


def each(claimant: Claimant, change: Callable[[WaitingAsk], WaitingAsk]) -> Claimant:
    """Return the claimant after ``change`` was applied to each of its members."""
    if isinstance(claimant, WaitingAsk):
        return change(claimant)
    changed_ones = sorted(map(change, claimant.members), key=snapshotting.gang_order)
    return replace(claimant, members=tuple(changed_ones))


def saying(claimant: Claimant, **fields: Any) -> Claimant:  # noqa: ANN401 - fields of AskSpec
    """Return a copy of the claimant in which every ask has the given values in its spec."""
    return each(claimant, lambda one: what_if.saying(one, **fields))


def at_least(claimant: Claimant, priority: int) -> Claimant:
    """Return the claimant with every priority raised to at least ``priority``."""
    return each(
        claimant, lambda one: what_if.saying(one, priority=max(one.spec.priority, priority))
    )


def limitless(claimant: Claimant) -> Claimant:
    """Return the claimant as if all limits of its user and group had headroom."""
    found = each(claimant, lambda one: one._replace(within_limits=True))
    return replace(found, within_limits=True) if isinstance(found, WaitingGang) else found
