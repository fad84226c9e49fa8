"""The registration of managers, repeated registrations, and the end of the first synchronization (sync) (design 1.10)."""

from itertools import chain, islice
from typing import Final, NamedTuple

from server.core.events import (
    configuration,
    epochs,
    gang_size,
    lifecycle,
    moving,
    nodes,
    recovery,
    resuming,
)
from server.core.preemption import due_quota
from server.core.state import REGISTER_FIRST, Manager, Session, State
from server.model.decisions import Decision, Noted, Placed
from server.model.events import (
    DisruptionsAllowed,
    LeadershipTaken,
    ManagerForgotten,
    ManagerRegistered,
    ManagerWiped,
    SyncCompleted,
)
from server.model.parts import Parts
from server.model.quota import Configuration
from server.model.reasons import Code
from server.state import journal, quota_timers, snapshotting
from server.state.applications import Application
from server.state.partition import Partition

WIPED: Final = 50
"""The number of applications or nodes that one part of a repeated registration removes."""


def register(state: State, event: ManagerRegistered, now: int) -> Parts[list[Decision]]:
    """Register a shim, in parts.

    If a shim with this id was registered before, the objects that it reported are either kept and compared with the new
    reports, or removed. The objects are kept if the shim will report the end of its sync, and does not request that its objects
    are forgotten. The shim's configuration is ignored if the core's configuration comes from a file, and refused if it comes
    from another manager. A registration with an epoch that is too low is refused and changes nothing (design 7.2).
    """
    known = moving.known_manager(state, event.table_revision, event.rm_id)
    if why := epochs.obstacle(known, event):
        return [Noted("manager", event.rm_id, Code.EPOCH_OLD, why, "", event.rm_id)]
    notes: list[Decision] = moving.take(state, event.table_revision, now, event.rm_id)
    known = state.managers.get(event.rm_id)
    if known is not None:
        notes += yield from _replace(state, event, now)
    if event.configuration is not None and not state.configured:
        notes += yield from _configure(state, event, event.configuration, now)
    manager = state.managers[event.rm_id] = Manager(
        event.rm_id,
        event.version,
        event.policy_group,
        now,
        event.explicit_sync,
        synced=not event.explicit_sync,
        epoch=event.epoch,
        instance=event.instance,
        session=Session(event.resumable_session) if event.resumable_session else None,
    )
    if known is not None and event.resumes:
        manager.disruptions_allowed = known.disruptions_allowed
        manager.groups_unreported = dict.fromkeys(known.disruptions_allowed)
        for partition in state.owned_by(event.rm_id):
            resuming.begin(partition, known)
    version = f" {event.version}" if event.version else ""
    term = epochs.term(event.epoch, event.instance)
    message = f"resource manager {event.rm_id!r}{version} registered{term}"
    notes.append(Noted("manager", event.rm_id, Code.MANAGER_REGISTERED, message, "", event.rm_id))
    return notes


def _replace(state: State, event: ManagerRegistered, now: int) -> Parts[list[Decision]]:
    """Remove, in parts, the objects that a known manager reported before, except the objects that are kept and compared.

    Return the decisions to report.
    """
    notes: list[Decision] = []
    for partition in () if event.resumes else state.owned_by(event.rm_id):
        resuming.drop(state, partition)
    for partition in state.partitions.values():
        if not event.resumes or partition.owner != event.rm_id:
            notes += yield from _wipe(state, partition, event.rm_id, now)
    what = "what it reports is compared with its state" if event.resumes else "its state was wiped"
    code = Code.MANAGER_RESUMED if event.resumes else Code.MANAGER_REPLACED
    message = f"resource manager {event.rm_id!r} registered again: {what}"
    return [*notes, Noted("manager", event.rm_id, code, message, "", event.rm_id)]


def take_leadership(state: State, event: LeadershipTaken) -> list[Decision]:
    """Mark every manager as not synced.

    This process has the state of the former leader, but no connection to a manager.

    The objects that a manager had reported to the former leader are compared with the manager's next reports, and timers wait
    for the end of the manager's sync (C9). The first table of cores takes effect with this event, so that all followers apply
    the table after the same input.
    """
    table = event.assignment
    if state.assignment is None and table is not None and not state.given_away(table):
        state.assignment = table
    for manager in state.managers.values():
        for partition in state.owned_by(manager.rm_id) if manager.synced else ():
            resuming.begin(partition, manager)
        manager.was_synced |= manager.synced
        manager.synced = False
    return []


