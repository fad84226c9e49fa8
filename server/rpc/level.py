"""The standing of a core among several: whether it leads, and whether the state of a follower is that of its leader.

The health service answers with it (`leader` and `readiness`), and so do the metrics.
"""

from collections.abc import Callable, Mapping
from typing import Final

from server.rpc.following import SILENT_S, Replica, State

LEADER: Final = "leader"
"""The service of the health service that serves while this core leads."""
READINESS: Final = "readiness"
"""The service of the health service that serves while the answers of this core show the present state."""


def is_current(replica: Replica, now: int) -> bool:
    """Return whether reads of this core show the present state.

    They do if the core leads, and if it follows a leader of which it heard in the last `SILENT_S` seconds. ``now`` is in Unix
    milliseconds.
    """
    if replica.state is State.LEADER:
        return True
    return replica.state is State.FOLLOWER and now - replica.heard_ms <= SILENT_S * 1000


def services(replica: Replica, now: Callable[[], int]) -> Mapping[str, Callable[[], bool]]:
    """Return the functions for `Health.compute`, by name of the service."""
    return {
        LEADER: lambda: replica.state is State.LEADER,
        READINESS: lambda: is_current(replica, now()),
    }
