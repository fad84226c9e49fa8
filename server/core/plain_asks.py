"""The usual ask: new, of a known template, with nothing about it that anybody but its queue has to hear of.

`asks.add_ask` is the whole rule, and does the same; this is the short way for what comes by the ten thousand.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from server.books import backlog
from server.books.applications import Application, Ask
from server.books.classes import AskClass
from server.books.partition import Partition
from server.core import asks, lifecycle, totals
from server.core.state import State
from server.model.asks import AskSpec
from server.model.decisions import ApplicationState, Decision, Termination
from server.model.events import AskAdded, Event, ReleaseRequested

_FAILING: Final = ApplicationState.FAILING
_COMPLETING: Final = ApplicationState.COMPLETING
_RUNNING: Final = ApplicationState.RUNNING
_ACCEPTED: Final = ApplicationState.ACCEPTED
_FAILED_ON_RM: Final = Termination.SCHEDULING_FAILED_ON_RM
"""Looked up once: to reach a member of an enumeration is slow."""


def add(state: State, event: AskAdded, now: int) -> list[Decision]:
    """A new ask the short way, where that does the same as the long one."""
    partition = state.partitions.get(event.partition)
    found = None if partition is None else _place_of(partition, event)
    if partition is None or found is None:
        return asks.add_ask(state, event, now)
    application, ask_class = found
    backlog.enqueue(partition, _make(partition, application, ask_class, event, now))
    if application.state is _COMPLETING:
        return lifecycle.asks_added(partition, application, now)
    return []


def take(state: State, events: Sequence[Event], first: int, now: int) -> int:
    """From the first event on, as long as they are plain asks that nobody has to hear of before the next tick.

    They wait in no group until then, for most are placed by it. Gives the number of the event behind the last one taken.
    """
    at = first
    while at < len(events):
        event = events[at]
        if not isinstance(event, AskAdded):
            return at
        partition = state.partitions.get(event.partition)
        if partition is None or not _is_quiet(partition, event):
            return at
        room = totals.ASKS_MAX - len(partition.asks)
        at += _take(partition, islice(events, at, at + room), now)
    return at


def _is_quiet(partition: Partition, event: AskAdded) -> bool:
    """Is it a plain ask of an application that goes on as it is, of a template that is known from now on?"""
    found = _place_of(partition, event)
    if found is None:
        return False
    application, ask_class = found
    unchanged = application.state is _RUNNING or application.state is _ACCEPTED
    return unchanged and application.reserve is None and ask_class.job_class is None


def _take(partition: Partition, events: Iterable[Event], now: int) -> int:
    """Takes the first of these events, and more as long as they are quiet, too; gives how many."""
    name, known, foreign = partition.name, partition.asks, partition.foreign
    applications, classes = partition.applications, partition.plain
    cycles, first = partition.round.cycles, len(partition.fresh)
    for event in events:
        if type(event) is not AskAdded or event.partition != name:
            break
        rm_id, key, application_id, spec, _, created_ms, tags, generation = event
        application, ask_class = applications.get(application_id), classes.get(spec)
        if (
            application is None
            or ask_class is None
            or application.rm_id != rm_id
            or (application.state is not _RUNNING and application.state is not _ACCEPTED)
            or application.reserve is not None
            or ask_class.job_class is not None
            or key in known
            or key in foreign
            or not key
        ):
            break
        partition.arrivals = arrival = partition.arrivals + 1
        created = now if created_ms is None or created_ms > now else created_ms
        ask = Ask(rm_id, key, application, spec, ask_class, arrival, created, tags, generation)
        ask.cycle = cycles
        known[key] = application.asks[key] = ask
        ask_class.asks += 1
        partition.fresh.append(ask)
    return len(partition.fresh) - first


def _place_of(partition: Partition, event: AskAdded) -> tuple[Application, AskClass] | None:
    """Where a plain ask belongs; None when it is not plain, known already or refused."""
    rm_id, key, application_id, spec, *_ = event
    application = partition.applications.get(application_id)
    if (
        application is None
        or application.rm_id != rm_id
        or application.state is _FAILING
        or not key
        or key in partition.asks
        or key in partition.foreign
        or len(partition.asks) >= totals.ASKS_MAX
    ):
        return None
    ask_class = partition.plain.get(spec) or _learned(partition, spec)
    return None if ask_class is None else (application, ask_class)


def _learned(partition: Partition, spec: AskSpec) -> AskClass | None:
    """The class of a template that is new and plain."""
    new = spec not in partition.shapes and spec.is_plain
    if not new or totals.overflow(partition, spec.resource, of_ask=True):
        return None
    return partition.learn(spec)


def _make(
    partition: Partition, application: Application, ask_class: AskClass, event: AskAdded, now: int
) -> Ask:
    rm_id, key, _, spec, _, created_ms, tags, generation = event
    partition.arrivals += 1
    created = now if created_ms is None or created_ms > now else created_ms
    arrival = partition.arrivals
    ask = Ask(rm_id, key, application, spec, ask_class, arrival, created, tags, generation)
    ask.cycle = partition.round.cycles
    partition.asks[key] = ask
    ask_class.asks += 1
    return ask


def leaves_alone(state: State, event: Event) -> bool:
    """Does the event mean nothing to asks that came just now: is it the end of an allocation?"""
    if type(event) is not ReleaseRequested or event.termination is _FAILED_ON_RM:
        return False
    partition = state.partitions.get(event.partition)
    ask = None if partition is None else partition.asks.get(event.key)
    return ask is not None and ask.node is not None and ask.spec.is_plain
