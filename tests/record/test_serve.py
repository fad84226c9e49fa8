"""`serve` with records: they are complete at its end, even after an error in the core; a bad file name ends it at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from server.bootstrap import Exit, ServeOptions, serve
from server.core.core import Core
from server.model.decisions import Tick
from server.model.parts import Parts
from server.rpc.access import Access
from si.v1 import si_pb2 as si
from tests.cli.run import evenhand
from tests.record.test_log import kinds
from tests.rpc.harness import Served, Stream, asks


@asynccontextmanager
async def recorded(folder: Path, ends: Exit) -> AsyncIterator[grpc.aio.Channel]:
    """Hold a server that writes decision log and trace, and yield a channel to it."""
    where: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    options = ServeOptions(
        "127.0.0.1:0", decision_log=folder / "log", trace=folder / "trace", metrics="127.0.0.1:0"
    )
    task = asyncio.create_task(serve(options, ready=where.set_result, stop=stop))
    async with grpc.aio.insecure_channel(await where) as channel:
        yield channel
    stop.set()
    assert await task == ends


async def work(channel: grpc.aio.Channel) -> None:
    served = Served(Core(), None, None, 0, channel, None)  # type: ignore[arg-type]
    stream = await served.ready()
    await stream.send(asks("a", "b"))
    await stream.read(si.AllocationResponse)


async def test_what_was_recorded_can_be_replayed(tmp_path: Path) -> None:
    for _ in range(2):
        async with recorded(tmp_path, Exit.DRAINED) as channel:
            await work(channel)
        ended = evenhand(
            "replay", str(tmp_path / "trace"), "--compare", str(tmp_path / "log"), "-o", "json"
        )
        assert ended.code == 0, ended.out + ended.err
        assert ended.value()["placements"] == 2
        assert ended.value()["ended"] == "the server ended"
    assert kinds(tmp_path / "log") == ["started", "ended"] * 2
    assert evenhand("log", "verify", str(tmp_path / "log")).code == 0


async def test_what_a_core_fails_of_is_in_the_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_core: Core, _now: int, _budget: int) -> Parts[Tick]:
        raise AssertionError("an invariant is broken")

    monkeypatch.setattr(Core, "tick_in_parts", fail)
    async with recorded(tmp_path, Exit.CORE_FAILED) as channel:
        raw = channel.stream_stream("/si.v1.Scheduler/UpdateNode")()  # type: ignore[var-annotated]
        stream = Stream(raw)
        await stream.call.write(si.NodeRequest(rmID="rm").SerializeToString())
        await stream.end()
    ended = evenhand("replay", str(tmp_path / "trace"))
    assert ended.code == 1
    assert "an invariant is broken" in ended.out


@pytest.mark.parametrize("option", ["decision_log", "trace"])
async def test_a_file_that_is_something_else_stops_it_at_once(tmp_path: Path, option: str) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text("partitions:\n")
    told: list[str] = []
    options = ServeOptions("127.0.0.1:0", **{option: file})  # type: ignore[arg-type]
    code = await serve(options, ready=lambda _: None, errors=told.append)
    assert code == Exit.BAD_OPTIONS
    assert str(file) in told[0]
    assert file.read_text() == "partitions:\n"


async def test_a_server_without_a_port_touches_no_record(tmp_path: Path) -> None:
    (tmp_path / "trace").write_text("")
    async with recorded(tmp_path, Exit.DRAINED):
        pass
    before = contents(tmp_path)
    options = ServeOptions("192.0.2.1:1", decision_log=tmp_path / "log", trace=tmp_path / "trace")
    options = replace(options, access=Access(insecure=True))
    code = await serve(options, ready=lambda _: None, errors=lambda _: None)
    assert code == Exit.NO_ADDRESS
    assert contents(tmp_path) == before


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}
