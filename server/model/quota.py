"""The configuration as values: the content of a checked `queues.yaml` (design 1.11).

Paths are in lower case, have dots between the names, and start with ``root``. Durations are in milliseconds.
"""

import enum
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TypeVar

from server.model.policies import GUARANTEED, REQUIRED_NODE, PolicyFacts
from server.model.resources import NOTHING, Limit, Resource

ROOT: Final = "root"
DEFAULT_PARTITION: Final = "default"
DEFAULT_QUEUE: Final = "root.default"
RECOVERY_QUEUE: Final = "root.@recovery@"
WILDCARD: Final = "*"
QUEUES_MAX: Final = 10_000
"""The largest number of queues in one partition, including dynamic queues."""
QUEUE_NAME: Final = re.compile(r"[a-zA-Z0-9_:#/@-]{1,64}")
"""The form of one level of a queue's path. The name is compared without regard to case and is kept in lower case."""


def is_below(path: str, ancestor: str) -> bool:
    """Return whether a queue is the ancestor itself or a queue below the ancestor.

    The comparison is by levels: `root.ab` is not below `root.a`.
    """
    return path == ancestor or path.startswith(f"{ancestor}.")


class SortPolicy(enum.StrEnum):
    """The `application.sort.policy` of a leaf. The value `stateaware` is read as fifo."""

    FIFO = "fifo"
    FAIR = "fair"


class NodeSort(enum.StrEnum):
    """The `nodesortpolicy.type` of a partition."""

    FAIR = "fair"
    BINPACKING = "binpacking"


class PriorityPolicy(enum.StrEnum):
    """The `priority.policy` of a queue. With `fence`, only the priority offset of the queue counts outside the queue."""

    DEFAULT = "default"
    FENCE = "fence"


class PreemptionPolicy(enum.StrEnum):
    """The `preemption.policy` of a queue (G3)."""

    DEFAULT = "default"
    FENCE = "fence"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True)
class Acl:
    """An access list: all users, or the named users and the members of the named groups."""

    everyone: bool = False
    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()

    def allows(self, user: str, groups: tuple[str, ...]) -> bool:
        """Return whether the list allows this user, or one of these groups."""
        return self.everyone or user in self.users or not self.groups.isdisjoint(groups)


NOBODY: Final = Acl()


@dataclass(frozen=True, slots=True)
class UserLimit:
    """An entry of `limits` of a queue.

    The entry bounds each named user, and all members of each named group together. The name ``*`` is the wildcard. If
    ``max_applications`` is 0, applications have no limit. If ``max_resources`` is empty, resources have no limit.
    """

    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    max_resources: Limit = NOTHING
    max_applications: int = 0


@dataclass(frozen=True, slots=True)
class QueueProperties:
    """The effective properties of a queue, which the configuration reader computed with inheritance.

    A duration that is not set is None. If ``quota_delay_ms`` is 0, no quota run ever begins (Q2).
    """

    sort_policy: SortPolicy = SortPolicy.FIFO
    priority_sort: bool = True
    priority_policy: PriorityPolicy = PriorityPolicy.DEFAULT
    priority_offset: int = 0
    preemption_policy: PreemptionPolicy = PreemptionPolicy.DEFAULT
    preemption_delay_ms: int = 30_000
    preemption_minruntime_ms: int = 0
    quota_delay_ms: int = 0
    quota_miss_permyriad: int = 0
    quota_overshoot: str = "last"
    quota_timer: str = "restart"
    quota_shortfall: str = "proceed"


QUOTA_DELAY: Final = "quota.preemption.delay"
PREEMPTION_DELAY: Final = "preemption.delay"
"""The names of the two delay properties in `queues.yaml`. Answers of the server use these names, too."""

