"""The end of a server: it drains after SIGTERM, and after an error in the core."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from server.bootstrap import Exit, ServeOptions, serve
from server.core.core import Core
from server.core.events.managers import held
from server.model.decisions import Tick
from server.model.parts import Parts
from server.replication import saved
from server.rpc.sessions import Kind
from si.v1 import si_pb2 as si
from si.v1.si_pb2_grpc import SchedulerStub
from tests.rpc.harness import RM, SETTING, Served, Stream, asks, serving, until

ROOT = Path(__file__).parents[2]


@pytest.fixture
def process() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a server process, and provide it with its address."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'gen'}"}
    command = [sys.executable, "-m", "server", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stderr is not None
        found = None
        while found is None:
            line = server.stderr.readline()
            assert line, "the server ended before it listened"
            found = re.search(r"127\.0\.0\.1:\d+", line)
        yield server, found[0]
        server.kill()


async def test_sigterm_drains(process: tuple[subprocess.Popen[str], str]) -> None:
    server, where = process
    async with grpc.aio.insecure_channel(where) as channel:
        served = Served(Core(), None, None, 0, channel, None)  # type: ignore[arg-type]
        stream = await served.ready()
        await stream.send(asks("a"))
        await stream.read(si.AllocationResponse)
        idle = await served.open("UpdateNode", si.NodeRequest(rmID="other"))
        # The core has the call once this returns: a call on its way gets the server's own error.
        await idle.call.initial_metadata()
        server.send_signal(signal.SIGTERM)
        assert await stream.end() == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
        assert await idle.end() == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
    assert await asyncio.to_thread(server.wait, 20) == Exit.DRAINED


async def test_a_drain_sends_what_waits_and_says_not_serving() -> None:
    async with serving() as served:
        stream = await served.ready(nodes=30)
        health = health_pb2_grpc.HealthStub(served.channel)
        watch = health.Watch(health_pb2.HealthCheckRequest(service="si.v1.Scheduler"))  # type: ignore[attr-defined]
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        await stream.send(asks(*(f"k{i}" for i in range(2_500))))
        first = await stream.read(si.AllocationResponse)
        drain = asyncio.create_task(served.endpoint.drain(served.pump, 5.0))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        rest = await stream.all(si.AllocationResponse)
        assert len(first.new) + len(rest.new) == 2_500
        assert await stream.call.code() is grpc.StatusCode.UNAVAILABLE
        await drain


async def test_a_drain_ends_a_stream_that_takes_nothing_and_serves_one_that_reads_slowly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The silent client ends long before the drain's bound; a client that reads now and then gets everything."""
    monkeypatch.setattr("server.rpc.servicer.DRAIN_WRITE_S", 1.0)
    count, parts = 9_000, 3
    async with serving() as served:
        reads = await served.ready(1_000)
        never = await served.open("UpdateAllocation")
        # Keys of this length make more than gRPC buffers for a client that does not read.
        for part in range(parts):
            keys = [f"{part}-{i}-" + "k" * 400 for i in range(count // parts)]
            await reads.send(asks(*keys))
            await never.send(asks(*keys, rm_id="never"))
        await until(lambda: held(served.core.state, RM)["allocations"] == count)
        await until(lambda: served.endpoint.sessions.depths()["never", Kind.ALLOCATION] > 0)
        drain = asyncio.create_task(served.endpoint.drain(served.pump, 60.0))
        got = 0
        while (answer := await reads.next()) is not None:
            got += len(answer.new)
            await asyncio.sleep(0.05)  # a client that takes its time
        assert got == count
        assert await reads.call.code() is grpc.StatusCode.UNAVAILABLE
        async with asyncio.timeout(10):
            await drain


async def test_a_defect_in_the_core_ends_the_server_with_its_own_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_core: Core, _now: int, _budget: int) -> Parts[Tick]:
        raise AssertionError("an invariant is broken")

    where: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    monkeypatch.setattr(Core, "tick_in_parts", fail)
    task = asyncio.create_task(serve(ServeOptions("127.0.0.1:0"), ready=where.set_result))
    async with grpc.aio.insecure_channel(await where) as channel:
        raw = channel.stream_stream("/si.v1.Scheduler/UpdateNode")()  # type: ignore[var-annotated]
        stream = Stream(raw)
        await stream.call.write(si.NodeRequest(rmID="rm").SerializeToString())
        assert await stream.end() == (grpc.StatusCode.INTERNAL, "UNEXPECTED")
    assert await task == Exit.CORE_FAILED


async def test_the_state_of_a_core_that_failed_is_not_that_of_the_next_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Otherwise a state in which the core fails would end every following run as well."""
    options = ServeOptions("127.0.0.1:0", state_dir=tmp_path)
    file = tmp_path / saved.NAME

    async def registered(code: Exit) -> None:
        where: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        stop = asyncio.Event()
        task = asyncio.create_task(serve(options, ready=where.set_result, stop=stop))
        async with grpc.aio.insecure_channel(await where) as channel:
            call = SchedulerStub(channel).RegisterResourceManager
            with suppress(grpc.aio.AioRpcError):
                await call(si.RegisterResourceManagerRequest(rmID="rm"))
            stop.set()
        assert await task == code

    await registered(Exit.DRAINED)
    before = file.read_bytes()
    with monkeypatch.context() as broken:

        def fail(_core: Core, _now: int, _budget: int) -> Parts[Tick]:
            raise AssertionError("an invariant is broken")

        broken.setattr(Core, "tick_in_parts", fail)
        await registered(Exit.CORE_FAILED)
    assert not file.exists()
    assert file.with_name(f"{saved.NAME}.failed").read_bytes() == before
    await registered(Exit.DRAINED)
    assert saved.read(file).header is not None


class Held:
    """A disk that takes nothing."""

    def __init__(self) -> None:
        self.tell: Callable[[bool], object] = bool

    async def before_leaving(self) -> None:
        """Never lets anything leave."""
        self.tell(True)  # noqa: FBT003
        await asyncio.Event().wait()


async def test_a_core_whose_decisions_are_held_back_says_so_and_ends() -> None:
    async with serving(replace(SETTING, holding=Held())) as served:
        health: Any = health_pb2_grpc.HealthStub(served.channel)
        registering = asyncio.create_task(served.register())
        scheduler = health_pb2.HealthCheckRequest(service="si.v1.Scheduler")
        whole = health_pb2.HealthCheckRequest()
        for _ in range(1_000):
            answer = await health.Check(scheduler)
            if answer.status == health_pb2.HealthCheckResponse.NOT_SERVING:
                break
        else:
            raise AssertionError("health never said it")
        answer = await health.Check(whole)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        assert not registering.done()
        await served.endpoint.drain(served.pump, 0.01)
        assert served.pump.cancelled()
        with pytest.raises(grpc.aio.AioRpcError):
            await registering
