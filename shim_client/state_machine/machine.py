"""The entry to the state machine: `handle` processes one input, `take` returns the resulting reports and actions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType
from typing import Any, Final, cast

from shim_client.cluster import (
    KINDS,
    Action,
    Change,
    ClusterError,
    KubeObject,
    Listing,
    ReadOwner,
    WatchEvent,
)
from shim_client.config import Settings
from shim_client.messages import (
    ApplicationAnswer,
    ApplicationState,
    ConfigurationAnswer,
    Decision,
    NodeAnswer,
    Placed,
    PlanCheck,
    PlanCheckEnded,
    PodRefused,
    Released,
    Report,
    StillWaiting,
    TagsRefused,
    Withdrawn,
)
from shim_client.state_machine import (
    application_answers,
    bindings,
    evictions,
    job_sizes,
    nodes,
    plan_checks,
    pods,
    promises,
    recheck,
)
from shim_client.state_machine import session as sessions
from shim_client.state_machine.marks import notices
from shim_client.state_machine.objects import (
    budgets,
    configuration,
    pod_groups,
    policies,
    references,
    storage,
)
from shim_client.state_machine.objects.configuration import QueuesChanged
from shim_client.state_machine.state import CoreSession, Phase, State
from shim_client.translate.fields import BadObjectError

NOBODY: Final[Mapping[str, str]] = MappingProxyType({})
"""An empty table of the groups of cores by partition, for a shim whose core decides for all partitions."""
_Answer = ApplicationAnswer | TagsRefused | ApplicationState | NodeAnswer


class Link(Enum):
    """A change of the connection to the core."""

    REGISTERED = auto()
    LOST = auto()


@dataclass(frozen=True, slots=True)
class PartitionMoved:
    """The news that another group of cores decides for a partition from now on (design 7.9)."""

    partition: str
    group: str


class Beat(Enum):
    """A tick, at which periodic work is done."""

    SECOND = auto()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an action; `error` is None when the action succeeded."""

    action: Action
    error: ClusterError | None = None


Input = Listing | WatchEvent | Decision | Link | Beat | Outcome | QueuesChanged | PartitionMoved


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of the pods that name the shim's scheduler, by their state."""

    live: bool
    """Whether a session is open and the core has confirmed the reports of everything that exists."""
    bound: int
    binding: int
    leaving: int
    """Pods whose eviction the core ordered and that still run or terminate."""
    marked: int
    """Pods that are marked so that another operator evicts them. The operator chooses the time."""
    waiting: int
    """Waiting asks for which the core has given no reason yet."""
    explained: int
    """Asks whose condition says why they wait; refused asks are included."""
    held: int
    """Pods that are not asks now, for example because of scheduling gates, device claims or missing volume claims."""


class Mirror:
    """The state machine: it holds the state of the shim and handles every input."""

    def __init__(
        self,
        settings: Settings,
        owners: Mapping[str, str] = NOBODY,
        rest: str = "",
        groups: Iterable[str] = (),
    ) -> None:
        """Begin with an empty state.

        `owners` names the group of cores of each partition, and `rest` the group of all other partitions.

        `groups` are the names of all groups, also of groups without a partition.
        """
        self.state = State(settings, owners, rest, queues_told=settings.queues)
        for name in groups:
            self.state.sessions.setdefault(name, CoreSession())

    def owner(self, partition: str) -> str:
        """Return the group of cores that decides for a partition."""
        return self.state.owner(partition)

    def handle(self, news: Input, group: str = "") -> None:
        """Process one input.

        For a decision or a `Link`, `group` is the group of cores from which it comes; "" means the group `rest`.
        """
        state = self.state
        session = state.sessions[group or state.rest]
        match news:
            case WatchEvent():
                _observe(state, news.kind, news.change, news.item)
            case Listing():
                _compare(state, news)
            case Outcome():
                _finish(state, news)
            case Link.REGISTERED:
                sessions.connected(state, session)
            case Link.LOST:
                sessions.disconnected(state, session)
            case PartitionMoved() | QueuesChanged():
                _reconfigure(state, news)
            case Beat.SECOND:
                job_sizes.second(state)
                recheck.review(state)
            case _:
                self._decided(news, session)

    def take(self) -> tuple[list[Report], list[Action]]:
        """Return the reports and actions that have arisen since the last call, in order."""
        by_group, actions = self.take_by_group()
        return [report for reports in by_group.values() for report in reports], actions

    def take_by_group(self) -> tuple[dict[str, list[Report]], list[Action]]:
        """Return what `take` returns, with the reports by group of cores.

        A queue configuration is reported to every group.
        """
        state = self.state
        job_sizes.tell(state)
        notices.announce(state)
        reports: dict[str, list[Report]] = {}
        for name, session in state.sessions.items():
            reports[name] = [*state.reports, *session.reports]
            session.reports.clear()
        actions = state.actions
        state.reports, state.actions = [], []
        return reports, actions

    def is_live(self) -> bool:
        """Return whether all existing objects have been reported to the cores of all groups, and confirmed by these cores."""
        return self.state.is_open()

    def has_listed(self) -> bool:
        """Return whether every kind of object was listed, so that a session can begin at once."""
        return self.state.listed.issuperset(KINDS)

    def configuration_said(self) -> ConfigurationAnswer | None:
        """Return the core's last answer to a queue configuration, or None before the first answer."""
        return self.state.configuration_said

    def identity_said(self) -> str | None:
        """Return why the shim accepts no annotation that names a user, "" if it accepts some.

        Return None if the settings trust every annotation, or if the objects have not been listed yet.
        """
        return self.state.guard.said

    def tally(self) -> Tally:
        """Count the pods that name the shim's scheduler, by their state."""
        return _tally(self.state)

    def _decided(self, decision: Decision, session: CoreSession) -> None:
        state = self.state
        if isinstance(decision, ConfigurationAnswer):
            configuration.answered(state, decision)
            return
        if session.phase is Phase.AWAY:
            return
        handler = _DECISIONS.get(type(decision))
        if handler is not None:
            handler(state, decision)
        elif isinstance(decision, PodRefused):
            _refused(state, session, decision)
        else:
            self._answered(cast("_Answer", decision), session)

    def _answered(self, decision: _Answer, session: CoreSession) -> None:
        state = self.state
        match decision:
            case NodeAnswer():
                nodes.answered(state, decision)
            case ApplicationAnswer():
                application_answers.answered(state, session, decision)
            case ApplicationState():
                application_answers.changed(state, session, decision)
            case TagsRefused():
                application_answers.unchanged(state, session, decision)
        sessions.tell_when_answered(state)