PROPERTY_FIELDS: Final[Mapping[str, str]] = {
    "application.sort.policy": "sort_policy",
    "application.sort.priority": "priority_sort",
    "priority.policy": "priority_policy",
    "priority.offset": "priority_offset",
    "preemption.policy": "preemption_policy",
    PREEMPTION_DELAY: "preemption_delay_ms",
    "preemption.minruntime": "preemption_minruntime_ms",
    QUOTA_DELAY: "quota_delay_ms",
    "quota.preemption.miss": "quota_miss_permyriad",
    "quota.preemption.overshoot": "quota_overshoot",
    "quota.preemption.timer": "quota_timer",
    "quota.preemption.shortfall": "quota_shortfall",
}
"""Each property of `queues.yaml` with its field of `QueueProperties`."""


def inherited(properties: QueueProperties) -> QueueProperties:
    """Return the properties of a child that sets no properties itself.

    Priority policy, priority offset and preemption delay get their defaults. A preemption policy is inherited only if it is
    ``disabled``.
    """
    disabled = properties.preemption_policy is PreemptionPolicy.DISABLED
    return replace(
        properties,
        priority_policy=PriorityPolicy.DEFAULT,
        priority_offset=0,
        preemption_delay_ms=QueueProperties().preemption_delay_ms,
        preemption_policy=PreemptionPolicy.DISABLED if disabled else PreemptionPolicy.DEFAULT,
    )


@dataclass(frozen=True, slots=True)
class ChildTemplate:
    """The `childtemplate` of a queue: the settings with which a dynamic leaf below it starts.

    ``properties`` has the properties that the template sets. For all other properties, ``properties`` has the values that the
    queue's children inherit. ``queue`` is the path of the queue whose configuration has the template. ``own`` has the names of
    the properties that the template sets.
    """

    guaranteed: Resource = NOTHING
    max: Limit | None = None
    max_applications: int = 0
    properties: QueueProperties | None = None
    queue: str = ""
    own: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """A configured queue with its children, in the order of the file. If ``max`` is None, no type has a limit.

    For a parent queue, ``template`` is the template of the queue itself, or of its nearest ancestor with a template. For a
    leaf, ``template`` is None. ``own`` has the names of the properties that the queue itself sets, in any of its sections.
    ``origin`` is the template from which a dynamic leaf was created. ``tagged`` has the names of the properties that the tags
    of an application have changed since the leaf was created.
    """

    name: str
    parent: bool = False
    guaranteed: Resource = NOTHING
    max: Limit | None = None
    weight: int = 1
    max_applications: int = 0
    properties: QueueProperties = field(default_factory=QueueProperties)
    submit_acl: Acl = NOBODY
    admin_acl: Acl = NOBODY
    limits: tuple[UserLimit, ...] = ()
    template: ChildTemplate | None = None
    children: tuple["QueueSpec", ...] = ()
    raw_properties: Mapping[str, str] = field(default_factory=dict)
    own: frozenset[str] = frozenset()
    origin: ChildTemplate | None = None
    tagged: frozenset[str] = frozenset()


class Specified(Protocol):
    """A queue of the live state or of a snapshot."""

    @property
    def spec(self) -> QueueSpec:
        """Return the configuration of the queue."""
        ...


Q = TypeVar("Q", bound=Specified)


def up_to_fence(path_up: Iterable[Q]) -> Iterator[Q]:
    """Yield the queues from a leaf up to the nearest fence, or to the root.

    The victims for asks of that leaf run in queues below the last queue that is yielded (G3).
    """
    for queue in path_up:
        yield queue
        if queue.spec.properties.preemption_policy is PreemptionPolicy.FENCE:
            return


@dataclass(frozen=True, slots=True)
class RuleFilter:
    """The `filter` of a placement rule, which allows or denies users and groups by exact names or by one regular expression each."""

    allow: bool = True
    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    user_pattern: str = ""
    group_pattern: str = ""


