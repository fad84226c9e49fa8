"""Open decisions, and the capacity that they pledge to asks before it is free (C1, C2, C3; design 6.6).

A pledge lowers a node's free capacity at once. The pledge also counts as promised capacity in the queues of its ask. Thus no
other ask can use that capacity or headroom. A reservation is a commitment with one pledge and no victims. A quota run has
victims and no pledge.
"""

from typing import TYPE_CHECKING

from server.model.asks import ReleaseMark
from server.model.fit import Demand
from server.model.policies import facts
from server.model.ranking import Ranking
from server.model.records import DecisionRecord, DecisionState

if TYPE_CHECKING:
    from server.state.applications import Ask
    from server.state.nodes import Node
from server.state.plan_checks import PlanChecks


class Pledge:
    """The capacity that is kept for one ask on one node.

    While an ``exclusive`` pledge lasts, only asks with pledges on the node get capacity of the node (G11).

    The pledge of an ask that will replace a placeholder promises nothing in the ask's queues. Until the placeholder has ended,
    the queues count the placeholder instead of the ask. The node of the pledge keeps, beside the placeholder, only the amounts
    by which the ask is larger than the placeholder.
    """

    __slots__ = ("ask", "commitment", "demand", "exclusive", "node", "node_demand", "yields")

    def __init__(  # noqa: PLR0913, PLR0917 - a record of the state
        self,
        commitment: "Commitment",
        ask: "Ask",
        node: "Node",
        demand: Demand,
        node_demand: Demand,
        exclusive: bool = False,  # noqa: FBT001, FBT002
    ) -> None:
        self.commitment = commitment
        self.ask = ask
        self.node = node
        self.demand = demand
        self.node_demand = node_demand
        self.exclusive = exclusive
        self.yields = False
        """Whether, in this tick, asks of higher priority may use the node before the ask for which the node is reserved."""

    @property
    def is_reservation(self) -> bool:
        """Return whether the pledge reserves the node for an ask without evictions."""
        return self.commitment.facts.reserves

    @property
    def reserves(self) -> bool:
        """Return whether the pledge gives way to a claim that needs the node.

        A reservation gives way. A pledge of a suspended decision, for which a new plan is being sought, gives way as well.
        """
        return self.commitment.facts.reserves or self.commitment.suspended

    @property
    def replaces(self) -> bool:
        """Return whether the pledge's ask will replace a placeholder. Such an ask is placed only after the placeholder has ended."""
        return self.commitment.replaces


class Commitment:
    """One open decision. ``victims`` are the victims that still exist. ``gone`` has the keys of the victims that ended.

    ``suspended`` says that a new plan is being sought for the decision, because a victim could not be evicted. ``queue`` is the
    queue whose usage a quota run reduces, "" for other decisions. An ``expires_ms`` of 0 means that the decision never expires.
    ``record`` is the report of the decision that users can read, None for a reservation.
    """

    __slots__ = (
        "commitment_id",
        "created_ms",
        "expires_ms",
        "facts",
        "gone",
        "pledges",
        "policy",
        "queue",
        "record",
        "short",
        "state",
        "suspended",
        "victims",
    )

    def __init__(
        self, commitment_id: str, policy: str, created_ms: int, expires_ms: int = 0, queue: str = ""
    ) -> None:
        self.commitment_id = commitment_id
        self.policy = policy
        self.facts = facts(policy)
        """The facts about the decision's policy, from the table of policies."""
        self.created_ms = created_ms
        self.expires_ms = expires_ms
        self.queue = queue
        self.pledges: dict[str, Pledge] = {}
        self.victims: dict[str, Ask] = {}
        self.gone: list[str] = []
        self.suspended = False
        self.short: Pledge | None = None
        """The pledge whose node lacked free capacity when the decision's asks were last tried together.

        None if no node lacked free capacity then.
        """
        self.state = DecisionState.PLANNED
        self.record: DecisionRecord | None = None

    @property
    def together(self) -> bool:
        """Return whether the decision's asks are placed all at once (J10)."""
        return self.facts.gang and len(self.pledges) > 1

    @property
    def claimant(self) -> str:
        """Return the queue that gets the capacity, or whose usage a quota run reduces. Return "" if the decision has no asks left."""
        leaves = (held.ask.application.leaf.path for held in self.pledges.values())
        return self.queue or next(leaves, "")

    @property
    def replaces(self) -> bool:
        """Return whether the decision replaces a placeholder by a real ask.

        The victim of such a decision, the placeholder, does not count as releasing.
        """
        return self.facts.replaces_placeholder


def beyond(ask: "Ask", placeholder: "Ask", node: "Node") -> Demand:
    """Return the amounts that an ask takes on a node in addition to the amounts of its placeholder on that node.

    If the placeholder is on another node, return all amounts of the ask.
    """
    wanted = ask.ask_class.node_demand
    if placeholder.node is not node:
        return wanted
    had = dict(placeholder.ask_class.node_demand)
    more = ((index, quantity - had.get(index, 0)) for index, quantity in wanted)
    return tuple((index, quantity) for index, quantity in more if quantity > 0)


class Decisions:
    """The decisions of one partition: the open decisions, the capacity that they hold, their victims and their records.

    - ``open`` has the open decisions by id. ``pledges`` has the capacity that they hold, by the key of the ask that gets it.
    - ``reservations`` are the pledges that reserve a node for an ask without evictions.
    - ``suspended`` has the decisions for which a new plan is being sought, because a victim was vetoed. The keys are the keys
      of the decision's asks, or for a quota run the path of its queue.
    - ``records`` has the records of open decisions and of the decisions that ended last. ``rankings`` has the orders in which
      decisions considered their candidates. ``moves`` has the changes of decisions (ends and confirmations) that have not been
      reported yet.
    - ``leaving`` has the victims that still run, both of open and of ended decisions. ``marked`` has those victims in
      ``leaving`` that are only marked, so that their eviction can still be withdrawn (J11).
    - ``marks`` has the marks that the shim found on victims, for each decision that was open before a restart.
    - ``checks`` has the plan checks that are still open.
    """

    __slots__ = (
        "checks",
        "leaving",
        "marked",
        "marks",
        "moves",
        "open",
        "pledges",
        "rankings",
        "records",
        "reservations",
        "suspended",
    )

    def __init__(self) -> None:
        self.open: dict[str, Commitment] = {}
        self.pledges: dict[str, Pledge] = {}
        self.reservations: dict[str, Pledge] = {}
        self.suspended: dict[str, Commitment] = {}
        self.records: dict[str, DecisionRecord] = {}
        self.rankings: dict[str, Ranking] = {}
        self.moves: list[tuple[Commitment, DecisionState, str]] = []
        self.leaving: dict[str, Ask] = {}
        self.marked: dict[str, Ask] = {}
        self.marks: dict[str, dict[str, ReleaseMark]] = {}
        self.checks = PlanChecks()
