"""The search for a short story of a difference: moments and queues are left out as long as a difference remains."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from server.model.events import ManagerRegistered
from server.model.quota import Configuration, QueueProperties, QueueSpec
from tests.simulation.duel import Difference, duel
from tests.simulation.worlds import Moment, World

REPLAYS_MOST = 600
"""Maximum number of replays to shrink one difference."""


def shrink(found: Difference) -> Difference:
    """Return the difference in a smaller world, first with fewer moments, then with plainer queues."""
    search = _Search(found)
    search.fewer_moments()
    search.plainer_queues()
    search.fewer_moments()
    return search.found


@dataclass
class _Search:
    """The smallest difference so far, and the number of replays so far."""

    found: Difference
    replays: int = 0

    def fewer_moments(self) -> None:
        """Leave out halves, quarters and so on down to single moments."""
        size = max(1, self.found.index // 2)
        while size:
            start = 0
            while start <= self.found.index and self.replays < REPLAYS_MOST:
                moments = self.found.world.moments[: self.found.index + 1]
                kept = [*moments[:start], *_needed(moments[start : start + size])]
                if not self._try(replace(self.found.world, moments=kept + moments[start + size :])):
                    start += size
            size //= 2

    def plainer_queues(self) -> None:
        """Remove queues and their settings, one by one."""
        progress = True
        while progress and self.replays < REPLAYS_MOST:
            plainer = _plainer(self.found.world.configuration)
            progress = any(
                self._try(replace(self.found.world, configuration=each)) for each in plainer
            )

    def _try(self, world: World) -> bool:
        self.replays += 1
        if len(world.moments) == self.found.index + 1 and (
            world.configuration is self.found.world.configuration
        ):
            return False
        smaller = duel(replace(world, expected=[]))
        self.found = smaller or self.found
        return smaller is not None


def _needed(moments: list[Moment]) -> list[Moment]:
    return [moment for moment in moments if isinstance(moment[1], ManagerRegistered)]


def _plainer(configuration: Configuration) -> Iterator[Configuration]:
    for index, spec in enumerate(configuration.partitions):
        for root in _plainer_queues(spec.root):
            changed = list(configuration.partitions)
            changed[index] = replace(spec, root=root)
            yield Configuration(tuple(changed))


def _plainer_queues(queue: QueueSpec) -> Iterator[QueueSpec]:
    for index, child in enumerate(queue.children):
        others = queue.children[:index], queue.children[index + 1 :]
        if len(queue.children) > 1:
            yield replace(queue, children=others[0] + others[1])
        for plainer in _plainer_queues(child):
            yield replace(queue, children=(*others[0], plainer, *others[1]))
    plain: dict[str, object] = {
        "guaranteed": (),
        "max": None,
        "limits": (),
        "max_applications": 0,
        "properties": QueueProperties(),
    }
    for name, value in plain.items():
        if getattr(queue, name) != value:
            yield replace(queue, **{name: value})  # type: ignore[arg-type]
