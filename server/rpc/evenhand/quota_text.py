"""The effect of the next quota run on a running allocation, as a message and as text."""

from evenhand.v1 import explain_pb2 as pb
from server.core.queries.quota_outlook import QuotaOutlook
from server.model.phrases import count, quantities, span
from server.model.ranking import NOT_NEEDED
from server.rpc.evenhand.rule_text import words


def picture(found: QuotaOutlook, now: int, *, hidden: bool) -> pb.QuotaOutlook:
    """Return the message of the effect that a quota run would have on the allocation.

    With ``hidden``, the caller may not read the queue's numbers.
    """
    rule = found.standing.rule
    return pb.QuotaOutlook(
        queue=found.queue,
        over={} if hidden else found.over,
        due_ms=found.due_ms,
        evicted=found.evicted,
        rank=found.standing.place,
        candidates=found.standing.total,
        victims=found.victims,
        law=rule,
        rule=words(rule) if rule else "",
        observed=found.observed,
        sentence=f"{_timer(found, now, hidden=hidden)} {_fate(found)}",
    )


def _timer(found: QuotaOutlook, now: int, *, hidden: bool) -> str:
    over = "" if hidden else f"{quantities(found.over)} "
    starts = f"starts in {span(found.due_ms - now)}" if found.due_ms > now else "starts now"
    only = ", but the partition only observes" if found.observed else ""
    return f"Queue {found.queue} is {over}over its max; enforcement {starts}{only}."


def _fate(found: QuotaOutlook) -> str:
    standing = found.standing
    if found.refusal:
        return f"This pod would not be evicted: {found.refusal}."
    where = f"This pod is number {standing.place} of {standing.total} in the order"
    if found.evicted:
        return f"{where} and would be evicted."
    if standing.rule == NOT_NEEDED:
        return f"{where} and would not be evicted: the eviction of {count(found.victims, 'other pod')} is enough."
    if standing.place:
        return f"{where} and would not be evicted: {words(standing.rule)} (`{standing.rule}`)."
    return f"This pod would not be evicted: {words(standing.rule)} (`{standing.rule}`)."
