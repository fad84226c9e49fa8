"""The waiting asks and gangs of a snapshot, and the equivalence classes of the asks."""

from dataclasses import dataclass
from typing import NamedTuple

from server.kernels.fit import Mask
from server.model.asks import AskSpec, GangClass
from server.model.fit import Demand
from server.model.reasons import Code


@dataclass(frozen=True, slots=True, eq=False)
class ClassFacts:
    """An equivalence class of asks: the demand and the constraint that its asks have in common."""

    number: int
    demand: Demand
    """The amounts that are charged to queues."""
    node_demand: Demand
    """The amounts of ``demand``, and the host ports, which only nodes count."""
    allowed: Mask
    """A mask of the node rows that the constraint allows."""
    gang_class: GangClass | None = None
    """The class of the ask's pods, None in a partition without classes (J4)."""

    @property
    def firm(self) -> bool:
        """Return whether asks of the class count against the guarantees of their queues (J4)."""
        return self.gang_class is GangClass.FIRM

    @property
    def ports(self) -> Demand:
        """Return the ports of the demand, which only nodes count.

        No ask waits for some amount of a port: a port is either free or in use.
        """
        return self.node_demand[len(self.demand) :]


class WaitingAsk(NamedTuple):
    """A waiting ask.

    The headroom of queues is not stored here, because each plan changes it. The snapshot or the Trial returns the headroom of
    queues.
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
    """The reason why the ask waits. With the code NO_NODE, the ask's limits have headroom, but no node can take the ask."""
    within_limits: bool
    """Whether the limits of the ask's user and group have headroom."""
    reserved: bool
    missed: int = 0
    """The number of complete scheduling cycles that left the ask waiting (P2)."""

    @property
    def order(self) -> tuple[int, int, int]:
        """Return the sort key of the ask among waiting asks (design 6.3).

        Higher priority comes first, then longer wait, then earlier arrival.
        """
        return (-self.spec.priority, self.pending_since, self.arrival)

    @property
    def turn(self) -> tuple[int, int, int, int]:
        """Return the sort key of the ask among asks that claim: priority, missed opportunities, age, arrival (P4)."""
        return (-self.spec.priority, -self.missed, self.pending_since, self.arrival)

    @property
    def gang(self) -> bool:
        """Return whether the ask is a member of a gang of several members. Policies plan for such a gang as a whole."""
        return bool(self.spec.gang_key) and self.spec.min_members > 1

    def pending_ms(self, now: int) -> int:
        """Return for how long the ask has waited."""
        return now - self.pending_since


@dataclass(frozen=True, slots=True, eq=False)
class WaitingGang:
    """A gang whose members wait together.

    All members get capacity at once, or no member does (J1).
    """

    key: str
    number: int
    """The gang's number in the columns, 0 for an ask that counts as a gang of one member."""
    members: tuple[WaitingAsk, ...]
    """The waiting members in the order in which policies plan for them (J8): by priority, age and id."""
    placed: int
    """The number of members that already run."""
    size: int
    within_limits: bool
    """Whether the limits of the gang's user and group have headroom for all members together."""

    @property
    def leaf(self) -> str:
        """Return the path of the gang's queue, in which all its members are (J1)."""
        return self.members[0].leaf

    @property
    def application_id(self) -> str:
        """Return the id of the gang's application, to which all its members belong."""
        return self.members[0].application_id

    @property
    def turn(self) -> tuple[int, int, int, int]:
        """Return the sort key of the gang among asks that claim (P4), which is the key of its first member."""
        return self.members[0].turn

    @property
    def priority(self) -> int:
        """Return the priority with which the gang is compared with victims: the lowest priority of its waiting members (J7).

        The order of placement uses the highest priority instead (`Gang.priority`).
        """
        return min(one.spec.priority for one in self.members)

    @property
    def gathered(self) -> bool:
        """Return whether the waiting and the placed members together are at least as many as the gang's size."""
        return len(self.members) + self.placed >= self.size


class FirmUse(NamedTuple):
    """The amounts of firm pods in a queue, by type index (J4)."""

    held: tuple[int, ...]
    """The amounts that firm pods hold."""
    requested: tuple[int, ...]
    """The sum of ``held`` and the requests of waiting firm asks."""
    reserved: tuple[int, ...] = ()
    """The amounts that reservations keep for firm asks."""


class OpenCommitment(NamedTuple):
    """An open pledge: its decision, the ask for which capacity is kept, and the node. A ``weak`` pledge gives way to claims."""

    commitment_id: str
    policy: str
    key: str
    leaf: str
    row: int
    demand: Demand
    node_demand: Demand
    weak: bool
