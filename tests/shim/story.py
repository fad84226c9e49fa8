"""A state machine under test: inputs in a short form, and outputs as lines of text."""

from collections.abc import Iterable
from typing import Any

from shim_client.cluster import (
    KINDS,
    Action,
    Bind,
    Change,
    ClusterError,
    CreatePod,
    DeletePod,
    EvictPod,
    Listing,
    PatchPod,
    ReadOwner,
    RecordEvent,
    ReleasePod,
    WatchEvent,
)
from shim_client.config import Settings
from shim_client.messages import (
    ApplicationAnswer,
    ApplicationRemoval,
    ApplicationReport,
    ApplicationTags,
    BudgetReport,
    ConfigurationReport,
    Decision,
    NodeAction,
    NodeAnswer,
    NodeReport,
    PlanCheckAnswer,
    PodRefused,
    PodRelease,
    PodReport,
    Report,
    SyncComplete,
    Veto,
)
from shim_client.state_machine.barriers import APPLICATION
from shim_client.state_machine.machine import Beat, Link, Mirror, Outcome
from shim_client.translate.labels import TASK_GROUP
from tests.shim.objects import Item

ACCEPT_ALL = "accept all"


class Story:
    """A state machine; `told` and `did` return the lines since the last call."""

    def __init__(self, *, settings: Settings | None = None, core: str = ACCEPT_ALL) -> None:
        self.mirror = Mirror(settings or Settings())
        self.core = core
        self.reports: list[Report] = []
        self.actions: list[Action] = []
        self._told = 0

    def start(self, *items: Item) -> "Story":
        """List everything, connect, and let the core answer until it knows everything."""
        self.lists(*items)
        self.connect()
        return self

    def lists(self, *items: Item, kinds: Iterable[str] = KINDS) -> None:
        for kind in kinds:
            found = [item for item in items if item["kind"] == kind]
            self.mirror.handle(Listing(kind, found, 1))
        self._collect()

    def connect(self) -> None:
        self.mirror.handle(Link.REGISTERED)
        self._collect()

    def lose(self) -> None:
        self.mirror.handle(Link.LOST)
        self._collect()

    def see(self, *items: Item) -> None:
        for item in items:
            self.mirror.handle(WatchEvent(Change.MODIFIED, item["kind"], item, 1))
        self._collect()

    def gone(self, *items: Item) -> None:
        for item in items:
            self.mirror.handle(WatchEvent(Change.DELETED, item["kind"], item, 1))
        self._collect()

    def hear(self, *decisions: Decision) -> None:
        for decision in decisions:
            self.mirror.handle(decision)
        self._collect()

    def seconds(self, count: int) -> None:
        for _ in range(count):
            self.mirror.handle(Beat.SECOND)
            self._collect()

    def outcome(self, action: Action, error: ClusterError | None = None) -> None:
        self.mirror.handle(Outcome(action, error))
        self._collect()

    def binds(self) -> list[Bind]:
        return [action for action in self.actions if isinstance(action, Bind)]

    def last_pod(self) -> PodReport:
        return [report for report in self.reports if isinstance(report, PodReport)][-1]

    def told(self) -> list[str]:
        """Return and clear the reports to the core, barriers left out."""
        lines = [line for report in self.reports if (line := describe(report))]
        self.reports.clear()
        self._told = 0
        return lines

    def did(self) -> list[str]:
        lines = [line for action in self.actions for line in describe_steps(action)]
        self.actions.clear()
        return lines

    def forget(self) -> "Story":
        self.told()
        self.did()
        return self

    def _collect(self) -> None:
        reports, actions = self.mirror.take()
        self.reports += reports
        self.actions += actions
        while self.core == ACCEPT_ALL and self._told < len(self.reports):
            report = self.reports[self._told]
            self._told += 1
            answer = accept(report)
            if answer is not None:
                self.mirror.handle(answer)
                more, also = self.mirror.take()
                self.reports += more
                self.actions += also