def wipe_part(state: State, event: ManagerWiped, now: int) -> list[Decision]:
    """Remove up to ``event.most`` asks and allocations of a shim before it registers again. Return decisions for managers other than this shim."""
    manager = state.managers.get(event.rm_id)
    if manager is not None and event.epoch < manager.epoch:
        return []
    left = event.most
    for partition in state.partitions.values():
        for application in _applications(partition, event.rm_id):
            application.reserve = None
            known = chain(application.asks.values(), application.allocations.values())
            for ask in list(islice(known, left)):
                lifecycle.end(state, partition, ask, now)
                left -= 1
    return [one for one in state.take_notes() if one.rm_id != event.rm_id]


def forget(state: State, event: ManagerForgotten) -> list[Decision]:
    """Drop the registration of a shim that has no objects left.

    Keep the registration if the shim registered again after ``event.since``.

    If the core's configuration comes from that shim, the configuration of the next shim that brings one replaces the core's
    configuration.
    """
    manager = state.managers.get(event.rm_id)
    if manager is None or manager.registered_ms > event.since:
        return []
    if any(held(state, event.rm_id).values()):
        return []
    del state.managers[event.rm_id]
    for partition in state.owned_by(event.rm_id):
        resuming.drop(state, partition)
    if state.configured_by == event.rm_id:
        state.configured_by = ""
    return []


def _configure(
    state: State, event: ManagerRegistered, brought: Configuration, now: int
) -> Parts[list[Decision]]:
    """Apply a registration's configuration. Only the first manager that brings a configuration can later replace the configuration (design 1.11)."""
    rm_id = event.rm_id
    state.configured_by = state.configured_by or rm_id
    if state.configured_by == rm_id:
        return (yield from configuration.register(state, event, brought, now))
    message = (
        f"its configuration is not used: {state.revision.without_source()} is in force, which another manager may not "
        "replace at its registration; give the core a file, or change it with `evenhand config apply`"
    )
    return [Noted("manager", rm_id, Code.CONFIGURATION_REFUSED, message, "", rm_id)]


def _wipe(state: State, partition: Partition, rm_id: str, now: int) -> Parts[list[Decision]]:
    """Remove all objects that a manager reported.

    Return the decisions for other managers that have pods on the removed nodes.
    """
    decisions: list[Decision] = []
    for at, application in enumerate(_applications(partition, rm_id)):
        if not at % WIPED:
            yield
        application.reserve = None
        for ask in [*application.asks.values(), *application.allocations.values()]:
            lifecycle.end(state, partition, ask, now)
        decisions += lifecycle.forget(partition, application)
    yield
    for foreign in [one for one in partition.foreign.pods.values() if one.rm_id == rm_id]:
        journal.unsettle_foreign(partition, foreign)
    lost = [one for one in partition.index.nodes.values() if one.rm_id == rm_id]
    for at, node in enumerate(lost):
        if not at % WIPED:
            yield
        decisions += nodes.remove(state, partition, node, now)
    decisions += state.take_notes()
    if partition.owner == rm_id:
        partition.owner = ""
        partition.decisions.marks.clear()
        quota_timers.on_restart(partition)  # Q7
    return [one for one in decisions if one.rm_id != rm_id]


def _applications(partition: Partition, rm_id: str) -> list[Application]:
    """Return the applications of a manager."""
    return [one for one in partition.applications.values() if one.rm_id == rm_id]


