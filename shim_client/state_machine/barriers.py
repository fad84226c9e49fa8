"""Barriers: the proof that the core has processed all pods reported so far.

The three streams are not ordered among each other, and the core does not confirm an allocation that it accepts.
A barrier is an ask of an application that does not exist: the core refuses it, and because it answers a stream
in order, the refusal shows that everything before it was processed.
"""

from __future__ import annotations

from shim_client.messages import DEFAULT_PARTITION, PodReport
from shim_client.state_machine.state import State

APPLICATION = "evenhand.io/barrier"


def put(state: State, node: str) -> None:
    """Send a barrier behind all reports of pods; `node` is the node that waits for it, "" the sync."""
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
    """Return the node that waited for the barrier of this key, "" for the sync; None when the key is no barrier's."""
    return state.barriers.pop(key, None)
