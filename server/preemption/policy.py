"""The words of planning: a policy has intents, the planner answers each with a plan or a refusal."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from server.view.view import View
from server.view.waiting import WaitingAsk

SPARED_KEYS_MAX: Final = 20
"""Keys that a plan names of the candidates which one law spared in one leaf; the others are counted (design 6.8)."""


class Law(enum.StrEnum):
    """What a candidate or a plan can break."""

    NO_NODE = "no-node"
    """No node could hold the ask."""
    STOPPED_QUEUE = "stopped-queue"
    HEAD_ROOM = "head-room"
    ONE_AN_ASK = "one-commitment-an-ask"
    ONE_A_NODE = "one-commitment-a-node"
    LEAF_FULL = "reservations-of-the-leaf"
    PARTITION_FULL = "reservations-of-the-partition"


@dataclass(frozen=True, slots=True)
class Intent:
    """A policy wants room for an ask."""

    policy: str
    ask: WaitingAsk


@dataclass(frozen=True, slots=True)
class Pledge:
    """Room on a node for an ask, before it is free. ``row`` is the node's row in the View that was planned on."""

    ask: WaitingAsk
    row: int
    node_id: str


@dataclass(frozen=True, slots=True)
class Release:
    """An allocation that has to go. ``row`` is its row in the View; ``because`` says which rule picked it."""

    row: int
    key: str
    leaf: str
    because: str


@dataclass(frozen=True, slots=True)
class Spared:
    """Candidates of one leaf that one law spared: how many, and the keys of the first SPARED_KEYS_MAX."""

    law: Law
    leaf: str
    count: int
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Atomic: all releases and all pledges, or nothing of it."""

    policy: str
    pledges: tuple[Pledge, ...]
    releases: tuple[Release, ...] = ()
    spared: tuple[Spared, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an intent gets no plan, or a plan is not applied. ``final``: nor would any later intent of the policy."""

    law: Law
    because: str
    final: bool = False


class Policy(Protocol):
    """Says who wants what. Has no memory, sees no other policy and no books: everything is a fact in the View."""

    @property
    def NAME(self) -> str:  # noqa: N802 - a module is a policy, and this is its constant
        """What commitments, explanations and metrics call it."""
        ...

    def intents(self, view: View) -> Iterable[Intent]:
        """What the policy wants, most important first; lazy, so that nobody asks for more than the budget."""
        ...
