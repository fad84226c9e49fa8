"""Asks whose suitable nodes may have changed are looked at again, some each second.

At once would be too often: each pod that is placed changes what suits its neighbours, and what is
told late is found before binding.
"""

from __future__ import annotations

from shim_client.mirror import pods, suitability
from shim_client.mirror.state import State

REVIEWED_MAX = 500
"""Most asks that are looked at in one second."""


def review(state: State) -> None:
    """Tell the core of the asks whose suitable nodes are other ones by now."""
    if not state.may_tell_pods():
        return
    now = (state.neighbourhood.version, state.outlook)
    if not state.to_review and now != state.reviewed:
        state.reviewed = now
        state.to_review.extend(
            uid
            for uid, pod in state.pods.items()
            if pod.sent is not None and not pod.node and suitability.is_judged(state, pod)
        )
    for _ in range(min(REVIEWED_MAX, len(state.to_review))):
        pod = state.pods.get(state.to_review.popleft())
        if pod is not None and not pod.node:
            pods.offer(state, pod)
