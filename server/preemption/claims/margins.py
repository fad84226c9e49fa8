"""The amounts that the queues of victims can lose (margins), computed once for all searches of claims on one Trial (G4)."""

from typing import Final

from server.preemption.entitlement import floor, protects_only_whole
from server.preemption.trial import Trial
from server.snapshot.leaf_margins import LeafMargins
from server.snapshot.queues import FrozenAmounts

MARGINS: Final = "margins"
"""The key under which a Trial stores the margins, with the number of plans that they include."""


def of(trial: Trial) -> LeafMargins:
    """Return what the queues of all leaves can lose after the plans so far."""
    plans = trial.mark()
    known: tuple[int, LeafMargins] | None = trial.kept.get(MARGINS)
    seen, margins = known or (plans, _made(trial))
    for path in _changed(trial, 0 if known is None else seen):
        margins.change(path, trial.eff(path))
    trial.kept[MARGINS] = plans, margins
    return margins


def _changed(trial: Trial, mark: int) -> dict[str, None]:
    """Return the queues that lose usage by the plans since ``mark``, a number of plans (see `Trial.mark`)."""
    leaves = {release.leaf: None for plan in trial.plans_since(mark) for release in plan.releases}
    return {queue.path: None for leaf in leaves for queue in trial.snapshot.path_up(leaf)}


def _made(trial: Trial) -> LeafMargins:
    snapshot = trial.snapshot
    return LeafMargins(
        snapshot.queue_table,
        snapshot.allocations,
        _entitled(trial),
        deadzone_permyriad=snapshot.settings.deadzone_permyriad,
        only_whole=protects_only_whole(trial),
        ports=snapshot.ports,
    )


def _entitled(trial: Trial) -> list[FrozenAmounts] | None:
    """Return, for each queue, the amounts below which no claim takes the queue.

    Return None if queues are entitled to their guarantees.
    """
    if not trial.snapshot.is_shared_out:
        return None
    return [floor(trial, path) for path in trial.snapshot.queues]
