"""The answers to the core's plan checks: whether pods would fit on their nodes once the victims are gone (design 1.8).

The pods are judged one after another, each as if the pods before it already ran on their nodes. If all pods fit,
their planned places are kept for them (see `promises`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shim_client.messages import PlanCheck, PlanCheckAnswer
from shim_client.state_machine import node_suitability, pods, promises, settling
from shim_client.state_machine.state import PodRecord, State


def asked(state: State, check: PlanCheck) -> None:
    """Answer a plan check."""
    for key, _ in check.placements:
        pod = state.pods.get(key)
        if pod is not None:
            promises.end_of(state, pod)
    around, attached = state.neighbourhood, state.attachments
    before = around.version, attached.version, state.outlook
    with _without(state, check.victims):
        refused = tuple(_refusals(state, check))
    if refused:
        promises.end(state, check.partition, check.check)
        around.version, attached.version, state.outlook = before  # everything is counted as before
    state.session_of(check.partition).reports.append(
        PlanCheckAnswer(check.check, check.partition, refused)
    )
    for key, _ in refused:
        pod = state.pods.get(key)
        if pod is not None and not pod.node:
            pods.offer(state, pod)


def _refusals(state: State, check: PlanCheck) -> Iterator[tuple[str, str]]:
    """Yield each pod that does not fit, with the reason. Treat every pod that fits as if it ran on its planned node."""
    for key, node in check.placements:
        pod = state.pods.get(key)
        why = _obstacle(state, pod, node)
        if why or pod is None:
            yield key, why
        else:
            promises.keep(state, pod, node, (check.partition, check.check))


def _obstacle(state: State, pod: PodRecord | None, node: str) -> str:
    if pod is None or pod.sent is None or pod.node or pod.facts.deleting:
        return "the pod does not wait any more"
    if node not in state.nodes:
        return f"there is no node {node!r}"
    return node_suitability.obstacle(state, pod, node)


@contextmanager
def _without(state: State, victims: tuple[str, ...]) -> Iterator[None]:
    """Count the victims at no node while the block runs."""
    gone = [pod for key in victims if (pod := state.pods.get(key)) is not None and pod.node]
    for pod in gone:
        settling.unsettle(state, pod)
    yield
    for pod in gone:
        settling.settle(state, pod, pod.node)
