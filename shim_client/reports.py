"""What the shim tells the core: small values that `translate.wire` turns into messages.

The mirror speaks in these; nothing here knows the wire.  Amounts are whole numbers (vcore in
milli-cores, memory in bytes, everything else in plain units); a missing type is zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

DEFAULT_PARTITION = "default"


class TerminationType(IntEnum):
    """Why an allocation ends; the numbers are the published interface's."""

    UNKNOWN = 0
    STOPPED_BY_RM = 1
    TIMEOUT = 2
    PREEMPTED_BY_SCHEDULER = 3
    PLACEHOLDER_REPLACED = 4
    SCHEDULING_FAILED_ON_RM = 5


class Protection(IntEnum):
    """How far a running pod is kept from preemption (specification 7.6)."""

    UNSPECIFIED = 0
    NORMAL = 1
    PREFER_NOT = 2
    FIRM = 3
    UNTOUCHABLE = 4


class JobTrigger(IntEnum):
    """What a pod's label says of whether its job may have others preempted (J3)."""

    UNSPECIFIED = 0
    YES = 1
    NO = 2


class NodeAction(IntEnum):
    """What happened to a node; the numbers are the published interface's."""

    UPDATE = 2
    DRAIN_NODE = 3
    DECOMISSION = 4
    DRAIN_TO_SCHEDULABLE = 5
    CREATE_DRAIN = 6


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement on a node's labels or fields: In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SelectorTerm:
    """Requirements that must all hold; a term without any matches no node."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class Toleration:
    """A taint that the pod stands; empty key with Exists stands all."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port of the node itself that the pod needs for itself."""

    protocol: str
    host_ip: str
    port: int


@dataclass(frozen=True, slots=True)
class NodeConstraints:
    """What a pod demands of its node, as data (design 1.8); equal ones are one object."""

    node_selector: tuple[tuple[str, str], ...] = ()
    required_terms: tuple[SelectorTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    allowed_nodes: tuple[str, ...] = ()
    """Only these nodes, by name; empty: any."""
    excluded_nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Releasing:
    """The mark of a pod that is already on its way out (specification 1.7).

    ``delivery`` is how it goes. It tells no two marks apart: who goes for whom does not depend on it.
    """

    termination: TerminationType
    decision: str = ""
    beneficiary: str = ""
    node: str = ""
    delivery: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class PodReport:
    """A pod as the core sees it: an ask while `node` is empty, an allocation once it is set."""

    key: str
    application: str
    partition: str
    resource: Mapping[str, int]
    priority: int
    node: str
    tags: Mapping[str, str]
    """What pods of one owner say alike; equal ones are one object where they can be."""
    pod_name: str = ""
    created_s: int | None = None
    """Unix seconds; with the name it goes to the core among the tags."""
    task_group: str = ""
    placeholder: bool = False
    originator: bool = False
    allow_preempt_self: bool = True
    allow_preempt_other: bool = True
    constraints: NodeConstraints | None = None
    job_key: str = ""
    job_members: int = 0
    """How many pods the job needs at least (J1); 0 where there is no job, or its size is not known."""
    job_trigger: JobTrigger = JobTrigger.UNSPECIFIED
    protection: Protection = Protection.UNSPECIFIED
    started_ms: int = 0
    grace_seconds: int = 0
    rm_check: bool = False
    disruption_groups: tuple[str, ...] = ()
    """PodDisruptionBudgets that the pod counts in, as namespace/name."""
    releasing: Releasing | None = None


@dataclass(frozen=True, slots=True)
class PodRelease:
    """The end of a pod, or of its placement, with the reason and the decision it confirms."""

    key: str
    application: str
    partition: str
    termination: TerminationType
    message: str = ""
    decision: str = ""


@dataclass(frozen=True, slots=True)
class ApplicationReport:
    """A new application, told before its first pod."""

    application: str
    partition: str
    queue: str
    user: str
    groups: tuple[str, ...]
    tags: Mapping[str, str]
    placeholder_ask: Mapping[str, int] = field(default_factory=dict)
    """What its placeholders sum up to; nothing else of it is placed before they are (1.9)."""
    gang_style: str = ""
    timeout_ms: int = 0
    """How long they may take, and may stay unused; 0: the core's own."""


@dataclass(frozen=True, slots=True)
class ApplicationRemoval:
    """An application that the shim has no pod of any more."""

    application: str
    partition: str


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's taint; effects NoSchedule, PreferNoSchedule, NoExecute."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class NodeReport:
    """A node and what happened to it."""

    node: str
    action: NodeAction
    partition: str = DEFAULT_PARTITION
    capacity: Mapping[str, int] = field(default_factory=dict)
    attributes: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class Veto:
    """A victim that the shim could not remove; the decision is planned again without it."""

    key: str
    decision: str
    reason: str


@dataclass(frozen=True, slots=True)
class BudgetReport:
    """How many pods of a PodDisruptionBudget (as namespace/name) may go now; None: it is no more."""

    key: str
    allowed: int | None


@dataclass(frozen=True, slots=True)
class SyncComplete:
    """The end of a resync with the counts of what was sent in it."""

    nodes: int
    applications: int
    allocations: int
    asks: int


@dataclass(frozen=True, slots=True)
class ConfigurationReport:
    """The queue configuration that the core is to have, and where it comes from."""

    text: str
    source: str


Report = (
    PodReport
    | PodRelease
    | ApplicationReport
    | ApplicationRemoval
    | NodeReport
    | Veto
    | BudgetReport
    | SyncComplete
    | ConfigurationReport
)
