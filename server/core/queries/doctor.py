"""The findings of `doctor`, each with advice: first broken invariants, then other conditions that an operator should know of."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from server.core.core import Core
from server.core.queries.naming import Namer, by_key, some_of
from server.core.queries.queue_reports import over_max
from server.core.queries.unmet import needs
from server.core.state import State
from server.core.wait_reasons.obstacles import Obstacles
from server.model.phrases import agreeing, count, listed, quantities, some, span
from server.model.reasons import Code
from server.model.records import DecisionRecord, DecisionState
from server.model.reports import Finding
from server.state import quota_timers
from server.state.applications import Ask
from server.state.invariants.check import validate
from server.state.nodes import Node
from server.state.partition import Partition
from server.state.queues import Queue

WAITING_MS: Final = 600_000
"""The time for which an ask must have waited before a finding reports the ask."""
NAMED_MAX: Final = 10
"""The largest number of objects of one kind that a finding names."""
RESERVATION_MS: Final = 3_600_000
"""The age from which a reservation is reported, because it has kept capacity from other asks for too long."""
RELEASE_MS: Final = 60_000
"""The time within which an evicted pod normally ends after its grace period."""
SYNC_MS: Final = 300_000
"""If a manager has not completed its sync this long after its registration, a finding says so."""
ALONE_MS: Final = 60_000
"""If no manager is registered this long after the start of the core, a finding says so."""
UNSCHEDULABLE_SHARE: Final = 5
"""A finding warns if more than one fifth of the nodes take no placements. This number is the divisor."""


CHECKS: Final = ("books", "nodes", "allocations", "queues")
CHECKS_OF_AGE: Final = ("releases", "reservations", "waiting asks", "resource managers")
"""The names of the checks that compare durations. These checks are made only if the caller passes the present instant."""


@dataclass(frozen=True, slots=True)
class Around:
    """Facts for the findings that the core does not store: the instant at which the core started, and the managers that are away."""

    started_ms: int
    away: Mapping[str, int] = field(default_factory=dict)
    """The resource managers that have been away for longer than a reconnection takes, each with the instant at which it left."""


def doctor(
    core: Core,
    now: int | None = None,
    partition: str = "",
    around: Around | None = None,
    name: Namer = by_key,
) -> list[Finding]:
    """Return all findings, errors first.

    If the call names a partition, findings about other partitions are left out. Findings about managers are always included.
    Raise KeyError for an unknown partition. Without the instant ``now`` there are no findings about durations. Without
    ``around`` there are no findings about managers that are away. In findings, asks have the names that ``name`` returns.
    """
    state = core.state
    wanted = [state.partitions[partition]] if partition else list(state.partitions.values())
    found = [finding for one in wanted for finding in _partition(state, one, now, name)]
    if now is not None:
        found += _managers(state, now)
        found += _absences(state, now, around) if around is not None else ()
    return sorted(found, key=lambda one: one.severity != "error")


def _partition(
    state: State, partition: Partition, now: int | None, name: Namer
) -> Iterator[Finding]:
    yield from _invariants(partition)
    yield from _nodes(partition)
    yield from _lost(partition, name)
    yield from _queues(partition, now)
    yield from _thrashing(partition, now)
    if now is not None:
        yield from _unmet_guarantees(state, partition, now)
        yield from _releases(partition, now, name)
        yield from _reservations(partition, now, name)
        yield from _waiting(state, partition, now, name)


def _invariants(partition: Partition) -> Iterator[Finding]:
    try:
        validate(partition)
    except AssertionError as broken:
        yield Finding(
            "error",
            f"partition {partition.name}",
            "invariant-broken",
            f"the state contradicts itself: {broken}",
            "This is a defect of the core: report it with the log, and restart the core to rebuild its state.",
        )


# Nodes ----------------------------------------------------------------------------------------------------------


def _nodes(partition: Partition) -> Iterator[Finding]:
    known = partition.index.nodes.values()
    for node in known:
        yield from _overcommitted(partition, node)
    shut = [node.node_id for node in known if not node.schedulable]
    if shut and len(shut) * UNSCHEDULABLE_SHARE > len(known):
        yield _warning(
            f"partition {partition.name}",
            "nodes-unschedulable",
            f"{len(shut)} of {count(len(known), 'node')} {agreeing('take', len(shut))} no placements: {some(shut, NAMED_MAX)}",
            "Uncordon them, or remove them from the cluster if they do not come back.",
        )


def _overcommitted(partition: Partition, node: Node) -> Iterator[Finding]:
    """Yield a finding if the pods on a node use more than the node's capacity. Pledges are not counted as used."""
    over = [-free for free in node.free]
    for held in node.pledges.values():
        for index, amount in held.node_demand:
            over[index] -= amount
    excess = partition.types.named([max(one, 0) for one in over])
    if excess:
        foreign = f", {len(node.foreign)} of them of other schedulers," if node.foreign else ""
        pods = len(node.allocations) + len(node.foreign)
        yield _warning(
            f"node {node.node_id}",
            Code.NODE_OVERCOMMITTED.value,
            f"{count(pods, 'pod')}{foreign} {agreeing('take', pods)} {quantities(excess)} more than the node has",
            "Nothing is placed here until pods end. Drain the node, or look for pods that bypass the scheduler.",
        )


