"""The state of the shim: pods, nodes, applications, and the session with the core."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from enum import Enum, auto

from shim_client.cluster import Action, KubeObject, ObjectRef, RecordEvent
from shim_client.config import Settings
from shim_client.messages import ConfigurationAnswer, PodReport, Releasing, Report, SelectorTerm
from shim_client.state_machine.topology_counts import Neighbourhood
from shim_client.translate.applications import Membership, NamespaceFacts
from shim_client.translate.budgets import BudgetFacts
from shim_client.translate.neighbours import Demands
from shim_client.translate.node import NodeFacts
from shim_client.translate.pod import PodFacts
from shim_client.translate.volumes import ClaimFacts, StorageClassFacts


class Phase(Enum):
    """The phase of the session with the core."""

    AWAY = auto()
    """No session: the cluster is followed, nothing is reported."""
    GREETING = auto()
    """Nodes and applications were announced; their answers are awaited."""
    TELLING = auto()
    """All that exists has been reported; the core's confirmation is awaited."""
    OPEN = auto()
    """The core knows everything and may place; changes are reported as they come."""


class Standing(Enum):
    """The standing of a node or application with the core in this session."""

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
    """The event that the node is known has been recorded."""


@dataclass(slots=True, eq=False)
class ApplicationRecord:
    """An application; queue and user are those of the pod that created it (specification 1.3)."""

    id: str
    partition: str
    membership: Membership
    namespace: str
    originator: str
    """Uid of the first real pod, kept while the application lives (1.4)."""
    ran: bool = False
    """A pod of the application was placed; the core then completes it by itself when it is empty."""
    placeholders_made: bool = False
    """Placeholders were ordered, possibly by an earlier shim."""
    placeholders_coming: dict[str, None] = field(default_factory=dict)
    """Names of placeholders whose creation has not ended."""
    placeholders_failed: bool = False
    standing: Standing = Standing.UNSENT
    members: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True)
class OwnerRecord:
    """An owner of a job's pods, and how many pods it wants."""

    members: int = 0
    asked: bool = False
    wanted: int | None = None
    """None: the owner has not answered yet, or cannot be read."""


@dataclass(slots=True, eq=False)
class JobRecord:
    """The pods of an application with the same job key, and what is known of how many there will be (J1)."""

    name: str
    key: str
    called: str
    members: dict[str, None] = field(default_factory=dict)
    labelled: Counter[int] = field(default_factory=Counter)
    """Sizes that labels say, with how many members say each."""
    owners: dict[ObjectRef, OwnerRecord] = field(default_factory=dict)
    without_owner: int = 0
    seen: int = 0
    """Number of members once none had come for a while; 0: not yet."""
    quiet_s: int = 0
    stale: bool = False
    """Members came or went since the owners were asked."""
    uncounted: bool = False
    """Members came or went since they were counted for `seen`."""


@dataclass(frozen=True, slots=True)
class Room:
    """The capacity that is being freed for a waiting pod: so many pods are evicted from a node by a decision."""

    decision: str
    node: str
    count: int


@dataclass(slots=True, eq=False)
class PodRecord:
    """A pod of ours or of another scheduler."""

    facts: PodFacts
    arrival: int
    node: str = ""
    """The node where the pod runs, or to which it is being bound."""
    application: ApplicationRecord | None = None
    job: JobRecord | None = None
    counted: tuple[ObjectRef | None, int] = (None, 0)
    """Owner and labelled size with which the job counts the pod."""
    sent: PodReport | None = None
    """The report of the pod that the core has in this session."""
    updated: bool = False
    """The pod was reported more than once: when the core refuses the last report it keeps the one before."""
    refused: PodReport | None = None
    """The report that the core refused; the pod is reported again when it has changed."""
    order: Releasing | None = None
    """The core's order to evict the pod, confirmed when the pod is gone."""
    soft: bool = False
    """The order is to mark the pod for another operator, which deletes it (J11)."""
    marked: bool = False
    """The mark of that order was seen on the pod."""
    void: Releasing | None = None
    """A mark on the pod that no longer counts and is being removed."""
    room: Room | None = None
    """The capacity that others free for the pod while it waits."""
    demanded: Demands | None = None
    """The demands on neighbouring pods, as long as the pod has no node."""
    said: tuple[str, str] | None = None
    """Reason and message of the condition that the shim wrote on the pod."""
    dropped: bool = False
    """A placeholder whose deletion the shim itself ordered."""
    failed: bool = False
    """The pod failed with its application: it is not reported any more."""
    noted: tuple[str, ...] = ()
    """Events that were recorded on the pod, so that each is recorded once."""


