"""For what a victim of a claim goes: a type that the ask lacks, and of which the victim's queues have too much (rule 5).

Under a guarantee that follows from rule 2. In proportion it does not where plain weight shares let a queue fall further
below its share, nor where one victim may cross; so it is a law of its own there (W8, W9).
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from server.model.quota import is_below
from server.preemption import admission
from server.preemption.entitlement import barred, floor
from server.preemption.policy import Pledge, Release
from server.preemption.trial import Trial
from server.view.waiting import WaitingAsk

Freed = Mapping[str, Counter[int]]
"""By queue and type index what others free."""


def types(trial: Trial, ask: WaitingAsk, release: Release) -> list[int]:
    """The types of the ask for which a victim goes: those outside whose deciding queue it stands (W6)."""
    inside = barred(trial, ask.leaf, ask.kind.demand)
    wanted = (index for index, _ in ask.kind.node_demand)
    return [index for index in wanted if not is_below(release.leaf, inside[index])]


def goes_for_something(trial: Trial, pledge: Pledge, release: Release, freed: Freed) -> bool:
    """Is there a type that the ask lacks and the victim holds, and of which all its queues have too much until then?"""
    held = trial.view.allocations.resources[release.row]
    return any(
        int(held[index]) > 0 and _is_over(trial, pledge, release, index, freed)
        for index in set(_lacking(trial, pledge, release)) & set(types(trial, pledge.ask, release))
    )


def _lacking(trial: Trial, pledge: Pledge, release: Release) -> Iterator[int]:
    """What the ask lacks where the victim could give it: on its node, and below the maxima on its path (G9).

    Below a maximum a lendable ask lacks what is kept there for firm ones, too (J4).
    """
    room, view = trial.claim_room(pledge.row), trial.view
    if int(view.allocations.nodes[release.row]) == pledge.row:
        yield from (index for index, wanted in pledge.ask.kind.node_demand if wanted > room[index])
    for queue in view.path_up(pledge.ask.leaf):
        held = trial.held(queue.path)
        for index, wanted in pledge.ask.kind.demand if is_below(release.leaf, queue.path) else ():
            most = admission.most(trial, queue, index, pledge.ask.kind, claiming=True)
            if most is not None and held[index] + wanted > most:
                yield index


def _is_over(trial: Trial, pledge: Pledge, release: Release, index: int, freed: Freed) -> bool:
    return trial.view.ports[index] or all(
        trial.eff(queue.path)[index] - freed.get(queue.path, Counter())[index]
        > floor(trial, queue.path)[index]
        for queue in trial.view.path_up(release.leaf)
        if not is_below(pledge.ask.leaf, queue.path)
    )
