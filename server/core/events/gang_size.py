"""The size of gangs that declare no size. Such a gang is complete when no new member has arrived for `job.gathering` (J1).

At the instant when a gang is complete, its size is set to the number of its members, and the gang needs all of these members. A
member that joins later is placed with the gang, but the gang does not need this member. If a member is lost before all members
are placed, the gang waits for members again (it *gathers*). A running member that the manager reports counts in the size of its
gang at once, without the wait for `job.gathering`. Running members were placed together, and the manager that reports them
knows all members of the gang. A gang of one member is treated as an ordinary ask and is not recorded as a gang. A member that
arrives later starts a new gang, which waits for further members.
"""

from dataclasses import replace
from typing import NamedTuple, TypeVar

from server.model.asks import UNSIZED, AskSpec, values
from server.model.events import AllocationAdded, AskAdded
from server.state import gang_sizes, pending
from server.state.applications import Application, Ask, Gang
from server.state.partition import Partition

E = TypeVar("E", AskAdded, AllocationAdded)

# Arrivals -----------------------------------------------------------------------------------------------------------


class _Size(NamedTuple):
    """The size of a gang, whether the core found this size by counting, and the spec of one member."""

    needed: int
    counted: bool
    example: AskSpec | None


def sized(partition: Partition, application: Application, event: E, known: Ask | None) -> E:
    """Return the event, with the size of the gang in its spec if the client stated no size for a gang member."""
    spec = event.spec
    if not spec.gang_key or spec.min_members:
        return event
    size = _size(partition, application, spec.gang_key, known)
    made, like = replace(spec, min_members=size.needed, counted=size.counted), size.example
    same = like is not None and values(like) == values(made)
    return event._replace(spec=like if like is not None and same else made)


def _size(partition: Partition, application: Application, key: str, known: Ask | None) -> _Size:
    if known is not None and known.spec.gang_key == key:
        return _of_member(known)
    gang = application.gangs.get(key)
    if gang is not None:
        return _Size(gang.min_members, gang.counted, gang.example)
    held = (
        one.ask
        for one in partition.decisions.pledges.values()
        if one.ask.application is application
    )
    gangs = (ask for ask in held if ask.spec.gang_key == key and ask.spec.min_members > 1)
    member = next(gangs, None)
    return _Size(UNSIZED, counted=True, example=None) if member is None else _of_member(member)


def _of_member(ask: Ask) -> _Size:
    return _Size(ask.spec.min_members, ask.spec.counted, ask.spec)


def joins(
    partition: Partition, application: Application, spec: AskSpec, known: Ask | None = None
) -> int | None:
    """Record that a member joins its gang.

    If the gang has a stated size, record nothing.

    If the gang still waits for members, a new member restarts this wait, and a member that states a size ends it. A ``known``
    member of the gang does not count as new. For a known member, return the instant since which its gang waits for members.
    Return None for a new member, and for a known member whose gang does not wait.
    """
    gang = application.gangs.get(spec.gang_key)
    if gang is None or not gang.counted:
        return None
    further = known is None or known.spec.gang_key != spec.gang_key
    if further:
        partition.gangs.came[gang] = True
    if not spec.counted:
        gang_sizes.resize(partition, gang, spec.min_members, counted=False)
    return None if further else partition.gangs.gathering.get(gang)


def goes_on(partition: Partition, ask: Ask, since_ms: int | None) -> None:
    """Restore the instant since which a gang waits for members, if the gang was created again only because a member changed."""
    gang = ask.group
    if since_ms is not None and isinstance(gang, Gang) and gang in partition.gangs.came:
        partition.gangs.gathering.setdefault(gang, since_ms)


def existing(
    partition: Partition, application: Application, event: AllocationAdded, known: Ask | None
) -> AllocationAdded:
    """Return the event of a running member with its gang's size.

    If the member is new and its gang has no stated size, the size is unknown again until the members are counted (`count`).
    """
    event = sized(partition, application, event, known)
    joins(partition, application, event.spec, known)
    gang = application.gangs.get(event.spec.gang_key)
    if known is None and gang is not None and gang.counted:
        gang.min_members = UNSIZED
        if gang.members:
            pending.gang_changed(partition, gang)
    return event


# Time passes --------------------------------------------------------------------------------------------------------


def note(partition: Partition, now: int) -> None:
    """Record which gangs wait for members, and the instant since which each of these gangs has received no new member.

    This function must be called after each event and each tick.
    """
    changed, partition.gangs.came = partition.gangs.came, {}
    for gang, further in changed.items():
        since_ms = partition.gangs.gathering.get(gang, now)
        if further or not gang_sizes.gathers(partition, gang):
            partition.gangs.gathering.pop(gang, None)
        if gang_sizes.gathers(partition, gang):
            partition.gangs.gathering[gang] = now if further else since_ms


def count(partition: Partition, now: int) -> None:
    """Set the size of each gang that has waited long enough for members to its present number of members."""
    for gang in [one for one in partition.gangs.gathering if whole_ms(partition, one) <= now]:
        whole(partition, gang)


def whole(partition: Partition, gang: Gang) -> None:
    """Set the size of the gang to its present number of members. The gang then needs all of these members."""
    gang_sizes.resize(partition, gang, gang_sizes.present(partition, gang), counted=True)


def whole_ms(partition: Partition, gang: Gang) -> int:
    """Return the instant at which a gang that waits for members is complete if no new member arrives.

    A gang with running members is complete at once.
    """
    since_ms = partition.gangs.gathering[gang]
    at_once = gang.placed and gang.min_members == UNSIZED
    return since_ms if at_once else since_ms + partition.spec.preemption.job_gathering_ms


def next_due(partition: Partition) -> int | None:
    """Return the instant at which the next gang is complete. Return None if no gang waits for members."""
    return min((whole_ms(partition, one) for one in partition.gangs.gathering), default=None)


def resumed(partition: Partition) -> None:
    """Complete every gang that has an open decision, once all pods are known after a restart (J10).

    Each of these gangs was complete before the restart.
    """
    for marks in partition.decisions.marks.values():
        for mark in marks.values():
            ask = partition.asks.get(mark.released_for)
            gang = None if ask is None else ask.group
            if isinstance(gang, Gang) and gang in partition.gangs.gathering:
                whole(partition, gang)
