"""The time that a health check waits for its answer while one tenant sends expensive work, without and with readers."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import grpc

from tests.bench import hostile
from tests.bench.beside import PATIENCE_S, Readers, reading
from tests.bench.client import MESSAGE_MAX, Player
from tests.bench.figures import Run, most_of
from tests.bench.players import ROOT, surroundings
from tests.bench.processes import cpu_seconds, peak_mib
from tests.bench.wire import kept, server
from tests.bench.workloads import Workload

ROUNDS = 2
"""Number of messages in one run; they are sent one after the other, each with new sizes."""


def checked(
    workload: Workload, sizes: int, readers: Readers | None, before: Sequence[str] = ()
) -> Run:
    """Fill a cluster, send asks of many sizes that fit no node, and return how long health checks waited meanwhile."""
    with server(before) as core, kept(client=True):
        waits, begun, seconds, cpu = asyncio.run(
            _checked(workload, sizes, readers, core.pid, core.address)
        )
        mib = peak_mib(core.pid)
    waits.sort()
    values = {
        "99 of 100 waits": most_of(waits),
        "longest wait": waits[-1],
    }
    return Run(values, cpu, mib, f"{len(waits):,} checks", core.pace(begun, seconds))


async def _checked(
    workload: Workload, sizes: int, readers: Readers | None, pid: int, address: str
) -> tuple[list[float], float, float, float]:
    script = json.loads(hostile.sizes_in_turn(workload, sizes, ROUNDS).as_json(pid))
    steps, measured = script["steps"], script["measured"]
    options = (("grpc.max_receive_message_length", MESSAGE_MAX),)
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        player = Player(channel)
        for step in steps[:measured]:
            await player.play(step)
        with reading(readers, address), _checking(address) as process:
            assert process.stdout is not None
            await asyncio.to_thread(process.stdout.readline)
            begun, since, cpu = time.time(), time.perf_counter(), cpu_seconds(pid)
            for step in steps[measured:]:
                await player.play(step)
            cpu, seconds = cpu_seconds(pid) - cpu, time.perf_counter() - since
            said, _ = await asyncio.to_thread(process.communicate, timeout=PATIENCE_S)
        await player.end()
    waits: list[float] = json.loads(said)
    return waits, begun, seconds, cpu


@contextmanager
def _checking(address: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.bench.checking", address]
    pipe: Any = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, cwd=ROOT, env=surroundings()
    ) as process:
        yield process
