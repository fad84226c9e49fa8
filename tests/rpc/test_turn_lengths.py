"""No turn of the event loop is long, whatever a caller sends: health and other tenants get answers meanwhile (D1, D3, D11).

Lengths are measured in CPU time of the loop's own thread, so that a busy machine hardly changes them; clients are
threads. Of three tries the quickest counts, because other programs on the machine can slow the others down. A virtual
machine is at times slower as a whole, by half for hours. A fixed loop, timed before and after each try, tells how much
slower than the machine of the record, and the length is divided by that.
"""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc

from evenhand.v1 import config_pb2, config_pb2_grpc, inspect_pb2, inspect_pb2_grpc
from server.model.quota import QUEUES_MAX
from server.rpc import garbage
from server.rpc.copies import Copies
from server.rpc.endpoint import Setting
from server.rpc.limits import OBJECTS_MAX
from server.rpc.pump import Observer
from server.rpc.reads import Question, Read
from si.v1 import si_pb2 as si
from si.v1 import si_pb2_grpc
from tests.bench.calibration import calibrate
from tests.effort import drawn
from tests.rpc.harness import RM, SETTING, Served, serving

pytestmark = pytest.mark.alone

HEALTH_S = 0.1
"""The longest time to the answer of a health check."""
CONFIGURATION_S = 0.05
"""The longest turn in which a configuration comes into force, or queues are ranked again because a node came."""
CALIBRATED_S = 0.05
"""The CPU seconds of the calibration loop on the machine of the record (docs/performance.json)."""
SLOWNESS_MAX = 2.5
"""The largest factor by which a length is divided; a machine that is slower still fails the test."""
NODES = 1_000
MANY = OBJECTS_MAX


@pytest.fixture(autouse=True)
def _uncollected() -> Iterator[None]:
    """Collect no garbage meanwhile, as a server does not (`rpc/garbage`)."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Turns:
    """A probe of the loop: the longest of its turns in seconds of CPU, and the number of answered health checks."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.answered = 0

    async def watch(self) -> None:
        """Look on until cancelled."""
        began = time.thread_time()
        while True:
            await asyncio.sleep(0)
            ended = time.thread_time()
            self.longest = max(self.longest, ended - began)
            began = ended

    async def check(self, channel: grpc.aio.Channel) -> None:
        """Ask for health, time and again, until cancelled."""
        stub: Any = health_pb2_grpc.HealthStub(channel)
        while True:
            answer = await stub.Check(health_pb2.HealthCheckRequest())
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
            self.answered += 1


@asynccontextmanager
async def cluster(
    setting: Setting = SETTING, observers: tuple[Observer, ...] = ()
) -> AsyncIterator[Served]:
    """Hold a core with nodes of twenty labels, and one application."""
    async with serving(setting, observers, seconds=time.perf_counter) as served:
        await asyncio.to_thread(_set_up, served.port)
        yield served


def _set_up(port: int) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = si_pb2_grpc.SchedulerStub(channel)
        stub.RegisterResourceManager(si.RegisterResourceManagerRequest(rmID=RM))
        _send(stub.UpdateNode, [_nodes("n", NODES)])
        application = si.AddApplicationRequest(applicationID="app", queueName="root.a")
        _send(stub.UpdateApplication, [si.ApplicationRequest(rmID=RM, new=[application])])


def _send(call: Any, messages: list[Message]) -> None:
    """Send these on one stream, and read until it ends."""
    for _ in call(iter(messages)):
        pass


def _nodes(prefix: str, count: int) -> si.NodeRequest:
    request = si.NodeRequest(rmID=RM)
    for at in range(count):
        one = request.nodes.add(nodeID=f"{prefix}{at}", action=si.NodeInfo.CREATE)
        one.schedulableResource.resources["vcore"].value = 1_000
        one.labels.update({f"label{number}": f"{at % 7}" for number in range(20)})
        one.labels["kubernetes.io/hostname"] = one.nodeID
    return request


