"""The life cycle of placeholders: replacement by real asks, or release if they are not used (docs/gang-placeholders.md).

The states of the application and their messages are part of the published interface. If not all placeholders are placed in
time, the application becomes Resuming (gang style Soft) or Failing (gang style Hard). If the application already runs when the
time-out comes, only its unused placeholders are released.
"""

from dataclasses import replace as _with
from typing import Final

from server.core.events import lifecycle
from server.core.state import State
from server.model.asks import AskSpec
from server.model.decisions import (
    ApplicationState,
    AskRejected,
    AskReleased,
    Decision,
    Noted,
    Released,
    Termination,
)
from server.model.events import AskAdded
from server.model.phrases import agreeing, count
from server.model.policies import REPLACEMENT
from server.model.reasons import Code
from server.model.records import DecisionState
from server.scheduling import placeholders
from server.scheduling.placeholders import Swap
from server.state import journal, pending
from server.state.applications import Application, Ask
from server.state.commitments import Commitment
from server.state.partition import Partition
from server.state.placeholders import PLACEHOLDERS, GangStyle, Reserve, is_reserving

TIMER: Final = "placeholders"
LETTER: Final = "p"
"""The first letter of the ids of replacements. A shim writes the id on a placeholder before the placeholder ends."""
LOOK_AGAIN_MS: Final = 1_000
"""The time after which a time-out is checked again while the manager is still reporting running pods (C8)."""
RESERVATION_TIMEOUT: Final = "ResourceReservationTimeout"

# Declaration ------------------------------------------------------------------------------------------------------


def declare(
    state: State, partition: Partition, application: Application, reserve: Reserve, now: int
) -> None:
    """Record the placeholders that an application declares.

    The time-out of the placeholders counts from ``now``, even if no placeholder arrives.
    """
    application.reserve = reserve
    if reserve.wanted:
        _expect(state, partition, application, now)


def seen(state: State, partition: Partition, ask: Ask) -> None:
    """Count a new placeholder. Other asks are ignored.

    The time-out of the placeholders counts from the creation of the application's oldest placeholder, even if the application
    declared no placeholders.
    """
    if not ask.spec.placeholder:
        return
    application = ask.application
    if application.reserve is None:
        application.reserve = Reserve((), GangStyle.SOFT, 0)
    reserve = application.reserve
    reserve.count += 1
    reserve.came.update(dict(ask.spec.resource))
    if not reserve.since_ms or ask.created_ms < reserve.since_ms:
        reserve.since_ms = ask.created_ms
        _expect(state, partition, application, reserve.since_ms)


def keyed(application: Application, event: AskAdded, known: Ask | None) -> AskAdded:
    """Return a placeholder's ask as a member of the gang that its application's placeholders form.

    Return the event unchanged if its ask is no placeholder, or if the client names a gang.

    Once all declared placeholders have arrived, the gang is placed, and its placeholders get their nodes all together or not at
    all.
    """
    spec = event.spec
    if not spec.placeholder or spec.gang_key:
        return event
    held = is_reserving(application) if known is None else known.spec.gang_key == PLACEHOLDERS
    return event._replace(spec=_with(spec, gang_key=PLACEHOLDERS)) if held else event


def resized(ask: Ask, spec: AskSpec) -> None:
    """Update the total size of an application's existing placeholders, because a placeholder changed its size."""
    reserve = ask.application.reserve
    if reserve is not None and ask.spec.placeholder and spec.placeholder:
        reserve.came.subtract(dict(ask.spec.resource))
        reserve.came.update(dict(spec.resource))


def runs_already(partition: Partition, ask: Ask, now: int) -> list[Decision]:
    """Update an application because a pod of it already runs.

    If this pod is not a placeholder, the application's asks no longer have to wait until all its placeholders have arrived.
    """
    reserve = ask.application.reserve
    if reserve is not None and not ask.spec.placeholder:
        reserve.wanted.clear()
    return lifecycle.allocated(partition, ask.application, now)


def _expect(state: State, partition: Partition, application: Application, since: int) -> None:
    assert application.reserve is not None
    due = since + application.reserve.timeout_ms
    state.at(due, TIMER, partition.name, application.application_id)


# Replacement ------------------------------------------------------------------------------------------------------


