"""The web console beside a large cluster: first views of its pages, updates after decisions, and placements while pages are open."""

import asyncio
import base64
import json
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

import grpc

from si.v1 import si_pb2 as si
from tests.bench import added, beside, messages
from tests.bench.beside import WAITING, Process, Readers
from tests.bench.client import MESSAGE_MAX, Player
from tests.bench.figures import Run
from tests.bench.players import ROOT, surroundings
from tests.bench.processes import cpu_seconds, peak_mib, run_last
from tests.bench.wire import Server, kept, server
from tests.bench.workloads import RM, Workload, queue

GAP_S: Final = 6.0
"""Seconds from one round of first views to the next: the console has forgotten the pages of the round before."""
QUIET_S: Final = 1.7
"""Seconds between two decisions. They fall on all parts of the intervals at which pages are read."""
PATIENCE_S: Final = 60
PAGES_OPEN: Final = 50
_ADDRESS: Final = re.compile(rb"http://(127\.0\.0\.1:\d+)")
_RUNNING: Final = re.compile(rb"([\d,]+) running pods?")


def pages(workload: Workload) -> dict[str, str]:
    """Return the addresses of the measured pages by name."""
    return {
        "overview": "/",
        "queues": "/queues",
        "a queue": f"/queue?queue={queue(workload, 0)}",
        "waiting": "/waiting",
        "why": f"/why?key={WAITING}",
        "decisions": "/decisions",
        "timers": "/timers",
        "nodes": "/nodes",
        "my queue": f"/tenant?queue={queue(workload, 0)}",
    }


PAGES: Final = tuple(pages(Workload(1, 1, 1)))
COUNTED: Final = ("overview", "a queue")
"""The pages that show how many pods run, and so when a placement has reached them."""


