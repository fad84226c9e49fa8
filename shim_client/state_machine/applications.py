"""Applications. Each application is announced to the core before its first pod is reported.

The core's answers name an application by its id alone. Two applications with one id, in two partitions, are therefore
announced one after the other. When the annotations of a namespace change, its applications get new tags.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from shim_client.messages import ApplicationRemoval, ApplicationReport, ApplicationTags
from shim_client.state_machine import identity, placeholders
from shim_client.state_machine.state import (
    ApplicationRecord,
    CoreSession,
    Phase,
    PodRecord,
    Standing,
    State,
)
from shim_client.translate import labels


def join(state: State, pod: PodRecord) -> ApplicationRecord:
    """Return the pod's application; create and announce it when it is new."""
    application = pod.application
    if application is None:
        application = _found_or_made(state, pod)
        application.members[pod.facts.ref.uid] = None
        pod.application = application
        if application.standing is Standing.REFUSED:
            application.standing = Standing.UNSENT
    session = state.session_of(application.partition)
    if application.standing is Standing.UNSENT and session.phase is not Phase.AWAY:
        announce(state, application)
    return application


def leave(state: State, pod: PodRecord) -> None:
    """Remove a pod from its application.

    The following applies when the application has no pods left. If the core does not know the application, the
    application is forgotten. If the core knows the application, and no pod of it ever ran, the removal of the
    application is reported to the core. If a pod of the application ran, the core completes the application by itself.
    """
    application = pod.application
    if application is None:
        return
    application.members.pop(pod.facts.ref.uid, None)
    pod.application = None
    if application.members:
        placeholders.sweep(state, application)
        return
    if application.standing in {Standing.UNSENT, Standing.REFUSED}:
        drop(state, application)
    elif application.standing is Standing.ACCEPTED and not application.ran:
        session = state.session_of(application.partition)
        session.reports.append(ApplicationRemoval(application.id, application.partition))
        drop(state, application)


def drop(state: State, application: ApplicationRecord) -> None:
    """Forget an application."""
    same_id = state.applications.get(application.id, {})
    same_id.pop(application.partition, None)
    if not same_id:
        state.applications.pop(application.id, None)


def announce(state: State, application: ApplicationRecord) -> None:
    """Send an application to the core.

    If another application with the same id waits for an answer, the application is sent after the answer to the other
    application.
    """
    application.standing = Standing.SENT
    session = state.session_of(application.partition)
    waiting = session.unanswered.setdefault(application.id, deque())
    waiting.append(application)
    if len(waiting) == 1:
        _send(state, application)


def answered(state: State, session: CoreSession, id_: str) -> ApplicationRecord | None:
    """Return the application to which an answer belongs, and send the next application with this id, if one waits.

    Return None if no application with this id waits for an answer.
    """
    waiting = session.unanswered.get(id_)
    if not waiting:
        return None
    application = waiting.popleft()
    if waiting:
        _send(state, waiting[0])
    else:
        del session.unanswered[id_]
    return application


def retag(state: State, namespace: str) -> None:
    """Send the present tags of a namespace for those of its applications that the core has with other tags."""
    tags = _tags(state, namespace)
    for application in all_applications(state):
        if application.namespace != namespace or not _was_sent(state, application):
            continue
        if application.tags != tags:
            application.tags = tags
            session = state.session_of(application.partition)
            session.reports.append(ApplicationTags(application.id, application.partition, tags))


def _was_sent(state: State, application: ApplicationRecord) -> bool:
    """Return whether the core has the application, or its announcement is on the way.

    An announcement that waits to be sent does not count.
    """
    if application.standing is Standing.SENT:
        session = state.session_of(application.partition)
        return session.unanswered[application.id][0] is application
    return application.standing is Standing.ACCEPTED


def all_applications(state: State) -> Iterator[ApplicationRecord]:
    """Yield every application."""
    for same_id in state.applications.values():
        yield from same_id.values()


def _found_or_made(state: State, pod: PodRecord) -> ApplicationRecord:
    facts, member = pod.facts, identity.membership(state, pod)
    same_id = state.applications.setdefault(member.application, {})
    application = same_id.get(facts.report.partition)
    if application is None:
        application = ApplicationRecord(
            id=member.application,
            partition=facts.report.partition,
            membership=member,
            namespace=facts.ref.namespace,
            originator=facts.owner_uid if facts.report.placeholder else facts.ref.uid,
        )
        same_id[application.partition] = application
    return application


def _send(state: State, application: ApplicationRecord) -> None:
    member = application.membership
    application.tags = tags = _tags(state, application.namespace)
    # A running pod is a reason why the core must not reject the application.
    if any(state.pods[uid].node for uid in application.members):
        tags = {**tags, labels.TAG_FORCE: "true"}
    report = ApplicationReport(
        application=application.id,
        partition=application.partition,
        queue=member.queue,
        user=member.user,
        groups=member.groups,
        tags=tags,
    )
    session = state.session_of(application.partition)
    session.reports.append(placeholders.declared(state, application, report))


def _tags(state: State, namespace: str) -> Mapping[str, str]:
    """Return the tags that a namespace gives its applications."""
    known = state.namespaces.get(namespace)
    return known.tags if known else {labels.TAG_NAMESPACE: namespace}