def _lost(partition: Partition, name: Namer) -> Iterator[Finding]:
    """Yield a finding about allocations on nodes that the partition does not have."""
    lost = [
        ask
        for ask in partition.asks.values()
        if ask.node is not None and partition.index.nodes.get(ask.node.node_id) is not ask.node
    ]
    if lost:
        yield Finding(
            "error",
            f"partition {partition.name}",
            Code.NODE_LOST.value,
            f"{count(len(lost), 'allocation')} on unknown nodes: {some_of(lost, NAMED_MAX, name)}",
            "Restart the shim so that it sends its nodes and pods again.",
        )


# Queues ---------------------------------------------------------------------------------------------------------


def _queues(partition: Partition, now: int | None) -> Iterator[Finding]:
    for queue in partition.root.walk():
        yield from _over_max(partition, queue, now)
    guaranteed = _guaranteed(partition.root)
    capacity = partition.types.named(partition.capacity)
    over = {
        kind: amount - capacity.get(kind, 0)
        for kind, amount in sorted(guaranteed.items())
        if amount > capacity.get(kind, 0)
    }
    if over and partition.index.nodes:
        yield _warning(
            f"partition {partition.name}",
            "guarantees-over-capacity",
            f"the queues are guaranteed {quantities(over)} more than all nodes have together",
            "Lower guarantees or add nodes: not all of them can be kept at once.",
        )


def _guaranteed(queue: Queue) -> Counter[str]:
    """Return the guarantee of a queue: its own amount, or the sum of the guarantees below the queue if that sum is larger."""
    below: Counter[str] = Counter()
    for child in queue.children.values():
        below.update(_guaranteed(child))
    return below | Counter(dict(queue.spec.guaranteed))


def _over_max(partition: Partition, queue: Queue, now: int | None) -> Iterator[Finding]:
    excess = over_max(partition, queue) if queue.parent is not None else {}
    if excess:
        yield _warning(
            f"queue {queue.path}",
            Code.OVER_MAX.value,
            f"it uses {quantities(excess)} more than its max",
            _enforced(partition, queue, now),
        )


def _enforced(partition: Partition, queue: Queue, now: int | None) -> str:
    """Return sentences about a queue over its maximum: whether and when its pods are evicted for this reason, and what to do if they are not."""
    why, due = quota_timers.why_not(partition, queue), partition.quota_due.get(queue.path)
    if why is not None:
        return f"Nothing enforces it: {why}. It gets no more until pods end; end some, or raise the max."
    if due is not None:
        when = f"in {span(due - now)}" if now is not None else "when its delay is over"
        return f"Pods will be evicted for it {when}. Before that, end some, or raise the max."
    return "Pods are being evicted for it: see `evenhand decisions --policy quota`."


