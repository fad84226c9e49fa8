"""The errors on the wire: `google.rpc.Status` with details, never a bare text (design 1.12).

Every failure carries an ErrorInfo with a stable reason of the domain `evenhand`. An error about a field carries the field's path.
An error about a missing object carries the object's name.

A status travels in headers. A client that gets more than 8 KiB of headers drops the call and never sees the reason. Quoted texts
are therefore shortened. If there are many violations, the status carries the first violations and the number of further
violations.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final
from urllib.parse import quote

import grpc
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from server.config import Change
from server.model.phrases import date, time_of_day
from server.model.revisions import Base, Revision
from server.rpc.limits import (
    NAME_BYTES_MAX,
    STATUS_MESSAGE_BYTES_MAX,
    VIOLATION_BYTES_MAX,
    VIOLATIONS_BYTES_MAX,
)

DOMAIN: Final = "evenhand"

_CHANGED: Final = "CHANGED_SINCE"
_CHANGE_BYTES_MAX: Final = VIOLATION_BYTES_MAX - NAME_BYTES_MAX
_MERGE: Final = (
    "`evenhand config show > FILE`, make your change there, apply FILE",
    "or overwrite what the other one did: `config apply FILE --force`",
)
_ASK: Final = (
    "ask an operator for what `evenhand config show` prints, make your change there, apply that",
    _MERGE[1],
)

_SAFE: Final = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
"""The characters that gRPC sends unchanged in a message. Every other byte takes three bytes."""


class CallError(Exception):
    """The error that ends a call with a status. Handlers raise this error, and the interceptor sends the status.

    A long message is shortened.
    """

    def __init__(
        self,
        code: grpc.StatusCode,
        reason: str,
        message: str,
        *details: Message,
        facts: Mapping[str, str] | None = None,
    ) -> None:
        """Make an error. ``facts`` are the metadata of its ErrorInfo, for programs."""
        super().__init__(message)
        self.facts = dict(facts or {})
        self.code = code
        self.reason = reason
        self.message = shortened(message, STATUS_MESSAGE_BYTES_MAX)
        self.details = details

    def __reduce__(self) -> tuple[Callable[..., "CallError"], tuple[object, ...]]:
        """Return the values that pickle needs to make the error again, so that it can be sent through a pipe."""
        make = partial(CallError, facts=self.facts)
        return make, (self.code, self.reason, self.message, *self.details)

    def status(self) -> status_pb2.Status:
        """Return the status with all details."""
        status = status_pb2.Status(code=self.code.value[0], message=self.message)
        info = error_details_pb2.ErrorInfo(reason=self.reason, domain=DOMAIN, metadata=self.facts)
        status.details.add().Pack(info)
        for detail in self.details:
            status.details.add().Pack(detail)
        return status


def invalid(reason: str, *violations: tuple[str, str]) -> CallError:
    """Return the error of a request with wrong fields. Each violation has the path of a field, and what is wrong with the field."""
    bad = error_details_pb2.BadRequest()
    texts: list[str] = []
    for field, description in violations:
        path = shortened(field, NAME_BYTES_MAX)
        told = shortened(description, VIOLATION_BYTES_MAX - NAME_BYTES_MAX)
        if texts and bad.ByteSize() + len(path) + len(told.encode()) > VIOLATIONS_BYTES_MAX:
            break
        bad.field_violations.add(field=path, description=told)
        texts.append(f"{path}: {told}" if path else told)
    if left := len(violations) - len(texts):
        rest = f"{left} more problems"
        bad.field_violations.add(description=rest)
        # The number comes first, because the end of a long message is cut off.
        texts.insert(0, f"{len(violations)} problems")
    return CallError(grpc.StatusCode.INVALID_ARGUMENT, reason, "; ".join(texts), bad)


def shortened(text: str, limit: int) -> str:
    """Return a text that takes at most ``limit`` bytes in gRPC's percent-encoding. A text that was cut ends in `...`."""
    kept = text[:limit]
    if len(kept) == len(text) and len(_encoded(kept)) <= limit:
        return kept
    low, high = 0, len(kept)
    while low < high:  # the longest prefix that leaves space for the dots
        middle = (low + high + 1) // 2
        if len(_encoded(kept[:middle])) + 3 <= limit:
            low = middle
        else:
            high = middle - 1
    return kept[:low] + "..."


