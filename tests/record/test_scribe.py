"""The thread that writes records: it keeps the order, continues after errors, and cannot delay the server's end for ever."""

import asyncio
import os
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from evenhand.v1 import config_pb2, config_pb2_grpc
from server.bootstrap import Exit, ServeOptions, serve
from server.record.writer import Scribe

PATIENCE_S = 20.0


class Stuck:
    """A sync that does not return before it is let go."""

    def __init__(self) -> None:
        self.begun, self.let_go = threading.Event(), threading.Event()

    def sync(self, _descriptor: int = 0) -> None:
        """Wait."""
        self.begun.set()
        assert self.let_go.wait(PATIENCE_S)


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stuck]:
    found = Stuck()
    monkeypatch.setattr("server.record.writer.STUCK_S", 0.02)
    yield found
    found.let_go.set()


def test_all_jobs_are_done_in_order_before_the_end() -> None:
    """A defect in one stops no other."""
    scribe, done = Scribe(), list[int]()
    scribe.run(lambda: done.remove(-1))  # raises
    for number in range(100):
        scribe.run(partial(done.append, number))
    scribe.close()
    assert done == list(range(100))


async def test_who_asks_hears_what_came_of_a_job() -> None:
    """A job that raises is told to the one that asked."""
    scribe = Scribe()
    assert await scribe.asked(lambda: True)
    with pytest.raises(ZeroDivisionError):
        await scribe.asked(lambda: bool(1 // 0))
    scribe.close()


def test_a_job_that_never_returns_does_not_hold_up_the_end(stuck: Stuck) -> None:
    """What waits behind it is not done."""
    scribe, done = Scribe(), list[int]()
    scribe.run(stuck.sync)
    scribe.run(lambda: done.append(1))
    scribe.close()
    assert stuck.begun.is_set()
    assert not done


def test_a_sync_that_returns_late_lets_the_jobs_behind_it_run_once_and_in_order(
    stuck: Stuck,
) -> None:
    """Their lines are missing only if the process ends first."""
    scribe, done, last = Scribe(), list[int](), threading.Event()
    scribe.run(stuck.sync)
    for number in range(10):
        scribe.run(partial(done.append, number))
    scribe.run(last.set)
    scribe.close()
    assert not done
    stuck.let_go.set()
    assert last.wait(PATIENCE_S)
    assert done == list(range(10))


async def test_a_durable_core_ends_although_a_sync_never_returns(
    tmp_path: Path, stuck: Stuck, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end is bounded whatever the disk does."""
    monkeypatch.setattr("server.bootstrap.GRACE_S", 0.02)
    stop, where = asyncio.Event(), asyncio.get_running_loop().create_future()
    options = ServeOptions("127.0.0.1:0", decision_log=tmp_path / "log", durable=True)
    serving = asyncio.create_task(serve(options, ready=where.set_result, stop=stop))
    async with grpc.aio.insecure_channel(await where) as channel:
        monkeypatch.setattr(os, "fsync", stuck.sync)
        stub: Any = config_pb2_grpc.ConfigurationServiceStub(channel)
        text = "partitions: [{name: default, queues: [{name: root}]}]"
        applying = asyncio.ensure_future(stub.Apply(config_pb2.ApplyRequest(yaml=text)))
        assert await asyncio.to_thread(stuck.begun.wait, PATIENCE_S)
        stop.set()
        assert await asyncio.wait_for(serving, PATIENCE_S) == Exit.DRAINED
        with pytest.raises(grpc.aio.AioRpcError):
            await applying
    assert not stuck.let_go.is_set()
