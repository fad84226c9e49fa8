"""The forecast of a configuration, as values: decisions with their instants, placements, and queues before and after.

All instants are milliseconds after the configuration is applied. `queries.forecast` makes these values, and `simulate config`
shows them.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from server.model.records import Amounts, DecisionRecord, DecisionState, QueueSimulation


@dataclass(frozen=True, slots=True)
class ForeseenDecision:
    """A decision of preemption that would be made, with its expected outcome."""

    after_ms: int
    record: DecisionRecord
    outcome: DecisionState
    unchanged: frozenset[str] = frozenset()
    """The keys of the victims that would be evicted without the change, too."""
    at_ms: int = 0
    """The decision's instant if the decision ends a wait that began before the change.

    Such an instant does not depend on when the change is made.
    """


class ForeseenPlacement(NamedTuple):
    """An ask that waits now and would get a node. ``decision_id`` names the decision that frees the capacity, "" for none."""

    after_ms: int
    key: str
    application_id: str
    queue: str
    node_id: str
    decision_id: str = ""


class ForeseenEnd(NamedTuple):
    """An ask or allocation that would end without a decision of preemption, such as a placeholder that timed out."""

    after_ms: int
    key: str
    application_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class QueueNumbers:
    """The numbers of a queue at one instant. ``held`` is its usage without what is being released.

    ``deserved`` and ``entitled`` are its shares if shares go by weight, else None. A ``draining`` queue takes no new
    applications.
    """

    held: Amounts
    guaranteed: Amounts
    max: Amounts
    weight: int
    allocations: int
    waiting: int
    deserved: Amounts | None = None
    entitled: Amounts | None = None
    draining: bool = False


@dataclass(frozen=True, slots=True)
class QueueForecast:
    """The numbers of a queue before the change, right after it, and at the end. Each is None while the queue does not exist."""

    queue: str
    before: QueueNumbers | None
    applied: QueueNumbers | None
    after: QueueNumbers | None


@dataclass(frozen=True, slots=True)
class PartitionForecast:
    """The forecast of one partition. ``quotas`` are the queues over their new maximum.

    ``removed`` says that the new configuration does not have the partition. ``observed`` says that the partition only observes
    under the new configuration. ``unsynced`` says that its manager is still sending its state, so that nothing was judged.
    """

    partition: str
    decisions: tuple[ForeseenDecision, ...] = ()
    placements: tuple[ForeseenPlacement, ...] = ()
    ends: tuple[ForeseenEnd, ...] = ()
    queues: tuple[QueueForecast, ...] = ()
    quotas: tuple[QueueSimulation, ...] = ()
    removed: bool = False
    observed: bool = False
    unsynced: bool = False


@dataclass(frozen=True, slots=True)
class Forecast:
    """The forecast of a configuration until nothing more happens, or until a limit ended it.

    ``cut`` names the limit that ended it, "" for none. ``until_ms`` is the last instant that was judged completely. ``ticks``
    is the number of ticks that were needed. ``assumptions`` lists this forecast's own assumptions. Those that every forecast
    makes are left out.
    """

    partitions: tuple[PartitionForecast, ...] = field(default=())
    until_ms: int = 0
    ticks: int = 0
    cut: str = ""
    assumptions: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Return whether the forecast ran until nothing more happens."""
        return not self.cut
