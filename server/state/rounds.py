"""The state of the round loop between ticks: where it stopped, and which asks it need not examine again (design 6.2).

Most of this state only saves work: without it the core would decide the same. Two parts delay the next rounds: the start of the
last round of claims, and the releases of earlier rounds (P1, P5). A restart of the core loses both. A *look* is a search
through all groups of waiting asks that takes several ticks.
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
"""An ask with its place among the claims of its leaf (P4)."""


@dataclass(slots=True)
class RoundReleases:
    """The releases that the claims of one round ordered: see `server.snapshot.pace.Taken`.

    ``over`` is the amount by which queues were over their entitlements when the round began, None until it is needed (P9).
    """

    began_ms: int
    taken: Counter[tuple[str, str, int]]
    over: OverUse | None = None


@dataclass(slots=True)
class Look:
    """A look for asks that may reserve. It examines more groups than one tick can.

    ``mark`` has the counters of the state in which the look began, ``groups`` the groups that are not examined yet. ``found``
    has the first asks in order that may reserve and that the round has not tried yet; ``cut`` says that there were more of
    them. ``due_ms`` is the next instant at which another ask may reserve.
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
    """A look for asks that may claim. It examines more groups than one tick can.

    ``spec`` is the configuration under which the look began, ``mark`` has the counters of the state at that time. ``groups``
    has the groups that are not examined yet. ``found`` has by leaf the asks that may claim, in reverse order of their turns.
    ``untried`` has by leaf the asks that a tick read but did not try, because its budget was used up. ``again_ms`` is the next
    instant at which another ask may claim.
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


class Round:
    """The state of the rounds of one partition.

    - ``due_ms`` is the next instant at which the passing of time alone may let an ask reserve.
    - ``claims_ms`` is the instant from which an ask may claim in a round. ``began_ms`` is when the last round of claims began,
      ``arrivals`` the number of the last ask that had arrived by then. ``goes_on`` says that the round used up the budget of
      steps, so that the next tick continues it.
    - ``released`` has the releases of that round and of earlier rounds within the pace's window.
    - ``reservations_moved`` says that reserved nodes, or the asks that may use them, changed since these nodes were last
      offered to asks of higher priority. ``reservations_offered`` has the sets of reservations that were offered already when
      the budget of steps was used up, so that the next tick continues with the others.
    - ``reservations_untold`` says that reservations changed since the reasons of the asks that they block were sent.
      ``reserved_told`` has the groups whose reason names a reservation, each with the reservation's id and the instant at which
      the reason was sent.
    - ``observed`` has by beneficiary the plan last shown by a partition that only observes (P8).
    - ``cycles`` counts the passes in which placement tried everything (P2).
    - ``seen`` has the counters of the state (relief, nodes) at which the last round began. ``open`` says that this round used
      up its budget and continues. ``masked`` has the asks that it has refused so far, as pairs of policy and key.
    - ``hopeless`` has the numbers of classes that no node could hold, valid while ``hopeless_seen`` (nodes that opened, pledges
      that ended) does not change.
    - ``barren`` has the numbers of groups in which no ask may reserve, valid while no ask joins them.
    - ``unsuited`` has the numbers of groups for which no reserved node that they could take over is large enough, valid while
      ``unsuited_seen`` (changes of nodes' shapes, reservations) does not change.
    - ``look`` is the look for asks that may reserve, None if one tick can examine all groups.
    - ``claims_look`` is the look for asks that may claim, None if one tick can examine all groups.
    - ``looked`` is the value of ``relief`` at the last check whether open decisions still need their marked victims (J11).
    - ``tries`` has the records of refused asks (see `state.backoff`).
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
