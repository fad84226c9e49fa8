"""Events that arrive together or one by one have equal results, in cases in which an earlier version gave different ones."""

from collections.abc import Callable, Iterable

import pytest

from server.config import load
from server.core.core import Core
from server.model.asks import AskSpec
from server.model.decisions import Decision
from server.model.events import ApplicationAdded, AskAdded, Event, ManagerRegistered, NodeAdded
from server.model.quota import Acl, Configuration, PartitionSpec, QueueSpec
from server.model.resources import limit, resource
from server.scheduling import batch_fast

NOW = 1_800_000_000_000
HEADROOM = 100
"""What queue a may use; its node has much more."""
TREE = QueueSpec(
    "root",
    parent=True,
    submit_acl=Acl(everyone=True),
    children=(QueueSpec("a", max=limit({"vcore": HEADROOM})), QueueSpec("b")),
)
BIG, SMALL = AskSpec(resource({"vcore": HEADROOM + 1})), AskSpec(resource({"vcore": 1}))
MEMBER = AskSpec(BIG.resource, gang_key="j", min_members=2)
GATHERING = AskSpec(resource({"vcore": 10**7}), gang_key="g")
HUGE = AskSpec(resource({"vcore": 10**7 + 1}))


class Pair:
    """Two cores that hear the same: one all at once, the other event by event."""

    def __init__(self) -> None:
        self.together, self.singly = (
            Core(Configuration((PartitionSpec("default", TREE),))) for _ in range(2)
        )
        self.now = NOW
        owners = [ApplicationAdded("rm", name, f"root.{name[0]}") for name in ("a1", "a2", "b1")]
        self.hear(
            [ManagerRegistered("rm"), NodeAdded("rm", "n", resource({"vcore": 10**6})), *owners]
        )

    def hear(self, events: Iterable[Event], budget: int = 20_000) -> list[Decision]:
        """Both hear these and have their tick."""
        told = list(events)
        apart = [one for event in told for one in self.singly.handle(event, self.now)]
        assert self.together.take(told, self.now) == apart
        ticks = [core.tick(self.now, budget) for core in (self.together, self.singly)]
        assert ticks[0] == ticks[1]
        assert _state(self.together) == _state(self.singly)
        self.together.validate()
        return ticks[0].decisions

    def asks(self, *asks: tuple[str, str, AskSpec], budget: int = 20_000) -> list[Decision]:
        """Both hear of asks by key and application."""
        return self.hear((AskAdded("rm", *ask) for ask in asks), budget)


def _state(core: Core) -> tuple[object, ...]:
    partition = core.state.partitions["default"]
    counts = (
        partition.numbers,
        partition.round.cycles,
        partition.classes.live_asks,
        partition.placements,
        partition.relief,
    )
    return core.digest(), core.next_due(), counts


def blocked_beside_placeable(pair: Pair) -> None:
    """Add a blocked ask beside placeable ones: it costs a step when another ask of its queue is placed."""
    pair.asks(("b0", "a1", BIG))
    pair.asks(("b1", "a2", BIG), ("s1", "a2", SMALL), budget=2)
    pair.hear([])


def blocked_before(pair: Pair) -> None:
    """So does one that came before, and was never tried."""
    pair.asks(("b0", "a2", BIG))
    pair.asks(("b1", "a1", BIG))
    pair.asks(("s1", "a2", SMALL), ("s2", "a2", SMALL), budget=2)
    pair.hear([])


def a_job_that_is_held_back(pair: Pair) -> None:
    """Hold a gang back until another ask of its queue is placed."""
    pair.asks(("b0", "a2", BIG))
    pair.asks(("m0", "a1", MEMBER), ("m1", "a1", MEMBER), ("s1", "a2", SMALL))
    pair.hear([])


def a_job_that_has_gathered(pair: Pair) -> None:
    """Add a gang that has gathered: asks that were not reported yet are reported in the order in which they came."""
    pair.asks(("m0", "a1", GATHERING), ("m1", "a1", GATHERING))
    due = pair.together.next_due()
    assert due is not None
    pair.now = due
    told = pair.asks(("h1", "b1", HUGE), ("h2", "b1", HUGE))
    assert [getattr(one, "key", "") for one in told] == ["h1", "h2", "m0", "m1"]


STORIES: tuple[Callable[[Pair], None], ...] = (
    blocked_beside_placeable,
    blocked_before,
    a_job_that_is_held_back,
    a_job_that_has_gathered,
)


@pytest.mark.parametrize("story", STORIES, ids=[story.__name__ for story in STORIES])
def test_together_and_one_by_one_come_to_the_same(
    story: Callable[[Pair], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_fast, "LEAST", 1)
    story(Pair())


SHADOWED = """\
partitions:
  - name: default
    preemption: {policies: [required-node], shadow: {policies: [guaranteed, required-node]}}
    queues:
      - name: root
        submitacl: "*"
        queues:
          - {name: high, resources: {guaranteed: {vcore: 40}}, properties: {preemption.delay: 5s}}
          - {name: low}
"""


def test_a_message_without_events_wakes_nobody_but_the_shadow_that_is_due() -> None:
    configuration, problems = load(SHADOWED, "test")
    assert configuration is not None, problems
    cores = [_shadowed(Core(configuration)) for _ in range(2)]
    for _ in range(2):
        due = cores[0].next_due()
        assert due is not None
        cores[0].take([], due)
        assert cores[0].tick(due) == cores[1].tick(due)
        assert _state(cores[0]) == _state(cores[1])


def _shadowed(core: Core) -> Core:
    """One in which a queue waits for its guarantee, which only the shadow would give it."""
    thousand = AskSpec(resource({"vcore": 1_000}))
    founding: list[Event] = [
        ManagerRegistered("rm"),
        NodeAdded("rm", "n", resource({"vcore": 10_000})),
    ]
    founding += [ApplicationAdded("rm", one, f"root.{one}") for one in ("low", "high")]
    running: list[Event] = [AskAdded("rm", f"l{at}", "low", thousand) for at in range(10)]
    for events in (founding, running):
        core.take(events, NOW)
        core.tick(NOW)
    core.take([AskAdded("rm", f"h{at}", "high", thousand) for at in range(2)], NOW)
    while core.tick(NOW).more:
        pass
    return core
