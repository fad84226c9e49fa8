"""The sort keys by which victims are compared, and the list of sort keys of each policy (V1, V2)."""

from collections.abc import Mapping
from typing import Final, Literal

from server.model.policies import ORDERS

Key = Literal[
    "protection",
    "originator",
    "placeholder",
    "priority",
    "job-broken",
    "not-running",
    "lost-work",
    "age",
    "running-time",
    "size",
    "fit",
    "kind",
    "job",
]
"""The name of a key in the list of a policy. `server.preemption.victim_order` defines each key."""

FIXED: Final[Mapping[str, tuple[str, ...]]] = {one.name: one.fixed for one in ORDERS}
"""For each list of keys in `ORDERS`, the fixed keys with which the list begins. A partition cannot change these keys."""

TAILS: Final[Mapping[str, tuple[str, ...]]] = {one.name: one.usual for one in ORDERS}
"""For each list of keys in `ORDERS`, the keys that follow the fixed keys if the partition sets no keys of its own."""

PROPORTIONAL: Final = ("not-running", "running-time")
"""The keys that follow the fixed keys of claims if queues are entitled to shares by weight (`entitlement: proportional`).

These keys are used if the partition sets no keys of its own (W8).
"""
