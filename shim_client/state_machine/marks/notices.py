"""Events on a waiting pod that say how many pods are evicted for it, and from which node."""

from __future__ import annotations

from dataclasses import replace

from shim_client.messages import Releasing
from shim_client.state_machine.marks import victim_marks
from shim_client.state_machine.state import FreedCapacity, PodRecord, State
from shim_client.translate.phrases import count


def make(state: State, order: Releasing) -> None:
    """Count one more victim for the preemptor that the order names.

    The event about the victims is recorded after all victims of this input are counted.
    """
    waiting = state.pods.get(order.beneficiary)
    if waiting is None or waiting.node or not order.decision:
        return
    freed = waiting.freed
    known = freed is not None and (freed.decision, freed.node) == (order.decision, order.node)
    count = freed.count if freed is not None and known else 0
    waiting.freed = FreedCapacity(order.decision, order.node, count + 1)
    state.to_announce[order.beneficiary] = None


def take_back(state: State, pod: PodRecord, order: Releasing, why: str) -> None:
    """Remove the annotation of a victim that stays, and lower the preemptor's number of victims by one."""
    waiting = state.pods.get(order.beneficiary)
    if waiting is not None and waiting.freed and waiting.freed.decision == order.decision:
        waiting.freed = replace(waiting.freed, count=waiting.freed.count - 1)
    victim_marks.take_back(state, pod, order, why)


def announce(state: State) -> None:
    """Record an event on each waiting pod for which victims are being evicted."""
    for uid in state.to_announce:
        pod = state.pods.get(uid)
        if pod is None or pod.freed is None:
            continue
        freed, go = pod.freed, f"{count(pod.freed.count, 'pod', 'is', 'are')} evicted"
        why = f"capacity is being freed on node {freed.node} by decision {freed.decision}: {go}"
        state.note(pod.facts.ref, "PreemptionPlanned", why)
    state.to_announce.clear()
