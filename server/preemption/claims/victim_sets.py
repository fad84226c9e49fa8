"""The victims on one node: the best set of candidates that covers all needs and exceeds no cap (G8).

A *need* is an amount of a type that has to be freed. A *cap* is the largest amount that a queue may lose, or the largest number
of pods that a disruption budget or a gang may lose. The cap of a queue is the amount that it uses above its guarantee. The cap
of a disruption budget is the number of its pods that may be evicted. A set that exceeds no cap is *legal*. A legal set stays
legal when one of its victims is removed. A victim that is not needed can therefore be removed from the set: the victim is
*given back*.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final, NamedTuple

from server.model.fit import Demand

SEARCHED_MAX: Final = 16
"""The number of candidates of a node among which branch and bound searches (G8)."""
STEPS_MAX: Final = 4_096
_PLACE: Final = attrgetter("place")

Key = tuple[int, int, int, int, int]
"""The key of a set: opted-out pods, originators, highest priority, number of victims, excess. The smallest key is the best (G8)."""


class Candidate(NamedTuple):
    """A candidate with the amounts that its eviction frees.

    ``gives`` has, for each need, the amount that the candidate frees. ``frees`` has the amounts that it frees on its node, by
    type. ``takes`` has the amounts of the caps that the candidate uses up, as pairs of the index of a cap and a quantity.
    ``place`` is the candidate's position in claim order. ``row`` is its row in the snapshot. ``over`` is used in partitions in
    which one victim may bring its queues below their shares. ``over`` lists the ways in which this candidate may be that
    victim. A way is a list of caps, by index. The candidate may be that victim in this way if at least one unit of each of
    these caps is left after the other victims are taken (W8).
    """

    place: int
    row: int
    opted: bool
    originator: bool
    priority: int
    gives: tuple[int, ...]
    takes: Demand
    frees: Demand
    over: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Task:
    """The needs that the victims of a node have to cover, the caps that they must not exceed, and the weights for excess.

    ``lacks`` are the amounts that the node lacks, by resource type. ``weights`` makes amounts of different types comparable.
    """

    needs: tuple[int, ...]
    caps: tuple[int, ...]
    lacks: tuple[int, ...]
    weights: tuple[int, ...]


class CoveringSet(NamedTuple):
    """A covering set, with its victims in claim order and its key. ``steps`` is the number of sets that branch and bound examined.

    ``cut`` says that the search reached its limit, so that a better set may exist.
    """

    victims: tuple[Candidate, ...]
    key: Key
    cut: bool = False
    steps: int = 0


class NotFound(NamedTuple):
    """The result of a search that found no covering set.

    ``cut`` says that the search reached its limit, so that a set may exist. ``steps`` is the number of sets that the search
    examined.
    """

    cut: bool
    steps: int


def choose(candidates: Sequence[Candidate], task: Task) -> CoveringSet | NotFound:
    """Return the best legal set that covers the needs, or `NotFound`.

    ``candidates`` must be in claim order (V2). Each candidate must free an amount of at least one need, and must be legal as the
    only victim.
    """
    first = _walk(candidates, task) or _walk(sorted(candidates, key=_most_useful(task)), task)
    best = _better(_of(first, task) if first else None, _single(candidates, task))
    if best is not None and _meets_bound(best.key, candidates, task):
        return best
    return _Search(candidates, task, best).run()


def is_legal(one: Candidate, task: Task) -> bool:
    """Return whether the caps allow this candidate alone."""
    return _fits(one, task.caps)


def choose_with_boundary(candidates: Sequence[Candidate], task: Task) -> CoveringSet | None:
    """Return the best set in which exactly one victim brings its queues below their shares. Return None if there is no such set.

    That victim is the *boundary candidate*. This function may be called only with `proportion.overshoot: last` (W8), and only
    if no legal set covers the needs. The result may contain victims that are not needed.
    """
    best: CoveringSet | None = None
    for boundary in candidates:
        others = [one for one in candidates if one is not boundary]
        for places in boundary.over:
            kept = _task_of_others(boundary, places, task)
            rest = None if kept is None else _best_of_others(boundary, others, kept)
            if rest is not None:
                best = _better(best, _of((*rest, boundary), task))
    return best


def _task_of_others(boundary: Candidate, places: Sequence[int], task: Task) -> Task | None:
    """Return the task for all victims except ``boundary``.

    The boundary candidate is the one victim that may bring its queues below their shares.

    Until the boundary candidate is evicted, its queues must exceed their shares in one type, and must have at least their shares
    of every type that the candidate uses (W9). Return None if the caps of the task do not allow that.
    """
    caps = list(task.caps)
    for place in places:
        caps[place] -= 1
    if any(caps[place] < 0 for place, _ in boundary.takes):
        return None
    return replace(task, caps=tuple(caps))


def _best_of_others(
    boundary: Candidate, others: Sequence[Candidate], task: Task
) -> tuple[Candidate, ...] | None:
    """Return the best set of other victims that covers the remaining needs.

    The needs that the boundary candidate covers are subtracted first.

    Return None if there is no such set.
    """
    left = [max(0, need - given) for need, given in zip(task.needs, boundary.gives, strict=True)]
    open_ = [at for at, need in enumerate(left) if need]
    if not open_:
        return ()
    asked = replace(task, needs=tuple(left[at] for at in open_))
    legal = [one for one in others if is_legal(one, task)]
    helpful = [one._replace(gives=tuple(one.gives[at] for at in open_)) for one in legal]
    helpful = [one for one in helpful if any(one.gives)]
    found = choose(helpful, asked) if helpful else None
    if not isinstance(found, CoveringSet):
        return None
    rows = {one.row for one in found.victims}
    return tuple(one for one in others if one.row in rows)


def key_of(victims: Iterable[Candidate], task: Task) -> Key:
    """Return the key of a set of at least one victim. The smallest key is the best."""
    chosen = list(victims)
    freed = [0] * len(task.lacks)
    for one in chosen:
        for index, quantity in one.frees:
            freed[index] += quantity
    return (*_rank_of(chosen), _excess(freed, task))


def _rank_of(chosen: Sequence[Candidate]) -> tuple[int, int, int, int]:
    """Return the first four parts of the key of these victims. The last part is the excess."""
    opted = originators = 0
    highest = chosen[0].priority
    for one in chosen:
        opted += one.opted
        originators += one.originator
        highest = max(highest, one.priority)
    return opted, originators, highest, len(chosen)


def _excess(freed: Sequence[int], task: Task) -> int:
    """Return the excess: the largest part of the capacity of a type that the victims free beyond the lacking amount."""
    most = 0
    for one, lack, weight in zip(freed, task.lacks, task.weights, strict=True):
        if one > lack and (one - lack) * weight > most:
            most = (one - lack) * weight
    return most


def _of(victims: Sequence[Candidate], task: Task) -> CoveringSet:
    return CoveringSet(tuple(sorted(victims, key=_PLACE)), key_of(victims, task))


def _better(one: CoveringSet | None, other: CoveringSet | None) -> CoveringSet | None:
    if one is None or other is None:
        return one or other
    return other if other.key < one.key else one


# Greedy -------------------------------------------------------------------------------------------------------------


def _walk(order: Sequence[Candidate], task: Task) -> list[Candidate] | None:
    """Go through the candidates in order, and take each candidate that helps and is legal, until the needs are covered.

    Then remove the victims that are not needed (G8).

    Return None if the needs cannot be covered.
    """
    left, caps = list(task.needs), list(task.caps)
    taken: list[Candidate] = []
    for one in order:
        if not _helps(one, left) or not _fits(one, caps):
            continue
        taken.append(one)
        _take(one, left, caps)
        if max(left) <= 0:
            return _give_back(taken, left)
    return None


def _helps(one: Candidate, left: Sequence[int]) -> bool:
    for given, need in zip(one.gives, left, strict=True):  # noqa: SIM110 - for every candidate of every node
        if given and need > 0:
            return True
    return False


def _fits(one: Candidate, caps: Sequence[int]) -> bool:
    for index, quantity in one.takes:  # noqa: SIM110 - for every candidate of every node
        if caps[index] < quantity:
            return False
    return True


def _take(one: Candidate, left: list[int], caps: list[int]) -> None:
    for index, given in enumerate(one.gives):
        left[index] -= given
    for index, quantity in one.takes:
        caps[index] -= quantity


def _give_back(taken: list[Candidate], left: list[int]) -> list[Candidate]:
    """Return the victims that are needed (invariant 11). The most protected victim is examined first."""
    kept = list(taken)
    for one in sorted(taken, key=_protection)[::-1]:
        spared = [need + given for need, given in zip(left, one.gives, strict=True)]
        if max(spared) <= 0:
            kept.remove(one)
            left = spared
    return kept


def _protection(one: Candidate) -> tuple[bool, bool, int]:
    return one.opted, one.originator, one.priority


def _most_useful(task: Task) -> "_Usefulness":
    return _Usefulness(task.needs)


class _Usefulness:
    """The order of candidates by the part of the needs that a candidate covers, the largest part first.

    The parts are multiplied by the product of all needs, so that each part is an exact whole number.
    """

    def __init__(self, needs: Sequence[int]) -> None:
        self.needs = needs
        product = 1
        for need in needs:
            product *= need
        self.weights = [product // need for need in needs]

    def __call__(self, one: Candidate) -> int:
        parts = zip(one.gives, self.needs, self.weights, strict=True)
        return -sum(min(given, need) * weight for given, need, weight in parts)


# Bounds -------------------------------------------------------------------------------------------------------------


def _single(candidates: Sequence[Candidate], task: Task) -> CoveringSet | None:
    """Return the best candidate that covers the needs alone, or None.

    Among equal candidates, the first in claim order is the best.
    """
    alone = [one for one in candidates if _covers(one.gives, task.needs)]
    keys = [_key_alone(one, task) for one in alone]
    if not keys:
        return None
    key = min(keys)
    return CoveringSet((alone[keys.index(key)],), key)


def _key_alone(one: Candidate, task: Task) -> Key:
    """Return the key of a set with one victim."""
    freed = [0] * len(task.lacks)
    for index, quantity in one.frees:
        freed[index] = quantity
    return one.opted, one.originator, one.priority, 1, _excess(freed, task)


def _covers(gives: Sequence[int], needs: Sequence[int]) -> bool:
    for given, need in zip(gives, needs, strict=True):  # noqa: SIM110 - for every candidate of every node
        if given < need:
            return False
    return True


def _meets_bound(key: Key, candidates: Sequence[Candidate], task: Task) -> bool:
    """Return whether no covering set can have a better key than ``key``.

    For each part of the key there is a bound that depends on the parts before it.
    """
    opted, originators, priority, number, excess = key
    willing = [one for one in candidates if not one.opted]
    if opted and (opted > 1 or _suffice(willing, task)):
        return False
    plain = [one for one in (candidates if opted else willing) if not one.originator]
    if originators and (originators > 1 or _suffice(plain, task)):
        return False
    pool = candidates if originators or opted else plain
    if _suffice([one for one in pool if one.priority < priority], task):
        return False
    pool = [one for one in pool if one.priority <= priority]
    return number <= _fewest(pool, task) and (
        not excess or excess <= _least_vain(pool, task, number)
    )


def _suffice(candidates: Sequence[Candidate], task: Task) -> bool:
    """Return whether all of the candidates together cover the needs."""
    return all(
        sum(one.gives[index] for one in candidates) >= need for index, need in enumerate(task.needs)
    )


def _fewest(candidates: Sequence[Candidate], task: Task) -> int:
    """Return a lower bound on the number of candidates that cover the needs.

    For each need, the candidates that free the most are counted first.
    """
    fewest = 1
    for index, need in enumerate(task.needs):
        count, left = 0, need
        for given in sorted((one.gives[index] for one in candidates), reverse=True):
            if left <= 0:
                break
            left -= given
            count += 1
        fewest = max(fewest, count)
    return fewest


def _least_vain(candidates: Sequence[Candidate], task: Task, number: int) -> int:
    """Return a lower bound on the excess of every set of ``number`` candidates. For sets of one candidate the bound is exact."""
    if number == 1:
        alone = [one for one in candidates if _covers(one.gives, task.needs)]
        return min((_key_alone(one, task)[4] for one in alone), default=0)
    freed = [0] * len(task.lacks)
    for index in range(len(freed)):
        sizes = sorted(dict(one.frees).get(index, 0) for one in candidates)
        freed[index] = sum(sizes[:number])
    return _excess(freed, task)


# Branch and bound ---------------------------------------------------------------------------------------------------


class _Search:
    """The search over all sets of the first SEARCHED_MAX candidates in claim order, for up to STEPS_MAX steps.

    ``best`` is the best set so far. This search or an earlier search may have found it.
    """

    def __init__(
        self, candidates: Sequence[Candidate], task: Task, best: CoveringSet | None
    ) -> None:
        self.candidates = candidates[:SEARCHED_MAX]
        self.cut = len(candidates) > SEARCHED_MAX
        self.task = task
        self.best = best
        self.steps = 0
        self.rest = list(self._rests())
        self.kinds = list(self._kinds())
        self.most = [max(column, default=0) or 1 for column in self._columns()]

    def _kinds(self) -> Iterator[int]:
        """Yield a bit for each candidate. Candidates that are equal in all relevant values have the same bit."""
        bits: dict[tuple[object, ...], int] = {}
        for one in self.candidates:
            kind = (one.opted, one.originator, one.priority, one.gives, one.takes, one.frees)
            yield bits.setdefault(kind, 1 << len(bits))

    def _columns(self) -> Iterator[list[int]]:
        """Yield, for each need, a list with the amounts that the candidates free for it."""
        for index in range(len(self.task.needs)):
            yield [one.gives[index] for one in self.candidates]

    def _rests(self) -> Iterator[list[int]]:
        """Yield, for each candidate, the amounts that this candidate and all later candidates free together.

        There is one amount for each need.
        """
        for start in range(len(self.candidates) + 1):
            later = self.candidates[start:]
            yield [sum(one.gives[index] for one in later) for index in range(len(self.task.needs))]

    def run(self) -> CoveringSet | NotFound:
        self._descend(0, list(self.task.needs), list(self.task.caps), [])
        self.cut = self.cut or self.steps > STEPS_MAX
        if self.best is None:
            return NotFound(self.cut, self.steps)
        return self.best._replace(cut=self.cut, steps=self.steps)

    def _descend(
        self,
        start: int,
        left: list[int],
        caps: list[int],
        taken: list[Candidate],
        passed: int = 0,
    ) -> None:
        """Search the sets that extend ``taken``, first with and then without the candidate at index ``start``.

        ``passed`` has the bits of the kinds from which a candidate was left out. Another candidate of such a kind would not give
        a better set.
        """
        self.steps += 1
        if self.steps > STEPS_MAX:
            return
        if max(left) <= 0:
            self.best = _better(self.best, _of(taken, self.task))
            return
        if self._hopeless(start, left, taken):
            return
        one, kind = self.candidates[start], self.kinds[start]
        if not passed & kind and _helps(one, left) and _fits(one, caps):
            fewer, narrower = list(left), list(caps)
            _take(one, fewer, narrower)
            self._descend(start + 1, fewer, narrower, [*taken, one], passed)
        self._descend(start + 1, left, caps, taken, passed | kind)

    def _hopeless(self, start: int, left: list[int], taken: list[Candidate]) -> bool:
        """Return whether the candidates at index ``start`` and later free too little, or cannot lead to a better set than ``best``."""
        for need, more in zip(left, self.rest[start], strict=True):
            if need > more:
                return True
        if not taken or self.best is None:
            return False
        opted, originators, highest, number = _rank_of(taken)
        number += max(-(-need // most) for need, most in zip(left, self.most, strict=True))
        return (opted, originators, highest, number) > self.best.key[:4]
