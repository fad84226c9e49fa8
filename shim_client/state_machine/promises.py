"""The places on nodes that are kept for waiting pods while other pods are evicted for them (design 1.8).

The shim has answered in a plan check that the waiting pod would fit. From then on the shim treats this pod as if it ran
on the planned node, and pledges the planned volumes to the pod. While the place is kept, no other pod takes the
capacity or the volumes on which the answer to the plan check relied. A place is kept until the pod is placed, bound by
another scheduler or gone. The place is also given up when the core ends the check or makes another check about the pod,
or when the session ends.
"""

from __future__ import annotations

from shim_client.state_machine import settling, volume_matching
from shim_client.state_machine.state import CoreSession, PodRecord, State


def keep(state: State, pod: PodRecord, node: str, check: tuple[str, str]) -> None:
    """Keep a place on a node for a pod. The node must suit the pod. ``check`` has the partition and the id of the plan check."""
    pod.promise, pod.promised = check, node
    state.promises.setdefault(check, []).append(pod.facts.ref.uid)
    settling.settle(state, pod, node)
    volume_matching.pledge(state, pod, volume_matching.plan(state, pod, node) or {})


def end(state: State, partition: str, check: str) -> None:
    """Give up all places that are kept for the pods of a plan check. The core numbers the checks of each partition separately.

    An unknown check is ignored.
    """
    for uid in state.promises.pop((partition, check), ()):
        pod = state.pods.get(uid)
        if pod is not None and pod.promise == (partition, check):
            _give_up(state, pod)


def end_of(state: State, pod: PodRecord) -> None:
    """Give up the place that is kept for a pod, if there is one."""
    if pod.promise is None:
        return
    kept = state.promises.get(pod.promise)
    if kept is not None:
        kept.remove(pod.facts.ref.uid)
        if not kept:
            del state.promises[pod.promise]
    _give_up(state, pod)


def resettle(state: State, node: str) -> None:
    """Recount the pods whose places are kept on a node, because the node's labels have changed."""
    for uids in state.promises.values():
        for uid in uids:
            pod = state.pods[uid]
            if pod.promised == node:
                settling.settle(state, pod, node)


def end_all(state: State, session: CoreSession) -> None:
    """Give up all places that are kept for pods of a session, because this session has ended."""
    for uid in [uid for uids in state.promises.values() for uid in uids]:
        pod = state.pods.get(uid)
        if pod is not None and state.session_for(pod) is session:
            end_of(state, pod)


def _give_up(state: State, pod: PodRecord) -> None:
    pod.promise, pod.promised = None, ""
    if not pod.node:
        settling.unsettle(state, pod)
        volume_matching.release(state, pod.facts.ref.uid)
