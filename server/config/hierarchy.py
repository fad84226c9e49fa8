"""Checks of a queue's numbers against the numbers of its parent and its children, as other schedulers check them (Q8)."""

from collections.abc import Mapping

from server.config.problems import Path, Reporter
from server.config.tree import Draft
from server.model.resources import QUANTITY_LIMIT
from server.model.spelling import quantity_text


def check(root: Draft, reporter: Reporter) -> None:
    """Report every number in the tree that contradicts a number of another queue."""
    _check_sums(root, reporter)
    _check_maximum(root, {}, reporter)
    for draft in root.walk():
        _check_own(draft.guaranteed, draft.maximum, (*draft.where, "resources"), reporter)
        _check_applications(draft, reporter)
        if draft.template:
            where = (*draft.where, "childtemplate", "resources")
            _check_own(draft.template.guaranteed, draft.template.maximum, where, reporter)


def _check_own(
    guaranteed: Mapping[str, int], maximum: Mapping[str, int], where: Path, reporter: Reporter
) -> None:
    for kind, amount in guaranteed.items():
        if amount > maximum.get(kind, amount):
            message = f"{_text(kind, amount)} is more than the queue's max of {_text(kind, maximum[kind])}"
            advice = "lower the guarantee, or raise max"
            reporter.error((*where, "guaranteed", kind), message, advice=advice)


def _check_maximum(draft: Draft, above: dict[str, tuple[int, str]], reporter: Reporter) -> None:
    """Check for each type that the max of a queue is at most the nearest max above the queue.

    Check all queues below the queue, too. ``above`` has, for each type, the nearest max above the queue and the path of the
    queue with this max. The function changes ``above`` for the queues below, and restores it at the end.
    """
    outer = {kind: above[kind] for kind in draft.maximum if kind in above}
    for kind, amount in draft.maximum.items():
        if kind in above and amount > above[kind][0]:
            bound, owner = above[kind]
            message = f"{_text(kind, amount)} is more than the max of {owner}, {_text(kind, bound)}"
            advice = f"lower it, or raise the max of {owner}"
            reporter.error((*draft.where, "resources", "max", kind), message, advice=advice)
        above[kind] = amount, draft.path
    for child in draft.children:
        _check_maximum(child, above, reporter)
    for kind in draft.maximum:
        del above[kind]
    above.update(outer)


def _check_sums(draft: Draft, reporter: Reporter) -> dict[str, int]:
    """Check that the guarantees of a queue's children add up to no more than the guarantee and the max of the queue.

    All queues below the queue are checked in the same way. Return the amount that counts for this queue in the sum of its
    parent, by type: the queue's own guarantee, or else the sum of its children's guarantees.
    """
    sums: dict[str, int] = {}
    for child in draft.children:
        for kind, amount in _check_sums(child, reporter).items():
            sums[kind] = sums.get(kind, 0) + amount
    for key, bounds in (("guaranteed", draft.guaranteed), ("max", draft.maximum)):
        for kind, bound in bounds.items():
            if sums.get(kind, 0) > bound:
                message = f"the queues below are guaranteed {_text(kind, sums[kind])}, more than {_text(kind, bound)}"
                advice = f"lower the guarantees of the queues below {draft.path}, or raise this one"
                reporter.error((*draft.where, "resources", key, kind), message, advice=advice)
    for kind, amount in sums.items():
        if amount >= QUANTITY_LIMIT:
            reporter.error(
                draft.where, f"the queues below are guaranteed more {kind} than 2^62 units"
            )
    return {**sums, **draft.guaranteed}


def _check_applications(draft: Draft, reporter: Reporter) -> None:
    """Check the limit on the number of applications of a queue whose parent has such a limit.

    The queue must have a limit, too, and this limit must be at most the limit of the parent.
    """
    bound = draft.above.shape.maxapplications if draft.above else 0
    own = draft.shape.maxapplications
    if not bound or 0 < own <= bound or (not own and reporter.lacks(draft.where)):
        return
    parent = draft.above.path if draft.above else ""
    message = (
        f"{own} is more than the {bound} of {parent}"
        if own
        else f"must be set, because {parent} allows {bound}"
    )
    advice = f"write at most {bound}, or raise or remove that of {parent}"
    reporter.error((*draft.where, "maxapplications"), message, advice=advice)


def _text(kind: str, amount: int) -> str:
    return f"{kind} {quantity_text(kind, amount)}"
