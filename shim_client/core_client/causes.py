"""Texts of all commands that say why a core cannot be reached, and the check for errors that a retry cannot cure."""

from typing import Final

import grpc
from grpc.aio import AioRpcError

NO_NAME: Final = ("DNS", "resolution", "errors resolving", "Domain name not found")
START_ADVICE: Final = (
    "start one with `evenhand serve`, or name the right one with --core HOST:PORT or EVENHAND_CORE"
)


def cause(details: str) -> str:
    """Return the cause of a failed call as a text for users.

    If the cause is unknown, return the last part of gRPC's own message.
    """
    if "Connection refused" in details:
        return "nothing listens there (connection refused)"
    if any(sign in details for sign in NO_NAME):
        return "the host name is not known"
    if "socket closed" in details.lower():
        return "it closed the connection before it answered"
    return details.rpartition("last error: ")[2]


def status_text(error: AioRpcError) -> str:
    """Return the name of the status code of a failed call, with the details if there are any."""
    return f"{error.code().name} {error.details() or ''}".rstrip()


_TOO_LARGE: Final = ("larger than max", "metadata size exceeds")


def is_too_large(error: AioRpcError) -> bool:
    """Return whether gRPC refused a message that was too large, or dropped the details of an error because of their size.

    For a message that is too large, the status code is RESOURCE_EXHAUSTED. A busy core answers with RESOURCE_EXHAUSTED,
    too, but may accept another attempt.
    """
    details = error.details() or ""
    is_exhausted = error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    return is_exhausted and any(sign in details for sign in _TOO_LARGE)