@contextmanager
def console(core: str, *, last: bool = False) -> Iterator[str]:
    """Hold a console of the core at an address while the block runs. Yield the console's own address.

    With ``last``, the console runs only while nothing else wants its processor.
    """
    evenhand = str(Path(sys.executable).with_name("evenhand"))
    with subprocess.Popen(
        [evenhand, "console", "--core", core, "--listen", "127.0.0.1:0"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=surroundings(),
    ) as process:
        try:
            assert process.stdout is not None
            found = _ADDRESS.search(process.stdout.readline())
            assert found is not None, "the console has ended"
            if last:
                run_last(process.pid)
            yield found[1].decode()
        finally:
            process.terminate()


Measure = Callable[["Filled"], Mapping[str, float]]
"""A function that measures a console, in a thread of its own. It returns values by metric."""


@dataclass(slots=True)
class Filled:
    """A full cluster with one waiting ask, the console beside it, and the loop in which asks are sent."""

    workload: Workload
    console: str
    player: Player
    paced: dict[str, Any]
    loop: asyncio.AbstractEventLoop

    def place(self, number: int) -> float:
        """Send an ask, and return the instant at which its placement came."""
        added = messages.packed([messages.ask(self.workload, self.workload.asks + number)])
        step = self.paced | {
            "messages": [base64.b64encode(one).decode() for one in added],
            "until": 1,
        }
        asyncio.run_coroutine_threadsafe(self.player.play(step), self.loop).result(PATIENCE_S)
        return time.perf_counter()


def measured(
    workload: Workload,
    measure: Measure,
    before: Sequence[str] = (),
    cores: beside.Cores = beside.alone,
) -> Run:
    """Fill a cluster, and measure a console beside it. ``cores`` holds further cores that the console may ask."""
    with server(before) as core, cores(core) as addresses, kept(client=True):
        begun = time.time()
        values, cpu = asyncio.run(_measured(workload, measure, core, addresses))
        mib = peak_mib(core.pid)
    return Run(dict(values), cpu, mib, "", core.pace(begun, time.time() - begun))


async def _measured(
    workload: Workload, measure: Measure, core: Server, addresses: str
) -> tuple[Mapping[str, float], float]:
    filled = messages.churn(workload, 1, 1)
    *standing, paced = json.loads(filled.as_json(core.pid))["steps"]
    waiting = si.AllocationRequest(rmID=RM, allocations=[beside.large(workload, WAITING)])
    options = (("grpc.max_receive_message_length", MESSAGE_MAX),)
    async with grpc.aio.insecure_channel(core.address, options=options) as channel:
        player = Player(channel)
        for step in standing:
            await player.play(step)
        paced |= {"messages": [], "after": None, "until": 0}
        await player.play(
            paced | {"messages": [base64.b64encode(waiting.SerializeToString()).decode()]}
        )
        await player.sent()
        with console(addresses) as address:
            cpu = cpu_seconds(core.pid)
            made = Filled(workload, address, player, paced, asyncio.get_running_loop())
            values = await asyncio.to_thread(measure, made)
            cpu = cpu_seconds(core.pid) - cpu
        await player.end()
    return values, cpu


def first_views(rounds: int, filled: Filled) -> Mapping[str, float]:
    """Ask for each page when the console does not have it: the median time in ms until the page is complete."""
    times: dict[str, list[float]] = {name: [] for name in PAGES}
    for number in range(rounds):
        begun = time.perf_counter()
        for name, path in pages(filled.workload).items():
            times[name].append(1_000 * _view(filled.console, path))
        if number + 1 < rounds:
            time.sleep(max(0.0, begun + GAP_S - time.perf_counter()))
    return {f"first view, {name}": statistics.median(found) for name, found in times.items()}


def _view(address: str, path: str) -> float:
    """Return the seconds until a page is complete."""
    begun = time.perf_counter()
    with closing(HTTPConnection(address, timeout=PATIENCE_S)) as connection:
        connection.request("GET", path)
        with connection.getresponse() as answer:
            answer.read()
            assert answer.status == 200, f"{path}: {answer.status}"
    return time.perf_counter() - begun


class _Watch:
    """An open page, and the instants at which it first showed each number of running pods."""

    def __init__(self, address: str, path: str) -> None:
        self._connection = HTTPConnection(address, timeout=PATIENCE_S)
        self._connection.request("GET", f"/live{path}")
        self._shown: dict[int, float] = {}
        self._more = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with self._connection.getresponse() as answer:
            for line in answer:
                found = _RUNNING.search(line)
                if found is not None:
                    with self._more:
                        number = int(found[1].replace(b",", b""))
                        self._shown.setdefault(number, time.perf_counter())
                        self._more.notify_all()

    def first(self) -> int:
        """Return the number that the page shows first."""
        with self._more:
            assert self._more.wait_for(lambda: self._shown, PATIENCE_S), "the page shows nothing"
            return next(iter(self._shown))

    def since(self, number: int) -> float:
        """Return the instant at which the page showed a number, or a larger one."""

        def shown() -> list[float]:
            return [at for known, at in self._shown.items() if known >= number]

        with self._more:
            assert self._more.wait_for(shown, PATIENCE_S), f"no page shows {number}"
            return min(shown())


def updates(count: int, filled: Filled) -> Mapping[str, float]:
    """Place asks one at a time: the time in ms from each placement until open pages show it."""
    watches = {
        name: _Watch(filled.console, path)
        for name, path in pages(filled.workload).items()
        if name in COUNTED
    }
    first = {name: one.first() for name, one in watches.items()}
    took: list[float] = []
    for number in range(count):
        time.sleep(QUIET_S)
        # Asks of the leaf that the page shows come once in a round over all leaves.
        placed = filled.place(number * filled.workload.leaves)
        for name, one in watches.items():
            took.append(1_000 * (one.since(first[name] + number + 1) - placed))
    return {"median update": statistics.median(took), "longest update": max(took)}


@contextmanager
def followed(core: Server, *, last: bool = False) -> Iterator[str]:
    """Hold a follower beside a core. With ``last``, the follower runs only while nothing else wants its processor."""
    with added.follower(core, last=last) as found:
        yield f"{core.address},{found.address}"


def open_pages(
    workload: Workload,
    count: int,
    before: Sequence[str] = (),
    cores: beside.Cores = beside.alone,
) -> Run:
    """Measure the waits of asks without and with open pages. Return the waits with them, and their ratios to those without."""
    plain = beside.placing(workload, None, before, cores=cores, settled=True)
    readers = Readers(f"{count} pages", "", count, "\n".join(_many(workload, count)).encode())
    found = beside.placing(workload, readers, before, _reading, cores, settled=True)
    for name in ("median wait", "99 of 100 waits"):
        found.values[f"{name}, with to without"] = found.values[name] / plain.values[name]
    return found


def _many(workload: Workload, count: int) -> list[str]:
    """Return the addresses of so many different pages: one of each kind, then those of queues."""
    others = (
        f"/queue?queue={queue(workload, leaf % workload.leaves)}&partition={'default' * (leaf >= workload.leaves)}"
        for leaf in range(1, count)
    )
    return [*pages(workload).values(), *others][:count]


@contextmanager
def _reading(readers: Readers | None, core: str) -> Iterator[Process]:
    """Hold a console and a process with open pages while the block runs.

    In production, the console and the browsers take no time from the shim, whose place the client has here. Therefore both run only
    while the client has nothing to do.
    """
    assert readers is not None
    with (
        console(core, last=True) as address,
        subprocess.Popen(
            [sys.executable, "-m", "tests.bench.pages", address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env=surroundings(),
        ) as process,
    ):
        run_last(process.pid)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(readers.request + b"\n\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"open\n", "no pages could be opened"
        try:
            yield process
        finally:
            process.stdin.close()