def replace(state: State, partition: Partition, now: int) -> list[Decision]:
    """Replace placeholders by the waiting asks of their task groups, before ordinary placement.

    Return the releases and notes to send.
    """
    decisions: list[Decision] = []
    for swap in placeholders.swaps(partition) if partition.gangs.holding else ():
        if swap.node is None:
            decisions += _too_small(partition, swap)
        else:
            decisions.append(_order(state, partition, swap, now))
    return decisions


def _too_small(partition: Partition, swap: Swap) -> list[Decision]:
    """Release a placeholder that is smaller than the real pod. The ask of the real pod becomes an ordinary ask."""
    ask, placeholder = swap.ask, swap.placeholder
    pending.let_go(partition, ask)
    message = (
        f"the real pod of task group {placeholder.spec.task_group} is larger than its placeholder"
    )
    note = Noted("ask", ask.key, Code.PLACEHOLDER_TOO_SMALL, message, partition.name, ask.rm_id)
    return [note, _release_unreplaced(partition, placeholder, message)]


def _release_unreplaced(partition: Partition, placeholder: Ask, message: str) -> Decision:
    """Order the release of a placeholder that no ask replaces."""
    journal.set_releasing(partition, placeholder, releasing=True)
    return lifecycle.released(partition, placeholder, Termination.TIMEOUT, message)


def _order(state: State, partition: Partition, swap: Swap, now: int) -> Decision:
    ask, placeholder, node = swap
    assert node is not None
    decision_id = partition.decision_id(LETTER, now)
    commitment = Commitment(
        decision_id, REPLACEMENT.name, now, now + partition.spec.preemption.expiry_ms
    )
    journal.replace(partition, commitment, ask, placeholder, node)
    state.expect(partition, [(commitment.expires_ms, decision_id)])
    return _released(partition, placeholder, commitment, ask.key, node.node_id)


def keeps_place(partition: Partition, ask: Ask, spec: AskSpec) -> bool:
    """Return whether a changed ask still replaces its placeholder.

    The ask still replaces the placeholder if the size and the priority of the ask are unchanged, and the ask may still run on
    the node of its pledge. No other node is checked. If the result is True, the ask has the new ``spec`` after the call.
    """
    held, before = ask.pledge, ask.spec
    same_size = (spec.resource, spec.constraints.host_ports, spec.priority) == (
        before.resource,
        before.constraints.host_ports,
        before.priority,
    )
    if held is None or not held.replaces or not same_size:
        return False
    ask.spec = spec
    journal.reclassify(partition, ask)
    if ask.ask_class.mask.allows(held.node):
        return True
    ask.spec = before
    journal.reclassify(partition, ask)
    return False


def _released(
    partition: Partition, placeholder: Ask, commitment: Commitment, key: str, node_id: str
) -> Released:
    message = f"a real pod of task group {placeholder.spec.task_group} takes its place"
    return Released(
        placeholder.rm_id,
        partition.name,
        placeholder.key,
        placeholder.application.application_id,
        Termination.PLACEHOLDER_REPLACED,
        message,
        commitment.commitment_id,
        key,
        (node_id,),
        placeholder.generation,
    )


def expired(partition: Partition, commitment: Commitment) -> list[Decision]:
    """Order the release of a placeholder again, because the placeholder has not ended yet. The real ask continues to wait."""
    decisions: list[Decision] = [
        _released(partition, placeholder, commitment, held.ask.key, held.node.node_id)
        for placeholder in commitment.victims.values()
        for held in commitment.pledges.values()
    ]
    journal.close(partition, commitment, DecisionState.EXPIRED, "its placeholder is still there")
    return decisions


def order_again(partition: Partition, placeholder: Ask) -> Decision:
    """Return a repeated order to release a placeholder that is being replaced or was not used in time.

    The order is repeated because the manager may have lost the first order.
    """
    commitment = placeholder.released_by
    if commitment is None:
        message = "its application did not use it in time"
        return lifecycle.released(partition, placeholder, Termination.TIMEOUT, message)
    held = next(iter(commitment.pledges.values()))
    return _released(partition, placeholder, commitment, held.ask.key, held.node.node_id)


