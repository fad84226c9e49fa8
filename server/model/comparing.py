"""The keys by which victims are compared, and the list of keys of each policy (V1, V2)."""

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
"""The keys with which the list of each policy begins. A partition cannot change these keys."""

TAILS: Final[Mapping[str, tuple[str, ...]]] = {one.name: one.usual for one in ORDERS}
"""The keys that follow the fixed keys by default: if the partition sets no keys."""

PROPORTIONAL: Final = ("not-running", "running-time")
"""The keys that follow the fixed keys for claims with `entitlement: proportional`, if the partition sets no keys (W8)."""