def _asks(describe: Callable[[si.Allocation, int], None]) -> si.AllocationRequest:
    request = si.AllocationRequest(rmID=RM)
    for at in range(MANY):
        one = request.allocations.add(allocationKey=f"a{at}", applicationID="app")
        one.resourcePerAlloc.resources["vcore"].value = 1
        describe(one, at)
    return request


def _key(one: si.Allocation, at: int) -> None:
    one.constraints.nodeSelector[f"key{at}"] = "v"


def _value(one: si.Allocation, at: int) -> None:
    one.constraints.nodeSelector["label1"] = f"v{at}"


def _host(one: si.Allocation, at: int) -> None:
    one.constraints.nodeSelector["kubernetes.io/hostname"] = f"n{at % NODES}"


def _size(one: si.Allocation, at: int) -> None:
    one.resourcePerAlloc.resources["vcore"].value = 1_001 + at


def _excluded(one: si.Allocation, at: int) -> None:
    term = one.constraints.requiredTerms.add()
    term.matchExpressions.add(key="label1", operator="NotIn", values=[f"{at}"])


def _plain(_one: si.Allocation, _at: int) -> None:
    pass


LOADS = {
    "distinct label keys": _key,
    "distinct values": _value,
    "an own host each": _host,
    "an own term each": _excluded,
    "sizes that fit nowhere": _size,
}


async def looked_on(served: Served, work: Callable[[], object]) -> Turns:
    """Do the work in a thread, and look on the loop meanwhile."""
    turns = Turns()
    watching = [asyncio.create_task(one) for one in (turns.watch(), turns.check(served.channel))]
    try:
        await asyncio.to_thread(work)
        await served.endpoint.pump.settled()
    finally:
        for one in watching:
            one.cancel()
    assert turns.answered
    return turns


async def _quickest(
    work: Callable[[int], object],
    prepare: Callable[[int], object] = lambda _port: None,
    setting: Callable[[], Setting] = lambda: SETTING,
    enough: float = HEALTH_S,
) -> float:
    """Return the longest turn while the work is done on a new core, of the best of three tries; stop at a good one.

    The result is in seconds of the machine of the record.
    """
    longest = []
    for _ in range(3):
        before = calibrate()
        async with cluster(setting()) as served:
            await asyncio.to_thread(prepare, served.port)
            turns = await looked_on(served, lambda: work(served.port))
        longest.append(turns.longest / _slowness((before + calibrate()) / 2))
        if longest[-1] < enough:
            break
    return min(longest)


def _slowness(calibrated: float) -> float:
    """Return how many times slower than on the machine of the record the calibration loop ran, from 1 to `SLOWNESS_MAX`."""
    return min(max(calibrated / CALIBRATED_S, 1.0), SLOWNESS_MAX)


@pytest.mark.parametrize("load", drawn(LOADS, 2))
async def test_asks_of_one_message(load: str) -> None:
    message = _asks(LOADS[load])
    assert await _quickest(lambda port: _talk(port, "UpdateAllocation", message)) < HEALTH_S


def _slow(one: si.Allocation, at: int) -> None:
    _size(one, at)
    one.constraints.nodeSelector["label1"] = f"v{at % 997}"


async def test_asks_of_one_message_beside_reads() -> None:
    message = _asks(_slow)

    def work(port: int) -> None:
        with ThreadPoolExecutor() as pool:
            both = [pool.submit(_talk, port, "UpdateAllocation", message), pool.submit(_read, port)]
        for one in both:
            one.result()

    def setting() -> Setting:
        return replace(SETTING, reads=Copies(time.perf_counter))

    assert await _quickest(work, setting=setting) < HEALTH_S


async def test_nodes_of_one_message() -> None:
    message = _nodes("more", MANY)
    assert await _quickest(lambda port: _talk(port, "UpdateNode", message)) < HEALTH_S


async def test_applications_of_one_message() -> None:
    request = si.ApplicationRequest(rmID=RM)
    for at in range(MANY):
        request.new.add(applicationID=f"app{at}", queueName=f"root.q{at % 500}")
    assert await _quickest(lambda port: _talk(port, "UpdateApplication", request)) < HEALTH_S


