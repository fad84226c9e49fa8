"""An honest shim as a process: it carries out the core's decisions and writes the true state of pods to its journal.

    python -m tests.faults.shim MANAGER PORT FOLDER SEED

In the FOLDER of the run, the file `mode` contains one word. `work`: the shim creates pods. `claims`: it creates pods
so that many are evicted. `selectors`: in addition it creates a tenant's asks with many selectors. `settle`: it
creates none and lets running pods end, so that all waiting ones must be placed.
"""

import asyncio
import random
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import grpc

from si.v1 import si_pb2 as si
from si.v1 import si_pb2_grpc as rpc
from tests.faults.children import Files
from tests.faults.cluster import MANAGERS, Manager, metadata
from tests.faults.counts import Counts
from tests.faults.journal import Journal, Pod, read, truth_of

BARRIER: Final = "barrier"
TURN_S: Final = 0.1
PROBE_TURNS: Final = 5
"""Number of turns for each probe."""
WAITING_MAX: Final = 40
"""Maximum number of waiting asks; when it is reached, no further ask is created."""
SELECTORS: Final = 200
"""Number of asks in one message, each with a different selector."""
CALL_S: Final = 5.0
"""Maximum number of seconds for a registration and its answers; then the shim begins again."""
SILENCE_S: Final = 4.0
"""Maximum number of seconds without an answer to a probe; then the shim connects again."""
OPTIONS: Final = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 500),
)


class Session:
    """One registration with its three streams; messages that arrive after its end are ignored."""

    def __init__(self, shim: "Shim", stub: Any) -> None:
        call = metadata(shim.manager.token)
        self._shim = shim
        self._stub = stub
        self._nodes = stub.UpdateNode(metadata=call)
        self._applications = stub.UpdateApplication(metadata=call)
        self._allocations = stub.UpdateAllocation(metadata=call)
        self.outbox: asyncio.Queue[si.AllocationRequest] = asyncio.Queue()
        self.lost = asyncio.Event()
        """Set when the core has not answered for too long."""

    async def greet(self) -> None:
        """Send nodes and applications, then all pods, and complete the sync when the core has them all."""
        manager = self._shim.manager
        nodes = [
            si.NodeInfo(
                nodeID=name,
                action=si.NodeInfo.CREATE,
                attributes={"evenhand.io/partition": manager.partition},
                schedulableResource=_resource(size),
            )
            for name, size in manager.nodes.items()
        ]
        await self._nodes.write(si.NodeRequest(rmID=manager.rm_id, nodes=nodes))
        await _answered(self._nodes, len(nodes))
        new = [
            si.AddApplicationRequest(
                applicationID=name, queueName=f"root.{name}", partitionName=manager.partition
            )
            for name in manager.queues
        ]
        await self._applications.write(si.ApplicationRequest(rmID=manager.rm_id, new=new))
        await _answered(self._applications, len(new))
        self.outbox = (
            asyncio.Queue()
        )  # Changes that happened until now are part of the state that is sent next.
        pods = sorted(self._shim.truth.pods.values(), key=lambda pod: not pod.node)
        told = [_allocation(pod, manager) for pod in pods]
        barrier = si.Allocation(allocationKey=BARRIER, applicationID=BARRIER)
        request = si.AllocationRequest(rmID=manager.rm_id, allocations=[*told, barrier])
        await self._allocations.write(request)
        await self._barrier()
        complete = si.NodeRequest(rmID=manager.rm_id, syncComplete=si.SyncComplete())
        await self._nodes.write(complete)

    async def _barrier(self) -> None:
        """Carry out decisions until the core refuses the barrier."""
        while True:
            answer = await _next(self._allocations)
            self._shim.hear(answer, self)
            if any(one.allocationKey == BARRIER for one in answer.rejectedAllocations):
                return

    async def live(self) -> None:
        """Send and receive until one stream ends."""
        parts = [self._send(), self._hear(), _drain(self._nodes), _drain(self._applications)]
        tasks = [asyncio.create_task(part) for part in (*parts, self._watch())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await next(iter(done))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self) -> None:
        while True:
            await self._allocations.write(await self.outbox.get())

    async def _hear(self) -> None:
        while True:
            self._shim.hear(await _next(self._allocations), self)

    async def _watch(self) -> None:
        await self.lost.wait()
        raise TimeoutError

    def close(self) -> None:
        """End all streams."""
        for stream in (self._nodes, self._applications, self._allocations):
            stream.cancel()


