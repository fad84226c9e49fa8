"""The comparison of a manager that registers again with what it had reported: single cases that stories do not show (C9, C10)."""

from dataclasses import replace

from server.config import load
from server.core.core import Core
from server.model.asks import AskSpec, ReleaseMark
from server.model.decisions import (
    ApplicationState,
    ApplicationUpdated,
    AskRejected,
    AskStateChanged,
    Decision,
    NodeAccepted,
    NodeRejected,
    Noted,
    Placed,
    Released,
    Termination,
)
from server.model.events import (
    AllocationAdded,
    ApplicationAdded,
    AskAdded,
    DisruptionsAllowed,
    Event,
    ForeignAdded,
    LeadershipTaken,
    ManagerForgotten,
    ManagerRegistered,
    NodeAdded,
    NodeEnabled,
    ReleaseRequested,
    SyncCompleted,
)
from server.model.reasons import Code
from server.model.thrashing import Pair, TemplateInQueue
from server.state.partition import Partition
from server.state.resumption import Resumption
from server.state.thrashing import Strikes
from tests.preemption.claim_clusters import tick

NOW = 1_800_000_000_000
AGAIN = ManagerRegistered("rm", explicit_sync=True)
QUEUES = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - {name: a, resources: {guaranteed: {memory: 50}}, properties: {preemption.delay: 1ms}}
          - {name: b}
