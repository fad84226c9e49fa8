"""The terms on which allocations of an ask's own queue may be evicted for it (I2): lower priority, another application."""

from collections.abc import Iterator, Sequence

from server.kernels.fit import Mask
from server.preemption.claims.eligibility import (
    CODE,
    Block,
    Path,
    Rooms,
    blocks,
    own_leaf,
    own_room,
    own_rooms,
)
from server.preemption.policy import Rule
from server.preemption.trial import Trial
from server.snapshot import gangs
from server.snapshot.eligibility_filter import LeafTerms
from server.snapshot.waiting import WaitingAsk


class OwnTerms:
    """The terms of one class of asks of one application, as `Terms` has them, for their own queue alone."""

    def __init__(self, ask: WaitingAsk) -> None:
        self.ask = ask
        self.closed: frozenset[int] = frozenset()
        self._wanted = dict(ask.kind.demand)

    def by_leaf(self, trial: Trial) -> Iterator[tuple[int, LeafTerms]]:
        """Yield the terms of every leaf in which allocations run, by its number; only the ask's own leaf is open."""
        own = trial.snapshot.queues[self.ask.leaf].number
        for number in trial.snapshot.allocations.leaf_places()[0]:
            if number in trial.snapshot.leaf_paths:
                closed = LeafTerms(CODE[Rule.OTHER_QUEUE])
                yield number, self._open(trial) if number == own else closed

    def _open(self, trial: Trial) -> LeafTerms:
        leaf, needed = self.ask.leaf, dict(self.ask.kind.node_demand)
        return own_leaf(trial, leaf, needed, self.ask.spec.priority, self.rooms(trial, leaf))

    def rooms(self, trial: Trial, path: str) -> Rooms:
        """Return the queues from the leaf up, each with what it can lose by type (G4)."""
        return own_rooms(trial, path, self._wanted)

    def room(self, trial: Trial, way: Path, place: int) -> list[int]:
        """Return what one queue of a path can lose by type."""
        return own_room(trial, way.queues[place].path, self._wanted)

    def path(self, trial: Trial, path: str) -> Path:
        """Return the path up from the leaf."""
        return Path(trial.snapshot.path_up(path), 0)

    def withheld(self, path: str) -> frozenset[int]:
        """Return the types that a leaf withholds: none, for the victim's place becomes the preemptor's."""
        del path
        return frozenset()

    def at_rest(self, trial: Trial, path: str) -> Sequence[int]:
        """Return the types in the dead zone: none, for a replacement takes nothing from its queue (P9)."""
        del trial, path
        return ()

    def is_over(self, trial: Trial, path: str, index: int) -> bool:
        """Return whether a victim helps with a type: always, for it is replaced in the same queue."""
        del trial, path, index
        return True

    def crosses(self, trial: Trial) -> bool:
        """Return whether a victim may leave its queue below its share: never, for it is replaced."""
        del trial
        return False

    def kin(self, trial: Trial) -> Mask | None:
        """Return the rows of the ask's own application, which are barred (I2)."""
        number = trial.snapshot.queues[self.ask.leaf].number
        return gangs.of_application(trial.snapshot.allocations, number, self.ask.application_id)

    def blocks(self, trial: Trial) -> tuple[Block, ...]:
        """Return what the ask's queues would hold beyond their limits, plain shares included, for victims run there (I4, W2)."""
        return blocks(trial, self.ask, claiming=False)