async def test_a_manager_that_registers_again() -> None:
    assert await _quickest(_set_up, _fill) < HEALTH_S


def _fill(port: int, messages: int = 3) -> None:
    """Bring asks, 10,000 in each message."""
    for part in range(messages):
        message = _asks(_plain)
        for one in message.allocations:
            one.allocationKey = f"{part}-{one.allocationKey}"
        _talk(port, "UpdateAllocation", message)


def _queues(maximum: int, letter: str = "q") -> str:
    """Return a text of as many queues as a partition takes, root included, each with a guarantee and a max."""
    limits = f"resources: {{guaranteed: {{vcore: 1}}, max: {{vcore: {maximum}}}}}"
    head = (
        'partitions:\n- name: default\n  queues:\n  - name: root\n    submitacl: "*"\n    queues:\n'
    )
    names = (f"{letter}{at}" for at in range(QUEUES_MAX - 1))
    return head + "".join(f"    - {{name: {name}, {limits}}}\n" for name in names)


async def test_a_configuration_of_as_many_queues_as_a_partition_takes() -> None:
    longest = await _quickest(lambda port: _apply(port, _queues(10)), enough=CONFIGURATION_S)
    assert longest < CONFIGURATION_S


@pytest.mark.parametrize("what", drawn(("changes", "renames")))
async def test_a_configuration_that_replaces_every_queue(what: str) -> None:
    apply = partial(_apply, text=_queues(10))
    second = _queues(11, "q" if what == "changes" else "r")
    longest = await _quickest(
        lambda port: _apply(port, second), prepare=apply, enough=CONFIGURATION_S
    )
    assert longest < CONFIGURATION_S


async def test_a_registration_with_as_many_queues_as_a_partition_takes() -> None:
    text = _queues(10)

    def register(port: int) -> None:
        request = si.RegisterResourceManagerRequest(rmID=RM, config=text)
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            si_pb2_grpc.SchedulerStub(channel).RegisterResourceManager(request)

    assert await _quickest(register, enough=CONFIGURATION_S) < CONFIGURATION_S


async def test_a_node_for_as_many_queues_with_pods_as_a_partition_takes() -> None:
    message = _nodes("more", 1)
    work = partial(_talk, method="UpdateNode", message=message)
    assert await _quickest(work, _use_every_queue) < HEALTH_S


def _use_every_queue(port: int) -> None:
    """Give every queue of `_used(10)` an application with a placed pod and two that wait."""
    _apply(port, _used(10))
    applications, asks = si.ApplicationRequest(rmID=RM), si.AllocationRequest(rmID=RM)
    for at in range(QUEUES_MAX - 1):
        applications.new.add(applicationID=f"app{at}", queueName=f"root.q{at}")
        one = asks.allocations.add(allocationKey=f"a{at}", applicationID=f"app{at}")
        one.resourcePerAlloc.resources["vcore"].value = 8
    _talk(port, "UpdateApplication", applications)
    for letter in "abc":
        for one in asks.allocations:
            one.allocationKey = f"{letter}{one.allocationKey[1:]}"
        _talk(port, "UpdateAllocation", asks)


def _used(maximum: int, letter: str = "q") -> str:
    """Return the text of `_queues` with queues that take applications."""
    return _queues(maximum, letter).replace("resources:", 'submitacl: "*", resources:')


def _half_renamed() -> str:
    """Return a text that replaces every other queue of `_used(10)` by a new one."""
    lines = _used(10).splitlines(keepends=True)
    return "".join(
        one.replace("name: q", "name: new") if at % 2 else one for at, one in enumerate(lines)
    )


CHANGES = {
    "lower maxes": _used(7),
    "maxes for another pod each": _used(16),
    "every other queue is another": _half_renamed(),
    "every queue is another": _used(10, "r"),
    "classes of jobs": _used(10)
    + "  preemption:\n    policies: [required-node, guaranteed, job]\n",
    "quota preemption": _used(7).replace(
        "{vcore: 7}}", "{vcore: 7}}, properties: {quota.preemption.delay: 1h}"
    )
    + "  preemption:\n    quotapreemptionenabled: true\n",
}


