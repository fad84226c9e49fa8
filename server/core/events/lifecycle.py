"""The life cycle of applications, asks and queues: the states of applications, and how applications, asks and queues end."""

from collections.abc import Iterable
from typing import Final

from server.core.state import State
from server.model.decisions import (
    ApplicationState,
    ApplicationUpdated,
    Decision,
    Noted,
    Placed,
    Released,
    Termination,
)
from server.model.reasons import Code
from server.model.records import DecisionState
from server.scheduling.placement import has_pledged_capacity
from server.state import journal, pending, ranking, tree
from server.state.applications import Application, Ask
from server.state.commitments import Commitment
from server.state.gang_sizes import size_placeholders
from server.state.partition import Partition
from server.state.placeholders import is_complete, is_reserving
from server.state.queues import Queue

RUNNING: Final = ApplicationState.RUNNING
_FAILING: Final = ApplicationState.FAILING
"""Members of an enumeration, looked up once because each access to a member is slow."""

_COMPLETES: Final = (RUNNING, ApplicationState.ACCEPTED)
"""The states in which an application completes when its last ask and its last allocation have ended."""

COMPLETING_MS = 30_000
"""The time for which an application without asks and allocations stays Completing."""

# States ---------------------------------------------------------------------------------------------------------


def asks_added(partition: Partition, application: Application, now: int) -> list[Decision]:
    """Make a completing application active again because it has new asks."""
    if application.state is ApplicationState.COMPLETING:
        return become(partition, application, ApplicationState.RUNNING, now)
    return []


def allocated(partition: Partition, application: Application, now: int) -> list[Decision]:
    """Make an application Running at its first allocation.

    If the application declared placeholders, make it Running only when all of them are allocated.
    """
    if is_reserving(application) and not is_complete(partition, application):
        return []
    if application.state in _BEGINNING:
        for_held(partition, application)
        return become(partition, application, ApplicationState.RUNNING, now)
    return []


_BEGINNING = (
    ApplicationState.ACCEPTED,
    ApplicationState.COMPLETING,
    ApplicationState.RESUMING,
)


def become(
    partition: Partition,
    application: Application,
    new: ApplicationState,
    now: int,
    message: str = "",
) -> list[Decision]:
    """Change the state of an application and return the update for its client."""
    application.state = new
    application.completing_since = 0
    size_placeholders(partition, application)
    return [
        ApplicationUpdated(
            application.rm_id, application.application_id, new, now, message, partition.name
        )
    ]


def for_held(partition: Partition, application: Application) -> None:
    """Make the next tick examine again the asks that wait for placeholders of the application."""
    if application.holds:
        partition.gangs.holding[application] = None


def emptied(state: State, partition: Partition, application: Application, now: int) -> None:
    """Begin to complete an application whose last ask and last allocation have ended.

    The application becomes Completing, even if none of its asks ever got a node. If no ask arrives within COMPLETING_MS, the
    application becomes Completed. A Failing application becomes Failed at the next tick. The update for the application's
    client is added to the notes of the state.
    """
    if application.asks or application.allocations:
        return
    if application.state is _FAILING:
        state.at(now, "failed", partition.name, application.application_id)
    if application.state not in _COMPLETES:
        return
    state.notes += become(partition, application, ApplicationState.COMPLETING, now)
    application.completing_since = now
    state.at(now + COMPLETING_MS, "completing", partition.name, application.application_id)


def completed(partition: Partition, application_id: str, now: int) -> list[Decision]:
    """Complete and remove an application that has been Completing for COMPLETING_MS.

    If the application has not been Completing for that long, do nothing.
    """
    application = partition.applications.get(application_id)
    if application is None or application.state is not ApplicationState.COMPLETING:
        return []
    if now < application.completing_since + COMPLETING_MS:
        return []
    decisions = become(partition, application, ApplicationState.COMPLETED, now)
    return decisions + forget(partition, application)


def failed(partition: Partition, application_id: str, now: int) -> list[Decision]:
    """Fail and remove a Failing application that has no asks and allocations left.

    If the application is not Failing, or has asks or allocations left, do nothing.
    """
    application = partition.applications.get(application_id)
    if application is None or application.state is not ApplicationState.FAILING:
        return []
    if application.asks or application.allocations:
        return []  # the timer is of an earlier application of that name, before the manager registered again
    decisions = become(partition, application, ApplicationState.FAILED, now)
    return decisions + forget(partition, application)


