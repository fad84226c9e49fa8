"""Why a core cannot be reached, in the words of every command, from gRPC's chain of causes."""

from typing import Final

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
