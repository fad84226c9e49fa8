"""The sentences about a queue: how its usage compares with its guarantee, and from which queues it may claim."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Final

from server.core.queries.queue_reports import over_max, share_reports
from server.core.queries.reach import reach
from server.model.phrases import count, listed, quantities, some, span
from server.model.policies import facts
from server.model.queue_settings import ReachReport
from server.model.quota import ROOT, PreemptionSettings
from server.model.reports import Explanation
from server.state import quota_timers, sharing, snapshotting
from server.state.partition import Partition
from server.state.queues import Queue

QUEUES_NAMED: Final = 6
"""The largest number of queues that one sentence names."""
PASSES_FENCES: Final = (
    "Fences stop neither pods of DaemonSets nor the enforcement of a lowered max."
)


def explain_queue(partition: Partition, queue: Queue, now: int) -> Explanation:
    """Return an explanation of a queue: its usage, guarantee and max, and the effects of preemption on its asks and its pods."""
    summary = _standing(partition, queue)
    lines = [
        summary,
        *_beside_used(partition, queue),
        *_from_above(queue),
        *_above_max(partition, queue, now),
        *_claims(partition, queue),
    ]
    return Explanation(
        "queue",
        queue.path,
        partition.name,
        code=queue.state.value,
        summary=summary,
        queue=queue.path,
        resource=partition.types.named(queue.usage),
        lines=tuple(lines),
    )


def _named(partition: Partition, amounts: Iterable[int]) -> dict[str, int]:
    """Return the amounts by type name, given the amounts by type index. Zeros are included."""
    return dict(zip(partition.types.names, amounts, strict=True))


def _reserved(partition: Partition, queue: Queue) -> Mapping[str, int]:
    """Return the amounts that reservations keep for a queue's asks. These amounts give way to claims."""
    amounts = snapshotting.reserved(partition).get(queue.path)
    return _named(partition, amounts or partition.types.zeros())


def _promised(partition: Partition, queue: Queue) -> Mapping[str, int]:
    """Return the amounts that decisions promise to a queue's asks, without the amounts of reservations."""
    kept = _reserved(partition, queue)
    return {kind: most - kept[kind] for kind, most in _named(partition, queue.promised).items()}


def held(partition: Partition, queue: Queue) -> Mapping[str, int]:
    """Return the amounts that count towards a queue's entitlement: usage, less releasing amounts, plus promises of decisions."""
    leaving = _named(partition, queue.releasing)
    promised = _promised(partition, queue)
    used = _named(partition, queue.usage)
    return {kind: most - leaving[kind] + promised[kind] for kind, most in used.items()}


def _beside_used(partition: Partition, queue: Queue) -> Iterator[str]:
    """Yield a sentence with the promised, releasing and reserved amounts of the queue, if there are any.

    The amounts are those of the guaranteed types, or of all types if the queue has no guarantee.
    """
    kinds = dict(queue.spec.guaranteed) or partition.types.names
    promised = _amounts(_promised(partition, queue), kinds)
    leaving = _amounts(_named(partition, queue.releasing), kinds)
    reserved = _amounts(_reserved(partition, queue), kinds)
    out = [f"{leaving} being released"] if leaving else []
    out += [f"{reserved} reserved for it"] if reserved else []
    parts = [f"counted as held: {promised} that decisions promise it"] if promised else []
    parts += [f"not counted as held: {listed(out)}"] if out else []
    if parts:
        found = "; ".join(parts)
        yield f"{found[0].upper()}{found[1:]}."


def _amounts(amounts: Mapping[str, int], kinds: Container[str]) -> str:
    """Return the amounts of the types ``kinds`` in words, or "" if all these amounts are zero."""
    found = {kind: amount for kind, amount in amounts.items() if kind in kinds and amount > 0}
    return quantities(found) if found else ""


