"""The events of asks, allocations and foreign pods."""

from typing import Final

from server.core.events import (
    comparison,
    excluded_nodes,
    gang_consistency,
    gang_size,
    lifecycle,
    overflow,
    placeholders,
    recovery,
)
from server.core.preemption import due_quota, open_decisions
from server.core.state import REGISTER_FIRST, State
from server.model.asks import PRIORITY_MAX, PRIORITY_MIN, AskSpec, Generation, is_same
from server.model.decisions import (
    ApplicationState,
    AskRejected,
    AskReleased,
    Decision,
    Noted,
    Termination,
)
from server.model.events import AllocationAdded, AskAdded, ForeignAdded, ReleaseRequested
from server.model.reasons import Code
from server.state import journal, pending
from server.state.applications import Application, Ask
from server.state.gang_sizes import size_placeholders
from server.state.nodes import Foreign, Node
from server.state.partition import Partition

_FAILED_ON_RM: Final = Termination.SCHEDULING_FAILED_ON_RM
_STOPPED_BY_RM: Final = Termination.STOPPED_BY_RM
"""Members of an enumeration, looked up once because each access to a member is slow."""

# Adding ---------------------------------------------------------------------------------------------------------


def add_ask(state: State, event: AskAdded, now: int) -> list[Decision]:
    """Add a new ask, or update in place a known ask that waits or runs. Return a rejection if the event is invalid."""
    partition = state.partitions.get(event.partition)
    application = partition.applications.get(event.application_id) if partition else None
    if partition is None or application is None or application.rm_id != event.rm_id:
        return [_reject(state, event, _unknown(state, event))]
    comparison.clear_key(state, partition, event.key, application, now)
    known = partition.asks.get(event.key)
    refusal = _may_be(partition, event.key, event.spec, known, application)
    if refusal:
        return [_reject(state, event, refusal)]
    event = gang_size.sized(
        partition, application, placeholders.keyed(application, event, known), known
    )
    if known is not None:
        return _add_again(state, partition, known, event.spec, now)
    if refusal := _may_join(partition, application, event.spec):
        return [_reject(state, event, refusal)]
    if event.spec.gang_key:
        gang_size.joins(partition, application, event.spec)
    ask = _make(partition, application, event, now)
    placeholders.seen(state, partition, ask)
    _add_waiting(state, partition, ask, now)
    if event.spec.gang_key:
        gang_consistency.note(application, event.spec)
    if event.spec.placeholder:
        size_placeholders(partition, application)
    return lifecycle.asks_added(partition, application, now)


def _add_again(
    state: State, partition: Partition, known: Ask, spec: AskSpec, now: int
) -> list[Decision]:
    """Handle a further report of a known ask: compare the ask after a new registration, or update it in place.

    If a manager reports a victim as a waiting ask, the victim never ran. The victim then becomes a waiting ask again, and its
    capacity becomes free.
    """
    spec = comparison.same_spec(partition, known, spec)
    if comparison.waits_again(partition, known):
        comparison.leave_node(partition, known)
        _requeue(state, partition, known, spec, now)
        return []
    return _update(state, partition, known, spec, now)


def _may_join(partition: Partition, application: Application, spec: AskSpec) -> str:
    """Return why the application does not accept the ask, or "" if it does."""
    if application.state is ApplicationState.FAILING:
        return f"application {application.application_id!r} is failing"
    return gang_consistency.disagreement(partition, application, spec) if spec.gang_key else ""


def _unknown(state: State, event: AskAdded | AllocationAdded | ForeignAdded) -> str:
    if event.rm_id not in state.managers:
        return REGISTER_FIRST.format(rm_id=event.rm_id)
    if event.partition not in state.partitions:
        return state.why_absent(event.partition)
    if isinstance(event, ForeignAdded):
        return owned_by_other(state.partitions[event.partition])
    if event.application_id in state.partitions[event.partition].applications:
        return f"application {event.application_id!r} belongs to another resource manager"
    return (
        f"application {event.application_id!r} is not known: add it and wait until it is accepted"
    )


def owned_by_other(partition: Partition) -> str:
    """Return why a manager may not use a partition that it does not own (design 1.10).

    There are two possible reasons: the partition has no nodes yet, or it serves another manager's cluster.
    """
    if not partition.owner:
        return f"partition {partition.name!r} has no nodes yet: register them first"
    return (
        f"partition {partition.name!r} belongs to resource manager {partition.owner!r}; "
        "give this cluster a partition of its own"
    )


