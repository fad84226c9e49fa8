"""The sentences of a decision, rule by rule.

The sentences are made from the message of the decision, so that they reveal no more than the message does.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from evenhand.v1 import decisions_pb2 as pb
from server.model.phrases import agreeing, count, quantities, quantity, some, span
from server.model.quota import is_below
from server.model.ranking import VICTIM
from server.rpc.evenhand.rule_text import words

VICTIMS_TOLD_MAX: Final = 10
"""The largest number of victims that get a sentence each. Further victims are only counted."""

_STATES: Final = {
    pb.DECISION_STATE_PLANNED: "its capacity is pledged, and no eviction has been ordered yet",
    pb.DECISION_STATE_ORDERED: "the eviction of its victims is ordered",
    pb.DECISION_STATE_CONFIRMED: "all its victims have ended",
    pb.DECISION_STATE_FULFILLED: "it is done",
    pb.DECISION_STATE_ABORTED: "it was given up",
    pb.DECISION_STATE_EXPIRED: "it lasted too long, and was given up",
    pb.DECISION_STATE_OBSERVED: "the partition only observes, so nothing was sent",
}
_NO_POLICY: Final = "No policy of preemption concerns it"
_RESULTS: Final = {
    pb.QUOTA_RESULT_COMPLETE: "that is all of it",
    pb.QUOTA_RESULT_WITHIN_MISS: "what is missing is within quota.preemption.miss",
    pb.QUOTA_RESULT_SHORTFALL: "the rest cannot be freed",
    pb.QUOTA_RESULT_IMPOSSIBLE: "no victim is allowed",
}


def sentences(found: pb.Decision, now: int) -> list[str]:
    """Return the sentences of a decision, the most important first."""
    return [
        found.summary,
        _state(found, now),
        *_gets(found),
        *_run(found),
        *map(_level, (one for one in found.levels if not one.hidden)),
        *_victims(found),
        *found.why_these,
        *spared_sentences(found.spared),
    ]


def _state(found: pb.Decision, now: int) -> str:
    state = _STATES.get(found.state, "its state is not known")
    began = f"Policy {found.policy} decided it {span(now - found.at_ms)} ago; {state}"
    if found.ended_ms:
        why = f": {found.end_reason.rstrip('.')}" if found.end_reason else ""
        return f"{began}, {span(now - found.ended_ms)} ago{why}."
    limit = f", and has {span(found.expires_ms - now)} more" if found.expires_ms > now else ""
    return f"{began}{limit}."


def _gets(found: pb.Decision) -> Iterator[str]:
    for one in found.beneficiaries:
        where = f" on node {one.node_id}" if one.node_id else ""
        yield (
            f"{one.name or one.allocation_key} of queue {one.queue} gets {quantities(one.resources)}"
            f"{where}; its priority is {one.priority}."
        )
    if found.beneficiaries_elsewhere:
        yield f"Asks of other queues that get capacity: {found.beneficiaries_elsewhere}."


def _run(found: pb.Decision) -> Iterator[str]:
    run = found.quota_run
    if not found.HasField("quota_run") or not run.target:
        return
    yield (
        f"Queue {run.queue} has to free {quantities(run.target)}; "
        f"{count(run.candidates, 'candidate', 'free')} {quantities(run.freed)}, and "
        f"{_RESULTS.get(run.result, 'how it ends is not known')}."
    )
    if run.missing:
        why = f", for {words(run.blocked_by)}" if run.blocked_by else ""
        whom = f"; that protects {run.blocking_queue}" if run.blocking_queue else ""
        yield f"{quantities(run.missing, 'stay')} missing{why}{whom}."


def _level(one: pb.DecidingLevel) -> str:
    kind = one.resource_type
    held = quantity(kind, one.held)
    what = "entitled to by weight" if one.by_weight else "owed"
    owed = f"{quantity(kind, one.guaranteed)} that it is {what}"
    wall = f", at most {quantity(kind, one.max)}" if one.HasField("max") else ""
    if one.role == VICTIM:
        return f"Queue {one.queue}, from which it takes, held {held} of {owed}{wall}."
    if one.role == "deciding":
        return f"Queue {one.queue} held {held} of {owed}{wall}: that let the ask claim (G2, W6)."
    return f"Queue {one.queue} held {held} of {owed}{wall}: that prevented it."


def _victims(found: pb.Decision) -> Iterator[str]:
    for one in found.victims[:VICTIMS_TOLD_MAX]:
        why = f": {one.because.rstrip('.')}" if one.because else ""
        yield (
            f"{one.name or one.allocation_key} of queue {one.queue} is evicted from node {one.node_id} "
            f"({quantities(one.resources)}, priority {one.priority}){why}."
        )
    more = len(found.victims) - VICTIMS_TOLD_MAX
    if more > 0:
        yield f"Further victims: {more}."
    if found.victims_elsewhere:
        yield f"Victims of other queues: {found.victims_elsewhere}."


def evicted_sentence(found: pb.Decision, one: pb.Victim, now: int) -> str:
    """Return a sentence on what happened to one victim, with the numbers of its own queue."""
    own = of_victim(found.levels, one.queue)
    queue = f"; {held(own)}" if own else ""
    why = f": {one.because.rstrip('.')}" if one.because else ""
    return (
        f"It was evicted from queue {one.queue} on node {one.node_id} {span(now - found.at_ms)} ago "
        f"by decision {found.decision_id} (policy {found.policy}){why}{queue}."
    )


def of_victim(levels: Iterable[pb.DecidingLevel], queue: str) -> list[pb.DecidingLevel]:
    """Return the levels (queues with their numbers) on a victim's path that the caller may read."""
    own = (one for one in levels if one.role == VICTIM and not one.hidden)
    return [one for one in own if is_below(queue, one.queue)]