def _standing(partition: Partition, queue: Queue) -> str:
    waiting = queue.waiting().total()
    wait = count(waiting, "ask", "wait") if waiting else "nothing waits"
    has = held(partition, queue)
    amounts = quantities({kind: amount for kind, amount in has.items() if amount > 0})
    if queue.path == ROOT:
        return f"It is the root and has what the nodes have; it holds {amounts}, {wait}."
    entitled = dict(queue.spec.guaranteed)
    what = "guarantee"
    if sharing.is_shared_out(partition):
        what = "share by weight"
        entitled = dict(share_reports(partition)[queue.path].entitled)
    elif not entitled:
        return f"It has no guarantee of its own; it holds {amounts}, {wait}."
    missing = {kind: most - has[kind] for kind, most in entitled.items() if most > has[kind]}
    beyond = {kind: has[kind] - most for kind, most in entitled.items() if has[kind] > most}
    if missing and beyond:
        found = f"below its {what} by {quantities(missing)} and over it by {quantities(beyond)}"
    elif missing:
        found = f"below its {what} by {quantities(missing)}"
    elif beyond:
        found = f"over its {what} by {quantities(beyond)}"
    else:
        found = f"exactly at its {what}"
    return f"It is {found}; {wait}."


def _from_above(queue: Queue) -> Iterator[str]:
    """Yield a sentence about the types that an ancestor of the queue guarantees and the queue itself does not guarantee."""
    for above in queue.path_up():
        if above is not queue and above.spec.guaranteed:
            own = {kind for kind, _ in queue.spec.guaranteed}
            rest = {kind: amount for kind, amount in above.spec.guaranteed if kind not in own}
            if rest:
                yield f"Queue {above.path} guarantees {quantities(rest)} to all queues below it together."
            return


def _above_max(partition: Partition, queue: Queue, now: int) -> Iterator[str]:
    beyond = over_max(partition, queue)
    if not beyond:
        return
    due, why_not = partition.quota_due.get(queue.path, 0), quota_timers.why_not(partition, queue)
    after = ""
    if due:
        after = f"; its max is enforced in {span(due - now)}"
    elif why_not:
        after = f"; its max is not enforced: {why_not}"
    yield f"It holds {quantities(beyond)} more than its max{after}."


# Fences ---------------------------------------------------------------------------------------------------------


def _claims(partition: Partition, queue: Queue) -> Iterator[str]:
    settings = partition.spec.preemption
    off = _no_claims(settings)
    if off:
        yield off
    if queue.path == ROOT:
        return
    found = reach(partition, queue)
    if found.disabled:
        yield "Its preemption.policy is disabled: its asks claim nothing, and no claim evicts its pods."
        return
    yield _claims_of(queue, found)
    yield f"Its pods may be claimed by asks {_by(found)}."
    yield PASSES_FENCES


def _no_claims(settings: PreemptionSettings) -> str:
    """Return the reason why no queue of the partition claims, or why claims are not carried out.

    Return "" if queues may claim, and their claims are carried out.
    """
    if not settings.enabled:
        return "Preemption is off in this partition: preemption.enabled is false."
    if not any(facts(name).claims for name in settings.policies):
        return "No claims are made in this partition: preemption.policies lists neither guaranteed nor job."
    if settings.observe_only:
        return "No claim is carried out in this partition: preemption.observeonly is true."
    return ""


def _claims_of(queue: Queue, found: ReachReport) -> str:
    """Return a text that names the queues from which the asks in and below this queue may claim pods."""
    if not found.claims:
        asks = "Asks below it" if queue.children else "Its asks"
        top = found.scope if found.fences else "root"
        return f"{asks} may claim no pods: no queue from there up to {top} has a guarantee."
    if not queue.children:
        return f"Its asks may claim pods {_from(found)}."
    if found.claims_inside:
        return f"Asks below it may claim each other's pods, and outside it those {_from(found)}."
    return f"Asks below it may claim pods {_from(found)}, and none of each other."


def _from(found: ReachReport) -> str:
    names = found.may_claim_from
    if not found.fences:
        return (
            f"of {some(names, QUEUES_NAMED)}; no fence is above it"
            if names
            else "of no other queue: there is none"
        )
    fence = f"{found.fences[0]} is a fence"
    return (
        f"of {some(names, QUEUES_NAMED)} only, because {fence}"
        if names
        else f"of no other queue, because {fence}"
    )


def _by(found: ReachReport) -> str:
    names: Sequence[str] = found.may_be_claimed_by
    if names:
        return f"of {some(names, QUEUES_NAMED)}"
    return "of no other queue" + (
        ": no fence keeps them out, but none has a guarantee" if found.unguaranteed else ""
    )