def _reconfigure(state: State, news: PartitionMoved | QueuesChanged) -> None:
    if isinstance(news, QueuesChanged):
        configuration.changed(state, news)
    else:
        sessions.moved(state, news.partition, news.group)


def _finish(state: State, outcome: Outcome) -> None:
    if isinstance(outcome.action, ReadOwner):
        job_sizes.answered(state, outcome.action, outcome.error)
    else:
        bindings.outcome(state, outcome.action, outcome.error)


def _refused(state: State, session: CoreSession, decision: PodRefused) -> None:
    """Handle the refusal of a pod or of a barrier.

    The refusal of a barrier shows that the core has processed all earlier reports.
    """
    if not sessions.passed_barrier(state, session, decision.key):
        bindings.refused(state, decision)


def _end_check(state: State, decision: PlanCheckEnded) -> None:
    promises.end(state, decision.partition, decision.check)


_DECISIONS: dict[type, Callable[[State, Any], None]] = {
    Placed: bindings.placed,
    Released: evictions.released,
    Withdrawn: evictions.withdrawn,
    PlanCheck: plan_checks.asked,
    PlanCheckEnded: _end_check,
    StillWaiting: bindings.waiting,
}
"""The handler of each decision about pods."""

_Handler = Callable[[State, KubeObject], None]
_HANDLERS: dict[str, tuple[_Handler, _Handler]] = {
    "Pod": (pods.observe, pods.forget),
    "Node": (nodes.observe, nodes.forget),
    "PriorityClass": (references.observe_class, references.forget_class),
    "Namespace": (references.observe_namespace, references.forget_namespace),
    "ValidatingAdmissionPolicy": (policies.observe_policy, policies.forget_policy),
    "ValidatingAdmissionPolicyBinding": (policies.observe_binding, policies.forget_binding),
    "PodDisruptionBudget": (budgets.observe, budgets.forget),
    "PodGroup": (pod_groups.observe, pod_groups.forget),
    "StorageClass": (storage.observe_class, storage.forget_class),
    "PersistentVolume": (storage.observe_volume, storage.forget_volume),
    "PersistentVolumeClaim": (storage.observe_claim, storage.forget_claim),
    "CSINode": (storage.observe_limits, storage.forget_limits),
    "ConfigMap": (configuration.observe, configuration.forget),
}


def _observe(state: State, kind: str, change: Change, item: KubeObject) -> None:
    observe, forget = _HANDLERS[kind]
    _attempt(state, forget if change is Change.DELETED else observe, kind, item)
    if kind == "Node":
        sessions.tell_when_answered(state)


def _attempt(state: State, handler: _Handler, kind: str, item: KubeObject) -> None:
    """Process an object.

    For an unreadable object an event is recorded once, and other objects are still processed.
    """
    try:
        handler(state, item)
    except BadObjectError as bad:
        references.complain(state, kind, item, bad)


def _compare(state: State, listing: Listing) -> None:
    """Process the list of a kind.

    Known objects that the list lacks were deleted without a watch event.
    """
    references.remove_vanished(state, listing)
    observe, _ = _HANDLERS[listing.kind]
    for item in listing.items:
        _attempt(state, observe, listing.kind, item)
    state.listed.add(listing.kind)
    if listing.kind == "ConfigMap":
        configuration.refresh(state)
    elif listing.kind == "PodGroup":
        pod_groups.refresh(state, listing)
    policies.refresh(state, listing)
    sessions.begin(state)
    sessions.tell_when_answered(state)


def _tally(state: State) -> Tally:
    bound = binding = leaving = marked = waiting = explained = held = 0
    for pod in state.pods.values():
        if not pod.facts.ours:
            continue
        if pod.order is not None:
            soft = pod.soft and pod.marked and not pod.facts.deleting
            marked += soft
            leaving += not soft
        elif pod.facts.report.node:
            bound += 1
        elif pod.node:
            binding += 1
        elif pod.sent is None and pod.refused is None:
            held += 1
        elif pod.said is not None:
            explained += 1
        else:
            waiting += 1
    live = state.is_open()
    return Tally(live, bound, binding, leaving, marked, waiting, explained, held)
