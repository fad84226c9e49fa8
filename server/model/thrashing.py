"""The values of the thrashing monitor: pairs of a preemptor and its victims in which evictions repeat (docs/rules/invariants.md)."""

from typing import Final, NamedTuple

from server.model.resources import NOTHING, Resource


class TemplateInQueue(NamedTuple):
    """A queue, and one pod template in the queue.

    The pods that a controller creates again have new keys, but the same queue and template.

    Victims in another queue than the preemptor's are described by their queue alone, because all pods in that queue have one
    owner.
    """

    queue: str
    resource: Resource = NOTHING
    priority: int = 0


class Pair(NamedTuple):
    """A preemptor, and the victims whose capacity the preemptor gets."""

    beneficiary: TemplateInQueue
    victims: TemplateInQueue


class FrozenPair(NamedTuple):
    """A pair in which evictions by ``policy`` are stopped for a limited time."""

    pair: Pair
    policy: str
    since_ms: int
    until_ms: int


STRIKES_MAX: Final = 3
"""The number of strikes after which a pair is frozen. A strike is a claim in the pair that no external event explains."""
FROZEN_MS: Final = 1_800_000
"""The time in milliseconds for which a pair is frozen, unless an external change ends the freeze earlier."""
STRIKES_KEPT_MS: Final = 3_600_000
"""The time in milliseconds without a new strike after which all strikes of a pair are forgotten (see `STRIKES_MAX`)."""
