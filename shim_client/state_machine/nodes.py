"""Nodes. A node is announced as draining, enabled after its pods were reported, and observed until it is deleted."""

from __future__ import annotations

from shim_client.cluster import KubeObject, ObjectRef
from shim_client.messages import NodeAction, NodeAnswer
from shim_client.state_machine import barriers, pods, promises, settling
from shim_client.state_machine.state import NodeRecord, Phase, Standing, State
from shim_client.translate.fields import BadObjectError, mapping
from shim_client.translate.node import NodeFacts, node_report, read_node

_KNOWN = frozenset({Standing.SENT, Standing.ACCEPTED})


def observe(state: State, item: KubeObject) -> None:
    """Record a node that is new or has changed.

    A node that moved to another partition is removed and announced again.
    """
    facts = _read(state, item)
    if facts is None:
        return
    node = state.nodes.get(facts.ref.name)
    if node is not None and node.facts.partition != facts.partition:
        remove(state, facts.ref.name)
        node = None
    if node is None:
        node = NodeRecord(facts)
        state.nodes[facts.ref.name] = node
        _resettle(state, facts.ref.name)
        announce(state, node)
        return
    before, node.facts = node.facts, facts
    if before.labels != facts.labels:
        _resettle(state, facts.ref.name)
    _tell_change(state, node, before)


def forget(state: State, item: KubeObject) -> None:
    """Record that a node was deleted."""
    name = mapping(item, "metadata").get("name")
    if isinstance(name, str):
        state.bad.pop(f"Node/{name}", None)
        remove(state, name)


def remove(state: State, name: str) -> None:
    """Remove a node.

    The core releases all pods on the node, and these pods wait until a node with this name appears.
    """
    node = state.nodes.pop(name, None)
    if node is None:
        return
    session = state.session_of(node.facts.partition)
    session.greeted.pop(name, None)
    _resettle(state, name)
    for uid in state.assigned.get(name, ()):
        state.pods[uid].sent = None
    if node.standing in _KNOWN:
        session.reports.append(node_report(node.facts, NodeAction.DECOMISSION))
        state.note(node.facts.ref, "NodeDeleted", "the node was taken from the scheduler")


def _resettle(state: State, name: str) -> None:
    """Drop all values that were derived from the labels of nodes, and count the pods on this node again."""
    state.outlook += 1
    state.places.clear()
    state.reachable.clear()
    state.free_volumes.clear()
    for uid in state.assigned.get(name, ()):
        settling.settle(state, state.pods[uid], name)
    promises.resettle(state, name)


def announce(state: State, node: NodeRecord) -> None:
    """Announce a node to the core as draining, so that the core does not use it yet."""
    session = state.session_of(node.facts.partition)
    if session.phase is Phase.AWAY:
        return
    node.standing = Standing.SENT
    session.greeted[node.facts.ref.name] = None
    session.reports.append(node_report(node.facts, NodeAction.CREATE_DRAIN))


def answered(state: State, answer: NodeAnswer) -> None:
    """Process the core's answer to a node: report the pods of an accepted node, then enable it."""
    node = state.nodes.get(answer.node)
    if node is None:
        return
    state.session_of(node.facts.partition).greeted.pop(answer.node, None)
    if not answer.accepted:
        if node.standing is Standing.SENT:
            node.standing = Standing.REFUSED
        state.note(node.facts.ref, "NodeRejected", answer.reason, warning=True)
        return
    if node.standing is not Standing.SENT:
        return
    node.standing = Standing.ACCEPTED
    if not node.welcomed:
        node.welcomed = True
        state.note(node.facts.ref, "NodeAccepted", "the node is known to the scheduler")
    _adopt(state, node)


def _adopt(state: State, node: NodeRecord) -> None:
    """Report the pods on a new node, and enable the node when the core has processed these reports."""
    session = state.session_of(node.facts.partition)
    if not session.may_tell_pods():
        return
    name = node.facts.ref.name
    orphans = [state.pods[uid] for uid in state.assigned.get(name, ())]
    for pod in orphans:
        pods.offer(state, pod)
    if session.phase is not Phase.OPEN:
        return
    if orphans:
        barriers.put(state, session, name)
    else:
        enable(state, node)


def enable(state: State, node: NodeRecord) -> None:
    """Let the core use a node. If the node is cordoned, only pods that require this node may use it."""
    if node.standing is Standing.ACCEPTED:
        session = state.session_of(node.facts.partition)
        session.reports.append(node_report(node.facts, _standing_order(node.facts)))


def _tell_change(state: State, node: NodeRecord, before: NodeFacts) -> None:
    after = node.facts
    changed = (before.capacity, before.labels, before.taints) != (
        after.capacity,
        after.labels,
        after.taints,
    )
    if node.standing is Standing.REFUSED and changed:
        announce(state, node)
        return
    if node.standing not in _KNOWN:
        return
    session = state.session_of(after.partition)
    if changed:
        session.reports.append(node_report(after, NodeAction.UPDATE))
    told_so_far = node.standing is Standing.ACCEPTED and session.phase is Phase.OPEN
    if before.unschedulable != after.unschedulable and told_so_far:
        session.reports.append(node_report(after, _standing_order(after)))


def _standing_order(facts: NodeFacts) -> NodeAction:
    return NodeAction.DRAIN_NODE if facts.unschedulable else NodeAction.DRAIN_TO_SCHEDULABLE


def _read(state: State, item: KubeObject) -> NodeFacts | None:
    try:
        facts = read_node(item)
    except BadObjectError as bad:
        name = str(mapping(item, "metadata").get("name"))[:253]
        if state.bad.get(f"Node/{name}") != str(bad):
            state.bad[f"Node/{name}"] = str(bad)
            state.note(ObjectRef("Node", "", name), "NodeNotReadable", str(bad), warning=True)
        return None
    state.bad.pop(f"Node/{facts.ref.name}", None)
    return facts
