"""Counts of pods by place, for the rules of other pods about their neighbours.

A place is a value of a node label: a topology domain of Kubernetes. The counts are updated with each change, so that no
search is needed. A `Tally` holds, for each place, the number of pods that a demand selects. A tally exists while at
least one pod has this demand. A `Guard` holds, for each place, the number of pods with a required anti-affinity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from shim_client.translate.matching import Labels, selects
from shim_client.translate.neighbours import Demands, Preference, Term, Who

_NONE: Labels = {}
Key = TypeVar("Key")
Kept = TypeVar("Kept")
ANYWHERE = ""


class Assignment(NamedTuple):
    """A pod on a node, with the facts that other pods' demands depend on."""

    uid: str
    namespace: str
    labels: Labels
    node_labels: Labels
    going: bool
    """Whether the pod is being deleted.

    Topology spread no longer counts a pod that is being deleted.
    """
    apart: tuple[Term, ...]
    groups: frozenset[str] = frozenset()
    """The groups of pods to which the pod belongs by its preferences. The core itself counts the pods of these groups."""


class Question(NamedTuple):
    """Which pods to count, and by which node label. A tally, which holds the counts, is found by its question.

    A question names the pods to count (the pods that all of `whos` select), and the node label whose values are the
    topology domains.
    """

    whos: tuple[Who, ...]
    topology_key: str
    staying: bool
    """Whether only pods that are not being deleted are counted."""
    outside: str = ""
    """A group whose pods are not counted here, because the core counts them. If empty, all pods are counted."""


@dataclass(slots=True, eq=False)
class Tally:
    """The numbers of pods that a question selects, by topology domain.

    `users` is the number of pods that have a demand with this question.
    """

    question: Question
    users: int = 0
    counts: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True, eq=False)
class Guard:
    """For one term of required anti-affinities: the number of pods that have this term, by place."""

    term: Term
    counts: Counter[str] = field(default_factory=Counter)


class Shelf(Generic[Key, Kept]):
    """An index of counters (tallies or guards) by the namespaces of the pods that they concern.

    `near` finds the entries that may concern the pods of a namespace.
    """

    def __init__(self) -> None:
        self._all: dict[Key, Kept] = {}
        self._near: dict[str, dict[Key, Kept]] = {}

    def __bool__(self) -> bool:
        return bool(self._all)

    def get(self, key: Key) -> Kept | None:
        """Return the entry of a key; None if there is none."""
        return self._all.get(key)

    def put(self, key: Key, who: Who, kept: Kept) -> None:
        """Add an entry about the pods that `who` selects."""
        self._all[key] = kept
        for namespace in _homes(who):
            self._near.setdefault(namespace, {})[key] = kept

    def drop(self, key: Key, who: Who) -> None:
        """Remove the entry of a key."""
        self._all.pop(key, None)
        for namespace in _homes(who):
            self._near.get(namespace, {}).pop(key, None)

    def near(self, namespace: str) -> list[Kept]:
        """Return the entries that may concern pods of a namespace."""
        named, anywhere = self._near.get(namespace, {}), self._near.get(ANYWHERE, {})
        return [*named.values(), *anywhere.values()]


def _homes(who: Who) -> tuple[str, ...]:
    return who.namespaces if who.namespace_selector is None else (ANYWHERE,)


