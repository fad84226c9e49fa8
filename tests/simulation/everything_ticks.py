"""Checks of whole ticks: no exceeded budgets, no gangs placed in part, no wrong sums of shares, no traces of failed plans."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from server.core.core import Core
from server.core.queries.queue_reports import share_reports
from server.model.decisions import (
    AskRejected,
    AskStateChanged,
    Decided,
    Decision,
    Noted,
    Placed,
    Released,
    ShadowDecided,
)
from server.model.quota import PreemptionSettings
from server.model.reasons import Code
from server.state.partition import Partition as LivePartition
from tests.preemption.attack_account import Partition, Pod
from tests.simulation.everything_invariants import CLAIMS, Judge, OverUse, is_below

Measure = tuple[str, str]
"""The kind of a budget, and the name of the object that it limits."""
LOSS: Final = "loss"
"""The measure of what a queue loses to preemptors that are not below it (P9)."""
TALK: Final = (Noted, AskStateChanged, ShadowDecided, AskRejected)
"""Decisions that change nothing."""
ACTS: Final = (Code.RESERVED, Code.RESERVATION_DROPPED, Code.QUOTA_RUN, Code.PREEMPTION_STORM)
"""Codes of notes that report a change."""

# Budgets ------------------------------------------------------------------------------------------------------------


@dataclass
class Round:
    """One round: when it began, what queues had over their entitlements then, and the resources of its victims.

    ``over`` is None when the account cannot know it, or when it was not needed.
    """

    began_ms: int
    mark: object
    over: OverUse | None
    taken: Counter[tuple[Measure, str]] = field(default_factory=Counter)


@dataclass
class Budgets:
    """The releases of the rounds of one partition, counted literally as the specification says (P1, P5)."""

    rounds: list[Round] = field(default_factory=list)
    bound: int = 0
    """Number of decisions that a budget limited: those after the first decision of a round."""
    parts: int = 0
    """Number of times that the limiting budget was a part of a queue's use beyond its entitlement."""

    def ticked(
        self, one_partition: LivePartition, judge: Judge, decisions: Iterable[Decision], now: int
    ) -> None:
        """Check the decisions of a tick against the budgets; only the round of a decision is read from the core."""
        settings = one_partition.spec.preemption
        state = one_partition.round
        mark = state.released[-1] if state.released else None
        if mark is not None and (not self.rounds or self.rounds[-1].mark is not mark):
            if self.rounds and state.began_ms is not None and not settings.observe_only:
                gap = state.began_ms - self.rounds[-1].began_ms
                assert gap >= settings.rounds_interval_ms, f"a round {gap} ms after the last (P1)"
            over = judge.over_uses.get(one_partition.name)
            self.rounds.append(Round(state.began_ms or now, mark, over))
        if settings.observe_only:
            return
        for taken in _claims(decisions, one_partition.name, judge):
            if self.rounds:
                self._decided(judge.partitions[one_partition.name], settings, taken, now)

    def _decided(
        self,
        known: Partition,
        settings: PreemptionSettings,
        taken: Counter[tuple[Measure, str]],
        now: int,
    ) -> None:
        last = self.rounds[-1]
        self.bound += bool(last.taken)
        for (measure, kind), amount in taken.items() if last.taken else ():
            used = self._used((measure, kind), settings, now)
            most = self._most(known, settings, measure, kind)
            assert most is None or used + amount <= most, (
                f"{measure}: {used} + {amount} of {most} {kind} (13)"
            )
        last.taken += taken

    def _used(self, what: tuple[Measure, str], settings: PreemptionSettings, now: int) -> int:
        if what[0][0] == LOSS:
            return self.rounds[-1].taken[what]
        began = now - settings.pace_window_ms
        counted = [one for one in self.rounds[:-1] if one.began_ms > began]
        return sum(one.taken[what] for one in [*counted, self.rounds[-1]])

    def _most(
        self, known: Partition, settings: PreemptionSettings, measure: Measure, kind: str
    ) -> int | None:
        """Return the most that a round may release of a type.

        For a queue, this is a part of its use beyond its entitlement or, if that is less, of what a round may
        release in all (P9).
        """
        if measure[0] != LOSS:
            return _most(known, settings, measure[0], kind)
        part, over = settings.natural_permyriad, (self.rounds[-1].over or {}).get(measure[1], {})
        if part in {0, 10_000} or over.get(kind, 0) <= 0:
            return None
        self.parts += 1
        allowed = _most(known, settings, "partition", kind)
        return min(one for one in (over[kind], allowed) if one is not None) * part // 10_000


