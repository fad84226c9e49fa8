"""A session with the core, from nothing to everything told (specification 1.7, design 1.10).

Nodes are announced as draining, applications beside them; when every one of them is answered the
placed pods follow, then the asks in the order of their creation; then nodes are enabled and the
sync is complete.  A session that ends takes all of this back: the next one starts from nothing.
"""

from __future__ import annotations

from shim_client.cluster import KINDS
from shim_client.mirror import applications, nodes, pods
from shim_client.mirror.state import Counts, Phase, PodRecord, Standing, State
from shim_client.reports import SyncComplete


def connected(state: State) -> None:
    """Take in that the shim is registered; the session begins once the cluster was listed."""
    state.connected = True
    begin(state)


def begin(state: State) -> None:
    """Announce everything, if there is a core to tell and a cluster to tell of."""
    if state.phase is not Phase.AWAY or not state.connected or not state.listed.issuperset(KINDS):
        return
    state.phase = Phase.GREETING
    state.counts = Counts()
    for node in state.nodes.values():
        nodes.announce(state, node)
    for pod in _by_creation(state):
        pods.offer(state, pod)
    open_when_answered(state)


def open_when_answered(state: State) -> None:
    """Tell everything that exists, once no answer is awaited any more."""
    if state.phase is not Phase.GREETING or state.greeted or state.unanswered:
        return
    state.phase = Phase.OPEN
    in_order = _by_creation(state)
    for pod in in_order:
        if pod.node:
            pods.offer(state, pod)
    for pod in in_order:
        if not pod.node:
            pods.offer(state, pod)
    for node in state.nodes.values():
        nodes.enable(state, node)
    told = state.counts
    state.reports.append(SyncComplete(told.nodes, told.applications, told.allocations, told.asks))


def disconnected(state: State) -> None:
    """Take in that the session is over; what the core knew is worth nothing now."""
    state.connected = False
    state.phase = Phase.AWAY
    state.reports.clear()
    state.greeted.clear()
    state.unanswered.clear()
    for node in state.nodes.values():
        node.standing = Standing.UNSENT
    for application in list(applications.all_applications(state)):
        application.standing = Standing.UNSENT
        if not application.members:
            applications.drop(state, application)
    for pod in state.pods.values():
        pod.sent = pod.refused = None


def _by_creation(state: State) -> list[PodRecord]:
    return sorted(state.pods.values(), key=lambda pod: (pod.facts.created_ms, pod.arrival))
