"""The state of the round loop between ticks: where the loop stopped, and which asks it need not check again (design 6.2).

Most of this state only saves work, and losing it changes no decision. Two items are different, because they delay the next rounds
(P1, P5). These are the start of the last round of claims, and the releases of earlier rounds. A restart of the core forgets both.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from server.snapshot.pace import OverUse
from server.state.backoff import LiveTries, Tries

if TYPE_CHECKING:
    from server.model.quota import PartitionSpec
    from server.state.applications import Ask, Group

InTurn: TypeAlias = "tuple[tuple[int, int, int, int], Ask]"
"""An ask with its sort key among the claims of its leaf (P4)."""


@dataclass(slots=True)
class RoundReleases:
    """The releases that the claims of one round ordered: see `server.snapshot.pace.Taken`.

    ``over`` has the amounts by which queues were over their entitlements when the round began. It is None until it is needed
    (P9).
    """

    began_ms: int
    taken: Counter[tuple[str, str, int]]
    over: OverUse | None = None


@dataclass(slots=True)
class Look:
    """A *look*: a search for asks that may reserve, which takes several ticks because there are many groups.

    ``mark`` has the counters of the state when the look began. ``groups`` has the groups that are still to be searched. ``found``
    has, in order, the first asks that may reserve and that the round has not tried yet. ``due_ms`` is the next instant at which
    another ask may reserve. ``cut`` says that more asks were found than ``found`` keeps.
    """

    mark: tuple[int, ...]
    groups: "list[Group]"
    found: "list[Ask]" = field(default_factory=list)
    due_ms: int | None = None
    cut: bool = False

    @property
    def is_over(self) -> bool:
        """Return whether every group was examined, and every ask that was found has been tried."""
        return not (self.groups or self.found)


@dataclass(slots=True)
class ClaimsLook:
    """A look for asks that may claim: a search that takes several ticks because there are many groups.

    ``spec`` is the configuration when the look began. ``mark`` has the counters of the state at that time. ``groups`` are the
    groups that are still to be searched. ``found`` has the asks that may claim, by leaf. The first one in order is at the end of
    the list. ``untried`` has, by leaf, the asks that a tick took from ``found`` but did not try, because its budget ended.
    ``again_ms`` is the next instant at which another ask may claim.
    """

    spec: "PartitionSpec"
    mark: tuple[int, ...]
    groups: "list[Group]"
    found: dict[str, list[InTurn]] = field(default_factory=dict)
    untried: "dict[str, list[Ask]]" = field(default_factory=dict)
    again_ms: int | None = None

    @property
    def is_over(self) -> bool:
        """Return whether every group was examined, and every ask that was found has been tried."""
        return not (self.groups or self.found or self.untried)


@dataclass(slots=True)
class GroupsLook:
    """A look at groups, in several ticks, for asks that may replace other pods and for single asks that count as gangs.

    ``spec``, ``mark`` and ``again_ms`` are those of `ClaimsLook`. ``groups`` are the groups that are still to be planned for. The
    first one in order is at the end of the list. ``began_ms`` is the instant at which the look began.
    """

    spec: "PartitionSpec"
    mark: tuple[int, ...]
    groups: "list[Group]"
    began_ms: int
    again_ms: int | None = None


class Round:
    """The state of the rounds of one partition.

    - ``due_ms`` is the next instant at which time alone lets an ask reserve: it has then waited long enough.
    - ``claims_ms`` is the instant from which an ask may claim in a round. ``began_ms`` is when the last round of claims began.
      ``arrivals`` is the number of the last ask that had arrived when that round began. ``goes_on`` says whether the step budget
      ended that round early.
    - ``released`` has the releases of that round and of earlier rounds within the pace's window.
    - ``reservations_moved`` says that reserved nodes, or the asks that wait for them, have changed. Asks of higher priority are
      then tried on these nodes again. ``reservations_offered`` has the sets of reservations that were already offered to such asks
      when the step budget ended. The next tick continues with the other sets.
    - ``reservations_untold`` says that reservations changed after the asks that they block were last sent their reasons.
      ``reserved_told`` has the groups whose last reason names a reservation, with the reservation's id and the instant.
    - ``observed`` has the plan that was last shown, by subject, in a partition that only observes (P8). The subject of a plan is
      its first preemptor, or the queue whose usage it reduces.
    - ``cycles`` counts the scheduling cycles in which placement ended within its budget. An ask that still waits has missed each
      such cycle since it arrived (P2).
    - ``seen`` has the counters of the state (relief, nodes) when the last round began. ``open`` says that the round continues in
      the next tick, because its step budget ended, a plan or takeover was made, or a look is still open. ``masked`` has the asks
      that were refused since the round began, by policy and key.
    - ``hopeless`` has the numbers of classes that no node could hold. These numbers are valid while ``hopeless_seen``
      (`NodeIndex.entered` and the number of ended pledges) stays the same.
    - ``barren`` has the numbers of groups in which no ask may reserve. A number is valid until an ask joins its group.
    - ``unsuited`` has the numbers of groups whose asks are too large for each reserved node that they could take over. These
      numbers are valid while ``unsuited_seen`` (`NodeIndex.entered` and the ids of the reservations) stays the same.
    - ``look`` is the latest look for asks that may reserve. ``claims_look`` is the latest look for asks that may claim.
      ``groups_look`` is the latest look at groups beside the claims. Each is None if there is none.
    - ``looked`` is the value of `Partition.relief` when open decisions were last checked for marked victims that are no longer
      needed (J11).
    - ``tries`` is the planners' memory of asks that they refused.
    """

    __slots__ = (
        "arrivals",
        "barren",
        "began_ms",
        "claims_look",
        "claims_ms",
        "cycles",
        "due_ms",
        "goes_on",
        "groups_look",
        "hopeless",
        "hopeless_seen",
        "look",
        "looked",
        "masked",
        "observed",
        "open",
        "pledges_ended",
        "released",
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
        self.barren: set[int] = set()
        self.pledges_ended = 0
        self.claims_look: ClaimsLook | None = None
        self.groups_look: GroupsLook | None = None
        self.claims_ms: int | None = None
        self.began_ms: int | None = None
        self.arrivals = 0
        self.goes_on = False
        self.released: list[RoundReleases] = []
        self.reservations_moved = False
        self.reservations_offered: set[tuple[str, ...]] = set()
        self.reservations_untold = False
        self.reserved_told: dict[Group, tuple[str, int]] = {}
        self.observed: dict[str, tuple[str, ...]] = {}
        self.cycles = 0
        self.look: Look | None = None
        self.looked = -1
        self.tries: Tries = LiveTries()
        self.unsuited: set[int] = set()
        self.unsuited_seen: tuple[str, ...] = ()
