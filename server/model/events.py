"""The events that the core handles, as values. `Core.handle` takes one event, with the instant at which the core sees the event.

Every event carries the ``rm_id`` of the resource manager (shim) that sent it. The core sends its answers to that manager.
"""

from collections.abc import Mapping
from typing import NamedTuple

from server.model.asks import NO_TAGS, AskSpec, Generation, ReleaseMark, Tags, Taint
from server.model.assignment import Assignment
from server.model.decisions import Termination
from server.model.moves import MoveStep
from server.model.quota import Configuration
from server.model.resources import NOTHING, Resource
from server.model.revisions import ANY_BASE, Base


class ManagerRegistered(NamedTuple):
    """The registration of a shim (design 1.10).

    A second registration with the same id removes the objects that the manager reported before, unless the registration has an
    explicit sync and no ``forget``. In an *explicit sync* the manager also reports the end of its sync. At this end the core
    compares the objects that it kept with the objects that were reported again.
    """

    rm_id: str
    version: str = ""
    policy_group: str = ""
    explicit_sync: bool = False
    configuration: Configuration | None = None
    """The configuration of the shim. The core does not apply this configuration in three cases.

    First, a file configures the core (`serve --config`). Second, another manager was the first to bring a configuration. Third,
    the text equals the text that this manager sent last, and another configuration was applied since.
    """
    by: str = ""
    """The name of the caller."""
    epoch: int = 0
    """The number of the election by which this process became the shim, or 0 without an election (design 7.2)."""
    instance: str = ""
    """The name of the process that registers."""
    forget: bool = False
    """Whether to remove the objects that the manager reported before, although the registration has an explicit sync."""
    session: str = ""
    """The name that the shim gives to the session that begins, or "" for a session without a name (design 7.5)."""
    table_revision: int = 0
    """The revision of the core's group in the shim's table of cores, or 0 if the shim has no table (design 7.6)."""
    one_by_one: bool = False
    """Whether the configuration changes one partition after the other, as for `ConfigurationApplied`."""

    @property
    def resumes(self) -> bool:
        """Return whether the objects that the manager reported before stay until its sync ends."""
        return self.explicit_sync and not self.forget

    @property
    def resumable_session(self) -> str:
        """Return the name of the session that begins, or "" if the session cannot be resumed, because it has no explicit sync."""
        return self.session if self.explicit_sync else ""


class SessionResumed(NamedTuple):
    """The continuation of a session after a loss of the connection. The shim does not report its objects again (design 7.5)."""

    rm_id: str
    session: str


class MessagesTaken(NamedTuple):
    """The number of messages that the core has taken from each stream of a session since the last such event (design 7.5).

    With ``ends``, the session cannot be resumed any more, because a message had objects that no event describes.
    """

    rm_id: str
    nodes: int = 0
    applications: int = 0
    allocations: int = 0
    ends: bool = False


class ManagerWiped(NamedTuple):
    """The removal of earlier asks and allocations of a shim, before the shim registers again.

    One event removes at most ``most`` asks and allocations.

    The limit ``most`` keeps the work for one event short. The registration itself removes the remaining objects. Nothing is
    removed if ``epoch`` is lower than the epoch in which the shim registered.
    """

    rm_id: str
    most: int
    epoch: int = 0


class ManagerForgotten(NamedTuple):
    """The end of a registration whose shim is gone and has no objects left.

    The registration stays if the shim registered again after ``since``.
    """

    rm_id: str
    since: int


class LeadershipTaken(NamedTuple):
    """The start of a core that has the state of another process.

    Every manager must register again before the core decides anything for that manager.

    ``rm_id`` is empty because the event comes from no manager. ``assignment`` is the table of cores with which the core was
    started. The core uses this table only if the previous process had no table, and if the table gives no partition to another
    group (design 7.6).
    """

    rm_id: str = ""
    assignment: Assignment | None = None


class PartitionMoving(NamedTuple):
    """A step of the move of a partition to or from another group of cores (design 7.9).

    ``group`` is the other group. ``revision`` is the revision of the core's own group after the move, and ``group_revision`` is
    the revision of the other group after the move. ``until_ms`` is the instant at which a move that was not completed is given
    up.
    """

    step: MoveStep
    partition: str
    group: str = ""
    revision: int = 0
    group_revision: int = 0
    until_ms: int = 0
    number: int = 0
    """The number of the part that the event brings, counted from 0."""
    content: str = ""
    """The content of the part that the event brings, in base 85."""
    rm_id: str = ""
    """Empty, because the event comes from no manager."""


class ConfigurationApplied(NamedTuple):
    """The application of a checked configuration. ``source`` says where the configuration came from.

    An event with a ``base`` is refused if the configuration in force is neither the base nor the configuration of the event. An
    event with an ``rm_id`` has the text that this manager sends in each of its sessions. Such an event is refused if the text
    equals the text that the manager sent last, and another configuration was applied since. If the core has no earlier text of
    the manager, the event is refused while an operator's configuration is in force.
    """

    configuration: Configuration
    source: str
    rm_id: str = ""
    base: Base = ANY_BASE
    by: str = ""
    """The name of the caller."""
    one_by_one: bool = False
    """Whether the event changes only one existing partition, and each of the next ticks changes one more.

    Without this flag, the event changes all partitions. Events in older traces have no such flag.
    """


class SyncCompleted(NamedTuple):
    """The end of a shim's sync: the shim has sent all objects that it knows.

    The core compares the numbers of objects with its own, and reports differences. If all numbers are 0, it compares nothing.
    """

    rm_id: str
    nodes: int = 0
    applications: int = 0
    allocations: int = 0
    asks: int = 0


