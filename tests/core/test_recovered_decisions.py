"""The record of a decision that a new core rebuilt from the marks on its victims."""

import pytest

from server.core.queries.known_decisions import decisions
from server.model.asks import AskSpec, Protection, ReleaseMark
from server.model.decisions import Termination
from server.model.events import AllocationAdded
from server.model.quota import PartitionSpec, QueueSpec
from server.state.partition import Partition
from tests.inspect.world import MANAGER, World, leaf, spec
from tests.preemption.replicas import Replicas

MARK = ReleaseMark(Termination.PREEMPTED_BY_SCHEDULER, "g-19aa1b2c3d4-1", "claimant", "n1")


WILLING = spec()
OPTED_OUT = (spec(allow_preempt_self=False), spec(protection=Protection.PREFER_NOT))


@pytest.mark.parametrize("running", [WILLING, *OPTED_OUT])
def test_a_rebuilt_decision_says_which_victims_opted_out(running: AskSpec) -> None:
    """Both ways of the wire to say so count, as in the decision that was made before (V3, level 1)."""
    world = World(leaf("a"), leaf("b"))
    world.node("n1", vcore=1)
    world.application("app")
    world.application("other", "root.b")
    world.say(AllocationAdded(MANAGER, "victim", "other", "n1", running, releasing=MARK))
    world.ask("claimant")
    world.tick()
    (record,) = decisions(world.core)
    (victim,) = record.victims
    assert victim.opted_out is (running in OPTED_OUT)


OWED = {
    "name": "a",
    "resources": {"guaranteed": {"memory": 20}},
    "properties": {"preemption.delay": "1s"},
}
CLAIM = ("existing y2 y n1 memory=10", "ask x2 x memory=10 created=-5000")
SWAP = ("existing p1 z n1 memory=10 placeholder group=g", "ask z1 z memory=10 group=g")


def named(mark: str, *beside: str) -> list[str]:
    """Return the open decisions: one rebuilt from a mark, and one made in the tick that rebuilds it."""
    life = Replicas([OWED, {"name": "b"}])
    life.say("node n1 memory=20", "app x root.a", "app y root.b", "app z root.b")
    life.say(f"existing y1 y n1 memory=10 mark={mark}/x1/n1", "ask x1 x memory=10 created=-5000")
    life.say(*beside)
    life.tick()
    life.core.validate()
    return list(life.core.state.partitions["default"].decisions.open)


@pytest.mark.parametrize("beside", [CLAIM, SWAP], ids=["claim", "placeholder"])
def test_a_decision_has_another_name_than_one_of_the_same_instant_since_before_a_restart(
    beside: tuple[str, ...],
) -> None:
    """A clock that was set back gives instants again."""
    _, usual = named("g-1-1", *beside)
    rebuilt, other = named(usual, *beside)
    assert rebuilt == usual != other


def test_decisions_of_two_partitions_have_different_names_at_one_instant() -> None:
    root = QueueSpec("root")
    one, other = (Partition(PartitionSpec(name, root)) for name in ("default", "gpu"))
    names = [each.decision_id("g", 1_000) for each in (one, other)]
    assert names[1] == f"{names[0]}-gpu"
