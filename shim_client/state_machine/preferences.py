"""Preferences of a waiting pod about pods that the core does not count, as weights of topology domains (design 6.15).

The core itself counts the pods of the pod's own groups, such as the replicas of one Deployment. Other pods that a
preference selects (pods of other owners or schedulers) are counted here. The topology domains in which such pods run
become terms on a label of nodes. An ask is reported again when the counts of other pods change (see `recheck`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from shim_client.messages import (
    NodePreferences,
    PodReport,
    PreferredTerm,
    Requirement,
    SelectorTerm,
)
from shim_client.state_machine.state import PodRecord, State
from shim_client.state_machine.topology_counts import question_of
from shim_client.translate.preferences import shared

PLACES_MAX = 1000
"""Maximum number of topology domains with a weight that are sent for one label.

If there are more domains, the domains with the largest weights are sent.
"""
WEIGHT_MAX = 1_000_000
"""The largest weight that the core accepts."""


def weighed(state: State, pod: PodRecord, report: PodReport) -> PodReport:
    """Return the report with a weight for each topology domain in which other pods run.

    A pod with a node keeps the preferences with which it was last reported.
    """
    if pod.node:
        kept = report.preferences if pod.sent is None else pod.sent.preferences
        return report if kept is report.preferences else replace(report, preferences=kept)
    terms = tuple(_terms(state, pod))
    if not terms:
        return report
    own = report.preferences or NodePreferences()
    return replace(report, preferences=shared(replace(own, terms=own.terms + terms)))


def _terms(state: State, pod: PodRecord) -> Iterator[PreferredTerm]:
    weights: dict[str, Counter[str]] = {}
    for one in pod.demanded.preferred if pod.demanded is not None else ():
        for place, count in state.neighbourhood.counts(question_of(one)).items():
            weights.setdefault(one.topology_key, Counter())[place] += one.weight * count
    for key in sorted(weights):
        yield from _by_weight(key, weights[key])


def _by_weight(key: str, weights: Mapping[str, int]) -> Iterator[PreferredTerm]:
    """Yield one term for each weight. The term names all topology domains with this weight."""
    places = sorted(weights, key=lambda place: (-abs(weights[place]), place))[:PLACES_MAX]
    alike: dict[int, list[str]] = {}
    for place in places:
        weight = max(-WEIGHT_MAX, min(WEIGHT_MAX, weights[place]))
        if weight:
            alike.setdefault(weight, []).append(place)
    for weight in sorted(alike):
        wanted = Requirement(key, "In", tuple(sorted(alike[weight])))
        yield PreferredTerm(weight, SelectorTerm((wanted,)))
