"""One tick of a core, of its recorder, or of another object that the pump can call."""

from server.core.decider import Decider
from server.model.decisions import Tick
from server.model.parts import whole


def ticked(core: Decider, now: int, budget: int) -> Tick:
    """Tick without a pause, and return the result."""
    return whole(core.tick_in_parts(now, budget))
