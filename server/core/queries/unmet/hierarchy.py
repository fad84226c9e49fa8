"""The rules by which a configuration relates the amounts of a queue to those of its parent and children.

A *cure* is a single change after which asks of a queue below its guarantee would get capacity (see `cures`). A cure that breaks
one of these rules cannot be applied.
"""

from server.model.quota import ROOT
from server.snapshot.queues import FrozenAmounts
from server.snapshot.snapshot import Snapshot


def allows(snapshot: Snapshot, path: str, guaranteed: FrozenAmounts) -> bool:
    """Return whether `config apply` accepts this guarantee of a queue. Types whose amount does not change are not checked."""
    return all(
        one == before or _is_kept(snapshot, path, at, one)
        for at, (one, before) in enumerate(
            zip(guaranteed, snapshot.queues[path].guaranteed, strict=True)
        )
    )


def allows_max(snapshot: Snapshot, path: str) -> bool:
    """Return whether the max of a queue stays within the nearest max above it, in every type."""
    own = snapshot.queues[path].max
    above = snapshot.path_up(snapshot.queues[path].parent) if path != ROOT else ()
    for queue in above:
        pairs = zip(own, queue.max, strict=True)
        if any(one is not None and most is not None and one > most for one, most in pairs):
            return False
    return True


def _is_kept(snapshot: Snapshot, path: str, at: int, amount: int) -> bool:
    """Return whether a guarantee of one type is valid together with the other amounts of the tree.

    These amounts are the queue's max, the guarantees of its children, and the guarantees and maxima of its ancestors.
    """
    queue = snapshot.queues[path]
    most = queue.max[at]
    if amount > queue.guaranteed[at]:
        if most is not None and amount > most:
            return False
    elif amount and amount < _below(snapshot, path, at):
        return False
    needed = amount or _below(snapshot, path, at)
    for above in snapshot.path_up(queue.parent) if path != ROOT else ():
        parts = _below(snapshot, above.path, at) - _needs(snapshot, path, at) + needed
        bounds = [one for one in (above.guaranteed[at], above.max[at]) if one]
        if any(parts > one for one in bounds) and needed > _needs(snapshot, path, at):
            return False
        if above.guaranteed[at]:
            break
        path, needed = above.path, parts
    return True


def _needs(snapshot: Snapshot, path: str, at: int) -> int:
    """Return the amount that a queue needs of its parent's guarantee: its own guarantee, or else the sum of its children's needs."""
    return snapshot.queues[path].guaranteed[at] or _below(snapshot, path, at)


def _below(snapshot: Snapshot, path: str, at: int) -> int:
    return sum(
        _needs(snapshot, one.path, at) for one in snapshot.queues.values() if one.parent == path
    )
