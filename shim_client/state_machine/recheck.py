"""The review of asks whose suitable nodes may have changed: a limited number of asks in each second.

A review after every change would be too frequent, because each placement can change what suits neighbouring pods. A
node that no longer suits a pod is still found, because the shim checks it again before binding.
"""

from __future__ import annotations

from shim_client.state_machine import node_suitability, pods
from shim_client.state_machine.state import State

REVIEWED_MAX = 500
"""Maximum number of asks that are reviewed in one second."""


def review(state: State) -> None:
    """Report the asks whose suitable nodes have changed; of the asks to review, at most REVIEWED_MAX are reviewed in one call."""
    if not state.may_tell_pods():
        return
    now = (state.neighbourhood.version, state.outlook)
    if not state.to_review and now != state.reviewed:
        state.reviewed = now
        state.to_review.extend(
            uid
            for uid, pod in state.pods.items()
            if pod.sent is not None and not pod.node and node_suitability.is_judged(state, pod)
        )
    for _ in range(min(REVIEWED_MAX, len(state.to_review))):
        pod = state.pods.get(state.to_review.popleft())
        if pod is not None and not pod.node:
            pods.offer(state, pod)
