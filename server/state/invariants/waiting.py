"""Checks of waiting asks: groups and gangs have the asks in order, and each parked group has a cause (design 6.4, 6.5, 6.11)."""

from collections import Counter
from itertools import pairwise

from server.model.asks import UNSIZED
from server.state.applications import Application, Ask, Gang, Group
from server.state.gang_sizes import gathers
from server.state.invariants.capacity import all_limiters, limit_name
from server.state.invariants.keys import class_name, live_classes
from server.state.limits import Limiter
from server.state.partition import Partition
from server.state.placeholders import PLACEHOLDERS, Hold


def check_groups(partition: Partition) -> None:
    """Assert that every waiting ask is in one group or gang of its application, in order."""
    held = 0
    for application in partition.applications.values():
        for group in application.groups.values():
            _check_group(application, group)
            held += group.live
        for hold in application.holds.values():
            _check_gang(application, hold, 0)
            held += len(hold.members)
            assert application in partition.gangs.holding, (
                f"{holder_name(hold)} is looked at by nobody"
            )
        placed = _placed_members(application)
        for gang in application.gangs.values():
            _check_gang(application, gang, placed[gang.key])
            held += len(gang.members)
        assert not placed.keys() - application.gangs.keys(), (
            f"application {application.application_id} has members placed of gangs that it does not know"
        )
    assert held == partition.ask_count, (
        f"groups and gangs hold {held} asks, {partition.ask_count} wait"
    )
    for one in partition.untold:
        assert is_known(one), f"{holder_name(one)} is gone, but its shim is still to hear of it"


def holder_name(one: Group | Gang) -> str:
    """Return the name of a group or gang for messages."""
    if isinstance(one, Hold):
        return f"hold {one.key!r} of application {one.application.application_id}"
    if isinstance(one, Gang):
        return f"gang {one.key} of application {one.application.application_id}"
    what = f"{class_name(one.ask_class)}, priority {one.priority}"
    return f"group of application {one.application.application_id} ({what})"


def is_known(one: Group | Gang) -> bool:
    """Return whether the application still has this group or gang."""
    if isinstance(one, Gang):
        known = one.application.holds if isinstance(one, Hold) else one.application.gangs
        return known.get(one.key) is one
    return one.application.groups.get((one.ask_class, one.priority)) is one


def _check_group(application: Application, group: Group) -> None:
    name = holder_name(group)
    assert is_known(group), f"{name} is listed under another class, priority or application"
    assert group.application is application, f"{name} is listed by {application.application_id}"
    live = {ask.key: ask for ask in group.asks if ask.group is group}
    assert group.live == len(live), f"{name} counts {group.live} asks, {len(live)} stand in it"
    assert group.live > 0, f"{name} is empty"
    assert group.asks[0].group is group, (
        f"{name} begins with ask {group.asks[0].key}, which has left it"
    )
    ages = [(ask.pending_since, ask.arrival) for ask in group.asks]
    assert all(one <= other for one, other in pairwise(ages)), (
        f"{name} is out of order: {ages[:20]}"
    )
    for ask in live.values():
        _check_member(name, application, ask)
        assert (ask.ask_class, ask.spec.priority) == (group.ask_class, group.priority), (
            f"{name} holds ask {ask.key} of {class_name(ask.ask_class)}, priority {ask.spec.priority}"
        )


def _check_member(name: str, application: Application, ask: Ask) -> None:
    assert application.asks.get(ask.key) is ask, (
        f"{name} holds ask {ask.key}, which does not wait there"
    )


def _placed_members(application: Application) -> Counter[str]:
    return Counter(
        ask.spec.gang_key
        for ask in application.allocations.values()
        if ask.spec.gang_key and ask.spec.min_members > 1 and not ask.releasing
    )


def _check_gang(application: Application, gang: Gang, placed: int) -> None:
    name = holder_name(gang)
    assert is_known(gang), f"{name} is listed under another key or application"
    assert gang.placed == placed, f"{name} counts {gang.placed} members placed, there are {placed}"
    assert gang.members or gang.placed, f"{name} has no members"
    for ask in gang.members:
        assert ask.group is gang, f"{name} lists ask {ask.key}, which waits elsewhere"
        _check_member(name, application, ask)
    keys = [ask.sort_key for ask in gang.members]
    assert keys == sorted(set(keys)), f"{name} is out of order: {keys[:20]}"
    if gang.gathered and not gang.parked:
        assert gang.priority == gang.members[0].spec.priority, (
            f"{name} has priority {gang.priority}"
        )


# Jobs that gather ---------------------------------------------------------------------------------------------------


