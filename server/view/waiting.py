"""A waiting ask as a View holds it, and the class that it shares with its like."""

from dataclasses import dataclass
from typing import NamedTuple

from server.kernels.fit import Mask
from server.model.asks import AskSpec, JobClass
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
    job_class: JobClass | None = None
    """None where the partition knows no classes (J4)."""

    @property
    def firm(self) -> bool:
        """Does it count against what its queues are guaranteed (J4)?"""
        return self.job_class is JobClass.FIRM

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


@dataclass(frozen=True, slots=True, eq=False)
class WaitingJob:
    """A job whose members wait together: they get room all at once or not at all (J1).

    ``members`` wait, in the order in which they are planned for (J8): priority, age, key; ``placed`` run already.
    ``number`` is what its allocations call it, 0 for an ask that is a job of one. ``within_limits`` says whether the
    limits of its user and group have room for all members together.
    """

    key: str
    number: int
    members: tuple[WaitingAsk, ...]
    placed: int
    size: int
    within_limits: bool

    @property
    def leaf(self) -> str:
        """Its queue, which is that of all members (J1)."""
        return self.members[0].leaf

    @property
    def application_id(self) -> str:
        """Its application, the same of all members."""
        return self.members[0].application_id

    @property
    def order(self) -> tuple[int, int, int]:
        """It stands where its first member does."""
        return self.members[0].order

    @property
    def turn(self) -> tuple[int, int, int, int]:
        """Its place among those who claim: that of its first member (P4)."""
        return self.members[0].turn

    @property
    def priority(self) -> int:
        """Whom its victims are measured against: its least important member (J7)."""
        return min(one.spec.priority for one in self.members)

    @property
    def gathered(self) -> bool:
        """Are there as many members as its size?"""
        return len(self.members) + self.placed >= self.size


class FirmUse(NamedTuple):
    """By type index what the firm asks of a queue hold, that with what those that wait ask for (J4), and what is reserved."""

    held: tuple[int, ...]
    requested: tuple[int, ...]
    reserved: tuple[int, ...] = ()


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
