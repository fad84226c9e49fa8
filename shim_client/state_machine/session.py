"""The session with the core, from its beginning until all objects are reported (design 1.10).

Nodes are announced as draining, and applications at the same time. When the core has answered all nodes and
applications, the pods with a node are reported, then the asks in the order of their creation. A barrier comes last.
When the core has processed the barrier, nodes are enabled and the sync is complete. When a session ends, the next
session reports all objects again.

If partitions are spread over several groups of cores, there is a session with each group, in which only the partitions
of the group are reported. Each session begins and ends independently of all other sessions (design 7.6).
"""

from __future__ import annotations

from collections.abc import Iterable

from shim_client.cluster import KINDS
from shim_client.messages import SyncComplete
from shim_client.state_machine import applications, barriers, evictions, nodes, pods, promises
from shim_client.state_machine.objects import budgets
from shim_client.state_machine.state import (
    ApplicationRecord,
    CoreSession,
    NodeRecord,
    Phase,
    PodRecord,
    Standing,
    State,
)


def connected(state: State, session: CoreSession) -> None:
    """Record that the shim is registered.

    The session begins once the cluster has been listed.
    """
    session.connected = True
    _begin(state, session)


def begin(state: State) -> None:
    """Announce all nodes and applications to each core at which the shim is registered, if the cluster has been listed."""
    for session in state.sessions.values():
        _begin(state, session)


def _begin(state: State, session: CoreSession) -> None:
    if (
        session.phase is not Phase.AWAY
        or not session.connected
        or not state.listed.issuperset(KINDS)
    ):
        return
    evictions.take_up(state, session)
    in_order = [pods.enroll(state, pod) for pod in _by_creation(state, session)]
    session.phase = Phase.GREETING
    for node in _nodes(state, session):
        nodes.announce(state, node)
    for application in dict.fromkeys(in_order):
        if application is not None:
            applications.announce(state, application)
    _tell_when_answered(state, session)


def tell_when_answered(state: State) -> None:
    """Report all pods to each core that has answered all reports of nodes and applications."""
    for session in state.sessions.values():
        _tell_when_answered(state, session)


def _tell_when_answered(state: State, session: CoreSession) -> None:
    if session.phase is not Phase.GREETING or session.greeted or session.unanswered:
        return
    session.phase = Phase.TELLING
    budgets.tell_all(state, session)
    in_order = _by_creation(state, session)
    for pod in in_order:
        if pod.node:
            pods.offer(state, pod)
    for pod in in_order:
        if not pod.node:
            pods.offer(state, pod)
    barriers.put(state, session, "")


def passed_barrier(state: State, session: CoreSession, key: str) -> bool:
    """Continue the work that waited until the core has processed all reports before a barrier.

    Return False when no barrier has this key.
    """
    name = barriers.passed(session, key)
    if name is None:
        return False
    if not name:
        _open(state, session)
    elif (node := state.nodes.get(name)) is not None:
        nodes.enable(state, node)
    return True


def counts(state: State) -> SyncComplete:
    """Return how many nodes, applications, allocations and asks all cores together should have."""
    found = [_counts(state, one) for one in state.sessions.values()]
    return SyncComplete(
        sum(one.nodes for one in found),
        sum(one.applications for one in found),
        sum(one.allocations for one in found),
        sum(one.asks for one in found),
    )


def _counts(state: State, session: CoreSession) -> SyncComplete:
    """Return how many nodes, applications, allocations and asks the core of a session should have."""
    told = [
        pod.sent
        for pod in state.pods.values()
        if pod.sent is not None and state.session_of(pod.sent.partition) is session
    ]
    allocations = sum(bool(report.node) for report in told)
    return SyncComplete(
        nodes=_accepted(_nodes(state, session)),
        applications=_accepted(_applications(state, session)),
        allocations=allocations,
        asks=len(told) - allocations,
    )


def disconnected(state: State, session: CoreSession) -> None:
    """Record that a session has ended, and forget all answers of its core."""
    session.connected = False
    session.phase = Phase.AWAY
    promises.end_all(state, session)
    session.reports.clear()
    session.greeted.clear()
    session.unanswered.clear()
    session.barriers.clear()
    session.budgets_told.clear()
    for node in _nodes(state, session):
        node.standing = Standing.UNSENT
    for application in _applications(state, session):
        application.standing = Standing.UNSENT
        application.ran = False
        if not application.members:
            applications.drop(state, application)
    for pod in state.pods.values():
        known = pod.sent or pod.refused
        if known is not None and state.session_of(known.partition) is session:
            pod.sent = pod.refused = None


def moved(state: State, partition: str, group: str) -> None:
    """Record that another group of cores decides for a partition.

    The objects of the partition are reported to the new group in the next session with this group.

    The caller ends the sessions with the former and the new group, so that earlier reports about the partition no
    longer count.
    """
    disconnected(state, state.session_of(partition))
    disconnected(state, state.sessions[group])
    state.owners = {**state.owners, partition: group}


def _open(state: State, session: CoreSession) -> None:
    """Let the core of a session begin to place pods, because all objects have been reported."""
    session.phase = Phase.OPEN
    for node in _nodes(state, session):
        nodes.enable(state, node)
    session.reports.append(_counts(state, session))
    evictions.carry_on(state, session)


def _nodes(state: State, session: CoreSession) -> list[NodeRecord]:
    """Return the nodes of a session's partitions."""
    return [one for one in state.nodes.values() if state.session_of(one.facts.partition) is session]


def _applications(state: State, session: CoreSession) -> list[ApplicationRecord]:
    """Return the applications of a session's partitions."""
    known = applications.all_applications(state)
    return [one for one in known if state.session_of(one.partition) is session]


def _accepted(records: Iterable[NodeRecord | ApplicationRecord]) -> int:
    return sum(record.standing is Standing.ACCEPTED for record in records)


def _by_creation(state: State, session: CoreSession) -> list[PodRecord]:
    """Return the pods of a session in the order of their creation."""
    own = [one for one in state.pods.values() if state.session_for(one) is session]
    return sorted(own, key=lambda pod: (pod.facts.created_ms, pod.arrival))
