"""The reports of the core: plain values for inspection, explanation and metrics. No decision depends on these values.

Resources are mappings from the type to whole units. ``max`` lists only the types that have a limit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

Amounts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ShareReport:
    """The usage of a queue compared with its share by weight (W1, W2, W4, W5).

    ``standing`` says, for each type, whether the queue is above or below its share. A type of which the queue has exactly its
    share is left out.
    """

    deserved: Amounts
    entitled: Amounts
    allocated: Amounts
    preempting: Amounts
    standing: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class QueueReport:
    """The report of a queue. ``children`` has the reports of its child queues, in the order of their paths."""

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
    """The dominant share in parts per million. The value -1 means that the share is unbounded.

    The usage of each type is compared with the guarantee. If the queue has no guarantee, the usage is compared with the nearest
    max. If there is no max either, the usage is compared with the capacity of the partition. With shares by weight, the usage is
    compared with the entitlement of the queue.
    """
    properties: Mapping[str, str]
    preemption_delay_ms: int
    children: tuple["QueueReport", ...] = ()
    over_max: Amounts = field(default_factory=dict)
    """The amount of the queue's usage above its maximum, without the allocations that are being released."""
    quota_due_ms: int = 0
    """The instant at which a quota run of the queue begins. The value is 0 if no run is scheduled."""
    not_enforced: str = ""
    """The reason why the maximum of the queue is not enforced.

    The reason is "" if the maximum is enforced, or if the usage is within the maximum.
    """
    applications_waiting: int = 0
    """The number of applications with waiting asks in the queue and in the queues below it."""
    proportional: ShareReport | None = None
    """The share of the queue by weight. The value is None in a partition without shares by weight."""


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """The totals of a partition.

    ``promised`` and ``pending`` are the amounts of the partition's root queue. ``queues`` is the number of its queues, including
    the root.

    ``waiting`` has the number of waiting asks for each code. ``waiting`` is empty if asks were not counted. ``reservations`` is
    the number of all pledges, including pledges of decisions.

    ``schedulable_nodes`` does not include nodes with an exclusive pledge, which take only asks that have a pledge there.
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
    promised: Amounts = field(default_factory=dict)
    pending: Amounts = field(default_factory=dict)
    queues: int = 0


@dataclass(frozen=True, slots=True)
class ApplicationReport:
    """The report of an application."""

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
    """The report of a node. ``free`` is the capacity minus the usage, the foreign pods and the promised capacity.

    ``free`` may be negative.
    """

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
    """The report of an allocation, or of a waiting ask if ``node_id`` is empty.

    For a waiting ask, ``code`` says why the ask waits. ``pledged`` says that a reservation or a decision keeps capacity for the
    ask.
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
    gang_key: str = ""
    task_group: str = ""
    protection: str = ""
    may_be_preempted: bool = False
    may_preempt: bool = False
    tags: tuple[bytes, ...] = ()
    placed_at_the_latest: bool = False
    """Whether the start of the allocation is unknown, because the allocation ran before the core first learned of it.

    If the start is unknown, ``placed_ms`` is the latest possible start.
    """
    pledged: bool = False


@dataclass(frozen=True, slots=True)
class ManagerReport:
    """The report of a registered resource manager."""

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
    """The number of allocations that the manager had reported when it completed its sync."""
    recovered_asks: int = 0


