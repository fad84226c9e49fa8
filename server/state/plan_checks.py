"""The open plan checks: questions to resource managers about planned evictions (design 1.8).

Some managers judge constraints that the core cannot evaluate. The core asks such a manager before any pod is evicted for an ask
with such constraints. The question is: would these asks fit on these nodes if these allocations were gone? The core orders the
evictions only after the answer "it fits".
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from server.state.applications import Ask

REFUSED_MAX: Final = 3
"""The number of successive refusals after which an ask waits for the end of its back-off."""


class Placements(NamedTuple):
    """The content of a plan check: the asks with their planned nodes, and the allocations that would be gone."""

    policy: str
    nodes: tuple[tuple[str, str], ...]
    victims: tuple[str, ...]


@dataclass(slots=True, eq=False)
class PlanCheck:
    """A question to a resource manager about one plan."""

    check_id: str
    about: Placements
    asks: "tuple[Ask, ...]"
    """The asks in the question."""
    overdue_ms: int
    """The instant from which the answer is overdue."""
    fits: bool = False
    """Whether the manager has answered that the asks fit."""
    decision_id: str = ""
    """The decision that carries out the plan, "" while there is none."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the keys of the asks in the question."""
        return tuple(key for key, _ in self.about.nodes)


class PlanChecks:
    """The plan checks of one partition that have not ended."""

    __slots__ = ("answers", "by_ask", "open", "refused")

    def __init__(self) -> None:
        self.open: dict[str, PlanCheck] = {}
        """The checks by id."""
        self.by_ask: dict[str, PlanCheck] = {}
        """The checks by the key of each of their asks. An ask has at most one check."""
        self.refused: dict[str, int] = {}
        """For each ask, the number of successive checks that the ask's manager answered with "it does not fit"."""
        self.answers = 0
        """The number of checks that were answered or whose answer did not come in time.

        When this number rises, policies may plan again for asks that waited for an answer.
        """

    def add(self, check: PlanCheck) -> None:
        """Add a check. Its asks must have no other check."""
        self.open[check.check_id] = check
        for key in check.keys:
            assert key not in self.by_ask, f"{key} is checked twice"
            self.by_ask[key] = check

    def drop(self, check: PlanCheck) -> None:
        """Remove a check."""
        del self.open[check.check_id]
        for key in check.keys:
            del self.by_ask[key]

    def is_unanswered(self, key: str) -> bool:
        """Return whether a check of the ask has no answer yet."""
        check = self.by_ask.get(key)
        return check is not None and not check.fits

    def is_granted(self, key: str) -> bool:
        """Return whether the ask's manager answered that the ask fits, and the plan has not been carried out yet."""
        check = self.by_ask.get(key)
        return check is not None and check.fits and not check.decision_id

    def granted(self) -> list[str]:
        """Return the keys of the asks for which `is_granted` is true."""
        return [key for key in self.by_ask if self.is_granted(key)]