class NodeAdded(NamedTuple):
    """The event CREATE of a node, or CREATE_DRAIN if ``schedulable`` is False."""

    rm_id: str
    node_id: str
    capacity: Resource
    schedulable: bool = True
    partition: str = "default"
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()


class NodeUpdated(NamedTuple):
    """The event UPDATE of a node: its capacity, labels or taints changed.

    If a field is None, the corresponding property of the node stays as it is.
    """

    rm_id: str
    node_id: str
    capacity: Resource | None = None
    partition: str = "default"
    labels: tuple[tuple[str, str], ...] | None = None
    taints: tuple[Taint, ...] | None = None


class NodeDrained(NamedTuple):
    """The event DRAIN_NODE: the node takes no new placements, and its pods continue to run."""

    rm_id: str
    node_id: str
    partition: str = "default"


class NodeEnabled(NamedTuple):
    """The event DRAIN_TO_SCHEDULABLE: the node takes placements from now on."""

    rm_id: str
    node_id: str
    partition: str = "default"


class NodeRemoved(NamedTuple):
    """The event DECOMISSION: the node is gone. The core releases all allocations on the node and reports the releases."""

    rm_id: str
    node_id: str
    partition: str = "default"


class ApplicationAdded(NamedTuple):
    """The submission of an application. The placement rules decide the queue of the application.

    If ``placeholder_ask`` is set, no other pod of the application is placed before its placeholders have this resource in total
    (docs/gang-placeholders.md). ``execution_timeout_ms`` is the time within which the placeholders must reach the total, and
    within which they must be replaced. If ``gang_style`` is Hard, the application fails after that time.
    """

    rm_id: str
    application_id: str
    queue: str = ""
    partition: str = "default"
    user: str = ""
    groups: tuple[str, ...] = ()
    tags: Mapping[str, str] = {}
    execution_timeout_ms: int = 0
    gang_style: str = ""
    placeholder_ask: Resource = NOTHING


class ApplicationRetagged(NamedTuple):
    """The new tags of a known application, in place of its old tags.

    The quota in the tags applies to the dynamic queue of the application at once.
    """

    rm_id: str
    application_id: str
    tags: Mapping[str, str]
    partition: str = "default"


class ApplicationRemoved(NamedTuple):
    """The end of an application: its asks are removed, and its allocations are released with STOPPED_BY_RM."""

    rm_id: str
    application_id: str
    partition: str = "default"


class AskAdded(NamedTuple):
    """A new ask. If the core has an ask or allocation with this key, the event updates that ask or allocation."""

    rm_id: str
    key: str
    application_id: str
    spec: AskSpec
    partition: str = "default"
    created_ms: int | None = None
    tags: Tags = NO_TAGS
    generation: Generation = Generation.ALLOCATION


class AllocationAdded(NamedTuple):
    """An existing allocation (recovery or update), which the core accepts even if the free capacity is too small (design 1.10)."""

    rm_id: str
    key: str
    application_id: str
    node_id: str
    spec: AskSpec
    partition: str = "default"
    created_ms: int | None = None
    started_ms: int | None = None
    releasing: ReleaseMark | None = None
    tags: Tags = NO_TAGS
    generation: Generation = Generation.ALLOCATION


class ForeignAdded(NamedTuple):
    """A pod of another scheduler on a known node.

    Such a pod occupies the node and belongs to no queue. A second event for the same pod changes the size of the pod.
    """

    rm_id: str
    key: str
    node_id: str
    resource: Resource
    partition: str = "default"
    static: bool = False
    tags: Tags = NO_TAGS


class ReleaseRequested(NamedTuple):
    """The release of an ask or allocation by the shim, or the shim's confirmation of a release that the core ordered.

    An empty key means every ask and allocation of the application.
    """

    rm_id: str
    application_id: str
    key: str
    partition: str = "default"
    termination: Termination = Termination.STOPPED_BY_RM
    message: str = ""
    generation: Generation = Generation.ALLOCATION
    asks_only: bool = False
    """Whether only waiting asks are released (`allocationAsksToRelease`) and the allocations stay."""


class VictimVetoed(NamedTuple):
    """The shim's report that it could not carry out a release, for example because the eviction was refused or the pod is gone."""

    rm_id: str
    decision_id: str
    key: str
    reason: str = ""


class PlanChecked(NamedTuple):
    """The shim's answer to a plan check. ``refused`` has the key of each ask that does not fit, and the reason.

    If ``fits`` is False and ``refused`` is empty, all asks of the check are refused.
    """

    rm_id: str
    partition: str
    check_id: str
    fits: bool
    refused: tuple[tuple[str, str], ...] = ()


class DisruptionsAllowed(NamedTuple):
    """The number of pods of a disruption group that may be evicted now. None means that the group has ended.

    No eviction is allowed for a group that the core does not know.
    """

    rm_id: str
    group: str
    allowed: int | None


Event = (
    ManagerRegistered
    | ConfigurationApplied
    | SyncCompleted
    | NodeAdded
    | NodeUpdated
    | NodeDrained
    | NodeEnabled
    | NodeRemoved
    | ApplicationAdded
    | ApplicationRetagged
    | ApplicationRemoved
    | AskAdded
    | AllocationAdded
    | ForeignAdded
    | ReleaseRequested
    | VictimVetoed
    | PlanChecked
    | DisruptionsAllowed
    | ManagerForgotten
    | ManagerWiped
    | LeadershipTaken
    | SessionResumed
    | MessagesTaken
    | PartitionMoving
)
