"""The reason why other pods in the queue or on the node of an allocation were evicted, but not this allocation."""

from collections.abc import Mapping
from typing import Final

from evenhand.v1 import explain_pb2 as pb
from server.core.queries.near_decisions import NotEvicted
from server.model.phrases import count, span
from server.model.ranking import NOT_CHOSEN, NOT_NEEDED, Rank
from server.rpc.evenhand.rule_text import words

OTHERS: Final = "the pods that were evicted"
"""The text in place of the name of a victim that the caller may not read."""


def picture(found: NotEvicted, victim: str, node: str, now: int) -> pb.NotEvicted:
    """Return the message that says why a decision did not evict the allocation.

    ``victim`` and ``node`` are names that the caller may read. ``victim`` or ``node`` is "" if there is no name that the caller
    may read.
    """
    return pb.NotEvicted(
        decision_id=found.record.decision_id,
        policy=found.record.policy,
        at_ms=found.record.at_ms,
        law=found.rule,
        rule=words(found.rule) if found.rule else "",
        rank=found.place,
        candidates=found.total,
        key=found.key,
        own_value=str(found.own) if found.key else "",
        other_value=str(found.other) if found.key else "",
        victim=victim,
        chosen_node=node,
        sentence=sentence(found, victim or OTHERS, node, now),
    )


def sentence(found: NotEvicted, victim: str, node: str, now: int) -> str:
    """Return the sentence that says why one decision did not evict the allocation."""
    decision = found.record.decision_id
    if found.rule == NOT_CHOSEN:
        return f"Decision {decision} did not evict it: {_of_the_node(found, node)}."
    if not found.place or found.rule not in {NOT_NEEDED, ""}:
        why = f"{words(found.rule)} (`{found.rule}`)" if found.rule else _unknown(found)
        return f"Decision {decision} did not evict it: {why}."
    place = f"It was number {found.place} of {found.total} in the order of decision {decision}"
    if found.before:
        better = "a set of victims without it needs fewer, or less important ones (G8)"
        return f"{place}, before {victim}, and is not evicted: {better}."
    if not found.key:
        return f"{place} and was not needed."
    why = difference(found.key, found.own, found.other, victim, now)
    return f"{place}: {why} (key: {found.key})."


def _unknown(found: NotEvicted) -> str:
    return f"it is not among the candidates next to its victims, of {count(found.total, 'candidate')} in all"


def _of_the_node(found: NotEvicted, node: str) -> str:
    chosen = f"node {node}" if node else "another node"
    if not found.key:
        return f"{chosen} was chosen, where the victims ranked before those of its node (G8)"
    if found.key == "node":
        return f"{chosen} was chosen, whose victims are alike and whose name comes first (G8)"
    if found.key == "excess":
        return f"{chosen} was chosen, whose victims free less beyond what is needed (G8)"
    noun = _NODE_KEYS[found.key]
    return (
        f"{chosen} was chosen with {noun} {found.other}; on its own it is {found.own} or more (G8)"
    )


_NODE_KEYS: Final[Mapping[str, str]] = {
    "opted-out": "a number of opted-out victims of",
    "originators": "a number of originators among the victims of",
    "priority": "a highest priority among the victims of",
    "victims": "a number of victims of",
}


def difference(key: str, own: Rank, other: Rank, victim: str, now: int) -> str:
    """Return as text the first sort key in which a candidate that stays differs from a victim. The pod with the lower value is evicted first."""
    if key == "priority":
        return f"its priority {own} is higher than {other} of {victim}"
    if key == "age":
        return f"it is older ({_age(own, now)}) than {victim} ({_age(other, now)})"
    if key == "running-time":
        return f"it has run for {span(int(own))}, {victim} for {span(int(other))}"
    if key == "job":
        return f"its gang comes after that of {victim}"
    told = _DIFFERENCES.get(key, "its value is higher than that of {}")
    return told.format(victim)


_DIFFERENCES: Final[Mapping[str, str]] = {
    "protection": "it opted out of preemption, or its disruption budget is used up, unlike {}",
    "kind": "it is an originator, opted out, or without a disruption left, unlike {}",
    "originator": "it is the originator of its application, and {} is not",
    "placeholder": "{} is a placeholder, and it is not",
    "job-broken": "{} belongs to a gang that is broken already",
    "not-running": "it runs, and {} does not run yet",
    "lost-work": "more work would be lost with it than with {}",
    "size": "it is larger than {}",
    "fit": "it uses more of what is not needed than {}",
    "allocation-key": "it equals {} in every key, and its allocation key comes later",
}


def _age(value: Rank, now: int) -> str:
    return f"{span(max(0, now + int(value)))} old"
