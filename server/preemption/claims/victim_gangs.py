"""Gangs among the victims of claims, daemons and replacements, where gangs are planned for (J12).

No member is evicted that its gang needs. The number of members that a gang has more than it needs is a cap, as a disruption
budget is one.
"""

from server.kernels.fit import Mask
from server.preemption.claims.eligibility import CODES
from server.preemption.trial import Trial
from server.snapshot import gangs


def needed(trial: Trial) -> Mask | None:
    """Return by row whether its gang would have fewer members than it needs without it; None: gangs are not planned for."""
    known = trial.snapshot.knows_firm
    return gangs.needed(trial.snapshot.allocations, trial.standing) if known else None


def barred(
    trial: Trial, spent: Mask | None, kin: Mask | None
) -> tuple[tuple[Mask | None, int], ...]:
    """Return the rows that are barred beside what their leaves say, each with its rule; ``spent`` have no disruption left."""
    return (spent, CODES.budget), (needed(trial), CODES.gang), (kin, CODES.kin)


def spare(trial: Trial, rows: list[int]) -> dict[int, int]:
    """Return by gang of these allocations how many of its members may be evicted without breaking it."""
    known = trial.snapshot.knows_firm
    return gangs.spare(trial.snapshot.allocations, trial.standing, rows) if known else {}
