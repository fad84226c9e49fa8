"""The limits on open calls by kind of call: for one caller, and for all callers together."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from server.rpc import limits
from server.rpc.errors import too_many, too_many_of_yours
from server.rpc.roles import LOCAL_OPERATOR, OPEN, Caller

STREAMS: Final = "streams"
WATCHES: Final = "watches"
SIMULATIONS: Final = "simulations"
REGISTRATIONS: Final = "registrations"
READS: Final = "calls"
REFLECTIONS: Final = "reflections"
CHECKS: Final = "health checks"
HEALTH_WATCHES: Final = "watches of health"

MOST: Final[Mapping[str, int]] = {
    STREAMS: limits.CALLER_STREAMS_MAX,
    WATCHES: limits.CALLER_WATCHES_MAX,
    SIMULATIONS: limits.CALLER_SIMULATIONS_MAX,
    REGISTRATIONS: limits.CALLER_REGISTRATIONS_MAX,
    READS: limits.CALLER_READS_MAX,
    REFLECTIONS: limits.CALLER_REFLECTIONS_MAX,
}
"""The largest number of calls that one caller may have open at once, by kind.

Health checks have no entry: they need no role, so that their callers are not known.
"""

MOST_IN_ALL: Final[Mapping[str, int]] = {
    STREAMS: limits.STREAMS_MAX,
    WATCHES: limits.WATCHERS_MAX,
    SIMULATIONS: limits.SIMULATIONS_MAX,
    REGISTRATIONS: limits.REGISTRATIONS_MAX,
    READS: limits.READS_MAX,
    REFLECTIONS: limits.REFLECTIONS_MAX,
    CHECKS: limits.CHECKS_MAX,
    HEALTH_WATCHES: limits.HEALTH_WATCHES_MAX,
}
"""The largest number of calls that all callers together may have open at once, by kind."""

_COUNTED_THERE: Final = frozenset({STREAMS, WATCHES, HEALTH_WATCHES})
"""The kinds of calls whose total is limited in other modules: `sessions`, `evenhand/watchers` and `probes`."""


class OpenCalls:
    """The counts of open calls by kind: for each caller, and for all callers together."""

    def __init__(self) -> None:
        self._open: Counter[tuple[str, str]] = Counter()
        self._all: Counter[str] = Counter()

    def count(self, kind: str) -> int:
        """Return how many calls of a kind are open."""
        return self._all[kind]

    @contextmanager
    def counted(self, method: str, caller: Caller) -> Iterator[None]:
        """Count a call while it is open. Raise CallError if too many calls of the kind are open.

        On an open port callers cannot be told apart, so that only the limit for all callers together applies there.
        """
        kind = kind_of(method)
        is_known = caller is not LOCAL_OPERATOR and kind in MOST
        place = (caller.name, kind)
        if is_known and self._open[place] >= MOST[kind]:
            raise too_many_of_yours(kind, caller.name, MOST[kind])
        if self._all[kind] >= MOST_IN_ALL[kind] and kind not in _COUNTED_THERE:
            raise too_many(kind, MOST_IN_ALL[kind])
        self._all[kind] += 1
        self._open[place] += is_known
        try:
            yield
        finally:
            self._all[kind] -= 1
            self._open[place] -= is_known
            if not self._open[place]:
                del self._open[place]


def kind_of(method: str) -> str:
    """Return the kind of the calls of a method, such as `/si.v1.Scheduler/UpdateNode`."""
    service, _, name = method.rpartition("/")
    if method in OPEN:
        return HEALTH_WATCHES if name == "Watch" else CHECKS
    if service == "/si.v1.Scheduler":
        return STREAMS if name.startswith("Update") else REGISTRATIONS
    if name.startswith("Watch") or name == "Follow":
        return WATCHES
    if name.startswith("Simulate"):
        return SIMULATIONS
    return REFLECTIONS if service.startswith("/grpc.reflection.") else READS
