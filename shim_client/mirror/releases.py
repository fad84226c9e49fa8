"""Victims: pods that the core orders away, until they are gone or it turns out that they stay (1.7, 1.8)."""

from __future__ import annotations

from dataclasses import replace

from shim_client.cluster import (
    ClusterError,
    DeletePod,
    EvictPod,
    MissingError,
    ObjectRef,
    PatchPod,
    ReleasePod,
)
from shim_client.decisions import Released
from shim_client.mirror import marks, pods
from shim_client.mirror.state import PodRecord, Room, State
from shim_client.reports import PodRelease, Releasing, TerminationType, Veto
from shim_client.translate import labels

ORDERS = frozenset(
    {
        TerminationType.TIMEOUT,
        TerminationType.PREEMPTED_BY_SCHEDULER,
        TerminationType.PLACEHOLDER_REPLACED,
    }
)
"""Terminations that order a pod's deletion; the others tell of what is over already."""
EVICT = "evict"
DELIVERIES = frozenset({"", "delete", EVICT})
"""Ways to end a pod that this shim knows."""

_REASONS = {
    TerminationType.TIMEOUT: "TimedOut",
    TerminationType.PREEMPTED_BY_SCHEDULER: "Preempted",
    TerminationType.PLACEHOLDER_REPLACED: "PlaceholderReplaced",
}
_GOES = (marks.DISRUPTED, "True", "PreemptionByScheduler")


def released(state: State, decision: Released) -> None:
    """Have a pod go that has to; tell again of one that the core dropped by itself."""
    pod = state.pods.get(decision.key)
    if decision.termination in ORDERS:
        _end(state, pod, decision)
    elif decision.termination is TerminationType.STOPPED_BY_RM and pod and pod.sent:
        pod.sent = None
        pods.offer(state, pod)


def _end(state: State, pod: PodRecord | None, decision: Released) -> None:
    if pod is None:
        _confirm(state, decision)
        return
    node = decision.nodes[0] if decision.nodes else ""
    order = Releasing(decision.termination, decision.decision, decision.beneficiary, node)
    if pod.order == order:
        return
    if decision.decision and (why := _obstacle(pod, decision.delivery)):
        _veto(state, decision.key, decision.decision, why)
        return
    _put(pod, order)
    why = decision.message or "the scheduler takes the pod's place back"
    state.note(pod.facts.ref, _REASONS[decision.termination], why)
    evicts = decision.delivery == EVICT
    end, note = _end_of(pod.facts.ref, evicts=evicts), _note(pod, order, why, evicts=evicts)
    state.actions.append(ReleasePod(pod.facts.ref, end, note, decision.decision))
    _make_room(state, order)


def _confirm(state: State, decision: Released) -> None:
    """Say of a pod that is gone already that it is gone."""
    state.reports.append(
        PodRelease(
            decision.key,
            decision.application,
            decision.partition,
            decision.termination,
            decision=decision.decision,
        )
    )


def _obstacle(pod: PodRecord, delivery: str) -> str:
    """Return why a victim cannot go in the way that is asked for, "" when it can."""
    if delivery not in DELIVERIES:
        return f"this shim does not know the delivery {delivery[:40]!r}"
    groups = pod.sent.disruption_groups if pod.sent else ()
    if delivery == EVICT and len(groups) > 1:
        return f"{len(groups)} disruption budgets count it, and an eviction takes one at most"
    return ""


def _put(pod: PodRecord, order: Releasing) -> None:
    """Remember an order; the core, which gave it, need not hear of it."""
    pod.order, pod.void = order, None
    if pod.sent is not None:
        pod.sent = replace(pod.sent, releasing=order)


def _end_of(ref: ObjectRef, *, evicts: bool) -> DeletePod | EvictPod:
    return EvictPod(ref) if evicts else DeletePod(ref)


