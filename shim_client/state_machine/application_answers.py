"""Answers of the core about applications."""

from __future__ import annotations

from shim_client.cluster import ObjectRef, PatchPod
from shim_client.messages import ApplicationAnswer, ApplicationState, TagsRefused
from shim_client.state_machine import applications, placeholders, pods
from shim_client.state_machine.state import ApplicationRecord, CoreSession, Standing, State

ENDED = frozenset({"Completed", "Expired"})
FAILED = frozenset({"Failing", "Failed", "Killed"})


def answered(state: State, session: CoreSession, answer: ApplicationAnswer) -> None:
    """Process the core's answer to a new application.

    If the core accepted the application, order its placeholders and report its pods. If the core refused the
    application, fail its pods that have no node.
    """
    application = applications.answered(state, session, answer.application)
    if application is None:
        return
    if answer.accepted:
        application.standing = Standing.ACCEPTED
        placeholders.make(state, application)
        for uid in list(application.members):
            pods.offer(state, state.pods[uid])
        return
    application.standing = Standing.REFUSED
    _fail_members(state, application, "ApplicationRejected", answer.reason)
    if not application.members:
        applications.drop(state, application)


def unchanged(state: State, session: CoreSession, refusal: TagsRefused) -> None:
    """Record an event on the namespace whose quota the core refused, once for each reason.

    If the application has ended meanwhile, no event is recorded.
    """
    for application in _named(state, session, refusal.application):
        key = refusal_key(application.namespace)
        if application.standing is Standing.ACCEPTED and state.bad.get(key) != refusal.reason:
            state.bad[key] = refusal.reason
            ref = ObjectRef("Namespace", "", application.namespace)
            state.note(
                ref, "QuotaRefused", f"the former quota counts: {refusal.reason}", warning=True
            )


def refusal_key(namespace: str) -> str:
    """Return the key under which `State.bad` has the refusal of a namespace's quota."""
    return f"quota of Namespace//{namespace}"


def changed(state: State, session: CoreSession, change: ApplicationState) -> None:
    """Process a new state of an accepted application in the core.

    An application that has ended is announced again if it has pods, and forgotten otherwise. When an application fails,
    its pods without a node fail, and its placeholders are deleted. The next pod of a failed application starts the
    application again.
    """
    for application in _named(state, session, change.application):
        if application.standing is not Standing.ACCEPTED:
            continue
        if change.state in ENDED:
            _end(state, application)
        elif change.state in FAILED:
            why = change.message or f"the application is {change.state}"
            _fail_members(state, application, "ResourceReservationTimeout", why)
            if change.state == "Failed":
                _forgotten(state, application)


def _named(state: State, session: CoreSession, id_: str) -> list[ApplicationRecord]:
    """Return the applications with this id in the partitions of a session."""
    same_id = state.applications.get(id_, {})
    return [one for name, one in same_id.items() if state.session_of(name) is session]


def _end(state: State, application: ApplicationRecord) -> None:
    if not application.members:
        applications.drop(state, application)
        return
    application.standing = Standing.UNSENT
    for uid in list(application.members):
        pod = state.pods[uid]
        pod.sent = pod.refused = None
        pods.offer(state, pod)


def _forgotten(state: State, application: ApplicationRecord) -> None:
    """Reset an application that has failed and that the core has forgotten.

    A later pod of the application starts the application again.
    """
    application.standing = Standing.UNSENT
    application.placeholders_made = application.placeholders_failed = False
    for uid in application.members:
        pod = state.pods[uid]
        pod.sent = pod.refused = None
        pod.failed = not pod.node
    if not application.members:
        applications.drop(state, application)


def _fail_members(state: State, application: ApplicationRecord, reason: str, why: str) -> None:
    """Fail the application's pods that have no node, and delete its placeholders.

    Real pods that run stay. An event about the failure is recorded on every real pod.
    """
    for uid in list(application.members):
        pod = state.pods[uid]
        if pod.facts.report.placeholder:
            placeholders.drop(state, pod)
            continue
        state.note_once(pod, reason, why, warning=True)
        if not pod.node:
            state.actions.append(
                PatchPod(pod.facts.ref, phase="Failed", reason=reason, message=why[:1024])
            )
