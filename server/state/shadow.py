"""The memory of a shadow: the decisions that it would have open, its records, and the asks that it refused.

The memory belongs to one configuration. It is forgotten when another configuration comes into force, and at a restart. A shadow
changes no other state.
"""

from collections import Counter
from typing import Final, NamedTuple

from server.model.quota import PartitionSpec
from server.model.records import Shrink
from server.model.shadow import Difference, ShadowRecord, Sum
from server.state.backoff import ShadowTries
from server.state.rounds import Round, RoundReleases

HELD_MAX: Final = 1_000
"""The largest number of open decisions of a shadow. A shadow with so many decides nothing until one of them ends."""
RECORDS_MAX: Final = 2_000
"""The largest number of records that are kept. Ended records are forgotten first, then the oldest ones."""


class ShadowPlacement(NamedTuple):
    """A placement in a shadow's decision: the key of the ask, and the node that it would get."""

    key: str
    node_id: str
    exclusive: bool


class OpenShadowDecision(NamedTuple):
    """An open decision of the shadow. Only the shadow's own rounds count its places as pledged and its victims as evicted.

    ``victims`` are keys, each with the rules that chose it. ``shrink`` has the numbers of a trim (surplus reclaim), which has
    no preemptor.
    """

    policy: str
    places: tuple[ShadowPlacement, ...]
    victims: tuple[tuple[str, str], ...]
    shrink: Shrink | None

    @property
    def subjects(self) -> tuple[str, ...]:
        """Return the asks that the decision is for, or the queue that it trims."""
        if self.shrink is not None:
            return (self.shrink.queue,)
        return tuple(one.key for one in self.places)


class Shadow:
    """The memory of one shadow. ``live`` is the specification in force. ``spec`` is the specification with the shadow's settings.

    - ``round`` has the pace of the shadow's own rounds.
    - ``held`` has its open decisions by first subject. ``checked`` is the decision that was last checked against the rules after it
      was made. ``checked_ms`` is the instant of that check.
    - ``records`` has the records by subject, oldest first. ``forgotten`` is the number of records that were dropped.
    - ``sums`` has totals by policy and side (live or shadow). ``told`` counts the records by how live and shadow differ.
    - ``seen`` has the counters of the state at which ended decisions were last looked for.
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
        """Start with the pace of ``paced``, the live side's round.

        Thus the evictions that earlier live rounds ordered use up the shadow's budgets too.
        """
        self.live = live
        self.spec = spec
        self.since_ms = since_ms
        self.round = Round()
        self.round.tries = ShadowTries()
        self.round.began_ms = paced.began_ms
        self.round.arrivals = paced.arrivals
        self.round.released = [
            RoundReleases(one.began_ms, Counter(one.taken)) for one in paced.released
        ]
        self.held: dict[str, OpenShadowDecision] = {}
        self.records: dict[str, ShadowRecord] = {}
        self.sums: dict[tuple[str, str], Sum] = {}
        self.told: Counter[Difference] = Counter()
        self.forgotten = 0
        self.seen: tuple[int, ...] = ()
        self.checked = ""
        self.checked_ms = since_ms

    def keep(self, record: ShadowRecord) -> None:
        """Keep a record as the latest of its subject, and count it in ``told`` unless it reports an end.

        Beyond RECORDS_MAX records, one is forgotten.
        """
        self.records.pop(record.key, None)
        self.records[record.key] = record
        self.told[record.difference] += not record.ended_ms
        if len(self.records) > RECORDS_MAX:
            ended = (key for key, one in self.records.items() if one.ended_ms)
            del self.records[next(ended, next(iter(self.records)))]
            self.forgotten += 1
