"""The part of a decision that a viewer may read: the part about its own pods (design 1.14).

The viewer's own pods are shown in full: queue, policy, rule, priority, decision. The pods of other tenants are only counted. No
pod, application, queue or node of other tenants is named. Sentences that the core wrote for operators are left out. A sentence
about the viewer's own pod is kept, but neutral words replace the names of other tenants.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from server.model.phrases import agreeing, count
from server.model.policies import Shrinks, facts
from server.model.records import (
    Beneficiary,
    DecisionRecord,
    Level,
    Shrink,
    Spared,
    Verdict,
    Victim,
)
from server.rpc.roles import Caller, Role

ANOTHER_QUEUE: Final = "another queue"
_ANOTHER: Final = "another"


@dataclass(frozen=True, slots=True)
class VisibleDecision:
    """A decision, or the part of it that a caller may read. The two numbers count the beneficiaries and victims left out."""

    record: DecisionRecord
    beneficiaries_elsewhere: int = 0
    victims_elsewhere: int = 0
    foreign: frozenset[str] = frozenset()
    """The names that the caller may not read."""


def sees_all(caller: Caller) -> bool:
    """Return whether the caller may see everything."""
    return caller.role is not Role.VIEWER


def sees(caller: Caller) -> Callable[[str], bool]:
    """Return a function that says whether the caller sees a queue in full."""
    return (lambda _path: True) if sees_all(caller) else caller.sees


def side_of(record: DecisionRecord, caller: Caller) -> VisibleDecision | None:
    """Return the part of a decision that the caller may read.

    Return None if the decision does not concern the caller's queues.
    """
    if sees_all(caller):
        return VisibleDecision(record)
    gets = tuple(one for one in record.beneficiaries if caller.sees(one.queue))
    goes = tuple(one for one in record.victims if caller.sees(one.queue))
    runs = record.shrink is not None and caller.sees(record.shrink.queue)
    if not (gets or goes or runs):
        return None
    foreign = foreign_names(record, caller)
    keys = {one.key for one in goes}
    own = replace(
        record,
        summary=_summary(record, caller, goes),
        beneficiaries=gets,
        victims=tuple(one._replace(because=without(one.because, foreign)) for one in goes),
        spared=spared(record.spared, caller),
        levels=levels(record.levels, caller),
        shrink=None if record.shrink is None else _shrink(record.shrink, caller),
        confirmed=tuple(key for key in record.confirmed if key in keys),
        vetoed=tuple(key for key in record.vetoed if key in keys),
        withdrawn=tuple(key for key in record.withdrawn if key in keys),
        end_reason=without(record.end_reason, foreign) if gets or runs else "",
    )
    others = len(record.beneficiaries) - len(gets), len(record.victims) - len(goes)
    return VisibleDecision(own, *others, foreign)


def foreign_names(record: DecisionRecord, caller: Caller) -> frozenset[str]:
    """Return the names in a decision that the caller may not read: pods, applications, queues and nodes of other tenants."""
    own: set[str] = {caller.queue, *above(caller.queue)}
    others: set[str] = set()
    parts: list[Beneficiary | Victim] = [*record.beneficiaries, *record.victims]
    for one in parts:
        known = own if caller.sees(one.queue) else others
        known |= {one.key, one.application_id, one.queue, one.node_id}
    for group in record.spared:
        known = own if caller.sees(group.queue) else others
        known |= {group.queue, *group.keys}
    others |= {level.queue for level in record.levels if not caller.sees(level.queue)}
    if record.shrink is not None:
        others |= {record.shrink.queue, record.shrink.blocking_queue}
    return frozenset(name for name in others - own if name and not caller.sees(name))


def above(path: str) -> Iterable[str]:
    """Yield the paths of the queues above a queue, nearest first. A caller that knows the queue's path knows these paths, too."""
    while "." in path:
        path = path.rpartition(".")[0]
        yield path


