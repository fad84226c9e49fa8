"""The nodes that suit a pod by its rules on neighbours, volumes and attach limits.

The core cannot check these rules (design 1.8). The core receives a list of the allowed or of the excluded nodes, if the
list has at most `NODES_LISTED_MAX` entries. The nodes are computed again before a pod is bound, because the core may
have used an older list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from shim_client.messages import NodeConstraints, PodReport
from shim_client.state_machine import settling, volume_matching
from shim_client.state_machine.state import PodRecord, State
from shim_client.state_machine.topology_counts import Question, questions
from shim_client.state_machine.volume_matching import places_of
from shim_client.translate.constraints import NO_CONSTRAINTS
from shim_client.translate.matching import term_holds
from shim_client.translate.neighbours import Spread, Term
from shim_client.translate.node import NodeFacts

NODES_LISTED_MAX = 1000
"""Maximum number of nodes in a list that is sent to the core.

Unsuitable nodes that are not listed are noticed before binding.
"""
NOWHERE = "evenhand.io/no-node"
"""The only allowed node of a pod that suits no node.

No node has that name.
"""


class Part(NamedTuple):
    """A demand of a pod on its node, with a description of the demand.

    Either `only` has all nodes that satisfy the demand, or `never` has all nodes that violate the demand.
    """

    why: str
    only: set[str] | None = None
    never: set[str] | None = None

    def refuses(self, node: str) -> bool:
        """Return whether the demand excludes a node."""
        if self.only is not None and node not in self.only:
            return True
        return self.never is not None and node in self.never


def obstacle(state: State, pod: PodRecord, node: str) -> str:
    """Return the description of a demand of the pod that excludes the node now.

    Return "" when no demand excludes the node.
    """
    why = next((part.why for part in _parts(state, pod) if part.refuses(node)), "")
    if not why and pod.facts.claims and volume_matching.plan(state, pod, node) is None:
        return _no_volumes(state, pod)
    return why


def is_judged(state: State, pod: PodRecord) -> bool:
    """Return whether the pod has a demand that could exclude nodes."""
    facts = pod.facts
    return bool(facts.demands or facts.claims or state.neighbourhood.guards)


def narrowed(state: State, pod: PodRecord, report: PodReport) -> PodReport:
    """Return the ask with a list of the nodes that suit it at present.

    A pod for which a place on a node is kept (see `promises`) keeps the list of its last report.
    """
    if pod.promise and pod.sent is not None:
        return _limited_as(report, pod.sent)
    parts = list(_parts(state, pod)) if is_judged(state, pod) else []
    if not parts:
        return report
    return _limited(report, *_lists(state, parts), rm_check=True)


def _limited_as(report: PodReport, sent: PodReport) -> PodReport:
    lists = sent.constraints or NO_CONSTRAINTS
    return _limited(report, lists.allowed_nodes, lists.excluded_nodes, rm_check=sent.rm_check)


def _limited(
    report: PodReport, allowed: tuple[str, ...], excluded: tuple[str, ...], *, rm_check: bool
) -> PodReport:
    constraints = report.constraints or NO_CONSTRAINTS
    listed = replace(constraints, allowed_nodes=allowed, excluded_nodes=excluded)
    found = listed if listed != NO_CONSTRAINTS else None
    return replace(report, rm_check=rm_check, constraints=found)


def _lists(state: State, parts: list[Part]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the allowed and the excluded nodes.

    At most one of the two lists is filled. Both lists are empty when both would be too long.
    """
    never = set().union(*(part.never for part in parts if part.never))
    limits = [part.only for part in parts if part.only is not None]
    if not limits:
        return (), tuple(sorted(never)) if len(never) <= NODES_LISTED_MAX else ()
    left = set.intersection(*limits) - never
    if not left:
        return (NOWHERE,), ()
    if len(left) <= NODES_LISTED_MAX:
        return tuple(sorted(left)), ()
    others = state.nodes.keys() - left
    return (), tuple(sorted(others)) if len(others) <= NODES_LISTED_MAX else ()


def _parts(state: State, pod: PodRecord) -> Iterator[Part]:
    yield from _volumes(state, pod)
    yield from _guarded(state, pod)
    if pod.demanded is None:
        return
    asked = iter(questions(pod.demanded))
    together = [next(asked) for _ in pod.demanded.together]
    yield from _together(state, pod, together)
    for _ in pod.demanded.apart:
        question = next(asked)
        counts = state.neighbourhood.counts(question)
        taken = _nodes_in(state, question.topology_key, _kept(counts, _freed(state, pod, question)))
        yield Part("pods that it must not be near are there", never=taken)
    for spread in pod.demanded.spreads:
        yield _spread(state, pod, spread, next(asked))


def _standing_in(state: State, pod: PodRecord) -> list[PodRecord]:
    """Return the placeholders of the pod's task group.

    The pod replaces one of these placeholders.
    """
    application, report = pod.application, pod.facts.report
    if application is None or not report.task_group or report.placeholder:
        return []
    members = (state.pods[uid] for uid in application.members)
    return [other for other in members if _holds_for(other, pod)]


def _holds_for(other: PodRecord, pod: PodRecord) -> bool:
    report, order = other.facts.report, other.order
    mine = order is None or order.beneficiary == pod.facts.ref.uid
    return report.placeholder and report.task_group == pod.facts.report.task_group and mine


