"""The events of applications: queue placement, changed tags, states and removal."""

from collections.abc import Iterator

from server.core.events import lifecycle, placeholders, quota_tags
from server.core.events.asks import owned_by_other
from server.core.state import REGISTER_FIRST, State
from server.model.decisions import (
    ApplicationAccepted,
    ApplicationRejected,
    ApplicationState,
    ApplicationUpdated,
    ApplicationUpdateRejected,
    Decision,
    Noted,
    Termination,
)
from server.model.events import ApplicationAdded, ApplicationRemoved, ApplicationRetagged
from server.model.phrases import count
from server.model.quota import QUEUES_MAX, RECOVERY_QUEUE
from server.model.reasons import Code
from server.state import tree
from server.state.applications import Application
from server.state.limits import Limiter
from server.state.partition import Partition
from server.state.placeholders import GangStyle, Reserve
from server.state.placement_rules import FORCE_TAG, PlacementFacts, Refused, place_application
from server.state.queues import Queue, QueueState
from server.state.resumption import still_there

APPLICATIONS_MAX = 200_000
"""The largest number of applications that one partition accepts."""


class QueueLookup:
    """The interface through which placement rules read the queue tree."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    def find(self, path: str) -> PlacementFacts | None:
        """Return the facts of an existing queue. Return None for an unknown path."""
        queue = self._partition.queues.get(path)
        if queue is None:
            return None
        return PlacementFacts(leaf=queue.leaf, accepting=queue.state is QueueState.ACTIVE)

    def may_submit(self, path: str, user: str, groups: tuple[str, ...]) -> bool:
        """Return whether the user may submit to this queue, which may exist or have to be created.

        The user may submit if the access list of the queue, or of any queue above it, allows the user.
        """
        queue = self._nearest(path)
        return any(
            one.spec.submit_acl.allows(user, groups) or one.spec.admin_acl.allows(user, groups)
            for one in queue.path_up()
        )

    def _nearest(self, path: str) -> Queue:
        while path and path not in self._partition.queues:
            path = path.rpartition(".")[0]
        return self._partition.queues.get(path, self._partition.root)


def add(state: State, event: ApplicationAdded, now: int) -> list[Decision]:
    """Add an application: placement rules choose its queue, and the limits of that queue decide whether the application is accepted.

    If the manager reports an application again after a new registration, the application keeps its queue and its state.
    """
    partition = state.partitions.get(event.partition)
    known = None if partition is None else _unreported(partition, event.application_id)
    if partition is not None and known is not None and known.rm_id == event.rm_id:
        return _compare(state, partition, known, event, now)
    refusal = _may_add(state, partition, event)
    if refusal or partition is None:
        return [_rejected(event, refusal)]
    wanted = quota_tags.quota(event.tags)
    if isinstance(wanted, str):
        return [_rejected(event, wanted)]
    found = place_application(partition.spec.rules, event, QueueLookup(partition))
    if isinstance(found, Refused):
        return [_rejected(event, found.reason)]
    return _enter(state, partition, event, found.path, wanted, now)


def _unreported(partition: Partition, application_id: str) -> Application | None:
    """Return the application if its manager registered again and has not reported the application since then. Otherwise return None."""
    resumption = partition.resumption
    known = None if resumption is None else resumption.applications.get(application_id)
    is_there = known is not None and partition.applications.get(application_id) is known
    return known if is_there else None


def _compare(
    state: State, partition: Partition, known: Application, event: ApplicationAdded, now: int
) -> list[Decision]:
    """Accept an application that its manager reports again.

    Changed tags are handled as in a separate report of tags (design 1.10).

    The tag that forces the acceptance of an application is not compared, because a manager sends this tag only after pods of
    the application have started.
    """
    assert partition.resumption is not None, f"no sync of {event.rm_id} is in progress"
    del partition.resumption.applications[known.application_id]
    tags = {name: value for name, value in event.tags.items() if name != FORCE_TAG}
    tags |= {FORCE_TAG: known.tags[FORCE_TAG]} if FORCE_TAG in known.tags else {}
    where = (event.rm_id, known.application_id)
    decisions: list[Decision] = [
        ApplicationAccepted(*where, partition.name, known.leaf.path),
        ApplicationUpdated(*where, known.state, now, "", partition.name),
    ]
    if tags != known.tags:
        decisions += retag(state, ApplicationRetagged(*where, tags, partition.name))
    return decisions


def _may_add(state: State, partition: Partition | None, event: ApplicationAdded) -> str:
    if event.rm_id not in state.managers:
        return REGISTER_FIRST.format(rm_id=event.rm_id)
    if not event.application_id:
        return "applicationID is empty"
    if partition is None or partition.retired:
        return state.why_absent(event.partition)
    if partition.owner not in ("", event.rm_id):
        return owned_by_other(partition)
    if event.application_id in partition.applications:
        return f"application {event.application_id!r} exists already"
    if len(partition.applications) >= APPLICATIONS_MAX:
        return (
            f"partition {event.partition!r} has {APPLICATIONS_MAX} applications, the most it takes"
        )
    return ""


def _rejected(event: ApplicationAdded, reason: str) -> ApplicationRejected:
    return ApplicationRejected(event.rm_id, event.application_id, reason, event.partition)


def _enter(  # noqa: PLR0913, PLR0917 - what one submission is about
    state: State,
    partition: Partition,
    event: ApplicationAdded,
    path: str,
    wanted: quota_tags.TagQuota,
    now: int,
) -> list[Decision]:
    notes: list[Decision] = []
    leaf = partition.queues.get(path)
    if leaf is None:
        if len(partition.queues) + path.count(".") > QUEUES_MAX:
            return [
                _rejected(
                    event,
                    f"partition {partition.name!r} has {QUEUES_MAX} queues, the most it takes",
                )
            ]
        leaf = tree.create_path(partition, path)
        notes.append(_note_queue(partition, leaf, Code.QUEUE_CREATED, "created"))
    _take_tags(partition, leaf, wanted, frozenset())
    forced = event.tags.get(FORCE_TAG) == "true"
    refusal = "" if forced else _too_many(partition, leaf, event)
    if refusal:
        return [*notes, *lifecycle.swept(partition, leaf), _rejected(event, refusal)]
    application = _make(partition, leaf, event, now)
    if event.placeholder_ask or event.gang_style or event.execution_timeout_ms:
        style = GangStyle.of(event.gang_style)
        reserve = Reserve(event.placeholder_ask, style, event.execution_timeout_ms)
        placeholders.declare(state, partition, application, reserve, now)
    if leaf.path == RECOVERY_QUEUE:
        message = f"forced into {RECOVERY_QUEUE}: its queue is gone"
        notes.append(
            Noted(
                "application",
                event.application_id,
                Code.FORCED_APPLICATION,
                message,
                partition.name,
            )
        )
    return [
        *notes,
        ApplicationAccepted(event.rm_id, event.application_id, partition.name, leaf.path),
        ApplicationUpdated(
            event.rm_id, event.application_id, ApplicationState.ACCEPTED, now, "", partition.name
        ),
    ]


def _make(partition: Partition, leaf: Queue, event: ApplicationAdded, now: int) -> Application:
    application = Application(
        event.rm_id,
        event.application_id,
        leaf,
        partition.next_number(),
        partition.types.zeros(),
        event.user,
        event.groups,
        dict(event.tags),
        now,
    )
    partition.owner = event.rm_id
    partition.applications[application.application_id] = application
    leaf.applications[application.application_id] = application
    application.limiters = tree.limiters_of(partition, application)
    for limiter in application.limiters:
        limiter.applications += 1
    return application


def retag(state: State, event: ApplicationRetagged) -> list[Decision]:
    """Replace the tags of an application, and apply the quota in the new tags to the application's queue.

    The quota is applied in the same way as when an application enters the queue.

    If the former tags set a value and the new tags do not, the value of the queue's template applies again. The application stays
    in its queue, even if these tags would lead a new application to another queue.
    """
    partition = state.partitions.get(event.partition)
    application = partition.applications.get(event.application_id) if partition else None
    if event.rm_id not in state.managers:
        return [_not_retagged(event, REGISTER_FIRST.format(rm_id=event.rm_id))]
    if partition is None or application is None or application.rm_id != event.rm_id:
        return [_not_retagged(event, f"application {event.application_id!r} is not known")]
    wanted, former = quota_tags.quota(event.tags), quota_tags.quota(application.tags)
    if isinstance(wanted, str):
        return [_not_retagged(event, wanted)]
    assert not isinstance(former, str), f"{application.application_id} has bad tags: {former}"
    application.tags = dict(event.tags)
    leaf = application.leaf
    if not _take_tags(partition, leaf, wanted, former.names() - wanted.names()):
        return []
    return [_note_queue(partition, leaf, Code.QUEUE_RETAGGED, "changed by its namespace's quota")]


def _not_retagged(event: ApplicationRetagged, reason: str) -> ApplicationUpdateRejected:
    return ApplicationUpdateRejected(event.rm_id, event.application_id, reason, event.partition)


def _take_tags(
    partition: Partition, leaf: Queue, wanted: quota_tags.TagQuota, gone: frozenset[str]
) -> bool:
    """Apply the quota in a namespace's annotations to the leaf if the leaf is dynamic (Q17). Return whether the leaf's quota changed.

    ``gone`` are the properties that the former tags set and the new tags do not set.
    """
    if leaf.managed or (wanted == quota_tags.NO_QUOTA and not gone):
        return False
    before = leaf.spec
    tree.untag_queue(leaf, gone)
    amounts = (wanted.guaranteed, wanted.max, wanted.max_applications)
    tree.retag_queue(partition, leaf, *amounts, wanted.names())
    if leaf.spec == before:
        return False
    tree.limit_queue(partition, leaf)
    return True


def _too_many(partition: Partition, leaf: Queue, event: ApplicationAdded) -> str:
    """Return which limit on the number of applications is reached, or "" if no limit is reached.

    `maxapplications` of every queue on the path is checked first, then the limits of user and group. In a sync in which a
    manager's new reports are compared with its earlier reports, applications that were not reported again yet do not count,
    because they may have ended.
    """
    for queue in leaf.path_up():
        most = queue.spec.max_applications
        if (
            most
            and _running(queue) >= most
            and _running(queue) - _gone_from(partition, queue) >= most
        ):
            return (
                f"{Code.APPLICATION_LIMIT}: queue {queue.path} has its {count(most, 'application')}"
            )
    probe = Application("", "", leaf, 0, [], event.user, event.groups, {}, 0)
    for limiter in tree.limiters_of(partition, probe):
        if _full(limiter) and _is_full_without(limiter, partition):
            return (
                f"{Code.APPLICATION_LIMIT}: {limiter.kind} {limiter.name} has "
                f"{count(limiter.max_applications, 'application')} in {limiter.queue.path}, the most allowed there"
            )
    return ""


def _gone(partition: Partition) -> Iterator[Application]:
    """Yield the applications that their manager has not reported again yet."""
    if partition.resumption is not None:
        yield from still_there(partition.resumption.applications, partition.applications)


def _gone_from(partition: Partition, queue: Queue) -> int:
    return sum(queue in one.leaf.path_up() for one in _gone(partition))


def _is_full_without(limiter: Limiter, partition: Partition) -> bool:
    gone = sum(limiter in one.limiters for one in _gone(partition))
    return limiter.applications - gone >= limiter.max_applications


def _full(limiter: Limiter) -> bool:
    return bool(limiter.max_applications) and limiter.applications >= limiter.max_applications


def _running(queue: Queue) -> int:
    return sum(len(leaf.applications) for leaf in queue.leaves())


def _note_queue(partition: Partition, queue: Queue, code: Code, what: str) -> Noted:
    return Noted("queue", queue.path, code, f"queue {queue.path} is {what}", partition.name)


def remove(state: State, event: ApplicationRemoved, now: int) -> list[Decision]:
    """Remove an application at its client's request: drop its asks and release its allocations at once.

    For an unknown application, or for an application of another manager, only return a note.
    """
    partition = state.partitions.get(event.partition)
    application = partition.applications.get(event.application_id) if partition else None
    if partition is None or application is None or application.rm_id != event.rm_id:
        message = f"application {event.application_id!r} is not known; nothing was changed"
        return [
            Noted(
                "application",
                event.application_id,
                Code.RELEASE_UNKNOWN,
                message,
                event.partition,
                event.rm_id,
            )
        ]
    decisions: list[Decision] = []
    application.reserve = None
    for ask in [*application.asks.values(), *application.allocations.values()]:
        if ask.node is not None:
            message = f"application {application.application_id} was removed"
            decisions.append(lifecycle.released(partition, ask, Termination.STOPPED_BY_RM, message))
        lifecycle.end(state, partition, ask, now)
    return decisions + lifecycle.forget(partition, application)
