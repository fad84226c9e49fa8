"""What the mirror remembers: pods, nodes, applications, and the state of the session."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from enum import Enum, auto

from shim_client.cluster import Action, KubeObject, ObjectRef, RecordEvent
from shim_client.config import Settings
from shim_client.decisions import ConfigurationAnswer
from shim_client.mirror.neighbourhood import Neighbourhood
from shim_client.reports import PodReport, Releasing, Report, SelectorTerm
from shim_client.translate.applications import Membership, NamespaceFacts
from shim_client.translate.budgets import BudgetFacts
from shim_client.translate.neighbours import Demands
from shim_client.translate.node import NodeFacts
from shim_client.translate.pod import PodFacts
from shim_client.translate.volumes import ClaimFacts, StorageClassFacts


class Phase(Enum):
    """How far the session with the core is."""

    AWAY = auto()
    """No session: the cluster is followed, nothing is told."""
    GREETING = auto()
    """Nodes and applications were announced; their answers are awaited."""
    TELLING = auto()
    """What exists has been told and is on its way; the core's word that it arrived is awaited."""
    OPEN = auto()
    """The core knows everything and may place; changes are told as they come."""


class Standing(Enum):
    """What the core said to a node or application in this session."""

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
    """The node was told once that it is known."""


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
    """A pod of it was placed; the core then completes it by itself when it is empty."""
    placeholders_made: bool = False
    """They were ordered; the shim before this one may have done it."""
    placeholders_coming: dict[str, None] = field(default_factory=dict)
    """Names of placeholders whose making is not over."""
    placeholders_failed: bool = False
    standing: Standing = Standing.UNSENT
    members: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True)
class OwnerRecord:
    """An owner of a job's pods, as far as it tells how many it wants."""

    members: int = 0
    asked: bool = False
    wanted: int | None = None
    """None: it has not said yet, or cannot be read."""


@dataclass(slots=True, eq=False)
class JobRecord:
    """The pods of an application that carry the same job key, and what is known of how many there will be (J1)."""

    name: str
    key: str
    called: str
    members: dict[str, None] = field(default_factory=dict)
    labelled: Counter[int] = field(default_factory=Counter)
    """Sizes that labels say, with how many of the members say so."""
    owners: dict[ObjectRef, OwnerRecord] = field(default_factory=dict)
    without_owner: int = 0
    seen: int = 0
    """Members when none came for a while; 0: not yet."""
    quiet_s: int = 0
    stale: bool = False
    """Members came or went since the owners were asked."""
    uncounted: bool = False
    """Members came or went since they were counted for `seen`."""


@dataclass(frozen=True, slots=True)
class Room:
    """What is being done for a pod that waits: so many pods go from a node by a decision."""

    decision: str
    node: str
    count: int


@dataclass(slots=True, eq=False)
class PodRecord:
    """A pod of ours or of another scheduler."""

    facts: PodFacts
    arrival: int
    node: str = ""
    """Where it runs, or where the core placed it and it is being bound."""
    application: ApplicationRecord | None = None
    job: JobRecord | None = None
    counted: tuple[ObjectRef | None, int] = (None, 0)
    """Owner and labelled size by which the job counts it."""
    sent: PodReport | None = None
    """What the core knows of it in this session."""
    updated: bool = False
    """The core was told more than once: what it refuses now, it had in another form before."""
    refused: PodReport | None = None
    """What the core refused; it is told again when it has changed."""
    order: Releasing | None = None
    """The core's order to let it go, confirmed when the pod is gone."""
    soft: bool = False
    """The order is to mark the pod for another operator, which has it go (J11)."""
    marked: bool = False
    """That mark was seen on it."""
    void: Releasing | None = None
    """A mark on it that counts no more, and is being taken away."""
    room: Room | None = None
    """What others make room for it, while it waits."""
    demanded: Demands | None = None
    """What it demands of the pods around it, as long as it looks for a node."""
    said: tuple[str, str] | None = None
    """Reason and message of the condition that the pod carries by our doing."""
    dropped: bool = False
    """A placeholder that was ordered away by our own doing."""
    failed: bool = False
    """Its application failed, and it fails with it: it is told no more."""
    noted: tuple[str, ...] = ()
    """What the pod was already told in events, each once."""