def _reject(state: State, event: AskAdded | AllocationAdded, reason: str) -> AskRejected:
    _keep_tags(state, event)
    return AskRejected(
        event.rm_id, event.partition, event.key, event.application_id, reason, event.generation
    )


def _keep_tags(state: State, event: AskAdded | AllocationAdded | ForeignAdded) -> None:
    """Store the tags of a pod whose report was rejected, unless tags are already stored under the pod's key."""
    partition = state.partitions.get(event.partition)
    if partition is not None and not partition.tags_of(event.key):
        partition.ended.keep(event.key, event.tags)


def _may_be(
    partition: Partition, key: str, spec: AskSpec, known: Ask | None, application: Application
) -> str:
    """Return why an ask or allocation is invalid, or "" if it is valid."""
    if not key:
        return "allocationKey is empty"
    if known is not None and known.application is not application:
        return (
            f"allocationKey {key!r} is in use by application {known.application.application_id!r}"
        )
    if key in partition.foreign.pods:
        return f"allocationKey {key!r} is in use by a foreign pod"
    if not PRIORITY_MIN <= spec.priority <= PRIORITY_MAX:
        return f"priority {spec.priority} is not an int32"
    if known is None and len(partition.asks) >= overflow.ASKS_MAX:
        return f"partition {partition.name!r} has {overflow.ASKS_MAX} asks and allocations, the most it takes"
    known_class = partition.classes.by_spec.get(spec)
    if known_class is not None and known_class.small and not partition.classes.crowded:
        return ""
    return overflow.overflow(partition, spec.resource, of_ask=True)


def _make(
    partition: Partition, application: Application, event: AskAdded | AllocationAdded, now: int
) -> Ask:
    created = now if event.created_ms is None else min(event.created_ms, now)
    spec = event.spec
    partition.arrivals += 1
    ask_class = partition.class_of(spec, spec.constraints)
    ask = Ask(
        event.rm_id,
        event.key,
        application,
        spec,
        ask_class,
        partition.arrivals,
        created,
        event.tags,
        event.generation,
    )
    ask.cycle = partition.round.cycles
    partition.asks[event.key] = ask
    return ask


def _add_waiting(state: State, partition: Partition, ask: Ask, now: int) -> None:
    pending.enqueue(partition, ask)
    if ask.spec.timeout_ms > 0:
        ask.expires_ms = now + ask.spec.timeout_ms
        state.at(ask.expires_ms, "ask-timeout", partition.name, ask.key)


def _update(
    state: State, partition: Partition, ask: Ask, spec: AskSpec, now: int
) -> list[Decision]:
    """Update a known ask or allocation in place.

    A waiting ask keeps its place in the order (design 6.3). The ask loses its pledge, unless the pledge is for a replacement
    and the ask can still replace the placeholder. If the event has the values that the ask already has, nothing changes.
    """
    if is_same(ask.spec, spec):
        return []
    if spec.constraints != ask.spec.constraints:
        # The nodes on which the ask failed to bind may suit the changed ask. They are therefore allowed again
        # at once.
        partition.avoided.pop(ask.key, None)
    if ask.node is not None:
        before = ask.ask_class.demand
        _update_allocation(partition, ask, spec)
        open_decisions.check_pledges(partition, ask.node, now)
        return due_quota.forced(state, partition, ask, before, now)
    if placeholders.keeps_place(partition, ask, spec):
        return []
    lifecycle.drop_pledge(partition, ask, "its ask changed")
    since_ms = gang_size.joins(partition, ask.application, spec, ask)
    pending.dequeue(partition, ask)
    _respec(partition, ask, spec)
    pending.enqueue(partition, ask)
    gang_size.goes_on(partition, ask, since_ms)
    size_placeholders(partition, ask.application)
    return []


def _respec(partition: Partition, ask: Ask, spec: AskSpec) -> None:
    gang_consistency.note(ask.application, spec)
    placeholders.resized(ask, spec)
    before = ask.ask_class
    ask.spec = spec
    ask.ask_class = partition.class_of(spec, partition.constraints_of(spec, ask.key))
    partition.leave_class(before)


def _update_allocation(partition: Partition, ask: Ask, spec: AskSpec) -> None:
    """Apply the resize of a running pod. The new size is charged even if usage then exceeds a limit (Q7)."""
    if is_same(ask.spec, spec):
        return
    node, placed_ms, releasing = ask.node, ask.placed_ms, ask.releasing
    assert node is not None
    journal.unsettle(partition, ask, for_good=False)
    _respec(partition, ask, spec)
    journal.settle(partition, ask, node, placed_ms)
    journal.set_releasing(partition, ask, releasing=releasing)