def _encoded(text: str) -> str:
    return quote(text, safe=_SAFE)


def malformed(message: str) -> CallError:
    """Return the error of a message that cannot be decoded as a message of the call's type, or that exceeds a limit."""
    return invalid("MALFORMED_MESSAGE", ("", message))


def not_found(kind: str, name: str) -> CallError:
    """Return the error that no object of the kind has the name."""
    short = shortened(name, NAME_BYTES_MAX)
    resource = error_details_pb2.ResourceInfo(resource_type=kind, resource_name=short)
    message = f"there is no {kind} {short!r}"
    return CallError(grpc.StatusCode.NOT_FOUND, "NOT_FOUND", message, resource)


def stale_configuration(
    revision: Revision, base: Base, changes: Sequence[Change] | None, *, is_operator: bool = True
) -> CallError:
    """Return the error of a configuration made from a revision no longer in force.

    ``changes`` are the differences since that revision, or None if the differences are not known. Only an operator gets the
    source of the configuration in force, which may name a manager or a file of another caller.
    """
    now = shortened(str(revision), 2 * NAME_BYTES_MAX)
    when = f" since {date(revision.at_ms)} {time_of_day(revision.at_ms)}" if revision.at_ms else ""
    if not is_operator:
        now, when = shortened(revision.without_source(), 2 * NAME_BYTES_MAX), ""
    message = (
        f"nothing was changed: your configuration was made from {base}, and {now} is in force{when}"
    )
    failure = error_details_pb2.PreconditionFailure()
    left = 0
    for one in changes or ():
        subject = shortened(one.subject, NAME_BYTES_MAX)
        told = shortened(str(one).removeprefix(one.subject).lstrip(": "), _CHANGE_BYTES_MAX)
        if left or failure.ByteSize() + len(subject) + len(told.encode()) > VIOLATIONS_BYTES_MAX:
            left += 1
        else:
            failure.violations.add(type=_CHANGED, subject=subject, description=told)
    if left:
        failure.violations.add(type=_CHANGED, description=f"{left} more changes")
    if changes is None:
        unknown = "what changed since is not known: that revision is not kept here any more"
        failure.violations.add(type=_CHANGED, subject=str(base), description=unknown)
    links = [
        error_details_pb2.Help.Link(description=one) for one in (_MERGE if is_operator else _ASK)
    ]
    details = (failure, error_details_pb2.Help(links=links))
    return CallError(grpc.StatusCode.ABORTED, "STALE_CONFIGURATION", message, *details)


def replaced(kind: str) -> CallError:
    """Return the error that another stream has replaced this one. The client must not register again (design 1.10)."""
    message = f"another {kind} stream of this resource manager has taken over"
    return CallError(grpc.StatusCode.ABORTED, "STREAM_REPLACED", message)


def registered_again() -> CallError:
    """Return the error that the resource manager has registered again, which ends the streams of its earlier registration."""
    message = "this resource manager has registered again"
    return CallError(grpc.StatusCode.ABORTED, "REGISTERED_AGAIN", message)


def another_instance(rm_id: str, last: str) -> CallError:
    """Return the error of a replaced process that registers while its successor is connected. The process may retry later."""
    message = f"{last or 'another process'} speaks for resource manager {rm_id!r} and took over from this one"
    return CallError(grpc.StatusCode.ABORTED, "ANOTHER_INSTANCE", message)


def epoch_old(message: str, epoch: int, *, connected: bool) -> CallError:
    """Return the error of a process after which another process was elected as the shim (design 7.2).

    ``epoch`` is the latest epoch that the core has recorded. ``connected`` says whether the process of this epoch is connected.
    """
    facts = {"epoch": str(epoch), "connected": "true" if connected else "false"}
    return CallError(grpc.StatusCode.FAILED_PRECONDITION, "EPOCH_OLD", message, facts=facts)


def too_slow(waiting: int) -> CallError:
    """Return the error of a client that does not read its stream. The client has to register again and send everything again."""
    message = (
        f"{waiting} objects waited for this stream and were not read: register again and resync"
    )
    return CallError(grpc.StatusCode.RESOURCE_EXHAUSTED, "OUTBOX_FULL", message)


