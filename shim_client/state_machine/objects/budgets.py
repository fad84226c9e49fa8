"""PodDisruptionBudgets: the pods that each budget counts, and the number of these pods that may be evicted.

A budget is reported to the core before the pods that it counts. When a budget is deleted, these pods are reported
again first, and the deletion of the budget is reported last.
"""

from __future__ import annotations

from shim_client.cluster import KubeObject
from shim_client.messages import BudgetReport
from shim_client.state_machine import pods
from shim_client.state_machine.state import CoreSession, State
from shim_client.translate.budgets import read_budget
from shim_client.translate.fields import mapping, text


def observe(state: State, item: KubeObject) -> None:
    """Record a budget and report how many disruptions it allows, if this number has changed.

    When the selector of the budget has changed, the pods of the budget's namespace are reported again. A budget without
    a selector is removed.
    """
    namespace, name = _key(item)
    facts = read_budget(item)
    if facts is None:
        remove(state, namespace, name)
        return
    known = state.budgets.setdefault(namespace, {})
    before, known[name] = known.get(name), facts
    for session in state.sessions.values():
        _tell(session, f"{namespace}/{name}", facts.allowed)
    if before is None or before.selector != facts.selector:
        _tell_pods(state, namespace)


def forget(state: State, item: KubeObject) -> None:
    """Record that a budget was deleted."""
    remove(state, *_key(item))


def remove(state: State, namespace: str, name: str) -> None:
    """Drop a budget by namespace and name."""
    known = state.budgets.get(namespace, {})
    if known.pop(name, None) is None:
        return
    if not known:
        del state.budgets[namespace]
    _tell_pods(state, namespace)
    key = f"{namespace}/{name}"
    for session in state.sessions.values():
        if session.budgets_told.pop(key, None) is not None:
            session.reports.append(BudgetReport(key, None))


def tell_all(state: State, session: CoreSession) -> None:
    """Report every budget, at the beginning of a session."""
    for namespace, known in state.budgets.items():
        for name, facts in known.items():
            _tell(session, f"{namespace}/{name}", facts.allowed)


def _tell(session: CoreSession, key: str, allowed: int) -> None:
    if session.may_tell_pods() and session.budgets_told.get(key) != allowed:
        session.budgets_told[key] = allowed
        session.reports.append(BudgetReport(key, allowed))


def _tell_pods(state: State, namespace: str) -> None:
    for pod in list(state.pods.values()):
        if pod.facts.ref.namespace == namespace and pod.sent is not None:
            pods.offer(state, pod)


def _key(item: KubeObject) -> tuple[str, str]:
    metadata = mapping(item, "metadata")
    return text(metadata, "namespace", "metadata."), text(metadata, "name", "metadata.")