@dataclass(slots=True)
class State:
    """All that the mirror remembers; `reports` and `actions` are what came out and was not taken."""

    settings: Settings
    phase: Phase = Phase.AWAY
    connected: bool = False
    listed: set[str] = field(default_factory=set)
    pods: dict[str, PodRecord] = field(default_factory=dict)
    nodes: dict[str, NodeRecord] = field(default_factory=dict)
    seated: dict[str, dict[str, None]] = field(default_factory=dict)
    """Uids by node name, also for nodes that are not known: their pods are orphans (1.1)."""
    applications: dict[str, dict[str, ApplicationRecord]] = field(default_factory=dict)
    """By id, then by partition; the core's answers name the id alone."""
    makers: dict[str, ApplicationRecord] = field(default_factory=dict)
    """Applications whose placeholders are being made, by the uid of the pod for which they are."""
    jobs: dict[str, JobRecord] = field(default_factory=dict)
    """By a name of partition, application and job key."""
    jobs_called: dict[str, dict[str, None]] = field(default_factory=dict)
    """Names of jobs by what their users call them: partition, namespace and job key."""
    jobs_to_tell: dict[str, None] = field(default_factory=dict)
    """Names of jobs whose size has changed."""
    unanswered: dict[str, deque[ApplicationRecord]] = field(default_factory=dict)
    """Announced applications without an answer; of one id only the first was sent."""
    greeted: dict[str, None] = field(default_factory=dict)
    """Names of nodes whose answer is awaited."""
    classes: dict[str, bool] = field(default_factory=dict)
    namespaces: dict[str, NamespaceFacts] = field(default_factory=dict)
    claims: dict[str, ClaimFacts] = field(default_factory=dict)
    """Volume claims that are there, by namespace/name."""
    volumes: dict[str, tuple[SelectorTerm, ...]] = field(default_factory=dict)
    """Volumes by name, with the terms of which their node must meet one."""
    storage_classes: dict[str, StorageClassFacts] = field(default_factory=dict)
    budgets: dict[str, dict[str, BudgetFacts]] = field(default_factory=dict)
    """PodDisruptionBudgets by namespace and name."""
    budgets_told: dict[str, int] = field(default_factory=dict)
    """How many disruptions the core was told that each budget allows, by namespace/name."""
    neighbourhood: Neighbourhood = field(default_factory=Neighbourhood)
    places: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """Nodes by label and its value, of labels that were asked for; empty when nodes have changed."""
    reachable: dict[str, set[str]] = field(default_factory=dict)
    """Nodes that can mount a volume, or one of a class; empty when either has changed."""
    outlook: int = 0
    """Changes with the nodes and volumes: with it what suits a pod may have changed."""
    to_review: deque[str] = field(default_factory=deque)
    """Asks whose suitable nodes are to be looked at again."""
    reviewed: tuple[int, int] = (0, 0)
    """What the last review was about."""
    config_maps: dict[str, KubeObject] = field(default_factory=dict)
    """The shim's own ConfigMaps by name."""
    queues_told: str = ""
    """The queue configuration that the core was told last."""
    configuration_said: ConfigurationAnswer | None = None
    """The core's last answer about it, which the ConfigMap tells."""
    bad: dict[str, str] = field(default_factory=dict)
    """Objects that cannot be read, by uid or name, with what was said about them."""
    taken_up: list[str] = field(default_factory=list)
    """Uids of victims of an earlier shim that go as soon as the core knows of them."""
    to_announce: dict[str, None] = field(default_factory=dict)
    """Uids of waiting pods for which room is being made, to be told together."""
    arrivals: int = 0
    barriers: dict[str, str] = field(default_factory=dict)
    """Barriers on their way, with the node that each is for; "" is the sync's own."""
    barriers_made: int = 0
    reports: list[Report] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)

    def may_tell_pods(self) -> bool:
        """Return whether the session is so far that pods can be told."""
        return self.phase in {Phase.TELLING, Phase.OPEN}

    def node_accepts(self, name: str) -> bool:
        """Return whether the core knows the node, so that its pods can be reported."""
        node = self.nodes.get(name)
        return node is not None and node.standing is Standing.ACCEPTED

    def note(self, about: ObjectRef, reason: str, message: str, *, warning: bool = False) -> None:
        """Put an event on an object."""
        self.actions.append(RecordEvent(about, reason, message[:1024], warning))

    def note_once(
        self, pod: PodRecord, reason: str, message: str, *, warning: bool = False
    ) -> None:
        """Put an event on a pod unless the same was put there before."""
        said = f"{reason}:{message}"
        if said not in pod.noted:
            pod.noted = (*pod.noted[-7:], said)
            self.note(pod.facts.ref, reason, message, warning=warning)
