"""Messages of `evenhand.v1` for shadows and their decisions, limited to what each caller may read.

The functions are pure. The callers look up the names of pods.
"""

from collections.abc import Mapping
from typing import Final

from evenhand.v1 import decisions_pb2 as pb
from server.config.difference import as_written
from server.model.quota import is_below
from server.model.records import lost_of
from server.model.shadow import (
    Choice,
    Difference,
    ShadowRecord,
    ShadowReport,
    sentence,
)
from server.rpc.evenhand import encode_decisions, redaction
from server.rpc.evenhand.encode_decisions import Names
from server.rpc.limits import VICTIMS_TOLD_MAX
from server.rpc.roles import Caller

DIFFERENCES: Final[Mapping[Difference, pb.ShadowDifference]] = {
    Difference.SAME: pb.SHADOW_DIFFERENCE_SAME,
    Difference.OTHER_VICTIMS: pb.SHADOW_DIFFERENCE_OTHER_VICTIMS,
    Difference.OTHER_NODE: pb.SHADOW_DIFFERENCE_OTHER_NODE,
    Difference.ONLY_LIVE: pb.SHADOW_DIFFERENCE_ONLY_LIVE,
    Difference.ONLY_SHADOW: pb.SHADOW_DIFFERENCE_ONLY_SHADOW,
}


def concerns(record: ShadowRecord, caller: Caller, queue: str = "") -> bool:
    """Return whether the record has an ask or a victim that the caller may see.

    If ``queue`` is given, the ask or victim must be in that queue or below it.
    """
    choices = (one for one in (record.live, record.shadow) if one is not None)
    paths = (record.queue, *(victim.queue for one in choices for victim in one.victims))
    return any(
        (redaction.sees_all(caller) or caller.sees(path)) and (not queue or is_below(path, queue))
        for path in paths
    )


def decision(record: ShadowRecord, names: Names, caller: Caller) -> pb.ShadowDecision:
    """Return the message of a record. A viewer gets its own pods and the number of other victims, but no sentence of the core."""
    all_of_it, mine = redaction.sees_all(caller), caller.sees(record.queue)
    told = pb.ShadowDecision(
        partition=record.partition,
        queue=redaction.named(record.queue, caller),
        at_ms=record.at_ms,
        difference=DIFFERENCES[record.difference],
        ended_ms=record.ended_ms,
        of_queue=record.kind == "queue",
    )
    if all_of_it or mine:
        told.allocation_key = record.key
        told.name = names(record.key)
        told.application_id = record.application_id
        told.resources.update(dict(record.resource))
        told.priority = record.priority
        told.law = record.law
    if all_of_it:
        told.because = record.because
        told.end_reason = record.end_reason
        told.summary = sentence(record)
    if record.live is not None:
        told.live.CopyFrom(_choice(record.live, names, caller, whole=all_of_it or mine))
    if record.shadow is not None:
        told.shadow.CopyFrom(_choice(record.shadow, names, caller, whole=all_of_it or mine))
    return told


def _choice(choice: Choice, names: Names, caller: Caller, *, whole: bool) -> pb.ShadowChoice:
    own = redaction.own_victims(choice.victims, caller)
    shown = own[:VICTIMS_TOLD_MAX]
    lost = encode_decisions.told_of(lost_of(own))
    return pb.ShadowChoice(
        policy=choice.policy,
        node_id=choice.node_id if whole else "",
        victims=[encode_decisions.victim(one, names) for one in shown],
        victims_elsewhere=len(choice.victims) - len(own),
        decision_id=choice.decision_id,
        victims_left_out=len(own) - len(shown),
        lost_ran_ms=lost.ran_ms,
        lost_millicore_ms=lost.millicore_ms,
    )


def shadow(report: ShadowReport, caller: Caller) -> pb.Shadow:
    """Return the message of a partition's shadow. A viewer only learns that there is a shadow, and since when."""
    told = pb.Shadow(partition=report.partition, since_ms=report.since_ms)
    if not redaction.sees_all(caller):
        return told
    told.settings.update(as_written(report.settings))
    told.forgotten = report.forgotten
    for (policy, side), total in sorted(report.sums.items()):
        lost = encode_decisions.told_of(total.lost)
        told.sums.add(
            policy=policy,
            shadow=side == "shadow",
            decisions=total.decisions,
            victims=lost.victims,
            lost_ran_ms=lost.ran_ms,
            lost_millicore_ms=lost.millicore_ms,
        )
    for difference, count in report.told.items():
        told.counts.add(difference=DIFFERENCES[difference], count=count)
    return told
