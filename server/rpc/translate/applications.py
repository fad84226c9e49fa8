"""The translation of applications and registrations from the wire to events."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from server.model.decisions import ApplicationRejected, ApplicationUpdateRejected, Decision
from server.model.events import (
    ApplicationAdded,
    ApplicationRemoved,
    ApplicationRetagged,
    Event,
    ManagerRegistered,
)
from server.model.parts import Parts
from server.model.parts import whole as whole_of
from server.model.quota import Configuration
from server.rpc.instances import instance_of
from server.rpc.limits import EPOCH_MAX, NAME_CHARACTERS_MAX, STEP_OBJECTS
from server.rpc.translate.allocations import Batch
from server.rpc.translate.fields import (
    RefusedError,
    bounded,
    listed,
    milliseconds,
    name,
    partition,
    quantities,
    whole,
)
from si.v1 import si_pb2

_M = TypeVar(
    "_M", si_pb2.AddApplicationRequest, si_pb2.ApplicationUpdate, si_pb2.RemoveApplicationRequest
)


def application_batch(message: si_pb2.ApplicationRequest) -> Batch:
    """Return events and refusals of an ApplicationRequest: first new applications, then changed applications, then applications that end."""
    return whole_of(application_batching(message))


def application_batching(message: si_pb2.ApplicationRequest) -> Parts[Batch]:
    """Return events and refusals of an ApplicationRequest, made in steps."""
    batch = Batch(message.rmID)
    yield from _take(batch, message.new, _added, ApplicationRejected)
    yield from _take(batch, message.updates, _retagged, ApplicationUpdateRejected)
    yield from _take(batch, message.remove, _removed, ApplicationRejected)
    return batch


def _take(
    batch: Batch,
    messages: Iterable[_M],
    read: Callable[[str, _M], Event],
    refusal: Callable[[str, str, str], Decision],
) -> Parts[None]:
    """Add the events of messages of one kind to the batch, and the refusals of messages that cannot be read."""
    for at, message in enumerate(messages, 1):
        if at % STEP_OBJECTS == 0:
            yield
        try:
            batch.events.append(read(batch.rm_id, message))
        except RefusedError as refused:
            shown = message.applicationID[:NAME_CHARACTERS_MAX]
            batch.refusals.append(refusal(batch.rm_id, shown, str(refused)))


def _added(rm_id: str, message: si_pb2.AddApplicationRequest) -> ApplicationAdded:
    listed("tags", message.tags)
    listed("ugi.groups", message.ugi.groups)
    return ApplicationAdded(
        rm_id,
        name("applicationID", message.applicationID),
        bounded("queueName", message.queueName),
        partition(message.partitionName),
        bounded("ugi.user", message.ugi.user),
        tuple(bounded("ugi.groups", group) for group in message.ugi.groups),
        dict(message.tags),
        milliseconds("executionTimeoutMilliSeconds", message.executionTimeoutMilliSeconds),
        bounded("gangSchedulingStyle", message.gangSchedulingStyle),
        quantities("placeholderAsk", message.placeholderAsk),
    )


def _retagged(rm_id: str, message: si_pb2.ApplicationUpdate) -> ApplicationRetagged:
    listed("tags", message.tags)
    return ApplicationRetagged(
        rm_id,
        name("applicationID", message.applicationID),
        dict(message.tags),
        partition(message.partitionName),
    )


def _removed(rm_id: str, message: si_pb2.RemoveApplicationRequest) -> ApplicationRemoved:
    application_id = name("applicationID", message.applicationID)
    return ApplicationRemoved(rm_id, application_id, partition(message.partitionName))


def registration(
    message: si_pb2.RegisterResourceManagerRequest, configuration: Configuration | None, by: str
) -> ManagerRegistered:
    """Return the registration as an event, with the name of its caller.

    Raise RefusedError for a field that is refused.
    """
    return ManagerRegistered(
        name("rmID", message.rmID),
        bounded("version", message.version),
        bounded("policyGroup", message.policyGroup),
        message.explicitSync,
        configuration,
        by,
        whole("epoch", message.epoch, EPOCH_MAX),
        instance_of(message.buildInfo),
        forget=message.forget,
        session=bounded("sessionID", message.sessionID),
        one_by_one=True,
    )
