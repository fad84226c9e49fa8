"""How many more asks a queue is short of: known before a View is taken, so that none is taken for nobody (G2, W6).

It is an upper bound: policies and laws decide. What it costs is spent when somebody asks, and once a round.
"""

from functools import cached_property

from server.books import sharing, snapshot
from server.books.partition import Partition
from server.books.queues import Queue
from server.model.fit import Amounts, Demand
from server.model.quota import up_to_fence
from server.preemption.proportion import Proportion, proportion


class Shortage:
    """Of one partition, at one instant."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._in_proportion = sharing.is_shared_out(partition)

    @cached_property
    def shares(self) -> Proportion:
        """What the queues deserve, as a View that is taken now says it."""
        partition = self._partition
        return proportion(
            snapshot.queues(partition),
            sharing.pending(partition),
            sharing.total(partition),
            demand_cap=partition.spec.preemption.demand_cap,
        )

    @property
    def known(self) -> Proportion | None:
        """The shares, if anybody asked for them."""
        return self.__dict__.get("shares")

    @cached_property
    def _reserved(self) -> dict[str, Amounts]:
        return snapshot.reserved(self._partition)

    def may_be(self, leaf: Queue) -> bool:
        """Is there anything that a queue on the path could be short of (G2)?"""
        return self._in_proportion or any(queue.spec.guaranteed for queue in leaf.path_up())

    def lacking(self, leaf: Queue, demand: Demand) -> int:
        """How many more asks of this demand those who decide are short of at the most, 0 when they are not (G2, W6)."""
        if self._in_proportion:
            return self._lacking_in_proportion(leaf, demand)
        found = [(self._short(leaf, index), quantity) for index, quantity in demand]
        return min((_asks(*one) for one in found if one[0] is not None), default=0)

    def _lacking_in_proportion(self, leaf: Queue, demand: Demand) -> int:
        """A type that only floors decide does not decide any more when these are met, others do (W6)."""
        lasting, passing = list[int](), list[int]()
        for index, quantity in demand:
            contended, short = self._short_of_share(leaf, index)
            if short is not None:
                (lasting if contended else passing).append(_asks(short, quantity))
        return min(lasting) if lasting else max(passing, default=0)

    def _short(self, leaf: Queue, at: int) -> int | None:
        """What is missing of a type; None: nobody decides for it."""
        for queue in up_to_fence(leaf.path_up()):
            guaranteed = self._guaranteed(queue, at)
            if guaranteed > 0:
                return guaranteed - self._held(queue, at)
        return None

    def _short_of_share(self, leaf: Queue, at: int) -> tuple[bool, int | None]:
        """Is the type contended on the path, and the most that is missing there: another queue may decide next (W6)."""
        contended, missing = False, None
        for queue in up_to_fence(leaf.path_up()):
            share, held = self.shares.of(queue.path), self._held(queue, at)
            if share.contended[at] or held < share.floor[at]:
                short = share.entitled[at] - held
                missing = short if missing is None else max(missing, short)
                contended |= share.contended[at]
        return contended, missing

    def _held(self, queue: Queue, at: int) -> int:
        weak = self._reserved.get(queue.path)
        held = queue.usage[at] - queue.releasing[at] + queue.promised[at]
        return held - weak[at] if weak else held

    def _guaranteed(self, queue: Queue, at: int) -> int:
        name = self._partition.types.names[at]
        return next((quantity for kind, quantity in queue.spec.guaranteed if kind == name), 0)


def _asks(short: int | None, quantity: int) -> int:
    """So many asks of this quantity begin while something is missing."""
    return max(0, -(-(short or 0) // quantity))
