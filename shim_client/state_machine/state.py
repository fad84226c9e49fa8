"""The state of the shim: pods, nodes, applications, and the session with the core."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from shim_client.cluster import Action, KubeObject, ObjectRef, PatchPod, RecordEvent
from shim_client.config import Settings
from shim_client.messages import (
    ConfigurationAnswer,
    ConfigurationReport,
    PodReport,
    Releasing,
    Report,
)
from shim_client.state_machine.attachments import Attachments
from shim_client.state_machine.topology_counts import Neighbourhood
from shim_client.translate.applications import Membership, NamespaceFacts
from shim_client.translate.budgets import BudgetFacts
from shim_client.translate.neighbours import Demands
from shim_client.translate.node import NodeFacts
from shim_client.translate.pod import PodFacts
from shim_client.translate.pod_groups import PodGroupFacts
from shim_client.translate.policies import BindingFacts, PolicyFacts
from shim_client.translate.volumes import ClaimFacts, StorageClassFacts, VolumeFacts


class Phase(Enum):
    """The phase of the session with the core."""

    AWAY = auto()
    """There is no session: the cluster is watched, but there are no reports."""
    GREETING = auto()
    """Nodes and applications were announced, and not all of them have answers."""
    TELLING = auto()
    """Everything that exists has been reported, and the core has not confirmed it yet."""
    OPEN = auto()
    """The core knows all objects of the cluster and may place pods. Changes are reported when they occur."""


class Standing(Enum):
    """How far the report of a node or an application has come in this session with the core."""

    UNSENT = auto()
    SENT = auto()
    ACCEPTED = auto()
    REFUSED = auto()


@dataclass(slots=True)
class NodeRecord:
    """A node of the cluster."""

    facts: NodeFacts
    standing: Standing = Standing.UNSENT
    welcomed: bool = False
    """Whether an event on the node has reported that the core knows the node."""


@dataclass(slots=True, eq=False)
class ApplicationRecord:
    """An application; its queue and user are those of the pod that created it."""

    id: str
    partition: str
    membership: Membership
    namespace: str
    originator: str
    """Uid of the first real pod; it does not change until the application ends."""
    ran: bool = False
    """Whether a pod of the application was placed; the core then completes the application after its last pod."""
    placeholders_made: bool = False
    """Whether placeholders were ordered, by this shim or by an earlier run of it."""
    placeholders_coming: dict[str, None] = field(default_factory=dict)
    """Names of placeholders whose creation has not finished."""
    placeholders_failed: bool = False
    standing: Standing = Standing.UNSENT
    tags: Mapping[str, str] = field(default_factory=dict)
    """The tags that were last sent to the core, except the tag that forbids the core to reject the application."""
    members: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True)
class OwnerRecord:
    """An owner of a job's pods, and the number of pods that it wants."""

    members: int = 0
    asked: bool = False
    wanted: int | None = None
    """The number of pods.

    None means that the owner has not answered yet, or cannot be read.
    """


@dataclass(slots=True, eq=False)
class GangRecord:
    """The pods of an application with one job key, and what is known about their final number (J1)."""

    name: str
    key: str
    called: str
    members: dict[str, None] = field(default_factory=dict)
    labelled: Counter[int] = field(default_factory=Counter)
    """The sizes of the job that labels of its members give, each with the number of members whose label gives this size."""
    owners: dict[ObjectRef, OwnerRecord] = field(default_factory=dict)
    without_owner: int = 0
    seen: int = 0
    """Number of members at the moment when no further member had come for a while; 0 before that moment."""
    quiet_s: int = 0
    stale: bool = False
    """Whether members came or went since the owners were asked."""
    uncounted: bool = False
    """Whether members came or went since they were counted for `seen`."""


@dataclass(frozen=True, slots=True)
class FreedCapacity:
    """The capacity that is being freed for a waiting pod: the decision, the node, and the number of evicted pods."""

    decision: str
    node: str
    count: int