def check_gathering(partition: Partition) -> None:
    """Assert that the list of gathering gangs is exact, so that each gang is checked when its wait ends (J1)."""
    watched = partition.gangs.gathering.keys() | partition.gangs.came.keys()
    for application in partition.applications.values():
        for gang in application.gangs.values():
            assert gang in watched or not gathers(partition, gang), (
                f"{holder_name(gang)} gathers, and nobody watches its time"
            )
    for gang in partition.gangs.gathering.keys() - partition.gangs.came.keys():
        assert gathers(partition, gang), f"{holder_name(gang)} is watched, but does not gather"
    for ask in partition.asks.values():
        by_time = type(ask.group) is Gang and ask.spec.gang_key != PLACEHOLDERS
        unsized = ask.spec.min_members == UNSIZED and by_time
        assert not unsized or ask.group in watched, (
            f"ask {ask.key} has no size, and its gang does not gather"
        )
        _check_size(partition, ask)


def _check_size(partition: Partition, ask: Ask) -> None:
    """Assert that the spec of a placed member has the size of its gang, if that size was counted."""
    spec = ask.spec
    if ask.node is None or ask.releasing or not spec.gang_key or spec.min_members <= 1:
        return
    gang = ask.application.gangs[spec.gang_key]
    agrees = spec.min_members == gang.min_members
    assert agrees or not gang.counted or gathers(partition, gang) or gang in partition.gangs.came, (
        f"allocation {ask.key} says that {holder_name(gang)} needs {spec.min_members} members, not {gang.min_members}"
    )


# Parked groups --------------------------------------------------------------------------------------------------


def check_parked(partition: Partition) -> None:
    """Assert that a parked group is in exactly one list, the list of its own class.

    The cause for which the group is parked must still exist.
    """
    lists = _waiting_lists(partition)
    seen = Counter(group for groups in lists.values() for group in groups if is_known(group))
    for application in partition.applications.values():
        for group in application.groups.values():
            count = seen[group]
            assert count == group.parked, (
                f"{holder_name(group)} is {'' if group.parked else 'not '}put aside and stands in {count} lists"
            )
    for name, groups in lists.items():
        strangers = [
            group
            for group in groups
            if group.parked and is_known(group) and name[1] != group.ask_class
        ]
        assert not strangers, f"{holder_name(strangers[0])} waits in the list of another class"
    _check_parked_gangs(partition)
    _check_blocked(partition)


def _waiting_lists(partition: Partition) -> dict[tuple[object, object], list[Group]]:
    lists: dict[tuple[object, object], list[Group]] = {
        ("dead", one): one.waiting for one in live_classes(partition)
    }
    for limiter in all_limiters(partition):
        for ask_class, groups in limiter.blocked.items():
            lists[limiter, ask_class] = groups
    return lists


def _check_parked_gangs(partition: Partition) -> None:
    parked = Counter(id(gang) for gang in partition.gangs.parked)
    for application in partition.applications.values():
        for gang in application.gangs.values():
            count = parked.pop(id(gang), 0)
            assert count == gang.parked, (
                f"{holder_name(gang)}: parked {gang.parked}, listed {count} times"
            )
            ready = gang.gathered and not gang.parked
            assert ready == (gang in partition.gangs.ready), (
                f"{holder_name(gang)}: ready {ready}, and {'not ' if ready else ''}listed as ready"
            )
    assert not parked, f"{len(parked)} gangs are listed as parked that are gone"


def _check_blocked(partition: Partition) -> None:
    """Assert that each limit that blocks a class has no headroom for the class, or is listed for a test at the next tick.

    Assert that only unschedulable classes have groups that wait to be requeued.
    """
    relieved = [id(one) for one in partition.limits.relieved]
    for limiter in all_limiters(partition):
        name = limit_name(limiter)
        assert limiter.relieved == (id(limiter) in relieved), (
            f"{name}: relieved and the list of these do not agree"
        )
        if limiter not in partition.limits.unblocking:
            _check_headroom(limiter)
        _check_limiter(limiter)
    for ask_class in live_classes(partition):
        waits = [group for group in ask_class.waiting if group.parked and is_known(group)]
        assert ask_class.dead or not waits, (
            f"{class_name(ask_class)} is not dead, but groups wait for its revival"
        )


def _check_headroom(limiter: Limiter) -> None:
    for ask_class in () if limiter.relieved else limiter.blocked:
        assert not ask_class.pending or not limiter.has_headroom(ask_class), (
            f"{limit_name(limiter)}, {class_name(ask_class)}: blocked, but there is headroom"
        )


def _check_limiter(limiter: Limiter) -> None:
    for ask_class, groups in limiter.blocked.items():
        name = f"{limit_name(limiter)}, {class_name(ask_class)}"
        for group in groups:
            if group.parked and is_known(group):
                assert limiter in group.application.limits_of(ask_class), (
                    f"{name}: {holder_name(group)} does not pass it"
                )