def forget(partition: Partition, application: Application) -> list[Decision]:
    """Remove an application without asks and allocations from the state.

    Return notes about the queues that are removed together with the application.
    """
    leaf = application.leaf
    ranking.leave(leaf, application)
    application.heap.clear()  # Outdated entries refer to groups, and groups to the application: a cycle.
    partition.gangs.holding.pop(application, None)
    del partition.applications[application.application_id]
    del leaf.applications[application.application_id]
    for limiter in application.limiters:
        limiter.applications -= 1
        if not limiter.applications and limiter.kind != "queue":
            limiter.blocked.clear()  # the same cycle
            partition.limits.by_key.pop((limiter.queue.path, limiter.kind, limiter.name), None)
    return swept(partition, leaf)


def swept(partition: Partition, leaf: Queue) -> list[Decision]:
    """Remove the empty dynamic queues on the path of a leaf, and return a note about each."""
    return [removed_note(partition, path) for path in tree.sweep_path(partition, leaf)]


def removed_note(partition: Partition, path: str) -> Noted:
    """Return the note about a queue that was removed."""
    message = f"queue {path} is empty and not configured: removed"
    return Noted("queue", path, Code.QUEUE_REMOVED, message, partition.name)


# Asks -----------------------------------------------------------------------------------------------------------------


def released(partition: Partition, ask: Ask, termination: Termination, message: str) -> Released:
    """Return the decision that orders the shim to release an allocation. The state is not changed."""
    return Released(
        ask.rm_id,
        partition.name,
        ask.key,
        ask.application.application_id,
        termination,
        message,
        generation=ask.generation,
    )


def placed(partition: Partition, asks: Iterable[Ask]) -> list[Placed]:
    """Return the placements to send to the shims, in the order of the asks.

    For many placements, building tuples is faster than calling `Placed`.
    """
    name, new, made = partition.name, tuple.__new__, []
    for ask in asks:
        node, application = ask.node, ask.application
        assert node is not None
        line = (
            ask.rm_id,
            name,
            ask.key,
            application.application_id,
            node.node_id,
            ask.spec,
            ask.tags,
            ask.generation,
            application.leaf.path,
        )
        made.append(new(Placed, line))
    return made


def end(state: State, partition: Partition, ask: Ask, now: int) -> None:
    """Remove an ask or allocation for good.

    End the decision of the ask, free its capacity, and begin to complete the application if it is empty.

    Decisions that follow from the removal, such as the placement of the ask that replaces a placeholder, are added to the notes
    of the state.
    """
    drop_pledge(partition, ask, "its ask is gone")
    decision = ask.released_by
    if ask.node is None:
        pending.dequeue(partition, ask, for_good=True)
        partition.ended.keep(ask.key, ask.tags)
    else:
        journal.unsettle(partition, ask)
    partition.leave_class(ask.ask_class)
    partition.avoided.pop(ask.key, None)
    del partition.asks[ask.key]
    if ask.spec.placeholder:
        _one_less(state, partition, ask, now)
    if decision is not None and decision.replaces:
        _vacated(state, partition, decision, now)
    emptied(state, partition, ask.application, now)


def _one_less(state: State, partition: Partition, placeholder: Ask, now: int) -> None:
    """Lower by one the number of placeholders that the application still expects, because ``placeholder`` has ended.

    The reason why the placeholder ended does not matter (YUNIKORN-1395).
    """
    application = placeholder.application
    if application.reserve is not None:
        application.reserve.lower(placeholder.spec.resource)
        size_placeholders(partition, application)
    if is_reserving(application) and is_complete(partition, application):
        state.notes += allocated(partition, application, now)
    for_held(partition, application)


def _vacated(state: State, partition: Partition, commitment: Commitment, now: int) -> None:
    """Place the ask of a replacement whose placeholder has ended.

    During a sync in which new reports are compared with earlier reports, the ask is placed at the end of the sync.
    """
    if partition.resumption is None:
        take_over(state, partition, commitment, now)
    else:
        partition.resumption.vacated[commitment.commitment_id] = commitment


def take_over(state: State, partition: Partition, commitment: Commitment, now: int) -> None:
    """Place the real ask of a replacement, because its placeholder is gone. Abort the decision if the node no longer has capacity for the ask."""
    for held in list(commitment.pledges.values()):
        ask, node = held.ask, held.node
        if not has_pledged_capacity(ask.ask_class, held):
            why = f"node {node.node_id} has no free capacity for it any more"
            journal.close(partition, commitment, DecisionState.ABORTED, why)
            return
        journal.fulfil(partition, held)
        journal.place(partition, ask, node, now)
        state.notes += placed(partition, (ask,))
        state.notes += allocated(partition, ask.application, now)


def drop_pledge(partition: Partition, ask: Ask, reason: str) -> None:
    """Abort the decision or reservation that keeps capacity for the ask, if there is one."""
    if ask.pledge is not None:
        journal.close(partition, ask.pledge.commitment, DecisionState.ABORTED, reason)
