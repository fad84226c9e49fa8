"""The reason why a decision evicted its victims: a comparison with the next candidate and with the next node in the ranking."""

from dataclasses import dataclass

from server.core.queries.near_decisions import NODE_KEYS, difference_of, first_difference
from server.model.ranking import NOT_NEEDED, Rank, Ranked, Ranking, Rival
from server.model.records import DecisionRecord


@dataclass(frozen=True, slots=True)
class Compared:
    """The comparison of a victim with the next candidate in the ranking that was not evicted, the *candidate that stays*.

    ``place`` is the victim's rank among ``total`` candidates. ``place`` is 0 if the victim comes before the part of the ranking
    that is stored. ``stays`` is the key of the candidate that stays, or "" if there is no such candidate. ``stays_place`` is
    the rank of that candidate. ``key`` is the first sort key in which the victim and the candidate that stays differ. ``own``
    is the value of the candidate that stays, and ``other`` is the value of the victim. ``before`` says that the candidate that
    stays comes before the victim. In that case no sort key decided, because a set of victims without that candidate was better.
    """

    victim: str
    place: int
    total: int
    stays: str = ""
    stays_place: int = 0
    key: str = ""
    own: Rank = 0
    other: Rank = 0
    before: bool = False


@dataclass(frozen=True, slots=True)
class NextNode:
    """The comparison of the chosen node with the next node in the ranking, by the first sort key in which the two nodes differ.

    ``next_value``, the value of the next node, is a lower bound, because the search for victims ends before it knows the exact
    value.
    """

    chosen: str
    following: str
    key: str
    value: Rank
    next_value: Rank


def compared(record: DecisionRecord, ranking: Ranking, victim: str) -> Compared | None:
    """Return the comparison of a victim with the next candidate that stays. Return None if the victim was not ranked."""
    place = ranking.place(victim)
    if not place:
        return Compared(victim, 0, ranking.total) if ranking.start else None
    victims = {one.key for one in record.victims}
    return _beside(ranking, place - ranking.start - 1, victims)


def _beside(ranking: Ranking, at: int, victims: set[str]) -> Compared:
    chosen = ranking.ranked[at]
    key, place = str(chosen[-1]), ranking.start + at + 1
    stays = [n for n, one in enumerate(ranking.ranked) if _stays(one, ranking, victims)]
    after = next((n for n in stays if n > at), None)
    if after is not None:
        other = ranking.ranked[after]
        differs, own, value = difference_of(ranking, other, chosen)
        named = str(other[-1]), ranking.start + after + 1
        return Compared(key, place, ranking.total, *named, differs, own, value)
    if stays:
        other = ranking.ranked[stays[-1]]
        named = str(other[-1]), ranking.start + stays[-1] + 1
        return Compared(key, place, ranking.total, *named, before=True)
    return Compared(key, place, ranking.total)


def _stays(one: Ranked, ranking: Ranking, victims: set[str]) -> bool:
    """Return whether a candidate was not evicted although no rule protects it."""
    return one[-1] not in victims and ranking.rules.get(str(one[-1]), "") in {"", NOT_NEEDED}


def next_node(ranking: Ranking) -> NextNode | None:
    """Return the next node after the chosen node in the ranking. Return None if the decision did not compare nodes."""
    if len(ranking.rivals) < 2:  # noqa: PLR2004 - the chosen node and another
        return None
    chosen, *others = ranking.rivals
    following: Rival = min(others)
    at = first_difference(chosen, following)
    key = NODE_KEYS[at] if at < len(NODE_KEYS) else "node"
    return NextNode(chosen.node_id, following.node_id, key, chosen[at], following[at])
