"""Limits that an ask has to pass on its way: the max of each queue, then what its user and group may use.

A limiter keeps the *room* that is left, and which classes it blocks, so that a class that does not fit is tested
once and not per ask (design 6.5).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from server.model.asks import JobClass
from server.model.fit import Amounts, Demand, fits
from server.model.quota import WILDCARD, QueueSpec, UserLimit
from server.model.reasons import Code
from server.state.types import NO_LIMIT

if TYPE_CHECKING:
    from server.state.applications import Group
    from server.state.equivalence import AskClass
    from server.state.queues import Queue


CODES: Final[Mapping[str, Code]] = {
    "queue": Code.QUEUE_LIMIT,
    "firm": Code.FIRM_LIMIT,
    "user": Code.USER_LIMIT,
    "group": Code.GROUP_LIMIT,
}
"""The reason code of an ask that waits because a limit has no room for it, by kind of limit."""
_LENDABLE: Final = JobClass.LENDABLE
"""The member, looked up once: reading it from the enumeration each time is slow."""
OWN: Final = ("queue", "firm")
"""The kinds of limits that count promises."""


def kept(left: int, waiting: int) -> int:
    """Return what a queue keeps for firm asks in one type: what they wait for, within what is left of its guarantee (J4).

    Usage thus reaches at most max(firm held, min(guaranteed, firm held and waiting)) and what lendable asks hold.
    """
    return 0 if left > NO_LIMIT >> 1 else max(0, min(left, waiting))


class Limiter:
    """One limit. ``room`` = limit - usage - promised by type; NO_LIMIT where nothing is limited.

    ``kind`` is queue, firm, user or group; promises to others count in the first two only. A firm limiter bounds what the
    firm asks of a queue may use by the queue's guarantee (J4). ``blocked`` maps a class without room to the groups that
    are parked because of it.
    """

    __slots__ = (
        "applications",
        "blocked",
        "kind",
        "max_applications",
        "name",
        "queue",
        "relieved",
        "room",
    )

    def __init__(self, kind: str, name: str, queue: "Queue", room: Amounts) -> None:
        self.kind = kind
        self.name = name
        self.queue = queue
        self.room = room
        self.blocked: dict[AskClass, list[Group]] = {}
        self.relieved = False
        self.applications = 0
        self.max_applications = 0

    @property
    def code(self) -> Code:
        """The reason code of an ask that waits because this limit has no room for it."""
        return CODES[self.kind]

    def has_room(self, ask_class: "AskClass") -> bool:
        """Return whether one more ask of the class fits; a reserved ask's own promise does not count against it.

        Nor do the promises of others where a decision made the room: the decision counted them, and what another ask
        takes early is given back by that ask's own victims.
        """
        held = ask_class.pledge
        if held is None:
            if ask_class.job_class is _LENDABLE and self.kind == "queue":
                return all(
                    self.room_for(ask_class, at) >= wanted for at, wanted in ask_class.demand
                )
            return fits(ask_class.demand, self.room)
        if held.replaces:
            return True  # its placeholder holds the room already
        if self.kind not in OWN:
            return fits(ask_class.demand, self.room)
        room = self.room
        if held.reserves:
            return all(room[index] >= 0 for index, _ in ask_class.demand)
        if self.kind == "firm":
            return True  # it was counted when the decision was made
        promised = self.queue.promised
        return all(room[index] + promised[index] >= wanted for index, wanted in ask_class.demand)

    def holds_all(self, wanted: Mapping[int, int]) -> bool:
        """Return whether there is room for all asks of a decision together, with the queue's promises given back."""
        promised = self.queue.promised if self.kind == "queue" else None
        return all(
            self.room[at] + (promised[at] if promised is not None else 0) >= much
            for at, much in wanted.items()
        )

    def room_for(self, ask_class: "AskClass", index: int) -> int:
        """Return the room in one type; for lendable asks, less what the queue keeps for waiting firm asks (J4)."""
        firm = self.queue.firm
        lends = self.kind == "queue" and ask_class.job_class is _LENDABLE
        if not lends or firm is None:
            return self.room[index]
        return self.room[index] - kept(firm.room[index], self.queue.firm_waiting[index])

    def take(self, demand: Demand) -> None:
        """Subtract a demand from the room, because usage or promises rise."""
        room = self.room
        for index, quantity in demand:
            room[index] -= quantity

    def give(self, demand: Demand) -> None:
        """Add a demand to the room, because usage or promises fall."""
        room = self.room
        for index, quantity in demand:
            room[index] += quantity


def user_limit(spec: QueueSpec, user: str) -> UserLimit | None:
    """Return the entry for a user at a queue: the one that names the user, else the wildcard."""
    wildcard = None
    for entry in spec.limits:
        if user in entry.users:
            return entry
        if WILDCARD in entry.users:
            wildcard = entry
    return wildcard


def group_limit(spec: QueueSpec, group: str) -> UserLimit | None:
    """Return the entry that names a group (the wildcard is a name like any other) at a queue."""
    return next((entry for entry in spec.limits if group in entry.groups), None)


def matched_group(leaf: "Queue", groups: tuple[str, ...]) -> str:
    """Return the one group that an application counts for: the first with a limit from the leaf to the root.

    A user in no limited group counts for the wildcard group where there is one, else for none ("").
    """
    queue: Queue | None = leaf
    wildcard = ""
    while queue is not None:
        for entry in queue.spec.limits:
            for group in entry.groups:
                if group in groups:
                    return group
                if group == WILDCARD:
                    wildcard = WILDCARD
        queue = queue.parent
    return wildcard


class Limits:
    """The user and group limits of one partition by queue, kind and name, and the limiters that got headroom since the last pass."""

    __slots__ = ("by_key", "relieved")

    def __init__(self) -> None:
        self.by_key: dict[tuple[str, str, str], Limiter] = {}
        self.relieved: list[Limiter] = []