def _freed(state: State, pod: PodRecord, question: Question) -> set[str]:
    """Return the topology domains in which the pod could replace a placeholder.

    Only placeholders that the question counts are considered.
    """
    around = state.neighbourhood
    counted = [
        other
        for other in (_standing_in(state, pod) if around.counts(question) else ())
        if not (question.staying and other.facts.deleting)
        and all(
            around.means(who, other.facts.ref.namespace, other.facts.labels)
            for who in question.whos
        )
    ]
    return _places_by(state, question.topology_key, counted)


def _places_by(state: State, key: str, pods: list[PodRecord]) -> set[str]:
    """Return the values that a node label has on the nodes of these pods."""
    nodes = (state.nodes.get(pod.node) for pod in pods)
    places = (node.facts.labels.get(key) for node in nodes if node is not None)
    return {place for place in places if place is not None}


def _kept(counts: Mapping[str, int], freed: set[str]) -> Iterable[str]:
    """Return the topology domains that still have a counted pod when the new pod replaces a placeholder.

    Each domain in `freed` would lose one counted pod.
    """
    if not freed:
        return counts
    return [place for place, count in counts.items() if count > (place in freed)]


def _keeps(pod: PodRecord, term: Term) -> bool:
    """Return whether a term is one of the pod's required anti-affinities."""
    return pod.facts.demands is not None and term in pod.facts.demands.apart


def _guarded(state: State, pod: PodRecord) -> Iterator[Part]:
    facts = pod.facts
    for guard in state.neighbourhood.guards_against(facts.ref.namespace, facts.labels):
        key = guard.term.topology_key
        own = [one for one in _standing_in(state, pod) if _keeps(one, guard.term)]
        taken = _nodes_in(state, key, _kept(guard.counts, _places_by(state, key, own)))
        yield Part("a pod there keeps pods like it away", never=taken)


def _together(state: State, pod: PodRecord, asked: list[Question]) -> Iterator[Part]:
    """Yield, for each required affinity of the pod, the nodes that satisfy the affinity.

    If a pod selects itself and is the first of its group, every node satisfies the affinity.
    """
    first = bool(asked) and not any(state.neighbourhood.counts(one) for one in asked)
    meant = first and _means_itself(state, pod, asked[0])
    for question in asked:
        places = places_of(state, question.topology_key)
        joined = places if meant else state.neighbourhood.counts(question)
        near = _nodes_in(state, question.topology_key, joined)
        yield Part("pods that it must be near are not there", only=near)


def _means_itself(state: State, pod: PodRecord, question: Question) -> bool:
    facts, around = pod.facts, state.neighbourhood
    return all(around.means(who, facts.ref.namespace, facts.labels) for who in question.whos)


def _spread(state: State, pod: PodRecord, spread: Spread, question: Question) -> Part:
    """Return the nodes that a topology spread constraint allows for one more pod.

    A topology domain is allowed if, with one more pod, it has at most `max_skew` pods more than the domain with the
    fewest pods.
    """
    admitted = _admitting(pod) if spread.honours_affinity else _admit_all
    places = {
        place: names
        for place, names in places_of(state, spread.topology_key).items()
        if any(admitted(state.nodes[name].facts) for name in names)
    }
    counts, freed = state.neighbourhood.counts(question), _freed(state, pod, question)
    found = {place: max(0, counts.get(place, 0) - (place in freed)) for place in places}
    least = min(found.values(), default=0)
    if len(places) < spread.min_domains:
        least = 0
    more = int(_means_itself(state, pod, question))
    even = [place for place, count in found.items() if count + more - least <= spread.max_skew]
    return Part(
        "pods would be spread less evenly than it demands",
        only=_nodes_in(state, spread.topology_key, even),
    )


def _admit_all(_: NodeFacts) -> bool:
    return True


def _admitting(pod: PodRecord) -> Callable[[NodeFacts], bool]:
    """Return a function that checks a node against the pod's node selector and required node affinity."""
    wanted = pod.facts.report.constraints
    if wanted is None or not (wanted.node_selector or wanted.required_terms):
        return _admit_all
    return lambda facts: _meets(wanted, facts)


def _meets(wanted: NodeConstraints, facts: NodeFacts) -> bool:
    if any(facts.labels.get(key) != value for key, value in wanted.node_selector):
        return False
    terms = wanted.required_terms
    return not terms or any(term_holds(term, facts.ref.name, facts.labels) for term in terms)


def _volumes(state: State, pod: PodRecord) -> Iterator[Part]:
    for name in pod.facts.claims:
        claim = state.claim_of(pod, name)
        volume = state.volumes.get(claim.volume) if claim is not None and claim.volume else None
        if claim is not None and volume is not None and volume.terms:
            near = volume_matching.nodes_meeting(state, f"volume {claim.volume}", volume)
            yield Part(f"the volume of claim {name!r} is not to be had there", only=near)
    if full := state.attachments.full(settling.volumes_of(state, pod)):
        yield Part("no more volumes of its driver can be attached there (CSINode)", never=full)
    near_all = volume_matching.nodes(state, pod)
    if near_all is not None:
        yield Part(_no_volumes(state, pod), only=near_all)


def _no_volumes(state: State, pod: PodRecord) -> str:
    names = ", ".join(repr(one.name) for one in volume_matching.unbound(state, pod))
    return f"a volume for its claims ({names}) is not to be had there"


def _nodes_in(state: State, key: str, places: Iterable[str]) -> set[str]:
    known = places_of(state, key)
    return {name for place in places for name in known.get(place, ())}
