"""The reservations: their time limits, the effects of changed settings, and the texts for asks that wait because of a reservation.

A reservation ends when it has lasted for `reservations.timeout`. After the time-out, no node is reserved for asks of the same
application for as long as the reservation lasted. In this time, asks of other applications can use the node's free capacity.
Therefore no application can keep a node from other asks without end.
"""

from collections.abc import Iterator
from typing import Final

from server.core.preemption import open_decisions
from server.core.state import State
from server.model.decisions import Decision
from server.model.phrases import count, date, span, time_of_day
from server.model.policies import RESERVATION
from server.model.quota import PartitionSpec
from server.model.reports import Amounts, Reserved
from server.scheduling.outranking import Ranks, lifted, seen_together
from server.state.applications import Ask
from server.state.commitments import Commitment, Pledge
from server.state.limits import OWN, Limiter
from server.state.partition import Partition

DAY_MS: Final = 86_400_000


def bound(partition: Partition, made_ms: int) -> int:
    """Return the instant at which a reservation made at ``made_ms`` ends. Return 0 if the reservation may last without limit."""
    timeout = partition.spec.reservations.timeout_ms
    return made_ms + timeout if timeout else 0


def expired(partition: Partition, commitment: Commitment, now: int) -> list[Decision]:
    """End a reservation whose time limit is reached, and return a note.

    From now on, no node is reserved for asks of the owner's application for as long as the reservation lasted. If the time
    limit was removed from the settings, the reservation stays.
    """
    if not commitment.expires_ms:
        return []
    lasted = commitment.expires_ms - commitment.created_ms
    notes: list[Decision] = []
    for held in list(commitment.pledges.values()):
        held.ask.application.reserves_from_ms = now + lasted
        why = f"node {held.node.node_id} had no free capacity for it within {span(lasted)}"
        notes += open_decisions.give_up(partition, held, why, now)
    return notes


def configured(
    state: State, partition: Partition, before: PartitionSpec, now: int
) -> list[Decision]:
    """Apply changed settings to the reservations of a partition.

    A reservation ends now if reservations are switched off, or if it no longer fits under the limits. All other reservations
    end at the instant that follows from the new time limit.
    """
    settings = partition.spec.reservations
    partition.round.reservations_moved = True  # priorities may have changed
    notes = _drop_unfit(partition, now) if settings.enabled else []
    if settings == before.reservations:
        return notes
    for held in list(partition.decisions.reservations.values()):
        commitment = held.commitment
        if not settings.enabled:
            notes += open_decisions.give_up(partition, held, "reservations are switched off", now)
            continue
        commitment.expires_ms = bound(partition, commitment.created_ms)
        if commitment.expires_ms:
            state.expect(partition, [(commitment.expires_ms, commitment.commitment_id)])
    partition.round.reservations_untold = True
    return notes


def _drop_unfit(partition: Partition, now: int) -> list[Decision]:
    """End the reservations that could not be made under the limits in force, the newest reservation first (G10).

    The owner of a reservation is the ask for which it was made. Reservations that an owner outranks are not counted against the
    owner's limits, just as they are not counted when a node is reserved for the owner.
    """
    notes: list[Decision] = []
    for held in reversed(list(partition.decisions.reservations.values())):
        limit = _full_limit(partition, held)
        if limit is not None:
            kind = "queue" if limit.kind in OWN else limit.kind
            why = f"{kind} {limit.name} has no headroom for it any more"
            notes += open_decisions.give_up(partition, held, why, now)
    return notes


def _full_limit(partition: Partition, held: Pledge) -> Limiter | None:
    """Return the lowest limit that has no headroom for a reservation, or None.

    Other reservations are not counted as usage if the ask of this reservation outranks them.
    """
    ask = held.ask
    lower = Ranks(partition).below(ask.application.leaf, ask.spec.priority)
    with lifted(partition, lower):
        limits = ask.application.limits_of(ask.ask_class)
        return next((one for one in limits if not one.has_headroom(ask.ask_class)), None)


def report(held: Pledge, missing: Amounts | None = None) -> Reserved:
    """Return the report of a reservation or another pledge: the node, the ask, and the end (0 if none is set).

    ``missing`` are the amounts that the node still lacks for the ask, by type.
    """
    commitment, ask = held.commitment, held.ask
    return Reserved(
        held.node.node_id,
        ask.key,
        ask.application.leaf.path,
        ask.spec.priority,
        commitment.created_ms,
        commitment.expires_ms if held.is_reservation else 0,
        RESERVATION.name if held.is_reservation else commitment.commitment_id,
        missing or {},
    )


# In words -----------------------------------------------------------------------------------------------------------


def sentence(ask: Ask, found: list[Pledge]) -> str:
    """Return a sentence with the number of reserved nodes, the owners' priorities, and the time when the first reservation ends.

    The sentence names no queue, pod or node, because other tenants read it.
    """
    return f"{count(len(found), 'node', 'have')} free capacity that is reserved for {_owners(ask, found)} {until(found[0])}"


def _owners(ask: Ask, found: list[Pledge]) -> str:
    """Return a text with the priorities of the owners, but without their names. An owner is an ask that has a reservation.

    Each owner's priority is given as the lowest common queue of the owner and the waiting ask sees it (G5).
    """
    seen = [seen_together(ask.application.leaf, ask.spec.priority, held) for held in found]
    own, owners = (sorted(set(each)) for each in zip(*seen, strict=True))
    who = "an ask with priority" if len(found) == 1 else "asks with priority"
    if len(owners) > 1:
        who = "asks with priorities"
    as_seen = own != [ask.spec.priority] or owners != sorted(
        {held.ask.spec.priority for held in found}
    )
    against = f" (against {_range(own)} of this one, as their queues count)" if as_seen else ""
    return f"{who} {_range(owners)}{against}" + (", the first" if len(found) > 1 else "")


def _range(numbers: list[int]) -> str:
    first, last = numbers[0], numbers[-1]
    return f"{first}" if first == last else f"{first} to {last}"


def until(held: Pledge) -> str:
    """Return a text that says when a reservation ends at the latest.

    The text has a time of day in UTC, and also the date if the reservation lasts a day or longer.
    """
    instant = held.commitment.expires_ms
    if not instant:
        return "until that ask has a node"
    day = f"{date(instant)} " if instant - held.commitment.created_ms >= DAY_MS else ""
    return f"until {day}{time_of_day(instant)}"


def lines(ask: Ask, found: list[Pledge]) -> Iterator[str]:
    """Yield sentences for operators about at most three reservations, with the node and the queue of each."""
    for held in found[:3]:
        kind = (
            f"an ask of queue {held.ask.application.leaf.path} with priority {_priority(ask, held)}"
        )
        yield f"Node {held.node.node_id} is reserved for {kind} {until(held)}."
    if len(found) > 3:  # noqa: PLR2004
        yield f"{count(len(found) - 3, 'further node', 'are')} reserved likewise."


def _priority(ask: Ask, held: Pledge) -> str:
    """Return a text with the priority of the ask that has a reservation.

    If the priority at the lowest common queue differs from the ask's own priority, the text has both priorities.
    """
    own = held.ask.spec.priority
    _, seen = seen_together(ask.application.leaf, ask.spec.priority, held)
    return f"{own}" if seen == own else f"{own}, which counts as {seen}"
