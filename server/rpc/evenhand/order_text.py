"""The sentences that say why a decision evicted these victims and not others, limited to what a caller may read."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from server.core.queries import why_victims
from server.core.queries.near_decisions import ALLOCATION_KEY
from server.core.queries.why_victims import Compared, NextNode
from server.model.phrases import count
from server.model.ranking import Ranking
from server.model.records import DecisionRecord
from server.rpc.evenhand.near_text import difference

Names = Callable[[str], str]
Sees = Callable[[str], bool]
Later = Callable[[str], str]
"""The function from a candidate's key to the id of the later decision that evicts it. The id is "" if there is no such decision."""
ANOTHER_POD: Final = "another pod"
"""The text in place of the name of a pod that the caller may not read."""
_NODE_VALUES: Final[Mapping[str, str]] = {
    "opted-out": "the number of its victims that opted out is {}",
    "originators": "the number of originators among its victims is {}",
    "priority": "the highest priority of its victims is {}",
    "victims": "it needs {} victims",
}


def sentences(  # noqa: PLR0913, PLR0917 - what is told, and to whom
    record: DecisionRecord,
    ranking: Ranking,
    names: Names,
    sees: Sees,
    now: int,
    victim: str = "",
    *,
    later: Later,
    with_nodes: bool,
) -> Iterator[str]:
    """Yield sentences on why these victims were chosen.

    The sentences compare a victim with the next candidate that was not evicted, and name the sort key in which the two differ.
    With ``with_nodes``, a sentence compares the chosen node with the next node.

    ``record`` has all victims. ``victim`` is the victim to compare, by default the last victim that the caller sees. Without
    such a victim, yield nothing. ``later`` is called only for candidates that the caller sees.
    """
    queues = {one[-1]: path for one, path in zip(ranking.candidates, ranking.queues, strict=True)}
    queues |= {one.key: one.queue for one in record.victims}

    def called(key: str) -> str:
        return (names(key) or key) if sees(queues.get(key, "")) else ANOTHER_POD

    victims = {one.key for one in record.victims if sees(one.queue)}
    seen = [str(one[-1]) for one in ranking.ranked if one[-1] in victims]
    if not victim and not seen:
        return
    found = why_victims.compared(record, ranking, victim or seen[-1])
    if found is None:
        return
    may_read = bool(found.stays) and sees(queues.get(found.stays, ""))
    yield _beside(found, called, later(found.stays) if may_read else "", now)
    if ranking.total > 1:
        keys = ", ".join([*ranking.keys, ALLOCATION_KEY])
        yield f"Candidates are evicted by {keys}, the lowest first."
    following = why_victims.next_node(ranking)
    if with_nodes and following is not None:
        yield _of_nodes(following)


def _beside(found: Compared, called: Names, later: str, now: int) -> str:
    victim = called(found.victim)
    candidates = count(found.total, "candidate")
    if not found.place:
        return f"{victim} was among the first of {candidates}."
    where = f"{victim} was number {found.place} of {candidates}"
    if not found.stays:
        rest = "all of them were needed" if found.total > 1 else "no other could be evicted"
        return f"{where}: {rest}."
    stays = f"{called(found.stays)}, number {found.stays_place}"
    if found.before:
        why = "a set of victims without it needs fewer, or less important ones (G8)"
        after = f"stayed until decision {later} evicted it" if later else "stays"
        return f"{where}; {stays}, {after}: {why}."
    why = difference(found.key, found.own, found.other, victim, now)
    following = (
        f"the next candidate is {stays}, evicted later by decision {later}"
        if later
        else f"the next that is not evicted is {stays}"
    )
    return f"{where}; {following}: {why} (key: {found.key})."


def _of_nodes(found: NextNode) -> str:
    chosen, following = f"Node {found.chosen} was chosen", f"node {found.following}"
    if found.key == "excess":
        return (
            f"{chosen}: its victims free less beyond what is needed than those of {following} (G8)."
        )
    if found.key not in _NODE_VALUES:
        return f"{chosen}: its victims equal those of {following}, and its name comes first (G8)."
    value = _NODE_VALUES[found.key].format(found.value)
    return f"{chosen}: {value}; on {following}, the next, it is {found.next_value} or more (G8)."
