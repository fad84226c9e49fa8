"""A quota run in progress: the amounts that are still to be freed, the amounts that each queue can lose, and the victims (Q12, Q13, Q15).

Amounts are lists by column. The target types come first, then the types that some queue on a path guarantees.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from server.preemption.policy import Rule
from server.snapshot.victims_in_order import CandidatePlace, Lot, Running

STRIDE: Final = 256
"""The number of candidates that are taken together at first. Each time all of these candidates can be taken, the number doubles.
"""
STRIDE_MOST: Final = 8_192
WORTHWHILE: Final = 32
"""The smallest number of candidates for which taking them together saves time.

If the last attempt could take fewer candidates together, the next candidates are taken one by one.
"""
SEARCHED_MOST: Final = 16
"""The largest number of candidates among which a set is searched for when a run misses its target (Q15)."""

Line = list[int]
PathMargins = tuple[Line, ...]
"""The amounts by which the usage of each queue from a leaf to the root may fall, by column."""


@dataclass(slots=True)
class Budgets:
    """The disruptions that each disruption group has left (V5).

    ``mode`` says how groups without a disruption left are handled: respect, prefer or ignore.
    """

    mode: str = "ignore"
    groups: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)

    def exhausted(self, place: int) -> bool:
        """Return whether one of the candidate's disruption groups has no disruption left."""
        for group in self.groups.get(place, ()):  # noqa: SIM110 - thousands of times a run
            if self.left[group] <= 0:
                return True
        return False

    def fork(self) -> "Budgets":
        """Return a copy of the budgets. Victims that are counted in the copy are not counted in this object."""
        return Budgets(self.mode, self.groups, dict(self.left))

    def count_all(self, places: Iterable[int]) -> None:
        """Count victims. Each victim uses up one disruption of each of its disruption groups."""
        for place in places:
            self.count(place, 1)

    def count(self, place: int, sign: int) -> None:
        """Count a victim in its budgets (``sign`` 1), or no longer count it (``sign`` -1)."""
        for group in self.groups.get(place, ()):
            self.left[group] -= sign


@dataclass(slots=True)
class Step:
    """The work of a run in one leaf.

    A step has the amounts to be freed in the leaf, and the victims that were taken there so far.
    """

    wanted: Line
    """The amounts that are still to be freed in the leaf."""
    lines: tuple[Line, ...]
    """The lists from which the amounts of each victim are subtracted.

    The first list is ``wanted``. The second has the amounts that the whole run still has to free. The third has, by column, the
    smallest of the amounts that the queues on the leaf's path can lose.
    """
    because: str
    """The rule by which the victims are taken."""
    places: list[int] = field(default_factory=list)
    """The places of the victims."""

    @property
    def is_short(self) -> bool:
        """Return whether an amount is still to be freed."""
        return max(self.wanted, default=0) > 0


