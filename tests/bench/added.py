"""The cost of a history, a follower, a log or an election: a script is played in turn against a core without it and a core with it.

The history's process, a follower, and the server of the log get the processors of the client: the core keeps its own. A follower and
the server of the log run only while the client has nothing to do. On a machine of their own they would not slow the client down.

A nice value of 19 would not do for that: on Linux 6.6 and later a process keeps its processor for a slice of 1 to 3 ms, whatever
the nice value of a process that wakes up meanwhile. Every answer to the client would wait for so long. Only the policy SCHED_IDLE gives
way at once.
"""

import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import grpc

from evenhand.v1 import replication_pb2 as pb
from evenhand.v1 import replication_pb2_grpc
from si.v1 import si_pb2 as si
from tests.bench import wire
from tests.bench.figures import Run
from tests.bench.processes import children_of, cpu_seconds, run_last
from tests.bench.script import Script
from tests.bench.wire import Server, WireFigure
from tests.replication.engine import Engine

EPOCH: Final = 7
JOIN_S: Final = 60
"""Seconds in which a follower must have joined."""
LOOK_S: Final = 0.1
PLACED: Final = "new"
"""The field of an answer that has placements."""
_NICE: Final = 10
"""The nice value of the history's process."""
_BUSY: Final = """
texts = {at: str(at) for at in range(200_000)}
while True:
    sum(map(len, texts.values()))
"""
"""A program that is always busy, and reads more memory than a core's own cache holds."""

Play = Callable[[Script, Sequence[str]], WireFigure]
"""A function that plays a script against a core with something added; a profiler's command can be put before the core's."""


@dataclass(frozen=True, slots=True)
class Added:
    """Something that is added to a core."""

    name: str
    play: Play
    yielding: Callable[[int], None] | None = None
    """The function that lowers the priority of a process to that of the addition's process, None for an addition without one."""


def compared(added: Added, make: Callable[[], Script], placed: int, before: Sequence[str]) -> Run:
    """Play a script without and with the addition. Return the figures with it, and their ratios to the figures without it.

    If the addition has a process, play the script also without the addition beside a process that is always busy, at the same
    priority and on the same processors. The note has the result: two busy processors disturb each other.

    The pace is that of the more disturbed of the two runs, because a ratio says something only if both were quiet.
    """
    plain, found = wire.run(make(), before=before), added.play(make(), before)
    without, values = plain.values(placed), found.values(placed)
    values["time, with to without"] = values["time"] / without["time"]
    cpu_s, plain_s = found.played.server_cpu, plain.played.server_cpu
    # The kernel counts in ticks: a short run may have none.
    values["CPU, with to without"] = cpu_s / plain_s if cpu_s and plain_s else 1.0
    values["99 of 100 waits, with to without"] = (
        values["99 of 100 waits"] / without["99 of 100 waits"]
    )
    values["memory, with to without"] = values["resident memory"] / without["resident memory"]
    note = f"without {added.name}: {_figures(plain, placed)}, {plain.resident_mib:,} MiB"
    if added.yielding is not None:
        disturbed = wire.run(make(), before=before, beside=partial(_busy, added.yielding))
        note += f"; and beside a busy process: {_figures(disturbed, placed)}"
    if found.aside_cpu:
        note += f"; its process: {found.aside_cpu:.1f} s of CPU, set-up included"
    return Run(values, cpu_s, found.server_mib, note, max(plain.pace, found.pace))


def _figures(found: WireFigure, placed: int) -> str:
    values = found.values(placed)
    return f"{values['placements']:,.0f} placements/s, {values['99 of 100 waits']:.1f} ms"


@contextmanager
def _busy(yielding: Callable[[int], None], _core: Server) -> Iterator[None]:
    """Keep a process busy on the client's processors while the block runs."""
    with wire.kept(client=True):
        process = subprocess.Popen([sys.executable, "-c", _BUSY])
    yielding(process.pid)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _nice(pid: int) -> None:
    """Give a process the priority of the history's process."""
    os.setpriority(os.PRIO_PROCESS, pid, _NICE)


def with_history(script: Script, before: Sequence[str]) -> WireFigure:
    """Play a script against a core that keeps a history in a file. Fail if a pod that was placed is not in the file afterwards."""
    aside = list[float]()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "history.sqlite"
        wanted = sum(one.until for one in script.steps if one.counted == PLACED)
        written = partial(_written, file, wanted, aside)
        options = ["--history", str(file)]
        found = wire.run(script, before=before, options=options, beside=written)
    return replace(found, aside_cpu=sum(aside))