@dataclass(slots=True)
class State:
    """The whole state of the shim; `reports` and `actions` are the outputs that were not taken yet."""

    settings: Settings
    phase: Phase = Phase.AWAY
    connected: bool = False
    listed: set[str] = field(default_factory=set)
    pods: dict[str, PodRecord] = field(default_factory=dict)
    nodes: dict[str, NodeRecord] = field(default_factory=dict)
    assigned: dict[str, dict[str, None]] = field(default_factory=dict)
    """Uids by node name, also for nodes that are not known: their pods are orphans (1.1)."""
    applications: dict[str, dict[str, ApplicationRecord]] = field(default_factory=dict)
    """Applications by id, then by partition; the core's answers name the id alone."""
    makers: dict[str, ApplicationRecord] = field(default_factory=dict)
    """Applications whose placeholders are being created, by the uid of the pod for which that is done."""
    jobs: dict[str, JobRecord] = field(default_factory=dict)
    """Jobs by a name made of partition, application and job key."""
    jobs_called: dict[str, dict[str, None]] = field(default_factory=dict)
    """Names of jobs by what users call them: partition, namespace and job key."""
    jobs_to_tell: dict[str, None] = field(default_factory=dict)
    """Names of jobs whose size has changed."""
    unanswered: dict[str, deque[ApplicationRecord]] = field(default_factory=dict)
    """Announced applications without an answer; of those with the same id only the first was sent."""
    greeted: dict[str, None] = field(default_factory=dict)
    """Names of nodes whose answer is awaited."""
    classes: dict[str, bool] = field(default_factory=dict)
    namespaces: dict[str, NamespaceFacts] = field(default_factory=dict)
    claims: dict[str, ClaimFacts] = field(default_factory=dict)
    """Existing volume claims, by namespace/name."""
    volumes: dict[str, tuple[SelectorTerm, ...]] = field(default_factory=dict)
    """Volumes by name, with the terms of which a node must meet one."""
    storage_classes: dict[str, StorageClassFacts] = field(default_factory=dict)
    budgets: dict[str, dict[str, BudgetFacts]] = field(default_factory=dict)
    """PodDisruptionBudgets by namespace and name."""
    budgets_told: dict[str, int] = field(default_factory=dict)
    """The number of disruptions that each budget allows, as last reported to the core, by namespace/name."""
    neighbourhood: Neighbourhood = field(default_factory=Neighbourhood)
    places: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """Nodes by label and value, for labels that were asked for; emptied when nodes change."""
    reachable: dict[str, set[str]] = field(default_factory=dict)
    """Nodes that can mount a volume, or a volume of a class; emptied when nodes or volumes change."""
    outlook: int = 0
    """A number that changes with nodes and volumes, and with it possibly the nodes that suit a pod."""
    to_review: deque[str] = field(default_factory=deque)
    """Asks whose suitable nodes are to be reviewed."""
    reviewed: tuple[int, int] = (0, 0)
    """The versions of neighbourhood and outlook at the last review."""
    config_maps: dict[str, KubeObject] = field(default_factory=dict)
    """The shim's own ConfigMaps by name."""
    queues_told: str = ""
    """The queue configuration that was last sent to the core."""
    configuration_said: ConfigurationAnswer | None = None
    """The core's last answer about it, which is recorded on the ConfigMap."""
    bad: dict[str, str] = field(default_factory=dict)
    """Unreadable objects, by uid or name, with the message that was recorded on them."""
    taken_up: list[str] = field(default_factory=list)
    """Uids of victims of an earlier shim that are evicted as soon as the core knows them."""
    to_announce: dict[str, None] = field(default_factory=dict)
    """Uids of waiting pods for which victims are evicted, to be announced together."""
    arrivals: int = 0
    barriers: dict[str, str] = field(default_factory=dict)
    """Barriers that were sent, with the node that waits for each; "" is the sync's own."""
    barriers_made: int = 0
    reports: list[Report] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)

    def may_tell_pods(self) -> bool:
        """Return whether the session has come far enough to report pods."""
        return self.phase in {Phase.TELLING, Phase.OPEN}

    def node_accepts(self, name: str) -> bool:
        """Return whether the core knows the node, so that its pods can be reported."""
        node = self.nodes.get(name)
        return node is not None and node.standing is Standing.ACCEPTED

    def note(self, about: ObjectRef, reason: str, message: str, *, warning: bool = False) -> None:
        """Record an event on an object."""
        self.actions.append(RecordEvent(about, reason, message[:1024], warning))

    def note_once(
        self, pod: PodRecord, reason: str, message: str, *, warning: bool = False
    ) -> None:
        """Record an event on a pod, unless the same event was recorded before."""
        said = f"{reason}:{message}"
        if said not in pod.noted:
            pod.noted = (*pod.noted[-7:], said)
            self.note(pod.facts.ref, reason, message, warning=warning)