def without(text: str, names: Iterable[str]) -> str:
    """Return a sentence in which each of these names is replaced by a neutral word, longest name first."""
    ranked = sorted(names, key=lambda name: (-len(name), name))
    if not text or not ranked:
        return text
    found = "|".join(map(re.escape, ranked))
    return re.sub(rf"(?<![\w./-])(?:{found})(?!\w|[./-]\w)", _ANOTHER, text)


def named(queue: str, caller: Caller) -> str:
    """Return a queue's path if the caller may see it, else `another queue`.

    An empty path stays empty.

    A viewer may see its own queue, the queues below it and the queues above it. Any other caller may see every queue.
    """
    known = sees_all(caller) or caller.sees(queue) or queue in above(caller.queue)
    return queue if known or not queue else ANOTHER_QUEUE


def spared(groups: Iterable[Spared], caller: Caller) -> tuple[Spared, ...]:
    """Return the candidates that were not evicted, by rule and queue.

    A viewer gets the candidates of other queues summed by rule, without names.
    """
    if sees_all(caller):
        return tuple(groups)
    found: dict[tuple[str, str], Spared] = {}
    for one in groups:
        mine = caller.sees(one.queue)
        kept = one if mine else replace(one, queue=ANOTHER_QUEUE, keys=())
        key = (kept.law, kept.queue)
        before = found.get(key)
        found[key] = kept if before is None else replace(before, count=before.count + kept.count)
    return tuple(found.values())


def levels(found: Iterable[Level], caller: Caller) -> tuple[Level, ...]:
    """Return the levels of a decision: queues that influenced the decision, with their numbers.

    For a viewer, the levels of other queues have no numbers. The name of such a queue is kept only if the queue is above the
    viewer's queue.
    """
    if sees_all(caller):
        return tuple(found)
    return tuple(
        one
        if caller.sees(one.queue)
        else replace(one, queue=named(one.queue, caller), guaranteed=0, max=None, held=0)
        for one in found
    )


def verdict(found: Verdict, caller: Caller) -> Verdict:
    """Return the verdict on an ask of the caller's own queue.

    A viewer gets no node, no missing amounts and no sentence, because these may say something about other tenants.
    """
    if sees_all(caller):
        return found
    return replace(
        found,
        because="",
        node_id="",
        missing={},
        spared=spared(found.spared, caller),
        levels=levels(found.levels, caller),
    )


def own_victims(victims: Iterable[Victim], caller: Caller) -> tuple[Victim, ...]:
    """Return the simulated victims whose names the caller may read."""
    return tuple(one for one in victims if sees_all(caller) or caller.sees(one.queue))


def _shrink(shrink: Shrink, caller: Caller) -> Shrink | None:
    """Return the part of a quota run that the caller may read.

    The part has no numbers if the caller may not see the queue that the run shrinks.
    """
    blocking = named(shrink.blocking_queue, caller)
    if caller.sees(shrink.queue):
        return replace(shrink, blocking_queue=blocking)
    return replace(
        shrink,
        queue=named(shrink.queue, caller),
        target={},
        freed={},
        missing={},
        candidates=0,
        blocked_by="",
        blocking_queue="",
    )


def _summary(record: DecisionRecord, caller: Caller, goes: tuple[Victim, ...]) -> str:
    """Return a summary in one sentence that names no other tenant.

    The core's own summary is for operators only.
    """
    mine = {one.queue for one in record.beneficiaries if caller.sees(one.queue)}
    if mine:
        return f"Capacity is freed for {count(_own(record.beneficiaries, caller), 'ask')} of {', '.join(sorted(mine))}."
    if facts(record.policy).shrinks is Shrinks.PARTITION:
        return "More is used than the nodes have, and queues come down to their shares."
    if record.shrink is not None:
        return f"Queue {named(record.shrink.queue, caller)} is reduced to its maximum."
    queues = ", ".join(sorted({one.queue for one in goes}))
    return f"{count(len(goes), 'allocation')} of {queues} {agreeing('are', len(goes))} evicted for {ANOTHER_QUEUE}."


def _own(found: Iterable[Beneficiary], caller: Caller) -> int:
    return sum(caller.sees(one.queue) for one in found)