# Conditions that last too long ----------------------------------------------------------------------------------


def _releases(partition: Partition, now: int, name: Namer) -> Iterator[Finding]:
    """Yield a finding for each node with victims that should have ended by now.

    A victim should end within the sum of its grace period and RELEASE_MS after the order.
    """
    late: dict[str, dict[str, Ask]] = {}
    for record in partition.decisions.records.values():
        ordered = max(record.at_ms, record.expires_ms - partition.spec.preemption.expiry_ms)
        for ask in _still_leaving(partition, record):
            if now - ordered > ask.spec.grace_ms + RELEASE_MS:
                late.setdefault(ask.node.node_id if ask.node else "", {})[ask.key] = ask
    for node_id, asks in sorted(late.items()):
        told = list(asks.values())
        yield _warning(
            f"node {node_id}",
            Code.RELEASE_OVERDUE.value,
            f"{count(len(told), 'pod')} ordered to be evicted and still there: {some_of(told, NAMED_MAX, name)}",
            "See what keeps them: a finalizer, or a node that does not answer. What is to be placed there waits for them. "
            "`evenhand explain KEY` names the decision.",
        )


def _still_leaving(partition: Partition, record: DecisionRecord) -> list[Ask]:
    """Return the victims of a decision that still run although their release was ordered.

    Return an empty list if the decision is fulfilled, or was only shown in observe mode.
    """
    if record.state in {DecisionState.FULFILLED, DecisionState.OBSERVED}:
        return []
    victims = (partition.asks.get(one.key) for one in record.victims)
    return [ask for ask in victims if ask is not None and ask.releasing]


def _reservations(partition: Partition, now: int, name: Namer) -> Iterator[Finding]:
    for held in partition.decisions.pledges.values():
        age = now - held.commitment.created_ms
        if age > RESERVATION_MS:
            yield _warning(
                f"ask {name(held.ask)}",
                "reservation-old",
                f"it has held node {held.node.node_id} for {span(age)}",
                f"Drain node {held.node.node_id} to free the capacity, or delete the pod.",
            )


def _waiting(state: State, partition: Partition, now: int, name: Namer) -> Iterator[Finding]:
    """Yield a finding for each reason code, about the asks that have waited for longer than WAITING_MS for this reason."""
    obstacles = Obstacles(state, partition)
    late: dict[Code, list[Ask]] = {}
    for ask in partition.asks.values():
        if ask.node is None and now - ask.pending_since > WAITING_MS:
            late.setdefault(obstacles.code(ask), []).append(ask)
    for code in sorted(late):
        asks = late[code]
        yield _warning(
            f"partition {partition.name}",
            f"waiting-{code.value}",
            f"{count(len(asks), 'ask')} waiting for more than {span(WAITING_MS)}: {some_of(asks, NAMED_MAX, name)}",
            f"{_WAITING_ADVICE.get(code, 'They are tried in order.')} `evenhand explain KEY` says more.",
        )


_WAITING_ADVICE = {
    Code.NOT_SYNCED: "Nothing is placed until every shim has sent what it knows: see its log.",
    Code.QUEUE_STOPPED: "Their queue is stopped: configure it again, or move them.",
    Code.QUEUE_LIMIT: "Raise a max on their path, or wait until pods of the queue end.",
    Code.USER_LIMIT: "The user's limit is used up: raise it, or wait.",
    Code.GROUP_LIMIT: "The group's limit is used up: raise it, or wait.",
    Code.CAPACITY_RESERVED: "Wait until the reservation ends, or bound it with reservations.timeout.",
    Code.NO_NODE: "The nodes are full: add some, or wait until pods end.",
    Code.NO_NODE_CONSTRAINTS: "No node matches their constraints: correct these, or label nodes.",
    Code.NO_NODE_CAPACITY: "They are larger than every node that they may use: let them use others, or add larger ones.",
    Code.NO_NODES: "No node takes placements: add or uncordon nodes.",
    Code.GANG_GATHERING: "Members of their gangs are missing: see whether their controllers make them.",
    Code.GANG_COUNTING: "Members of their gangs keep coming: say how many a gang has, or shorten `job.gathering`.",
    Code.GANG_PARTIAL: "Their gangs do not fit whole: add nodes, or lower the gangs' sizes.",
}


