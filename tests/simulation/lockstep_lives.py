"""Cores in the middle of a random run, and random changes of their configuration, for `lockstep`.

A run is one of `everything_life` without the checks, because other tests make them. Each change is of a kind in
CHANGES, so that the kinds can be counted; sometimes two changes are made together.
"""

import copy
import random
from collections.abc import Callable, Iterator
from typing import Final

import yaml

from server.config import load
from server.core.core import BUDGET
from server.model.decisions import AskRejected
from server.model.quota import Configuration
from tests.simulation import everything
from tests.simulation.everything import Section
from tests.simulation.everything_life import Everything

TICKS_MOST: Final = 2_000
"""Maximum number of ticks at one instant."""
DRAWS_MOST: Final = 200
"""Maximum number of random changes until one is accepted."""
BOUNDS: Final = {"0s": 25, "2s": 25, "5s": 30, "20s": 16, "2m": 4}
"""Time-outs of reservations with their frequencies: 0s means none, and a long one makes a forecast long."""
SHADOWED: Final = 0.25
"""The fraction of random shadows that is kept, because a shadow changes nothing and takes as much time as the rest."""
CROWDED: Final = 0.04
"""The probability that a cluster has so many nodes that several asks have reservations at the same time."""
CROWDED_NODES: Final = 25


