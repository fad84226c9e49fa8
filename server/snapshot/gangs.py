"""The running gangs: how many members of each stand, and which (J12)."""

import numpy as np

from server.kernels.distinct import counted, distinct, starts
from server.kernels.fit import Mask
from server.snapshot.columns import AllocationColumns


def sizes(columns: AllocationColumns, standing: Mask) -> dict[int, int]:
    """Return by number of a gang how many of its members stand."""
    numbers, _, counts = counted(np.sort(columns.jobs[standing & (columns.jobs > 0)]))
    return dict(zip(numbers, counts, strict=True))


def members(columns: AllocationColumns, standing: Mask, number: int) -> list[int]:
    """Return the rows of the standing members of one gang."""
    found: list[int] = np.flatnonzero(standing & (columns.jobs == number)).tolist()
    return found


def needed(columns: AllocationColumns, standing: Mask) -> Mask | None:
    """Return by row whether its gang would have fewer members than it needs without it; None: no allocation is in a gang."""
    found = sizes(columns, standing)
    if not found:
        return None
    tight = [number for number, size in found.items() if _spare(columns, number, size) == 0]
    found_rows: Mask = np.isin(columns.jobs, tight) & standing
    return found_rows


def spare(columns: AllocationColumns, standing: Mask, rows: list[int]) -> dict[int, int]:
    """Return how many may be evicted of each gang that these allocations are in; of one that is broken already all (J12)."""
    found = sizes(columns, standing)
    numbers = distinct(columns.jobs[rows]) if rows else []
    return {one: _spare(columns, one, found.get(one, 0)) for one in numbers if one}


def _spare(columns: AllocationColumns, number: int, size: int) -> int:
    least = _least(columns)[number]
    return size - least if size >= least else size


def _least(columns: AllocationColumns) -> dict[int, int]:
    """Return by number of a gang how many members it needs, as the first of its rows says; found once.

    Standing rows come first: one that is ending may say how many were needed when its eviction was ordered (J12).
    """
    known = columns.sorted.get("gangs")
    if known is None:
        order = np.argsort(~columns.standing, kind="stable")
        order = order[columns.jobs[order].argsort(kind="stable")]
        numbers = columns.jobs[order]
        first = starts(numbers)
        specs = [columns.specs[row] for row in order[first].tolist()]
        sizes = [0 if spec is None else spec.min_members for spec in specs]
        known = columns.sorted["gangs"] = dict(zip(numbers[first].tolist(), sizes, strict=True))
    found: dict[int, int] = known
    return found


def of(columns: AllocationColumns, number: int) -> Mask | None:
    """Return the allocations that belong to a gang; None: it has no number."""
    if not number:
        return None
    found: Mask = columns.jobs == number
    return found


def of_application(columns: AllocationColumns, leaf: int, application_id: str) -> Mask:
    """Return the allocations of one application of a leaf."""
    found: Mask = columns.leaves == leaf
    rows = np.flatnonzero(found)
    ids = columns.application_ids
    found[rows] = [ids[row] == application_id for row in rows.tolist()]
    return found
