"""The state of the round loop between ticks: where the loop stopped, and which asks need no further check (design 6.2).

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
    """A search for asks that may reserve, which takes several ticks if there are many groups.

    ``mark`` has the counters of the state when the search began. ``groups`` has the groups that are not searched yet. ``found``
    has the first asks that may reserve and that the round has not tried yet, in order. ``due_ms`` is the next instant at which
    another ask may reserve. ``cut`` says that the search found more asks than ``found`` can hold.
    """

    mark: tuple[int, ...]
    groups: "list[Group]"
    found: "list[Ask]" = field(default_factory=list)
    due_ms: int | None = None
    cut: bool = False

    @property
    def is_over(self) -> bool:
        """Return whether every group was searched, and every ask that was found was tried."""
        return not (self.groups or self.found)


@dataclass(slots=True)
class ClaimSearch:
    """A search for asks that may claim, which takes several ticks if there are many groups.

    ``spec`` is the configuration when the search began. ``mark`` has the counters of the state at that time. If one of these
    counters changes, all groups must be searched again. ``changes`` has further counters. If one of these further counters
    changes, only the groups in ``joined`` and ``placeable`` must be searched again. ``queues`` has the queues whose groups are
    not in ``groups`` yet. ``groups`` has the groups that are not searched yet. ``found`` has the asks that may claim, by leaf.
    In each list, the ask that comes first in order is the last element. ``untried`` has, by leaf, the asks that a tick removed
    from ``found`` but did not try, because the budget of the tick ended. ``joined`` has the groups that an ask has joined since
    ``changes`` were read. ``placeable`` has the groups that did not wait for preemption when they were searched. ``again_ms`` is
    the next instant at which another ask may claim.
    """

    spec: "PartitionSpec"
    mark: tuple[int, ...]
    changes: tuple[int, ...]
    queues: "list[Queue]"
    groups: "list[Group]" = field(default_factory=list)
    found: dict[str, list[InTurn]] = field(default_factory=dict)
    untried: "dict[str, list[Ask]]" = field(default_factory=dict)
    joined: "dict[Group, None]" = field(default_factory=dict)
    placeable: "dict[Group, None]" = field(default_factory=dict)
    again_ms: int | None = None

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
    """A search for asks that may replace other pods, and for single asks that count as gangs.

    The search takes several ticks if there are many groups. ``spec``, ``mark`` and ``again_ms`` have the same meaning as in
    `ClaimSearch`. ``groups`` has the groups for which no policy has planned yet. The group that comes first in order is the last
    element. ``began_ms`` is the instant at which the search began.
    """

    spec: "PartitionSpec"
    mark: tuple[int, ...]
    groups: "list[Group]"
    began_ms: int
    again_ms: int | None = None


class Round:
    """The state of the rounds of one partition.

    - ``due_ms`` is the next instant at which an ask has waited long enough to reserve.
    - ``claims_ms`` is the first instant at which an ask may claim in a round. ``began_ms`` is the instant at which the last
      round of claims began. ``arrivals`` is the arrival number of the newest ask when that round began. ``goes_on`` says that
      the step budget ended that round early.
    - ``released`` has the releases of the last round of claims, and the releases of earlier rounds within the window of the
      pace.
    - ``reservations_moved`` says that reserved nodes have changed, or that the asks that wait for these nodes have changed.
      After such a change, the rounds try again to place asks of higher priority on the reserved nodes. ``reservations_offered``
      has the sets of reservations that were already offered to such asks when the step budget ended. The next tick continues
      with the sets that were not offered yet.
    - ``reservations_untold`` says that reservations changed after the blocked asks were last sent their reasons.
      ``reserved_told`` has each group whose last reason names a reservation, with the id of the reservation and the instant.
    - ``observed`` has the plan that was last shown for each subject, in a partition that only observes (P8). The subject of a
      plan is its first preemptor, or the queue whose usage the plan reduces.
    - ``cycles`` is the number of scheduling cycles in which placement ended within its budget. A waiting ask has missed each
      cycle that was counted since it began to wait (P2).
    - ``seen`` has the values of two counters of the state at the beginning of the last round: one for freed capacity, and one
      for nodes. ``open`` says that the round continues in the next tick, because its step budget ended, a plan or takeover was
      made, or a search is not over. ``masked`` has the policy and the key of each ask that was refused since the round began.
    - ``hopeless`` has the numbers of the classes that no node could hold. These numbers are valid while ``hopeless_seen`` stays
      the same: `NodeIndex.entered` and the number of ended pledges.
    - ``ineligible`` has the numbers of the groups in which no ask may reserve. The number of a group is valid until an ask joins
      the group.
    - ``unsuited`` has the numbers of the groups whose asks are too large for every reserved node that they could take over.
      These numbers are valid while ``unsuited_seen`` stays the same: `NodeIndex.entered` and the ids of the reservations.
    - ``reservation_search`` is the latest search for asks that may reserve. ``claim_search`` is the latest search for asks that
      may claim. ``group_search`` is the latest search for asks that may replace other pods or count as gangs. Each of these
      three fields is None if no search of its kind was begun.
    - ``ordered`` is the number of times that capacity was pledged or the eviction of pods was ordered.
    - ``is_put_off`` says that a configuration has just changed so many queues that ticks only place asks. Once a tick has placed
      all asks that fit, the next ticks make plans again, for one partition after the other (design 6.16).
    - ``looked`` is the value of `Partition.relief` at the last check of open decisions for marked victims that are no longer
      needed (J11).
    - ``tries`` is the record of the asks that planning refused.
    """

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

    def __init__(self) -> None:
        self.due_ms: int | None = None
        self.seen = (-1, -1)
        self.open = False
        self.masked: set[tuple[str, str]] = set()
        self.hopeless: set[int] = set()
        self.hopeless_seen = (0, 0)
        self.ineligible: set[int] = set()
        self.pledges_ended = 0
        self.ordered = 0
        self.claim_search: ClaimSearch | None = None
        self.group_search: GroupSearch | None = None
        self.claims_ms: int | None = None
        self.began_ms: int | None = None
        self.arrivals = 0
        self.goes_on = False
        self.is_put_off = False
        self.released: list[RoundReleases] = []
        self.reservations_moved = False
        self.reservations_offered: set[tuple[str, ...]] = set()
        self.reservations_untold = False
        self.reserved_told: dict[Group, tuple[str, int]] = {}
        self.observed: dict[str, tuple[str, ...]] = {}
        self.cycles = 0
        self.reservation_search: ReservationSearch | None = None
        self.looked = -1
        self.tries: Tries = LiveTries()
        self.unsuited: set[int] = set()
        self.unsuited_seen: tuple[str, ...] = ()
