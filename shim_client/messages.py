"""Messages between shim and core, as small values that `translate.wire` turns into wire messages and back.

The state machine produces the messages to the core, and processes the messages from the core. This module does not
know the wire format. Amounts are whole numbers: vcore in millicores, memory in bytes, everything else in plain units.
A missing type is zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

DEFAULT_PARTITION = "default"


class TerminationType(IntEnum):
    """The reason why an allocation ends; the numbers are those of the published interface."""

    UNKNOWN = 0
    STOPPED_BY_RM = 1
    TIMEOUT = 2
    PREEMPTED_BY_SCHEDULER = 3
    PLACEHOLDER_REPLACED = 4
    SCHEDULING_FAILED_ON_RM = 5


class Protection(IntEnum):
    """The level of protection that a running pod has from preemption."""

    UNSPECIFIED = 0
    NORMAL = 1
    PREFER_NOT = 2
    FIRM = 3
    UNTOUCHABLE = 4


class JobTrigger(IntEnum):
    """The value of a pod's label that says whether its job may preempt (J3)."""

    UNSPECIFIED = 0
    YES = 1
    NO = 2


class NodeAction(IntEnum):
    """The event on a node that is reported to the core; the numbers are those of the published interface."""

    UPDATE = 2
    DRAIN_NODE = 3
    DECOMISSION = 4
    DRAIN_TO_SCHEDULABLE = 5
    CREATE_DRAIN = 6


@dataclass(frozen=True, slots=True)
class Requirement:
    """A requirement on a node's labels or fields: In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SelectorTerm:
    """Requirements that must all be met.

    A term without requirements matches no node.
    """

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class Toleration:
    """A taint that the pod tolerates; an empty key with Exists tolerates all taints."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port of the node that no other pod on the node may use."""

    protocol: str
    host_ip: str
    port: int


