"""The fast path for ended allocations: pods that end without an order of the core, often many at once.

`asks.release` is the general path with the same result. An end is *plain* if it changes only usage (see `_is_quiet`). This path
handles a sequence of plain ends, and then subtracts the usage of all ended allocations at once.
"""

from collections.abc import Sequence
from typing import Final

from server.core.events import lifecycle
from server.core.state import State
from server.model.decisions import Decision, Termination
from server.model.events import Event, MessagesTaken, ReleaseRequested
from server.state import journal_fast
from server.state.applications import Ask
from server.state.nodes import Node
from server.state.partition import Partition

_FAILED_ON_RM: Final = Termination.SCHEDULING_FAILED_ON_RM
_STOPPED_BY_RM: Final = Termination.STOPPED_BY_RM
"""Members of an enumeration, looked up once because each access to a member is slow."""


def take(state: State, events: Sequence[Event], first: int, decisions: list[Decision]) -> int:
    """Handle the events from ``first`` on until one is not a plain end, and append the reply to each handled event.

    Plain ends do not affect unqueued asks. Return the index of the first event that was not handled.
    """
    at = first
    while at < len(events):
        event = events[at]
        partition = (
            state.partitions.get(event.partition) if type(event) is ReleaseRequested else None
        )
        if partition is None:
            return at
        taken = _take(partition, events, at, decisions)
        if not taken:
            return at
        at += taken
    return at


def _take(
    partition: Partition, events: Sequence[Event], first: int, decisions: list[Decision]
) -> int:
    """Handle the events from ``first`` on until one is not a plain end in this partition.

    Return the number of events that were handled.
    """
    known, plain, foreign = partition.asks, partition.classes.plain, partition.foreign.pods
    name, owner, avoided = partition.name, partition.owner, partition.avoided
    asks: list[Ask] = []
    nodes: list[Node] = []
    for at in range(first, len(events)):
        event = events[at]
        if type(event) is not ReleaseRequested:
            break
        rm_id, application_id, key, place, termination, message, _, asks_only = event
        ask = known.get(key)
        if ask is None or rm_id != owner or place != name or termination is _FAILED_ON_RM:
            break
        node, application = ask.node, ask.application
        if (
            node is None
            or asks_only
            or key in foreign
            or not _is_quiet(ask)
            or ask.spec not in plain
            or (application_id and application_id != application.application_id)
        ):
            break
        del known[key], application.allocations[key], node.allocations[key]
        avoided.pop(key, None)
        ask.node = None
        ask.ask_class.asks -= 1
        asks.append(ask)
        nodes.append(node)
        decisions.append(lifecycle.released(partition, ask, _STOPPED_BY_RM, message))
    if asks:
        journal_fast.take_off(partition, asks, nodes)
    return len(asks)


def _is_quiet(ask: Ask) -> bool:
    """Return whether the end of the allocation changes only usage.

    This is so if no decision waits for the end of the allocation, the allocation is not firm, and its application and its class
    have other asks.
    """
    application = ask.application
    return (
        not ask.releasing
        and ask.going is None
        and ask.released_by is None
        and not ask.ask_class.firm
        and ask.ask_class.asks > 1
        and len(application.allocations) + len(application.asks) > 1
    )


def leaves_alone(state: State, event: Event) -> bool:
    """Return whether the event does not affect unqueued asks. Such an event ends a plain allocation, or only updates the counts of messages."""
    if type(event) is MessagesTaken:
        return True
    if type(event) is not ReleaseRequested or event.termination is _FAILED_ON_RM:
        return False
    partition = state.partitions.get(event.partition)
    ask = None if partition is None else partition.asks.get(event.key)
    return ask is not None and ask.node is not None and ask.spec.is_plain
