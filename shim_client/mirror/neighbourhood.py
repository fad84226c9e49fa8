"""Which pods lie where, counted for what other pods demand: never searched, always kept.

A tally counts the pods that a demand speaks of, by place (a value of a node label); it lives as long
as some pod demands it.  A guard counts, by place, the pods that keep others away from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from shim_client.translate.matching import Labels, selects
from shim_client.translate.neighbours import Demands, Term, Who

_NONE: Labels = {}
Key = TypeVar("Key")
Kept = TypeVar("Kept")
ANYWHERE = ""


class Seat(NamedTuple):
    """A pod on a node, as far as others care."""

    uid: str
    namespace: str
    labels: Labels
    node_labels: Labels
    going: bool
    """It is being deleted: topology spread does not count it any more."""
    apart: tuple[Term, ...]


class Question(NamedTuple):
    """What a tally counts: pods that all of `whos` mean, by the value of a node label."""

    whos: tuple[Who, ...]
    topology_key: str
    staying: bool
    """Only pods that are not being deleted."""


@dataclass(slots=True, eq=False)
class Tally:
    """Pods by place."""

    question: Question
    users: int = 0
    counts: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True, eq=False)
class Guard:
    """Pods by place that keep away the pods which a term means."""

    term: Term
    counts: Counter[str] = field(default_factory=Counter)


class Shelf(Generic[Key, Kept]):
    """Tallies or guards, found by the namespace of the pods that they are about."""

    def __init__(self) -> None:
        self._all: dict[Key, Kept] = {}
        self._near: dict[str, dict[Key, Kept]] = {}

    def __bool__(self) -> bool:
        return bool(self._all)

    def get(self, key: Key) -> Kept | None:
        """Return what is kept under a key."""
        return self._all.get(key)

    def put(self, key: Key, who: Who, kept: Kept) -> None:
        """Keep something about the pods that `who` means."""
        self._all[key] = kept
        for namespace in _homes(who):
            self._near.setdefault(namespace, {})[key] = kept

    def drop(self, key: Key, who: Who) -> None:
        """Keep it no longer."""
        self._all.pop(key, None)
        for namespace in _homes(who):
            self._near.get(namespace, {}).pop(key, None)

    def near(self, namespace: str) -> list[Kept]:
        """Return what may be about pods of a namespace."""
        named, anywhere = self._near.get(namespace, {}), self._near.get(ANYWHERE, {})
        return [*named.values(), *anywhere.values()]


def _homes(who: Who) -> tuple[str, ...]:
    return who.namespaces if who.namespace_selector is None else (ANYWHERE,)


@dataclass(slots=True)
class Neighbourhood:
    """All that is counted; `version` changes with every count."""

    version: int = 0
    namespace_labels: dict[str, Labels] = field(default_factory=dict)
    seats: dict[str, Seat] = field(default_factory=dict)
    tallies: Shelf[Question, Tally] = field(default_factory=Shelf)
    guards: Shelf[Term, Guard] = field(default_factory=Shelf)
    _counted: dict[str, list[tuple[Counter[str], str]]] = field(default_factory=dict)
    """Where each pod was counted, by uid, so that it is taken back exactly there."""

    def settle(self, seat: Seat) -> None:
        """Count a pod where it is now, instead of where it was."""
        if self.seats.get(seat.uid) == seat:
            return
        self.unsettle(seat.uid)
        self.seats[seat.uid] = seat
        for tally in self.tallies.near(seat.namespace):
            self._count(tally, seat)
        for term in seat.apart:
            place = seat.node_labels.get(term.topology_key)
            if place is not None:
                self._add(self._guard(term).counts, place, seat.uid)

    def unsettle(self, uid: str) -> None:
        """Count a pod nowhere any more."""
        seat = self.seats.pop(uid, None)
        for counts, place in self._counted.pop(uid, ()):
            self.version += 1
            counts[place] -= 1
            if not counts[place]:
                del counts[place]
        for term in seat.apart if seat else ():
            if (guard := self.guards.get(term)) and not guard.counts:
                self.guards.drop(term, term.who)

    def use(self, demands: Demands) -> None:
        """Keep what these demands ask counted."""
        for question in questions(demands):
            tally = self.tallies.get(question)
            if tally is None:
                tally = Tally(question)
                self.tallies.put(question, question.whos[0], tally)
                for seat in self.seats.values():
                    self._count(tally, seat)
            tally.users += 1

    def release(self, demands: Demands) -> None:
        """Count it no longer for these demands."""
        for question in questions(demands):
            tally = self._tally(question)
            tally.users -= 1
            if not tally.users:
                self.tallies.drop(question, question.whos[0])
                self._forget(tally.counts)

    def counts(self, question: Question) -> Mapping[str, int]:
        """Return the pods by place that a question asks for, which is in use."""
        return self._tally(question).counts

    def _tally(self, question: Question) -> Tally:
        tally = self.tallies.get(question)
        assert tally is not None, question
        return tally

    def _guard(self, term: Term) -> Guard:
        guard = self.guards.get(term)
        if guard is None:
            guard = Guard(term)
            self.guards.put(term, term.who, guard)
        return guard

    def _forget(self, counts: Counter[str]) -> None:
        """Drop a tally from what its pods remember of where they were counted."""
        for uid, counted in list(self._counted.items()):
            if any(one is counts for one, _ in counted):
                self._counted[uid] = [one for one in counted if one[0] is not counts]

    def name_namespace(self, name: str, labels: Labels | None) -> None:
        """Take in a namespace's labels, None when it is gone; what they decide is counted anew."""
        if self.namespace_labels.get(name) == labels:
            return
        if labels is None:
            self.namespace_labels.pop(name, None)
        else:
            self.namespace_labels[name] = labels
        self._recount(name)

    def means(self, who: Who, namespace: str, labels: Labels) -> bool:
        """Return whether a pod is one of those who are meant."""
        if who.selector is None or not selects(who.selector, labels):
            return False
        if namespace in who.namespaces:
            return True
        further = who.namespace_selector
        return further is not None and selects(further, self.namespace_labels.get(namespace, _NONE))

    def guards_against(self, namespace: str, labels: Labels) -> Iterable[Guard]:
        """Yield the guards that keep such a pod away."""
        for guard in self.guards.near(namespace):
            if self.means(guard.term.who, namespace, labels):
                yield guard

    def _count(self, tally: Tally, seat: Seat) -> None:
        whos, key, staying = tally.question
        place = seat.node_labels.get(key)
        if place is None or (staying and seat.going):
            return
        if all(self.means(who, seat.namespace, seat.labels) for who in whos):
            self._add(tally.counts, place, seat.uid)

    def _add(self, counts: Counter[str], place: str, uid: str) -> None:
        counts[place] += 1
        self.version += 1
        self._counted.setdefault(uid, []).append((counts, place))

    def _recount(self, namespace: str) -> None:
        seats = [seat for seat in self.seats.values() if seat.namespace == namespace]
        for seat in seats:
            self.unsettle(seat.uid)
        for seat in seats:
            self.settle(seat)


def questions(demands: Demands) -> list[Question]:
    """Return what has to be counted for demands, in their order: together, apart, spreads."""
    all_of = tuple(term.who for term in demands.together)
    return [
        *(Question(all_of, term.topology_key, staying=False) for term in demands.together),
        *(Question((term.who,), term.topology_key, staying=False) for term in demands.apart),
        *(Question((one.who,), one.topology_key, staying=True) for one in demands.spreads),
    ]
