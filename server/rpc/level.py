"""The role of a core among several cores: whether it leads, and whether the state of a follower is that of its leader.

The health service (`leader` and `readiness`) and the metrics report both facts.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from server.model.assignment import Assignment
from server.replication.feed import Feed
from server.rpc.following import SILENT_S, Replica, State

LEADER: Final = "leader"
"""The name in the health service whose status is SERVING while this core leads."""
READINESS: Final = "readiness"
"""The name in the health service whose status is SERVING while the answers of this core show the present state."""


PROCESS: Final = "process."
"""The beginning of the name in the health service by which clients recognize this process. The name of the process follows."""


def is_current(replica: Replica, now: int) -> bool:
    """Return whether reads of this core show the present state.

    Reads of a leader always show the present state. Reads of a follower do so if the follower had all input of its leader at some
    time in the last `SILENT_S` seconds. ``now`` is in Unix milliseconds.
    """
    if replica.state is State.LEADER:
        return True
    return replica.state is State.FOLLOWER and now - replica.level_ms <= SILENT_S * 1000


def services(replica: Replica, now: Callable[[], int]) -> Mapping[str, Callable[[], bool]]:
    """Return the functions for `Health.compute`, by name of the service."""
    own = {f"{PROCESS}{replica.process}": lambda: True} if replica.process else {}
    return {
        LEADER: lambda: replica.state is State.LEADER,
        READINESS: lambda: is_current(replica, now()),
        **own,
    }


Gauge = tuple[str, float, Mapping[str, str]]
"""The name of a metric, its value, and its labels."""


def gauges(replica: Replica, feed: Feed, now: Callable[[], int]) -> Callable[[], Iterator[Gauge]]:
    """Return the function that yields the metrics of a core among several."""

    def found() -> Iterator[Gauge]:
        for state in State:
            yield "replica_state", int(replica.state is state), {"state": state.value}
        yield "replica_position", feed.position, {}
        yield "replica_joins", replica.joined, {}
        yield "replica_differences", replica.differences, {}
        if replica.state is State.FOLLOWER:
            yield from _lag(replica, feed, now())
        for group, is_own in _groups(feed.assignment).items():
            yield "core_group", int(is_own), {"group": group}
        yield "followers", len(feed.followers), {}
        yield "followers_cut_off", feed.cut_off, {}
        yield from _followers(feed)

    return found


def _groups(table: Assignment | None) -> Mapping[str, bool]:
    """Return the groups of cores that have partitions, and the group of this core.

    The value of a group in the result says whether this core belongs to the group.

    Each core also names the other groups, so that a monitor notices a group whose cores are all away. Without a table, there is
    one group with the name "".
    """
    if table is None:
        return {"": True}
    names = sorted({table.rest, table.group, *table.owners.values()})
    return {name: name == table.group for name in names}


def _lag(replica: Replica, feed: Feed, now: int) -> Iterator[Gauge]:
    """Yield how far a follower is behind its leader."""
    yield "replica_leader_position", replica.leader_position, {}
    yield "replica_lag_inputs", replica.behind(feed.position), {}
    yield "replica_lag_seconds", max(0, now - replica.level_ms) / 1000, {}


def _followers(feed: Feed) -> Iterator[Gauge]:
    """Yield how much input each follower has not received yet. For followers with the same name, yield the largest amount."""
    inputs: dict[str, int] = {}
    waiting: dict[str, int] = {}
    for one in feed.followers:
        inputs[one.name] = max(inputs.get(one.name, 0), feed.position - one.position)
        waiting[one.name] = max(waiting.get(one.name, 0), one.backlog_bytes)
    for name, behind in inputs.items():
        yield "follower_lag_inputs", behind, {"follower": name}
        yield "follower_backlog_bytes", waiting[name], {"follower": name}
