"""Messages of `evenhand.v1` for decisions, verdicts and their parts. The functions are pure. The caller looks up the names of pods."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from evenhand.v1 import decisions_pb2 as pb
from server.model.ranking import NOT_NEEDED, Ranking
from server.model.records import (
    Beneficiary,
    DecisionRecord,
    DecisionState,
    Level,
    Lost,
    Shrink,
    ShrinkResult,
    Spared,
    Verdict,
    Victim,
    lost_amounts,
    lost_work,
)
from server.rpc.evenhand.redaction import VisibleDecision
from server.rpc.evenhand.rule_text import words
from server.rpc.limits import INT64_MAX, VICTIMS_TOLD_MAX

Names = Callable[[str], str]
"""A function that takes a key and returns the name of its pod, as namespace/name, or "" if the name is not known."""
Sees = Callable[[str], bool]
"""A function that says whether the caller may see all of a queue."""

STATES: Final = {
    DecisionState.PLANNED: pb.DECISION_STATE_PLANNED,
    DecisionState.ORDERED: pb.DECISION_STATE_ORDERED,
    DecisionState.CONFIRMED: pb.DECISION_STATE_CONFIRMED,
    DecisionState.FULFILLED: pb.DECISION_STATE_FULFILLED,
    DecisionState.ABORTED: pb.DECISION_STATE_ABORTED,
    DecisionState.EXPIRED: pb.DECISION_STATE_EXPIRED,
    DecisionState.OBSERVED: pb.DECISION_STATE_OBSERVED,
}
_RESULTS: Final = {
    ShrinkResult.COMPLETE: pb.QUOTA_RESULT_COMPLETE,
    ShrinkResult.WITHIN_MISS: pb.QUOTA_RESULT_WITHIN_MISS,
    ShrinkResult.SHORTFALL: pb.QUOTA_RESULT_SHORTFALL,
    ShrinkResult.IMPOSSIBLE: pb.QUOTA_RESULT_IMPOSSIBLE,
}


MEMORY: Final = "memory"
MIB: Final = 1 << 20


def resource_seconds(amounts: Mapping[str, int]) -> dict[str, int]:
    """Convert amounts times milliseconds to amounts times seconds. The result has memory in MiB, as in messages."""
    return {
        kind: min(amount // (1_000 * (MIB if kind == MEMORY else 1)), INT64_MAX)
        for kind, amount in amounts.items()
    }


def told_of(lost: Lost) -> Lost:
    """Return lost work with numbers that fit into a message. A number beyond int64 becomes the largest int64."""
    return Lost(*(min(one, INT64_MAX) for one in lost))


def nameless(_key: str) -> str:
    """Return "" for every key. Callers that know no names of pods pass this function as `Names`."""
    return ""


def rows(record: DecisionRecord) -> int:
    """Return how many rows of a page a decision takes: one for the decision, and one for each victim and each beneficiary."""
    return 1 + len(record.victims) + len(record.beneficiaries)


def decision(side: VisibleDecision, names: Names, sees: Sees) -> pb.Decision:
    """Return the message of a decision, or of the part of it that a viewer may read."""
    record = side.record
    goes, state = record.victims[:VICTIMS_TOLD_MAX], _states(record)
    lost = told_of(lost_work(record))
    found = pb.Decision(
        decision_id=record.decision_id,
        policy=record.policy,
        partition=record.partition,
        at_ms=record.at_ms,
        state=STATES[record.state],
        summary=_with_names(record, names),
        beneficiaries=[_beneficiary(one, names) for one in record.beneficiaries],
        victims=[victim(one, names, state(one.key)) for one in goes],
        spared=spared(record.spared, names),
        levels=levels(record.levels, sees),
        expires_ms=record.expires_ms,
        ended_ms=record.ended_ms,
        end_reason=record.end_reason,
        beneficiaries_elsewhere=side.beneficiaries_elsewhere,
        victims_elsewhere=side.victims_elsewhere,
        victims_left_out=len(record.victims) - len(goes),
        lost_ran_ms=lost.ran_ms,
        lost_millicore_ms=lost.millicore_ms,
        lost_resource_seconds=resource_seconds(lost_amounts(record)),
    )
    if record.shrink is not None:
        found.quota_run.CopyFrom(quota_run(record.shrink))
    return found


_WORD: Final = re.compile(r"\w(?:[\w./-]*\w)?")


def with_names(text: str, names: Names) -> str:
    """Return a sentence with the names of pods in place of their keys."""
    return _WORD.sub(lambda found: names(found[0]) or found[0], text)


def add_ranking(picture: pb.Decision, ranking: Ranking, names: Names, sees: Sees) -> None:
    """Add to the message the order in which a decision considered its candidates, limited to candidates that the caller sees."""
    evicted = {one.allocation_key for one in picture.victims}
    picture.order.extend(ranking.keys)
    picture.candidates = ranking.total
    queues = {one[-1]: queue for one, queue in zip(ranking.candidates, ranking.queues, strict=True)}
    for rank, one in enumerate(ranking.ranked, ranking.start + 1):
        key, queue = str(one[-1]), queues[one[-1]]
        if sees(queue):
            picture.ranking.add(
                allocation_key=key,
                name=names(key),
                queue=queue,
                rank=rank,
                values=map(str, one[:-1]),
                evicted=key in evicted,
                law="" if key in evicted else ranking.rules.get(key, NOT_NEEDED),
            )


def _with_names(record: DecisionRecord, names: Names) -> str:
    """Return the summary of a decision with the names of pods in place of their keys."""
    summary = record.summary
    for one in record.beneficiaries:
        if one.key in summary and (name := names(one.key)):
            summary = re.sub(rf"(?<![\w-]){re.escape(one.key)}(?![\w-])", lambda _: name, summary)
    return summary


def _beneficiary(one: Beneficiary, names: Names) -> pb.Beneficiary:
    return pb.Beneficiary(
        allocation_key=one.key,
        application_id=one.application_id,
        queue=one.queue,
        node_id=one.node_id,
        resources=dict(one.resource),
        priority=one.priority,
        name=names(one.key),
    )


def victim(
    one: Victim, names: Names, state: pb.VictimState = pb.VICTIM_STATE_UNSPECIFIED
) -> pb.Victim:
    """Return the message of an allocation that is evicted, or that would be evicted in a simulation."""
    return pb.Victim(
        allocation_key=one.key,
        application_id=one.application_id,
        queue=one.queue,
        node_id=one.node_id,
        resources=dict(one.resource),
        priority=one.priority,
        opted_out=one.opted_out,
        originator=one.originator,
        because=one.because,
        state=state,
        name=names(one.key),
        ran_ms=one.ran_ms,
    )


def _states(record: DecisionRecord) -> Callable[[str], pb.VictimState]:
    """Return the function from a victim's key to its state."""
    vetoed, confirmed = frozenset(record.vetoed), frozenset(record.confirmed)
    withdrawn = frozenset(record.withdrawn)
    rest = _OTHERS[record.state]

    def state(key: str) -> pb.VictimState:
        if key in vetoed:
            return pb.VICTIM_STATE_VETOED
        if key in withdrawn:
            return pb.VICTIM_STATE_KEPT
        return pb.VICTIM_STATE_GONE if key in confirmed else rest

    return state


