"""The reports of the core: plain values for inspection, explanation and metrics. No decision depends on them.

Resources are mappings from type to whole units. ``max`` lists only the types that have a limit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

Amounts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ShareReport:
    """The usage of a queue compared with its share by weight (W1, W2, W4, W5).

    ``standing`` says by type whether the queue is over or under its share. Types of which it has exactly its share are left
    out.
    """

    deserved: Amounts
    entitled: Amounts
    allocated: Amounts
    preempting: Amounts
    standing: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class QueueReport:
    """A queue and, in ``children``, all queues below it in path order."""

    path: str
    leaf: bool
    managed: bool
    state: str
    guaranteed: Amounts
    max: Amounts
    usage: Amounts
    promised: Amounts
    pending: Amounts
    releasing: Amounts
    headroom: Amounts
    weight: int
    max_applications: int
    applications: int
    pending_asks: int
    allocations: int
    share_ppm: int
    """The dominant share in parts per million. -1 means unbounded.

    Each type is compared with the guarantee, else with the nearest max, else with the partition. If shares go by weight, it is
    compared with what the queue is entitled to.
    """
    properties: Mapping[str, str]
    preemption_delay_ms: int
    children: tuple["QueueReport", ...] = ()
    over_max: Amounts = field(default_factory=dict)
    """The amount that the queue uses beyond its maximum, without what is being released."""
    quota_due_ms: int = 0
    """The instant at which a quota run of the queue begins. It is 0 if none is scheduled."""
    not_enforced: str = ""
    """The reason why the maximum of the queue is not enforced. It is "" if the maximum is enforced, or if the queue is within it."""
    applications_waiting: int = 0
    """The number of applications with waiting asks, in the queue and in the queues below it."""
    proportional: ShareReport | None = None
    """The queue's share by weight. It is None in a partition whose shares do not go by weight."""


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """The totals of a partition.

    ``waiting`` counts waiting asks by code. ``reservations`` counts all pledges, those of decisions included.

    ``schedulable_nodes`` leaves out nodes that an exclusive pledge holds.
    """

    name: str
    node_sort: str
    nodes: int
    schedulable_nodes: int
    applications: int
    allocations: int
    foreign: int
    asks: int
    reservations: int
    capacity: Amounts
    usage: Amounts
    foreign_usage: Amounts
    waiting: Mapping[str, int]
    synced: bool


@dataclass(frozen=True, slots=True)
class ApplicationReport:
    """An application."""

    application_id: str
    queue: str
    state: str
    user: str
    groups: tuple[str, ...]
    submitted_ms: int
    usage: Amounts
    pending: Amounts
    asks: int
    allocations: int
    tags: Mapping[str, str]
    rm_id: str


@dataclass(frozen=True, slots=True)
class NodeReport:
    """A node. ``free`` is capacity less usage, foreign pods and promised capacity. It may be negative."""

    node_id: str
    schedulable: bool
    capacity: Amounts
    usage: Amounts
    foreign: Amounts
    pledged: Amounts
    free: Amounts
    allocations: int
    labels: Mapping[str, str]
    taints: tuple[str, ...]
    reserved_for: tuple[str, ...]
    rm_id: str
    foreign_pods: int
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AllocationReport:
    """An allocation, or, with an empty node, a waiting ask. ``code`` then says why the ask waits.

    ``pledged`` says that a reservation or a decision keeps capacity for the ask.
    """

    key: str
    application_id: str
    queue: str
    node_id: str
    resource: Amounts
    priority: int
    created_ms: int
    placed_ms: int
    foreign: bool = False
    releasing: bool = False
    originator: bool = False
    placeholder: bool = False
    code: str = ""
    waiting_since_ms: int = 0
    job_key: str = ""
    task_group: str = ""
    protection: str = ""
    may_be_preempted: bool = False
    may_preempt: bool = False
    tags: tuple[bytes, ...] = ()
    placed_at_the_latest: bool = False
    """Whether the start of the allocation is unknown because it ran before the core knew of it.

    If so, ``placed_ms`` is the latest possible start.
    """
    pledged: bool = False


@dataclass(frozen=True, slots=True)
class ManagerReport:
    """A registered resource manager."""

    rm_id: str
    version: str
    registered_ms: int
    explicit_sync: bool
    synced: bool
    policy_group: str
    nodes: int = 0
    applications: int = 0
    allocations: int = 0
    asks: int = 0
    recovered: int = 0
    """The number of allocations that the manager had brought when it completed its sync."""
    recovered_asks: int = 0


