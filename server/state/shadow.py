"""The memory of a shadow: its open decisions, which are not carried out, its records, and the asks that it refused.

The memory belongs to one configuration. The memory is forgotten when another configuration comes into force, and at a restart.
A shadow changes no other state.
"""

from collections import Counter
from typing import Final, NamedTuple

from server.model.quota import PartitionSpec
from server.model.records import Shrink
from server.model.shadow import Difference, ShadowRecord, Sum
from server.state.backoff import ShadowTries
from server.state.rounds import Round, RoundReleases

HELD_MAX: Final = 1_000
"""The largest number of open decisions of a shadow. At this number, the shadow decides nothing until one of its decisions ends."""
RECORDS_MAX: Final = 2_000
"""The largest number of records that are kept.

If there are more records, ended records are forgotten first, and then the oldest records.
"""


class ShadowPlacement(NamedTuple):
    """A placement in a shadow's decision: the key of the ask, and the node that it would get."""

    key: str
    node_id: str
    exclusive: bool


class OpenShadowDecision(NamedTuple):
    """An open decision of the shadow. Only the rounds of the shadow count the capacity as pledged and the victims as evicted."""

    policy: str
    places: tuple[ShadowPlacement, ...]
    victims: tuple[tuple[str, str], ...]
    """The key of each victim, with the rules that chose it."""
    shrink: Shrink | None
    """The amounts of a surplus reclaim (trim). A surplus reclaim has no preemptor."""

    @property
    def subjects(self) -> tuple[str, ...]:
        """Return the keys of the asks that get capacity by the decision, or the queue whose usage a surplus reclaim reduces."""
        if self.shrink is not None:
            return (self.shrink.queue,)
        return tuple(one.key for one in self.places)


class Shadow:
    """The memory of one shadow."""

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
        """Create the memory, with a copy of the releases in ``paced``, the state of the live rounds.

        The evictions that earlier live rounds ordered thus use up the budgets of the shadow too.
        """
        self.live = live
        """The specification in force."""
        self.spec = spec
        """The specification with the shadow's settings."""
        self.since_ms = since_ms
        self.round = Round()
        """The state of the shadow's own rounds, with their pace."""
        self.round.tries = ShadowTries()
        self.round.began_ms = paced.began_ms
        self.round.arrivals = paced.arrivals
        self.round.released = [
            RoundReleases(one.began_ms, Counter(one.taken)) for one in paced.released
        ]
        self.held: dict[str, OpenShadowDecision] = {}
        """The open decisions of the shadow, each under the key of its first subject."""
        self.records: dict[str, ShadowRecord] = {}
        """The records by subject, with the oldest record first."""
        self.sums: dict[tuple[str, str], Sum] = {}
        """The totals of decisions by policy and side (live or shadow)."""
        self.told: Counter[Difference] = Counter()
        """The number of records for each kind of difference between live decisions and decisions of the shadow."""
        self.forgotten = 0
        """The number of records that were dropped."""
        self.seen: tuple[int, ...] = ()
        """The counters of the partition when the shadow last searched its open decisions for decisions that are no longer possible.

        If the counters are still equal, no search is needed.
        """
        self.checked = ""
        """The key of the open decision that was last checked against the rules again."""
        self.checked_ms = since_ms
        """The instant at which the decision in ``checked`` was checked."""

    def keep(self, record: ShadowRecord) -> None:
        """Keep a record as the latest record of its subject. Count the record in ``told`` unless it reports the end of a decision.

        If there are more than RECORDS_MAX records, forget one record.
        """
        self.records.pop(record.key, None)
        self.records[record.key] = record
        self.told[record.difference] += not record.ended_ms
        if len(self.records) > RECORDS_MAX:
            ended = (key for key, one in self.records.items() if one.ended_ms)
            del self.records[next(ended, next(iter(self.records)))]
            self.forgotten += 1