def _note(pod: PodRecord, order: Releasing, why: str, *, evicts: bool) -> PatchPod | None:
    """Return what is to be written on the pod before it goes."""
    preempted = order.termination is TerminationType.PREEMPTED_BY_SCHEDULER
    if not preempted and not order.decision:
        return None
    written: dict[str, str | None] = {}
    if order.decision:
        written[labels.RELEASED_FOR] = f"{order.decision}/{order.beneficiary}/{order.node}"
        if evicts:
            written[labels.DELIVERY] = EVICT
    condition = (*_GOES, why[:1024]) if preempted else None
    return PatchPod(pod.facts.ref, annotations=written, condition=condition)


def _veto(state: State, key: str, decision: str, why: str) -> None:
    if state.may_tell_pods():
        state.reports.append(Veto(key, decision, why))


def outcome(state: State, pod: PodRecord, action: ReleasePod, error: ClusterError | None) -> None:
    """Take in how a release ended: of a victim that stays the core hears, and plans again.

    One that is gone, or going by somebody else's doing, is no veto: its end is what was wanted.
    """
    if error is None or isinstance(error, MissingError) or pod.facts.deleting:
        return
    state.note(pod.facts.ref, "FailedDeletion", f"the pod stays: {error}", warning=True)
    if action.decision:
        _veto(state, pod.facts.ref.uid, action.decision, str(error))
    if pod.order is not None and pod.order.decision == action.decision:
        _unmake_room(state, pod.order)
        marks.take_back(state, pod, pod.order, f"the pod stays: {error}")


# After a restart.


def take_up(state: State) -> None:
    """Take up what was ordered before this shim began, or give it up, before anything is told.

    A marked pod goes for an ask that still waits, and for a quota; it is spared when the ask for
    which it was to go has its node by now, or is gone.
    """
    for pod in list(state.pods.values()):
        mark = marks.written(pod)
        if mark is None or pod.order is not None:
            continue
        if pod.facts.deleting or (pod.node and _is_wanted(state, mark)):
            _put(pod, mark)
            state.taken_up.append(pod.facts.ref.uid)
        else:
            marks.take_back(state, pod, mark, "nobody waits for the pod's place any more")


def carry_on(state: State) -> None:
    """Have go what was taken up, once the core knows it: else it would not keep their room for anybody."""
    for uid in state.taken_up:
        pod = state.pods.get(uid)
        if pod is None or pod.order is None or pod.facts.deleting:
            continue
        end = _end_of(pod.facts.ref, evicts=pod.facts.delivery == EVICT)
        state.actions.append(ReleasePod(pod.facts.ref, end, None, pod.order.decision))
    state.taken_up.clear()


def _is_wanted(state: State, mark: Releasing) -> bool:
    """Return whether somebody still waits for the place; a quota's run has nobody who waits."""
    if not mark.beneficiary:
        return True
    pod = state.pods.get(mark.beneficiary)
    return pod is not None and pod.facts.ours and not pod.node and not pod.facts.deleting


# The beneficiary.


def _make_room(state: State, order: Releasing) -> None:
    """Count what goes for an ask; it is told once all that came together is counted."""
    waiting = state.pods.get(order.beneficiary)
    if waiting is None or waiting.node or not order.decision:
        return
    room = waiting.room
    known = room is not None and (room.decision, room.node) == (order.decision, order.node)
    count = room.count if room is not None and known else 0
    waiting.room = Room(order.decision, order.node, count + 1)
    state.to_announce[order.beneficiary] = None


def _unmake_room(state: State, order: Releasing) -> None:
    waiting = state.pods.get(order.beneficiary)
    if waiting is not None and waiting.room and waiting.room.decision == order.decision:
        waiting.room = replace(waiting.room, count=waiting.room.count - 1)


def announce(state: State) -> None:
    """Say on the pods that wait that room is being made for them."""
    for uid in state.to_announce:
        pod = state.pods.get(uid)
        if pod is None or pod.room is None:
            continue
        room, go = pod.room, "1 pod goes" if pod.room.count == 1 else f"{pod.room.count} pods go"
        why = f"room is being made on node {room.node} by decision {room.decision}: {go}"
        state.note(pod.facts.ref, "PreemptionPlanned", why)
    state.to_announce.clear()
