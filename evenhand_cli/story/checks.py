"""The expectations of a step, compared with the decisions of the core and with the state afterwards."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from evenhand_cli.story.form import Step
from evenhand_cli.story.lines import beside, matches
from evenhand_cli.story.words import START
from server.core.core import Core
from server.core.queries import inspect, known_decisions, shadow_records, verdicts
from server.core.queries.near_decisions import NotEvicted, not_evicted
from server.model.decisions import Decision
from server.model.quota import DEFAULT_PARTITION
from server.model.ranking import VICTIM
from server.model.records import DecisionRecord, Level, Spared, Verdict
from server.model.reports import QueueReport

NOTHING: Final = "nothing"
Told = Sequence[tuple[str, str]]
"""Pairs of a decision as a line, and its reason."""


@dataclass(frozen=True, slots=True)
class Check:
    """One expectation: the key of the step, the lines that the story wants, and the lines that were found."""

    what: str
    wanted: tuple[str, ...]
    found: tuple[str, ...]
    holds: bool


@dataclass(frozen=True, slots=True)
class Checker:
    """The checks of one step after the core has decided."""

    core: Core
    step: Step
    now: int

    def checks(self, told: Told, decisions: Iterable[Decision]) -> Iterator[Check]:
        """Yield a check for every expectation of the step. `told` has the decisions as lines."""
        step = self.step
        if step.shadow is not None:
            yield _lines("shadow", step.shadow, beside(decisions))
        if step.then is not None:
            yield _lines("then", step.then, told)
        yield from self._queues()
        yield from self._nodes()
        yield from self._items()
        yield from self._preemption()
        if step.due is not None:
            due = self.core.next_due()
            yield _equal("due", step.due, None if due is None else due - START)

    def _queues(self) -> Iterator[Check]:
        step, known = self.step, _by_path(inspect.queue_tree(self.core, DEFAULT_PARTITION))
        shares = {path: one.proportional for path, one in known.items() if one.proportional}
        compared: list[tuple[str, Mapping[str, object], Mapping[str, object]]] = [
            ("usage", step.usage, {path: dict(one.usage) for path, one in known.items()}),
            ("promised", step.promised, {path: dict(one.promised) for path, one in known.items()}),
            ("leaving", step.leaving, {path: dict(one.releasing) for path, one in known.items()}),
            ("limits", step.limits, {path: dict(one.max) for path, one in known.items()}),
            (
                "guaranteed",
                step.guaranteed,
                {path: dict(one.guaranteed) for path, one in known.items()},
            ),
            ("states", step.states, {path: one.state for path, one in known.items()}),
        ]
        for name in ("deserved", "entitled", "allocated", "preempting", "standing"):
            each = {path: dict(getattr(one, name)) for path, one in shares.items()}
            compared.append((name, getattr(step, name), each))
        for name, expected, found in compared:
            yield from _facts(name, expected, found)

    def _nodes(self) -> Iterator[Check]:
        known = inspect.nodes(self.core, DEFAULT_PARTITION)
        yield from _facts("free", self.step.free, {one.node_id: dict(one.free) for one in known})
        if self.step.reserved is not None:
            held = {one.node_id: list(one.reserved_for) for one in known if one.reserved_for}
            yield _equal("reserved", self.step.reserved, held)

    def _items(self) -> Iterator[Check]:
        waiting = inspect.allocations(self.core, DEFAULT_PARTITION, asks=True)
        codes = {one.key: one.code for one in waiting if not one.node_id}
        yield from _facts("waits", self.step.waits, codes)
        known = inspect.applications(self.core, DEFAULT_PARTITION)
        states = {one.application_id: f"{one.queue} {one.state}" for one in known}
        yield from _facts("applications", self.step.applications, states)

    def _preemption(self) -> Iterator[Check]:
        step = self.step
        for key, expected in step.verdicts.items():
            verdict = verdicts.verdict(self.core, key, self.now)
            yield _equal(
                f"verdicts {key}", expected, _verdict_line(verdict, nearest=" " in expected)
            )
        for key, expected in step.would.items():
            would = shadow_records.would(self.core, key, self.now)
            found = NOTHING if would is None else would.law or would.node_id
            yield _equal(f"would {key}", expected, found)
        for key, rules in step.spared.items():
            kept = [
                f"{one.law} {one.queue}"
                for record in self._decided_for(key)
                for one in self._spared(record)
            ]
            yield Check(f"spared {key}", tuple(rules), tuple(kept), set(rules) <= set(kept))
        for key, lines in step.stood.items():
            yield _equal(f"stood {key}", lines, self._stood(key))
        for key, lines in step.taken_from.items():
            levels = [
                _level_line(one)
                for record in self._decided_for(key)
                for one in self._levels(record)
            ]
            yield _equal(f"taken_from {key}", lines, levels)

    def _stood(self, key: str) -> list[str]:
        partition = self.core.state.partitions[DEFAULT_PARTITION]
        ask = partition.asks.get(key)
        return [] if ask is None else [_stood_line(one) for one in not_evicted(partition, ask)]

    def _decided_for(self, key: str) -> list[DecisionRecord]:
        """Return the open decisions for an ask, or the open decisions of a queue's quota runs."""
        return [
            record
            for record in known_decisions.decisions(self.core, open_only=True)
            if key in [each.key for each in record.beneficiaries]
            or (record.shrink is not None and record.shrink.queue == key)
        ]

    def _spared(self, record: DecisionRecord) -> Iterable[Spared]:
        return known_decisions.spared(self.core, record)

    def _levels(self, record: DecisionRecord) -> Iterable[Level]:
        return [one for one in known_decisions.levels(self.core, record) if one.role == VICTIM]