class RunInProgress:
    """A quota run in progress."""

    __slots__ = ("_budgets", "_late", "_overshoot", "margins", "rest", "running", "spared", "taken")

    def __init__(
        self,
        running: Running,
        target: Sequence[int],
        margins: Mapping[str, PathMargins],
        overshoot: str = "last",
        budgets: Budgets | None = None,
    ) -> None:
        self.running = running
        self.rest = list(target)
        """For each target type, the amount that is still to be freed. An amount in ``rest`` is negative if more was freed."""
        self.margins = margins
        """For each leaf, the amounts that each queue on its path can lose.

        The paths of several leaves share the lists of their common queues.
        """
        self.taken: dict[int, str] = {}
        """For each victim, the rule by which it was taken. The key is the victim's *place*, its position in the order of Q11.

        Allocations that are not candidates have a place, too.
        """
        self.spared: dict[int, Rule] = {}
        """For each candidate that was skipped, the rule that protected it last, by place.

        A candidate that is in neither ``taken`` nor ``spared`` was not needed.
        """
        self._overshoot = overshoot
        self._budgets = budgets or Budgets()
        self._late: set[int] = set()

    @property
    def is_short(self) -> bool:
        """Return whether a part of the target is still to be freed."""
        return max(self.rest, default=0) > 0

    # Steps ----------------------------------------------------------------------------------------------

    def walk(self, leaf: str, lot: Lot, share: Sequence[int], because: str) -> Line:
        """Free a leaf's share of the target, without victims that this share does not need (Q12).

        Return the freed amounts, by target type.
        """
        before, wanted, margin = list(self.rest), list(share), _narrowest(self.margins[leaf])
        whole = list(margin)
        step = Step(wanted, (wanted, self.rest, margin), because)
        if self._budgets.groups:
            self._walk_grouped(lot, step)
        else:
            self._walk(lot, step)
        _lower(self.margins[leaf], [had - has for had, has in zip(whole, margin, strict=True)])
        self._give_back(step.places, wanted, wanted)
        return [had - has for had, has in zip(before, self.rest, strict=True)]

    def _walk(self, lot: Lot, step: Step) -> None:
        """Free a leaf's share of the target in a run without disruption budgets.

        Take many candidates at once if all of them can be taken. Otherwise take them one by one.
        """
        at = 0
        while at < len(lot) and step.is_short:
            at, productive = self._together(lot, at, step)
            if step.is_short:
                stop = at + (1 if productive else STRIDE)
                self._one_by_one(lot.walk(at, stop), step)
                at = stop

    def _walk_grouped(self, lot: Lot, step: Step) -> None:
        """Free a leaf's share of the target in a run that has to consider disruption budgets (V5).

        First, many candidates are taken at once, in an order that assumes that every candidate is evicted at its turn. The
        remaining candidates are then taken one by one.
        """
        at, foreseen = 0, lot
        if self._budgets.mode == "prefer":
            late = self._foresee(lot)
            foreseen = self.running.reordered(lot, late) if late else lot
            at, _ = self._together(foreseen, 0, step)
            self._late.update(late.intersection(step.places))
            self._budgets.count_all(step.places)
        if at < len(lot) and step.is_short:
            self._one_by_one(self._in_turn(foreseen.rest(at)), step)

    def _together(self, lot: Lot, at: int, step: Step) -> tuple[int, bool]:
        """Take one candidate after the other, from index ``at`` on, and stop at the first candidate that cannot be taken.

        Return the index after the last candidate that was taken, and whether so many were taken that the method is worth another
        call.
        """
        start, stride = at, STRIDE
        while at < len(lot) and step.is_short:
            count, total = lot.takeable(at, stride, step.wanted, self._bounds(step))
            _lower(step.lines, total)
            places = lot.part(at, at + count)
            self.taken.update(dict.fromkeys(places, step.because))
            step.places += places
            at += count
            if count < stride:
                break
            stride = min(2 * stride, STRIDE_MOST)
        return at, at - start >= WORTHWHILE

    def _bounds(self, step: Step) -> Line:
        """Return, for each column, the largest amount that may be freed.

        With `overshoot: none`, the amount is at most the rest of the target (Q13).
        """
        margin = step.lines[-1]
        if self._overshoot != "none":
            return margin
        capped = [min(pair) for pair in zip(self.rest, margin, strict=False)]  # Q13
        return [*capped, *margin[len(capped) :]]

    def _one_by_one(self, candidates: Iterable[CandidatePlace], step: Step) -> None:
        """Take the candidates in turn until all target types are met (Q12)."""
        for one in candidates:
            if not step.is_short:
                return
            if self._considers(one, step.wanted, step.lines[-1:]):
                self._take(one, step.lines, step.because)
                step.places.append(one.place)

    def walk_all(self, because: str) -> bool:
        """Take victims from all remaining candidates, without regard to the leaves' shares of the target (Q15).

        Return whether any victim was taken.
        """
        lacking = [at for at, left in enumerate(self.rest) if left > 0]
        margin = {leaf: _narrowest(margins) for leaf, margins in self.margins.items()}
        lot, beyond = self.running.restricted(self.taken, lacking, margin)
        self.spared.update(dict.fromkeys(beyond, Rule.BELOW_GUARANTEE))
        before = len(self.taken)
        for one in self._in_turn(lot.walk()):
            if not self.is_short:
                break
            margins = self._path(one)
            if self._considers(one, self.rest, margins):
                self._take(one, (self.rest, *margins), because)
        return len(self.taken) > before

    def _path(self, one: CandidatePlace) -> PathMargins:
        return self.margins[self.running.leaves[one.home]]

    def _in_turn(self, candidates: Iterable[CandidatePlace]) -> Iterator[CandidatePlace]:
        """Yield the candidates in the order of Q11.

        A candidate whose disruption group has no disruption left at the candidate's turn counts as opted out (V5).
        """
        if self._budgets.mode != "prefer" or not self._budgets.groups:
            yield from candidates
            return
        for _, alike in groupby(self._ranked(candidates), key=lambda pair: pair[0] >> 1):
            late: list[CandidatePlace] = []
            for rank, one in alike:
                if rank & 1 or self._budgets.exhausted(one.place):
                    late.append(one)
                else:
                    self._late.discard(one.place)
                    yield one
            yield from self._as_opted_out(late)

    def _ranked(self, candidates: Iterable[CandidatePlace]) -> Iterator[tuple[int, CandidatePlace]]:
        whole = list(candidates)
        return zip(self.running.rank([one.place for one in whole]), whole, strict=True)

    def _as_opted_out(self, late: Iterable[CandidatePlace]) -> Iterator[CandidatePlace]:
        importance = self.running.importance
        for one in sorted(late, key=lambda one: importance(one.place, as_opted_out=True)):
            self._late.add(one.place)
            yield one

    def _foresee(self, lot: Lot) -> set[int]:
        """Return the places of the candidates that would count as opted out if each candidate were evicted at its turn (V5).

        Such a candidate has a disruption group that has no disruption left at the candidate's turn.
        """
        late: set[int] = set()
        left = self._budgets.fork()
        grouped = [place for place in lot.part(0, len(lot)) if place in left.groups]
        alike, waiting = -1, list[int]()
        for rank, place in zip(self.running.rank(grouped), grouped, strict=True):
            if rank >> 1 != alike:
                left.count_all(waiting)
                late.update(waiting)
                alike, waiting = rank >> 1, []
            if not rank & 1 and left.exhausted(place):
                waiting.append(place)
            else:
                left.count(place, 1)
        late.update(waiting)
        return late

    # One candidate --------------------------------------------------------------------------------

    def _considers(self, one: CandidatePlace, wanted: Line, margins: Sequence[Line]) -> bool:
        """Return whether a candidate may be taken.

        Record the rule that protects the candidate, if there is one. `NOT_NEEDED` is not recorded.
        """
        rule = self._objection(one, wanted, margins)
        if rule is not None and rule is not Rule.NOT_NEEDED:
            self.spared[one.place] = rule
        return rule is None

    def _objection(self, one: CandidatePlace, wanted: Line, margins: Sequence[Line]) -> Rule | None:
        size = one.size
        if not any(left > 0 and size[at] for at, left in enumerate(wanted)):
            # Q12: the candidate holds no target type of which more must be freed.
            return Rule.NOT_NEEDED
        for margin in margins:
            for at, amount in enumerate(size):
                if amount and amount > margin[at]:
                    # Q12: a queue from the candidate's leaf to the root would be below its
                    # entitlement.
                    return Rule.BELOW_GUARANTEE
        if self._overshoot == "none" and not _is_within(size, self.rest):
            return Rule.OVERSHOOT  # Q13
        if self._budgets.mode == "respect" and self._budgets.exhausted(one.place):
            return Rule.BUDGET  # V5
        return None

    def _take(self, one: CandidatePlace, lines: Sequence[Line], because: str) -> None:
        self.taken[one.place] = because
        self._budgets.count(one.place, 1)
        _lower(lines, one.size)

    def _spare(self, place: int, lines: Sequence[Line]) -> None:
        """Remove a victim from the run.

        The amounts of the victim are added to the amounts to be freed, in ``lines`` and in ``rest``. The queues on the victim's
        path can lose these amounts again.
        """
        del self.taken[place]
        self._budgets.count(place, -1)
        _lower((*lines, self.rest, *self.margins[self.running.leaf(place)]), self._negative(place))

    def _negative(self, place: int) -> Line:
        return [-amount for amount in self.running.size(place)]

    # Changes to all victims -----------------------------------------------------------------------

    def give_back(self) -> None:
        """Remove from the run each victim that is not needed, the most protected first (Q12, Q15)."""
        self._give_back(list(self.taken), self.rest)

    def _give_back(self, places: Sequence[int], wanted: Line, *lines: Line) -> None:
        """Remove from the run the victims at these places that are not needed for the wanted amounts.

        The amounts of such a victim are added to the amounts to be freed, in ``lines`` and in ``rest``. The queues on the
        victim's path can lose these amounts again.
        """
        over = [max(0, -left) for left in wanted]
        if not any(over) or not places:
            return
        late = self._late.intersection(places)
        for place in self.running.needless(places, over, late):
            self._spare(place, lines)

    def search(self, because: str) -> None:
        """Replace the victims by the first set in the order of Q11 that meets the target and respects all margins (Q15).

        If there is no such set, keep the victims.
        """
        found, late = dict(self.taken), set(self._late)
        for place in found:
            self._spare(place, ())
        candidates = list(self._in_turn(self.running.candidates.walk()))
        if self._reaches(candidates, 0, _suffixes(candidates, len(self.rest)), because):
            return
        self._late = late
        for one in candidates:
            if one.place in found:
                self._take(one, (self.rest, *self._path(one)), found[one.place])

    def _reaches(
        self, candidates: Sequence[CandidatePlace], start: int, left: Sequence[Line], because: str
    ) -> bool:
        """Take a set of candidates from index ``start`` on that meets the target. Return whether there is such a set.

        ``left`` has, for each position, the sum of the amounts of all candidates at this position or later.
        """
        if not self.is_short:
            return True
        for at in range(start, len(candidates)):
            if not _is_within(self.rest, left[at]):
                return False
            one = candidates[at]
            margins = self._path(one)
            if self._objection(one, self.rest, margins) is None:
                self._take(one, (self.rest, *margins), because)
                if self._reaches(candidates, at + 1, left, because):
                    return True
                self._spare(one.place, ())
        return False


def _narrowest(margins: PathMargins) -> Line:
    """Return, by column, the smallest of the amounts by which the usages of these queues may fall."""
    return [min(column) for column in zip(*margins, strict=True)]


def _lower(lines: Iterable[Line], size: Sequence[int]) -> None:
    for line in lines:
        for at in range(len(line)):
            line[at] -= size[at]


def _is_within(size: Sequence[int], margin: Sequence[int]) -> bool:
    """Return whether every positive amount of ``size`` is at most the amount in the same column of ``margin``.

    Columns that only ``size`` or only ``margin`` has are ignored.
    """
    for amount, have in zip(size, margin, strict=False):
        if amount > have and amount > 0:
            return False
    return True


def _suffixes(candidates: Sequence[CandidatePlace], width: int) -> list[Line]:
    """Return, for each position, the sum of the amounts of all candidates at this position or later, in the first ``width`` columns."""
    sums = [[0] * width]
    for one in reversed(candidates):
        sums.append([have + more for have, more in zip(sums[-1], one.size, strict=False)])
    return sums[::-1]
