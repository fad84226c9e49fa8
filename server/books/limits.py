"""Limits that an ask has to pass on its way: the max of each queue, then what its user and group may use.

A limiter keeps the *room* that is left, and which classes it blocks, so that a class that does not fit is tested
once and not per ask (design 6.5).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from server.books.types import NO_LIMIT
from server.model.asks import JobClass
from server.model.fit import Amounts, Demand, fits
from server.model.quota import WILDCARD, QueueSpec, UserLimit
from server.model.reasons import Code

if TYPE_CHECKING:
    from server.books.applications import Group
    from server.books.classes import AskClass
    from server.books.queues import Queue


CODES: Final[Mapping[str, Code]] = {
    "queue": Code.QUEUE_LIMIT,
    "firm": Code.FIRM_LIMIT,
    "user": Code.USER_LIMIT,
    "group": Code.GROUP_LIMIT,
}
"""By kind of limit why an ask waits for which it has no room."""
_LENDABLE: Final = JobClass.LENDABLE
"""Looked up once: to reach a member of an enumeration is slow."""
OWN: Final = ("queue", "firm")
"""Limits that count what is promised."""


def kept(left: int, waiting: int) -> int:
    """What a queue keeps for firm asks in one type: of what they wait for, what is left of its guarantee (J4).

    So use reaches at most max(firm held, min(guaranteed, firm held and waiting)) and what lendable asks hold.
    """
    return 0 if left > NO_LIMIT >> 1 else max(0, min(left, waiting))


class Limiter:
    """One limit. ``room`` = limit - usage - promised by type; NO_LIMIT where nothing is limited.

    ``kind`` is queue, firm, user or group; promises to others count in the first two only. A firm one is what a queue
    guarantees, as the limit of what its firm asks may use (J4). ``blocked`` maps a class without
    room to the groups that were put aside because of it.
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
        """Why an ask waits for which it has no room."""
        return CODES[self.kind]

    def has_room(self, ask_class: "AskClass") -> bool:
        """Does one more ask of the class fit? A reserved ask's own promise does not count against it.

        Nor do the promises of others where a decision made the room: it counted them when it was made, and what
        one of them takes early its own victims give back.
        """
        held = ask_class.pledge
        if held is None:
            if ask_class.job_class is _LENDABLE and self.kind == "queue":
                return all(
                    self.room_for(ask_class, at) >= wanted for at, wanted in ask_class.demand
                )
            return fits(ask_class.demand, self.room)
        if held.replaces:
            return True  # its placeholder has the room
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
        """Is there room for all asks of a decision together, its promises given back?"""
        promised = self.queue.promised if self.kind == "queue" else None
        return all(
            self.room[at] + (promised[at] if promised is not None else 0) >= much
            for at, much in wanted.items()
        )

    def room_for(self, ask_class: "AskClass", index: int) -> int:
        """The room in one type: lendable asks leave firm ones what these wait for and are guaranteed (J4)."""
        firm = self.queue.firm
        lends = self.kind == "queue" and ask_class.job_class is _LENDABLE
        if not lends or firm is None:
            return self.room[index]
        return self.room[index] - kept(firm.room[index], self.queue.firm_waiting[index])

    def take(self, demand: Demand) -> None:
        """Usage or promises rise."""
        room = self.room
        for index, quantity in demand:
            room[index] -= quantity

    def give(self, demand: Demand) -> None:
        """Usage or promises fall."""
        room = self.room
        for index, quantity in demand:
            room[index] += quantity


def user_limit(spec: QueueSpec, user: str) -> UserLimit | None:
    """The entry for a user at a queue: the one that names the user, else the wildcard."""
    wildcard = None
    for entry in spec.limits:
        if user in entry.users:
            return entry
        if WILDCARD in entry.users:
            wildcard = entry
    return wildcard


def group_limit(spec: QueueSpec, group: str) -> UserLimit | None:
    """The entry that names a group (the wildcard is a name like any other) at a queue."""
    return next((entry for entry in spec.limits if group in entry.groups), None)


def matched_group(leaf: "Queue", groups: tuple[str, ...]) -> str:
    """The one group that an application counts for: the first with a limit from the leaf to the root.

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
