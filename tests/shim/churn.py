"""Pods that come and go on the embedded cluster without end, and the memory that they leave behind.

A wave creates pods that run and are deleted, are preempted by others, are evicted, or complete, and one pod that
never gets a node. Then all of them end, together with their applications. Between two waves only nodes and queues
exist, so memory that grows from one wave to the next is memory for pods that are gone. Shim, cluster and core are
one process, and the memory of each must stay constant.

The first waves fill histories, so the growth is measured from the second third of all waves to the last third.
"""

import gc
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any

import pytest

from server.core.events import lifecycle
from server.core.preemption import apply_plan
from server.rpc import event_buffer
from server.rpc.evenhand import decision_log
from server.rpc.translate import allocations_fast, answers_fast, templates
from server.state import ended_tags
from shim_client.bootstrap import wall_clock
from shim_client.cluster import EvictPod, KubeObject, WatchEvent
from shim_client.config import Settings
from shim_client.embedded import events
from shim_client.embedded.cluster import EmbeddedCluster
from shim_client.embedded.store import key_of
from shim_client.shim import Shim
from shim_client.translate import alike, wire
from shim_client.translate.pod import read_ref
from tests.bench.processes import resident_bytes
from tests.shim.objects import Item, foreign, node, pod
from tests.shim.polling import until
from tests.shim.rig import core_here, shim_at_work

BLOCKS_A_POD_MAX = 0.5
"""Maximum number of Python's memory blocks that may stay per pod; a record of a pod takes at least one."""
BYTES_A_POD_MAX = 400.0
"""Maximum growth of resident memory per pod in bytes; it includes memory outside Python, and varies by a few MiB."""
NODES, PLACES = 8, 8
GUARANTEED = 16
COMPLETING = 200
EVICTED = 4
QUEUES = f"""
partitions:
  - name: default
    preemption: {{backoff: 1ms, expiry: 1s}}
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: prod
            resources: {{guaranteed: {{vcore: {GUARANTEED}}}}}
            properties: {{preemption.delay: 1ms}}
          - {{name: test}}
"""
SETTINGS = Settings(cluster_id="churn", queues=QUEUES)
HISTORY = 100
"""The length of every history in this test."""
FEW = 4
"""The number of entries in every cache of read or written parts in this test."""
SAMPLES = 30
BUDGET: Item = {
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "some", "namespace": "work"},
    "spec": {"maxUnavailable": "100%", "selector": {"matchLabels": {"queue": "root.test"}}},
}


STANDING: tuple[Item, ...] = (BUDGET, foreign("still"))
"""The objects that exist all the time and may be replaced."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The memory in use after a number of pods."""

    pods: int
    blocks: int
    resident: int
    objects: Counter[type]
    """Number of objects by type; counted once in each third of the waves, because counting takes memory itself."""


@dataclass(frozen=True, slots=True)
class Growth:
    """The memory that stays per pod."""

    pods: int
    blocks: float
    resident: float
    of: tuple[tuple[str, int], ...]
    """Types of objects whose number has grown, the largest growth first."""


class Churn:
    """A cluster with a shim, and waves of pods."""

    def __init__(self, cluster: EmbeddedCluster, shim: Shim) -> None:
        self.cluster, self.shim = cluster, shim
        self._state = shim._mirror.state
        self.waves = self.pods = 0
        self._events: Counter[str] = Counter()
        cluster.store.noticed.append(self._notice)

    def _notice(self, event: WatchEvent) -> None:
        self._events[event.kind] += 1

    async def fill_histories(self) -> None:
        """Fill every history of the cluster with irrelevant changes, as many as it holds."""
        for standing in STANDING:
            kind = standing["kind"]
            for _ in range(HISTORY + -self._events[kind] % HISTORY):
                item = self.cluster.store.get(kind, key_of(standing))
                assert item is not None
                self.cluster.replace(item)
        await until(self._is_empty)

    async def wave(self) -> None:
        """Run some hundred pods from their creation to their end."""
        self.waves += 1
        await self._fill()
        await self._preempt()
        await self._evict()
        await self._end()
        await self._complete()
        await self._end()

    async def _fill(self) -> None:
        """Fill the cluster with pods; one further pod never gets a node."""
        made = [self._create("test", at) for at in range(NODES * PLACES + 1)]
        await until(lambda: self._running(made) == NODES * PLACES)

    async def _preempt(self) -> None:
        """Submit pods of a queue with a guarantee, for which others are evicted."""
        made = [self._create("prod", at) for at in range(GUARANTEED)]
        await until(lambda: self._running(made) == GUARANTEED)

    async def _evict(self) -> None:
        """Evict some running pods, as their budget allows, so that others take their places."""
        running = [item for item in self.cluster.pods() if item["status"]["phase"] == "Running"]
        for item in running[:EVICTED]:
            await self.cluster.evict_pod(EvictPod(read_ref(item)))

    async def _complete(self) -> None:
        """Let pods succeed as soon as they run."""
        once = {"evenhand.io/run-seconds": "0"}
        made = [self._create("test", at, "once", annotations=once) for at in range(COMPLETING)]
        await until(lambda: self._ended(made) == COMPLETING)

    async def _end(self) -> None:
        """End all pods, and with them their applications."""
        for item in self._coming_and_going():
            self.cluster.delete("Pod", key_of(item))
        await until(self._is_empty)

    def _coming_and_going(self) -> list[KubeObject]:
        return [item for item in self.cluster.pods() if item["metadata"]["name"] != "still"]

    def _is_empty(self) -> bool:
        progress = self.shim.progress()
        ours = sum(pod.facts.ours for pod in self._state.pods.values())
        left = ours or self._state.applications or self._coming_and_going()
        return not (left or progress.actions_waiting or progress.news_waiting)

    def _create(self, queue: str, at: int, what: str = "", **more: Any) -> str:
        self.pods += 1
        what = what or queue
        labels = {"queue": f"root.{queue}", "applicationId": f"{what}-{self.waves}"}
        made = pod(f"{what}-{self.waves}-{at}", labels=labels, **more)
        del made["metadata"]["uid"], made["metadata"]["creationTimestamp"]
        return str(self.cluster.create(made)["metadata"]["name"])

    def _running(self, names: Iterable[str]) -> int:
        return self._in_phase(names, "Running")

    def _ended(self, names: Iterable[str]) -> int:
        return self._in_phase(names, "Succeeded")

    def _in_phase(self, names: Iterable[str], phase: str) -> int:
        found = (self.cluster.store.get("Pod", ("work", name)) for name in names)
        return sum(item is not None and item["status"]["phase"] == phase for item in found)

    def sample(self, *, closely: bool) -> Sample:
        """Return the memory in use now."""
        gc.collect()
        blocks, resident = sys.getallocatedblocks(), resident_bytes(os.getpid())
        return Sample(self.pods, blocks, resident, _objects() if closely else Counter())


