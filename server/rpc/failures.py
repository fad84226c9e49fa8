"""Errors on the wire: `google.rpc.Status` with details, never a bare text (design 1.12).

Every failure carries an ErrorInfo with a stable reason of the domain `evenhand`; those about a field carry the
field's path, those about a thing that is not there its name.
"""

from typing import Final, NoReturn

import grpc
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]
from grpc_status import rpc_status

from server.rpc.calls import Context

DOMAIN: Final = "evenhand"


class CallError(Exception):
    """Ends a call with a status; raised by handlers, sent by the guard."""

    def __init__(self, code: grpc.StatusCode, reason: str, message: str, *details: Message) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details

    def status(self) -> status_pb2.Status:
        """The status with all details."""
        status = status_pb2.Status(code=self.code.value[0], message=self.message)
        status.details.add().Pack(error_details_pb2.ErrorInfo(reason=self.reason, domain=DOMAIN))
        for detail in self.details:
            status.details.add().Pack(detail)
        return status


def invalid(reason: str, *violations: tuple[str, str]) -> CallError:
    """The request is wrong in these fields (path, what is wrong)."""
    bad = error_details_pb2.BadRequest()
    for field, description in violations:
        bad.field_violations.add(field=field, description=description)
    message = "; ".join(
        f"{field}: {description}" if field else description for field, description in violations
    )
    return CallError(grpc.StatusCode.INVALID_ARGUMENT, reason, message, bad)


def malformed(message: str) -> CallError:
    """The bytes are no message of the call's type, or the message passes a limit."""
    return invalid("MALFORMED_MESSAGE", ("", message))


def not_found(kind: str, name: str) -> CallError:
    """There is no such thing."""
    resource = error_details_pb2.ResourceInfo(resource_type=kind, resource_name=name)
    return CallError(
        grpc.StatusCode.NOT_FOUND, "NOT_FOUND", f"there is no {kind} {name!r}", resource
    )


def replaced(kind: str) -> CallError:
    """Another stream has taken over; the client of this one must not register again (design 1.10)."""
    message = f"another {kind} stream of this resource manager has taken over"
    return CallError(grpc.StatusCode.ABORTED, "STREAM_REPLACED", message)


def registered_again() -> CallError:
    """The resource manager has registered anew; what this stream stood for is gone."""
    message = "this resource manager has registered again"
    return CallError(grpc.StatusCode.ABORTED, "REGISTERED_AGAIN", message)


def another_instance(rm_id: str, last: str) -> CallError:
    """A process that was taken over registers again while its successor speaks; it may try later."""
    message = f"{last or 'another process'} speaks for resource manager {rm_id!r} and took over from this one"
    return CallError(grpc.StatusCode.ABORTED, "ANOTHER_INSTANCE", message)


def too_slow(waiting: int) -> CallError:
    """The client does not read; it has to register again and send everything anew."""
    message = (
        f"{waiting} objects waited for this stream and nobody read them: register again and resync"
    )
    return CallError(grpc.StatusCode.RESOURCE_EXHAUSTED, "OUTBOX_FULL", message)


def too_many(what: str, limit: int) -> CallError:
    """A limit of the server is reached."""
    message = f"there are {limit} {what} already, more are not allowed"
    return CallError(grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_REACHED", message)


def draining() -> CallError:
    """The server stops; another try finds the next one."""
    return CallError(grpc.StatusCode.UNAVAILABLE, "DRAINING", "the server is stopping")


def denied(role: str, deed: str) -> CallError:
    """The caller is known, but may not."""
    message = f"your role ({role}) may not {deed}; ask an operator"
    return CallError(grpc.StatusCode.PERMISSION_DENIED, "ROLE_DENIED", message)


def unauthenticated(message: str) -> CallError:
    """Nobody knows the caller."""
    return CallError(grpc.StatusCode.UNAUTHENTICATED, "UNKNOWN_CALLER", message)


def unexpected() -> CallError:
    """A defect of the server; the log has the details."""
    return CallError(
        grpc.StatusCode.INTERNAL, "UNEXPECTED", "unexpected error, see the server's log"
    )


async def end(context: Context, error: CallError) -> NoReturn:
    """Ends the call with the error; never returns."""
    status = rpc_status.to_status(error.status())
    await context.abort(error.code, error.message, status.trailing_metadata)
    raise AssertionError("abort returned")
