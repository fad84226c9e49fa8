"""Gangs among the victims of claims and replacements, where jobs are planned for: nobody goes whom a gang needs (J12).

How many members a gang has more than it needs is a cap, as a disruption budget is one.
"""

from collections.abc import Iterator

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


def name(trial: Trial, row: int) -> str:
    """What the cap of an allocation's gang is called."""
    return f"gang {int(trial.view.allocations.jobs[row])}"


def caps(trial: Trial, rows: list[int]) -> Iterator[tuple[str, int]]:
    """How many may go of each gang that these allocations are in."""
    if trial.view.knows_firm:
        columns = trial.view.allocations
        for number, most in gangs.spare(columns, trial.standing, rows).items():
            yield f"gang {number}", most