def held(levels: Sequence[pb.DecidingLevel]) -> str:
    """Return the usage of the queues in these levels as text: `queue root.a held 8 cores of 2 cores guaranteed`.

    Queues are separated by semicolons. The queue with the longest path comes first.
    """
    numbers: dict[str, list[str]] = {}
    for one in sorted(levels, key=lambda each: -len(each.queue)):
        numbers.setdefault(one.queue, []).append(_of_guarantee(one))
    return "; ".join(f"queue {queue} held {some(told, 3)}" for queue, told in numbers.items())


def _of_guarantee(one: pb.DecidingLevel) -> str:
    has = quantity(one.resource_type, one.held)
    over = one.HasField("max") and one.held > one.max
    most = f", over its max of {quantity(one.resource_type, one.max)}" if over else ""
    if one.by_weight:
        return f"{has} of {quantity(one.resource_type, one.guaranteed)} entitled by weight{most}"
    if not one.guaranteed:
        return f"{has} with no guarantee{most}"
    return f"{has} of {quantity(one.resource_type, one.guaranteed)} guaranteed{most}"


def spared_sentences(found: Iterable[pb.SparedCandidates]) -> Iterator[str]:
    """Yield sentences that say which candidates keep running, and under which rule."""
    for one in found:
        such = f", such as {some(one.examples, 3)}" if one.examples else ""
        what, verb = count(one.count, "candidate"), agreeing("keep", one.count)
        yield f"{what} of {_queue(one.queue)} {verb} running by `{one.law}`: {one.rule}{such}."


def verdict_sentence(found: pb.PreemptionVerdict, now: int) -> str:
    """Return a sentence that says what preemption would do for an ask."""
    because = found.because.rstrip(".")
    if not found.law:
        can = f"Policy {found.policy} can free capacity for it" if found.policy else _NO_POLICY
        return f"{can}: {because}." if because else f"{can}."
    missing = quantities(found.missing) if found.missing else ""
    near = f"; node {found.node_id} comes nearest and lacks {missing}" if missing else ""
    again = f"in {span(found.retry_ms - now)} at the latest" if found.retry_ms > now else ""
    tried = f"; next try: {again or 'when something changes'}"
    return f"Preemption frees no capacity for it (`{found.law}`): {because or found.rule}{near}{tried}."


def _queue(path: str) -> str:
    return f"queue {path}" if path.startswith("root") else path
