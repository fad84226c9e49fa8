"""Limits of the calls that one caller may have open at once, by kind of call."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from server.rpc import limits
from server.rpc.failures import too_many_of_yours
from server.rpc.roles import LOCAL_OPERATOR, Caller

STREAMS: Final = "streams"
WATCHES: Final = "watches"
SIMULATIONS: Final = "simulations"
READS: Final = "calls"

MOST: Final[Mapping[str, int]] = {
    STREAMS: limits.CALLER_STREAMS_MAX,
    WATCHES: limits.CALLER_WATCHES_MAX,
    SIMULATIONS: limits.CALLER_SIMULATIONS_MAX,
    READS: limits.CALLER_READS_MAX,
}
"""Calls that one caller may have open at once, by kind."""


class OpenCalls:
    """The open calls of each caller, counted by kind."""

    def __init__(self) -> None:
        self._open: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def counted(self, method: str, caller: Caller) -> Iterator[None]:
        """Count a call while it is open; raise CallError when its caller has too many. On an open port none are counted."""
        if caller is LOCAL_OPERATOR:
            yield
            return
        kind = kind_of(method)
        place = (caller.name, kind)
        if self._open[place] >= MOST[kind]:
            raise too_many_of_yours(kind, caller.name, MOST[kind])
        self._open[place] += 1
        try:
            yield
        finally:
            self._open[place] -= 1
            if not self._open[place]:
                del self._open[place]


def kind_of(method: str) -> str:
    """Return the kind of a call by its method, such as `/si.v1.Scheduler/UpdateNode`."""
    service, _, name = method.rpartition("/")
    if service == "/si.v1.Scheduler" and name.startswith("Update"):
        return STREAMS
    if name.startswith("Watch"):
        return WATCHES
    return SIMULATIONS if name.startswith("Simulate") else READS
