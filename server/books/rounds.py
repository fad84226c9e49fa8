"""What the round loop keeps between ticks: where it stopped, and what it need not look at again (design 6.2).

Most of it only saves work: forgetting that changes no decision. When the last round of claims began and what the rounds
released is what holds the next ones back (P1, P5); a core that was restarted has forgotten it, and begins anew.
"""

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from server.books.tries import LiveTries, Tries
from server.view.pace import OverUse

if TYPE_CHECKING:
    from server.books.applications import Group


@dataclass(slots=True)
class Released:
    """What the claims of one round released: see `server.view.pace.Taken`.

    ``over`` is what queues had over their entitlements when it began, None as long as nobody asked (P9).
    """

    began_ms: int
    taken: Counter[tuple[str, str, int]]
    over: OverUse | None = None


class Round:
    """One partition's round.

    ``due_ms`` is the next instant at which time alone may let somebody reserve, ``claims_ms`` the one from which somebody
    may claim in a round. ``began_ms`` is when the last round of claims began, ``arrivals`` the last ask that had come then,
    ``goes_on`` whether its step budget cut it off; ``released`` has what it and earlier ones within the pace's window
    released. ``reservations_moved``: reserved nodes, or what waits for them, changed since asks of higher priority were tried there;
    ``reservations_offered`` has the asks of those that were offered together since then, while the step budget cuts the offers off.
    ``reservations_untold``: they changed since the asks that they keep waiting were told; ``reserved_told``
    has the groups that were told of a reservation, with its id and when.
    ``observed`` says by beneficiary what a partition that only observes was shown last (P8). ``cycles`` counts
    the passes in which placement tried everything (P2). ``seen`` are the counters of the books
    (relief, nodes) at which the last round began; ``open`` says that its budget cut it off, ``masked`` whom it has
    refused so far, by policy and key. ``hopeless`` has the numbers of classes that no node could hold, true
    as long as ``hopeless_seen`` (nodes that opened, pledges that ended); ``barren`` the numbers of groups
    in which no ask may reserve, true as long as no ask joins them; ``unsuited`` the numbers of groups that no reserved node which
    they could take over could hold, true as long as ``unsuited_seen`` (changes of nodes' shapes, reservations). ``looked`` is the relief at which it was looked last
    whether open decisions still need those who are only marked for them (J11). ``tries`` is what its planners remember of asks that they could not help.
    """

    __slots__ = (
        "arrivals",
        "barren",
        "began_ms",
        "claims_ms",
        "cycles",
        "due_ms",
        "goes_on",
        "hopeless",
        "hopeless_seen",
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
        self.claims_ms: int | None = None
        self.began_ms: int | None = None
        self.arrivals = 0
        self.goes_on = False
        self.released: list[Released] = []
        self.reservations_moved = False
        self.reservations_offered: set[tuple[str, ...]] = set()
        self.reservations_untold = False
        self.reserved_told: dict[Group, tuple[str, int]] = {}
        self.observed: dict[str, tuple[str, ...]] = {}
        self.cycles = 0
        self.looked = -1
        self.tries: Tries = LiveTries()
        self.unsuited: set[int] = set()
        self.unsuited_seen: tuple[str, ...] = ()