class Life(Everything):
    """A random run that stops at any instant, and its next configuration."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(f"lock-step {seed}")
        self.crowded = self.draw.random() < CROWDED
        super().__init__(seed)
        self.budget = self.draw.choice((1, 2, 5, 50, BUDGET, BUDGET))

    def _partition(self, name: str) -> Section:
        found = super()._partition(name)
        found["reservations"] = self._reservations()
        if self.draw.random() > SHADOWED:
            found["preemption"].pop("shadow", None)
        if found["preemption"]["backoff"] != "15s" and self.draw.random() < 0.6:
            found["preemption"]["backoff"] = "5s"  # A short back-off makes a forecast long.
        (root,) = found["queues"]
        for _, queue in _below(root):
            if queue["properties"].get("preemption.minruntime") == "2m":
                queue["properties"]["preemption.minruntime"] = "12s"
        return found

    def _reservations(self) -> Section:
        if self.draw.random() < 0.25 and not self.crowded:
            return {"enabled": False}
        return {"timeout": self.draw.choices(list(BOUNDS), list(BOUNDS.values()))[0]}

    # -- the run up to some instant ----------------------------------------------------------------------------------

    def look(self) -> None:
        """Do nothing, because queries are checked elsewhere."""

    def tick(self) -> None:
        """Tick until nothing is left to do, without checks."""
        self.account.now = self.now
        for _ in range(TICKS_MOST):
            if not self._one_tick():
                return
        raise AssertionError(f"a tick with budget {self.budget} does not end")

    def _one_tick(self) -> bool:
        tick = self.core.tick(self.now, self.budget)
        self.said.append(tick.decisions)
        for one in tick.decisions:
            if isinstance(one, AskRejected):
                self.account.refuse(one.partition, one.key)
        self.account.decided(tick.decisions)
        return tick.more

    def middle(self) -> bool:
        """Run up to a random instant; return whether the budget cut off the last tick, so that the next one continues it."""
        self.found()
        if self.crowded:
            for _ in range(CROWDED_NODES):
                self.add_node()
        actions, weights = zip(*self._attacks(), strict=True)
        for action in self.dice.choices(actions, weights, k=self.dice.randint(6, 30)):
            action()
            if self.dice.random() < 0.6:
                self.tick()
        if self.draw.random() < 0.3:
            self.budget = 1
            return self._one_tick()
        self.tick()
        return False

    # -- the next configuration ---------------------------------------------------------------------------------------

    def changed(self) -> tuple[Configuration, list[str]]:
        """Return another configuration that passes its checks, and the kinds of its changes; the core does not get it."""
        for _ in range(DRAWS_MOST):
            written = copy.deepcopy(self.written)
            kinds = self.draw.choices(list(CHANGES), k=2 if self.draw.random() < 0.25 else 1)
            for kind in kinds:
                CHANGES[kind](self, written)
            text = yaml.safe_dump({"partitions": list(written.values())})
            found = load(text, "lock-step")[0] if written != self.written else None
            if found is not None and found != self.configuration:
                return found, kinds
        raise AssertionError(f"seed {self.seed}: no change is accepted")

    def one(self, written: dict[str, Section]) -> Section:
        """Return a partition, as written."""
        return self.draw.choice(list(written.values()))

    def queue(self, written: dict[str, Section]) -> Section:
        """Return a queue below the root, as written."""
        (root,) = self.one(written)["queues"]
        return self.draw.choice([queue for _, queue in _below(root)])

    def whole(self, written: dict[str, Section]) -> None:
        """Replace everything in a partition, with queues of the same names."""
        name = self.draw.choice(list(written))
        written[name] = self._partition(name)

    def maximum(self, written: dict[str, Section]) -> None:
        """Lower the max of a queue that is in use."""
        self._lower(self.one(written))

    def guarantee(self, written: dict[str, Section]) -> None:
        """Change what a queue is guaranteed."""
        resources = self.queue(written).setdefault("resources", {})
        own = {kind: self.draw.randint(0, 14) for kind in self.kinds if self.draw.random() < 0.8}
        resources["guaranteed"] = everything.units(own)

    def weight(self, written: dict[str, Section]) -> None:
        """Change the weight of a queue."""
        self.queue(written)["weight"] = self.draw.choice((1, 2, 5, 20))

    def queue_property(self, written: dict[str, Section]) -> None:
        """Change the delay, fence, offset or another property of a queue."""
        queue = self.queue(written)
        drawn = everything.properties(self.draw, leaf="queues" not in queue)
        key = self.draw.choice(sorted({*drawn, *queue["properties"]}) or ["priority.offset"])
        queue["properties"].pop(key, None)
        queue["properties"] |= {key: drawn[key]} if key in drawn else {}

    def setting(self, written: dict[str, Section]) -> None:
        """Change one key of `preemption`."""
        self._set_one(self.one(written))

    def entitlement(self, written: dict[str, Section]) -> None:
        """Change between entitlements by weight and by guarantee."""
        settings = self.one(written)["preemption"]
        if settings.get("entitlement") == "proportional":
            for key in ("entitlement", "proportion"):
                settings.pop(key, None)
        else:
            settings |= everything.by_weight(self.draw)

    def shadow(self, written: dict[str, Section]) -> None:
        """Change the shadow, which moves nothing."""
        self._other_shadow(self.one(written))

    def reservations(self, written: dict[str, Section]) -> None:
        """Change the time-out of reservations, or switch reservations off."""
        self.one(written)["reservations"] = self._reservations()

    def queue_added(self, written: dict[str, Section]) -> None:
        """Add a leaf next to others."""
        (root,) = self.one(written)["queues"]
        parents = [root, *(queue for _, queue in _below(root) if "queues" in queue)]
        self.draw.choice(parents)["queues"].append(self._new_leaf("new"))

    def queue_divided(self, written: dict[str, Section]) -> None:
        """Give a leaf queues below it, whether or not pods run in it."""
        leaf = self.draw.choice(_leaves(self.one(written)))[1]
        leaf["queues"] = [self._new_leaf("new1"), self._new_leaf("new2")]

    def queue_removed(self, written: dict[str, Section]) -> None:
        """Remove a leaf, with or without running pods."""
        above, leaf = self.draw.choice(_leaves(self.one(written)))
        above["queues"].remove(leaf)
        if not above["queues"]:
            del above["queues"]

    def _new_leaf(self, name: str) -> Section:
        own = {kind: self.draw.randint(0, 6) for kind in self.kinds if self.draw.random() < 0.5}
        return {
            "name": name,
            "weight": self.draw.choice((1, 2, 5)),
            "properties": everything.properties(self.draw, leaf=True),
            "resources": {"guaranteed": everything.units(own)},
        }

    def partition_removed(self, written: dict[str, Section]) -> None:
        """Remove a partition from the configuration, unless it is the last one."""
        if len(written) > 1:
            del written[self.draw.choice(list(written))]


CHANGES: Final[dict[str, Callable[[Life, dict[str, Section]], None]]] = {
    "whole": Life.whole,
    "max": Life.maximum,
    "guarantee": Life.guarantee,
    "weight": Life.weight,
    "property": Life.queue_property,
    "setting": Life.setting,
    "entitlement": Life.entitlement,
    "shadow": Life.shadow,
    "reservations": Life.reservations,
    "queue added": Life.queue_added,
    "queue divided": Life.queue_divided,
    "queue removed": Life.queue_removed,
    "partition removed": Life.partition_removed,
}
"""The kinds of changes."""


def _below(queue: Section) -> Iterator[tuple[Section, Section]]:
    """Yield the queues below one, each with its parent."""
    for child in queue.get("queues", ()):
        yield queue, child
        yield from _below(child)


def _leaves(partition: Section) -> list[tuple[Section, Section]]:
    (root,) = partition["queues"]
    return [(above, queue) for above, queue in _below(root) if "queues" not in queue]
