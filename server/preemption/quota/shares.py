"""The division of a parent's target among its children (Q15). Amounts are lists by target type; whole numbers only."""

from collections.abc import Sequence
from math import prod

from server.kernels.share import largest_remainder


def shares(wanted: Sequence[int], releasable: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return for each child, in the order of their paths, the part of each type that it has to free (Q15)."""
    columns = [
        largest_remainder(amount, [child[at] for child in releasable])
        for at, amount in enumerate(wanted)
    ]
    return [[column[number] for column in columns] for number in range(len(releasable))]


def turns(wanted: Sequence[int], releasable: Sequence[Sequence[int]]) -> list[int]:
    """Return the children's numbers by largest releasable / target over the target types, then by path (Q15)."""
    kinds = [at for at, amount in enumerate(wanted) if amount > 0]
    whole = prod(wanted[at] for at in kinds)
    weights = [(at, whole // wanted[at]) for at in kinds]
    return sorted(
        range(len(releasable)),
        key=lambda number: (
            -max((releasable[number][at] * weight for at, weight in weights), default=0)
        ),
    )


def use_credit(share: list[int], credit: list[int]) -> list[int]:
    """Return a share less what siblings freed beyond theirs; the credit shrinks by what is used of it (Q15)."""
    used = [min(part, have) for part, have in zip(share, credit, strict=True)]
    for at, amount in enumerate(used):
        credit[at] -= amount
    return [part - amount for part, amount in zip(share, used, strict=True)]
