"""What a shadow remembers of a partition: what it would have going, what it said, and how it tried (7.2 `shadow`).

It belongs to one configuration, and is forgotten with that and at a restart. It moves nothing but itself.
"""

from collections import Counter
from typing import Final, NamedTuple

from server.books.rounds import Released, Round
from server.books.tries import ShadowTries
from server.model.quota import PartitionSpec
from server.model.records import Shrink
from server.model.shadow import Difference, ShadowRecord, Sum

HELD_MAX: Final = 1_000
"""Decisions of a shadow that stand; past that it decides nothing more until some end."""
RECORDS_MAX: Final = 2_000
"""Records that are kept; those that ended are forgotten first, then the oldest."""


class Place(NamedTuple):
    """Who would get room where."""

    key: str
    node_id: str
    exclusive: bool


class Held(NamedTuple):
    """A decision of the shadow that stands: the room counts as pledged, the victims as gone, in its rounds alone.

    ``victims`` are keys, each with the rules that picked it; ``shrink`` has the numbers of a trim, which is for nobody.
    """

    policy: str
    places: tuple[Place, ...]
    victims: tuple[tuple[str, str], ...]
    shrink: Shrink | None

    @property
    def subjects(self) -> tuple[str, ...]:
        """The asks that it is for, or the queue that it trims."""
        if self.shrink is not None:
            return (self.shrink.queue,)
        return tuple(one.key for one in self.places)


class Shadow:
    """The memory. ``live`` is the specification in force, ``spec`` the same with the shadow's settings.

    ``round`` paces the shadow's own rounds, ``held`` is by first subject, ``records`` by subject, oldest first;
    ``sums`` is by policy and side, ``told`` counts records by difference, ``forgotten`` those that are not kept any more.
    ``checked`` is the last of ``held`` of which the laws were asked again, at ``checked_ms``.
    ``seen`` is the state of the books at which ended decisions were last looked for.
    """

    __slots__ = (
        "checked",
        "checked_ms",
        "forgotten",
        "held",
        "live",
        "records",
        "round",
        "seen",
        "since_ms",
        "spec",
        "sums",
        "told",
    )

    def __init__(
        self, live: PartitionSpec, spec: PartitionSpec, paced: Round, since_ms: int
    ) -> None:
        """``paced`` is the live side's round: what rounds released before is a fact for the shadow, too."""
        self.live = live
        self.spec = spec
        self.since_ms = since_ms
        self.round = Round()
        self.round.tries = ShadowTries()
        self.round.began_ms = paced.began_ms
        self.round.arrivals = paced.arrivals
        self.round.released = [Released(one.began_ms, Counter(one.taken)) for one in paced.released]
        self.held: dict[str, Held] = {}
        self.records: dict[str, ShadowRecord] = {}
        self.sums: dict[tuple[str, str], Sum] = {}
        self.told: Counter[Difference] = Counter()
        self.forgotten = 0
        self.seen: tuple[int, ...] = ()
        self.checked = ""
        self.checked_ms = since_ms

    def keep(self, record: ShadowRecord) -> None:
        """The latest word on its subject."""
        self.records.pop(record.key, None)
        self.records[record.key] = record
        self.told[record.difference] += not record.ended_ms
        if len(self.records) > RECORDS_MAX:
            ended = (key for key, one in self.records.items() if one.ended_ms)
            del self.records[next(ended, next(iter(self.records)))]
            self.forgotten += 1