def _lines(what: str, expected: Sequence[str], found: Told) -> Check:
    """Compare lines in order; the text after `~` in an expected line must occur in the reason."""
    same = len(expected) == len(found)
    holds = same and all(matches(one, *other) for one, other in zip(expected, found, strict=True))
    reasons = any("~" in one for one in expected)
    lines = [f"{line} ~ {reason}" if reasons and reason else line for line, reason in found]
    return Check(what, tuple(expected), tuple(lines), holds)


def _facts(
    what: str, expected: Mapping[str, object], found: Mapping[str, object]
) -> Iterator[Check]:
    return (_equal(f"{what} {name}", value, found.get(name)) for name, value in expected.items())


def _equal(what: str, expected: object, found: object) -> Check:
    return Check(what, _shown(expected), _shown(found), expected == found)


def _shown(value: object) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(map(str, value))
    if isinstance(value, Mapping):
        each = (
            f"{name}: {', '.join(one) if isinstance(one, list) else one}"
            for name, one in value.items()
        )
        return (", ".join(each) or NOTHING,)
    return (NOTHING if value is None or value == "" else str(value),)


def _by_path(queue: QueueReport) -> dict[str, QueueReport]:
    found = {queue.path: queue}
    for child in queue.children:
        found |= _by_path(child)
    return found


def _stood_line(one: NotEvicted) -> str:
    place = f"{one.place}/{one.total}" if one.place else ""
    differs = f"{one.key} {one.own} {one.other}" if one.key else ""
    words = (one.rule, place, differs, "before" if one.before else "", one.victim or one.node)
    return " ".join(filter(None, words))


def _level_line(one: Level) -> str:
    most = "" if one.max is None else f" of {one.max}"
    return f"{one.queue} {one.resource_type} {one.held} over {one.guaranteed}{most}"


def _verdict_line(found: Verdict | None, *, nearest: bool) -> str:
    """Return the rule of a verdict. With ``nearest``, add the nearest node and the amounts that this node lacks."""
    if found is None:
        return "none"
    missing = [f"{kind}={amount}" for kind, amount in sorted(found.missing.items())]
    return " ".join([found.law, *([found.node_id, *missing] if nearest else [])])
