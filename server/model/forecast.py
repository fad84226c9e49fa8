"""The values of a configuration's forecast: decisions with their instants, placements, and queues before and after.

Each instant is the number of milliseconds after the application of the configuration. `queries.forecast` makes these values,
and `simulate config` shows them.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from server.model.records import Amounts, DecisionRecord, DecisionState, QueueSimulation


@dataclass(frozen=True, slots=True)
class ForeseenDecision:
    """A decision of preemption that the core would make, with its expected outcome."""

    after_ms: int
    record: DecisionRecord
    outcome: DecisionState
    unchanged: frozenset[str] = frozenset()
    """The keys of the victims that would also be evicted without the change."""
    at_ms: int = 0
    """The instant of a decision that ends a wait which began before the change.

    Such an instant does not depend on when the change is made. For other decisions the value is 0.
    """


class ForeseenPlacement(NamedTuple):
    """An ask that waits now and would receive a node.

    ``decision_id`` names the decision that frees the capacity. ``decision_id`` is "" if no decision frees the capacity.
    """

    after_ms: int
    key: str
    application_id: str
    queue: str
    node_id: str
    decision_id: str = ""


class ForeseenEnd(NamedTuple):
    """An ask or allocation that would end without a decision of preemption, such as a placeholder that times out."""

    after_ms: int
    key: str
    application_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class QueueNumbers:
    """The amounts of a queue at one instant. ``held`` has the usage without the allocations that are being released.

    ``deserved`` and ``entitled`` are the shares of the queue by weight. The two shares are None if queues are not entitled to
    shares by weight. A ``draining`` queue takes no new applications.
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
    """The numbers of a queue before the change, right after the change, and at the end.

    The numbers of an instant are None if the queue does not exist at that instant.
    """

    queue: str
    before: QueueNumbers | None
    applied: QueueNumbers | None
    after: QueueNumbers | None


@dataclass(frozen=True, slots=True)
class PartitionForecast:
    """The forecast of one partition. ``quotas`` has the queues that exceed their new maximum.

    ``removed`` says that the partition is not in the new configuration. ``observed`` says that the partition only observes under
    the new configuration. ``unsynced`` says that the manager is still sending its state, so that the partition has no forecast.
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
    """The forecast of a configuration, up to the instant after which nothing more happens, or up to a limit.

    ``cut`` names the limit that ended the forecast. ``cut`` is "" if no limit ended the forecast. ``until_ms`` is the last
    instant that the forecast judged completely. ``ticks`` is the number of ticks that the forecast took. ``assumptions`` has the
    assumptions of this forecast. The assumptions that every forecast makes are left out.
    """

    partitions: tuple[PartitionForecast, ...] = field(default=())
    until_ms: int = 0
    ticks: int = 0
    cut: str = ""
    assumptions: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Return whether the forecast reached an instant after which nothing more happens."""
        return not self.cut
