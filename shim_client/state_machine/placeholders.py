"""Placeholders.

They are created once for an application with task groups, and deleted when the application has no real pod left. The
core places no real pod of the application before its placeholders have nodes. The core orders a placeholder's deletion
when a real pod replaces it, or when it stays unused for too long. The shim carries out the order to delete a
placeholder like any other eviction.
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
from shim_client.translate.phrases import count
from shim_client.translate.placeholder import Origin
from shim_client.translate.pod import PodFacts
from shim_client.translate.resources import Resource, sum_of
from shim_client.translate.task_groups import Gang


def declared(
    state: State, application: ApplicationRecord, report: ApplicationReport
) -> ApplicationReport:
    """Return the announcement of an application, with the fields that follow from its task groups.

    Before placeholders are created, `placeholder_ask` is the sum of all placeholders. After their creation
    `placeholder_ask` is the sum of the remaining placeholders: the application must not wait for a placeholder that was
    preempted meanwhile. For an application that already runs, `placeholder_ask` is empty.
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
    """Order the creation of an application's placeholders, unless that was done before or the application already runs."""
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
    state.note(
        facts.ref,
        "GangScheduling",
        f"{count(gang.members, 'placeholder', 'is', 'are')} made for it",
    )


def made(state: State, action: CreatePod, error: ClusterError | None) -> None:
    """Record the result of creating a placeholder.

    When all placeholders were created, record this in an annotation of the origin pod. The origin pod, which declares
    the task groups, may have ended meanwhile, while its application continues.
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
    """Delete the placeholders of an application that has no real pod left."""
    if application.originator in state.pods:
        return
    members = [state.pods[uid] for uid in application.members]
    if all(pod.facts.report.placeholder for pod in members):
        for pod in members:
            drop(state, pod)


def drop(state: State, pod: PodRecord) -> None:
    """Delete a placeholder, unless it is ending or its deletion was already ordered."""
    if not pod.facts.deleting and pod.order is None and not pod.dropped:
        pod.dropped = True
        state.actions.append(DeletePod(pod.facts.ref))


def dropped(state: State, pod: PodRecord, error: ClusterError | None) -> None:
    """Record the result of deleting a placeholder; after a failure the deletion can be ordered again."""
    if error is None or isinstance(error, MissingError) or pod.facts.deleting:
        return
    pod.dropped = False
    state.note(pod.facts.ref, "FailedDeletion", f"the pod stays: {error}", warning=True)


def _maker(state: State, application: ApplicationRecord) -> tuple[PodFacts, Gang] | None:
    """Return the pod that created the application, with the task groups of this pod.

    If the creating pod has ended, return the first pod with task groups. Return None if the creating pod still exists
    and has no task groups, or if it has ended and no other pod has task groups.
    """
    first = state.pods.get(application.originator)
    members = [first] if first else (state.pods[uid] for uid in application.members)
    for pod in members:
        if pod.facts.gang is not None:
            return pod.facts, pod.facts.gang
    return None


def _has_begun(state: State, application: ApplicationRecord) -> bool:
    """Return whether a pod of the application other than a placeholder has a node."""
    members = (state.pods[uid] for uid in application.members)
    return any(pod.node and not pod.facts.report.placeholder for pod in members)


def _left(state: State, application: ApplicationRecord) -> dict[str, int]:
    """Return the sum of the requests of the remaining placeholders, limited to the largest amount that a message can hold.

    The limit is needed because a user may have written placeholders by hand.
    """
    members = (state.pods[uid].facts for uid in application.members)
    left = (facts for facts in members if facts.report.placeholder and not facts.deleting)
    total = sum_of((facts.report.resource, 1) for facts in left)
    return {kind: min(amount, AMOUNT_MAX) for kind, amount in total.items()}
