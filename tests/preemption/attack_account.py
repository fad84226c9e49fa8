"""A second model of the state of one core, computed only from events and decisions, for random runs of all policies.

The model contains what a shim and its users know: the node of each pod, the terminating pods with their decisions,
and the open decisions. `Attack` chooses the next event from a seed and the model; `Account` checks each decision.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from server.model.asks import AskSpec, Protection
from server.model.decisions import (
    AskRejected,
    AskReleased,
    Decided,
    Decision,
    DecisionMoved,
    NodeRejected,
    Noted,
    Placed,
    PlanCheckEnded,
    PlanCheckRequested,
    Released,
    Termination,
    Withdrawn,
)
from server.model.events import (
    AllocationAdded,
    ApplicationAdded,
    ApplicationRemoved,
    AskAdded,
    ConfigurationApplied,
    Event,
    ForeignAdded,
    ManagerRegistered,
    NodeAdded,
    NodeDrained,
    NodeEnabled,
    NodeRemoved,
    NodeUpdated,
    PlanChecked,
    ReleaseRequested,
)
from server.model.policies import RESERVATION
from server.model.quota import Configuration, PartitionSpec, QueueSpec
from server.model.reasons import Code
from server.model.records import DecisionRecord, DecisionState
from tests.preemption import proportion_oracle
from tests.preemption.proportion_oracle import Outcome

Amounts = Counter[str]
Place = tuple[str, str]
"""A partition, and the name of an object in it."""


@dataclass
class Node:
    """A node as its shim knows it."""

    capacity: dict[str, int]
    open: bool
    opened: bool
    """Whether the node is open or cordoned, and no longer draining: pods that require it may start."""


@dataclass
class Pod:
    """A pod; an ask while `node` is empty. `dying` is the decision that evicts it, "" when that is unknown."""

    key: str
    application: str
    spec: AskSpec
    created_ms: int
    node: str = ""
    dying: str | None = None
    started_ms: int | None = None
    order: Released | None = None
    """The last order about the pod's end that its shim received."""

    @property
    def required(self) -> str:
        """The node that the pod requires; "" for a pod that may run anywhere."""
        return self.spec.constraints.required_node


@dataclass
class Open:
    """A decision that has not ended."""

    record: DecisionRecord
    ordered: set[str] = field(default_factory=set)


@dataclass
class Partition:
    """The model of one partition."""

    nodes: dict[str, Node] = field(default_factory=dict)
    applications: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Queue and user of each application."""
    pods: dict[str, Pod] = field(default_factory=dict)
    foreign: dict[str, tuple[str, dict[str, int]]] = field(default_factory=dict)
    open: dict[str, Open] = field(default_factory=dict)
    ended: dict[str, DecisionState] = field(default_factory=dict)
    vetoes: int = 0
    asked: dict[str, PlanCheckRequested] = field(default_factory=dict)
    """The plan checks without an answer, by id."""
    agreed: list[PlanCheckRequested] = field(default_factory=list)
    """The plan checks whose managers agreed."""
    heirs: set[str] = field(default_factory=set)
    """Pods for which placeholders were evicted; these pods may use the capacity of the placeholders."""
    shares: Mapping[str, Mapping[str, Outcome]] = field(default_factory=dict)
    """Deserved shares by type and path, as the present round sees them; empty when nothing is shared by weight."""

    def on(self, node: str) -> Iterator[Pod]:
        """Return the pods of a node."""
        return (pod for pod in self.pods.values() if pod.node == node)

    def used(self, node: str) -> Amounts:
        """Return what runs on a node, foreign pods included."""
        total: Amounts = Counter()
        for pod in self.on(node):
            total.update(dict(pod.spec.resource))
        for name, size in self.foreign.values():
            total.update(size if name == node else {})
        return total

    def usage(self, path: str, *, dying: bool) -> Amounts:
        """Return what runs below a queue, with or without terminating pods."""
        total: Amounts = Counter()
        for pod in self.pods.values():
            if pod.node and (dying or pod.dying is None) and self.is_below(pod, path):
                total.update(dict(pod.spec.resource))
        return total

    def gainers(self) -> set[str]:
        """Return the asks for which open decisions hold capacity."""
        return {one.key for known in self.open.values() for one in known.record.beneficiaries}

    def owners(self, node: str, given_up: set[str]) -> list[str]:
        """Return the waiting asks that require a node and have a decision; the node is kept only for them (G11).

        Decisions that were given up in this batch hold nothing, although the batch reports placements first.
        """
        return [
            one.key
            for known in self.open.values()
            for one in known.record.beneficiaries
            if known.record.policy == "required-node"
            and known.record.decision_id not in given_up
            and one.node_id == node
            and one.key in self.pods
            and not self.pods[one.key].node
        ]

    def is_below(self, pod: Pod, path: str) -> bool:
        """Return whether the pod's queue is this queue or is below it."""
        return f"{self.applications[pod.application][0]}.".startswith(f"{path}.")