@dataclass(frozen=True, slots=True)
class NodeConstraints:
    """Constraints of a pod on its node, as data (design 1.8). Pods with equal constraints share one object."""

    node_selector: tuple[tuple[str, str], ...] = ()
    required_terms: tuple[SelectorTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    allowed_nodes: tuple[str, ...] = ()
    """Names of the only nodes that are allowed. If the tuple is empty, every node is allowed."""
    excluded_nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PreferredTerm:
    """A term that adds its weight to the score of each node that meets it."""

    weight: int
    term: SelectorTerm


@dataclass(frozen=True, slots=True)
class GroupPreference:
    """A preference to run in the topology domain of a group's pods (weight above 0), or in another domain (weight below 0).

    ``topology_key`` is the node label whose values are the domains.
    """

    group: str
    topology_key: str
    weight: int


@dataclass(frozen=True, slots=True)
class NodePreferences:
    """Preferences of a pod among the nodes that suit it (design 6.15). Pods with equal preferences share one object."""

    terms: tuple[PreferredTerm, ...] = ()
    groups: tuple[GroupPreference, ...] = ()


@dataclass(frozen=True, slots=True)
class Releasing:
    """The facts about the eviction of a pod that is already being evicted.

    `delivery` is the way in which the pod is evicted. Comparisons of two objects of this class ignore `delivery`: the
    way of eviction changes neither the victim nor the preemptor.
    """

    termination: TerminationType
    decision: str = ""
    beneficiary: str = ""
    node: str = ""
    delivery: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class PodReport:
    """A pod in the form in which it is reported to the core: an ask while `node` is empty, an allocation when `node` is set."""

    key: str
    application: str
    partition: str
    resource: Mapping[str, int]
    priority: int
    node: str
    tags: Mapping[str, str]
    """Tags that are equal for all pods of one owner. Where possible, pods with equal tags share one mapping."""
    pod_name: str = ""
    created_s: int | None = None
    """Creation of the pod in Unix seconds.

    Like the pod's name, the creation time is sent to the core as a tag.
    """
    task_group: str = ""
    placeholder: bool = False
    originator: bool = False
    allow_preempt_self: bool = True
    allow_preempt_other: bool = True
    constraints: NodeConstraints | None = None
    preferences: NodePreferences | None = None
    job_key: str = ""
    job_members: int = 0
    """Minimum number of pods of the job (J1). 0 means that the pod has no job, or that the size is not known yet."""
    job_trigger: JobTrigger = JobTrigger.UNSPECIFIED
    protection: Protection = Protection.UNSPECIFIED
    started_ms: int = 0
    grace_seconds: int = 0
    rm_check: bool = False
    disruption_groups: tuple[str, ...] = ()
    """PodDisruptionBudgets that count the pod, as namespace/name."""
    releasing: Releasing | None = None


@dataclass(frozen=True, slots=True)
class PodRelease:
    """The report that a pod has ended, or that its placement is given back.

    The report has the reason, and names the decision of the core that it confirms.
    """

    key: str
    application: str
    partition: str
    termination: TerminationType
    message: str = ""
    decision: str = ""


@dataclass(frozen=True, slots=True)
class ApplicationReport:
    """A new application, reported before its first pod."""

    application: str
    partition: str
    queue: str
    user: str
    groups: tuple[str, ...]
    tags: Mapping[str, str]
    placeholder_ask: Mapping[str, int] = field(default_factory=dict)
    """Sum of the requests of the application's placeholders.

    The core places the placeholders before any other pod of the application.
    """
    gang_style: str = ""
    timeout_ms: int = 0
    """The longest time, in milliseconds, in which all placeholders must be placed.

    Placed placeholders may stay unused equally long. 0 means the core's default.
    """


@dataclass(frozen=True, slots=True)
class ApplicationTags:
    """The new tags of an application that was reported before; they replace its former ones."""

    application: str
    partition: str
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ApplicationRemoval:
    """The removal of an application that has no pods left."""

    application: str
    partition: str


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node; effects NoSchedule, PreferNoSchedule, NoExecute."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class NodeReport:
    """A node and the event that is reported about it."""

    node: str
    action: NodeAction
    partition: str = DEFAULT_PARTITION
    capacity: Mapping[str, int] = field(default_factory=dict)
    attributes: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class Veto:
    """The report that a victim could not be evicted.

    The core makes another plan for the decision, without this pod.
    """

    key: str
    decision: str
    reason: str


@dataclass(frozen=True, slots=True)
class BudgetReport:
    """The number of pods of a PodDisruptionBudget (namespace/name) that may be evicted now.

    If the number is None, the budget was deleted.
    """

    key: str
    allowed: int | None


@dataclass(frozen=True, slots=True)
class PlanCheckAnswer:
    """The answer to a plan check.

    ``refused`` has the key of each pod that would not fit, with the reason. ``refused`` is empty if all pods would fit.
    """

    check: str
    partition: str
    refused: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> str:
        """Return the key by which the answer is packed into a message."""
        return f"check {self.partition} {self.check}"


@dataclass(frozen=True, slots=True)
class SyncComplete:
    """The end of a sync, with the numbers of objects that were reported in it."""

    nodes: int
    applications: int
    allocations: int
    asks: int


@dataclass(frozen=True, slots=True)
class ConfigurationReport:
    """The queue configuration for the core, and where it comes from."""

    text: str
    source: str


Report = (
    PodReport
    | PodRelease
    | ApplicationReport
    | ApplicationTags
    | ApplicationRemoval
    | NodeReport
    | Veto
    | BudgetReport
    | PlanCheckAnswer
    | SyncComplete
    | ConfigurationReport
)


class Waiting(IntEnum):
    """The reason why an ask is not placed; the numbers are those of the published interface."""

    SKIPPED = 1
    FAILED = 4


@dataclass(frozen=True, slots=True)
class Placed:
    """The placement of an ask on a node."""

    key: str
    node: str
    application: str = ""
    partition: str = ""


@dataclass(frozen=True, slots=True)
class Released:
    """An order of the core to end an allocation or ask, or the core's confirmation that the allocation or ask has ended."""

    key: str
    termination: TerminationType
    application: str = ""
    partition: str = ""
    message: str = ""
    decision: str = ""
    beneficiary: str = ""
    nodes: tuple[str, ...] = ()
    delivery: str = ""
    """The way in which a victim is evicted: "delete", "evict" or "soft".

    The empty text means "delete". With "evict", disruption budgets are respected. With "soft", the shim only marks the
    pod, and another operator deletes it.
    """


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The withdrawal of a soft eviction: the victim, which was only marked, stays.

    The core no longer needs the capacity of the victim (J11).
    """

    key: str
    decision: str
    reason: str = ""
    partition: str = ""


@dataclass(frozen=True, slots=True)
class PlanCheck:
    """A question of the core: whether the pods in `placements` would fit on their nodes if the victims were gone.

    No victim is evicted before the answer (design 1.8).
    """

    check: str
    partition: str
    placements: tuple[tuple[str, str], ...]
    """The key and node of each pod."""
    victims: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlanCheckEnded:
    """The end of a plan check: the capacity that was kept for its pods need not be kept any longer."""

    check: str
    partition: str


@dataclass(frozen=True, slots=True)
class PodRefused:
    """An ask or allocation that the core refused."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class ApplicationAnswer:
    """The core's answer to a new application; `reason` is empty when it was accepted."""

    application: str
    accepted: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TagsRefused:
    """The core's refusal of an application's new tags. The application and its queue stay unchanged."""

    application: str
    reason: str


@dataclass(frozen=True, slots=True)
class ApplicationState:
    """A change of an application's state in the core."""

    application: str
    state: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """The core's answer to a new node; `reason` is empty when it was accepted."""

    node: str
    accepted: bool
    reason: str = ""
    is_owned: bool = False
    """Whether the node was refused because its partition belongs to another resource manager."""


@dataclass(frozen=True, slots=True)
class StillWaiting:
    """The reason why an ask waits; sent only when it changes."""

    key: str
    state: Waiting
    reason: str


@dataclass(frozen=True, slots=True)
class ConfigurationAnswer:
    """The core's answer to a queue configuration: whether it is in force, and its problems, one line each."""

    text: str
    applied: bool
    problems: tuple[str, ...] = ()


Decision = (
    Placed
    | Released
    | Withdrawn
    | PlanCheck
    | PlanCheckEnded
    | PodRefused
    | ApplicationAnswer
    | TagsRefused
    | ApplicationState
    | NodeAnswer
    | StillWaiting
    | ConfigurationAnswer
)