def add_allocation(state: State, event: AllocationAdded, now: int) -> list[Decision]:
    """Add or update the allocation of a pod that already runs.

    The allocation is never rejected for lack of capacity or headroom (design 1.10).

    Pledges whose capacity the allocation has used are aborted (G10).
    """
    partition = state.partitions.get(event.partition)
    application = partition.applications.get(event.application_id) if partition else None
    if partition is None or application is None or application.rm_id != event.rm_id:
        return [_reject(state, event, _unknown(state, event))]
    node = partition.index.nodes.get(event.node_id)
    if node is None:
        return [_reject(state, event, f"nodeID {event.node_id!r} is not a known node")]
    comparison.clear_key(state, partition, event.key, application, now)
    known = partition.asks.get(event.key)
    refusal = _may_be(partition, event.key, event.spec, known, application)
    refusal = refusal or _runs_elsewhere(partition, event, known, node)
    if refusal:
        return [_reject(state, event, refusal)]
    before = () if known is None or known.node is None else known.ask_class.demand
    event = gang_size.existing(partition, application, event, known)
    if known is None:
        ask = _bring(state, partition, application, event, node, now)
    else:
        ask = known
        event = event._replace(spec=comparison.same_spec(partition, known, event.spec))
        if comparison.is_as_before(partition, known, event):
            comparison.compare_facts(partition, known, event)
            return []
        _run_on(partition, known, node, event.spec, now)
    gang_consistency.note(application, event.spec)
    if known is not None and partition.resumption is not None:
        comparison.compare_facts(partition, ask, event)
    else:
        recovery.note_facts(partition, ask, event)
    open_decisions.check_pledges(partition, node, now)
    size_placeholders(partition, application)
    return [
        *placeholders.runs_already(partition, ask, now),
        *due_quota.forced(state, partition, ask, before, now),
    ]


def _runs_elsewhere(
    partition: Partition, event: AllocationAdded, known: Ask | None, node: Node
) -> str:
    """Return why the allocation cannot be on the node: the pod already runs on another node.

    Return "" if the allocation may be on the node, or if a later comparison with earlier reports handles the difference.
    """
    if known is None or known.node in (None, node) or comparison.is_unreported(partition, known):
        return ""
    return f"allocation {event.key!r} runs on node {known.node.node_id!r}, not on {event.node_id!r}"


def _bring(  # noqa: PLR0913, PLR0917 - what one report is about
    state: State,
    partition: Partition,
    application: Application,
    event: AllocationAdded,
    node: Node,
    now: int,
) -> Ask:
    """Add an allocation that the core did not know before."""
    ask = _make(partition, application, event, now)
    ask.was_brought = True
    placeholders.seen(state, partition, ask)
    journal.settle(partition, ask, node, now)
    return ask


def _run_on(partition: Partition, known: Ask, node: Node, spec: AskSpec, now: int) -> None:
    """Record that a known ask or allocation runs on the node on which its manager reports it, with the reported spec."""
    if known.node is node:
        _update_allocation(partition, known, spec)
        return
    if known.node is None:
        lifecycle.drop_pledge(partition, known, "its ask was placed outside this core")
        pending.dequeue(partition, known)
    else:
        comparison.leave_node(partition, known)
    _respec(partition, known, spec)
    journal.settle(partition, known, node, now)


def _requeue(state: State, partition: Partition, ask: Ask, spec: AskSpec, now: int) -> None:
    """Turn an allocation back into a waiting ask, with a new arrival number, because the allocation has left its node."""
    partition.arrivals += 1
    ask.arrival = partition.arrivals
    ask.cycle = partition.round.cycles  # while an ask is placed it misses no opportunity (P2)
    _respec(partition, ask, spec)
    _add_waiting(state, partition, ask, now)


def add_foreign(state: State, event: ForeignAdded, now: int) -> list[Decision]:
    """Add or resize a pod of another scheduler, and abort pledges whose capacity the pod has used (G10)."""
    partition = state.partitions.get(event.partition)
    if partition is None or partition.owner != event.rm_id:
        return [_reject_foreign(state, event, _unknown(state, event))]
    comparison.clear_key(state, partition, event.key, None, now)
    node = partition.index.nodes.get(event.node_id)
    refusal = "" if node else f"nodeID {event.node_id!r} is not a known node"
    if not event.key:
        refusal = "allocationKey is empty"
    if event.key in partition.asks:
        refusal = f"allocationKey {event.key!r} is in use by an ask or allocation of this scheduler"
    refusal = refusal or overflow.overflow(partition, event.resource)
    if refusal or node is None:
        return [_reject_foreign(state, event, refusal)]
    known = partition.foreign.pods.get(event.key)
    demand = partition.types.demand(event.resource)
    partition.grow()
    arrived = Foreign(event.rm_id, event.key, node, demand, event.static, event.tags)
    if known is not None and comparison.is_same_foreign(partition, known, arrived):
        return []
    if known is not None:
        journal.unsettle_foreign(partition, known)
    journal.settle_foreign(partition, arrived)
    open_decisions.check_pledges(partition, node, now)
    return []


