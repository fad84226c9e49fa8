"""Why a core cannot be reached, in the words of every command, from gRPC's chain of causes; and which errors another try meets again."""

from typing import Final

import grpc
from grpc.aio import AioRpcError

NO_NAME: Final = ("DNS", "resolution", "errors resolving", "Domain name not found")
START_ADVICE: Final = (
    "start one with `evenhand serve`, or name the right one with --core HOST:PORT or EVENHAND_CORE"
)


def cause(details: str) -> str:
    """Return the last part of gRPC's chain of causes, which is the one that a person knows."""
    if "Connection refused" in details:
        return "nothing listens there (connection refused)"
    if any(sign in details for sign in NO_NAME):
        return "the host name is not known"
    if "socket closed" in details.lower():
        return "it closed the connection before it answered"
    return details.rpartition("last error: ")[2]


_TOO_LARGE: Final = ("larger than max", "metadata size exceeds")


def is_too_large(error: AioRpcError) -> bool:
    """Did gRPC refuse a message, or drop an error, for its size? A busy core has the same code, but another try may find it idle."""
    details = error.details() or ""
    is_exhausted = error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    return is_exhausted and any(sign in details for sign in _TOO_LARGE)
