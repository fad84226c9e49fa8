"""Open decisions: room that is pledged to an ask before it is free (design 6.6).

A reservation is a commitment without victims. The pledge lowers a node's free room at once and counts as
promised on the beneficiary's queues, so that nobody else can take either.
"""

import enum
from typing import TYPE_CHECKING

from server.model.fit import Demand

if TYPE_CHECKING:
    from server.books.applications import Ask
    from server.books.nodes import Node


class CommitmentState(enum.StrEnum):
    """Life of a commitment (specification 7.1)."""

    PLANNED = "planned"
    ORDERED = "ordered"
    CONFIRMED = "confirmed"
    FULFILLED = "fulfilled"
    ABORTED = "aborted"
    EXPIRED = "expired"


class Commitment:
    """One open decision for one beneficiary on one node; ``victims`` are keys, ``expires_ms`` 0 means never."""

    __slots__ = (
        "ask",
        "commitment_id",
        "created_ms",
        "demand",
        "expires_ms",
        "node",
        "node_demand",
        "policy",
        "state",
        "victims",
    )

    def __init__(  # noqa: PLR0913, PLR0917 - a record of the books
        self,
        commitment_id: str,
        policy: str,
        ask: "Ask",
        node: "Node",
        demand: Demand,
        node_demand: Demand,
        created_ms: int,
    ) -> None:
        self.commitment_id = commitment_id
        self.policy = policy
        self.ask = ask
        self.node = node
        self.demand = demand
        self.node_demand = node_demand
        self.victims: tuple[str, ...] = ()
        self.created_ms = created_ms
        self.expires_ms = 0
        self.state = CommitmentState.PLANNED