def _reject_foreign(state: State, event: ForeignAdded, reason: str) -> AskRejected:
    _keep_tags(state, event)
    return AskRejected(event.rm_id, event.partition, event.key, "", reason, Generation.ALLOCATION)


# Ending ---------------------------------------------------------------------------------------------------------


def release(state: State, event: ReleaseRequested, now: int) -> list[Decision]:
    """Release the pod that the shim names, or all pods of an application if no key is given.

    If the event confirms a release that the core ordered, no reply is returned. A failed binding turns the allocation into an
    ask again.
    """
    partition = state.partitions.get(event.partition)
    if partition is None or partition.owner != event.rm_id:
        return [_nothing_to_release(event)]
    if not event.key:
        return _release_all(state, partition, event, now)
    foreign = partition.foreign.pods.get(event.key)
    if foreign is not None:
        journal.unsettle_foreign(partition, foreign)
        return []
    ask = partition.asks.get(event.key)
    if ask is None or (
        event.application_id and ask.application.application_id != event.application_id
    ):
        return [_nothing_to_release(event)]
    return _release_one(state, partition, ask, event, now)


def _nothing_to_release(event: ReleaseRequested) -> Noted:
    message = f"release of {event.key or event.application_id!r}: no such ask or allocation; nothing was changed"
    return Noted("ask", event.key, Code.RELEASE_UNKNOWN, message, event.partition, event.rm_id)


def _release_all(
    state: State, partition: Partition, event: ReleaseRequested, now: int
) -> list[Decision]:
    """Release all asks and allocations of an application, as an event with an empty key requests.

    With `asks_only`, release only the application's asks.
    """
    application = partition.applications.get(event.application_id)
    if application is None:
        return [_nothing_to_release(event)]
    decisions: list[Decision] = []
    for ask in [*application.asks.values(), *application.allocations.values()]:
        if ask.node is None or not event.asks_only:
            decisions += _release_one(state, partition, ask, event, now)
    return decisions


def _release_one(
    state: State, partition: Partition, ask: Ask, event: ReleaseRequested, now: int
) -> list[Decision]:
    if ask.node is None:
        lifecycle.end(state, partition, ask, now)
        return []
    if event.asks_only:
        return []
    if event.termination is _FAILED_ON_RM:
        return _wait_again(state, partition, ask, event.message, now)
    ordered = ask.releasing or ask.is_replaced
    confirmation = ordered and event.termination is not _STOPPED_BY_RM
    reply = lifecycle.released(partition, ask, _STOPPED_BY_RM, event.message)
    lifecycle.end(state, partition, ask, now)
    return [] if confirmation else [reply]


def _wait_again(state: State, partition: Partition, ask: Ask, why: str, now: int) -> list[Decision]:
    """Turn an allocation back into an ask, because its binding failed. The ask avoids the node for some time (design 1.8)."""
    node = ask.node
    assert node is not None
    journal.unsettle(partition, ask)
    excluded_nodes.note(state, partition, ask, node.node_id, now)
    _requeue(state, partition, ask, ask.spec, now)
    failed = f"binding on {node.node_id} failed" + (f": {why}" if why else "")
    message = f"{failed}; the node is avoided for {excluded_nodes.AVOID_MS // 1000} s"
    return [Noted("ask", ask.key, Code.NODE_AVOIDED, message, partition.name, ask.rm_id)]


# Instants -------------------------------------------------------------------------------------------------------


def timed_out(state: State, partition: Partition, key: str, now: int) -> list[Decision]:
    """Release an ask that has waited as long as its execution timeout allows. An outdated timer does nothing."""
    ask = partition.asks.get(key)
    if ask is None or ask.node is not None or not 0 < ask.expires_ms <= now:
        return []
    application_id = ask.application.application_id
    lifecycle.end(state, partition, ask, now)
    message = f"not placed within {ask.spec.timeout_ms} ms"
    return [
        AskReleased(
            ask.rm_id,
            partition.name,
            key,
            application_id,
            Termination.TIMEOUT,
            message,
            ask.generation,
        ),
        Noted("ask", key, Code.ASK_TIMEOUT, message, partition.name, ask.rm_id),
    ]
