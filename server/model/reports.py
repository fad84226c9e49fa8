"""What the core shows of itself: plain values for inspection, explanation and metrics. They decide nothing.

Resources are mappings from type to whole units; ``max`` lists only the types that have a limit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

Amounts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ShareReport:
    """How a queue stands to its share in proportion to weights (W1, W2, W4, W5). ``standing`` is over or under."""

    deserved: Amounts
    entitled: Amounts
    allocated: Amounts
    preempting: Amounts
    standing: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class QueueReport:
    """One queue and, in ``children``, all below it in path order."""

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
    """Dominant share in parts per million of guaranteed, else max, else the partition (-1: unbounded)."""
    properties: Mapping[str, str]
    children: tuple["QueueReport", ...] = ()
    over_max: Amounts = field(default_factory=dict)
    """What it uses beyond its maximum, what is being released not counted."""
    quota_due_ms: int = 0
    """When a quota run of it begins; 0: none is due."""
    not_enforced: str = ""
    """Why nothing brings it down to its maximum; "" when something does, or it is within."""
    proportional: ShareReport | None = None
    """Only where the partition is shared in proportion to weights."""


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """Totals of a partition. ``waiting`` counts waiting asks by code."""

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
    """Pairs that the storm monitor has stopped (7.7)."""


@dataclass(frozen=True, slots=True)
class ApplicationReport:
    """One application."""

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
    """One node. ``free`` is capacity less usage, foreign and pledges, and may be negative."""

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
    """An allocation, or with an empty node an ask that waits (then ``code`` says why)."""

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
    """Allocations that it had brought when it completed its sync."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something `doctor` found. ``severity`` is error or warning."""

    severity: str
    subject: str
    code: str
    message: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class LevelReport:
    """One queue level on an ask's path; ``short`` names the types in which the head-room is too small."""

    path: str
    max: Amounts
    usage: Amounts
    promised: Amounts
    headroom: Amounts
    short: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a key waits or where it runs. ``kind``: ask, allocation, application, node, queue or unknown.

    ``tally`` counts nodes by the reason that keeps the ask off them, ``examples`` names some; ``nearest`` is the node that misses least.
    """

    kind: str
    key: str
    partition: str = ""
    code: str = ""
    summary: str = ""
    since_ms: int = 0
    queue: str = ""
    application_id: str = ""
    node_id: str = ""
    resource: Amounts = field(default_factory=dict)
    levels: tuple[LevelReport, ...] = ()
    tally: Mapping[str, int] = field(default_factory=dict)
    examples: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    nearest: str = ""
    nearest_missing: Amounts = field(default_factory=dict)
    reserved_node: str = ""
    lines: tuple[str, ...] = ()
