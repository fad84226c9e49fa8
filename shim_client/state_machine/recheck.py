"""The review of asks whose suitable nodes may have changed. A limited number of asks is reviewed in each second.

A review after every change would be too frequent, because each placement can change the nodes that suit neighbouring
pods. The shim checks a node again before it binds a pod there, so that an unsuitable node is noticed even before the
review.
"""

from __future__ import annotations

from shim_client.state_machine import node_suitability, pods
from shim_client.state_machine.state import State

REVIEWED_MAX = 500
"""Maximum number of asks that are reviewed in one second."""


def review(state: State) -> None:
    """Report the asks whose suitable nodes have changed.

    In one call at most REVIEWED_MAX of the waiting asks are reviewed.
    """
    if not state.may_tell_pods():
        return
    now = (state.neighbourhood.version, state.attachments.version, state.outlook)
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