@dataclass(frozen=True, slots=True)
class Holdings:
    """The number of objects in a core, over all partitions.

    ``pods`` is the number of running and waiting pods, including pods of other schedulers.
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
    """A queue on the path of an ask. ``short`` has the resource types in which the headroom of the queue is too small for the ask."""

    path: str
    max: Amounts
    usage: Amounts
    promised: Amounts
    headroom: Amounts
    short: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UserLimitReport:
    """A limit of a user or group in a queue. ``kind`` is user or group.

    ``short`` has the resource types in which the headroom of the limit is too small for the explained ask.
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
    """Nodes that are large enough for an ask but are excluded by a part of its constraints.

    The list begins with the nodes that have enough free capacity now.

    ``taints`` has the keys of the taints that the ask does not tolerate. The lists are empty for a caller that may not see
    nodes.
    """

    parts: tuple[str, ...]
    taints: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeFit:
    """A node in a tentative assignment of a group of asks.

    ``members`` is the number of members that fit on the node now. ``rest`` is the number of members that are assigned to the
    node and do not fit yet. ``missing`` is the capacity that must become free on the node for the members in ``rest``.
    """

    node_id: str
    free: Amounts
    members: int
    rest: int
    missing: Amounts


@dataclass(frozen=True, slots=True)
class LimitFit:
    """A limit without headroom for all members of a group. ``kind`` is queue, firm, user or group.

    ``name`` is the path of the queue or the name of the user or group. ``queue`` is the queue that sets the limit. ``members``
    is the number of members for which the limit still has headroom.
    """

    kind: str
    name: str
    queue: str
    members: int
    missing: Amounts


@dataclass(frozen=True, slots=True)
class GroupFit:
    """The result of a trial that places asks together now: the waiting members of a gang, or simulated asks that wait.

    ``size`` is the number of members that the gang needs. ``size`` is 0 if the asks are not a gang. ``fitting`` is the number of
    members that would get a node now, in placement order. ``rest`` is the sum of the requests of all other members. ``missing``
    is the sum of the amounts that nodes lack for these other members. ``without_node`` is the number of members that no node
    could hold together with the other members, even if all nodes were empty. ``missing`` includes the whole requests of these
    members. ``nodes`` has the first nodes to which members were assigned. Nodes that lack capacity come first. ``nodes_left_out``
    is the number of nodes with members that are missing in ``nodes``. ``looked_at`` is the number of members that were tried: all
    members, except in very large gangs.
    """

    name: str
    members: int
    running: int
    size: int
    fitting: int
    on_nodes: int
    """The number of members that get a node in the trial if limits are ignored."""
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
    """Whether the asks are a gang. Asks that are not a gang are equal simulated asks, whose results are reported together."""
    placeholders: bool = False
    """Whether the members are placeholders of YuniKorn, whose number comes from one annotation."""
    excluded: tuple[Excluded, ...] = ()
    """The nodes that are large enough for a member but that constraints exclude.

    The field is empty if some node that is large enough is allowed.
    """

    @property
    def left(self) -> int:
        """Return the number of tried members that would get no node now."""
        return self.looked_at - self.fitting


@dataclass(frozen=True, slots=True)
class Reserved:
    """A node whose free capacity is kept for an ask. ``missing`` has the amounts that the ask still lacks on the node.

    ``held_by`` is `reservation` or the id of the decision that frees the capacity. ``until_ms`` is 0 if the capacity is kept
    without a limit of time.
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

    ``kind`` is ask, allocation, application, node, queue or unknown. ``tally`` is the number of nodes that each reason excludes
    for the ask. ``examples`` names some of these nodes. ``nearest`` is the node that lacks the least capacity. ``brief`` is the
    summary without information about other users. ``gang`` has the result of a trial that places the waiting members of the ask's
    gang now. ``limit`` is the first limit that the ask would exceed. ``reserved`` is the node that is reserved for the ask.
    ``kept_off_by`` has reservations for other asks. Without these reservations the ask would fit now.
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
    """The nodes that are large enough but that the constraints of the ask exclude.

    The field is empty if some node that is large enough is allowed.
    """
    gang_member: str = ""
    """If the explained key is the name of an application, the key of the first waiting member of the gang with this name."""
    foreign: bool = False
    """Whether the key belongs to a pod of another scheduler."""
    limits: tuple[UserLimitReport, ...] = ()
    """The limits on the resources of the ask's user and group, from the leaf to the root."""
    asks_before: int = 0
    """The number of waiting asks of the same application that come before the ask in the order of placement."""
