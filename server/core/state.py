"""The state of the core: partitions, resource managers, the configuration in force, and timers."""

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from server.model.assignment import Assignment
from server.model.decisions import Decision
from server.model.moves import TableChange
from server.model.parts import Parts, whole
from server.model.quota import DEFAULT_CONFIGURATION, Configuration, PartitionSpec
from server.model.revisions import Beginning, Revision
from server.state import tree
from server.state.partition import Partition
from server.state.prepared import Prepared

REGISTER_FIRST = "resource manager {rm_id!r} is not registered: call RegisterResourceManager first"


@dataclass(slots=True)
class Session:
    """A session that can be resumed: the counts of its three streams since its registration (design 7.5).

    The keys of ``taken`` and ``sent`` are the names of the streams (`server.core.events.sessions`).
    """

    name: str
    taken: dict[str, int] = field(default_factory=dict)
    """The number of messages from the manager that the core has handled, by stream."""
    sent: dict[str, int] = field(default_factory=dict)
    """The number of decisions for the manager that the core has made, by stream."""


@dataclass(slots=True)
class Manager:
    """A registered resource manager (shim). Instants are Unix milliseconds."""

    rm_id: str
    version: str
    policy_group: str
    registered_ms: int
    explicit_sync: bool
    synced: bool
    recovered: int = 0
    """The number of allocations, without foreign pods, that the manager had when it completed its sync."""
    recovered_asks: int = 0
    """The number of waiting asks that the manager had when it completed its sync."""
    disruptions_allowed: dict[str, int] = field(default_factory=dict)
    """The number of pods that may be evicted now, by disruption group (V5)."""
    epoch: int = 0
    """The highest epoch in which the manager registered, or 0 if it registered without an epoch (design 7.2)."""
    instance: str = ""
    """The name of the shim's process that registered last."""
    groups_unreported: dict[str, None] = field(default_factory=dict)
    """The disruption groups that the manager has not reported since it registered again."""
    session: Session | None = field(default=None, repr=False)
    """The session of the manager, if it can be resumed."""
    was_synced: bool = field(default=False, repr=False)
    """Whether the manager had completed its sync when this process became the leader. Its session can then be resumed."""

    def can_resume(self, session: str) -> bool:
        """Return whether the manager's session has the name ``session`` and can be resumed.

        A session can be resumed only if the manager had completed its sync.
        """
        is_named = self.session is not None and self.session.name == session
        return is_named and (self.synced or self.was_synced)


Timer = tuple[int, int, str, str, str]
"""A timer: its instant, serial number, kind and partition name, and the key or id of the object that it is about."""


@dataclass(slots=True)
class Leaving:
    """A partition that is being moved to another group of cores.

    During the move, the core makes no decisions for the partition (design 7.9).
    """

    group: str
    until_ms: int
    """The instant from which the core decides for the partition again, unless the move is complete before this instant."""
    timers: list[Timer] = field(default_factory=list)
    """The timers that became due during the move."""


@dataclass(slots=True)
class MovedPartition:
    """A partition with all state that its core has about the partition. A move to another core transfers this state."""

    partition: Partition
    timers: list[Timer]
    manager: Manager | None
    """The manager that owns the partition, or None."""
    configuration: str
    """The digest of the configuration in force."""


@dataclass(slots=True)
class Arrival:
    """A partition of another group, kept until a shim registers with the table that gives the partition to this group (design 7.9)."""

    moved: MovedPartition
    group: str
    """The group that owned the partition before."""
    revision: int
    """The revision of this core's group in the table that records the move."""


@dataclass(frozen=True, slots=True)
class Left:
    """The steps that are left of a partition's change to the configuration in force (design 6.16).

    ``is_in_force`` says that the new specification is in force in the partition. While steps are left, asks may have the gang
    classes that they had before the change (`reclassing`). ``before`` is the former specification until the timers of quota
    runs are set, and None otherwise.
    """

    is_in_force: bool = False
    before: PartitionSpec | None = None