"""


def spec(memory: int = 10, priority: int = 0) -> AskSpec:
    return AskSpec((("memory", memory),), priority)


def node(name: str = "n1", memory: int = 20) -> NodeAdded:
    return NodeAdded("rm", name, (("memory", memory),))


class Stage:
    """A core with one node and two applications."""

    def __init__(self) -> None:
        configuration, problems = load(QUEUES)
        assert configuration is not None, problems
        self.core = Core(configuration)
        self.now = NOW
        self.do(ManagerRegistered("rm"), node(), *self.applications())

    @staticmethod
    def applications() -> tuple[Event, ...]:
        return ApplicationAdded("rm", "x", "root.a"), ApplicationAdded("rm", "y", "root.b")

    def do(self, *events: Event) -> list[Decision]:
        """Take events, and return what is decided by them and by the ticks after them."""
        found = [one for event in events for one in self.core.take([event], self.now)]
        self.core.validate()
        return found + tick(self.core, self.now)

    def again(self, *events: Event) -> list[Decision]:
        """Register again, report the node, the applications and these events, and complete the sync; return what that decides."""
        self.do(AGAIN, node(), *self.applications(), *events)
        return self.do(SyncCompleted("rm"))

    @property
    def partition(self) -> Partition:
        """The state of the only partition."""
        return self.core.state.partitions["default"]

    @property
    def resumption(self) -> Resumption:
        """The comparison in progress."""
        assert self.partition.resumption is not None
        return self.partition.resumption


def ask(key: str, app: str = "y", memory: int = 10) -> AskAdded:
    return AskAdded("rm", key, app, spec(memory), created_ms=NOW - 60_000)


def runs(key: str, app: str = "y", releasing: ReleaseMark | None = None) -> AllocationAdded:
    return AllocationAdded("rm", key, app, "n1", spec(), releasing=releasing)


def placed(found: list[Decision]) -> list[tuple[str, str]]:
    return [(one.key, one.node_id) for one in found if isinstance(one, Placed)]


def test_an_ask_keeps_its_age_and_its_back_off() -> None:
    stage = Stage()
    stage.do(ask("y1"), ask("y2"), ask("y3"))
    waiting = stage.partition.asks["y3"]
    waiting.tried_ms, waiting.wait_ms = NOW - 5, 60_000
    before = (waiting.pending_since, waiting.arrival, waiting.tried_ms, waiting.wait_ms)
    stage.now += 100_000
    stage.again(runs("y1"), runs("y2"), ask("y3"))
    known = stage.partition.asks["y3"]
    assert known is waiting
    assert (known.pending_since, known.arrival, known.tried_ms, known.wait_ms) == before


def test_the_reasons_for_waiting_are_sent_again() -> None:
    stage = Stage()
    stage.do(ask("y1"), ask("y2"), ask("y3"))
    found = stage.again(runs("y1"), runs("y2"), ask("y3"))
    assert [one.key for one in found if isinstance(one, AskStateChanged)] == ["y3"]


def test_a_failed_binding_is_remembered_and_an_unchanged_node_ends_nothing() -> None:
    stage = Stage()
    stage.do(ask("y1"))
    failed = Termination.SCHEDULING_FAILED_ON_RM
    stage.do(ReleaseRequested("rm", "y", "y1", termination=failed))
    assert stage.partition.avoided["y1"]
    stage.do(AGAIN, node()._replace(schedulable=False), *stage.applications(), ask("y1"))
    stage.do(NodeEnabled("rm", "n1"), SyncCompleted("rm"))
    assert stage.partition.avoided["y1"], "the node did not change"
    stage.do(AGAIN, node(memory=30), *stage.applications(), ask("y1"), SyncCompleted("rm"))
    assert not stage.partition.avoided
    assert stage.partition.asks["y1"].node is not None


def test_an_unchanged_node_ends_no_freeze_and_a_changed_node_does() -> None:
    stage = Stage()
    pair = Pair(TemplateInQueue("root.a"), TemplateInQueue("root.b"))
    stage.partition.thrashing.strikes[pair] = Strikes(1, NOW)
    stage.again()
    assert stage.partition.thrashing.strikes
    stage.do(AGAIN, node(memory=30))
    assert not stage.partition.thrashing.strikes


def test_a_node_is_accepted_once_and_refused_with_a_bad_capacity() -> None:
    stage = Stage()
    stage.do(AGAIN)
    (accepted,) = stage.core.take([node()], NOW)
    assert isinstance(accepted, NodeAccepted)
    (refused,) = stage.core.take([node()], NOW)
    assert isinstance(refused, NodeRejected)
    stage.do(AGAIN)
    (refused,) = stage.core.take([node(memory=-1)], NOW)
    assert isinstance(refused, NodeRejected)
    stage.do(SyncCompleted("rm"))
    assert not stage.partition.index.nodes, "a node that was refused is not there"


def test_a_failing_application_is_told_its_state() -> None:
    stage = Stage()
    holds = ApplicationAdded(
        "rm",
        "z",
        "root.b",
        execution_timeout_ms=1_000,
        gang_style="Hard",
        placeholder_ask=(("memory", 100),),
    )
    held = AskSpec((("memory", 10),), placeholder=True, task_group="g")
    stage.do(holds, AllocationAdded("rm", "p1", "z", "n1", held))
    stage.now += 1_000
    stage.do()
    stage.do(AGAIN)
    found = stage.core.take([holds], stage.now)
    states = [one.state for one in found if isinstance(one, ApplicationUpdated)]
    assert states == [ApplicationState.FAILING]


def test_budgets_that_are_not_reported_again_allow_nothing() -> None:
    stage = Stage()
    stage.do(DisruptionsAllowed("rm", "shop/a", 1), DisruptionsAllowed("rm", "shop/b", 2))
    stage.do(AGAIN)
    assert stage.core.managers["rm"].disruptions_allowed == {"shop/a": 1, "shop/b": 2}
    stage.do(node(), DisruptionsAllowed("rm", "shop/b", 3), SyncCompleted("rm"))
    assert stage.core.managers["rm"].disruptions_allowed == {"shop/b": 3}


def test_a_pod_that_changed_its_scheduler_is_another_pod() -> None:
    stage = Stage()
    stage.do(ForeignAdded("rm", "f1", "n1", (("memory", 5),)), ask("y1"))
    found = stage.again(runs("f1"), ForeignAdded("rm", "y1", "n1", (("memory", 10),)))
    assert not [one for one in found if isinstance(one, AskRejected)]
    assert list(stage.partition.asks) == ["f1"]
    assert list(stage.partition.foreign.pods) == ["y1"]


def test_a_pod_that_ends_and_comes_back_in_the_sync_is_a_new_one() -> None:
    stage = Stage()
    stage.do(ask("y1"))
    first = stage.partition.asks["y1"]
    stage.again(ReleaseRequested("rm", "y", "y1"), ask("y1"))
    assert stage.partition.asks["y1"] is not first
    assert stage.partition.asks["y1"].node is not None


def test_a_mark_of_a_decision_that_no_longer_wants_the_pod_leaves_it_releasing() -> None:
    stage = Stage()
    stage.do(runs("y1"), runs("y2"))
    (order,) = [one for one in stage.do(ask("x1", "x")) if isinstance(one, Released)]
    stage.do(ReleaseRequested("rm", "x", "x1"))
    victim = stage.partition.asks[order.key]
    other = next(one for one in ("y1", "y2") if one != order.key)
    mark = ReleaseMark(Termination.PREEMPTED_BY_SCHEDULER, order.decision_id, "x1", "n1")
    found = stage.again(runs(order.key, releasing=mark), runs(other, releasing=mark))
    assert not [one for one in found if isinstance(one, Released)]
    assert victim.releasing
    assert stage.partition.asks[other].releasing, "its manager carries the old order out"
    assert not stage.partition.decisions.marks


def test_a_mark_of_a_decision_that_is_not_known_opens_it_again() -> None:
    stage = Stage()
    stage.do(runs("y1"), runs("y2"))
    mark = ReleaseMark(Termination.PREEMPTED_BY_SCHEDULER, "g-1-1", "x1", "n1")
    stage.again(runs("y1", releasing=mark), runs("y2"), ask("x1", "x"))
    assert list(stage.partition.decisions.open) == ["g-1-1"]


def test_timers_are_kept_over_two_registrations_and_when_the_manager_is_forgotten() -> None:
    stage = Stage()
    timed = replace(spec(), timeout_ms=1_000)
    stage.do(runs("y1"), runs("y2"), AskAdded("rm", "y3", "y", timed))
    stage.do(AGAIN)
    stage.now += 2_000
    stage.do()
    assert stage.resumption.timers
    found = stage.again(runs("y1"), runs("y2"), AskAdded("rm", "y3", "y", timed))
    assert "y3" not in stage.partition.asks, found
    stage.do(AskAdded("rm", "y4", "y", timed), AGAIN)
    stage.now += 2_000
    stage.do()
    assert stage.resumption.timers
    stage.do(ManagerRegistered("rm", explicit_sync=True, forget=True))
    assert stage.partition.resumption is None
    assert not stage.partition.asks


def test_a_forgotten_manager_leaves_no_comparison() -> None:
    stage = Stage()
    stage.do(AGAIN, SyncCompleted("rm"))
    assert not stage.partition.index.nodes
    stage.do(AGAIN, ManagerForgotten("rm", stage.now))
    assert stage.partition.resumption is None
    assert not stage.core.managers


def limited() -> Core:
    """Return a core that enforces a small maximum of one queue after 5 s."""
    text = QUEUES.replace(
        "{name: b}",
        "{name: b, resources: {max: {memory: 5}}, properties: {quota.preemption.delay: 5s}}",
    ).replace("    queues:\n", "    preemption: {quotapreemptionenabled: true}\n    queues:\n", 1)
    configuration, problems = load(text)
    assert configuration is not None, problems
    return Core(configuration)


def test_a_core_that_takes_the_lead_compares_and_keeps_timers() -> None:
    core = limited()
    told: list[Event] = [node(), ApplicationAdded("rm", "y", "root.b"), runs("y1")]
    core.take([AGAIN, *told, SyncCompleted("rm")], NOW)
    due = {"root.b": NOW + 5_000}
    partition = core.state.partitions["default"]
    assert partition.quota_due == due
    core.take([LeadershipTaken("")], NOW + 1_000)
    assert not [one for one in tick(core, NOW + 9_000) if isinstance(one, Released)]
    core.take([AGAIN, *told, SyncCompleted("rm")], NOW + 9_000)
    assert partition.quota_due == due
    assert [one.key for one in tick(core, NOW + 9_000) if isinstance(one, Released)] == ["y1"]


def test_a_first_sync_that_is_interrupted_arms_timers_at_its_end() -> None:
    core = limited()
    told: list[Event] = [node(), ApplicationAdded("rm", "y", "root.b"), runs("y1")]
    core.take([AGAIN, *told], NOW)
    core.take([AGAIN, *told], NOW + 1_000)
    assert not core.state.partitions["default"].quota_due
    core.take([SyncCompleted("rm")], NOW + 2_000)
    assert core.state.partitions["default"].quota_due == {"root.b": NOW + 7_000}


def test_the_counts_at_the_end_are_those_of_the_manager() -> None:
    stage = Stage()
    stage.do(ask("y1"))
    stage.do(AGAIN, node(), *stage.applications(), ask("y1"), ask("y2"))
    found = stage.do(SyncCompleted("rm", 1, 2, 0, 2))
    assert Code.SYNC_MISMATCH not in [one.code for one in found if isinstance(one, Noted)]
    assert placed(found) == [("y1", "n1"), ("y2", "n1")]


def test_the_digest_has_everything_that_a_comparison_waits_for() -> None:
    stage = Stage()
    stage.do(ask("y1"), ask("y2"), ForeignAdded("rm", "f1", "n1", (("memory", 0),)))
    seen = [stage.core.digest()]
    for event in (AGAIN, node(), *stage.applications(), ask("y1"), runs("y2")):
        stage.core.take([event], stage.now)
        seen.append(stage.core.digest())
    assert len(set(seen)) == len(seen)
