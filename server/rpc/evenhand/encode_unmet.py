"""Messages of `evenhand.v1` for unmet guarantees and lost work, limited to what each caller may read.

The functions are pure. The callers look up the names of pods.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from evenhand.v1 import reports_pb2 as pb
from server.model.records import Lost, LostLine
from server.model.unmet import Change, Cure, UnmetAsks, UnmetQueue
from server.rpc.evenhand import encode_decisions, redaction
from server.rpc.evenhand.encode_decisions import Names
from server.rpc.evenhand.rule_text import words
from server.rpc.roles import Caller
from server.state.lost_work import summed

_OF_QUEUES: Final = frozenset(
    {
        Change.RAISE_MAX,
        Change.RAISE_GUARANTEE,
        Change.LOWER_GUARANTEE,
        Change.LIFT_FENCE,
        Change.ENABLE_QUEUE,
        Change.WAIT,
    }
)
"""The kinds of cures that change a queue."""
_OF_ITSELF: Final = frozenset(
    {Change.RAISE_PRIORITY, Change.ALLOW_PREEMPTION, Change.DROP_CHECK, Change.ADD_NODE}
)
"""The kinds of cures whose description reveals nothing about other asks or queues."""


# Unmet guarantees ---------------------------------------------------------------------------------------------------


def unmet_queue(found: UnmetQueue, names: Names, caller: Caller) -> pb.UnmetQueue:
    """Return the message of a queue that has an unmet guarantee. The queue must be one that the caller may see."""
    types = [
        pb.UnmetType(
            resource_type=one.resource_type,
            entitled=one.entitled,
            held=one.held,
            missing=one.missing,
        )
        for one in found.types
    ]
    asks = [_asks(one, names, caller) for one in found.asks]
    return pb.UnmetQueue(queue=found.queue, types=types, asks=asks, asks_left_out=found.others)


def _asks(found: UnmetAsks, names: Names, caller: Caller) -> pb.UnmetAsks:
    spared = redaction.spared(found.spared, caller)
    told = pb.UnmetAsks(
        leaf=found.leaf,
        allocation_key=found.key,
        name=names(found.key),
        count=found.count,
        resources=found.resource,
        priority=found.priority,
        binding=found.binding.value,
        because=found.because if redaction.sees_all(caller) else "",
        law=found.law,
        rule=words(found.law) if found.law else "",
        spared=encode_decisions.spared(spared, names),
        fragmented=found.fragmented,
        searched=found.searched,
        job=found.gang,
    )
    if found.cure is not None:
        told.cure.CopyFrom(_cure(found.cure, caller))
    return told


def _cure(found: Cure, caller: Caller) -> pb.Cure:
    """Return the message of a cure, which is a change that would help. A viewer gets no numbers of other queues and no names of nodes."""
    if _may_know(found, caller):
        return pb.Cure(
            change=found.change.value,
            subject=found.subject,
            text=found.text,
            amounts=found.amounts,
            until_ms=found.until_ms,
            serves=found.serves,
            then=found.then if redaction.sees_all(caller) else "",
        )
    subject = redaction.named(found.subject, caller) if found.change in _OF_QUEUES else ""
    of = f" of {subject}" if subject else ""
    text = f"{found.change.value.replace('-', ' ')}{of}: ask an operator"
    return pb.Cure(change=found.change.value, subject=subject, text=text)


def _may_know(found: Cure, caller: Caller) -> bool:
    if redaction.sees_all(caller) or found.change in _OF_ITSELF:
        return True
    return found.change in _OF_QUEUES and caller.sees(found.subject)


# Lost work ----------------------------------------------------------------------------------------------------------


def lost_work(partition: str, lines: Iterable[LostLine], caller: Caller) -> list[pb.LostWork]:
    """Return the messages of lost work. A line is included if the caller sees the preempting queue or the victims' queue.

    A viewer gets the names of its own queue, of the queues below it and of the queues above it. Any other queue is called
    `another queue`. The owners of victims in queues that the viewer does not see are left out. Lines that thereby become equal are summed.
    """
    found: dict[tuple[str, str, str, str, str], tuple[Lost, Mapping[str, int]]] = {}
    for one in lines:
        if redaction.sees_all(caller) or caller.sees(one.claimant) or caller.sees(one.victim):
            own = redaction.sees_all(caller) or caller.sees(one.victim)
            owner = (one.user, one.application) if own else ("", "")
            queues = redaction.named(one.claimant, caller), redaction.named(one.victim, caller)
            key = (one.policy, *queues, *owner)
            lost, amounts = found.get(key, (Lost(), {}))
            found[key] = lost.plus(one.lost), summed(amounts, one.amounts)
    return [_lost_line(partition, line, *sums) for line, sums in found.items()]


def _lost_line(
    partition: str, line: tuple[str, str, str, str, str], lost: Lost, amounts: Mapping[str, int]
) -> pb.LostWork:
    policy, claimant, victim, user, application = line
    told = encode_decisions.told_of(lost)
    return pb.LostWork(
        partition=partition,
        policy=policy,
        claimant=claimant,
        victim=victim,
        user=user,
        application_id=application,
        victims=told.victims,
        ran_ms=told.ran_ms,
        millicore_ms=told.millicore_ms,
        resource_seconds=encode_decisions.resource_seconds(amounts),
    )
