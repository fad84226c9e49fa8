"""The reports of the core: plain values for inspection, explanation and metrics. Nothing is decided with them.

Resources are mappings from type to whole units; ``max`` lists only the types that have a limit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

Amounts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ShareReport:
    """A queue's standing against its share in proportion to weights (W1, W2, W4, W5). ``standing`` is over or under."""

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
    """The dominant share in parts per million of guaranteed, else max, else the partition (-1: unbounded)."""
    properties: Mapping[str, str]
    children: tuple["QueueReport", ...] = ()
    over_max: Amounts = field(default_factory=dict)
    """The amount that the queue uses beyond its maximum, without what is being released."""
    quota_due_ms: int = 0
    """The instant at which a quota run of the queue begins; 0: none is armed."""
    not_enforced: str = ""
    """Why nothing enforces the maximum of the queue; "" when something does, or the queue is within it."""
    proportional: ShareReport | None = None
    """The share of the queue; only where the partition is shared in proportion to weights."""


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """The totals of a partition. ``waiting`` counts waiting asks by code."""

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
    frozen_pairs: int = 0
    """The number of pairs that are frozen because of preemption thrashing (7.7)."""


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
    """A node. ``free`` is capacity less usage, foreign and pledges, and may be negative."""

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


@dataclass(frozen=True, slots=True)
class AllocationReport:
    """An allocation, or, with an empty node, a waiting ask (then ``code`` says why it waits)."""

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
    """Whether the allocation ran before the core knew of it, with an unknown start: ``placed_ms`` is the latest it can be."""


@dataclass(frozen=True, slots=True)
class ManagerReport:
    """A registered resource manager."""

    rm_id: str
    version: str
    registered_ms: int
    explicit_sync: bool
    synced: bool
    nodes: int = 0
    applications: int = 0
    allocations: int = 0
    asks: int = 0
    recovered: int = 0
    """The number of allocations that the manager had brought when it completed its sync."""
    recovered_asks: int = 0


@dataclass(frozen=True, slots=True)
class Holdings:
    """The number of objects in a core, over all partitions; ``pods`` run or wait, also those of other schedulers."""

    nodes: int
    pods: int
    applications: int
    queues: int


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding of `doctor`. ``severity`` is error or warning."""

    severity: str
    subject: str
    code: str
    message: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class LevelReport:
    """A queue level on an ask's path; ``short`` names the types in which the headroom is too small."""

    path: str
    max: Amounts
    usage: Amounts
    promised: Amounts
    headroom: Amounts
    short: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Excluded:
    """Nodes that are large enough for an ask and that parts of its constraints exclude, those with free capacity now first.

    ``taints`` are the keys of those that the ask does not tolerate. A caller that may not see nodes gets neither.
    """

    parts: tuple[str, ...]
    taints: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeFit:
    """A node in a tentative assignment of a group of asks.

    ``members`` fit there now; ``rest`` are charged to it although they do not fit, and ``missing`` is what has to become free
    for them.
    """

    node_id: str
    free: Amounts
    members: int
    rest: int
    missing: Amounts


@dataclass(frozen=True, slots=True)
class LimitFit:
    """A limit without headroom for all members of a group. ``kind``: queue, firm, user or group.

    ``name`` is the queue's path or the user's or group's name, ``queue`` the queue at which the limit stands;
    ``members`` is how many it has headroom for.
    """

    kind: str
    name: str
    queue: str
    members: int
    missing: Amounts


@dataclass(frozen=True, slots=True)
class GroupFit:
    """The present fit of asks that have to fit together: the waiting members of a gang, or simulated asks that wait.

    ``size`` is how many members the gang needs, 0 for asks that are no gang; ``fitting`` get a place now, one after another in
    placement order. ``rest`` is what the others ask for in total, ``missing`` what nodes lack for them in total.
    ``without_node`` of them could not be held by any node, even an empty one, beside the other members. ``nodes`` are those
    that come nearest, first those that lack something; ``nodes_left_out`` counts the further ones. ``looked_at`` members were
    tried, which are all but for very large gangs.
    """

    name: str
    members: int
    running: int
    size: int
    fitting: int
    on_nodes: int
    """The number of members that have a node now, limits set aside."""
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
    """Whether the asks are placed together or not at all; else they are equal asks that are only counted together."""
    placeholders: bool = False
    """Whether the members are YuniKorn placeholders, of which one annotation says how many there are."""
    excluded: tuple[Excluded, ...] = ()
    """The nodes that are large enough for a member, where the constraints of the members allow none that is."""

    @property
    def left(self) -> int:
        """Return how many members get no place now."""
        return self.looked_at - self.fitting


@dataclass(frozen=True, slots=True)
class Reserved:
    """A node whose free capacity is kept for an ask; ``missing`` is what the ask still lacks there.

    ``held_by`` is `reservation`, or the id of the decision that frees the capacity. ``until_ms`` is 0 where it has no bound.
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
    """The explanation of a key: why it waits or where it runs.

    ``kind``: ask, allocation, application, node, queue or unknown. ``tally`` counts nodes by the reason that keeps the ask off
    them, ``examples`` names some; ``nearest`` is the node that lacks least. ``brief`` is the summary without anything that
    belongs to others; ``gang`` says how the members of its gang fit together; ``limit`` is the first limit in the way.
    ``reserved`` is the node that is kept for it, ``kept_off_by`` are the reservations of others without which it would fit
    now.
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
    """The only node on which the ask may run, where its constraints name it."""
    excluded: tuple[Excluded, ...] = ()
    """The nodes that are large enough, where the ask's constraints allow none that is."""
    gang_member: str = ""
    """The key of a member of the gang that has the application's name, the first that waits."""