@dataclass(frozen=True, slots=True)
class PlacementRule:
    """A placement rule. ``kind`` is provided, user, fixed or tag. ``value`` is the name of the queue or tag."""

    kind: str
    value: str = ""
    create: bool = False
    filter: RuleFilter | None = None
    parent: "PlacementRule | None" = None


KEEP: Final = "keep"
"""The value of `quotatimers` with which the timers of quota runs continue after a new registration of the manager (Q7)."""


@dataclass(frozen=True, slots=True)
class PreemptionSettings:
    """The `preemption` section of a partition (docs/configuration.md).

    ``order_claim`` and the other ``order_`` fields have the sort keys of victims that follow the fixed sort keys (V2). An empty
    field means that the default keys are used. ``shadow`` maps fields of this class to other values. The settings
    ``replace(settings, **settings.shadow)`` are evaluated together with the live settings.
    """

    enabled: bool = True
    quota_enabled: bool = False
    quota_timers: str = KEEP
    policies: tuple[str, ...] = (REQUIRED_NODE.name, GUARANTEED.name)
    entitlement: str = "guaranteed"
    demand_cap: bool = True
    proportion_overshoot: str = "none"
    trigger: str = "before"
    equal_priority: str = "allow"
    rounds_interval_ms: int = 0
    pace_permyriad: int = 0
    pace_queue_permyriad: int = 0
    pace_application_permyriad: int = 0
    pace_window_ms: int = 0
    deadzone_permyriad: int = 0
    natural_permyriad: int = 0
    job_default_preemptible: bool = True
    job_default_trigger: bool = True
    job_delete: bool | None = None
    job_victim_gang: str = "whole"
    job_gathering_ms: int = 2_000
    disruption_budgets: str = "prefer"
    delivery: str = "delete"
    cross_node: str = "never"
    firm_break: bool = False
    backoff_ms: int = 15_000
    expiry_ms: int = 600_000
    observe_only: bool = False
    order_claim: tuple[str, ...] = ()
    order_quota: tuple[str, ...] = ()
    order_required_node: tuple[str, ...] = ()
    order_job: tuple[str, ...] = ()
    order_trim: tuple[str, ...] = ()
    shadow: Mapping[str, object] = field(default_factory=dict)

    def lists(self, policy: PolicyFacts) -> bool:
        """Return whether the partition lists the policy."""
        return policy.name in self.policies


@dataclass(frozen=True, slots=True)
class ReservationSettings:
    """The `reservations` section of a partition. If ``timeout_ms`` is 0, a reservation lasts until its ask has a node."""

    enabled: bool = True
    timeout_ms: int = 600_000


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """A partition of `queues.yaml`. ``root`` always exists. Node weights are whole numbers, in thousandths."""

    name: str
    root: QueueSpec
    rules: tuple[PlacementRule, ...] = ()
    node_sort: NodeSort = NodeSort.FAIR
    node_weights: tuple[tuple[str, int], ...] = (("memory", 1000), ("vcore", 1000))
    preemption: PreemptionSettings = field(default_factory=PreemptionSettings)
    reservations: ReservationSettings = ReservationSettings()


@dataclass(frozen=True, slots=True)
class Configuration:
    """All partitions, with the text from which they were read and its SHA-256 digest."""

    partitions: tuple[PartitionSpec, ...]
    text: str = ""
    digest: str = ""

    def partition(self, name: str) -> PartitionSpec | None:
        """Return the partition of this name, or None."""
        return next((one for one in self.partitions if one.name == name), None)


DEFAULT_CONFIGURATION: Final = Configuration(
    partitions=(
        PartitionSpec(
            name=DEFAULT_PARTITION,
            root=QueueSpec(name=ROOT, parent=True, submit_acl=Acl(everyone=True)),
            rules=(
                PlacementRule(kind="provided", create=True),
                PlacementRule(kind="tag", value="namespace", create=True),
            ),
        ),
    )
)
"""The configuration that is in force until another configuration is applied.

An ask goes to the queue that its client names, or otherwise to the queue of its namespace.
"""
