"""The invariants of the state (design 5) hold after every event and every tick, for all input.

Hypothesis also chooses events that make no sense: unknown keys, nodes that exist already, late releases.
`core.validate()` checks the internal state; the invariants here are read through `inspect`.
"""

from collections import Counter
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from evenhand_cli.story.play import run
from server.core.core import Core
from server.core.queries import inspect
from server.model.asks import AskSpec
from server.model.decisions import Decision, Placed, Released, Termination
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
    ReleaseRequested,
    SyncCompleted,
)
from server.model.quota import Acl, Configuration, PartitionSpec, PlacementRule, QueueSpec
from server.model.reports import AllocationReport, QueueReport
from server.model.resources import Limit, resource
from tests.effort import cases

START = 1_800_000_000_000
MANAGER = "rm"
OTHER = "another"
KEYS = st.sampled_from([f"k{number}" for number in range(12)])
NODES = st.sampled_from(["n1", "n2", "n3"])
APPLICATIONS = st.sampled_from(["x", "y", "z"])
QUEUES = st.sampled_from(["root.a", "root.p.b", "root.p.c", "root.p", "root.new"])
AMOUNTS = st.integers(min_value=1, max_value=12)
SPECS = [
    AskSpec(
        resource({"memory": memory, "gpu": gpu}),
        priority,
        gang_key=job,
        min_members=2 if job else 0,
    )
    for memory, gpu, priority, job in (
        (3, 0, 0, ""),
        (5, 1, 0, ""),
        (12, 0, 3, ""),
        (1, 2, -1, ""),
        (4, 0, 0, "job"),
    )
]
STEPS = 25


def _configuration(most: int) -> Configuration:
    limit: Limit = (("memory", most),)
    children = (
        QueueSpec("a", max=limit, guaranteed=(("memory", 5),)),
        QueueSpec(
            "p", parent=True, max=limit, children=(QueueSpec("b"), QueueSpec("c", max=limit))
        ),
    )
    root = QueueSpec("root", parent=True, submit_acl=Acl(everyone=True), children=children)
    rules = (PlacementRule(kind="provided", create=True),)
    return Configuration((PartitionSpec("default", root, rules),))