def _managers(state: State, now: int) -> Iterator[Finding]:
    late = [
        one
        for one in state.managers.values()
        if not one.synced and now - one.registered_ms > SYNC_MS
    ]
    for manager in late:
        touched = [
            name
            for name, partition in sorted(state.partitions.items())
            if not state.synced(partition)
        ]
        rest = f"; nothing is placed in {listed(touched)}" if touched else ""
        yield _warning(
            f"manager {manager.rm_id}",
            Code.NOT_SYNCED.value,
            f"it registered {span(now - manager.registered_ms)} ago and has not completed its sync{rest}",
            "See the shim's log: it has to end its sync, or register without explicit sync.",
        )


def _absences(state: State, now: int, around: Around) -> Iterator[Finding]:
    """Yield findings about managers that are away, and a finding if the core has no manager."""
    for rm_id, since in around.away.items():
        owned = sorted(one.name for one in state.owned_by(rm_id))
        where = f" in {listed(owned)}" if owned else ""
        yield Finding(
            "error",
            f"manager {rm_id}",
            Code.MANAGER_AWAY.value,
            f"it is away for {span(now - since)}: what the core knows{where} is as old as that, and nothing "
            "that it decides is carried out",
            "See whether its shim still runs, and start it again: `evenhand shim`. It brings everything with it.",
        )
    alone = now - around.started_ms
    if not state.managers and alone > ALONE_MS:
        yield _warning(
            "core",
            Code.NO_MANAGER.value,
            f"no resource manager has registered since the core started {span(alone)} ago: it knows no cluster",
            "Start one with `evenhand shim`, or see in its log why it does not reach this core.",
        )


def _warning(subject: str, code: str, message: str, advice: str) -> Finding:
    """Return a finding with the severity of a warning."""
    return Finding("warning", subject, code, message, advice)


def _thrashing(partition: Partition, now: int | None) -> Iterator[Finding]:
    """Yield a finding for each pair that the thrashing monitor stopped (invariant 18)."""
    for one in partition.thrashing.frozen.values():
        if now is not None and one.until_ms <= now:
            continue
        left = f" for {span(one.until_ms - now)} more" if now is not None else ""
        yield _warning(
            f"queue {one.pair.beneficiary.queue}",
            Code.PREEMPTION_STORM.value,
            f"its claims from queue {one.pair.victims.queue} repeated without end (policy {one.policy}): "
            f"no pod is evicted for them{left}",
            "A rule of preemption is wrong: report it with the input trace and `evenhand decisions`. "
            "An applied configuration ends it, as does time.",
        )


def _unmet_guarantees(state: State, partition: Partition, now: int) -> Iterator[Finding]:
    """Yield a finding about those queues that are below their entitlement while one of their asks has waited longer than WAITING_MS."""
    if not partition.ask_count:
        return
    found = needs.read(state, partition, "", now).queues
    late = [
        one.queue
        for one in found
        if any(now - need.ask.pending_since > WAITING_MS for need in one.needs)
    ]
    if late:
        yield _warning(
            f"partition {partition.name}",
            "guarantee-unmet",
            f"{count(len(late), 'queue')} below the guarantee with asks waiting for more than "
            f"{span(WAITING_MS)}: {some(late, NAMED_MAX)}",
            "`evenhand queues --unmet QUEUE` says what binds each, and the smallest change that cures it.",
        )
