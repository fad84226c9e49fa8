"""The outcome of a quota run: its result, the reason why the run did not free more, and the protected candidates by rule (Q14)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from server.model.lines import lines
from server.model.records import Amounts, Level, Shrink, ShrinkResult
from server.preemption.policy import SPARED_KEYS_MAX, ProtectedCandidates, Release, Rule
from server.preemption.quota.run import Line, RunInProgress
from server.snapshot.columns import FIRM, RELEASING, REPLACED, REQUIRED_NODE, UNTOUCHABLE, VETOED
from server.snapshot.queues import QueueFacts
from server.snapshot.snapshot import Snapshot

BARS: Final = {
    RELEASING: Rule.RELEASING,
    REQUIRED_NODE: Rule.REQUIRED_NODE,
    REPLACED: Rule.REPLACED,
    UNTOUCHABLE | VETOED: Rule.UNTOUCHABLE,
    FIRM: Rule.FIRM,
}
"""The flags that exclude an allocation as a candidate, each with its rule (Q10, V3)."""
BLOCKING: Final = (Rule.BELOW_GUARANTEE, Rule.OVERSHOOT, Rule.BUDGET)
"""The rules by which a candidate is skipped when it is next in the order (Q12, Q13, V5)."""
REASONS: Final = (*BARS.values(), Rule.NO_COMMON_TYPE, Rule.NOT_NEEDED, *BLOCKING)
"""The rules that protect an allocation. The rules that exclude it as a candidate come first, in the order of the flags."""
WHOLE: Final = 10_000
"""A share of 100 %, in hundredths of a percent."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The outcome of a run."""

    snapshot: Snapshot
    queue: str
    run: RunInProgress
    target: Line
    """The amounts that the run has to free, by column of the target."""
    types: Sequence[int]
    """The type index of each column, the columns of the target first."""

    def shrink(self) -> Shrink:
        """Return the amount that the run frees, the missing amount of its target, and why the run did not free more (Q14)."""
        rule, queue = self._block()
        freed = [amount - left for amount, left in zip(self.target, self.run.rest, strict=True)]
        return Shrink(
            queue=self.queue,
            target=self._named(self.target),
            freed=self._named(freed),
            missing=self._named([max(0, left) for left in self.run.rest]),
            result=self.result(),
            candidates=len(self.run.running.candidates),
            blocked_by=rule,
            blocking_queue=queue,
        )

    def result(self) -> ShrinkResult:
        """Return the result of the run. The result is computed from the victims, and does not influence their choice (Q14)."""
        if not self.run.is_short:
            return ShrinkResult.COMPLETE
        if not self.run.taken:
            return ShrinkResult.IMPOSSIBLE
        miss = self.snapshot.queues[self.queue].spec.properties.quota_miss_permyriad
        pairs = zip(self.run.rest, self.target, strict=True)
        if all(left * WHOLE <= miss * amount for left, amount in pairs):
            return ShrinkResult.WITHIN_MISS
        return ShrinkResult.SHORTFALL

    @property
    def abstains(self) -> bool:
        """Return whether the queue is set to evict nothing when a run would free too little (`abstain`, Q14)."""
        return self.snapshot.queues[self.queue].spec.properties.quota_shortfall == "abstain"

    def _named(self, line: Sequence[int]) -> Amounts:
        names = self.snapshot.types
        pairs = [(names[index], amount) for index, amount in zip(self.types, line, strict=False)]
        return {name: amount for name, amount in sorted(pairs) if amount}

    # Obstacles of a run ---------------------------------------------------------------------------

    def _last_skipped(self) -> tuple[int, Rule] | None:
        """Return the most important candidate that was skipped and is not evicted, with the rule that protected it.

        Return None if there is no such candidate.
        """
        run = self.run
        skipped = [
            (place, rule)
            for place, rule in run.spared.items()
            if rule in BLOCKING and place not in run.taken
        ]
        return max(skipped, default=None)

    def _block(self) -> tuple[str, str]:
        last = self._last_skipped()
        if last is None:
            return self._bar(), ""
        place, rule = last
        queue = self._protected_queue(place) if rule is Rule.BELOW_GUARANTEE else None
        return rule.value, queue.path if queue is not None else ""

    def _bar(self) -> str:
        """Return the rule that excluded the most important allocation that holds some of the target.

        Return "" if the run meets its target, or if no such allocation was excluded.
        """
        reason = self.run.running.last_barred(len(BARS)) if self.run.is_short else None
        return REASONS[reason].value if reason is not None else ""

    def _protected_queue(self, place: int) -> QueueFacts | None:
        """Return the lowest queue that would be below its entitlement at the end of the run if this candidate were evicted as well.

        Return None if there is no such queue.
        """
        running, run = self.run.running, self.run
        leaf, size = running.leaf(place), running.size(place)
        for queue, margin in zip(self.snapshot.path_up(leaf), run.margins[leaf], strict=True):
            if any(amount > margin[at] for at, amount in enumerate(size) if amount):
                return queue
        return None

    def levels(self) -> tuple[Level, ...]:
        """Return the amounts of the queue whose guarantee prevented the run from freeing more.

        There is one level for each type that the queue guarantees.

        Return () if there is no such queue.
        """
        last = self._last_skipped()
        queue = self._protected_queue(last[0]) if last and last[1] is Rule.BELOW_GUARANTEE else None
        if queue is None:
            return ()
        facts = zip(self.snapshot.types, queue.guaranteed, queue.max, queue.usage, strict=True)
        return tuple(
            Level(queue.path, "blocking", name, least, most, used)
            for name, least, most, used in facts
            if least
        )

    # Victims and protected pods -------------------------------------------------------------------

    def releases(self) -> tuple[Release, ...]:
        """Return the victims, least important first."""
        taken = self.run.taken
        places = sorted(taken)
        because = map(taken.__getitem__, places)
        return tuple(lines(Release, *self.run.running.victims(places), because))

    def standing(self, key: str) -> tuple[int, int, str]:
        """Return the rank of an allocation among the candidates, the number of all candidates, and the rule that protects the allocation.

        Ranks are counted from 1. The rank is 0 for an allocation that is not a candidate. The rule is "" for a victim.
        """
        place, number, total, reason = self.run.running.standing(key)
        if place in self.run.taken:
            return number, total, ""
        otherwise = Rule.NOT_NEEDED if number else REASONS[reason]
        return number, total, self.run.spared.get(place, otherwise).value

    def spared(self) -> tuple[ProtectedCandidates, ...]:
        """Return the protected candidates, by rule and leaf (design 6.8)."""
        return tuple(self._spared())

    def _spared(self) -> Iterator[ProtectedCandidates]:
        run = self.run
        reasons = {place: REASONS.index(rule) for place, rule in run.spared.items()}
        otherwise = REASONS.index(Rule.NOT_NEEDED)
        for reason, leaf, count, keys in run.running.spared(
            run.taken, reasons, otherwise, SPARED_KEYS_MAX
        ):
            yield ProtectedCandidates(REASONS[reason], leaf, count, keys)
