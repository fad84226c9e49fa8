"""The state of the round loop between ticks: the place at which the loop stopped, and the asks that need not be checked again (design 6.2).

Most of this state only saves work: if it is lost, the decisions stay the same. Two parts of the state are exceptions, because
they delay the next rounds: the start of the last round of claims, and the releases of earlier rounds (P1, P5). After a restart
of the core, both parts are lost.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from server.snapshot.pace import OverUse
from server.state.backoff import LiveTries, Tries

if TYPE_CHECKING:
    from server.model.quota import PartitionSpec
    from server.state.applications import Ask, Group
    from server.state.queues import Queue

InTurn: TypeAlias = "tuple[tuple[int, int, int, int], Ask]"
"""An ask with its sort key among the claims of its leaf (P4)."""


@dataclass(slots=True)
class RoundReleases:
    """The releases that the claims of one round ordered (see `server.snapshot.pace.Taken`).

    ``over`` has the amounts by which queues were above their entitlements when the round began. ``over`` is None until it is
    needed (P9).
    """

    began_ms: int
    taken: Counter[tuple[str, str, int]]
    over: OverUse | None = None


@dataclass(slots=True)
class ReservationSearch:
    """A search for asks that may reserve, which takes several ticks if there are many groups."""

    mark: tuple[int, ...]
    """The counters of the state when the search began."""
    groups: "list[Group]"
    """The groups that are not searched yet."""
    found: "list[Ask]" = field(default_factory=list)
    """The asks that may reserve and that the round has not tried yet, in order.

    The list has a largest length. If asks are left out for this reason, ``cut`` is set.
    """
    due_ms: int | None = None
    """The next instant from which a further ask may reserve."""
    cut: bool = False
    """Whether asks that may reserve were left out of ``found``."""

    @property
    def is_over(self) -> bool:
        """Return whether every group was searched, and every ask that was found was tried."""
        return not (self.groups or self.found)


@dataclass(slots=True)
class ClaimSearch:
    """A search for asks that may claim, which takes several ticks if there are many groups."""

    spec: "PartitionSpec"
    """The configuration when the search began."""
    mark: tuple[int, ...]
    """The counters of the state when the search began. If one of these counters changes, all groups must be searched again."""
    changes: tuple[int, ...]
    """Other counters of the state.

    If one of these counters changes, only the groups in ``joined`` and ``placeable`` must be searched again.
    """
    queues: "list[Queue]"
    """The queues whose groups are not in ``groups`` yet."""
    groups: "list[Group]" = field(default_factory=list)
    """The groups that are not searched yet."""
    found: dict[str, list[InTurn]] = field(default_factory=dict)
    """The asks that may claim, by leaf. In each list, the ask that comes first in order is the last element."""
    untried: "dict[str, list[Ask]]" = field(default_factory=dict)
    """The asks that a tick removed from ``found`` but did not try, because the budget of the tick ended, by leaf."""
    joined: "dict[Group, None]" = field(default_factory=dict)
    """The groups that an ask has joined since ``changes`` were read."""
    placeable: "dict[Group, None]" = field(default_factory=dict)
    """The groups that did not wait for preemption when they were searched."""
    again_ms: int | None = None
    """The next instant from which a further ask may claim."""

    @property
    def is_searching(self) -> bool:
        """Return whether groups are left to search."""
        return bool(self.queues or self.groups)

    @property
    def is_over(self) -> bool:
        """Return whether every group was searched, and every ask that was found was tried."""
        return not (self.is_searching or self.found or self.untried)


@dataclass(slots=True)
class GroupSearch:
    """A search for asks that may replace pods of their own queue, and for single asks that count as gangs of one member.

    The search takes several ticks if there are many groups.
    """

    spec: "PartitionSpec"
    """The configuration when the search began."""
    mark: tuple[int, ...]
    """The counters of the state when the search began. If one of them changes, all groups must be searched again."""
    groups: "list[Group]"
    """The groups for which no policy has planned yet. The group that comes first in order is the last element."""
    began_ms: int
    """The instant at which the search began."""
    again_ms: int | None = None
    """The next instant from which a further ask is due."""


class Round:
    """The state of the rounds of one partition."""

    __slots__ = (
        "arrivals",
        "began_ms",
        "claim_search",
        "claims_ms",
        "cycles",
        "due_ms",
        "goes_on",
        "group_search",
        "hopeless",
        "hopeless_seen",
        "ineligible",
        "is_put_off",
        "looked",
        "masked",
        "observed",
        "open",
        "ordered",
        "pledges_ended",
        "released",
        "reservation_search",
        "reservations_moved",
        "reservations_offered",
        "reservations_untold",
        "reserved_told",
        "seen",
        "tries",
        "unsuited",
        "unsuited_seen",
    )

    def __init__(self) -> None:  # noqa: PLR0915 - a record of the state
        self.due_ms: int | None = None
        """The next instant at which an ask has waited long enough to reserve."""
        self.seen = (-1, -1)
        """The values of two counters of the state at the beginning of the last round: one for freed capacity, and one for nodes."""
        self.open = False
        """Whether the round continues in the next tick.

        The round continues if its step budget ended, a plan was made, an ask took over reserved capacity, or a search is not
        over.
        """
        self.masked: set[tuple[str, str]] = set()
        """The policy and the key of each ask that was refused since the round began."""
        self.hopeless: set[int] = set()
        """The numbers of the classes that no node could hold. The numbers are valid while ``hopeless_seen`` stays the same."""
        self.hopeless_seen = (0, 0)
        """The value of `NodeIndex.entered` and the number of ended pledges when ``hopeless`` was computed."""
        self.ineligible: set[int] = set()
        """The numbers of the groups in which no ask may reserve. The number of a group is valid until an ask joins the group."""
        self.pledges_ended = 0
        self.ordered = 0
        """The number of times that capacity was pledged or the eviction of pods was ordered."""
        self.claim_search: ClaimSearch | None = None
        """The latest search for asks that may claim, None if no such search was begun."""
        self.group_search: GroupSearch | None = None
        """The latest search for asks that may replace other pods or count as gangs, None if no such search was begun."""
        self.claims_ms: int | None = None
        """The first instant at which an ask may claim in a round."""
        self.began_ms: int | None = None
        """The instant at which the last round of claims began."""
        self.arrivals = 0
        """The arrival number of the newest ask when the last round of claims began."""
        self.goes_on = False
        """Whether the last round of claims ended early because of its step budget, so that the next tick continues it."""
        self.is_put_off = False
        """Whether a configuration has just changed so many queues that ticks only place asks.

        Once a tick has placed all asks that fit, the next ticks make plans again, for one partition after the other (design
        6.16).
        """
        self.released: list[RoundReleases] = []
        """The releases that the last round of claims ordered, and those of earlier rounds within the window of the pace."""
        self.reservations_moved = False
        """Whether reserved nodes, or the asks that wait for reserved nodes, have changed.

        After such a change, the rounds try again to place asks of higher priority on the reserved nodes.
        """
        self.reservations_offered: set[tuple[str, ...]] = set()
        """The sets of reservations that were already offered to asks of higher priority when the step budget ended.

        The next tick continues with the sets that were not offered yet.
        """
        self.reservations_untold = False
        """Whether reservations changed after the blocked asks were last sent their reasons."""
        self.reserved_told: dict[Group, tuple[str, int]] = {}
        """The groups whose last reason for waiting names a reservation, each with the id of the reservation and the instant."""
        self.observed: dict[str, tuple[str, ...]] = {}
        """The plan that was last shown for each subject, in a partition that only observes (P8).

        The subject of a plan is its first preemptor, or the queue whose usage the plan reduces.
        """
        self.cycles = 0
        """The number of scheduling cycles in which placement ended within its budget.

        A waiting ask has missed each cycle that was counted since it began to wait (P2).
        """
        self.reservation_search: ReservationSearch | None = None
        """The latest search for asks that may reserve, None if no such search was begun."""
        self.looked = -1
        """The value of `Partition.relief` at the last check of open decisions for marked victims that are no longer needed (J11)."""
        self.tries: Tries = LiveTries()
        """The record of the asks that planning refused."""
        self.unsuited: set[int] = set()
        """The numbers of the groups whose asks are too large for every reserved node that they could take over.

        The numbers are valid while ``unsuited_seen`` stays the same.
        """
        self.unsuited_seen: tuple[str, ...] = ()
        """The value of `NodeIndex.entered` and the ids of the reservations when ``unsuited`` was computed."""
