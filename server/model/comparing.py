"""The keys by which victims are compared, and each policy's list of keys (V1, V2)."""

from collections.abc import Mapping
from typing import Final, Literal, get_args

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
"""The name of a key in a policy's list. `server.preemption.victim_order` defines each key."""

KEYS: Final[tuple[str, ...]] = get_args(Key)

FIXED: Final[Mapping[str, tuple[str, ...]]] = {one.name: one.fixed for one in ORDERS}
"""The keys with which the list of each policy begins. A partition cannot change them."""

TAILS: Final[Mapping[str, tuple[str, ...]]] = {one.name: one.usual for one in ORDERS}
"""The keys that follow the fixed ones if the partition sets no keys."""

PROPORTIONAL: Final = ("not-running", "running-time")
"""The keys after the fixed ones for claims with `entitlement: proportional`, if the partition sets no keys (W8)."""
