"""The standing decisions of a shadow. A *standing* decision is open: its ask still waits and its victims still run.

In each of the shadow's rounds, the standing decisions are applied to the Trial before any new plan is made. Thus the shadow
does not decide for the same ask twice, and does not use the same victim twice. A standing decision ends in four cases: its ask
is placed or gone, the live side decided for the ask, a victim is gone, or the decision would break a rule. If the ask still
waits without a decision, the shadow plans for it again.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from server.core.preemption import due_gangs
from server.preemption.policy import Plan, PlannedPledge, Release
from server.preemption.rules import gate
from server.preemption.trial import Trial
from server.snapshot.waiting import WaitingAsk
from server.state import snapshotting
from server.state.applications import Gang
from server.state.partition import Partition
from server.state.shadow import OpenShadowDecision, Shadow, ShadowPlacement

CHECKED_MAX: Final = 32
"""The largest number of standing decisions that one turn checks against the rules again. A check takes as much work as a plan."""
CHECK_MS: Final = 1_000
"""The time, in milliseconds, between two checks of standing decisions against the rules while no ask is due."""
PLACED = "its ask was placed without it"
GONE = "its ask is gone"
SERVED = "the live side decided for its ask"


def held(plan: Plan) -> OpenShadowDecision:
    """Return a plan in the form in which the shadow stores a standing decision."""
    places = tuple(ShadowPlacement(one.ask.key, one.node_id, one.exclusive) for one in plan.pledges)
    victims = tuple((one.key, one.because) for one in plan.releases)
    return OpenShadowDecision(plan.policy, places, victims, plan.shrink)


def sweep(partition: Partition, known: Shadow) -> dict[str, str]:
    """End the decisions that the present state rules out.

    Return, for each ask or queue of an ended decision, the reason why the decision ended. If the state has not changed, do nothing.
    """
    state = (
        partition.relief,
        partition.placements,
        partition.numbers,
        len(partition.decisions.pledges),
        len(partition.decisions.leaving),
        len(partition.asks),
    )
    if state == known.seen:
        return {}
    known.seen = state
    ended: dict[str, str] = {}
    for name, one in list(known.held.items()):
        why = _over(partition, one)
        if why:
            _end(known, name, why, ended)
    return ended


def yield_to_live(partition: Partition, known: Shadow) -> None:
    """Drop each decision of the shadow for an ask if the live side has made a decision for that ask, too."""
    for name, one in list(known.held.items()):
        if any(_of_place(partition, place) == SERVED for place in one.places):
            del known.held[name]


def _end(known: Shadow, name: str, why: str, ended: dict[str, str]) -> None:
    for subject in known.held.pop(name).subjects:
        ended[subject] = why


def _over(partition: Partition, one: OpenShadowDecision) -> str:
    """Return why the shadow's decision is no longer a standing decision, or "" if it still is."""
    reasons = (
        *(_of_place(partition, place) for place in one.places),
        *(_of_victim(partition, key) for key, _ in one.victims),
    )
    return next(filter(None, reasons), "")


def _of_place(partition: Partition, place: ShadowPlacement) -> str:
    ask = partition.asks.get(place.key)
    if ask is None:
        return GONE
    if ask.node is not None:
        return PLACED
    if ask.pledge is not None and not ask.pledge.reserves:
        return SERVED
    return "" if place.node_id in partition.index.nodes else f"node {place.node_id} is gone"


def _of_victim(partition: Partition, key: str) -> str:
    ask = partition.asks.get(key)
    if ask is None or ask.node is None:
        return f"its victim {key} is gone"
    return f"its victim {key} is on its way out" if ask.releasing else ""


def is_due(known: Shadow, now: int) -> bool:
    """Return whether CHECK_MS have passed since standing decisions were last checked against the rules."""
    return bool(known.held) and now >= known.checked_ms + CHECK_MS


def lay(other: Partition, known: Shadow, trial: Trial, ended: dict[str, str]) -> None:
    """Apply the standing decisions to the Trial, oldest first.

    End the decisions that would break a rule now, and store the reasons in ``ended``. Each turn checks at most CHECKED_MAX
    decisions against the rules, and the next turn checks the decisions that follow. All other decisions are applied without a
    check.
    """
    checked = _next_checked(known, trial.snapshot.now)
    with _seen_waiting(other, trial, list(known.held.values())) as waiting:
        for name, one in list(known.held.items()):
            plan = _plan(other, one, waiting)
            refusal = gate.gate(trial, plan) if name in checked else None
            if refusal is None:
                trial.apply(plan)
            else:
                _end(known, name, f"{refusal.rule}: {refusal.because}", ended)


def _next_checked(known: Shadow, now: int) -> frozenset[str]:
    """Return the keys of the next decisions to check, at most CHECKED_MAX, and remember the last one for the next call.

    The checks go through the list of decisions in order, and begin where the last call ended. After the last decision of the
    list, the checks continue with the first decision.
    """
    known.checked_ms = now
    names = list(known.held)
    if not names:
        return frozenset()
    at = names.index(known.checked) + 1 if known.checked in known.held else 0
    found = [*names[at:], *names[:at]][:CHECKED_MAX]
    known.checked = found[-1]
    return frozenset(found)


def lay_copy(other: Partition, known: Shadow, trial: Trial) -> None:
    """Apply the standing decisions to the Trial of a query.

    Decisions that would break a rule now are left out. The query does not end these decisions.
    """
    held = [one for one in known.held.values() if not _over(other, one)]
    with _seen_waiting(other, trial, held) as waiting:
        for one in held:
            plan = _plan(other, one, waiting)
            if gate.gate(trial, plan) is None:
                trial.apply(plan)


@contextmanager
def _seen_waiting(
    other: Partition, trial: Trial, held: Sequence[OpenShadowDecision]
) -> Iterator[dict[str, WaitingAsk]]:
    """Add the gangs of the given standing decisions to the snapshot, even if these gangs are not due.

    Yield the asks of these decisions by key.

    These gangs must be in the snapshot, because the rules check a gang as a whole (J8). The snapshot is restored when the
    context ends.
    """
    snapshot, asks = trial.snapshot, [other.asks[place.key] for one in held for place in one.places]
    gangs = dict.fromkeys(ask.group for ask in asks if isinstance(ask.group, Gang))
    known = snapshotting.gangs(other, [due_gangs.due(one) for one in gangs])
    found = {one.key: one for one in snapshotting.waiting(other, asks)}
    found |= {member.key: member for one in known for member in one.members}
    trial.snapshot = replace(snapshot, gangs=(*snapshot.gangs, *known))
    try:
        yield found
    finally:
        trial.snapshot = snapshot


def _plan(other: Partition, one: OpenShadowDecision, waiting: Mapping[str, WaitingAsk]) -> Plan:
    """Return a standing decision as a plan, with the row numbers of a snapshot taken at this instant."""
    nodes = other.index.nodes
    pledges = tuple(
        PlannedPledge(waiting[place.key], nodes[place.node_id].slot, place.node_id, place.exclusive)
        for place in one.places
    )
    return Plan(one.policy, pledges, tuple(_releases(other, one)), shrink=one.shrink)


def _releases(other: Partition, one: OpenShadowDecision) -> Iterator[Release]:
    for key, because in one.victims:
        ask = other.asks[key]
        yield Release(ask.row, key, ask.application.leaf.path, because)