def too_many(what: str, limit: int) -> CallError:
    """Return the error that a limit of the server is reached."""
    message = f"there are {limit} {what} already, more are not allowed"
    return CallError(grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_REACHED", message)


def reading_took_long(seconds: float) -> CallError:
    """Return the error that a configuration took too long to read. The process that read the configuration was ended."""
    message = (
        f"the configuration was not read within {seconds:g} s: make it smaller, nothing was changed"
    )
    return CallError(grpc.StatusCode.INVALID_ARGUMENT, "CONFIGURATION_TAKES_TOO_LONG", message)


def reading_ended() -> CallError:
    """Return the error of a configuration during whose reading two processes in a row ended.

    The text of the configuration counts as the cause.
    """
    message = (
        "two processes ended while they read this configuration, it probably needs more memory than they may have: make it "
        "smaller; nothing was changed"
    )
    return CallError(grpc.StatusCode.INVALID_ARGUMENT, "CONFIGURATION_ENDS_READER", message)


def reading_failed() -> CallError:
    """Return the error that no process to read configurations could be started. The next reading tries again."""
    message = (
        "the process that reads configurations could not be started, nothing was changed: try again"
    )
    return CallError(grpc.StatusCode.UNAVAILABLE, "READING_FAILED", message)


def draining(follower: str = "", process: str = "") -> CallError:
    """Return the error that the server stops. If the client tries again, it reaches the next server.

    If a follower has the whole input, the ``facts`` of the error (see `CallError`) have the names of the follower and of its
    process.
    """
    facts = {"follower": follower, "process": process} if process else None
    message = "the server is stopping"
    return CallError(grpc.StatusCode.UNAVAILABLE, "DRAINING", message, facts=facts)


def handed_over(follower: str, process: str) -> CallError:
    """Return the error that ends the streams of a core that handed over to a follower (design 7.7)."""
    message = f"this core has handed over to {follower}: register there"
    facts = {"follower": follower, "process": process}
    return CallError(grpc.StatusCode.UNAVAILABLE, "HANDED_OVER", message, facts=facts)


def denied(role: str, deed: str) -> CallError:
    """Return the error that the caller's role does not permit the call. ``deed`` says what the call would do."""
    message = f"your role ({role}) may not {deed}; ask an operator"
    return CallError(grpc.StatusCode.PERMISSION_DENIED, "ROLE_DENIED", message)


def not_owner(owner: str, why: str) -> CallError:
    """Return the error that another group of cores decides for the partition that a request names (design 7.6)."""
    message = f"{why}: ask that one, or give --cores FILE"
    code = grpc.StatusCode.FAILED_PRECONDITION
    return CallError(code, "NOT_OWNER", message, facts={"owner": owner})


def not_yours(message: str) -> CallError:
    """Return the error that a caller names an object of another caller, such as a manager of that caller."""
    return CallError(grpc.StatusCode.PERMISSION_DENIED, "NOT_YOURS", message)


def silent(seconds: int) -> CallError:
    """Return the error of a stream that never named its resource manager. The stream is ended so that another stream can open."""
    message = (
        f"this stream sent nothing for {seconds} s and another one needed its place: name your resource manager at once, "
        "in a first message that may be empty otherwise"
    )
    return CallError(grpc.StatusCode.DEADLINE_EXCEEDED, "NO_FIRST_MESSAGE", message)


def late(seconds: float) -> CallError:
    """Return the error of a call that did not send its request in time."""
    message = f"the request did not come within {seconds:g} s; send it with the call"
    return CallError(grpc.StatusCode.DEADLINE_EXCEEDED, "NO_REQUEST", message)


def too_many_of_yours(what: str, caller: str, limit: int) -> CallError:
    """Return the error that the caller has as many calls of a kind open as one caller may have."""
    message = f"you ({caller}) have {limit} {what} open already, more are not allowed: end one, or try again later"
    return CallError(grpc.StatusCode.RESOURCE_EXHAUSTED, "CALLER_LIMIT_REACHED", message)


def unauthenticated(message: str) -> CallError:
    """Return the error that the caller is unknown."""
    return CallError(grpc.StatusCode.UNAUTHENTICATED, "UNKNOWN_CALLER", message)


def unexpected() -> CallError:
    """Return the error for a defect of the server. The server's log has the details."""
    return CallError(
        grpc.StatusCode.INTERNAL, "UNEXPECTED", "unexpected error, see the server's log"
    )
