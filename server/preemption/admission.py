"""The limits on the amounts that firm and lendable pods may use in a queue (J4).

The limits apply to the leaf and to every queue above it. For each type that the queue guarantees, a firm ask must not raise the
usage of firm pods above the guarantee. The usage of all pods must stay within the maximum. A lendable ask must leave capacity
free below the maximum, for firm asks that wait: the part of the guarantee that they request and that firm pods do not use yet. In
these rules, usage includes promised capacity and the changes of plans that are not carried out yet.
"""

from collections.abc import Mapping

from server.model.asks import GangClass
from server.model.phrases import noun
from server.model.policies import PolicyFacts
from server.preemption.policy import Refusal, Rule
from server.preemption.trial import Trial
from server.snapshot.queues import QueueFacts
from server.snapshot.waiting import ClassFacts, WaitingAsk

Wanted = Mapping[int, int]
"""The quantities that asks request, by type index."""


def most(
    trial: Trial, queue: QueueFacts, index: int, kind: ClassFacts, *, claiming: bool = False
) -> int | None:
    """Return the largest amount of a type that the queue may use, if asks of this class are added to the queue (J4).

    Return None if there is no limit.

    The limit is the maximum of the queue. With plain shares by weight, the limit is the deserved share if this share is less
    than the maximum. With ``claiming``, only the maximum limits the queue, because evictions in other queues do not change the
    deserved share (W2). For lendable asks, the capacity that waiting firm asks will need is subtracted.
    """
    limit = queue.max[index] if claiming else queue.bound[index]
    if limit is None or kind.gang_class is not GangClass.LENDABLE:
        return limit
    return limit - kept(trial, queue, index)


def kept(trial: Trial, queue: QueueFacts, index: int, *, reserving: bool = False) -> int:
    """Return the capacity of a type that the queue keeps for waiting firm asks: max(held, min(guaranteed, requested)) - held (J4).

    ``held`` is the amount that firm asks hold, and ``requested`` also includes the requests of waiting firm asks. With
    ``reserving``, firm asks for which a node is reserved count as held, and not as waiting.
    """
    held = trial.firm_held(queue.path)[index]
    if reserving:
        held += trial.firm_reserved(queue.path)[index]
    requested = trial.snapshot.firm[queue.path].requested[index]
    return max(held, min(queue.guaranteed[index], requested)) - held


def within_guarantee(
    trial: Trial, leaf: str, kind: ClassFacts, wanted: Wanted, *, reserving: bool = False
) -> Refusal | None:
    """Return a refusal if firm asks of this amount would exceed a guarantee on the leaf's path. Otherwise return None (J4).

    Only firm asks are refused. Only the types that a queue guarantees are limited. With ``reserving``, capacity that is
    reserved for firm asks is added to their usage. To check several asks at once, pass the sum of their amounts in ``wanted``.
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
    """Return a refusal if no capacity may be held for the ask (J4).

    Return None if capacity may be held.

    No capacity is held for a firm ask that exceeds the guarantee of a queue on its path, because such an ask is not placed. No
    node is reserved for a lendable ask that would use the capacity kept for firm asks.
    """
    wanted, reserving = dict(ask.kind.demand), policy.reserves
    if reserving and not _leaves_what_is_kept(trial, ask):
        return Refusal(Rule.HEAD_ROOM, f"what is left from {ask.leaf} up is kept for firm pods")
    return within_guarantee(trial, ask.leaf, ask.kind, wanted, reserving=reserving)


def _leaves_what_is_kept(trial: Trial, ask: WaitingAsk) -> bool:
    """Return whether a lendable ask leaves the capacity that is kept for waiting firm asks (J4).

    All promised capacity counts as used.
    """
    for queue in (
        trial.snapshot.path_up(ask.leaf) if ask.kind.gang_class is GangClass.LENDABLE else ()
    ):
        promised = trial.promised(queue.path)
        for index, wanted in ask.kind.demand:
            limit = queue.bound[index]
            left = 0 if limit is None else limit - queue.usage[index] - promised[index]
            if limit is not None and wanted > left - kept(trial, queue, index, reserving=True):
                return False
    return True


def has_headroom(trial: Trial, leaf: str, kind: ClassFacts) -> bool:
    """Return whether the leaf and every queue above it have headroom for one more ask of the class (J4).

    Promised capacity counts as used.
    """
    if not trial.has_headroom(leaf, kind.demand):
        return False
    if within_guarantee(trial, leaf, kind, dict(kind.demand)) is not None:
        return False
    for queue in trial.snapshot.path_up(leaf) if kind.gang_class is GangClass.LENDABLE else ():
        promised = trial.promised(queue.path)
        for index, wanted in kind.demand:
            limit = most(trial, queue, index, kind)
            if limit is not None and queue.usage[index] + promised[index] + wanted > limit:
                return False
    return True
