"""Weighted shares, computed in the simplest correct way: with fractions, one queue after the other (W1, W2).

Siblings share in rounds. In each round every sibling gets the same multiple of its weight. Then either the siblings
below their floor get their floor, or those above their cap get their cap: the group whose total deviation is
larger. These siblings are settled, and the next round begins.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor
from typing import NamedTuple


class Sibling(NamedTuple):
    """A queue that shares an amount with its siblings; `cap` None means no limit."""

    weight: int
    floor: int
    cap: int | None


def by_remainder(parts: Sequence[Fraction]) -> list[int]:
    """Return whole numbers with the same sum; the remainder goes to the largest fractions, and among equal ones to the earliest."""
    whole = [floor(part) for part in parts]
    left = sum(parts) - sum(whole)
    assert left.denominator == 1
    order = sorted(range(len(parts)), key=lambda at: (whole[at] - parts[at], at))
    for at in order[: int(left)]:
        whole[at] += 1
    return whole


def poured(amount: int, siblings: Sequence[Sibling]) -> list[int]:
    """Return the amount that each sibling gets."""
    caps = [one.cap for one in siblings if one.cap is not None]
    if len(caps) == len(siblings) and sum(caps) <= amount:
        return caps
    least = sum(one.floor for one in siblings)
    if least > amount:
        return by_remainder([Fraction(amount * one.floor, least) for one in siblings])
    return by_remainder(_rounds(amount, siblings))


def _rounds(amount: int, siblings: Sequence[Sibling]) -> list[Fraction]:
    settled: dict[int, Fraction] = {}
    while len(settled) < len(siblings):
        open_ = [at for at in range(len(siblings)) if at not in settled]
        level = (amount - sum(settled.values())) / Fraction(
            sum(siblings[at].weight for at in open_)
        )
        low, high = dict[int, Fraction](), dict[int, Fraction]()
        for at in open_:
            weight, least, most = siblings[at]
            if level * weight < least:
                low[at] = Fraction(least)
            elif most is not None and level * weight > most:
                high[at] = Fraction(most)
        short = sum((part - level * siblings[at].weight for at, part in low.items()), Fraction())
        over = sum((level * siblings[at].weight - part for at, part in high.items()), Fraction())
        if not low and not high:
            settled |= {at: level * siblings[at].weight for at in open_}
        elif short >= over:
            settled |= low
        else:
            settled |= high
    return [settled[at] for at in range(len(siblings))]


@dataclass
class Node:
    """A queue in one resource type; only a node without children has `held` and `pending`."""

    path: str
    weight: int = 1
    guaranteed: int = 0
    max: int | None = None
    held: int = 0
    pending: int = 0
    children: "list[Node]" = field(default_factory=list)


class Outcome(NamedTuple):
    """The result for one queue in one resource type."""

    demand: int
    cap: int | None
    floor: int
    deserved: int
    entitled: int
    contended: bool


def shares(root: Node, total: int, *, demand_cap: bool = True) -> dict[str, Outcome]:
    """Return the results for all queues of a tree in one resource type."""
    found: dict[str, Outcome] = {}
    _share([root], max(0, total), demand_cap, found)
    return found


def _share(nodes: Sequence[Node], amount: int, demand_cap: bool, found: dict[str, Outcome]) -> None:  # noqa: FBT001
    nodes = sorted(nodes, key=lambda one: one.path)
    siblings = [
        Sibling(one.weight, least_of(one, demand_cap), cap_of(one, demand_cap)) for one in nodes
    ]
    caps = [one.cap for one in siblings]
    known = [one for one in caps if one is not None]
    contended = not demand_cap or sum(known) > amount
    for node, sibling, part in zip(nodes, siblings, poured(amount, siblings), strict=True):
        entitled = part if contended else sibling.floor
        found[node.path] = Outcome(
            demand_of(node), sibling.cap, sibling.floor, part, entitled, contended
        )
        _share(node.children, part, demand_cap, found)


def demand_of(node: Node) -> int:
    """Return what a queue and all queues below it want, within their maxima."""
    if not node.children:
        return node.held + node.pending
    return sum(at_most(demand_of(child), child.max) for child in node.children)


def cap_of(node: Node, demand_cap: bool) -> int | None:  # noqa: FBT001
    """Return the most that the queue may deserve."""
    if demand_cap:
        return at_most(demand_of(node), node.max)
    if not node.children:
        return node.max
    caps = [cap_of(child, demand_cap) for child in node.children]
    known = [cap for cap in caps if cap is not None]
    return node.max if len(known) < len(caps) else at_most(sum(known), node.max)


def least_of(node: Node, demand_cap: bool) -> int:  # noqa: FBT001
    """Return the floor of a queue."""
    below = sum(least_of(child, demand_cap) for child in node.children)
    return at_most(max(node.guaranteed, below), cap_of(node, demand_cap))


def at_most(amount: int, most: int | None) -> int:
    """Return the amount, or the limit if that is less."""
    return amount if most is None else min(amount, most)


def preempting(deserved: Mapping[str, int], used: Mapping[str, int]) -> dict[str, int]:
    """Return how much siblings have of what other siblings deserve (W5)."""
    paths = sorted(deserved)
    gaps = {path: max(0, deserved[path] - used[path]) for path in paths}
    over = sum(max(0, used[path] - deserved[path]) for path in paths)
    whole = sum(gaps.values())
    coming = min(over, whole)
    parts = [Fraction(coming * gaps[path], whole) if whole else Fraction() for path in paths]
    return dict(zip(paths, by_remainder(parts), strict=True))
