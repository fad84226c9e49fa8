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
    the queues count the placeholder instead of the ask. On its node, the pledge keeps only the amounts that the ask takes in
    addition to a placeholder there (`beyond`).
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
        """Return whether the pledge is a reservation: the node is reserved for an ask, and no pod is evicted for the ask."""
        return self.commitment.facts.reserves

    @property
    def reserves(self) -> bool:
        """Return whether the pledge gives way to a claim that needs the node.

        Two kinds of pledges give way: reservations, and the pledges of a suspended decision, for which a new plan is being
        sought.
        """
        return self.commitment.facts.reserves or self.commitment.suspended

    @property
    def replaces(self) -> bool:
        """Return whether the pledge's ask will replace a placeholder. Such an ask is placed only after the placeholder has ended."""
        return self.commitment.replaces


class Commitment:
    """One open decision."""

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
        """The instant at which the decision is given up, or 0 if the decision never expires."""
        self.queue = queue
        """The queue whose usage a quota run reduces, "" for other decisions."""
        self.pledges: dict[str, Pledge] = {}
        self.victims: dict[str, Ask] = {}
        """The victims that still exist."""
        self.gone: list[str] = []
        """The keys of the victims that ended."""
        self.suspended = False
        """Whether a new plan is being sought for the decision, because a victim could not be evicted."""
        self.short: Pledge | None = None
        """The pledge whose node lacked free capacity when the decision's asks were last tried together.

        None if no node lacked free capacity then.
        """
        self.state = DecisionState.PLANNED
        self.record: DecisionRecord | None = None
        """The report of the decision that users can read, None for a reservation."""

    @property
    def together(self) -> bool:
        """Return whether the decision's asks are placed all at once (J10)."""
        return self.facts.gang and len(self.pledges) > 1

    @property
    def claimant(self) -> str:
        """Return the queue of the decision's asks, or the queue whose usage a quota run reduces.

        Return "" if the decision has no asks left.
        """
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
    """The decisions of one partition: the open decisions, the capacity that they hold, their victims and their records."""

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
        """The open decisions by id."""
        self.pledges: dict[str, Pledge] = {}
        """The capacity that open decisions keep, by the key of the ask that gets the capacity."""
        self.reservations: dict[str, Pledge] = {}
        """The pledges that reserve a node for an ask without evictions."""
        self.suspended: dict[str, Commitment] = {}
        """The decisions for which a new plan is being sought, because a victim was vetoed.

        Each decision is stored under the key of each of its asks, or for a quota run under the path of its queue.
        """
        self.records: dict[str, DecisionRecord] = {}
        """The records of open decisions and of the decisions that ended last."""
        self.rankings: dict[str, Ranking] = {}
        """The orders in which decisions considered their candidates."""
        self.moves: list[tuple[Commitment, DecisionState, str]] = []
        """The changes of decisions (ends and confirmations) that have not been reported yet."""
        self.leaving: dict[str, Ask] = {}
        """The victims that still run, both of open and of ended decisions."""
        self.marked: dict[str, Ask] = {}
        """The victims in ``leaving`` that are only marked, so that their eviction can still be withdrawn (J11)."""
        self.marks: dict[str, dict[str, ReleaseMark]] = {}
        """The eviction marks that the shim reported on pods after a restart of the core.

        The marks are stored by the id of the decision that had ordered the eviction, and then by the key of the pod.
        """
        self.checks = PlanChecks()
        """The plan checks that are still open."""