class AnythingGoes(RuleBasedStateMachine):
    """Events in any order; the invariants hold all the time."""

    def __init__(self) -> None:
        super().__init__()
        self.core = Core(_configuration(20))
        self.now = START
        self.synced = False
        self._tell(ManagerRegistered(MANAGER, explicit_sync=True))
        self._tell(ManagerRegistered(OTHER))

    def _tell(self, event: Event) -> None:
        before = self._standing()
        self._note(self.core.handle(event, self.now), before)
        self.core.validate()

    def _standing(self) -> set[str]:
        return {item.key for item in self._items() if item.node_id}

    def _note(self, decisions: list[Decision], before: set[str]) -> None:
        """Assert that what is released ran before, and is released once."""
        released = [each.key for each in decisions if isinstance(each, Released)]
        assert len(set(released)) == len(released), "released twice for one decision"
        assert set(released) <= before, "released, though it did not stand"

    @rule(wait=st.sampled_from([0, 1, 999, 2_000, 60_000]))
    def tick(self, wait: int) -> None:
        """Nothing is over-filled by what the core decides, and nothing rests that could move."""
        self.now += wait
        overfull, standing = self._overfull(), self._standing()
        decisions = run(self.core, self.now)
        self._note(decisions, standing)
        self.core.validate()
        assert self._overfull() <= overfull, "a node or queue went over by our doing"
        assert not run(self.core, self.now), "a second tick at the same instant found more to do"
        due = self.core.next_due()
        assert due is None or due > self.now

    def _overfull(self) -> set[tuple[str, str]]:
        nodes = {
            (node.node_id, kind)
            for node in inspect.nodes(self.core, "default")
            for kind, taken in node.usage.items()
            if taken + node.foreign.get(kind, 0) > node.capacity.get(kind, 0)
        }
        queues = {
            (path, kind)
            for path, queue in self._queues().items()
            for kind, most in queue.max.items()
            if queue.usage.get(kind, 0) > most
        }
        return nodes | queues

    @rule(key=KEYS, application=APPLICATIONS, spec=st.sampled_from(SPECS))
    def ask(self, key: str, application: str, spec: AskSpec) -> None:
        self._tell(AskAdded(MANAGER, key, application, spec))

    @rule(first=st.integers(0, 8), application=APPLICATIONS, spec=st.sampled_from(SPECS))
    def asks(self, first: int, application: str, spec: AskSpec) -> None:
        for number in range(first, first + 3):
            self._tell(AskAdded(MANAGER, f"k{number}", application, spec))

    @rule(key=KEYS, application=APPLICATIONS, node=NODES, spec=st.sampled_from(SPECS))
    def existing(self, key: str, application: str, node: str, spec: AskSpec) -> None:
        self._tell(AllocationAdded(MANAGER, key, application, node, spec))

    @rule(key=st.sampled_from(["f1", "f2", "k1"]), node=NODES, memory=AMOUNTS)
    def foreign(self, key: str, node: str, memory: int) -> None:
        self._tell(ForeignAdded(MANAGER, key, node, resource({"memory": memory})))

    @rule(key=KEYS, application=APPLICATIONS, termination=st.sampled_from(list(Termination)))
    def release(self, key: str, application: str, termination: Termination) -> None:
        self._tell(ReleaseRequested(MANAGER, application, key, termination=termination))

    @rule(key=st.sampled_from(["", "f1", "f2"]), application=st.sampled_from(["", "x"]))
    def release_others(self, key: str, application: str) -> None:
        self._tell(ReleaseRequested(MANAGER, application, key))

    @rule(
        node=NODES,
        memory=AMOUNTS,
        gpu=st.integers(0, 4),
        manager=st.sampled_from([MANAGER, MANAGER, OTHER]),
    )
    def add_node(self, node: str, memory: int, gpu: int, manager: str) -> None:
        self._tell(NodeAdded(manager, node, resource({"memory": memory * 2, "gpu": gpu})))

    @rule(node=NODES, memory=AMOUNTS)
    def resize_node(self, node: str, memory: int) -> None:
        self._tell(NodeUpdated(MANAGER, node, resource({"memory": memory * 2, "gpu": 2})))

    @rule(node=NODES, change=st.sampled_from([NodeDrained, NodeEnabled, NodeRemoved]))
    def change_node(self, node: str, change: Any) -> None:
        self._tell(change(MANAGER, node))

    @rule(application=APPLICATIONS, queue=QUEUES)
    def add_application(self, application: str, queue: str) -> None:
        self._tell(ApplicationAdded(MANAGER, application, queue))

    @rule(application=APPLICATIONS)
    def remove_application(self, application: str) -> None:
        self._tell(ApplicationRemoved(MANAGER, application))

    @rule(most=st.sampled_from([0, 5, 20, 50]))
    def configure(self, most: int) -> None:
        self._tell(ConfigurationApplied(_configuration(most), "test"))

    @precondition(lambda self: not self.synced)
    @rule()
    def complete_sync(self) -> None:
        self.synced = True
        self._tell(SyncCompleted(MANAGER))

    # -- the invariants ----------------------------------------------------------------------------------

    def _queues(self) -> dict[str, QueueReport]:
        found: dict[str, QueueReport] = {}

        def visit(queue: QueueReport) -> None:
            found[queue.path] = queue
            for child in queue.children:
                visit(child)

        visit(inspect.queue_tree(self.core, "default"))
        return found

    def _items(self) -> list[AllocationReport]:
        return list(inspect.allocations(self.core, "default", asks=True))

    @invariant()
    def usage_of_a_queue_is_the_sum_of_the_allocations_below(self) -> None:
        """Invariant 1, and the same for what is pending and for counts."""
        items = [item for item in self._items() if not item.foreign]
        for path, queue in self._queues().items():
            below = [item for item in items if f"{item.queue}.".startswith(f"{path}.")]
            placed = [item for item in below if item.node_id]
            assert _positive(queue.usage) == _sum(placed), path
            assert queue.allocations == len(placed), path
            assert queue.pending_asks == len(below) - len(placed), path

    @invariant()
    def usage_of_a_node_is_the_sum_of_what_runs_there(self) -> None:
        items = self._items()
        for node in inspect.nodes(self.core, "default"):
            here = [item for item in items if item.node_id == node.node_id]
            assert _positive(node.usage) == _sum([item for item in here if not item.foreign])
            assert _positive(node.foreign) == _sum([item for item in here if item.foreign])
            for kind, free in node.free.items():
                parts = (node.capacity, node.usage, node.foreign, node.pledged)
                capacity, *taken = (amounts.get(kind, 0) for amounts in parts)
                assert free == capacity - sum(taken)

    @invariant()
    def a_key_is_in_exactly_one_state(self) -> None:
        keys = Counter(item.key for item in self._items())
        assert all(count == 1 for count in keys.values()), keys

    @invariant()
    def nothing_stands_on_a_node_that_is_not_there(self) -> None:
        nodes = {node.node_id for node in inspect.nodes(self.core, "default")}
        assert {item.node_id for item in self._items() if item.node_id} <= nodes

    @invariant()
    def what_is_held_is_held_for_an_ask_that_waits(self) -> None:
        waiting = {item.key for item in self._items() if not item.node_id}
        nodes = inspect.nodes(self.core, "default")
        held = [key for node in nodes for key in node.reserved_for]
        assert len(held) == len(set(held)) <= max(1, len(nodes) // 10)
        assert set(held) <= waiting

    @invariant()
    def nothing_is_placed_before_sync(self) -> None:
        if not self.synced:
            assert not any(isinstance(each, Placed) for each in run(self.core, self.now))

    @invariant()
    def the_report_of_the_partition_counts_the_same(self) -> None:
        (partition,) = inspect.partitions(self.core)
        items = self._items()
        assert partition.asks == sum(not item.node_id for item in items)
        assert partition.allocations == sum(
            bool(item.node_id) and not item.foreign for item in items
        )
        assert partition.foreign == sum(item.foreign for item in items)

    @invariant()
    def the_doctor_finds_no_error(self) -> None:
        errors = [each for each in inspect.doctor(self.core) if each.severity == "error"]
        assert not errors


def _sum(items: list[AllocationReport]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for item in items:
        total.update(item.resource)
    return dict(total)


def _positive(amounts: Any) -> dict[str, int]:
    return {kind: amount for kind, amount in amounts.items() if amount}


TestAnythingGoes = AnythingGoes.TestCase
TestAnythingGoes.settings = settings(
    max_examples=cases(60),
    stateful_step_count=STEPS,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
