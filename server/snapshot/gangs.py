"""The running gangs: the number of their standing members, and the rows of these members (J12).

A *standing* member is a member that runs and whose release is not ordered.
"""

import numpy as np

from server.kernels.distinct import counted, distinct, starts
from server.kernels.fit import Mask
from server.snapshot.columns import AllocationColumns


def sizes(columns: AllocationColumns, standing: Mask) -> dict[int, int]:
    """Return the number of standing members by gang number."""
    numbers, _, counts = counted(np.sort(columns.gangs[standing & (columns.gangs > 0)]))
    return dict(zip(numbers, counts, strict=True))


def members(columns: AllocationColumns, standing: Mask, number: int) -> list[int]:
    """Return the rows of the standing members of one gang."""
    found: list[int] = np.flatnonzero(standing & (columns.gangs == number)).tolist()
    return found


def needed(columns: AllocationColumns, standing: Mask) -> Mask | None:
    """Return a mask of the standing members of all gangs that have exactly their minimum of standing members.

    Such a gang would be broken by the loss of one member.

    Return None if no gang has standing members.
    """
    found = sizes(columns, standing)
    if not found:
        return None
    tight = [number for number, size in found.items() if _spare(columns, number, size) == 0]
    found_rows: Mask = np.isin(columns.gangs, tight) & standing
    return found_rows


def spare(columns: AllocationColumns, standing: Mask, rows: list[int]) -> dict[int, int]:
    """Return, for each gang of these rows, how many members may be evicted (J12).

    The keys are gang numbers. The values are the numbers of standing members beyond the minimum of the gang. A gang below its
    minimum may lose all its members.
    """
    found = sizes(columns, standing)
    numbers = distinct(columns.gangs[rows]) if rows else []
    return {one: _spare(columns, one, found.get(one, 0)) for one in numbers if one}


def _spare(columns: AllocationColumns, number: int, size: int) -> int:
    least = _least(columns)[number]
    return size - least if size >= least else size


def _least(columns: AllocationColumns) -> dict[int, int]:
    """Return, by gang number, the minimum number of members.

    The minimum is read from the first standing row of the gang, or from its first row if it has no standing row. A row that is
    not standing may have an outdated minimum, because the minimum may have changed after the row's eviction was ordered (J12).
    The result is cached.
    """
    known = columns.sorted.get("gangs")
    if known is None:
        order = np.argsort(~columns.standing, kind="stable")
        order = order[columns.gangs[order].argsort(kind="stable")]
        numbers = columns.gangs[order]
        first = starts(numbers)
        specs = [columns.specs[row] for row in order[first].tolist()]
        sizes = [0 if spec is None else spec.min_members for spec in specs]
        known = columns.sorted["gangs"] = dict(zip(numbers[first].tolist(), sizes, strict=True))
    found: dict[int, int] = known
    return found


def of(columns: AllocationColumns, number: int) -> Mask | None:
    """Return a mask of the allocations of a gang. Return None if ``number`` is 0."""
    if not number:
        return None
    found: Mask = columns.gangs == number
    return found


def of_application(columns: AllocationColumns, leaf: int, application_id: str) -> Mask:
    """Return a mask of the allocations of one application in a leaf."""
    found: Mask = columns.leaves == leaf
    rows = np.flatnonzero(found)
    ids = columns.application_ids
    found[rows] = [ids[row] == application_id for row in rows.tolist()]
    return found