def complete_sync(state: State, event: SyncCompleted, now: int) -> list[Decision]:
    """Complete a shim's sync, so that placement may start.

    Reopen the shim's decisions from before a restart, and start quota timers.

    If the shim's earlier objects were kept, the objects that it did not report again end now, and the timers of quota runs go
    on (Q7). If the numbers of objects in the event differ from the core's numbers, the difference is reported, and the sync is
    accepted. A shim that sends only zeros states no numbers, so no numbers are compared.
    """
    manager = state.managers.get(event.rm_id)
    if manager is None:
        message = f"sync of {event.rm_id!r} completed without a registration; nothing was changed"
        return [Noted("manager", event.rm_id, Code.SYNC_MISMATCH, message, "", event.rm_id)]
    manager.synced = True
    resumed = _end_comparisons(state, manager, now)
    counts = held(state, event.rm_id)
    counts["asks"] += resumed.unseen
    counts["allocations"] -= resumed.unseen
    manager.recovered_asks = counts["asks"]
    manager.recovered = sum(
        len(application.allocations)
        for partition in state.partitions.values()
        for application in partition.applications.values()
        if application.rm_id == event.rm_id
    )
    quotas: list[Decision] = []
    for partition in state.partitions.values():
        partition.relief += 1
        if partition.owner == event.rm_id:
            # Done now, so that the first claim need not wait for it.
            snapshotting.catch_up(partition)
            if partition.name not in resumed.keeps_quota:
                quotas += due_quota.synced(partition, now)
            gang_size.resumed(partition)
            recovered, expiring = recovery.rebuild(partition, now, all_known=True)
            quotas += recovered
            state.expect(partition, expiring)
    sent = dict(
        zip(counts, (event.nodes, event.applications, event.allocations, event.asks), strict=True)
    )
    notes: list[Decision] = []
    wrong = [
        f"{sent[name]} {name} sent, {counts[name]} held"
        for name in counts
        if sent[name] != counts[name]
    ]
    if wrong and any(sent.values()):
        notes.append(
            Noted("manager", event.rm_id, Code.SYNC_MISMATCH, "; ".join(wrong), "", event.rm_id)
        )
    message = ", ".join(f"{count} {name}" for name, count in counts.items())
    notes.append(Noted("manager", event.rm_id, Code.SYNC_COMPLETE, message, "", event.rm_id))
    return [*resumed.decisions, *notes, *quotas]


class _Resumed(NamedTuple):
    """The result of the comparisons that ended: the decisions to report, and facts about the objects of one manager.

    ``unseen`` is the number of placements that are sent again, because the manager reported these allocations as waiting asks.
    ``keeps_quota`` contains the names of the partitions whose timers of quota runs went on during the sync.
    """

    decisions: list[Decision]
    unseen: int
    keeps_quota: set[str]


def _end_comparisons(state: State, manager: Manager, now: int) -> _Resumed:
    """For each partition in which the manager's new reports are being compared with its earlier reports, end the comparison."""
    decisions: list[Decision] = []
    unseen, keeps_quota = 0, set[str]()
    for group in manager.groups_unreported:
        del manager.disruptions_allowed[group]
    manager.groups_unreported.clear()
    for partition in state.owned_by(manager.rm_id):
        resumption = partition.resumption
        if resumption is not None:
            if resumption.keeps_quota:
                keeps_quota.add(partition.name)
            found = resuming.end(state, partition, now)
            unseen += sum(isinstance(one, Placed) and one.key in resumption.unseen for one in found)
            decisions += found
    return _Resumed(decisions, unseen, keeps_quota)


def held(state: State, rm_id: str) -> dict[str, int]:
    """Return how many objects of a manager the core has: nodes, applications, allocations (with foreign pods) and asks."""
    counts = {"nodes": 0, "applications": 0, "allocations": 0, "asks": 0}
    for partition in state.partitions.values():
        counts["nodes"] += sum(one.rm_id == rm_id for one in partition.index.nodes.values())
        counts["allocations"] += sum(one.rm_id == rm_id for one in partition.foreign.pods.values())
        for application in partition.applications.values():
            if application.rm_id == rm_id:
                counts["applications"] += 1
                counts["allocations"] += len(application.allocations)
                counts["asks"] += len(application.asks)
    return counts


def allow_disruptions(state: State, event: DisruptionsAllowed) -> list[Decision]:
    """Set how many pods of a disruption group may be evicted now, as the group's manager reports (V5).

    If the event has no number, forget the group.
    """
    manager = state.managers.get(event.rm_id)
    if manager is None:
        message = REGISTER_FIRST.format(rm_id=event.rm_id)
        return [Noted("manager", event.rm_id, Code.CONFIGURATION_REFUSED, message, "", event.rm_id)]
    manager.groups_unreported.pop(event.group, None)
    if event.allowed is None:
        manager.disruptions_allowed.pop(event.group, None)
    else:
        manager.disruptions_allowed[event.group] = max(0, event.allowed)
    for partition in state.owned_by(event.rm_id):
        partition.relief += 1
    return []
