"""The time that asks wait for their node while a text is applied that changes 10,000 queues in use.

Each queue has an application with three pods, of which one is placed and two wait at the queue's max. Asks of another queue
arrive 200 times a second. The text is applied, and then the first text again.
"""

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import grpc

from evenhand.v1 import config_pb2
from si.v1 import si_pb2 as si
from tests.bench import messages
from tests.bench.client import MESSAGE_MAX, Player
from tests.bench.figures import Run, most_of
from tests.bench.preemption_messages import APPLY
from tests.bench.processes import cpu_seconds, peak_mib
from tests.bench.script import Script, Step
from tests.bench.wire import kept, server
from tests.bench.workloads import RM

RATE: Final = 200
"""Number of asks per second that arrive while a text is applied."""
PATIENCE_S: Final = 300
AFTER_S: Final = 0.5
"""Seconds after the answer to a text in which asks still count, because the next ticks plan and report."""
WARM_UP_S: Final = 1.0
MAX, FITS, OVER = 10, 16, 7
"""The max of each queue in cores: at first, with capacity for a second pod, and below the usage."""
POD: Final = 8_000
"""The request of a pod in thousandths of a core."""
PODS: Final = 3
PROBE: Final = "probe"


@dataclass(frozen=True, slots=True)
class Changed:
    """The text to apply: partitions, queues of each, and what differs from the first text.

    ``added`` is the number of further partitions that only the second text has. ``limits`` are the max and the weight of a queue,
    ``letter`` begins the names of the queues, and with ``classes`` the policy `job` gives pods classes.
    """

    name: str
    queues: int
    partitions: int = 1
    added: int = 0
    limits: tuple[int, int] = (MAX, 1)
    letter: str = "q"
    classes: bool = False

    def text(self, *, is_first: bool = False) -> str:
        """Return the text as YAML; ``is_first`` selects the text that is in force before."""
        known = Changed("", self.queues, self.partitions) if is_first else self
        return "\n".join(["partitions:", *known._lines()]) + "\n"

    def _lines(self) -> Iterator[str]:
        policies = ", ".join(("required-node", "guaranteed", *(("job",) if self.classes else ())))
        most, weight = self.limits
        for name in names(self.partitions + self.added):
            yield f"- name: {name}"
            yield f"  preemption: {{policies: [{policies}]}}"
            yield "  queues: [{name: root, submitacl: '*', queues: ["
            yield f"    {{name: {PROBE}}},"
            for at in range(self.queues - 2):  # the root and the other queue count, too
                kept = f"resources: {{guaranteed: {{vcore: 1}}, max: {{vcore: {most}}}}}"
                kept = kept if weight == 1 else f"weight: {weight}, {kept}"
                yield f"    {{name: {self.letter}{at}, {kept}}},"
            yield "  ]}]"


def names(partitions: int) -> list[str]:
    """Return the names of partitions."""
    return ["default", *(f"p{at}" for at in range(1, partitions))]


