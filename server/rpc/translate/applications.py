"""The translation of applications and registrations from the wire to events."""

from server.model.decisions import ApplicationRejected, ApplicationUpdateRejected
from server.model.events import (
    ApplicationAdded,
    ApplicationRemoved,
    ApplicationRetagged,
    ManagerRegistered,
)
from server.model.quota import Configuration
from server.rpc.limits import NAME_CHARACTERS_MAX, STEP_OBJECTS
from server.rpc.steps import Steps, at_once
from server.rpc.translate.allocations import Batch
from server.rpc.translate.fields import (
    RefusedError,
    bounded,
    listed,
    milliseconds,
    name,
    partition,
    quantities,
)
from si.v1 import si_pb2


def application_batch(message: si_pb2.ApplicationRequest) -> Batch:
    """Return events and refusals of an ApplicationRequest: first new applications, then changed ones, then those that end."""
    return at_once(application_batching(message))


def application_batching(message: si_pb2.ApplicationRequest) -> Steps[Batch]:
    """Return events and refusals of an ApplicationRequest, made in steps."""
    batch = Batch(message.rmID)
    for at, added in enumerate(message.new, 1):
        if at % STEP_OBJECTS == 0:
            yield
        try:
            batch.events.append(_added(batch.rm_id, added))
        except RefusedError as refused:
            _refuse(batch, added.applicationID, str(refused))
    for at, changed in enumerate(message.updates, 1):
        if at % STEP_OBJECTS == 0:
            yield
        try:
            batch.events.append(_retagged(batch.rm_id, changed))
        except RefusedError as refused:
            shown = changed.applicationID[:NAME_CHARACTERS_MAX]
            batch.refusals.append(ApplicationUpdateRejected(batch.rm_id, shown, str(refused)))
    for removed in message.remove:
        try:
            application_id = name("applicationID", removed.applicationID)
            where = partition(removed.partitionName)
            batch.events.append(ApplicationRemoved(batch.rm_id, application_id, where))
        except RefusedError as refused:
            _refuse(batch, removed.applicationID, str(refused))
    return batch


def _refuse(batch: Batch, application_id: str, reason: str) -> None:
    shown = application_id[:NAME_CHARACTERS_MAX]
    batch.refusals.append(ApplicationRejected(batch.rm_id, shown, reason))


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


def registration(
    message: si_pb2.RegisterResourceManagerRequest, configuration: Configuration | None, by: str
) -> ManagerRegistered:
    """Return the registration as an event, with the name of its caller; raises RefusedError."""
    return ManagerRegistered(
        name("rmID", message.rmID),
        bounded("version", message.version),
        bounded("policyGroup", message.policyGroup),
        message.explicitSync,
        configuration,
        by,
    )
