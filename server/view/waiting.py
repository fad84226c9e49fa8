"""A waiting ask as a View holds it, and the class that it shares with its like."""

from dataclasses import dataclass
from typing import NamedTuple

from server.kernels.fit import Mask
from server.model.asks import AskSpec
from server.model.fit import Demand
from server.model.reasons import Code


@dataclass(frozen=True, slots=True, eq=False)
class ClassFacts:
    """Asks of one demand and one constraint. ``allowed`` says on which rows of nodes the constraint holds.

    ``demand`` is what queues are charged, ``node_demand`` adds the ports that only nodes know.
    """

    number: int
    demand: Demand
    node_demand: Demand
    allowed: Mask

    @property
    def ports(self) -> Demand:
        """The part of the demand that only nodes know: it cannot be waited for, a port is free or it is not."""
        return self.node_demand[len(self.demand) :]


class WaitingAsk(NamedTuple):
    """An ask that waits. ``code`` is why: NO_NODE when its limits have room and no node does.

    ``within_limits`` says whether its user's and its group's limits have room; those of queues change with each plan
    and are asked of the View or Trial. ``missed`` counts the passes of placement that tried everything and left it
    waiting (P2). ``gang`` marks a member of a job of several members.
    """

    key: str
    rm_id: str
    application_id: str
    leaf: str
    kind: ClassFacts
    spec: AskSpec
    pending_since: int
    arrival: int
    code: Code
    within_limits: bool
    reserved: bool
    missed: int = 0

    @property
    def order(self) -> tuple[int, int, int]:
        """Its place among waiting asks: higher priority, longer pending, earlier arrived (design 6.3)."""
        return (-self.spec.priority, self.pending_since, self.arrival)

    @property
    def turn(self) -> tuple[int, int, int, int]:
        """Its place among those who claim: priority, missed opportunities, age, arrival (P4)."""
        return (-self.spec.priority, -self.missed, self.pending_since, self.arrival)

    @property
    def gang(self) -> bool:
        """Is it a member of a job of several members, which is planned for as a whole?"""
        return bool(self.spec.job_key) and self.spec.min_members > 1

    def pending_ms(self, now: int) -> int:
        """For how long it has waited."""
        return now - self.pending_since


class OpenCommitment(NamedTuple):
    """An open pledge: who gets room where, by which decision; a ``weak`` one gives way to claims."""

    commitment_id: str
    policy: str
    key: str
    leaf: str
    row: int
    demand: Demand
    node_demand: Demand
    weak: bool