@dataclass(slots=True)
class Neighbourhood:
    """All counts of pods by place: tallies for the demands of pods, and guards for required anti-affinities.

    `version` changes when a count changes.
    """

    version: int = 0
    namespace_labels: dict[str, Labels] = field(default_factory=dict)
    assignments: dict[str, Assignment] = field(default_factory=dict)
    tallies: Shelf[Question, Tally] = field(default_factory=Shelf)
    guards: Shelf[Term, Guard] = field(default_factory=Shelf)
    _counted: dict[str, list[tuple[Counter[str], str]]] = field(default_factory=dict)
    """For each uid of a pod: the place of the pod in each counter that counts the pod.

    With this record the pod can be removed from these counters.
    """

    def settle(self, assignment: Assignment) -> None:
        """Count a pod at its present place, and stop counting it at its former place."""
        if self.assignments.get(assignment.uid) == assignment:
            return
        self.unsettle(assignment.uid)
        self.assignments[assignment.uid] = assignment
        for tally in self.tallies.near(assignment.namespace):
            self._count(tally, assignment)
        for term in assignment.apart:
            place = assignment.node_labels.get(term.topology_key)
            if place is not None:
                self._add(self._guard(term).counts, place, assignment.uid)

    def unsettle(self, uid: str) -> None:
        """Remove a pod from all counts."""
        assignment = self.assignments.pop(uid, None)
        for counts, place in self._counted.pop(uid, ()):
            self.version += 1
            counts[place] -= 1
            if not counts[place]:
                del counts[place]
        for term in assignment.apart if assignment else ():
            if (guard := self.guards.get(term)) and not guard.counts:
                self.guards.drop(term, term.who)

    def use(self, demands: Demands) -> None:
        """Start counting the pods that these demands select."""
        for question in questions(demands):
            tally = self.tallies.get(question)
            if tally is None:
                tally = Tally(question)
                self.tallies.put(question, question.whos[0], tally)
                for assignment in self.assignments.values():
                    self._count(tally, assignment)
            tally.users += 1

    def release(self, demands: Demands) -> None:
        """Stop counting the pods that these demands of one pod select.

        A demand that another pod has, too, is still counted.
        """
        for question in questions(demands):
            tally = self._tally(question)
            tally.users -= 1
            if not tally.users:
                self.tallies.drop(question, question.whos[0])
                self._forget(tally.counts)

    def counts(self, question: Question) -> Mapping[str, int]:
        """Return the number of selected pods by place, for a question that a demand of at least one pod asks."""
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
        """Remove the counter of a dropped tally from `_counted`, the record of the counters in which each pod counts."""
        for uid, counted in list(self._counted.items()):
            if any(one is counts for one, _ in counted):
                self._counted[uid] = [one for one in counted if one[0] is not counts]

    def name_namespace(self, name: str, labels: Labels | None) -> None:
        """Record a namespace's labels, or None when it was deleted.

        Count the pods of the namespace again.
        """
        if self.namespace_labels.get(name) == labels:
            return
        if labels is None:
            self.namespace_labels.pop(name, None)
        else:
            self.namespace_labels[name] = labels
        self._recount(name)

    def means(self, who: Who, namespace: str, labels: Labels) -> bool:
        """Return whether `who` selects a pod with this namespace and these labels."""
        if who.selector is None or not selects(who.selector, labels):
            return False
        if namespace in who.namespaces:
            return True
        further = who.namespace_selector
        return further is not None and selects(further, self.namespace_labels.get(namespace, _NONE))

    def guards_against(self, namespace: str, labels: Labels) -> Iterable[Guard]:
        """Yield the guards whose anti-affinity excludes a pod with this namespace and these labels.

        A guard counts, by place, the pods that have a required anti-affinity.
        """
        for guard in self.guards.near(namespace):
            if self.means(guard.term.who, namespace, labels):
                yield guard

    def _count(self, tally: Tally, assignment: Assignment) -> None:
        whos, key, staying, outside = tally.question
        place = assignment.node_labels.get(key)
        if place is None or (staying and assignment.going) or outside in assignment.groups:
            return
        if all(self.means(who, assignment.namespace, assignment.labels) for who in whos):
            self._add(tally.counts, place, assignment.uid)

    def _add(self, counts: Counter[str], place: str, uid: str) -> None:
        counts[place] += 1
        self.version += 1
        self._counted.setdefault(uid, []).append((counts, place))

    def _recount(self, namespace: str) -> None:
        assignments = [
            assignment
            for assignment in self.assignments.values()
            if assignment.namespace == namespace
        ]
        for assignment in assignments:
            self.unsettle(assignment.uid)
        for assignment in assignments:
            self.settle(assignment)


def questions(demands: Demands) -> list[Question]:
    """Return the questions of a pod's demands: which pods to count, and by which node label.

    The questions of affinity come first, then those of anti-affinity, of topology spread, and of preferences.
    """
    all_of = tuple(term.who for term in demands.together)
    return [
        *(Question(all_of, term.topology_key, staying=False) for term in demands.together),
        *(Question((term.who,), term.topology_key, staying=False) for term in demands.apart),
        *(Question((one.who,), one.topology_key, staying=True) for one in demands.spreads),
        *map(question_of, demands.preferred),
    ]


def question_of(preference: Preference) -> Question:
    """Return the question of a preference: which pods to count, and by which node label.

    The question counts the pods that the preference selects, except the pods of its group, which the core itself
    counts.
    """
    return Question(
        (preference.who,), preference.topology_key, preference.staying, preference.group
    )