def kinds(queues: int) -> Iterator[Changed]:
    """Yield the kinds of changes of a partition with this number of queues, and of four partitions with half as many each.

    A text for four partitions with 10,000 queues each would be longer than the core accepts.
    """
    one = partial(Changed, queues=queues)
    half = partial(Changed, queues=queues // 2)
    four = f"4 partitions of {queues // 2:,}"
    yield one("other weights", limits=(MAX, 2))
    yield one("max raised", limits=(FITS, 1))
    yield one("max lowered", limits=(OVER, 1))
    yield one("all replaced", letter="r")
    yield one("other classes", classes=True)
    yield half(f"{four}, max lowered", partitions=4, limits=(OVER, 1))
    yield half(f"{four}, all replaced", partitions=4, letter="r")
    yield half(f"3 partitions of {queues // 2:,} added", added=3)


def applied(changed: Changed, before: Sequence[str] = ()) -> Run:
    """Fill a cluster, apply the text and then the first text again, and return how long asks waited meanwhile."""
    with server(before) as core, kept(client=True):
        waits, begun, cpu = asyncio.run(_applied(changed, core.pid, core.address))
        mib = peak_mib(core.pid)
    waits.sort()
    values = {
        "99 of 100 waits": most_of(waits),
        "longest wait": waits[-1],
    }
    return Run(values, cpu, mib, f"{len(waits):,} asks", core.pace(begun, len(waits) / RATE))


async def _applied(changed: Changed, pid: int, address: str) -> tuple[list[float], float, float]:
    options = (("grpc.max_receive_message_length", MESSAGE_MAX),)
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        player = Player(channel)
        for step in json.loads(_standing(changed).as_json(pid))["steps"]:
            await player.play(step)
        await player.sent()
        probes = _Probes(player)
        sending = asyncio.create_task(probes.run())
        await asyncio.sleep(WARM_UP_S)
        begun, cpu = time.time(), cpu_seconds(pid)
        probes.is_measured = True
        for is_first in (False, True):
            request = config_pb2.ApplyRequest(yaml=changed.text(is_first=is_first))
            call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(APPLY)
            answer = config_pb2.ApplyResponse.FromString(await call(request.SerializeToString()))
            assert answer.applied, answer.problems
            await asyncio.sleep(AFTER_S)
        probes.ended = True
        await asyncio.wait_for(sending, PATIENCE_S)
        cpu = cpu_seconds(pid) - cpu
        await player.end()
    return probes.waits_ms, begun, cpu


class _Probes:
    """Asks that are sent at a rate without waiting for their nodes, and the waits in milliseconds of those that are measured."""

    def __init__(self, player: Player) -> None:
        self._player = player
        (self._step,) = json.loads(Script([messages.placed([], 1)], 0).as_json(0))["steps"]
        self._sent: list[tuple[float, bool]] = []
        self._is_last_sent = False
        self.is_measured = self.ended = False
        self.waits_ms: list[float] = []

    async def run(self) -> None:
        """Send asks until ``ended`` is set, then one more, and wait until all are placed."""
        call, begun = self._player.call(self._step["method"]), time.perf_counter()
        hearing = asyncio.create_task(self._hear())
        while not self._is_last_sent:
            self._is_last_sent = self.ended
            (message,) = messages.packed([_ask("default", PROBE, f"{PROBE}{len(self._sent)}", 1)])
            self._sent.append((time.perf_counter(), self.is_measured))
            await call.write(message)
            await asyncio.sleep(max(0.0, begun + len(self._sent) / RATE - time.perf_counter()))
        await hearing

    async def _hear(self) -> None:
        call, heard = self._player.call(self._step["method"]), 0
        while not self._is_last_sent or heard < len(self._sent):
            many = await self._player.heard(call, self._step)
            now = time.perf_counter()
            for at, is_measured in self._sent[heard : heard + many]:
                if is_measured:
                    self.waits_ms.append(1_000 * (now - at))
            heard += many


def _standing(changed: Changed) -> Script:
    """Return the steps before the measurement: nodes, applications, and pods of which each queue places one."""
    known = names(changed.partitions)
    queues = [f"q{at}" for at in range(changed.queues - 2)]
    nodes = [one for name in known for one in _nodes(name, len(queues))]
    asks = [
        _ask(name, queue, f"{queue}-{at}", POD)
        for name in known
        for at in range(PODS)
        for queue in queues
    ]
    applications = [_application(name, one) for name in known for one in (*queues, PROBE)]
    counts = si.SyncComplete(nodes=len(nodes), applications=len(applications))
    steps = [
        messages.registered(changed.text(is_first=True), explicit_sync=True),
        messages.nodes_told(nodes),
        _applications(applications),
        messages.sync_ended(counts),
        messages.placed(messages.packed(asks), len(known) * len(queues)),
    ]
    return Script(steps, len(steps))


def _nodes(partition: str, queues: int) -> Iterator[si.NodeInfo]:
    """Yield a node for every ten queues, with capacity for two pods of each queue and for the asks of the other queue."""
    for at in range(-(-queues // 10)):
        yield si.NodeInfo(
            nodeID=f"{partition}-n{at}",
            action=si.NodeInfo.CREATE,
            attributes={"evenhand.io/partition": partition},
            schedulableResource=messages.as_resource({"vcore": 21 * POD, "memory": 1 << 40}),
        )


def _application(partition: str, queue: str) -> si.AddApplicationRequest:
    return si.AddApplicationRequest(
        applicationID=f"{partition}-{queue}", queueName=f"root.{queue}", partitionName=partition
    )


def _applications(new: Sequence[si.AddApplicationRequest]) -> Step:
    told = [
        si.ApplicationRequest(rmID=RM, new=new[at : at + messages.BATCH]).SerializeToString()
        for at in range(0, len(new), messages.BATCH)
    ]
    return Step("UpdateApplication", told, "accepted", len(new), refused="rejected")


def _ask(partition: str, queue: str, key: str, amount: int) -> si.Allocation:
    return si.Allocation(
        allocationKey=f"{partition}-{key}",
        applicationID=f"{partition}-{queue}",
        partitionName=partition,
        resourcePerAlloc=messages.as_resource({"vcore": amount}),
    )