@pytest.mark.parametrize("change", drawn(CHANGES, 2))
async def test_a_change_of_as_many_queues_with_pods_as_a_partition_takes(change: str) -> None:
    text = CHANGES[change]
    longest = await _quickest(lambda port: _apply(port, text), _use_every_queue)
    assert longest < HEALTH_S


PARTITIONS = 3
"""The number of partitions; a text takes 300,000 keys and values, which are 8 partitions of 10,000 queues."""


async def test_a_text_of_many_partitions_with_as_many_queues_as_each_takes() -> None:
    text = "partitions:\n" + "".join(map(_partition, ["default", *map(str, range(1, PARTITIONS))]))
    longest = await _quickest(lambda port: _apply(port, text), enough=CONFIGURATION_S)
    assert longest < CONFIGURATION_S


async def test_many_partitions_that_end() -> None:
    text = "partitions:\n" + "".join(map(_partition, ["default", *map(str, range(1, PARTITIONS))]))
    longest = await _quickest(
        lambda port: _apply(port, _queues(10)), partial(_apply, text=text), enough=CONFIGURATION_S
    )
    assert longest < CONFIGURATION_S


def _partition(name: str) -> str:
    """Return the part of a text for a partition of as many queues as it takes, without anything else."""
    queues = ",".join(f"{{name: q{at}}}" for at in range(QUEUES_MAX - 1))
    return f"- name: p{name}\n  queues: [{{name: root, queues: [{queues}]}}]\n".replace(
        "pdefault", "default"
    )


class CountedCopies(Copies):
    """Copies that count the searches for garbage."""

    def __init__(self) -> None:
        super().__init__(time.perf_counter)
        self.searches = 0

    async def answer(self, question: Question, read: Read) -> bytes:
        """Return the answer of a copy."""
        answer = await super().answer(question, read)
        self.searches += question.method == "garbage"
        return answer


async def test_idle_moments_of_a_core_with_100_000_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is examined for garbage after a few collections, and in the first quiet moment."""
    monkeypatch.setattr(garbage, "THOROUGH", 4)
    monkeypatch.setattr(garbage, "THOROUGH_AT_LAST", 8)
    monkeypatch.setattr(garbage, "QUIET_S", 0.2)
    longest = []
    for _ in range(3):
        before, copies = calibrate(), CountedCopies()
        collector = garbage.Garbage(asyncio.get_running_loop().call_later, copies)
        async with cluster(replace(SETTING, reads=copies), (collector,)) as served:
            await asyncio.to_thread(_fill, served.port, 10)
            longest.append(await _searched(served, copies))
        collector.close()
        longest[-1] /= _slowness((before + calibrate()) / 2)
        if longest[-1] < HEALTH_S:
            break
    assert min(longest) < HEALTH_S


async def _searched(served: Served, copies: CountedCopies) -> float:
    """Return the longest turn until another search for garbage was answered."""
    seen = copies.searches

    async def wait() -> None:
        while copies.searches == seen:
            await asyncio.to_thread(_talk, served.port, "UpdateNode", _nodes("more", 200))
            await asyncio.sleep(2 * garbage.QUIET_S)

    turns = Turns()
    watching = [asyncio.create_task(one) for one in (turns.watch(), turns.check(served.channel))]
    await asyncio.wait_for(wait(), 60)
    for one in watching:
        one.cancel()
    return turns.longest


def _talk(port: int, method: str, message: Message) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        _send(getattr(si_pb2_grpc.SchedulerStub(channel), method), [message])


def _read(port: int) -> None:
    """List all nodes, six times."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = inspect_pb2_grpc.InspectServiceStub(channel)
        for _ in range(6):
            assert len(stub.ListNodes(inspect_pb2.ListNodesRequest()).nodes) == NODES


def _apply(port: int, text: str) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        answer = config_pb2_grpc.ConfigurationServiceStub(channel).Apply(
            config_pb2.ApplyRequest(yaml=text, source="test")
        )
        assert answer.applied, answer.problems
