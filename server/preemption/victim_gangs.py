"""Gangs among the victims of claims, daemons and replacements, where jobs are planned for: nobody goes whom a gang needs (J12).

How many members a gang has more than it needs is a cap, as a disruption budget is one.
"""

from server.kernels.fit import Mask
from server.preemption.terms import CODES
from server.preemption.trial import Trial
from server.view import gangs


def needed(trial: Trial) -> Mask | None:
    """Without whom a gang would have fewer members than it needs; None: nobody."""
    known = trial.view.knows_firm
    return gangs.needed(trial.view.allocations, trial.standing) if known else None


def barred(
    trial: Trial, spent: Mask | None, kin: Mask | None
) -> tuple[tuple[Mask | None, int], ...]:
    """Rows that are spared beside what their leaves say, each with its law; ``spent`` have no disruption left."""
    return (spent, CODES.budget), (needed(trial), CODES.gang), (kin, CODES.kin)


def spare(trial: Trial, rows: list[int]) -> dict[int, int]:
    """By the number of each gang that these allocations are in how many of its members may go, lest it be broken."""
    known = trial.view.knows_firm
    return gangs.spare(trial.view.allocations, trial.standing, rows) if known else {}
