"""Words of the storm monitor: who takes from whom, again and again (specification 7.7)."""

from typing import Final, NamedTuple

from server.model.resources import NOTHING, Resource


class Side(NamedTuple):
    """A queue, and of those in it the pods of one template: a pod that is made anew has another key, but this stays.

    Of victims of another queue only the queue counts: whoever runs there is the same owner's.
    """

    queue: str
    resource: Resource = NOTHING
    priority: int = 0


class Pair(NamedTuple):
    """Who gets room, and whose allocations go for it."""

    beneficiary: Side
    victims: Side


class FrozenPair(NamedTuple):
    """A pair for which nobody goes any more for a while. ``policy`` is the one that was stopped."""

    pair: Pair
    policy: str
    since_ms: int
    until_ms: int


STRIKES_MAX: Final = 3
"""Claims of one pair that nothing from outside explains, before it is frozen."""
FROZEN_MS: Final = 1_800_000
"""For how long a pair is frozen, unless something from outside ends it before."""
STRIKES_KEPT_MS: Final = 3_600_000
"""After so long without another one the strikes of a pair are forgotten."""
