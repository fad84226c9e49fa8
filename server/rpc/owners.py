"""The owners of resource managers: which caller may act for which manager, and what a shim's role is restricted to.

A role may be restricted to a manager and to partitions. A manager that no role names belongs to the caller that registered it. An
operator may do everything. On an open port, a caller without a token is an operator.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from server.core.state import State
from server.model.phrases import some
from server.model.quota import Configuration
from server.rpc.errors import not_yours
from server.rpc.roles import Caller, Role

NAMED_MAX: Final = 5
"""The largest number of partitions that a refusal names. Further partitions are counted."""


class Owners:
    """The caller that last registered each manager."""

    def __init__(self) -> None:
        self._callers: dict[str, Caller] = {}
        self.changing = asyncio.Lock()
        """The lock that is held from the checks of a configuration until this configuration is in force.

        The lock prevents any other change of the configuration in between.
        """

    def check(self, rm_id: str, caller: Caller) -> None:
        """Raise CallError if the caller may not act for this manager."""
        if caller.role is Role.OPERATOR or caller.manager == rm_id:
            return
        if caller.manager:
            raise not_yours(
                f"your role ({caller.name}) is bound to resource manager {caller.manager!r} and may not speak for {rm_id!r}: "
                "register with that id, or ask an operator to change `manager` in the core's file of roles or tokens"
            )
        owner = self._callers.get(rm_id)
        if owner is not None and owner.name != caller.name:
            raise not_yours(
                f"resource manager {rm_id!r} is registered by another caller, and you are {caller.name}: use another id, "
                f"or ask an operator for `manager: {rm_id}` beside your role in the core's file of roles or tokens"
            )

    def registered(self, rm_id: str, caller: Caller) -> None:
        """Record the caller that registered a manager."""
        self._callers[rm_id] = caller

    def count(self, caller: Caller) -> int:
        """Return how many managers the caller registered."""
        return sum(one.name == caller.name for one in self._callers.values())

    def forget(self, rm_id: str) -> None:
        """Forget which caller registered a manager. The manager then belongs to the caller that registers it next."""
        self._callers.pop(rm_id, None)

    def check_partitions(self, partitions: Iterable[str], caller: Caller) -> None:
        """Raise CallError if the caller's role does not cover all given partitions.

        A role without partitions covers all partitions.
        """
        if caller.partitions and not caller.partitions.issuperset(partitions):
            foreign = min(set(partitions) - caller.partitions)
            raise _foreign_partition(foreign, caller)

    def check_configuration(
        self,
        before: Configuration,
        after: Configuration,
        managers: Mapping[str, str],
        caller: Caller,
    ) -> None:
        """Raise CallError if the change concerns a partition that the caller may not change.

        An operator may change all partitions.

        A partition that only one of the two configurations has also counts as changed. ``managers`` maps each partition to its
        manager.
        """
        if caller.role is Role.OPERATOR:
            return
        foreign = [
            name
            for name in changed_partitions(before, after)
            if self._is_foreign_partition(name, managers.get(name, ""), caller)
        ]
        there = {one.name for one in after.partitions}
        if missing := [name for name in foreign if name not in there]:
            raise _missing_partitions(missing, caller)
        if foreign:
            raise _foreign_partition(foreign[0], caller)

    def _is_foreign_partition(self, name: str, rm_id: str, caller: Caller) -> bool:
        """Return whether a shim may not change the partition.

        A shim whose role is restricted to partitions may change only these partitions. Any other shim may change a partition
        unless the partition's manager belongs to another caller (`_is_foreign`).
        """
        if caller.partitions:
            return name not in caller.partitions
        return self._is_foreign(rm_id, caller)

    def _is_foreign(self, rm_id: str, caller: Caller) -> bool:
        """Return whether the manager belongs to another caller.

        A manager belongs to another caller if the role of ``caller`` is bound to another manager, or if another caller registered
        the manager.

        The empty name is never foreign.
        """
        if not rm_id or rm_id == caller.manager:
            return False
        owner = self._callers.get(rm_id)
        return bool(caller.manager) or (owner is not None and owner.name != caller.name)


def managers_of(state: State) -> dict[str, str]:
    """Return the manager of each partition. Partitions without a manager are left out."""
    return {name: one.owner for name, one in state.partitions.items() if one.owner}


def changed_partitions(before: Configuration, after: Configuration) -> list[str]:
    """Return the names of the partitions that differ between two configurations."""
    old, new = ({one.name: one for one in each.partitions} for each in (before, after))
    return sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))


def _missing_partitions(names: Sequence[str], caller: Caller) -> Exception:
    """Return the refusal of a text that lists only some partitions.

    A partition that is not listed would be removed.
    """
    lacks = f"partition{'s' if len(names) > 1 else ''} {some(map(repr, names), NAMED_MAX)}"
    return not_yours(
        f"this configuration lacks {lacks}, which your role ({caller.name}) may not remove: a configuration lists every "
        "partition; ask an operator for what `evenhand config show` prints, and change your partitions there"
    )


def _foreign_partition(name: str, caller: Caller) -> Exception:
    return not_yours(
        f"your role ({caller.name}) may not use or change partition {name!r}, which is another's: leave it as it is, "
        "or ask an operator to add it to `partitions` in the core's file of roles or tokens"
    )
