"""The real cluster of `claims`, where all pods with several GPUs form gangs, each placed as a whole or not at all.

`python -m tests.realdata.gangs` prints the report. A seed determines which pods of one shape form a gang.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from rich.console import Console

from server.model.asks import AskSpec
from server.model.decisions import Decision, Placed
from server.model.events import AskAdded
from tests.realdata import openb
from tests.realdata.claims import SEED, Claims, told

GPUS_LEAST: Final = 2
"""Pods with at least this number of GPUs are members of gangs."""
MEMBERS_MOST: Final = 8


class Gangs(Claims):
    """Claims of gangs; `partly` lists gangs that were ever placed in part, `whole` those with a node for every member."""

    POLICIES = "[required-node, guaranteed, job]"

    def __init__(self, seed: int = SEED) -> None:
        super().__init__(seed)
        self.sizes = Counter(one.spec.gang_key for one in self.high)
        self.jobs = {one.key: one.spec.gang_key for one in self.high}
        self.members: Counter[str] = Counter()
        self.partly: list[str] = []

    def claimants(self, seed: int) -> list[AskAdded]:
        """Return the asks for several GPUs, of every class, in gangs of the queue whose guarantee covers them."""
        some = [one for one in openb.asks() if _gpus(one) >= GPUS_LEAST]
        return [one._replace(application_id="app-LS") for one in _gangs(some, seed)]

    @property
    def whole(self) -> list[str]:
        """Return the gangs of which every member is placed."""
        return [job for job, size in self.sizes.items() if self.members[job] == size]

    def _hear(self, decisions: Iterable[Decision]) -> None:
        heard = list(decisions)
        super()._hear(heard)
        self.members.update(self.jobs[one.key] for one in heard if type(one) is Placed)
        self.partly += [
            f"{self.members[job]} of {size} members of {job} are placed"
            for job, size in self.sizes.items()
            if self.members[job] not in {0, size}
        ]


def _gpus(ask: AskAdded) -> int:
    return dict(ask.spec.resource).get("gpu", 0)


def _gangs(asks: Sequence[AskAdded], seed: int) -> Iterator[AskAdded]:
    """Yield the asks of each shape in gangs of two to MEMBERS_MOST members; the last asks of a shape also form a gang."""
    dice, shapes = random.Random(seed), defaultdict[AskSpec, list[AskAdded]](list)
    for one in asks:
        shapes[one.spec].append(one)
    number = 0
    for spec, alike in shapes.items():
        left = list(alike)
        while left:
            size = min(len(left), dice.randint(2, MEMBERS_MOST))
            number += 1
            gang = replace(spec, gang_key=f"gang-{number:04}", min_members=size)
            for one in left[:size]:
                yield one._replace(spec=gang)
            left = left[size:]


if __name__ == "__main__":
    gangs = Gangs()
    gangs.fill()
    gangs.claim()
    console = Console()
    console.print(told(gangs.report, gangs.capacity))
    console.print(
        f"{len(gangs.whole):,} of {len(gangs.sizes):,} gangs, {len(gangs.partly)} in part"
    )