@dataclass(slots=True, eq=False)
class PodRecord:
    """A pod of the shim's own scheduler or of another scheduler."""

    facts: PodFacts
    arrival: int
    node: str = ""
    """The node where the pod runs, or to which it is being bound."""
    application: ApplicationRecord | None = None
    job: GangRecord | None = None
    counted: tuple[ObjectRef | None, int] = (None, 0)
    """The owner and the labelled size with which the pod is counted in its job."""
    sent: PodReport | None = None
    """The last report of the pod in this session.

    None means that the core does not know the pod.
    """
    updated: bool = False
    """Whether the pod was reported more than once.

    If the core refuses the last report, the core keeps the report before it.
    """
    refused: PodReport | None = None
    """The report that the core refused; the pod is reported again when it has changed."""
    order: Releasing | None = None
    """The core's order to evict the pod.

    When the pod is gone, the order is confirmed.
    """
    soft: bool = False
    """Whether the core ordered a soft eviction: the shim only marks the pod, and another operator deletes it (J11)."""
    marked: bool = False
    """Whether the shim has seen, on the pod, the label of the soft eviction that `order` requests."""
    void: Releasing | None = None
    """The facts of an annotation that is no longer valid and is being removed from the pod."""
    freed: FreedCapacity | None = None
    """The capacity that evictions free for the pod while it waits."""
    demanded: Demands | None = None
    """The demands for which neighbouring pods are counted now: those of the pod while it has no node, else None."""
    promise: tuple[str, str] | None = None
    """The partition and id of the plan check because of which the pod is counted on its planned node.

    None if there is no such check.
    """
    promised: str = ""
    """The node on which the pod is counted because of a plan check; empty if the pod is not counted because of a plan check."""
    said: tuple[str, str] | None = None
    """Reason and message of the condition that the shim wrote on the pod."""
    held: bool = False
    """Whether the pod's condition has the reason why the pod is not an ask yet."""
    dropped: bool = False
    """Whether the pod is a placeholder whose deletion the shim itself ordered."""
    failed: bool = False
    """Whether the pod failed with its application. A failed pod is not reported any more."""
    noted: tuple[str, ...] = ()
    """The last eight different events that were recorded on the pod.

    An event that equals one of these events is not recorded again.
    """


@dataclass(slots=True)
class CoreSession:
    """The session with the cores of one group, which decide for some of the partitions (design 7.6)."""

    phase: Phase = Phase.AWAY
    connected: bool = False
    unanswered: dict[str, deque[ApplicationRecord]] = field(default_factory=dict)
    """Announced applications without an answer, by id.

    If several applications have one id, only the first of them was sent.
    """
    greeted: dict[str, None] = field(default_factory=dict)
    """Names of nodes that were announced and have no answer yet."""
    budgets_told: dict[str, int] = field(default_factory=dict)
    """The number of disruptions that each budget allows, as last reported to the core, by namespace/name."""
    taken_up: list[str] = field(default_factory=list)
    """Uids of victims of an earlier run of the shim.

    These victims are evicted as soon as the core knows them.
    """
    barriers: dict[str, str] = field(default_factory=dict)
    """Keys of barriers (asks whose refusal shows that the core has processed all earlier reports) that were sent.

    Each key has the node that waits for the barrier, or "" when the sync waits.
    """
    reports: list[Report] = field(default_factory=list)
    """Reports for the core that `Mirror.take` has not returned yet."""

    def may_tell_pods(self) -> bool:
        """Return whether pods may be reported in this session: its nodes and applications are reported first."""
        return self.phase in {Phase.TELLING, Phase.OPEN}


@dataclass(slots=True)
class Guard:
    """The admission policy that protects the annotations with the users of pods, as the cluster has it."""

    policy: PolicyFacts | None = None
    bindings: dict[str, BindingFacts] = field(default_factory=dict)
    """The bindings of the policy, by name."""
    served: dict[str, bool] = field(default_factory=dict)
    """For each kind, whether the cluster serves policies and bindings to the shim."""
    said: str | None = None
    """The last recorded reason why the shim accepts no annotation that names a user; "" if it accepts some."""