_OTHERS: Final = {
    DecisionState.PLANNED: pb.VICTIM_STATE_LEAVING,
    DecisionState.ORDERED: pb.VICTIM_STATE_LEAVING,
    DecisionState.CONFIRMED: pb.VICTIM_STATE_GONE,
    DecisionState.FULFILLED: pb.VICTIM_STATE_GONE,
    DecisionState.ABORTED: pb.VICTIM_STATE_KEPT,
    DecisionState.EXPIRED: pb.VICTIM_STATE_KEPT,
    DecisionState.OBSERVED: pb.VICTIM_STATE_UNSPECIFIED,
}
"""The state of victims about which no report has arrived yet, by the state of the decision."""


def spared(found: Iterable[Spared], names: Names) -> list[pb.SparedCandidates]:
    """Return the messages of candidates that were not evicted: one message for each rule and queue, most candidates first."""
    ranked = sorted(found, key=lambda one: (-one.count, one.law, one.queue))
    return [
        pb.SparedCandidates(
            law=one.law,
            rule=words(one.law),
            queue=one.queue,
            count=one.count,
            examples=[names(key) or key for key in one.keys],
        )
        for one in ranked
    ]


def levels(found: Iterable[Level], sees: Sees) -> list[pb.DecidingLevel]:
    """Return the messages of levels: queues that influenced the decision, with their numbers.

    Queues that the caller does not see are marked as hidden.

    The numbers are passed on unchanged. `redaction.levels` has to remove the numbers of hidden queues first.
    """
    return [
        pb.DecidingLevel(
            queue=one.queue,
            role=one.role,
            resource_type=one.resource_type,
            guaranteed=one.guaranteed,
            max=one.max,
            held=one.held,
            hidden=not sees(one.queue),
            by_weight=one.by_weight,
        )
        for one in found
    ]


def quota_run(found: Shrink) -> pb.QuotaRun:
    """Return the message of a quota run: the amounts that the run has to free, and the amounts that the run can free."""
    return pb.QuotaRun(
        queue=found.queue,
        target=found.target,
        freed=found.freed,
        missing=found.missing,
        result=_RESULTS[found.result],
        candidates=found.candidates,
        blocked_by=found.blocked_by,
        blocking_queue=found.blocking_queue,
    )


def verdict(found: Verdict, names: Names, sees: Sees) -> pb.PreemptionVerdict:
    """Return the message of a verdict: the outcome that preemption would have for an ask."""
    return pb.PreemptionVerdict(
        policy=found.policy,
        law=found.law,
        rule=words(found.law) if found.law else "",
        because=found.because,
        node_id=found.node_id,
        missing=found.missing,
        at_ms=found.at_ms,
        retry_ms=found.retry_ms,
        spared=spared(found.spared, names),
        levels=levels(found.levels, sees),
    )
