"""Who lacks what it is owed, read from the books: after this the report needs nothing but a View."""

from collections.abc import Iterator
from fractions import Fraction
from itertools import islice
from typing import Final, NamedTuple

from server.books import snapshot
from server.books.applications import Ask, Group, Job
from server.books.limits import Limiter
from server.books.partition import Partition
from server.core import starving
from server.core.explain_ask import short_of
from server.core.obstacles import Obstacles
from server.core.state import State
from server.model.quota import is_below
from server.model.reasons import Code
from server.model.unmet import UnmetType
from server.preemption import entitlement
from server.preemption.trial import Trial
from server.view.view import View
from server.view.waiting import WaitingAsk

KINDS_MAX: Final = 3
"""Kinds of asks of one queue that are judged; the others are counted."""

ALIKE_MAX: Final = 32
"""Asks of a group that are looked at one by one for what its class leaves open."""


class Limited(NamedTuple):
    """A user's or group's limit without room, and what it lacks."""

    name: str
    lacks: dict[str, int]


class Need(NamedTuple):
    """Equal asks of one leaf: the first of them, how many there are, and what the books know of them.

    ``decision`` is the one that makes room for the first; ``due_ms`` the instant from which it may claim, and ``waits``
    why not before; ``code`` why it waits.
    """

    ask: WaitingAsk
    number: int
    code: Code
    decision: str
    node_id: str
    due_ms: int
    backs_off: bool
    limited: tuple[Limited, ...]


class Unmet(NamedTuple):
    """A queue that lacks something for which asks below it wait."""

    queue: str
    types: tuple[UnmetType, ...]
    needs: tuple[Need, ...]
    others: int


class Needs(NamedTuple):
    """All that the report is made from; any thread may read it."""

    view: View
    queues: tuple[Unmet, ...]


def read(state: State, partition: Partition, queue: str, now: int) -> Needs:
    """The unmet queues of a partition at or below a queue, the worst first."""
    partition.disruptions = state.disruptions(partition)
    short = _short(Trial(snapshot.take(partition, now)), queue)
    groups = _groups(state, partition, short)
    due = snapshot.Due(claiming=[one.first for one in groups])
    view = snapshot.take(partition, now, due=due)
    needs = [_need(one, ask) for one, ask in zip(groups, view.claims, strict=True)]
    return Needs(view, tuple(sorted(_unmet(short, needs), key=_worst_first)))


def _worst_first(one: Unmet) -> tuple[Fraction, str]:
    """Those that lack the largest part of what they are owed first, then by path."""
    lacking = max(Fraction(each.missing, each.entitled) for each in one.types)
    return -lacking, one.queue


def _short(trial: Trial, below: str) -> dict[str, tuple[UnmetType, ...]]:
    """By queue what it lacks of its entitlement."""
    found: dict[str, tuple[UnmetType, ...]] = {}
    for path in sorted(trial.view.queues):
        if not below or is_below(path, below):
            pairs = zip(
                trial.view.types, entitlement.floor(trial, path), trial.held(path), strict=True
            )
            types = tuple(
                UnmetType(name, owed, held, owed - held)
                for name, owed, held in pairs
                if held < owed
            )
            if types:
                found[path] = types
    return found


class _Kind(NamedTuple):
    """Asks that are alike: the first, and how many."""

    first: Ask
    number: int


class _Found(NamedTuple):
    """Asks that are alike: the first, how many, and what stands in the way by the books."""

    first: Ask
    number: int
    code: Code
    due_ms: int
    backs_off: bool
    limited: tuple[Limited, ...]


def _groups(
    state: State, partition: Partition, short: dict[str, tuple[UnmetType, ...]]
) -> list[_Found]:
    """Every kind of ask that waits below a queue that lacks something of what it asks for."""
    obstacles = Obstacles(state, partition)
    found: list[_Found] = []
    for path, leaf in sorted(partition.queues.items()):
        if not (leaf.leaf and leaf.pending_asks):
            continue
        missing = {
            one.resource_type for queue in leaf.path_up() for one in short.get(queue.path, ())
        }
        if missing:
            kinds = _kinds(partition, path)
            found += [
                _of_kind(partition, obstacles, kind)
                for kind in kinds
                if not missing.isdisjoint(name for name, _ in kind.first.spec.resource)
            ]
    return found