@contextmanager
def _written(file: Path, pods: int, aside: list[float], core: Server) -> Iterator[None]:
    """Let the history's process run on the client's processors. At the end wait until all pods are written, and note its CPU seconds."""
    with wire.kept(client=True):
        processors = os.sched_getaffinity(0)
    children = children_of(core.pid)
    for child in children:
        for thread in Path(f"/proc/{child}/task").iterdir():
            os.sched_setaffinity(int(thread.name), processors)
    yield
    end = time.monotonic() + JOIN_S
    while (found := _placed_in(file)) < pods:
        assert time.monotonic() < end, f"the history has {found:,} placed pods of {pods:,}"
        time.sleep(LOOK_S)
    aside.extend(map(cpu_seconds, children))


def _placed_in(file: Path) -> int:
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as connection:
        select = "SELECT count(*) FROM pods WHERE placed_ms IS NOT NULL"
        return int(connection.execute(select).fetchone()[0])


def with_follower(script: Script, before: Sequence[str]) -> WireFigure:
    """Play a script against a core that another core follows."""
    aside = list[float]()
    found = wire.run(script, before=before, beside=partial(_followed, aside))
    return replace(found, aside_cpu=sum(aside))


@contextmanager
def follower(core: Server, *, last: bool) -> Iterator[Server]:
    """Hold a core that follows another one while the block runs.

    With ``last``, it runs only while nothing else wants its processor.
    """
    with wire.server(options=["--follow", core.address], at=1) as found:
        _wait_until_joined(found.address)
        if last:
            run_last(found.pid)
        yield found
        run_last(found.pid, os.SCHED_OTHER)  # It has to end in time even if the machine is busy.
        assert _state(found.address) == "follower", "the follower has lost its leader"


@contextmanager
def _followed(aside: list[float], core: Server) -> Iterator[None]:
    with follower(core, last=True) as found:
        yield
        run_last(found.pid, os.SCHED_OTHER)
        _wait_until_level(core.address, found.address)
        aside.append(cpu_seconds(found.pid))


def _wait_until_joined(address: str) -> None:
    end = time.monotonic() + JOIN_S
    while _state(address) != "follower":
        assert time.monotonic() < end, "the follower has not joined"
        time.sleep(LOOK_S)


def _wait_until_level(leader: str, follower: str) -> None:
    end = time.monotonic() + JOIN_S
    while _replication(follower).position < _replication(leader).position:
        assert time.monotonic() < end, "the follower has not got all input"
        time.sleep(LOOK_S)


def _state(address: str) -> str:
    return str(_replication(address).state)


def _replication(address: str) -> pb.GetReplicationResponse:
    with grpc.insecure_channel(address) as channel:
        stub = replication_pb2_grpc.ReplicationServiceStub(channel)
        return stub.GetReplication(pb.GetReplicationRequest())


def with_log(script: Script, before: Sequence[str]) -> WireFigure:
    """Play a script against a core that writes its input to a log of NATS, which syncs each message."""
    aside = list[float]()
    with tempfile.TemporaryDirectory() as folder:
        with wire.kept(client=True):
            nats = Engine(Path(folder))
            nats.start()
        try:
            beside = partial(_logged, nats, aside)
            found = wire.run(script, before=before, options=["--log", nats.url], beside=beside)
        finally:
            nats.kill()
    return replace(found, aside_cpu=sum(aside))


@contextmanager
def _logged(nats: Engine, aside: list[float], core: Server) -> Iterator[None]:
    run_last(nats.pid)
    yield
    run_last(nats.pid, os.SCHED_OTHER)
    end = time.monotonic() + JOIN_S
    while (found := _replication(core.address)).log.position < found.position:
        assert time.monotonic() < end, f"the log lacks input: {found.log}"
        time.sleep(LOOK_S)
    assert found.log.gaps <= 1, "the log lost some of the input"
    aside.append(cpu_seconds(nats.pid))


def with_epoch(script: Script, before: Sequence[str]) -> WireFigure:
    """Play a script as a shim that was elected: its registration, and each of its streams, has an epoch."""
    register, *steps = script.steps
    (message,) = register.messages
    request = si.RegisterResourceManagerRequest.FromString(message)
    request.epoch = EPOCH
    elected = replace(register, messages=[request.SerializeToString()])
    return wire.run(replace(script, steps=[elected, *steps], epoch=EPOCH), before=before)


EVERYTHING: Final[Mapping[str, Added]] = {
    one.name: one
    for one in (
        Added("a history", with_history, _nice),
        Added("a follower", with_follower, run_last),
        Added("a log", with_log),
        Added("an epoch", with_epoch),
    )
}
"""The additions to a core, by name."""
