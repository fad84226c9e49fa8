"""Placeholders: made once for an application that has task groups, and gone when it has no real pod any more (1.9).

The core holds the application back until they have their places, and orders each to go when a real pod takes its
place or nobody needed it in time; that is carried out as any release is.
"""

from __future__ import annotations

from shim_client.cluster import (
    ClusterError,
    CreatePod,
    DeletePod,
    MissingError,
    ObjectRef,
    PatchPod,
)
from shim_client.mirror.state import ApplicationRecord, PodRecord, State
from shim_client.quantity import AMOUNT_MAX
from shim_client.reports import ApplicationReport
from shim_client.translate import labels, placeholder
from shim_client.translate.placeholder import Origin
from shim_client.translate.resources import Resource, sum_of


def declared(
    state: State, application: ApplicationRecord, report: ApplicationReport
) -> ApplicationReport:
    """Return the announcement with what the application's task groups say.

    Before placeholders are made it is what they will sum up to; afterwards what is left of them, so that nobody waits
    for one that was preempted meanwhile. An application that runs has begun, and is held back by nothing.
    """
    maker = _maker(state, application)
    if maker is None or maker.facts.gang is None:
        return report
    gang = maker.facts.gang
    ask: Resource = {}
    if not _has_begun(state, application):
        is_made = application.placeholders_made or maker.facts.placeholders_made
        all_there = is_made and not application.placeholders_coming
        ask = _left(state, application) if all_there else gang.resource()
    return ApplicationReport(
        application=report.application,
        partition=report.partition,
        queue=report.queue,
        user=report.user,
        groups=report.groups,
        tags=report.tags,
        placeholder_ask=ask,
        gang_style=gang.style,
        timeout_ms=1_000 * gang.timeout_seconds,
    )


def make(state: State, application: ApplicationRecord) -> None:
    """Have the placeholders of an accepted application made, unless that was done, or it runs already."""
    maker = _maker(state, application)
    if maker is None or maker.facts.gang is None or application.placeholders_made:
        return
    application.placeholders_made = True
    if maker.facts.placeholders_made or _has_begun(state, application):
        return
    facts, gang = maker.facts, maker.facts.gang
    origin = Origin(
        application.membership,
        application.partition,
        facts.ref,
        facts.priority_class,
        facts.pull_secrets,
    )
    for group in gang.groups:
        for name in placeholder.names(origin, group):
            item = placeholder.placeholder(origin, gang, group, name, state.settings)
            ref = ObjectRef("Pod", facts.ref.namespace, name)
            state.actions.append(CreatePod(ref, item, facts.ref.uid))
            application.placeholders_coming += 1
    state.note(facts.ref, "GangScheduling", f"{gang.members} placeholders are made for it")


def made(state: State, action: CreatePod, error: ClusterError | None) -> None:
    """Take in that a placeholder was made, or could not be; after the last it is written down that all were."""
    maker = state.pods.get(action.origin)
    application = maker.application if maker is not None else None
    if maker is None or application is None:
        return
    if error is not None:
        application.placeholders_failed = True
        why = f"placeholder {action.pod.name} was not made: {error}"
        state.note_once(maker, "PlaceholderNotMade", why, warning=True)
    application.placeholders_coming -= 1
    if not application.placeholders_coming and not application.placeholders_failed:
        note = {labels.PLACEHOLDERS_MADE: "true"}
        state.actions.append(PatchPod(maker.facts.ref, annotations=note))


def sweep(state: State, application: ApplicationRecord) -> None:
    """Without a real pod an application has ended: its placeholders go."""
    if application.originator in state.pods:
        return
    members = [state.pods[uid] for uid in application.members]
    if all(pod.facts.report.placeholder for pod in members):
        for pod in members:
            drop(state, pod)


def drop(state: State, pod: PodRecord) -> None:
    """A placeholder goes by our own doing, ordered once."""
    if not pod.facts.deleting and pod.order is None and not pod.dropped:
        pod.dropped = True
        state.actions.append(DeletePod(pod.facts.ref))


def dropped(state: State, pod: PodRecord, error: ClusterError | None) -> None:
    """Take in how that ended; one that could not be deleted is ordered away again when there is reason to."""
    if error is None or isinstance(error, MissingError) or pod.facts.deleting:
        return
    pod.dropped = False
    state.note(pod.facts.ref, "FailedDeletion", f"the pod stays: {error}", warning=True)


def _maker(state: State, application: ApplicationRecord) -> PodRecord | None:
    """The pod that created the application; when that has ended, the first with task groups."""
    maker = state.pods.get(application.originator)
    if maker is not None and maker.facts.gang is not None:
        return maker
    members = (state.pods[uid] for uid in application.members if uid in state.pods)
    return maker or next((pod for pod in members if pod.facts.gang is not None), None)


def _has_begun(state: State, application: ApplicationRecord) -> bool:
    """Has a real pod of it a node?"""
    members = (state.pods[uid] for uid in application.members)
    return any(pod.node and not pod.facts.report.placeholder for pod in members)


def _left(state: State, application: ApplicationRecord) -> dict[str, int]:
    """What those take that are left, as far as a message holds it: people may have written some by hand."""
    members = (state.pods[uid].facts for uid in application.members)
    left = (facts for facts in members if facts.report.placeholder and not facts.deleting)
    total = sum_of((facts.report.resource, 1) for facts in left)
    return {kind: min(amount, AMOUNT_MAX) for kind, amount in total.items()}
