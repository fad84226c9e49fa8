"""The amounts that firm or lendable pods may use in a queue: the formulas of J4, for the leaf and every queue above it.

With a firm ask added, the usage of firm pods must stay within the guarantee, for each type that the queue guarantees, and the
usage of all pods within the maximum. With a lendable ask added, the usage of all pods must stay within the maximum less the part
of the guarantee that firm asks wait for. Usage here is what the queue will hold, with plans and promised capacity.
"""

from collections.abc import Mapping

from server.model.asks import JobClass
from server.model.phrases import noun
from server.model.policies import PolicyFacts
from server.preemption.policy import Refusal, Rule
from server.preemption.trial import Trial
from server.snapshot.queues import QueueFacts
from server.snapshot.waiting import ClassFacts, WaitingAsk

Wanted = Mapping[int, int]
"""The wanted quantities by type index."""


def most(
    trial: Trial, queue: QueueFacts, index: int, kind: ClassFacts, *, claiming: bool = False
) -> int | None:
    """Return the most that the queue may hold of a type when asks of this class are added; None means no limit (J4).

    The limit is the maximum, or with plain shares by weight the deserved share if that is less. With ``claiming`` only the
    maximum counts, because evictions in other queues do not change the deserved share (W2). For lendable asks, what is kept for
    firm asks is subtracted.
    """
    limit = queue.max[index] if claiming else queue.bound[index]
    if limit is None or kind.job_class is not JobClass.LENDABLE:
        return limit
    return limit - kept(trial, queue, index)


def kept(trial: Trial, queue: QueueFacts, index: int, *, reserving: bool = False) -> int:
    """Return the capacity that is kept for waiting firm asks: max(held, min(guaranteed, requested)) - held (J4).

    With ``reserving``, firm asks for which a node is reserved count as held, and not as waiting.
    """
    held = trial.firm_held(queue.path)[index]
    if reserving:
        held += trial.firm_reserved(queue.path)[index]
    requested = trial.snapshot.firm[queue.path].requested[index]
    return max(held, min(queue.guaranteed[index], requested)) - held


def within_guarantee(
    trial: Trial, leaf: str, kind: ClassFacts, wanted: Wanted, *, reserving: bool = False
) -> Refusal | None:
    """Return a refusal when firm asks of this amount would exceed the guarantee of a queue from the leaf up; else None (J4).

    An ask that is not firm is never refused. A type that a queue does not guarantee is not limited. With ``reserving``, capacity
    that is reserved for firm asks counts as well. ``wanted`` may be the sum of several asks.
    """
    for queue in trial.snapshot.path_up(leaf) if kind.firm else ():
        held = list(trial.firm_held(queue.path))
        if reserving:
            held = list(map(int.__add__, held, trial.firm_reserved(queue.path)))
        for index, quantity in wanted.items():
            guaranteed = queue.guaranteed[index]
            if guaranteed and held[index] + quantity > guaranteed:
                name = noun(trial.snapshot.types[index])
                because = (
                    f"firm pods of queue {queue.path} would use more {name} than it guarantees"
                )
                return Refusal(Rule.FIRM_LIMIT, because)
    return None


def admitted(trial: Trial, policy: PolicyFacts, ask: WaitingAsk) -> Refusal | None:
    """Return a refusal when no capacity may be held for the ask; None when capacity may be held (J4).

    Nothing is held for a firm ask beyond the guarantees of its queues, because it would not be placed. No node is reserved for a
    lendable ask that would use what is kept for firm asks.
    """
    wanted, reserving = dict(ask.kind.demand), policy.reserves
    if reserving and not _leaves_what_is_kept(trial, ask):
        return Refusal(Rule.HEAD_ROOM, f"what is left from {ask.leaf} up is kept for firm pods")
    return within_guarantee(trial, ask.leaf, ask.kind, wanted, reserving=reserving)


def _leaves_what_is_kept(trial: Trial, ask: WaitingAsk) -> bool:
    """Return whether a lendable ask leaves free the capacity that is kept for firm asks, with all promised capacity counted (J4)."""
    for queue in (
        trial.snapshot.path_up(ask.leaf) if ask.kind.job_class is JobClass.LENDABLE else ()
    ):
        promised = trial.promised(queue.path)
        for index, wanted in ask.kind.demand:
            limit = queue.bound[index]
            left = 0 if limit is None else limit - queue.usage[index] - promised[index]
            if limit is not None and wanted > left - kept(trial, queue, index, reserving=True):
                return False
    return True


def has_headroom(trial: Trial, leaf: str, kind: ClassFacts) -> bool:
    """Return whether every queue from the leaf up has headroom for one more ask of the class; promised capacity counts as used (J4)."""
    if not trial.has_headroom(leaf, kind.demand):
        return False
    if within_guarantee(trial, leaf, kind, dict(kind.demand)) is not None:
        return False
    for queue in trial.snapshot.path_up(leaf) if kind.job_class is JobClass.LENDABLE else ():
        promised = trial.promised(queue.path)
        for index, wanted in kind.demand:
            limit = most(trial, queue, index, kind)
            if limit is not None and queue.usage[index] + promised[index] + wanted > limit:
                return False
    return True