class Shim:
    """The true state, the pods to create, and one session after the other."""

    def __init__(self, manager: Manager, port: int, files: Files, seed: int) -> None:
        journal = files.journals[manager.rm_id]
        self.manager = manager
        self._counts = Counts(files.counts)
        self.truth = truth_of(read(journal))
        self._journal = Journal(journal)
        self._mode = files.mode
        self._port = port
        self._dice = random.Random(f"{seed}/{self.truth.made}")
        self._session: Session | None = None
        self._asked_at: dict[str, float] = {}

    async def run(self) -> None:
        """Work until the process ends."""
        working = asyncio.create_task(self._work())
        while not working.done():
            with suppress(grpc.aio.AioRpcError, EOFError, TimeoutError, asyncio.InvalidStateError):
                await self._one_session()
            await asyncio.sleep(0.2)
        await working

    async def _one_session(self) -> None:
        target = f"127.0.0.1:{self._port}"
        async with grpc.aio.insecure_channel(target, options=OPTIONS) as channel:
            stub = rpc.SchedulerStub(channel)
            rm_id = self.manager.rm_id
            request = si.RegisterResourceManagerRequest(rmID=rm_id, explicitSync=True)
            request.buildInfo["instance"] = "faults"
            call = stub.RegisterResourceManager(request, metadata=metadata(self.manager.token))
            await asyncio.wait_for(call, CALL_S)
            session = Session(self, stub)
            try:
                self._session = session
                self._write("session")
                await asyncio.wait_for(session.greet(), CALL_S)
                self._write("synced")
                self._asked_at.clear()
                await session.live()
            except grpc.aio.AioRpcError as error:
                self._write("ended", code=error.code().name, why=(error.details() or "")[:200])
                raise
            finally:
                self._session = None
                session.close()

    def silence(self) -> float:
        """Return for how many seconds the oldest probe of this session has been waiting."""
        now = asyncio.get_running_loop().time()
        return max((now - at for at in self._asked_at.values()), default=0.0)

    def _write(self, kind: str, **facts: Any) -> None:
        self.truth.carry(self._journal.write(kind, **facts))

    def hear(self, answer: si.AllocationResponse, session: Session) -> None:
        """Carry out an answer: first update the true state, then send the messages that follow from it."""
        if session is not self._session:
            return
        for new in answer.new:
            self._asked_at.pop(new.allocationKey, None)
            pod = self.truth.pods.get(new.allocationKey)
            if pod is None:
                release = self._release(new.allocationKey, new.applicationID)
                session.outbox.put_nowait(release)
            else:
                self._write("placed", key=pod.key, node=new.nodeID)
        for released in answer.released:
            self._released(released)
        self._hear_others(answer)

    def _hear_others(self, answer: si.AllocationResponse) -> None:
        for withdrawn in answer.withdrawn:
            if withdrawn.allocationKey in self.truth.pods:
                self._write("withdrawn", key=withdrawn.allocationKey)
        for refused in answer.rejectedAllocations:
            if refused.allocationKey in self.truth.pods:
                self._write("refused", key=refused.allocationKey, why=refused.reason)

    def _released(self, released: si.AllocationRelease) -> None:
        pod = self.truth.pods.get(released.allocationKey)
        if pod is None or released.terminationType != si.PREEMPTED_BY_SCHEDULER:
            return
        nodes = released.nodes
        self._write(
            "evict",
            key=pod.key,
            decision=released.decisionID,
            freed_for=released.beneficiary,
            freed_on=nodes[0] if nodes else "",
        )

    async def _work(self) -> None:
        turn = selecting = 0
        while True:
            turn += 1
            if self._session is not None and self.silence() > SILENCE_S:
                self._session.lost.set()
            mode = self._mode.read_text().strip()
            self._end_some(settling=mode == "settle")
            waiting = sum(not pod.node for pod in self.truth.pods.values() if not pod.impossible)
            if mode != "settle" and waiting < WAITING_MAX:
                claims = mode == "claims"
                self._ask_some(0.8 if claims else 0.25, probe=turn % PROBE_TURNS == 0)
            is_tenant = mode == "selectors" and "low" in self.manager.queues
            selecting = selecting + 1 if is_tenant else 0
            if selecting % 20 == 1:
                self._ask(
                    [self._pod("low", {"vcore": 100}, impossible=True) for _ in range(SELECTORS)]
                )
                self._counts.add("selectors asked", SELECTORS)
            await asyncio.sleep(TURN_S)

    def _ask_some(self, claims: float, *, probe: bool) -> None:
        dice = self._dice
        pods = []
        if probe:
            pods.append(self._pod("probe", {"probe": 1}))
            self._asked_at[pods[0].key] = asyncio.get_running_loop().time()
        if "low" in self.manager.queues and dice.random() < 0.5:
            pods.append(self._pod("low", {"vcore": dice.choice((1_000, 2_000, 4_000))}))
        if "high" in self.manager.queues and dice.random() < claims:
            pods.append(self._pod("high", {"vcore": dice.choice((1_000, 3_000, 6_000))}))
        self._ask(pods)

    def _pod(self, queue: str, size: dict[str, int], *, impossible: bool = False) -> Pod:
        key = f"{queue}-{self.truth.made}"
        self._write("ask", key=key, queue=queue, size=size, impossible=impossible)
        return self.truth.pods[key]

    def _ask(self, pods: list[Pod]) -> None:
        if pods:
            told = [_allocation(pod, self.manager) for pod in pods]
            self._send(si.AllocationRequest(rmID=self.manager.rm_id, allocations=told))

    def _send(self, request: si.AllocationRequest) -> None:
        if self._session is not None:
            self._session.outbox.put_nowait(request)

    def _end_some(self, *, settling: bool) -> None:
        """End some pods, victims soon and others later, and withdraw some asks that fit no node."""
        for pod in list(self.truth.pods.values()):
            if self._dice.random() < _chance(pod, settling=settling):
                self._write("gone", key=pod.key)
                why = si.PREEMPTED_BY_SCHEDULER if pod.decision else si.STOPPED_BY_RM
                self._asked_at.pop(pod.key, None)
                self._send(self._release(pod.key, pod.queue, why))

    def _release(
        self, key: str, application: str, why: Any = si.STOPPED_BY_RM
    ) -> si.AllocationRequest:
        released = si.AllocationRelease(
            allocationKey=key,
            applicationID=application,
            partitionName=self.manager.partition,
            terminationType=why,
        )
        releases = si.AllocationReleasesRequest(allocationsToRelease=[released])
        return si.AllocationRequest(rmID=self.manager.rm_id, releases=releases)


