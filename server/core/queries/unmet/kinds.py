"""The kinds of waiting asks: all equal single asks of a leaf are one kind, and each gang is a kind (J1, J8)."""

from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from server.core.preemption import due_gangs
from server.state.applications import Ask, Gang, Group
from server.state.partition import Partition
from server.state.snapshotting import GangDue

ALIKE_MAX: Final = 32
"""The largest number of asks of a group that are compared one by one, in the fields that their equivalence class does not cover."""


class Kind(NamedTuple):
    """The asks that are judged together: the first ask, the number of asks, and their gang if they are members of a gang.

    Single asks of one kind are all equal, so only the first ask is judged.
    """

    first: Ask
    number: int
    gang: GangDue | None = None

    @property
    def members(self) -> tuple[Ask, ...]:
        """Return the asks that are placed together: the members of a gang, or the first of the single asks."""
        return (self.first,) if self.gang is None else tuple(self.gang.members)

    @property
    def types(self) -> frozenset[str]:
        """Return the names of the resource types that the asks request."""
        return frozenset(name for one in self.members for name, _ in one.spec.resource)


def kinds(partition: Partition, leaf: str) -> Iterator[Kind]:
    """Yield the kinds of asks that wait in a leaf, in the order of their first asks."""
    promised = due_gangs.promised(partition)
    found: dict[tuple[object, ...], Kind] = {}
    for application in partition.queues[leaf].applications.values():
        groups: list[Group | Gang] = [*application.groups.values(), *application.gangs.values()]
        for group in groups:
            for kind in _of_group(group, promised):
                key = _key(kind)
                known = found.get(key)
                found[key] = kind if known is None else _together(known, kind)
    return iter(sorted(found.values(), key=lambda one: one.first.sort_key))


def _together(known: Kind, kind: Kind) -> Kind:
    """Return two kinds with equal keys as one kind.

    For single asks, the numbers of asks are added. For a gang, the number stays the same, because the number of each kind
    already includes all members.
    """
    first = min(known.first, kind.first, key=lambda one: one.sort_key)
    number = known.number if known.gang is not None else known.number + kind.number
    return Kind(first, number, known.gang)


def _of_group(group: Group | Gang, promised: dict[str, GangDue]) -> Iterator[Kind]:
    for ask, count in _alike(group):
        gang = promised.get(ask.key)
        if gang is None and isinstance(group, Gang):
            gang = due_gangs.due(group)
        yield Kind(ask, count if gang is None else len(gang.members), gang)


def _alike(group: Group | Gang) -> Iterator[tuple[Ask, int]]:
    """Yield asks that represent a group, each with the number of asks that it represents.

    A gang is represented by its first member. In other groups, each of the first ALIKE_MAX asks represents itself, because
    these asks may differ in fields that their class does not cover. The last of these asks also represents all further asks.
    """
    if isinstance(group, Gang):
        if group.members:
            yield min(group.members, key=lambda one: one.sort_key), len(group.members)
        return
    left = group.live
    for ask in islice((one for one in group.asks if one.group is group), ALIKE_MAX - 1):
        left -= 1
        yield ask, 1 if left >= 0 else 0
    last = next((one for one in reversed(group.asks) if one.group is group), None)
    if left > 0 and last is not None:
        yield last, left


def _key(kind: Kind) -> tuple[object, ...]:
    """Return the key of a kind of asks. Kinds with equal keys are combined into one kind, whose asks are judged together.

    Gangs of one name in different applications have different keys.
    """
    ask, spec = kind.first, kind.first.spec
    if kind.gang is not None:
        return ask.application.application_id, kind.gang.key
    limited = tuple(one for one in ask.application.limiters if one.kind != "queue")
    decided = ask.pledge is not None and not ask.pledge.reserves
    may = (spec.may_fail_to_bind, spec.allow_preempt_other, spec.may_trigger)
    return spec.resource, spec.constraints, spec.priority, spec.gang_key, may, limited, decided
