"""The fast path of adding asks: new asks with a plain spec that do not change the state of their application (see `_is_quiet`).

`asks.add_ask` is the general path with the same result. The fast path saves time when tens of thousands of asks arrive.
"""

from collections.abc import Sequence
from typing import Final

from server.core.events import asks, overflow
from server.core.state import State
from server.model.asks import AskSpec, has_classes
from server.model.decisions import ApplicationState, Decision
from server.model.events import AskAdded, Event
from server.state import pending
from server.state.applications import Ask
from server.state.equivalence import is_small
from server.state.partition import Partition

GATHERED_MAX: Final = 2_100
"""The number of unqueued asks above which all of them are enqueued before the next tick.

A tick of the server has a budget of this many steps (`rpc.limits.TICK_BUDGET`), and therefore places no larger batch. Unqueued
asks beyond this number would have to be enqueued during the tick, which would make the tick longer.
"""
_RUNNING: Final = ApplicationState.RUNNING
_ACCEPTED: Final = ApplicationState.ACCEPTED
"""Members of an enumeration, looked up once because each access to a member is slow."""


def add(state: State, event: AskAdded, now: int) -> list[Decision]:
    """Add an ask by the fast path if that gives the same result as the general path.

    If the results would differ, add the ask by the general path.
    """
    partition = state.partitions.get(event.partition)
    if partition is None or not _is_quiet(partition, event):
        return asks.add_ask(state, event, now)
    _take(partition, (event,), 0, now)
    pending.enqueue_unqueued(partition)
    return []


def take(state: State, events: Sequence[Event], first: int, now: int) -> int:
    """Add the asks of the events from ``first`` on.

    Stop before an event that is not a new ask, and before an ask that needs the general path. The added asks stay unqueued, in
    no group, because the next tick can place most of them in a batch. If more than GATHERED_MAX asks are unqueued, all of them
    are enqueued. Return the index of the first event that was not taken.
    """
    at = first
    while at < len(events):
        event = events[at]
        if not isinstance(event, AskAdded):
            return at
        partition = state.partitions.get(event.partition)
        # A firm ask that waits reduces the headroom of others at once (J4).
        if (
            partition is None
            or has_classes(partition.classed_by)
            or not _is_quiet(partition, event)
        ):
            return at
        at += _take(partition, events, at, now)
        if len(partition.unqueued) > GATHERED_MAX:
            pending.enqueue_unqueued(partition)
    return at


def _is_quiet(partition: Partition, event: AskAdded) -> bool:
    """Return whether the event is a new ask with a plain spec, from an application whose state the ask does not change.

    `AskSpec.is_plain` says which specs are plain.
    """
    application = partition.applications.get(event.application_id)
    return (
        application is not None
        and application.rm_id == event.rm_id
        and (application.state is _RUNNING or application.state is _ACCEPTED)
        and application.reserve is None
        and bool(event.key)
        and event.key not in partition.asks
        and event.key not in partition.foreign.pods
        and len(partition.asks) < overflow.ASKS_MAX
        and (event.spec in partition.classes.plain or _learned(partition, event.spec))
    )


def _learned(partition: Partition, spec: AskSpec) -> bool:
    """Return whether a spec is new, plain (see `AskSpec.is_plain`) and small.

    If so, record the spec for later asks. Return False for a spec that an earlier ask had.
    """
    new = spec not in partition.classes.by_spec and spec.is_plain
    if not new or partition.classes.crowded or not is_small(spec.resource):
        return False  # a check of totals has to count the asks that came just now
    if overflow.overflow(partition, spec.resource, of_ask=True):
        return False
    partition.learn(spec)
    return True


def _take(partition: Partition, events: Sequence[Event], first: int, now: int) -> int:
    """Apply the events from ``first`` on until one does not qualify for the fast path. The first event must qualify.

    Return the number of events that were applied.
    """
    name, known, foreign = partition.name, partition.asks, partition.foreign.pods
    applications, classes = partition.applications, partition.classes.plain
    cycles, arrival, taken = partition.round.cycles, partition.arrivals, []
    headroom = overflow.ASKS_MAX - len(known)
    for at in range(first, min(len(events), first + headroom)):
        event = events[at]
        if type(event) is not AskAdded:
            break
        rm_id, key, application_id, spec, place, created_ms, tags, generation = event
        application, ask_class = applications.get(application_id), classes.get(spec)
        if (
            application is None
            or application.rm_id != rm_id
            or (application.state is not _RUNNING and application.state is not _ACCEPTED)
            or application.reserve is not None
            or place != name
            or key in known
            or key in foreign
            or not key
        ):
            break
        if ask_class is None:
            if not _learned(partition, spec):
                break
            ask_class = classes[spec]
        arrival += 1
        created = now if created_ms is None or created_ms > now else created_ms
        ask = Ask(rm_id, key, application, spec, ask_class, arrival, created, tags, generation)
        ask.cycle = cycles
        known[key] = application.asks[key] = ask
        ask_class.asks += 1
        taken.append(ask)
    partition.arrivals = arrival
    partition.unqueued += taken
    return len(taken)
