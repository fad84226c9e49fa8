"""Placeholders: created once for an application with task groups, deleted when it has no real pod left (1.9).

The core holds the application back until its placeholders have nodes, and orders a placeholder's deletion when a real
pod replaces it or none needed it in time. That is carried out like any other release.
"""

from __future__ import annotations

from dataclasses import replace

from shim_client.cluster import (
    ClusterError,
    CreatePod,
    DeletePod,
    MissingError,
    ObjectRef,
    PatchPod,
)
from shim_client.messages import ApplicationReport
from shim_client.quantity import AMOUNT_MAX
from shim_client.state_machine.state import ApplicationRecord, PodRecord, State
from shim_client.translate import labels, placeholder
from shim_client.translate.placeholder import Origin
from shim_client.translate.pod import PodFacts
from shim_client.translate.resources import Resource, sum_of
from shim_client.translate.task_groups import Gang


def declared(
    state: State, application: ApplicationRecord, report: ApplicationReport
) -> ApplicationReport:
    """Return the announcement with the facts of the application's task groups.

    Before placeholders are created the sum is that of all of them; afterwards that of the remaining ones, so that the
    application does not wait for one that was preempted meanwhile. An application that runs is not held back.
    """
    maker = _maker(state, application)
    if maker is None:
        return report
    facts, gang = maker
    ask: Resource = {}
    if not _has_begun(state, application):
        is_made = application.placeholders_made or facts.placeholders_made
        all_there = is_made and not application.placeholders_coming
        ask = _left(state, application) if all_there else gang.resource()
    timeout_ms = 1_000 * gang.timeout_seconds
    return replace(report, placeholder_ask=ask, gang_style=gang.style, timeout_ms=timeout_ms)


def make(state: State, application: ApplicationRecord) -> None:
    """Order the placeholders of an accepted application, unless they were ordered before, or it runs already."""
    maker = _maker(state, application)
    if maker is None or application.placeholders_made:
        return
    facts, gang = maker
    application.placeholders_made = True
    if facts.placeholders_made or _has_begun(state, application):
        return
    origin = Origin(
        application.membership,
        application.partition,
        facts.ref,
        facts.priority_class,
        facts.pull_secrets,
    )
    state.makers[facts.ref.uid] = application
    for name, item in placeholder.placeholders(origin, gang, state.settings):
        ref = ObjectRef("Pod", facts.ref.namespace, name)
        state.actions.append(CreatePod(ref, item, facts.ref.uid))
        application.placeholders_coming[name] = None
    state.note(facts.ref, "GangScheduling", f"{gang.members} placeholders are made for it")


def made(state: State, action: CreatePod, error: ClusterError | None) -> None:
    """Record that a placeholder was created, or could not be; after the last one write down that all were.

    The pod for which they are created may have ended meanwhile; its application may continue.
    """
    application = state.makers.get(action.origin)
    if application is None:
        return
    maker = state.pods.get(action.origin)
    if error is not None:
        application.placeholders_failed = True
    if error is not None and maker is not None:
        why = f"placeholder {action.pod.name} was not made: {error}"
        state.note_once(maker, "PlaceholderNotMade", why, warning=True)
    application.placeholders_coming.pop(action.pod.name, None)
    if application.placeholders_coming:
        return
    del state.makers[action.origin]
    if maker is not None and not application.placeholders_failed:
        note = {labels.PLACEHOLDERS_MADE: "true"}
        state.actions.append(PatchPod(maker.facts.ref, annotations=note))


def sweep(state: State, application: ApplicationRecord) -> None:
    """Delete the placeholders of an application without a real pod: it has ended."""
    if application.originator in state.pods:
        return
    members = [state.pods[uid] for uid in application.members]
    if all(pod.facts.report.placeholder for pod in members):
        for pod in members:
            drop(state, pod)


def drop(state: State, pod: PodRecord) -> None:
    """Delete a placeholder, unless it is ending or its deletion was ordered already."""
    if not pod.facts.deleting and pod.order is None and not pod.dropped:
        pod.dropped = True
        state.actions.append(DeletePod(pod.facts.ref))


def dropped(state: State, pod: PodRecord, error: ClusterError | None) -> None:
    """Record how the deletion of a placeholder ended; after a failure it can be ordered again."""
    if error is None or isinstance(error, MissingError) or pod.facts.deleting:
        return
    pod.dropped = False
    state.note(pod.facts.ref, "FailedDeletion", f"the pod stays: {error}", warning=True)


def _maker(state: State, application: ApplicationRecord) -> tuple[PodFacts, Gang] | None:
    """Return the pod that created the application, or once it has ended the first one that has task groups."""
    first = state.pods.get(application.originator)
    members = [first] if first else (state.pods[uid] for uid in application.members)
    for pod in members:
        if pod.facts.gang is not None:
            return pod.facts, pod.facts.gang
    return None


def _has_begun(state: State, application: ApplicationRecord) -> bool:
    """Return whether a real pod of the application has a node."""
    members = (state.pods[uid] for uid in application.members)
    return any(pod.node and not pod.facts.report.placeholder for pod in members)


def _left(state: State, application: ApplicationRecord) -> dict[str, int]:
    """Return what the remaining placeholders take, at most what a message holds.

    A user may have written some placeholders by hand, so that their sum has no other bound.
    """
    members = (state.pods[uid].facts for uid in application.members)
    left = (facts for facts in members if facts.report.placeholder and not facts.deleting)
    total = sum_of((facts.report.resource, 1) for facts in left)
    return {kind: min(amount, AMOUNT_MAX) for kind, amount in total.items()}