class State:
    """The whole state of the core.

    ``configured`` says that a file configures the core, so that registrations do not configure it. Otherwise ``configured_by``
    names the manager whose registrations configure the core: the first manager that brought a configuration. ``configured_by``
    is "" before any manager has brought a configuration, and again after that first manager is forgotten. ``given`` has, for
    each manager, the digest of its last configuration text, even if the text did not come into force. Only the last
    `configuration.GIVEN_MAX` managers are stored. ``past`` contains earlier configurations by revision number. ``notes`` has
    the decisions that the present event or tick still has to report. ``prepared`` has, for each partition, the queues that were
    prepared for a configuration that may come into force next. ``ended`` has removed partitions, whose memory is freed together
    with the prepared objects. ``outdated`` has the partitions whose change to the configuration in force is not complete, with
    the steps that are left. Each of the next ticks does one step of the first of these changes. ``assignment`` says for which
    partitions of the configuration this core decides; without an assignment, it decides for all partitions. ``leaving`` has the
    partitions of this core that are being moved to another group. ``copies`` has, for each partition that is being moved to
    this core, the parts of the copy that have arrived, and ``arrivals`` has the complete copies. ``changes`` has the last
    moves, in order.
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
        self.assignment = beginning.assignment
        self.configuration = configuration or DEFAULT_CONFIGURATION
        self.revision = beginning.revision
        self.past: Mapping[int, Configuration] = {}
        self.given = beginning.given
        self.managers: dict[str, Manager] = {}
        self.partitions: dict[str, Partition] = {}
        self.timers: list[Timer] = []
        self.timer_numbers = 0
        self.notes: list[Decision] = []
        self.outdated: dict[str, Left] = {}
        self.prepared: dict[str, Prepared] = {}
        self.ended: list[Partition] = []
        self.leaving: dict[str, Leaving] = {}
        self.copies: dict[str, list[str]] = {}
        self.arrivals: dict[str, Arrival] = {}
        self.changes: tuple[TableChange, ...] = ()
        for spec in self.own(self.configuration):
            whole(self.add_partition_of(spec))

    def own(self, configuration: Configuration) -> tuple[PartitionSpec, ...]:
        """Return the partitions of a configuration for which this core decides (design 7.6)."""
        assignment = self.assignment
        if assignment is None:
            return configuration.partitions
        return tuple(one for one in configuration.partitions if assignment.owns(one.name))

    def given_away(self, table: Assignment) -> str:
        """Return the first partition for which this core decides although a table gives the partition to another group.

        Return "" if there is none.
        """
        found = (one.name for one in self.own(self.configuration) if not table.owns(one.name))
        return next(found, "")

    def other_owner(self, partition: str) -> str:
        """Return the other group of cores that decides for a partition.

        Return "" if this core decides for it, or if no configuration has the partition.
        """
        assignment = self.assignment
        is_known = self.configuration.partition(partition) is not None
        if assignment is None or assignment.owns(partition) or not is_known:
            return ""
        return assignment.owner(partition)

    def why_absent(self, partition: str) -> str:
        """Return a text that says why this core does not decide for a partition: another group decides, or no configuration has the partition."""
        owner = self.other_owner(partition)
        if self.assignment is not None and owner:
            group = self.assignment.group
            return f"partition {partition!r} belongs to cores {owner!r}, this is one of cores {group!r}"
        return f"partition {partition!r} is not configured"

    def add_partition_of(self, spec: PartitionSpec) -> Parts[None]:
        """Create, in parts, the partition of a specification."""
        prepared = self.prepared_for(spec)
        if prepared is not None and prepared.is_applied:
            self.partitions[spec.name] = prepared.partition
            return
        partition = self.partitions[spec.name] = Partition(spec)
        yield from tree.apply_spec_in_parts(partition, spec)

    def prepared_for(self, spec: PartitionSpec) -> Prepared | None:
        """Return the objects that were prepared for this specification of a partition, or None if no objects were prepared."""
        found = self.prepared.get(spec.name)
        return found if found is not None and found.spec is spec else None

    def at(self, due: int, kind: str, partition: str, subject: str) -> None:
        """Set a timer for instant ``due``.

        A timer cannot be cancelled; instead, its action checks whether the timer is still valid.
        """
        self.timer_numbers += 1
        heapq.heappush(self.timers, (due, self.timer_numbers, kind, partition, subject))

    def expect(self, partition: Partition, expiring: Iterable[tuple[int, str]]) -> None:
        """Set a timer for each pair of an instant and the id of a decision.

        At that instant, the decision expires if it has not ended.
        """
        for instant, decision_id in expiring:
            self.at(instant, "decision", partition.name, decision_id)

    def take_notes(self) -> list[Decision]:
        """Remove and return the decisions that still have to be reported, in order."""
        notes, self.notes = self.notes, []
        return notes

    def due(self, now: int) -> list[Timer]:
        """Remove and return the timers that are due, in order of their instants.

        Timers of the same instant come in the order in which they were set.
        """
        timers = []
        while self.timers and self.timers[0][0] <= now:
            timers.append(heapq.heappop(self.timers))
        return timers

    def owned_by(self, rm_id: str) -> list[Partition]:
        """Return the partitions that belong to a manager."""
        return [one for one in self.partitions.values() if one.owner == rm_id]

    def disruptions(self, partition: Partition) -> dict[str, int]:
        """Return how many pods of each disruption group may be evicted, as the partition's manager reported.

        The result is empty if no registered manager owns the partition. The caller must not change the result, because it is
        the mapping in which the manager's numbers are stored.
        """
        manager = self.managers.get(partition.owner)
        return {} if manager is None else manager.disruptions_allowed

    def synced(self, partition: Partition) -> bool:
        """Return whether asks may be placed in the partition.

        The partition's manager must have completed the sync, and the partition must not be on a move to another group of cores (design 1.10, 7.9).
        """
        return self.reported(partition) and partition.name not in self.leaving

    def reported(self, partition: Partition) -> bool:
        """Return whether the manager that owns the partition has completed its sync.

        A partition that no registered manager owns counts as reported.
        """
        manager = self.managers.get(partition.owner)
        return manager is None or manager.synced