def accept(report: Report) -> Decision | None:
    """Return the answer of a core that accepts every report; a barrier is refused, as every core does."""
    match report:
        case NodeReport(node=name, action=NodeAction.CREATE_DRAIN):
            return NodeAnswer(name, accepted=True)
        case ApplicationReport(application=id_):
            return ApplicationAnswer(id_, accepted=True)
        case PodReport(key=key, application=id_) if id_ == APPLICATION:
            return PodRefused(key, "no such application")
    return None


def describe(report: Report) -> str:
    match report:
        case NodeReport():
            return f"node {report.node} {report.action.name}"
        case SyncComplete():
            return (
                f"sync nodes={report.nodes} apps={report.applications} "
                f"allocs={report.allocations} asks={report.asks}"
            )
        case ApplicationReport() | ApplicationRemoval():
            return describe_application(report)
        case ApplicationTags():
            return f"tags of {report.application}: {sorted(report.tags)}"
        case ConfigurationReport():
            return f"queues from {report.source}"
        case BudgetReport(allowed=None):
            return f"budget {report.key} gone"
        case BudgetReport():
            return f"budget {report.key} {report.allowed}"
        case _:
            return describe_pod(report)


def describe_application(report: ApplicationReport | ApplicationRemoval) -> str:
    if isinstance(report, ApplicationRemoval):
        return f"remove app {report.application}"
    forced = " forced" if "application.create.force" in report.tags else ""
    gang = f" gang {report.gang_style}" if report.gang_style else ""
    holding = "".join(f" {kind}={n}" for kind, n in sorted(report.placeholder_ask.items()))
    return f"app {report.application} in {report.queue}{forced}{gang}{holding}"


def describe_pod(report: PodReport | PodRelease | Veto | PlanCheckAnswer) -> str:
    name = report.key.removeprefix("uid-")
    match report:
        case PlanCheckAnswer():
            return f"{name} {'refused' if report.refused else 'fits'}"
        case PodReport(application=id_) if id_ == APPLICATION:
            return ""
        case PodReport(node=node, releasing=mark):
            going = f" going {mark.decision}".rstrip() if mark else ""
            return f"alloc {name}@{node}{going}" if node else f"ask {name}"
        case PodRelease():
            return f"release {name} {report.termination.name} {report.decision}".rstrip()
        case Veto():
            return f"veto {name} {report.decision}"


def describe_steps(action: Action) -> list[str]:
    """Return an action as lines; a release has the lines of its patch of the pod, then the pod's end."""
    match action:
        case ReleasePod(note=note, end=end):
            written = [] if note is None else describe_patch(note)
            verb = "evict" if isinstance(end, EvictPod) else "delete"
            return [*written, f"{verb} {end.pod.name}"] if end else written
        case PatchPod():
            return describe_patch(action)
        case _:
            return [describe_action(action)]


def describe_action(action: Bind | CreatePod | DeletePod | ReadOwner | RecordEvent) -> str:
    match action:
        case ReadOwner(owner=owner):
            return f"read {owner.kind}/{owner.name}"
        case CreatePod():
            group = action.item["metadata"]["annotations"][TASK_GROUP]
            return f"create {group} {action.pod.name.rpartition('-')[2]}"
        case Bind():
            return f"bind {action.pod.name}@{action.node}"
        case DeletePod():
            return f"delete {action.pod.name}"
        case RecordEvent():
            return f"event {action.about.kind}/{action.about.name} {action.reason}"


def describe_patch(action: PatchPod) -> list[str]:
    """Return a line for each part of a patch."""
    name, lines = action.pod.name, []
    if action.labels:
        lines.append(f"label {name} {dict(action.labels)}")
    if action.annotations:
        lines.append(f"annotate {name} {dict(action.annotations)}")
    if action.condition:
        lines.append(f"condition {name} {action.condition[2]}")
    if action.phase:
        lines.append(f"phase {name} {action.phase} {action.reason}")
    return lines


def changed(item: Item, part: str, **fields: Any) -> Item:
    """Return a copy of the object with fields of one part changed."""
    return {**item, part: {**item[part], **fields}}
