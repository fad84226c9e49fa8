"""The usual ask: new, of a known template, with nothing about it that anybody but its queue has to hear of.

`asks.add_ask` is the whole rule, and does the same; this is the short way for what comes by the ten thousand.
"""

from typing import Final

from server.books import backlog
from server.books.applications import Ask
from server.core import asks, lifecycle, totals
from server.core.state import State
from server.model.decisions import ApplicationState, Decision
from server.model.events import AskAdded

_FAILING: Final = ApplicationState.FAILING
_COMPLETING: Final = ApplicationState.COMPLETING
"""Looked up once: to reach a member of an enumeration is slow."""


def add(state: State, event: AskAdded, now: int) -> list[Decision]:
    """A new ask the short way, where that does the same as the long one."""
    rm_id, key, application_id, spec, name, created_ms, tags, generation = event
    partition = state.partitions.get(name)
    ask_class = partition.plain.get(spec) if partition is not None else None
    if partition is None or ask_class is None or not key:
        return asks.add_ask(state, event, now)
    application = partition.applications.get(application_id)
    if (
        application is None
        or application.rm_id != rm_id
        or application.state is _FAILING
        or key in partition.asks
        or key in partition.foreign
        or len(partition.asks) >= totals.ASKS_MAX
    ):
        return asks.add_ask(state, event, now)
    partition.arrivals += 1
    created = now if created_ms is None or created_ms > now else created_ms
    arrival = partition.arrivals
    ask = Ask(rm_id, key, application, spec, ask_class, arrival, created, tags, generation)
    ask.cycle = partition.round.cycles
    partition.asks[key] = ask
    ask_class.asks += 1
    backlog.enqueue(partition, ask)
    if application.state is _COMPLETING:
        return lifecycle.asks_added(partition, application, now)
    return []