def _chance(pod: Pod, *, settling: bool) -> float:
    """Return the probability that a pod ends in this turn."""
    if pod.decision or (pod.node and settling):
        return 0.2
    if pod.impossible:
        return 1.0 if settling else 0.02
    if not pod.node:
        return 0.0
    return {"high": 0.03, "low": 0.01, "probe": 0.2}[pod.queue]


def _allocation(pod: Pod, manager: Manager) -> si.Allocation:
    told = si.Allocation(
        allocationKey=pod.key,
        applicationID=pod.queue,
        partitionName=manager.partition,
        nodeID=pod.node,
        resourcePerAlloc=_resource(pod.size),
        priority=10 if pod.queue == "high" else 0,
    )
    if pod.impossible:
        told.constraints.nodeSelector[f"key-{pod.key}"] = "value"
    if pod.decision:
        told.releasing.CopyFrom(
            si.ReleasingMark(
                terminationType=si.PREEMPTED_BY_SCHEDULER,
                decisionID=pod.decision,
                releasedFor=pod.freed_for,
                nodeID=pod.freed_on,
            )
        )
    return told


def _resource(size: dict[str, int]) -> si.Resource:
    return si.Resource(resources={name: si.Quantity(value=amount) for name, amount in size.items()})


async def _next(stream: Any) -> Any:
    """Return the next answer. Raise EOFError when the stream has ended in order."""
    answer = await stream.read()
    if answer is grpc.aio.EOF:
        raise EOFError
    return answer


async def _answered(stream: Any, objects: int) -> None:
    """Wait for the answers about this number of objects."""
    while objects > 0:
        answer = await _next(stream)
        objects -= len(answer.accepted) + len(answer.rejected)


async def _drain(stream: Any) -> None:
    while True:
        await _next(stream)


if __name__ == "__main__":
    shim = Shim(MANAGERS[sys.argv[1]], int(sys.argv[2]), Files(Path(sys.argv[3])), int(sys.argv[4]))
    asyncio.run(shim.run())
