"""What people are shown of a decision that a new core rebuilt from the marks on its victims (specification 1.7)."""

import pytest

from server.core.decided import decisions
from server.model.asks import AskSpec, Protection, ReleaseMark
from server.model.decisions import Termination
from server.model.events import AllocationAdded
from tests.inspect.world import MANAGER, World, leaf, spec

MARK = ReleaseMark(Termination.PREEMPTED_BY_SCHEDULER, "g-19aa1b2c3d4-1", "claimant", "n1")


WILLING = spec()
OPTED_OUT = (spec(allow_preempt_self=False), spec(protection=Protection.PREFER_NOT))


@pytest.mark.parametrize("running", [WILLING, *OPTED_OUT])
def test_a_rebuilt_decision_says_which_victims_opted_out(running: AskSpec) -> None:
    """Both ways of the wire to say so count, as in the decision that was made before (7.6, rung 1)."""
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