def _claims(
    decisions: Iterable[Decision], partition: str, judge: Judge
) -> Iterator[Counter[tuple[Measure, str]]]:
    """Yield, for each claim, the resources of its victims by measure and type."""
    found: dict[str, Counter[tuple[Measure, str]]] = {}
    askers: dict[str, list[str]] = {}
    for one in decisions:
        if isinstance(one, Decided) and one.record.partition == partition:
            if one.record.policy in CLAIMS and "rebuilt" not in one.record.summary:
                found[one.record.decision_id] = Counter()
                leaves = [each.queue for each in one.record.beneficiaries]
                askers[one.record.decision_id] = leaves
        elif isinstance(one, Released) and one.decision_id in found:
            pod = judge.partitions[partition].pods[one.key]
            for measure in _measures(judge, partition, pod, askers[one.decision_id]):
                for kind, amount in pod.spec.resource:
                    found[one.decision_id][measure, kind] += amount
    yield from (taken for taken in found.values() if taken)


def _measures(judge: Judge, partition: str, pod: Pod, askers: list[str]) -> list[Measure]:
    queue = judge.path_of(partition, pod)
    up = [path for path, _ in judge.path_up(partition, queue)]
    own = [path for path in up if not any(is_below(one, path) for one in askers)]
    budgets = [("partition", ""), ("queue", queue), ("application", pod.application)]
    return budgets + [(LOSS, path) for path in own]


def _most(known: Partition, settings: PreemptionSettings, measure: str, kind: str) -> int | None:
    share = {
        "partition": settings.pace_permyriad,
        "queue": settings.pace_queue_permyriad,
        "application": settings.pace_application_permyriad,
    }[measure]
    total = sum(node.capacity.get(kind, 0) for node in known.nodes.values())
    return total * share // 10_000 if share else None


# Gangs ----------------------------------------------------------------------------------------------------------------


def check_gangs(judge: Judge, decisions: Sequence[Decision]) -> None:
    """Assert that after a placement of a gang, at least its minimum number of members have a place that they keep (invariant 9).

    A member that is evicted in the same tick by a later decision counts as placed.
    """
    found = {
        (one.partition, one.application_id, one.spec.gang_key): at
        for at, one in enumerate(decisions)
        if isinstance(one, Placed) and one.spec.gang_key
    }
    for (partition, application, job), at in found.items():
        later = {one.key for one in decisions[at:] if isinstance(one, Released)}
        pods = judge.partitions[partition].pods.values()
        mine = [one for one in pods if (one.application, one.spec.gang_key) == (application, job)]
        stay = [one for one in mine if one.node and (one.dying is None or one.key in later)]
        least = max((one.spec.min_members for one in stay), default=0)
        assert len(stay) >= least, f"{len(stay)} of {least} members of {job} have places (9)"
        judge.seen["gangs placed"] += 1


# Shares ---------------------------------------------------------------------------------------------------------------


def check_shares(core: Core, judge: Judge) -> None:
    """Assert that siblings deserve at most their parent's share, and that allocated and preempting shares add up to it (14, W5, W7)."""
    for name, one_partition in core.state.partitions.items():
        told = share_reports(one_partition)
        judge.seen["shares"] += bool(told)
        for path, spec in judge.queues(name).items() if told else ():
            names = [f"{path}.{child.name}" for child in spec.children]
            for kind, share in told[path].deserved.items():
                parts = [told[one].deserved.get(kind, 0) for one in names]
                assert sum(parts) <= share, f"{path}: {parts} of {share} {kind} (14)"
                now, coming = (
                    sum(getattr(told[one], word).get(kind, 0) for one in names)
                    for word in ("allocated", "preempting")
                )
                assert now + coming == sum(parts), f"{path}: {now} + {coming} of {parts} (W7)"
        _check_root(judge, name, told)


def _check_root(judge: Judge, name: str, told: dict) -> None:  # type: ignore[type-arg]
    known = judge.partitions[name]
    open_ = [key for key, node in known.nodes.items() if node.open]
    for kind, share in told["root"].deserved.items() if told else ():
        there = sum(known.nodes[key].capacity.get(kind, 0) for key in open_)
        there -= sum(size.get(kind, 0) for node, size in known.foreign.values() if node in open_)
        assert share <= max(0, there), f"the root deserves {share} of {there} {kind} (14)"


# Nothing happened -------------------------------------------------------------------------------------------------------


def standing(core: Core) -> object:
    """Return all amounts, placements and open decisions, which a failed plan must not change."""
    return [
        (
            name,
            [
                (path, *map(tuple, (queue.usage, queue.promised, queue.releasing)))
                for path, queue in one_partition.queues.items()
            ],
            [(node.node_id, tuple(node.free)) for node in one_partition.index.nodes.values()],
            [
                (key, one.state, tuple(one.victims), tuple(one.pledges))
                for key, one in one_partition.decisions.open.items()
            ],
            [
                (ask.key, ask.node and ask.node.node_id, ask.releasing)
                for ask in one_partition.asks.values()
            ],
        )
        for name, one_partition in core.state.partitions.items()
    ]


def is_talk(decisions: Iterable[Decision]) -> bool:
    """Return whether none of a tick's decisions reports a change of the state."""
    return all(
        isinstance(one, TALK) and not (isinstance(one, Noted) and one.code in ACTS)
        for one in decisions
    )
