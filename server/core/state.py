"""The state of the core: partitions, resource managers, the configuration in force, and its timers."""

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from server.model.decisions import Decision
from server.model.quota import DEFAULT_CONFIGURATION, Configuration
from server.model.revisions import Beginning, Revision
from server.state import tree
from server.state.partition import Partition

REGISTER_FIRST = "resource manager {rm_id!r} is not registered: call RegisterResourceManager first"


@dataclass(slots=True)
class Manager:
    """A registered resource manager (shim)."""

    rm_id: str
    version: str
    policy_group: str
    registered_ms: int
    explicit_sync: bool
    synced: bool
    counts: dict[str, int] = field(default_factory=dict)
    """The number of objects accepted from the manager since it registered, compared with its own counts at the end of the sync."""
    recovered: int = 0
    """The number of allocations in its partitions when it completed its sync."""
    recovered_asks: int = 0
    """The number of waiting asks when it completed its sync."""
    disruptions_allowed: dict[str, int] = field(default_factory=dict)
    """The number of pods of each disruption group that may be evicted now (V5)."""


Timer = tuple[int, int, str, str, str]
"""A timer, with the fields (due, number, kind, partition, subject)."""


class State:
    """The whole state of the core.

    ``configured`` says that a file configures the core, not registrations. Otherwise ``configured_by`` names the manager whose
    registrations configure the core: the first manager that brought a configuration. ``given`` has by manager the digest of the
    configuration text that it sent last, even if that text did not come into force.
    """

    def __init__(
        self, configuration: Configuration | None, beginning: Beginning | None = None
    ) -> None:
        if beginning is None:
            source = "" if configuration is None else "file"
            digest = (configuration or DEFAULT_CONFIGURATION).digest
            configured = configuration is not None
            beginning = Beginning(Revision(1, digest, source), configured=configured)
        self.configured = beginning.configured
        self.configured_by = ""
        self.configuration = configuration or DEFAULT_CONFIGURATION
        self.revision = beginning.revision
        self.past: Mapping[int, Configuration] = {}
        self.given = beginning.given
        self.managers: dict[str, Manager] = {}
        self.partitions: dict[str, Partition] = {}
        self.timers: list[Timer] = []
        self.timer_numbers = 0
        self.notes: list[Decision] = []
        for spec in self.configuration.partitions:
            self.add_partition_of(spec.name)

    def add_partition_of(self, name: str) -> Partition:
        """Create a partition according to the configuration in force."""
        spec = next(one for one in self.configuration.partitions if one.name == name)
        partition = self.partitions[name] = Partition(spec)
        tree.apply_spec(partition, spec)
        return partition

    def at(self, due: int, kind: str, partition: str, subject: str) -> None:
        """Set a timer. Its handler checks whether the timer is still valid."""
        self.timer_numbers += 1
        heapq.heappush(self.timers, (due, self.timer_numbers, kind, partition, subject))

    def expect(self, partition: Partition, expiring: Iterable[tuple[int, str]]) -> None:
        """Set a timer for each decision. The decision expires when the timer is due, unless it ended before."""
        for instant, decision_id in expiring:
            self.at(instant, "decision", partition.name, decision_id)

    def due(self, now: int) -> list[Timer]:
        """Remove and return the timers that are due, in order of their instants."""
        timers = []
        while self.timers and self.timers[0][0] <= now:
            timers.append(heapq.heappop(self.timers))
        return timers

    def disruptions(self, partition: Partition) -> dict[str, int]:
        """Return how many pods of each disruption group may be evicted, as the partition's manager reported."""
        manager = self.managers.get(partition.owner)
        return {} if manager is None else manager.disruptions_allowed

    def synced(self, partition: Partition) -> bool:
        """Return whether the partition may place: the manager that owns it has completed its sync (1.10)."""
        manager = self.managers.get(partition.owner)
        return manager is None or manager.synced
