"""The keys by which victims are compared, and the list of them that each policy has (specification 7.5)."""

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
"""A key that a list may have; `server.preemption.victim_order` says what each means."""

KEYS: Final[tuple[str, ...]] = get_args(Key)

FIXED: Final[Mapping[str, tuple[str, ...]]] = {one.name: one.fixed for one in ORDERS}
"""The keys with which each list begins, whatever a partition says."""

TAILS: Final[Mapping[str, tuple[str, ...]]] = {one.name: one.usual for one in ORDERS}
"""The keys that follow the fixed ones where a partition says nothing."""

PROPORTIONAL: Final = ("not-running", "running-time")
"""The tail of claims with `entitlement: proportional`, where a partition says nothing (W8)."""
