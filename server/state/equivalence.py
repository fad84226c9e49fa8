"""Ask classes: asks of the same demand, constraints and job class are one class (design 6.10).

Placement works per class: what fits no node for one ask of a class fits none for the others, and a limit
that blocks one blocks all. A reserved ask has a class of its own, because its own pledge and promise
do not count against it (design 6.6).
"""

from typing import TYPE_CHECKING, Final

from server.model.asks import AskSpec, Constraints, JobClass
from server.model.fit import Demand
from server.model.resources import Resource

if TYPE_CHECKING:
    from server.state.applications import Group
    from server.state.commitments import Pledge
    from server.state.constraints import NodeMask
    from server.state.nodes import NodeEntry

SMALL: Final = 1 << 40
"""The bound of small quantities, which count for the total of a type only where it is high (design 6.13, `events.overflow`)."""


def is_small(resource: Resource) -> bool:
    """Return whether a partition full of such asks stays below the largest total of each type, whatever others use."""
    return all(quantity < SMALL for _, quantity in resource)


class AskClass:
    """One class with its state in the node search.

    ``demand`` is what queues are charged, ``node_demand`` adds the ports that only nodes know.
    ``job_class`` is firm or lendable, None where the partition knows no classes (J4).
    ``heap`` is its own heap of nodes once the shared ones miss too often; ``cursor`` is how far it has read the log of
    nodes, ``log_epoch`` which log that is.
    ``waiting`` holds the groups that are parked because no node fits (``dead``).
    """

    __slots__ = (
        "asks",
        "constraints",
        "cursor",
        "dead",
        "demand",
        "firm",
        "heap",
        "job_class",
        "log_epoch",
        "mask",
        "node_demand",
        "number",
        "pending",
        "pledge",
        "resource",
        "small",
        "specs",
        "waiting",
    )

    def __init__(  # noqa: PLR0913, PLR0917 - a record of the state
        self,
        number: int,
        resource: Resource,
        demand: Demand,
        ports: Demand,
        constraints: Constraints,
        mask: "NodeMask",
        job_class: JobClass | None = None,
    ) -> None:
        self.number = number
        self.resource = resource
        self.demand = demand
        self.node_demand = demand + ports
        self.constraints = constraints
        self.job_class = job_class
        self.firm = job_class is JobClass.FIRM
        self.mask = mask
        self.specs: list[AskSpec] = []
        self.small = is_small(resource)
        self.asks = 0
        self.pending = 0
        self.dead = False
        self.waiting: list[Group] = []
        self.heap: list[NodeEntry] | None = None
        self.cursor = 0
        self.log_epoch = -1
        self.pledge: Pledge | None = None
