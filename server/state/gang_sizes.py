"""The sizes of gangs for which no client stated a size (J1).

A gang gathers members for a while. The size of the gang is then the number of its members.

While a gang gathers, the specs of its members have the size `UNSIZED`, which no gang reaches. Thus the gang counts as incomplete.
When the time for gathering has passed, the number of members is written as the size to the spec of each member. From then on the
gang is like any other gang. A member that was tried as a gang of one member remains a gang of one member, even if further members
come.
"""

from collections.abc import Iterator
from dataclasses import replace

from server.model.asks import UNSIZED, AskSpec
from server.state import pending
from server.state.applications import Application, Ask, Gang
from server.state.partition import Partition
from server.state.placeholders import PLACEHOLDERS, is_reserving


def gathers(partition: Partition, gang: Gang) -> bool:
    """Return whether a gang's size still has to be counted.

    The size has to be counted in two cases: it was never counted, or some of the counted members have ended and other members now
    wait. Return False if a client stated the size, if the gang is gone, or if the gang is that of the application's placeholders
    (`PLACEHOLDERS`).
    """
    if (
        not gang.counted
        or gang.application.gangs.get(gang.key) is not gang
        or gang.key == PLACEHOLDERS
    ):
        return False
    missing = bool(gang.members) and not gang.gathered
    return gang.min_members == UNSIZED or (missing and present(partition, gang) < gang.min_members)


def present(partition: Partition, gang: Gang) -> int:
    """Return the number of a gang's members that wait, have a pledge or are placed."""
    return len(gang.members) + gang.placed + sum(1 for _ in _pledged(partition, gang))


def _pledged(partition: Partition, gang: Gang) -> Iterator[Ask]:
    for held in partition.decisions.pledges.values():
        ask = held.ask
        if ask.application is gang.application and _is_one_of(gang, ask):
            yield ask


def _is_one_of(gang: Gang, ask: Ask) -> bool:
    """Return whether an ask is a member of the gang.

    An ask that is a gang of one member is not a member of another gang, even if both gangs have the same key.
    """
    return ask.spec.gang_key == gang.key and ask.spec.min_members > 1


def agree(partition: Partition, gang: Gang, ask: Ask) -> None:
    """Write the size of the gang to the spec of ``ask``, which is being placed.

    The spec may have an outdated size, because `resize` does not update every spec. If no member of the gang is placed,
    `resize` leaves out members that are being released, and members that wait as ordinary asks. If clients stated both the
    gang's size and the ask's size, the ask keeps its own size. If no member waits in the gang or is placed, but a member has a
    pledge, the gang first gets the size in the spec of the member with the pledge.
    """
    alone = not gang.members and not gang.placed
    waiting = next(_pledged(partition, gang), None) if alone else None
    if waiting is not None:
        gang.min_members, gang.counted = waiting.spec.min_members, waiting.spec.counted
    spec = ask.spec
    if spec.min_members != gang.min_members and (spec.counted or gang.counted):
        ask.spec = replace(spec, min_members=gang.min_members, counted=gang.counted)


def resize(partition: Partition, gang: Gang, size: int, *, counted: bool) -> None:
    """Set the number of members that a gang needs, in the gang and in the specs of its members."""
    sizes: dict[AskSpec, AskSpec] = {}
    for ask in [*gang.members, *_pledged(partition, gang), *_beside(gang)]:
        spec = sizes.get(ask.spec)
        if spec is None:
            spec = sizes[ask.spec] = replace(ask.spec, min_members=size, counted=counted)
        ask.spec = spec
        if ask.node is not None:
            partition.columns.changed[ask] = None
    gang.min_members, gang.counted = size, counted
    gang.example = sizes.get(gang.example, gang.example) if gang.example else None
    partition.gangs.gathering.pop(gang, None)
    _regroup_members(partition, gang)


def size_placeholders(partition: Partition, application: Application) -> None:
    """Combine placeholders that name no gang into one gang, once there are as many placeholders as the application declared.

    Placeholders that are already placed count towards the declared number. Once the application no longer waits for all its
    placeholders, each placeholder becomes an ordinary ask.
    """
    gang, reserve = application.gangs.get(PLACEHOLDERS), application.reserve
    if gang is None or reserve is None:
        return
    if not is_reserving(application):
        size = 1
    elif reserve.has_come:
        size = present(partition, gang)
    else:
        return
    if gang.min_members != size:
        resize(partition, gang, size, counted=True)


def _beside(gang: Gang) -> list[Ask]:
    """Return the placed members of a gang, and the members that wait as ordinary asks because enough members are placed."""
    if not gang.placed:
        return []
    application = gang.application
    known = (*application.asks.values(), *application.allocations.values())
    return [
        one
        for one in known
        if _is_one_of(gang, one) and one.pledge is None and one.group is not gang
    ]


def _regroup_members(partition: Partition, gang: Gang) -> None:
    """Enqueue a gang's waiting members again after the gang's size has changed.

    If enough members are placed for the new size, the waiting members become ordinary asks. Otherwise they wait in the gang.
    """
    if gang.min_members <= 1:
        gang.placed = 0  # for a gang of one member, members are not counted
        pending.drop_empty_gang(partition, gang)
        pending.regroup(partition, gang)
    elif gang.placed:
        pending.regroup(partition, gang)
    else:
        partition.untold[gang] = None
        pending.gang_changed(partition, gang)
