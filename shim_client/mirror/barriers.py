"""Barriers: how the shim learns that the core has everything that was told of pods so far.

The three streams are not ordered among each other, and the core is silent about an allocation that
it takes.  A barrier is an ask of an application that nobody has: the core refuses it, and as it
answers a stream in order, the refusal says that everything before it was taken in.
"""

from __future__ import annotations

from shim_client.mirror.state import State
from shim_client.reports import DEFAULT_PARTITION, PodReport

APPLICATION = "evenhand.io/barrier"


def put(state: State, node: str) -> None:
    """Put a barrier behind all that was told of pods; `node` is what waits for it, "" the sync."""
    state.barriers_made += 1
    key = f"{APPLICATION}-{state.barriers_made}"
    state.barriers[key] = node
    state.reports.append(
        PodReport(
            key=key,
            application=APPLICATION,
            partition=DEFAULT_PARTITION,
            resource={"pods": 1},
            priority=0,
            node="",
            tags={},
        )
    )


def passed(state: State, key: str) -> str | None:
    """Return what waited for the barrier of this key, None when it is no barrier."""
    return state.barriers.pop(key, None)