def _kinds(partition: Partition, leaf: str) -> Iterator[_Kind]:
    """The waiting asks of a leaf by what they ask for and with which limits, those first whose turn is first."""
    kinds: dict[tuple[object, ...], _Kind] = {}
    for application in partition.queues[leaf].applications.values():
        groups: list[Group | Job] = [*application.groups.values(), *application.jobs.values()]
        for group in groups:
            for ask, count in _alike(group):
                key = _key(ask)
                known = kinds.get(key)
                first = (
                    ask if known is None else min(known.first, ask, key=lambda one: one.sort_key)
                )
                kinds[key] = _Kind(first, count + (0 if known is None else known.number))
    return iter(sorted(kinds.values(), key=lambda one: one.first.sort_key))


def _alike(group: Group | Job) -> Iterator[tuple[Ask, int]]:
    """The first asks of a group, each with how many it stands for: they may differ in what the class leaves open."""
    if isinstance(group, Job):
        if group.members:
            yield min(group.members, key=lambda one: one.sort_key), len(group.members)
        return
    left = group.live
    for ask in islice((one for one in group.asks if one.group is group), ALIKE_MAX - 1):
        left -= 1
        yield ask, 1 if left >= 0 else 0
    last = next((one for one in reversed(group.asks) if one.group is group), None)
    if left > 0 and last is not None:
        yield last, left


def _key(ask: Ask) -> tuple[object, ...]:
    """What asks have in common that are judged together."""
    spec = ask.spec
    limited = tuple(one for one in ask.application.limiters if one.kind != "queue")
    decided = ask.pledge is not None and not ask.pledge.reserves
    may = (spec.rm_check, spec.allow_preempt_other)
    return spec.resource, spec.constraints, spec.priority, spec.job_key, may, limited, decided


def _of_kind(partition: Partition, obstacles: Obstacles, kind: _Kind) -> _Found:
    first = kind.first
    due, backs_off = starving.awaits(partition, first)
    limits = [one for one in first.application.limiters if one.kind != "queue"]
    limited = tuple(
        _limited(partition, first, one) for one in limits if not one.has_room(first.ask_class)
    )
    return _Found(first, kind.number, obstacles.code(first), due, backs_off, limited)


def _limited(partition: Partition, ask: Ask, limiter: Limiter) -> Limited:
    name = f"{limiter.kind} {limiter.name} in queue {limiter.queue.path}"
    return Limited(name, short_of(partition, ask, limiter))


def _need(found: _Found, ask: WaitingAsk) -> Need:
    held = found.first.pledge
    decided = held is not None and not held.reserves
    return Need(
        ask,
        found.number,
        _code(found),
        held.commitment.commitment_id if held is not None and decided else "",
        held.node.node_id if held is not None and decided else "",
        found.due_ms,
        found.backs_off,
        found.limited,
    )


def _code(found: _Found) -> Code:
    job = found.first.group
    gathering = isinstance(job, Job) and not job.gathered
    return Code.GANG_GATHERING if gathering else found.code


def _unmet(short: dict[str, tuple[UnmetType, ...]], needs: list[Need]) -> Iterator[Unmet]:
    for path, types in short.items():
        missing = {one.resource_type for one in types}
        below = [
            one
            for one in needs
            if is_below(one.ask.leaf, path)
            and not missing.isdisjoint(name for name, _ in one.ask.spec.resource)
        ]
        below.sort(key=lambda one: one.ask.order)
        if below:
            others = sum(one.number for one in below[KINDS_MAX:])
            yield Unmet(path, types, tuple(below[:KINDS_MAX]), others)
