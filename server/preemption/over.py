"""The types for which a victim of a claim is taken: such as the ask lacks, and its queues have too much of (G2, rule 5).

With a guarantee "too much" follows from rule 2. In proportion it does not where plain weight shares let a queue fall
further below its share, nor where one victim may cross; so it is a rule of its own there (W8, W9).
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from server.model.quota import is_below
from server.preemption import admission
from server.preemption.entitlement import Deciding, floor, openness
from server.preemption.policy import Pledge, Release
from server.preemption.trial import Trial
from server.view.waiting import WaitingAsk

Freed = Mapping[str, Counter[int]]
"""By queue and type index what others free."""


def types(trial: Trial, ask: WaitingAsk, release: Release) -> list[int]:
    """Return the types of the ask for which a victim may be taken where they are lacking (G2, W6).

    None of them is closed, and the victim runs outside the queue that decides for it.
    """
    found = openness(trial, ask.leaf, ask.kind.demand)
    outside, lowest = found.outside()
    wanted = {index for index, _ in ask.kind.node_demand} - found.closed_types
    return [
        index for index in sorted(wanted) if not is_below(release.leaf, outside.get(index, lowest))
    ]


def lacking_closed(trial: Trial, pledge: Pledge) -> Deciding | None:
    """Return a closed type that the ask lacks on its node or below a maximum on its path, with the queue that decides."""
    ask = pledge.ask
    closed = openness(trial, ask.leaf, ask.kind.demand).closed
    if not closed:
        return None
    paths = {queue.path for queue in trial.view.path_up(ask.leaf)}
    lacking = {*_lacking_on_node(trial, pledge), *_lacking_below_maxima(trial, ask, paths)}
    return next((one for one in closed if one.at in lacking), None)


def goes_for_something(trial: Trial, pledge: Pledge, release: Release, freed: Freed) -> bool:
    """Is there a type that the ask lacks and the victim holds, and of which all its queues have too much until then?"""
    held = trial.view.allocations.resources[release.row]
    return any(
        int(held[index]) > 0 and _is_over(trial, pledge, release, index, freed)
        for index in set(_lacking(trial, pledge, release)) & set(types(trial, pledge.ask, release))
    )


def _lacking(trial: Trial, pledge: Pledge, release: Release) -> Iterator[int]:
    """What the ask lacks where the victim could give it: on its node, and below the maxima on its path (G9)."""
    if int(trial.view.allocations.nodes[release.row]) == pledge.row:
        yield from _lacking_on_node(trial, pledge)
    path = trial.view.path_up(pledge.ask.leaf)
    above = {queue.path for queue in path if is_below(release.leaf, queue.path)}
    yield from _lacking_below_maxima(trial, pledge.ask, above)


def _lacking_on_node(trial: Trial, pledge: Pledge) -> Iterator[int]:
    room = trial.claim_room(pledge.row)
    yield from (index for index, wanted in pledge.ask.kind.node_demand if wanted > room[index])


def _lacking_below_maxima(trial: Trial, ask: WaitingAsk, paths: set[str]) -> Iterator[int]:
    """What the maxima of these queues lack for the ask; a lendable one also lacks what is kept for firm asks (J4)."""
    for path in sorted(paths):
        queue, held = trial.view.queues[path], trial.held(path)
        for index, wanted in ask.kind.demand:
            most = admission.most(trial, queue, index, ask.kind, claiming=True)
            if most is not None and held[index] + wanted > most:
                yield index


def _is_over(trial: Trial, pledge: Pledge, release: Release, index: int, freed: Freed) -> bool:
    if trial.view.ports[index] or not trial.view.is_shared_out:
        return True  # ports belong to no queue; under a guarantee rule 2 says more
    return all(
        trial.eff(queue.path)[index] - freed.get(queue.path, Counter())[index]
        > floor(trial, queue.path)[index]
        for queue in trial.view.path_up(release.leaf)
        if not is_below(pledge.ask.leaf, queue.path)
    )