class Account:
    """The second model. `managers` says which resource manager serves each partition."""

    def __init__(self, configuration: Configuration, managers: Mapping[str, str]) -> None:
        self.managers = managers
        self.specs: dict[str, PartitionSpec] = {}
        self.partitions = {name: Partition() for name in managers}
        self.synced = dict.fromkeys(managers.values(), True)
        self.seen: Counter[str] = Counter()
        self.unbuilt: set[tuple[str, str]] = set()
        """Decisions that ended since the last registration of a manager; they must not come back."""
        self.wiping: set[str] = set()
        self.expiring: list[DecisionRecord] = []
        """The records of expired decisions among the decisions that are being checked."""
        self.ending: set[str] = set()
        self.given_up: set[str] = set()
        """The ids of ended decisions among the decisions that are being checked."""
        self._configure(configuration)

    def _configure(self, configuration: Configuration) -> None:
        self.specs = {one.name: one for one in configuration.partitions}

    def queues(self, partition: str) -> dict[str, QueueSpec]:
        """Return the configured queues of a partition by path."""
        found = {"root": self.specs[partition].root}
        for path, spec in [("root", self.specs[partition].root)]:
            found |= dict(_walk(path, spec))
        return found

    # -- events -------------------------------------------------------------------------------------------------------

    def happened(self, event: Event, decisions: Iterable[Decision]) -> None:
        """Record an event and the core's decisions about it; an event that was not rejected changes the model."""
        decisions = list(decisions)
        if not any(isinstance(one, (AskRejected, NodeRejected)) for one in decisions):
            self._take(event)
        self.decided(decisions)
        self.wiping.clear()

    def _take(  # noqa: C901, PLR0912, PLR0915 - a line for each kind of event
        self, event: Event
    ) -> None:
        match event:
            case ManagerRegistered():
                for name, manager in self.managers.items():
                    if manager == event.rm_id:
                        self._wipe(name)
            case ConfigurationApplied():
                self._configure(event.configuration)
            case NodeAdded():
                node = Node(dict(event.capacity), event.schedulable, event.schedulable)
                self.partitions[event.partition].nodes[event.node_id] = node
            case NodeUpdated():
                if event.capacity is not None:
                    nodes = self.partitions[event.partition].nodes
                    nodes[event.node_id].capacity = dict(event.capacity)
            case NodeDrained() | NodeEnabled():
                node = self.partitions[event.partition].nodes[event.node_id]
                node.open, node.opened = isinstance(event, NodeEnabled), True
            case NodeRemoved():
                state = self.partitions[event.partition]
                del state.nodes[event.node_id]
                for key in [key for key, one in state.foreign.items() if one[0] == event.node_id]:
                    del state.foreign[key]
            case ApplicationAdded():
                known = self.partitions[event.partition].applications
                known[event.application_id] = (event.queue, event.user)
            case ApplicationRemoved():
                self._end_application(event.partition, event.application_id)
            case PlanChecked():
                self._answered(event)
            case AskAdded():
                self._ask(event)
            case AllocationAdded():
                self._allocation(event)
            case ForeignAdded():
                state = self.partitions[event.partition]
                state.foreign[event.key] = (event.node_id, dict(event.resource))
            case ReleaseRequested():
                self._release(event)
            case _:
                pass

    def _wipe(self, name: str) -> None:
        state = self.partitions[name]
        self.wiping.add(name)
        self.unbuilt.clear()
        state.nodes.clear()
        state.applications.clear()
        state.pods.clear()
        state.foreign.clear()

    def _end_application(self, partition: str, application: str) -> None:
        state = self.partitions[partition]
        for key in [one.key for one in state.pods.values() if one.application == application]:
            del state.pods[key]
        state.applications.pop(application, None)

    def _ask(self, event: AskAdded) -> None:
        pods = self.partitions[event.partition].pods
        known = pods.get(event.key)
        if known is not None:
            known.spec = event.spec
            return
        created = event.created_ms or 0
        pods[event.key] = Pod(event.key, event.application_id, event.spec, created)

    def _allocation(self, event: AllocationAdded) -> None:
        pods = self.partitions[event.partition].pods
        pod = pods.get(event.key)
        if pod is None:
            created = event.created_ms or 0
            pod = pods[event.key] = Pod(event.key, event.application_id, event.spec, created)
        pod.spec, pod.node, pod.started_ms = event.spec, event.node_id, event.started_ms
        if event.releasing is not None and pod.dying is None:
            pod.dying = event.releasing.decision_id

    def _release(self, event: ReleaseRequested) -> None:
        state = self.partitions[event.partition]
        pod = state.pods.get(event.key)
        if pod is not None and pod.node and event.termination is _FAILED:
            pod.node, pod.dying, pod.order, pod.started_ms = "", None, None, None
        else:
            state.pods.pop(event.key, None)
            state.foreign.pop(event.key, None)

    # -- decisions ----------------------------------------------------------------------------------------------------

    def decided(self, decisions: Iterable[Decision]) -> None:  # noqa: C901, PLR0912, PLR0915 - a line each
        """Check decisions in their order; the decisions of one round were planned on one snapshot."""
        decisions = list(decisions)
        seen: set[str] = set()
        self.expiring = [
            self.partitions[one.partition].open[one.decision_id].record
            for one in decisions
            if isinstance(one, DecisionMoved) and one.state is DecisionState.EXPIRED
            if one.decision_id in self.partitions[one.partition].open
        ]
        moves = [one for one in decisions if isinstance(one, DecisionMoved)]
        self.ending = {one.decision_id for one in moves if not one.state.is_open}
        self.given_up = {one.decision_id for one in moves if one.state is DecisionState.ABORTED}
        for one in decisions:
            if isinstance(one, Decided) and one.record.partition not in seen:
                seen.add(one.record.partition)
                self._share_out(one.record.partition)
            match one:
                case Placed():
                    self._placed(one)
                case Released():
                    self._released(one)
                case Withdrawn():
                    self._withdrawn(one)
                case PlanCheckRequested():
                    self.partitions[one.partition].asked[one.check_id] = one
                    self.seen["plan check"] += 1
                case PlanCheckEnded():
                    self.partitions[one.partition].asked.pop(one.check_id, None)
                    self.seen[f"plan check ended: {one.reason[:24]}"] += 1
                case Decided():
                    self._decided(one.record)
                case DecisionMoved():
                    self._moved(one)
                case AskReleased():
                    self.partitions[one.partition].pods.pop(one.key, None)
                case Noted():
                    assert one.code is not Code.LAW_BROKEN, one.message
                    self.seen[f"noted {one.code}"] += 1
                    if one.code is Code.VICTIM_VETOED:
                        self.partitions[one.partition].vetoes += 1
                case _:
                    pass

    def _withdrawn(self, stays: Withdrawn) -> None:
        """Assert that only a marked pod is withdrawn, and that no open decision still needs its capacity (J11)."""
        state = self.partitions[stays.partition]
        pod = state.pods[stays.key]
        assert pod.dying == stays.decision_id, f"{pod.key} does not go for {stays.decision_id}"
        assert pod.order is not None, f"{pod.key} was never told to go"
        assert pod.order.delivery == "soft", f"{pod.key} goes for good: {pod.order}"
        pod.dying = pod.order = None
        known = state.open.get(stays.decision_id)
        if known is not None:
            known.ordered.discard(pod.key)
        if known is not None and known.record.shrink is None:
            self.seen["withdrawn while open"] += 1
        self._assert_capacity_is_left(state, pod)
        self.seen["withdrawn"] += 1

    def _assert_capacity_is_left(self, state: Partition, stays: Pod) -> None:
        """Assert that asks with promised capacity on the node still fit there beside the pod, after all ordered evictions."""
        known = (one for one in state.open.values() if one.record.decision_id not in self.ending)
        waiting = [
            one
            for each in known
            for one in each.record.beneficiaries
            if one.node_id == stays.node and one.key in state.pods and not state.pods[one.key].node
        ]
        left = state.used(stays.node)
        for pod in state.on(stays.node):
            told = (
                pod.dying is not None or pod.order is not None
            )  # A placeholder is not counted as terminating.
            left.subtract(dict(pod.spec.resource) if told else {})
        for one in waiting:
            left.update(dict(one.resource))
        capacity = state.nodes[stays.node].capacity
        for kind in {kind for one in waiting for kind, _ in one.resource}:
            assert left[kind] <= capacity.get(kind, 0), f"{stays.key} is needed, {kind} {left}"

    def _placed(self, placed: Placed) -> None:
        state = self.partitions[placed.partition]
        assert self.synced[placed.rm_id], f"{placed.key} is placed before the sync"
        pod, node = state.pods[placed.key], state.nodes[placed.node_id]
        assert not pod.node, f"{pod.key} runs on {pod.node} already"
        assert pod.required in {"", placed.node_id}, f"{pod.key} belongs on {pod.required}"
        assert node.open or pod.required, f"{pod.key} is placed on closed {placed.node_id}"
        pod.node = placed.node_id
        used = state.used(placed.node_id)
        for kind, _ in pod.spec.resource:
            most = node.capacity.get(kind, 0)
            assert used[kind] <= most, f"{placed.node_id} holds {used[kind]} of {most} {kind}"
        _assert_ports(state, pod)
        owners = state.owners(placed.node_id, self.given_up)
        pledged = pod.key in state.gainers() | state.heirs
        assert pledged or not owners, f"{placed.node_id} is held for {owners} alone (G11)"
        self.seen["placed"] += 1

    def _released(self, released: Released) -> None:
        state = self.partitions[released.partition]
        pod = state.pods.get(released.key)
        if released.termination is not Termination.PREEMPTED_BY_SCHEDULER:
            state.pods.pop(released.key, None)
            return
        assert pod is not None, f"{released.key} shall go and is not there"
        assert pod.node, f"{released.key} shall go and waits"
        known = state.open.get(released.decision_id)
        if OVERDUE in released.message:
            self._ordered_again(pod, released)
            return
        assert known, f"{released.key} shall go for {released.decision_id}, which is not open"
        assert pod.key not in known.ordered, f"{pod.key} is told twice to go for one decision"
        assert pod.dying is None, f"{pod.key} shall go twice, {pod.dying} and {released}"
        self.assert_may_go(pod, known.record)
        known.ordered.add(pod.key)
        pod.order = released
        pod.dying = released.decision_id
        self.seen["ordered"] += 1

    def _ordered_again(self, pod: Pod, released: Released) -> None:
        """Assert that the pod is terminating by this order, and that the decision that waits for it has just expired."""
        by = released.decision_id
        assert by, f"{pod.key} shall go again, and no decision says why"
        assert pod.dying == by, f"{pod.key} shall go again by {by} and dies by {pod.dying}"
        assert any(
            pod.key in {one.key for one in record.victims}
            or pod.node in {one.node_id for one in record.beneficiaries}
            for record in self.expiring
            if record.partition == released.partition
        ), f"{pod.key} shall go again by {by}, and nothing that waited for it expired"
        self.seen["ordered again"] += 1

    def assert_may_go(self, pod: Pod, record: DecisionRecord) -> None:
        """Assert that the decision may evict the pod."""
        assert not pod.required, f"{pod.key} belongs to its node and shall go"
        assert pod.spec.protection is not Protection.UNTOUCHABLE, f"{pod.key} is untouchable"
        for one in record.beneficiaries:
            # The members of a job have several nodes, and its queue's max may require victims on
            # further nodes (J8).
            assert record.policy == "job" or one.node_id == pod.node, (
                f"{pod.key} on {pod.node} is evicted for capacity on {one.node_id}"
            )
            if record.policy == "guaranteed":
                assert one.application_id != pod.application, (
                    f"{pod.key} goes for its own application"
                )

    def _decided(self, record: DecisionRecord) -> None:
        state = self.partitions[record.partition]
        spec = self.specs[record.partition].preemption
        self.seen[f"{record.policy} {record.state}"] += 1
        if record.state is DecisionState.OBSERVED:
            assert spec.observe_only, f"{record.decision_id} only observes"
            return
        assert record.state.is_open, f"{record.decision_id} begins {record.state}"
        if "rebuilt" not in record.summary:
            self._assert_agreed(state, record)
        known = state.open.get(record.decision_id)
        if known is not None:
            assert state.vetoes, f"{record.decision_id} is decided twice without a veto"
            known.record = record
            return
        rebuilt = "rebuilt" in record.summary
        assert rebuilt or record.decision_id not in state.ended, f"{record.decision_id} came back"
        known_ended = (record.partition, record.decision_id) in self.unbuilt
        assert not known_ended, f"{record.decision_id} came back"
        for one in record.beneficiaries:
            self._assert_may_gain(state, record, one.key)
        if not rebuilt:
            self._assert_floor(state, record)
        state.open[record.decision_id] = Open(record)
        if rebuilt:
            state.open[record.decision_id].ordered |= {one.key for one in record.victims}

    def _answered(self, event: PlanChecked) -> None:
        state = self.partitions[event.partition]
        check = state.asked.get(event.check_id)
        if check is None or check.rm_id != event.rm_id:
            return
        del state.asked[event.check_id]
        if event.fits:
            state.agreed.append(check)

    def _assert_agreed(self, state: Partition, record: DecisionRecord) -> None:
        """Assert that the manager agreed to this plan, if it evicts pods for an ask that the manager has to check (design 1.8)."""
        gains = tuple((one.key, one.node_id) for one in record.beneficiaries)
        specs = [state.pods[key].spec for key, _ in gains if key in state.pods]
        new = {one.key for one in record.victims} - {
            *record.vetoed,
            *record.withdrawn,
            *record.confirmed,
        }
        if not new or not any(spec.rm_check for spec in specs):
            return
        assert all(spec.plan_checks for spec in specs if spec.rm_check), f"{gains} may fail to bind"
        agreed = [one for one in state.agreed if one.placements == gains]
        assert any(set(one.victims) <= new for one in agreed), f"nobody agreed to {record.summary}"
        self.seen["agreed"] += 1

    def _assert_may_gain(self, state: Partition, record: DecisionRecord, key: str) -> None:
        assert key in state.pods, f"{key} gains by {record.decision_id} and is not there"
        assert not state.pods[key].node, f"{key} gains by {record.decision_id} and runs"
        others = [
            one.record.decision_id
            for one in state.open.values()
            if key in {each.key for each in one.record.beneficiaries}
            and one.record.decision_id not in self.ending
        ]
        assert not others, f"{key} gains by {record.decision_id} and by {others}"

    def _assert_floor(self, state: Partition, record: DecisionRecord) -> None:
        """Assert invariant 3: no queue except the preemptor's falls below its entitlement in the types of its victims."""
        going = [state.pods[one.key] for one in record.victims]
        settings = self.specs[record.partition].preemption
        if record.policy == "required-node" or self._keeps(state, record, going):
            return
        crosses = state.shares and settings.proportion_overshoot == "last"
        less = [[pod for pod in going if pod is not one] for one in going]
        assert crosses, f"{record.decision_id} breaks invariant 3"
        assert record.policy == "guaranteed", f"{record.decision_id} breaks invariant 3"
        assert any(self._keeps(state, record, rest) for rest in less), "more than one crosses (W8)"

    def _keeps(self, state: Partition, record: DecisionRecord, going: list[Pod]) -> bool:
        plain = bool(state.shares) and not self.specs[record.partition].preemption.demand_cap
        for path, spec in self.queues(record.partition).items():
            gains = any(f"{one.queue}.".startswith(f"{path}.") for one in record.beneficiaries)
            falls = [pod for pod in going if state.is_below(pod, path)]
            if gains or not falls or (state.shares and path == "root"):
                continue
            before = state.usage(path, dying=False)
            left = before.copy()
            for pod in falls:
                left.subtract(dict(pod.spec.resource))
            for kind in {kind for pod in falls for kind, _ in pod.spec.resource}:
                least = dict(spec.guaranteed).get(kind, 0)
                if state.shares:
                    least = state.shares[kind][path].entitled
                if left[kind] < least and not (plain and before[kind] < least):
                    return False
        return True

    # -- shares by weight ---------------------------------------------------------------------------------------------

    def bound(self, partition: str, path: str, spec: QueueSpec, kind: str) -> int:
        """Return the most that a queue may use: its max, and in a leaf its plain share (W2)."""
        most = dict(spec.max or ()).get(kind, 1 << 60)
        self._share_out(partition)
        shares = self.partitions[partition].shares
        if spec.children or not shares or self.specs[partition].preemption.demand_cap:
            return most
        return min(most, shares[kind][path].deserved)

    def _share_out(self, partition: str) -> None:
        state, spec = self.partitions[partition], self.specs[partition]
        state.shares = {}
        if spec.preemption.entitlement == "proportional":
            state.shares = {
                kind: proportion_oracle.shares(
                    self._tree(partition, "root", spec.root, kind),
                    _there_is(state, kind),
                    demand_cap=spec.preemption.demand_cap,
                )
                for kind in KINDS
            }

    def _tree(
        self, partition: str, path: str, spec: QueueSpec, kind: str
    ) -> proportion_oracle.Node:
        state = self.partitions[partition]
        gainers = {
            one.key
            for known in state.open.values()
            if known.record.policy != RESERVATION.name
            for one in known.record.beneficiaries
        }
        waiting = [pod for pod in state.pods.values() if not pod.node and state.is_below(pod, path)]
        sizes = {pod.key: dict(pod.spec.resource).get(kind, 0) for pod in waiting}
        return proportion_oracle.Node(
            path,
            spec.weight,
            dict(spec.guaranteed).get(kind, 0),
            None if path == "root" else dict(spec.max or ()).get(kind),
            state.usage(path, dying=False)[kind]
            + sum(size for key, size in sizes.items() if key in gainers),
            sum(size for key, size in sizes.items() if key not in gainers),
            [self._tree(partition, f"{path}.{child.name}", child, kind) for child in spec.children],
        )

    def _moved(self, moved: DecisionMoved) -> None:
        state = self.partitions[moved.partition]
        known = state.open.get(moved.decision_id)
        assert known is not None, f"{moved.decision_id} moves to {moved.state} and is not open"
        if moved.key:
            return
        running = [key for key in known.ordered if _is_dying(state, key, moved.decision_id)]
        if moved.state is DecisionState.CONFIRMED:
            assert not running, f"{moved.decision_id} is confirmed, but {running} run"
        if moved.state.is_open:
            return
        if moved.state is DecisionState.FULFILLED and not known.record.beneficiaries:
            assert not running, f"{moved.decision_id} is fulfilled, but {running} run"
        self.seen[f"{known.record.policy} {moved.state}"] += 1
        del state.open[moved.decision_id]
        state.ended[moved.decision_id] = moved.state
        if known.record.partition not in self.wiping:
            self.unbuilt.add((moved.partition, moved.decision_id))


KINDS: Final = ("memory", "vcore")


def _there_is(state: Partition, kind: str) -> int:
    """Return the capacity of open nodes minus what foreign pods occupy there (W2)."""
    names = [name for name, node in state.nodes.items() if node.open]
    taken = sum(size.get(kind, 0) for node, size in state.foreign.values() if node in names)
    return sum(state.nodes[name].capacity.get(kind, 0) for name in names) - taken


OVERDUE: Final = "not confirmed yet"
_FAILED: Final = Termination.SCHEDULING_FAILED_ON_RM


def _walk(path: str, spec: QueueSpec) -> Iterator[tuple[str, QueueSpec]]:
    for child in spec.children:
        yield f"{path}.{child.name}", child
        yield from _walk(f"{path}.{child.name}", child)


def _is_dying(state: Partition, key: str, decision: str) -> bool:
    pod = state.pods.get(key)
    return pod is not None and pod.dying == decision


def _assert_ports(state: Partition, pod: Pod) -> None:
    others = [other for other in state.on(pod.node) if other is not pod]
    taken = {port for other in others for port in other.spec.constraints.host_ports}
    assert taken.isdisjoint(pod.spec.constraints.host_ports), f"{pod.node}: {pod.key}, {taken}"