def reopen(  # noqa: PLR0913, PLR0917 - what a mark tells
    partition: Partition, decision_id: str, ask: Ask, placeholder: Ask, node_id: str, now: int
) -> list[tuple[int, str]]:
    """Continue, if possible, a replacement that was under way before a restart (C8).

    Return the instant of the replacement's expiry and the id of the replacement, or [] if the replacement ends.

    If the replacement cannot continue, the placeholder still ends, and the real ask continues to wait.
    """
    node = partition.index.nodes.get(node_id)
    if node is None or ask.pledge is not None or not placeholders.fits_into(ask, placeholder):
        return []
    journal.set_releasing(partition, placeholder, releasing=False)
    expires = now + partition.spec.preemption.expiry_ms
    commitment = Commitment(decision_id, REPLACEMENT.name, now, expires)
    journal.replace(partition, commitment, ask, placeholder, node)
    return [(expires, decision_id)]


# Time-out ---------------------------------------------------------------------------------------------------------


def timed_out(state: State, partition: Partition, application_id: str, now: int) -> list[Decision]:
    """Handle the time-out of an application's placeholders. An outdated timer does nothing.

    If the application is still Accepted, it becomes Resuming (Soft) or Failing (Hard). Whatever its state is, its unused
    placeholders are released. If the sync is not complete yet, do nothing now, and check the time-out again after
    LOOK_AGAIN_MS.
    """
    application = partition.applications.get(application_id)
    reserve = application.reserve if application is not None else None
    if application is None or reserve is None:
        return []
    if (reserve.since_ms or application.submitted_ms) + reserve.timeout_ms > now:
        return []
    if not state.synced(partition) or not _is_told(state, partition):
        state.at(now + LOOK_AGAIN_MS, TIMER, partition.name, application_id)
        return []
    if application.state is not ApplicationState.ACCEPTED:
        return _release_unused(state, partition, application, now)
    if not reserve.count and not is_reserving(application):
        return []
    if reserve.style is GangStyle.HARD:
        return _fail(state, partition, application, now)
    return _resume(state, partition, application, now)


def _is_told(state: State, partition: Partition) -> bool:
    """Return whether the core knows all running pods.

    A manager without an explicit sync reports all pods of a node before it enables or drains the node (C8). The result is then
    True from the first enabled or drained node on.
    """
    manager = state.managers.get(partition.owner)
    if manager is not None and manager.explicit_sync:
        return True
    return any(node.opened for node in partition.index.nodes.values())


def _release_unused(
    state: State, partition: Partition, application: Application, now: int
) -> list[Decision]:
    """Release unused placeholders, except placeholders that are already ending because they are preempted or replaced."""
    message = "its application did not use it in time"
    decisions: list[Decision] = [
        _release_unreplaced(partition, one, message)
        for one in application.allocations.values()
        if one.spec.placeholder and not one.releasing and one.released_by is None
    ]
    for ask in [one for one in application.asks.values() if one.spec.placeholder]:
        lifecycle.end(state, partition, ask, now)
        decisions.append(
            AskReleased(
                ask.rm_id,
                partition.name,
                ask.key,
                application.application_id,
                Termination.TIMEOUT,
                message,
                ask.generation,
            )
        )
    if decisions:
        note = f"{count(len(decisions), 'placeholder')} of {application.application_id} {agreeing('go', len(decisions))}: {message}"
        subject = application.application_id
        where = (partition.name, application.rm_id)
        decisions.append(Noted("application", subject, Code.PLACEHOLDERS_TIMED_OUT, note, *where))
    lifecycle.for_held(partition, application)
    return decisions


def _resume(
    state: State, partition: Partition, application: Application, now: int
) -> list[Decision]:
    """Resume the application without the gang (Soft). The real asks of the application become ordinary asks."""
    resuming = lifecycle.become(
        partition, application, ApplicationState.RESUMING, now, RESERVATION_TIMEOUT
    )
    return [*resuming, *_release_unused(state, partition, application, now)]


def _fail(state: State, partition: Partition, application: Application, now: int) -> list[Decision]:
    """Fail the application (Hard): reject its asks and release its placeholders."""
    decisions = lifecycle.become(
        partition, application, ApplicationState.FAILING, now, RESERVATION_TIMEOUT
    )
    for ask in [one for one in application.asks.values() if not one.spec.placeholder]:
        lifecycle.end(state, partition, ask, now)
        decisions.append(
            AskRejected(
                ask.rm_id,
                partition.name,
                ask.key,
                application.application_id,
                f"{RESERVATION_TIMEOUT}: its application failed, not all its placeholders got places in time",
                ask.generation,
            )
        )
    decisions += _release_unused(state, partition, application, now)
    lifecycle.emptied(state, partition, application, now)
    return decisions
