"""The queues below a queue that exceeds its maximum: what each lower queue can lose, and its share of the target (Q15).

Shares are lists of whole amounts by target type. A queue divides its share among its children, in proportion to the amounts
that each may release.
"""

from collections.abc import Mapping, Sequence
from math import prod

from server.kernels.share import largest_remainder
from server.preemption.entitlement import floor
from server.preemption.quota.run import Line, PathMargins, RunInProgress
from server.preemption.trial import Trial
from server.snapshot.victims_in_order import Lot


def shares(wanted: Sequence[int], releasable: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return, for each child in the order of paths, the amount of each type that it has to free (Q15)."""
    columns = [
        largest_remainder(amount, [child[at] for child in releasable])
        for at, amount in enumerate(wanted)
    ]
    return [[column[number] for column in columns] for number in range(len(releasable))]


def turns(wanted: Sequence[int], releasable: Sequence[Sequence[int]]) -> list[int]:
    """Return the children's indices in the order of their turns (Q15).

    The child with the largest part comes first. A child's part of a type is the amount that it may release, divided by the
    amount that is wanted of the type. The largest of these parts over all wanted types decides. Children with equal parts stay
    in path order.
    """
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
    """Return a share minus ``credit``, the amounts that siblings freed beyond their shares (Q15).

    The part of the credit that is used is subtracted from ``credit``.
    """
    used = [min(part, have) for part, have in zip(share, credit, strict=True)]
    for at, amount in enumerate(used):
        credit[at] -= amount
    return [part - amount for part, amount in zip(share, used, strict=True)]


class Tree:
    """The queues that take part in a run.

    ``target`` has the amounts of the run's target by type index. Other amounts are lists by column, with the columns of the
    target first.
    """

    def __init__(self, trial: Trial, top: str, target: Mapping[int, int]) -> None:
        self._trial = trial
        self._top = top
        self._children: dict[str, list[str]] = {}
        self.leaves: list[str] = []
        self._grow(top)
        self._targets = list(target)
        self.types = [*self._targets, *self._guarded(self._targets)]

    def _grow(self, top: str) -> None:
        snapshot = self._trial.snapshot
        below: dict[str, list[str]] = {}
        for path, queue in snapshot.queues.items():
            # Q15: a child whose own run began at an earlier instant takes no part. The queues below such a
            # child take no part either.
            if snapshot.runs.get(path, snapshot.now) >= snapshot.now:
                below.setdefault(queue.parent, []).append(path)
        found = [top]
        for path in found:
            if snapshot.queues[path].leaf:
                self.leaves.append(path)
            self._children[path] = sorted(below.get(path, ()))
            found += self._children[path]

    def _guarded(self, targets: Sequence[int]) -> list[int]:
        """Return the types outside the target to which some queue is entitled.

        Victims must leave these entitlements to the queues.
        """
        snapshot = self._trial.snapshot
        paths = dict.fromkeys(one.path for leaf in self.leaves for one in snapshot.path_up(leaf))
        floors = {floor(self._trial, path) for path in paths}
        found = {index for each in floors for index, least in enumerate(each) if least}
        return sorted(found.difference(targets))

    def margins(self) -> dict[str, PathMargins]:
        """Return, for each leaf, the amounts that each queue on its path up to the root can lose.

        A queue has one list, which all paths through it share.
        """
        lines: dict[str, Line] = {}
        return {
            leaf: tuple(self._margin(one.path, lines) for one in self._trial.snapshot.path_up(leaf))
            for leaf in self.leaves
        }

    def _margin(self, path: str, lines: dict[str, Line]) -> Line:
        if path not in lines:
            used, least = self._trial.eff(path), floor(self._trial, path)
            lines[path] = [used[index] - least[index] for index in self.types]
        return lines[path]

    def releasable(self, path: str) -> Line:
        """Return the amounts that a queue uses beyond its entitlement, by target type (Q15).

        For a type without an entitlement, the amount is the queue's whole usage.
        """
        used, least = self._trial.eff(path), floor(self._trial, path)
        return [max(0, used[index] - least[index]) for index in self._targets]

    def _because(self, leaf: str) -> str:
        if leaf == self._top:
            return f"{leaf} is over its maximum (Q11, Q12)"
        return f"its queue's share of what {self._top} has beyond its maximum (Q15, Q12)"

    def free(self, run: RunInProgress, lots: Mapping[str, Lot], path: str, wanted: Line) -> Line:
        """Free an amount below a queue, level by level (Q15). Return the freed amounts, which may be more or less than ``wanted``."""
        if path in lots:
            return run.walk(path, lots[path], wanted, self._because(path))
        children = self._children[path]
        releasable = [self.releasable(child) for child in children]
        parts = shares(wanted, releasable)
        freed, credit = [0] * len(wanted), [0] * len(wanted)
        for number in turns(wanted, releasable):
            share = use_credit(parts[number], credit)
            if not any(share):
                continue
            got = self.free(run, lots, children[number], share)
            for at, amount in enumerate(got):
                freed[at] += amount
                credit[at] += max(0, amount - share[at])
        return freed
