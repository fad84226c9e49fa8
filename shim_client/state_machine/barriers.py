"""Barriers: asks that show when the core has processed all pods reported so far.

The three streams are not ordered among each other, and the core does not confirm accepted allocations. A barrier is an
ask of an application that does not exist. Every core refuses such an ask, even a core that does not decide for the
default partition. The core answers the reports of a stream in order. The refusal of a barrier therefore shows that the
core has processed all reports that were sent before the barrier.
"""

from __future__ import annotations

from shim_client.messages import DEFAULT_PARTITION, PodReport
from shim_client.state_machine.state import CoreSession, State

APPLICATION = "evenhand.io/barrier"


def put(state: State, session: CoreSession, node: str) -> None:
    """Send a barrier, which is an ask that the core refuses, after all reports of pods.

    `node` is the node that waits for the barrier, or "" when the sync waits.
    """
    state.barriers_made += 1
    key = f"{APPLICATION}-{state.barriers_made}"
    session.barriers[key] = node
    session.reports.append(
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


def passed(session: CoreSession, key: str) -> str | None:
    """Remove the barrier with this key, which the core has refused, and return the node that waited for it.

    Return "" if the sync waited, and None if there is no barrier with this key.
    """
    return session.barriers.pop(key, None)
