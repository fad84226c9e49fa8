"""The groups of equal asks that a tick examines for policies other than claims.

The asks of these groups may replace pods of their queue (I5), or count as gangs of one member (J4). If at most SEARCH_MOST
groups wait, each tick examines all groups. If more groups wait, a tick examines at most PART_MOST groups. The next ticks
continue the round with the groups that are not examined yet. Groups of higher priority come first. Among groups of equal
priority, older groups come first. Without the limit PART_MOST, a tenant whose asks have many different sizes would make each
tick long. Reservations are offered only in the tick that examines the last groups (O6).
"""

from collections.abc import Iterator
from operator import attrgetter
from typing import Final

from server.core.preemption import due, due_claims, pacing
from server.core.preemption.claim_chunks import SEARCH_MOST
from server.model.policies import GUARANTEED, JOB, REPLACING
from server.state.applications import Group
from server.state.partition import Partition
from server.state.rounds import GroupSearch

PART_MOST: Final = 2_000
"""The largest number of groups of equal asks that one tick examines, if more than SEARCH_MOST groups wait."""

_PRIORITY: Final = attrgetter("priority")
_NUMBER: Final = attrgetter("number")


class Part:
    """The groups that one tick examines: groups that wait for preemption, in leaves that may preempt (see `due_claims.is_open`)."""

    def __init__(self, partition: Partition, now: int) -> None:
        self.groups: list[Group] = []
        self._partition = partition
        self._search: GroupSearch | None = None
        if not _is_needed(partition):
            return
        if partition.classes.groups <= SEARCH_MOST:
            partition.round.group_search = None
            self.groups = _stuck(partition)
        elif pacing.is_between(partition, now):
            due_claims.call_again(partition, now)
            self.groups = [*_planned_again(partition)]
        else:
            self._search = search = _current_search(partition, now)
            if search.again_ms is not None:
                due_claims.call_again(partition, search.again_ms)
            found = [*_planned_again(partition), *reversed(search.groups[-PART_MOST:])]
            self.groups = [one for one in dict.fromkeys(found) if _waits(one)]

    @property
    def is_last(self) -> bool:
        """Return whether no groups are left for the next ticks.

        While claims wait for the next round (P1), there is no search of groups, and the result is True.
        """
        return self._search is None or len(self._search.groups) <= PART_MOST

    def settle(self, *, cut: bool) -> bool:
        """Record that the tick has planned for its groups, and return whether groups are left for the next tick.

        ``cut`` is true if the budget ended before the tick had tried all asks. If ``cut`` is true, the next tick examines the
        same groups again.
        """
        search = self._search
        if search is None:
            return False
        if not cut:
            del search.groups[-PART_MOST:]
        search.again_ms = self._partition.round.claims_ms
        return bool(search.groups)

    @property
    def is_outdated(self) -> bool:
        """Return whether another search must begin, because the last search has ended and the state has changed since it began."""
        search = self._search
        return (
            search is not None and not search.groups and search.mark != due.marks(self._partition)
        )


def _is_needed(partition: Partition) -> bool:
    """Return whether groups have to be examined: asks may replace pods of their queue, or single asks count as gangs because only gangs may claim."""
    settings = partition.spec.preemption
    as_gangs = settings.lists(JOB) and not settings.lists(GUARANTEED)
    return settings.enabled and (as_gangs or any(map(settings.lists, REPLACING)))


def _stuck(partition: Partition) -> list[Group]:
    """Return the groups that wait for preemption, one leaf after another."""
    leaves = due_claims.open_leaves(partition)
    return [group for leaf in leaves for group in due_claims.stuck_groups(leaf)]


def _waits(group: Group) -> bool:
    is_open = due_claims.is_open(group.application.leaf)
    return bool(group.live) and is_open and due_claims.is_stuck(group)


def _current_search(partition: Partition, now: int) -> GroupSearch:
    """Return the search that is in progress.

    If the last search has ended and the state has changed since it began, begin another search.
    """
    state, mark = partition.round, due.marks(partition)
    search = state.group_search
    if search is None or search.spec is not partition.spec or _is_outdated(search, mark, now):
        search = state.group_search = GroupSearch(partition.spec, mark, _in_order(partition), now)
    return search


def _is_outdated(search: GroupSearch, mark: tuple[int, ...], now: int) -> bool:
    is_due = search.again_ms is not None and search.again_ms <= now
    return not search.groups and (search.mark != mark or is_due)


def _in_order(partition: Partition) -> list[Group]:
    """Return all groups of leaves that may preempt (see `due_claims.is_open`).

    The group that comes first in the order is the last item of the list.
    """
    found = [
        group
        for leaf in due_claims.open_leaves(partition)
        for application in leaf.applications.values()
        for group in application.groups.values()
    ]
    found.sort(key=_NUMBER, reverse=True)
    found.sort(key=_PRIORITY)
    return found


def _planned_again(partition: Partition) -> Iterator[Group]:
    """Yield the groups that every tick examines in addition to its part of the search, without waiting for a round.

    Policies plan again for an ask of such a group, because a victim was vetoed or a manager agreed to a plan (design 1.8).
    """
    decisions = partition.decisions
    for key in dict.fromkeys([*decisions.suspended, *decisions.checks.granted()]):
        ask = partition.asks.get(key)
        if ask is not None and isinstance(ask.group, Group) and _waits(ask.group):
            yield ask.group
