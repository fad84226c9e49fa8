"""PodDisruptionBudgets: in which of them a pod counts, as groups that the core knows by name."""

from __future__ import annotations

from shim_client.cluster import KubeObject
from shim_client.mirror import pods
from shim_client.mirror.state import State
from shim_client.translate.fields import mapping, text
from shim_client.translate.matching import Selector, read_selector


def observe(state: State, item: KubeObject) -> None:
    """Take in a budget; the pods of its namespace are told again."""
    namespace, name = _key(item)
    spec = mapping(item, "spec")
    selector: Selector | None = None
    if spec.get("selector") is not None:
        selector = read_selector(mapping(spec, "selector", "spec."), "spec.selector.")
    known = state.budgets.get(namespace, {})
    if known.get(name) == selector:
        return
    if selector is None:
        known.pop(name, None)
    else:
        state.budgets.setdefault(namespace, {})[name] = selector
    _tell(state, namespace)


def forget(state: State, item: KubeObject) -> None:
    """Take in that a budget is gone."""
    remove(state, *_key(item))


def remove(state: State, namespace: str, name: str) -> None:
    """Drop a budget."""
    if state.budgets.get(namespace, {}).pop(name, None) is not None:
        _tell(state, namespace)


def _tell(state: State, namespace: str) -> None:
    for pod in list(state.pods.values()):
        if pod.facts.ref.namespace == namespace and pod.sent is not None:
            pods.offer(state, pod)


def _key(item: KubeObject) -> tuple[str, str]:
    metadata = mapping(item, "metadata")
    return text(metadata, "namespace", "metadata."), text(metadata, "name", "metadata.")