@dataclass(frozen=True, slots=True)
class Holdings:
    """The number of objects in a core, over all partitions.

    ``pods`` is the number of running and waiting pods, those of other schedulers included.
    """

    nodes: int
    pods: int
    applications: int
    queues: int


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding of `doctor`. ``severity`` is error, warning or note."""

    severity: str
    subject: str
    code: str
    message: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class LevelReport:
    """A queue on an ask's path. ``short`` names the resource types in which its headroom is too small for the ask."""

    path: str
    max: Amounts
    usage: Amounts
    promised: Amounts
    headroom: Amounts
    short: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UserLimitReport:
    """A limit of a user or group in a queue. ``kind`` is user or group.

    ``short`` names the resource types in which its headroom is too small for the ask that is explained.
    """

    queue: str
    kind: str
    name: str
    max: Amounts
    usage: Amounts
    headroom: Amounts
    max_applications: int = 0
    applications: int = 0
    short: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Excluded:
    """Nodes that are large enough for an ask, but that a part of its constraints excludes.

    Nodes that have enough free capacity now come first.

    ``taints`` are the keys of the taints that the ask does not tolerate. A caller that may not see nodes gets no nodes and no
    taints.
    """

    parts: tuple[str, ...]
    taints: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeFit:
    """A node in a tentative assignment of a group of asks.

    ``members`` is how many members of the group fit there now. ``rest`` is the number of members that are assigned to the node
    and do not fit yet. ``missing`` is the capacity that has to become free for them.
    """

    node_id: str
    free: Amounts
    members: int
    rest: int
    missing: Amounts


@dataclass(frozen=True, slots=True)
class LimitFit:
    """A limit that has no headroom for all members of a group. ``kind`` is queue, firm, user or group.

    ``name`` is the path of the queue or the name of the user or group. ``queue`` is the queue that sets the limit. ``members``
    is how many members it still has headroom for.
    """

    kind: str
    name: str
    queue: str
    members: int
    missing: Amounts


@dataclass(frozen=True, slots=True)
class GroupFit:
    """The result of a trial that places asks together now: the waiting members of a gang, or simulated asks that wait.

    ``size`` is how many members the gang needs, 0 for asks that are not a gang. ``fitting`` is how many get a place now, in
    placement order. ``rest`` is what the others request in total, and ``missing`` what nodes lack for them in total.
    ``without_node`` is the number of members that no node could hold beside the other members, even an empty one. ``missing``
    includes their whole requests. ``nodes`` are the first nodes to which members were assigned. Those that lack capacity come
    first. ``nodes_left_out`` is the number of further nodes. ``looked_at`` is how many members were tried: all of them, except
    in very large gangs.
    """

    name: str
    members: int
    running: int
    size: int
    fitting: int
    on_nodes: int
    """The number of members that have a node in the trial, which ignores limits."""
    missing: Amounts
    rest: Amounts
    without_node: int
    nodes: tuple[NodeFit, ...]
    nodes_left_out: int
    limits: tuple[LimitFit, ...]
    looked_at: int
    key: str = ""
    """The key of the gang on the wire."""
    gang: bool = True
    """Whether the asks are a gang. If not, they are equal asks that are only counted together."""
    placeholders: bool = False
    """Whether the members are YuniKorn placeholders, whose number comes from one annotation."""
    excluded: tuple[Excluded, ...] = ()
    """The nodes that are large enough for a member and that constraints exclude.

    The field is empty if one large enough node is allowed.
    """

    @property
    def left(self) -> int:
        """Return how many of the members that were tried get no place now."""
        return self.looked_at - self.fitting


@dataclass(frozen=True, slots=True)
class Reserved:
    """A node whose free capacity is kept for an ask. ``missing`` is what the ask still lacks there.

    ``held_by`` is `reservation`, or the id of the decision that frees the capacity. ``until_ms`` is 0 if the time is not
    bounded.
    """

    node_id: str
    key: str
    queue: str
    priority: int
    since_ms: int
    until_ms: int
    held_by: str
    missing: Amounts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of a key: why an ask waits, or where an allocation runs.

    ``kind`` is ask, allocation, application, node, queue or unknown. ``tally`` counts nodes by the reason that excludes them for
    the ask. ``examples`` names some of them. ``nearest`` is the node that lacks least. ``brief`` is the summary without information
    about others. ``gang`` says how many members of its gang would get a place if all were placed now, and what the others lack.
    ``limit`` is the first limit that the ask would exceed. ``reserved`` is the node that is reserved for it. ``kept_off_by`` are
    reservations for other asks without which it would fit now.
    """

    kind: str
    key: str
    partition: str = ""
    code: str = ""
    summary: str = ""
    since_ms: int = 0
    since_at_the_latest: bool = False
    queue: str = ""
    application_id: str = ""
    node_id: str = ""
    resource: Amounts = field(default_factory=dict)
    levels: tuple[LevelReport, ...] = ()
    tally: Mapping[str, int] = field(default_factory=dict)
    examples: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    nearest: str = ""
    nearest_missing: Amounts = field(default_factory=dict)
    reserved: Reserved | None = None
    kept_off_by: tuple[Reserved, ...] = ()
    lines: tuple[str, ...] = ()
    priority: int = 0
    brief: str = ""
    gang: GroupFit | None = None
    limit: LimitFit | None = None
    only_node: str = ""
    """The only node on which the ask may run, if its constraints name one."""
    excluded: tuple[Excluded, ...] = ()
    """The nodes that are large enough and that the ask's constraints exclude. The field is empty if one large enough node is allowed."""
    gang_member: str = ""
    """The key of the first waiting member of the gang that has the application's name."""
    foreign: bool = False
    """Whether the key names a pod of another scheduler."""
    limits: tuple[UserLimitReport, ...] = ()
    """The limits of the ask's user and group that bound its resources, from the leaf to the root."""
    asks_before: int = 0
    """The number of waiting asks of its application that come before it in the order of placement."""