def _objects() -> Counter[type]:
    return Counter(map(type, gc.get_objects()))


def growth(samples: list[Sample]) -> Growth:
    """Return the growth for each pod from the middle third of the samples to the last.

    The figures are medians, because memory grows in steps.
    """
    third = len(samples) // 3
    middle, last = samples[third:-third], samples[-third:]
    pods = round(median(one.pods for one in last) - median(one.pods for one in middle))
    blocks = median(one.blocks for one in last) - median(one.blocks for one in middle)
    resident = median(one.resident for one in last) - median(one.resident for one in middle)
    more = (last[-1].objects - middle[0].objects).most_common(8)
    named = tuple((f"{kind.__module__}.{kind.__qualname__}", count) for kind, count in more)
    return Growth(pods, blocks / pods, resident / pods, named)


def assert_flat(found: Growth) -> None:
    """Assert that nothing is kept of pods that are gone."""
    assert found.blocks < BLOCKS_A_POD_MAX, f"memory grew: {found}"
    assert found.resident < BYTES_A_POD_MAX, f"memory grew: {found}"


def shorten_histories(patch: pytest.MonkeyPatch) -> None:
    """Shorten histories so that the first waves fill them, and end applications without pods soon."""
    patch.setattr(lifecycle, "COMPLETING_MS", 20)
    patch.setattr(ended_tags, "ENDED_KEPT_MAX", HISTORY)
    patch.setattr(apply_plan, "KEPT_MAX", HISTORY)
    patch.setattr(event_buffer, "EVENTS_KEPT_MAX", HISTORY)
    patch.setattr(decision_log, "DECISION_CHANGES_KEPT_MAX", HISTORY)
    patch.setattr(events, "EVENTS_MAX", HISTORY)
    patch.setattr(alike, "KEPT_MAX", FEW)
    patch.setattr(wire, "ALIKE_MAX", FEW)
    for module, name in (
        (allocations_fast, "TEMPLATES_MAX"),
        (templates, "TEMPLATES_MAX"),
        (answers_fast, "PIECES_MAX"),
    ):
        patch.setattr(module, name, FEW)


Progress = Callable[[float, int], float]
"""A function from seconds and waves to the progress of a churn, 0 to 1."""


async def churned(progress: Progress) -> list[Sample]:
    """Run waves to the end, and return a sample after each thirtieth of the waves."""
    cluster = EmbeddedCluster(wall_clock(), history_max=HISTORY)
    for at in range(NODES):
        cluster.create(node(f"n{at}", cpu=str(PLACES)))
    for item in STANDING:
        cluster.create(item)
    samples: list[Sample] = []
    async with core_here() as address, shim_at_work(cluster, address, SETTINGS) as shim:
        churn = Churn(cluster, shim)
        await until(lambda: shim.progress().is_settled)
        began, far = time.monotonic(), 0.0
        while far < 1:
            await churn.wave()
            far = progress(time.monotonic() - began, churn.waves)
            if far * SAMPLES >= len(samples) + 1:
                await churn.fill_histories()
                samples.append(churn.sample(closely=len(samples) in {SAMPLES // 3, SAMPLES - 1}))
    return samples
