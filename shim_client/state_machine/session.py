"""The session with the core, from its beginning until everything is reported (design 1.10).

Nodes are announced as draining, and applications at the same time. When all of them are answered, the pods with a
node are reported, then the asks in the order of their creation. A barrier comes last. When the core has processed
the barrier, nodes are enabled and the sync is complete. When a session ends, the next one reports everything
again.
"""

from __future__ import annotations

from collections.abc import Iterable

from shim_client.cluster import KINDS
from shim_client.messages import ConfigurationReport, SyncComplete
from shim_client.state_machine import applications, barriers, evictions, nodes, pods, promises
from shim_client.state_machine.objects import budgets
from shim_client.state_machine.state import (
    ApplicationRecord,
    NodeRecord,
    Phase,
    PodRecord,
    Standing,
    State,
)


def connected(state: State) -> None:
    """Record that the shim is registered.

    The session begins once the cluster has been listed.
    """
    state.connected = True
    begin(state)


def begin(state: State) -> None:
    """Announce all nodes and applications, if the shim is registered and the cluster has been listed."""
    if state.phase is not Phase.AWAY or not state.connected or not state.listed.issuperset(KINDS):
        return
    evictions.take_up(state)
    in_order = [pods.enroll(state, pod) for pod in _by_creation(state)]
    state.phase = Phase.GREETING
    for node in state.nodes.values():
        nodes.announce(state, node)
    for application in dict.fromkeys(in_order):
        if application is not None:
            applications.announce(state, application)
    tell_when_answered(state)


def tell_when_answered(state: State) -> None:
    """Report all pods, once all nodes and applications have answers."""
    if state.phase is not Phase.GREETING or state.greeted or state.unanswered:
        return
    state.phase = Phase.TELLING
    budgets.tell_all(state)
    in_order = _by_creation(state)
    for pod in in_order:
        if pod.node:
            pods.offer(state, pod)
    for pod in in_order:
        if not pod.node:
            pods.offer(state, pod)
    barriers.put(state, "")


def passed_barrier(state: State, key: str) -> bool:
    """Continue the work that waited for a barrier.

    Return False when no barrier has this key.
    """
    name = barriers.passed(state, key)
    if name is None:
        return False
    if not name:
        _open(state)
    elif (node := state.nodes.get(name)) is not None:
        nodes.enable(state, node)
    return True


def counts(state: State) -> SyncComplete:
    """Return how many nodes, applications, allocations and asks the core should have."""
    told = [pod.sent for pod in state.pods.values() if pod.sent is not None]
    allocations = sum(bool(report.node) for report in told)
    return SyncComplete(
        nodes=_accepted(state.nodes.values()),
        applications=_accepted(applications.all_applications(state)),
        allocations=allocations,
        asks=len(told) - allocations,
    )


def disconnected(state: State) -> None:
    """Record that the session has ended, and forget all answers of the core."""
    state.connected = False
    state.phase = Phase.AWAY
    promises.end_all(state)
    state.reports = [one for one in state.reports if isinstance(one, ConfigurationReport)]
    state.greeted.clear()
    state.unanswered.clear()
    state.barriers.clear()
    state.budgets_told.clear()
    for node in state.nodes.values():
        node.standing = Standing.UNSENT
    for application in list(applications.all_applications(state)):
        application.standing = Standing.UNSENT
        application.ran = False
        if not application.members:
            applications.drop(state, application)
    for pod in state.pods.values():
        pod.sent = pod.refused = None


def _open(state: State) -> None:
    """Let the core begin to place pods, because everything has been reported."""
    state.phase = Phase.OPEN
    for node in state.nodes.values():
        nodes.enable(state, node)
    state.reports.append(counts(state))
    evictions.carry_on(state)


def _accepted(records: Iterable[NodeRecord | ApplicationRecord]) -> int:
    return sum(record.standing is Standing.ACCEPTED for record in records)


def _by_creation(state: State) -> list[PodRecord]:
    return sorted(state.pods.values(), key=lambda pod: (pod.facts.created_ms, pod.arrival))
