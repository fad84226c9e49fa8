"""The number of asks that a queue's deficit admits as claims, computed without a snapshot (G2, W6).

If this number is 0 for all queues, there are no claims to plan, and no snapshot has to be taken. The number is an upper bound,
because policies and rules may later refuse some of these asks. The number is computed when it is first needed, at most once a
round.
"""

from collections.abc import Iterator
from functools import cached_property

from server.model.fit import Amounts, Demand
from server.model.quota import up_to_fence
from server.preemption.proportion import Proportion, proportion
from server.state import sharing, snapshotting
from server.state.partition import Partition
from server.state.queues import Queue


class Shortage:
    """The deficits of the queues of one partition at one instant."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._in_proportion = sharing.is_shared_out(partition)
        self._below: dict[Queue, bool] = {}

    @cached_property
    def shares(self) -> Proportion:
        """Return the deserved shares of the queues, which equal the shares in a snapshot that is taken now."""
        partition = self._partition
        return proportion(
            snapshotting.queues(partition),
            sharing.pending(partition),
            sharing.total(partition),
            demand_cap=partition.spec.preemption.demand_cap,
        )

    @property
    def known(self) -> Proportion | None:
        """Return the deserved shares if they have been computed, else None. This method computes no shares."""
        return self.__dict__.get("shares")

    @cached_property
    def _reserved(self) -> dict[str, Amounts]:
        return snapshotting.reserved(self._partition)

    def may_be(self, leaf: Queue) -> bool:
        """Return whether any queue on the path has an entitlement.

        Without an entitlement, no queue on the path can have a deficit (G2).
        """
        return self._in_proportion or any(queue.spec.guaranteed for queue in leaf.path_up())

    def may_lack(self, leaf: Queue) -> bool:
        """Return whether a queue on the leaf's path that may decide for the leaf is below its entitlement in any type.

        If no such queue is below its entitlement, `lacking` returns 0 for all asks of the leaf. If shares follow weights,
        return True.
        """
        if self._in_proportion:
            return True
        return any(self._is_below(queue) for queue in up_to_fence(leaf.path_up()))

    def _is_below(self, queue: Queue) -> bool:
        """Return whether a queue holds less than its guarantee in any type. The result is stored for queues with children."""
        if not queue.spec.guaranteed:
            return False
        found = self._below.get(queue)
        if found is None:
            index = self._partition.types.index
            found = any(
                name in index and self._held(queue, index[name]) < quantity
                for name, quantity in queue.spec.guaranteed
            )
            if queue.children:
                self._below[queue] = found
        return found

    def lacking(self, leaf: Queue, demand: Demand) -> int:
        """Return an upper bound on how many more asks of this demand may claim (G2, W6); the bound is 0 if no ask may claim.

        A queue is *open* to an ask while it decides for a requested type and is below its entitlement in that type. An ask may
        claim while at least one queue is open to it. Each claim lowers the deficits of the lowest queue that is open to the
        ask, in all types for which this queue decides. Therefore the bound is a sum over the queues on the path: for each
        queue, the number of asks that its deficit admits.
        """
        most: dict[str, int] = {}
        for index, quantity in demand:
            for path, short in self._short(leaf, index):
                most[path] = max(most.get(path, 0), _asks(short, quantity))
        return sum(most.values())

    def _short(self, leaf: Queue, at: int) -> Iterator[tuple[str, int]]:
        """Yield (path, deficit) pairs for one type: a pair for each queue that decides for this type (W6).

        With shares by weight, a queue for which the type is not contended decides only until it has reached its floor.
        Afterwards a queue above it decides. Therefore pairs of queues above it follow, up to the first queue for which the type
        is contended.
        """
        for queue in up_to_fence(leaf.path_up()):
            if not self._in_proportion:
                guaranteed = self._guaranteed(queue, at)
                if guaranteed > 0:
                    yield queue.path, guaranteed - self._held(queue, at)
                    return
                continue
            share, held = self.shares.of(queue.path), self._held(queue, at)
            if share.contended[at] or held < share.floor[at]:
                yield queue.path, share.entitled[at] - held
            if share.contended[at]:
                return

    def _held(self, queue: Queue, at: int) -> int:
        weak = self._reserved.get(queue.path)
        held = queue.usage[at] - queue.releasing[at] + queue.promised[at]
        return held - weak[at] if weak else held

    def _guaranteed(self, queue: Queue, at: int) -> int:
        name = self._partition.types.names[at]
        return next((quantity for kind, quantity in queue.spec.guaranteed if kind == name), 0)


def _asks(short: int, quantity: int) -> int:
    """Return how many asks of this quantity can be placed one after another until the deficit is used up."""
    return max(0, -(-short // quantity))