@dataclass(slots=True)
class State:
    """The whole state of the shim; `reports` and `actions` are outputs that `Mirror.take` has not returned yet."""

    settings: Settings
    owners: Mapping[str, str] = field(default_factory=dict)
    """The group of cores that decides for a partition, by the partition's name; see `rest`."""
    rest: str = ""
    """The group of all partitions that are not in `owners`. If one core decides for all partitions, this is the only group."""
    sessions: dict[str, CoreSession] = field(default_factory=dict)
    """The sessions by the names of the groups."""
    listed: set[str] = field(default_factory=set)
    pods: dict[str, PodRecord] = field(default_factory=dict)
    nodes: dict[str, NodeRecord] = field(default_factory=dict)
    assigned: dict[str, dict[str, None]] = field(default_factory=dict)
    """Uids of pods by the name of their node; the node itself may be unknown."""
    applications: dict[str, dict[str, ApplicationRecord]] = field(default_factory=dict)
    """Applications by id, then by partition; the core's answers name the id alone."""
    makers: dict[str, ApplicationRecord] = field(default_factory=dict)
    """Applications whose placeholders are being created, by the uid of the pod that declares the task groups."""
    jobs: dict[str, GangRecord] = field(default_factory=dict)
    """Jobs by the text that joins partition, application and job key."""
    jobs_called: dict[str, dict[str, None]] = field(default_factory=dict)
    """For each partition, namespace and job key (joined to one text), the names under which `jobs` has the jobs.

    Jobs of several applications of a namespace may have the same job key.
    """
    jobs_to_tell: dict[str, None] = field(default_factory=dict)
    """Names of jobs whose size has changed.

    Their members must be reported again.
    """
    classes: dict[str, bool] = field(default_factory=dict)
    namespaces: dict[str, NamespaceFacts] = field(default_factory=dict)
    claims: dict[str, ClaimFacts] = field(default_factory=dict)
    """Existing volume claims, by namespace/name."""
    volumes: dict[str, VolumeFacts] = field(default_factory=dict)
    pledged_volumes: dict[str, str] = field(default_factory=dict)
    """For each volume, the uid of the pod to which the volume will be bound. The entry ends when a claim is written into the volume."""
    free_volumes: dict[str, dict[str, list[tuple[int, str]]]] = field(default_factory=dict)
    """Size and name of the free volumes by storage class and node; emptied when nodes or volumes change."""
    storage_classes: dict[str, StorageClassFacts] = field(default_factory=dict)
    pod_groups: dict[str, PodGroupFacts] = field(default_factory=dict)
    """PodGroups, by namespace/name."""
    grouped: dict[str, dict[str, None]] = field(default_factory=dict)
    """For each PodGroup that pods name (namespace/name), the uids of these pods. The group itself need not exist."""
    has_pod_groups: bool = True
    """Whether the cluster serves PodGroups to the shim."""
    guard: Guard = field(default_factory=Guard)
    budgets: dict[str, dict[str, BudgetFacts]] = field(default_factory=dict)
    """PodDisruptionBudgets by namespace and name."""
    promises: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """For each partition and plan check, the uids of the pods whose places are kept (see `promises`)."""
    neighbourhood: Neighbourhood = field(default_factory=Neighbourhood)
    attachments: Attachments = field(default_factory=Attachments)
    places: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """Names of nodes by label and value, for labels that were looked up; emptied when nodes change."""
    reachable: dict[str, set[str]] = field(default_factory=dict)
    """For each volume or storage class, by its name, the nodes that can mount the volume, or volumes of the class.

    The map is emptied when nodes change, or when a volume is new or changed.
    """
    outlook: int = 0
    """A number that is increased when the nodes that suit a pod may have changed.

    Other nodes may suit a pod when nodes, claims, volumes or storage classes are new or changed.
    """
    to_review: deque[str] = field(default_factory=deque)
    """Uids of asks whose suitable nodes are to be reviewed."""
    reviewed: tuple[int, int, int] = (0, 0, 0)
    """The versions of `neighbourhood`, `attachments` and `outlook` at the last review."""
    config_maps: dict[str, KubeObject] = field(default_factory=dict)
    """The shim's own ConfigMaps by name."""
    queues_told: str = ""
    """The queue configuration that was last sent to the core."""
    queues_from: str = ""
    """Name of the ConfigMap that holds the queue configuration in force; empty when none does."""
    queues_file: ObjectRef | None = None
    """The file from which a changed queue configuration came.

    The value is None if ConfigMaps hold the configuration, or if the file has not changed since the start.
    """
    configuration_said: ConfigurationAnswer | None = None
    """The core's last answer to a queue configuration. An event on the ConfigMap or the file has this answer."""
    bad: dict[str, str] = field(default_factory=dict)
    """Unreadable objects, by uid or name, with the message that was recorded on each."""
    to_announce: dict[str, None] = field(default_factory=dict)
    """Uids of waiting pods for which pods are evicted; one event for each is recorded after the input."""
    arrivals: int = 0
    barriers_made: int = 0
    reports: list[ConfigurationReport] = field(default_factory=list)
    """Reports for all cores. Reports for the cores of one group are in the session with that group."""
    actions: list[Action] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin with a session for each group."""
        self.sessions = {name: CoreSession() for name in (self.rest, *self.owners.values())}

    def owner(self, partition: str) -> str:
        """Return the group of cores that decides for a partition."""
        return self.owners.get(partition, self.rest)

    def session_of(self, partition: str) -> CoreSession:
        """Return the session with the cores that decide for a partition."""
        return self.sessions[self.owner(partition)]

    def session_for(self, pod: PodRecord) -> CoreSession:
        """Return the session in which the pod is reported.

        A pod of this scheduler is reported in the session of its partition, and a pod of another scheduler in the
        session of its node's partition.
        """
        if pod.application is not None:
            return self.session_of(pod.application.partition)
        node = None if pod.facts.ours else self.nodes.get(pod.node)
        return self.session_of(node.facts.partition if node else pod.facts.report.partition)

    def may_tell_pods(self) -> bool:
        """Return whether pods may be reported in at least one session."""
        return any(one.may_tell_pods() for one in self.sessions.values())

    def is_open(self) -> bool:
        """Return whether the cores of all groups have confirmed all reports."""
        return all(one.phase is Phase.OPEN for one in self.sessions.values())

    def claim_of(self, pod: PodRecord, name: str) -> ClaimFacts | None:
        """Return the claim with this name in the pod's namespace; None if there is none."""
        return self.claims.get(f"{pod.facts.ref.namespace}/{name}")

    def node_accepts(self, name: str) -> bool:
        """Return whether the core has accepted the node, so that its pods can be reported."""
        node = self.nodes.get(name)
        return node is not None and node.standing is Standing.ACCEPTED

    def note(self, about: ObjectRef, reason: str, message: str, *, warning: bool = False) -> None:
        """Record an event on an object."""
        self.actions.append(RecordEvent(about, reason, message[:1024], warning))

    def say(self, ref: ObjectRef, reason: str, message: str) -> None:
        """Write into a pod's condition why the pod has no node."""
        condition = ("PodScheduled", "False", reason, message[:1024])
        self.actions.append(PatchPod(ref, condition=condition))

    def say_once(self, pod: PodRecord, reason: str, message: str) -> None:
        """Write into a pod's condition why the pod has no node, but only when the reason has changed."""
        if pod.said != (reason, message):
            pod.said = (reason, message)
            self.say(pod.facts.ref, reason, message)

    def note_once(
        self, pod: PodRecord, reason: str, message: str, *, warning: bool = False
    ) -> None:
        """Record an event on a pod, unless an equal event is among the last eight different events on the pod."""
        said = f"{reason}:{message}"
        if said not in pod.noted:
            pod.noted = (*pod.noted[-7:], said)
            self.note(pod.facts.ref, reason, message, warning=warning)
