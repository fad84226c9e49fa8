"""The types for which a victim of a claim is taken: the ask lacks them, and the victim's queues have too much (G2, rule 5).

With a guarantee "too much" follows from rule 2. In proportion it does not where plain weight shares let a queue fall further
below its share, nor where one victim may cross; so it is a rule of its own there (W8, W9).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from server.model.quota import is_below
from server.preemption import admission
from server.preemption.entitlement import Deciding, floor, openness
from server.preemption.policy import Pledge, Release
from server.preemption.trial import Trial
from server.snapshot.queues import QueueFacts
from server.snapshot.waiting import WaitingAsk

Freed = Mapping[str, Mapping[int, int]]
"""The amounts that other releases free, by queue and type index."""


def types(trial: Trial, ask: WaitingAsk, release: Release) -> list[int]:
    """Return the types of the ask for which a victim may be taken where they are lacking (G2, W6).

    None of them is closed, and the victim runs outside the queue that decides for it.
    """
    found = openness(trial, ask.leaf, ask.kind.demand)
    closed, (outside, lowest) = found.closed_types, found.outside
    return [
        index
        for index, _ in ask.kind.node_demand
        if index not in closed and not is_below(release.leaf, outside.get(index, lowest))
    ]


def lacking_closed(trial: Trial, pledge: Pledge) -> Deciding | None:
    """Return a closed type that the ask lacks on its node or below a maximum on its path, with the queue that decides."""
    ask = pledge.ask
    closed = openness(trial, ask.leaf, ask.kind.demand).closed
    if not closed:
        return None
    path = trial.snapshot.path_up(ask.leaf)
    lacking = {*_lacking_on_node(trial, pledge), *_lacking_below_maxima(trial, ask, path)}
    return next((one for one in closed if one.at in lacking), None)


def goes_for_something(trial: Trial, pledge: Pledge, release: Release, freed: Freed) -> bool:
    """Return whether the victim holds a type that the ask lacks and of which all its queues have too much until then."""
    return _helps(trial, pledge, release, types(trial, pledge.ask, release), freed)


def goes_for_nothing(trial: Trial, pledge: Pledge, release: Release) -> bool:
    """Return whether the victim may be taken for some types of the ask, and is taken for none of them."""
    kinds = types(trial, pledge.ask, release)
    return bool(kinds) and not _helps(trial, pledge, release, kinds, {})


def _helps(
    trial: Trial, pledge: Pledge, release: Release, kinds: Sequence[int], freed: Freed
) -> bool:
    held = trial.snapshot.allocations.resources[release.row]
    lacking = set(_lacking(trial, pledge, release))
    return any(
        index in lacking and int(held[index]) > 0 and _is_over(trial, pledge, release, index, freed)
        for index in kinds
    )


def _lacking(trial: Trial, pledge: Pledge, release: Release) -> Iterator[int]:
    """Yield what the ask lacks where the victim could give it: on its node, and below the maxima on its path (G9)."""
    if int(trial.snapshot.allocations.nodes[release.row]) == pledge.row:
        yield from _lacking_on_node(trial, pledge)
    path = trial.snapshot.path_up(pledge.ask.leaf)
    above = [queue for queue in path if is_below(release.leaf, queue.path)]
    yield from _lacking_below_maxima(trial, pledge.ask, above)


def _lacking_on_node(trial: Trial, pledge: Pledge) -> Iterator[int]:
    room = trial.claim_room(pledge.row)
    yield from (index for index, wanted in pledge.ask.kind.node_demand if wanted > room[index])


def _lacking_below_maxima(
    trial: Trial, ask: WaitingAsk, queues: Iterable[QueueFacts]
) -> Iterator[int]:
    """Yield what the maxima of these queues lack for the ask; a lendable one also lacks what is kept for firm asks (J4)."""
    for queue in queues:
        if not queue.is_limited:
            continue
        held = trial.held(queue.path)
        for index, wanted in ask.kind.demand:
            most = admission.most(trial, queue, index, ask.kind, claiming=True)
            if most is not None and held[index] + wanted > most:
                yield index


def _is_over(trial: Trial, pledge: Pledge, release: Release, index: int, freed: Freed) -> bool:
    if trial.snapshot.ports[index] or not trial.snapshot.is_shared_out:
        return True  # ports belong to no queue; under a guarantee rule 2 says more
    return all(
        trial.eff(queue.path)[index] - freed.get(queue.path, {}).get(index, 0)
        > floor(trial, queue.path)[index]
        for queue in trial.snapshot.path_up(release.leaf)
        if not is_below(pledge.ask.leaf, queue.path)
    )
