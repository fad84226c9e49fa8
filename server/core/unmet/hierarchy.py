"""The rules between the numbers of queues that a configuration must keep: a cure that breaks one cannot be applied."""

from server.model.quota import ROOT
from server.view.queues import FrozenAmounts
from server.view.view import View


def allows(view: View, path: str, guaranteed: FrozenAmounts) -> bool:
    """Return whether `config apply` takes another guarantee of one queue: no bound is passed that was kept before."""
    return all(
        one == before or _is_kept(view, path, at, one)
        for at, (one, before) in enumerate(
            zip(guaranteed, view.queues[path].guaranteed, strict=True)
        )
    )


def allows_max(view: View, path: str) -> bool:
    """Return whether the max of a queue stays within the nearest max above it, type by type."""
    own = view.queues[path].max
    above = view.path_up(view.queues[path].parent) if path != ROOT else ()
    for queue in above:
        pairs = zip(own, queue.max, strict=True)
        if any(one is not None and most is not None and one > most for one, most in pairs):
            return False
    return True


def _is_kept(view: View, path: str, at: int, amount: int) -> bool:
    """Compare one type with the queue's max, with what is below it, and with the bounds of its parents."""
    queue = view.queues[path]
    most = queue.max[at]
    if amount > queue.guaranteed[at]:
        if most is not None and amount > most:
            return False
    elif amount and amount < _below(view, path, at):
        return False
    needed = amount or _below(view, path, at)
    for above in view.path_up(queue.parent) if path != ROOT else ():
        parts = _below(view, above.path, at) - _needs(view, path, at) + needed
        bounds = [one for one in (above.guaranteed[at], above.max[at]) if one]
        if any(parts > one for one in bounds) and needed > _needs(view, path, at):
            return False
        if above.guaranteed[at]:
            break
        path, needed = above.path, parts
    return True


def _needs(view: View, path: str, at: int) -> int:
    """Return what a queue needs guaranteed: its own amount, or else the sum of those below it."""
    return view.queues[path].guaranteed[at] or _below(view, path, at)


def _below(view: View, path: str, at: int) -> int:
    return sum(_needs(view, one.path, at) for one in view.queues.values() if one.parent == path)
