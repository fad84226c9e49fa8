"""Limits that an ask has to pass: the max of each queue on its path, then the limits of its user and group.

A limiter stores its headroom and the classes that it blocks. If one ask of a class does not fit, the other asks of the class are
not tested again (design 6.5).
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from server.model.asks import GangClass
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
"""The reason code of an ask that waits because a limit has no headroom, by the kind of limit."""
_LENDABLE: Final = GangClass.LENDABLE
"""`GangClass.LENDABLE`, looked up once because each access to a member of an enumeration is slow."""
OWN: Final = ("queue", "firm")
"""The kinds of limits whose headroom is reduced by the amounts that decisions and reservations have promised."""


def kept(left: int, waiting: int) -> int:
    """Return the amount of one type that a queue keeps for waiting firm asks (J4).

    The amount is the sum of the requests of these asks, but at most the part of the queue's guarantee that firm asks do not
    hold yet.

    The amount that firm asks hold and the amount that is kept for waiting firm asks together are thus max(firm held,
    min(guaranteed, firm held plus firm waiting)).
    """
    return 0 if left > NO_LIMIT >> 1 else max(0, min(left, waiting))


def spread(limit: Iterable[tuple[str, int]], index: Mapping[str, int]) -> Amounts:
    """Return a limit as amounts, with NO_LIMIT for the types that the limit does not name. ``index`` has the index of each type."""
    amounts = [NO_LIMIT] * len(index)
    for name, quantity in limit:
        amounts[index[name]] = quantity
    return amounts


class Limiter:
    """One limit.

    For a type without a limit, NO_LIMIT is the limit, so that the headroom stays above NO_LIMIT / 2.
    """

    __slots__ = (
        "applications",
        "blocked",
        "headroom",
        "kind",
        "max_applications",
        "name",
        "queue",
        "relieved",
    )

    def __init__(self, kind: str, name: str, queue: "Queue", headroom: Amounts) -> None:
        self.kind = kind
        """The kind of the limit: queue, firm, user or group.

        Promises to other asks reduce the headroom only if the kind is queue or firm. A limiter of kind firm bounds the usage of a
        queue's firm asks by the queue's guarantee (J4).
        """
        self.name = name
        self.queue = queue
        self.headroom = headroom
        """The limit minus usage and promises, by type."""
        self.blocked: dict[AskClass, list[Group]] = {}
        """The classes that do not fit, each with its parked groups."""
        self.relieved = False
        self.applications = 0
        self.max_applications = 0

    @property
    def code(self) -> Code:
        """Return the reason code of an ask that waits because this limit has no headroom for it."""
        return CODES[self.kind]

    def has_headroom(self, ask_class: "AskClass") -> bool:
        """Return whether one more ask of the class fits. If the ask has a pledge, the amounts promised to the ask itself do not count as used.

        An ask that replaces a placeholder always fits, because the placeholder already holds the headroom.

        If a decision freed the capacity for the ask, promises to other asks are ignored, because the decision considered these
        promises when it was made. The ask may thus take headroom that was promised to another ask. The other ask then gets the
        headroom that the victims of this ask's decision free.
        """
        held = ask_class.pledge
        if held is None:
            is_lending = ask_class.gang_class is _LENDABLE and self.kind == "queue"
            return fits(ask_class.demand, self.headroom) and (
                not is_lending or self._has_headroom_beside_firm(ask_class)
            )
        if held.replaces:
            return True  # its placeholder holds the headroom already
        if self.kind not in OWN:
            return fits(ask_class.demand, self.headroom)
        headroom = self.headroom
        if held.reserves:
            return all(headroom[index] >= 0 for index, _ in ask_class.demand)
        if self.kind == "firm":
            return True  # the decision counted this ask when it was made
        promised = self.queue.promised
        return all(
            headroom[index] + promised[index] >= wanted for index, wanted in ask_class.demand
        )

    def _has_headroom_beside_firm(self, ask_class: "AskClass") -> bool:
        """Return whether a lendable ask fits beside the amounts that the queue keeps for waiting firm asks."""
        for index, wanted in ask_class.demand:
            if self.headroom_for(ask_class, index) < wanted:
                return False
        return True

    def holds_all(self, wanted: Mapping[int, int]) -> bool:
        """Return whether there is headroom for all asks of a decision together.

        If the limit is the max of a queue, the amounts that the decision has promised to these asks do not count as used.
        """
        promised = self.queue.promised if self.kind == "queue" else None
        return all(
            self.headroom[at] + (promised[at] if promised is not None else 0) >= much
            for at, much in wanted.items()
        )

    def headroom_for(self, ask_class: "AskClass", index: int) -> int:
        """Return the headroom in one type. For lendable asks, the amount that the queue keeps for waiting firm asks is subtracted (J4)."""
        firm = self.queue.firm
        lends = self.kind == "queue" and ask_class.gang_class is _LENDABLE
        if not lends or firm is None:
            return self.headroom[index]
        return self.headroom[index] - kept(firm.headroom[index], self.queue.firm_waiting[index])

    def take(self, demand: Demand) -> None:
        """Subtract a demand from the headroom, because usage or promises rise."""
        headroom = self.headroom
        for index, quantity in demand:
            headroom[index] -= quantity

    def give(self, demand: Demand) -> None:
        """Add a demand to the headroom, because usage or promises fall."""
        headroom = self.headroom
        for index, quantity in demand:
            headroom[index] += quantity


def user_limit(spec: QueueSpec, user: str) -> UserLimit | None:
    """Return the limit entry for a user at a queue.

    The result is the first entry that names the user, or else the last entry with the wildcard, or else None.
    """
    wildcard = None
    for entry in spec.limits:
        if user in entry.users:
            return entry
        if WILDCARD in entry.users:
            wildcard = entry
    return wildcard


def group_limit(spec: QueueSpec, group: str) -> UserLimit | None:
    """Return the first entry that names a group at a queue, or None. The wildcard counts as a group name."""
    return next((entry for entry in spec.limits if group in entry.groups), None)


def matched_group(leaf: "Queue", groups: tuple[str, ...]) -> str:
    """Return the one group whose limits apply to an application, on the application's whole path.

    The limits are read from the leaf up to the root, and at each queue in the order of the configuration. The result is the first
    group of the user that a limit names. If the limits name none of the user's groups, the result is the wildcard if a limit on
    the path has it, and else no group ("").
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
    """The limits of users and groups in one partition, by (queue, kind, name)."""

    __slots__ = ("by_key", "relieved", "unblocking")

    def __init__(self) -> None:
        self.by_key: dict[tuple[str, str, str], Limiter] = {}
        self.relieved: list[Limiter] = []
        """The limiters that got more headroom since the last pass of placement."""
        self.unblocking: dict[Limiter, None] = {}
        """The limiters from earlier passes that may still block classes for which they have headroom."""

    def take_relieved(self) -> None:
        """Move the limiters in ``relieved`` to ``unblocking``."""
        for limiter in self.relieved:
            limiter.relieved = False
            self.unblocking[limiter] = None
        self.relieved.clear()

    def forget_relieved(self) -> None:
        """Clear ``relieved`` and ``unblocking``, because no limiter blocks a class any more."""
        self.relieved.clear()
        self.unblocking.clear()
