"""The cost of a history, a follower, a log or an election: a script is played in turn against a core without it and a core with it.

The history's process, a follower, and the server of the log get the processors of the client: the core keeps its own. A follower
runs only while the client has nothing to do. On a machine of its own it would not slow the client down.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import grpc

from evenhand.v1 import replication_pb2 as pb
from evenhand.v1 import replication_pb2_grpc
from si.v1 import si_pb2 as si
from tests.bench import wire
from tests.bench.figures import Run
from tests.bench.processes import children_of
from tests.bench.script import Script
from tests.bench.wire import Server, WireFigure
from tests.replication.engine import Engine

EPOCH: Final = 7
JOIN_S: Final = 60
"""Seconds in which a follower must have joined."""
LOOK_S: Final = 0.1
_IDLE: Final = 19
"""The lowest priority of a thread, as the kernel counts."""

Play = Callable[[Script, Sequence[str]], WireFigure]
"""A function that plays a script against a core with something added; a profiler's command can be put before the core's."""


@dataclass(frozen=True, slots=True)
class Added:
    """Something that is added to a core."""

    name: str
    play: Play


def compared(added: Added, make: Callable[[], Script], placed: int, before: Sequence[str]) -> Run:
    """Play a script without and with the addition. Return the figures with it, and their ratios to the figures without it."""
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
    note = (
        f"without {added.name}: {without['placements']:,.0f} placements/s, {without['99 of 100 waits']:.1f} ms, "
        f"{plain.resident_mib:,} MiB"
    )
    return Run(values, cpu_s, found.server_mib, note, found.pace)


def with_history(script: Script, before: Sequence[str]) -> WireFigure:
    """Play a script against a core that keeps a history in a file."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--history", str(Path(folder) / "history.sqlite")]
        return wire.run(script, before=before, options=options, beside=_children_aside)


@contextmanager
def _children_aside(core: Server) -> Iterator[None]:
    """Let the processes that a core has started, such as that of its history, run on the client's processors."""
    with wire.kept(client=True):
        aside = os.sched_getaffinity(0)
    for child in children_of(core.pid):
        os.sched_setaffinity(child, aside)
    yield


def with_follower(script: Script, before: Sequence[str]) -> WireFigure:
    """Play a script against a core that another core follows."""
    return wire.run(script, before=before, beside=_followed)


@contextmanager
def _followed(core: Server) -> Iterator[None]:
    with wire.server(options=["--follow", core.address], at=1) as follower:
        _wait_until_joined(follower.address)
        for thread in Path(f"/proc/{follower.pid}/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(thread.name), _IDLE)
        yield
        assert _state(follower.address) == "follower", "the follower has lost its leader"


def _wait_until_joined(address: str) -> None:
    end = time.monotonic() + JOIN_S
    while _state(address) != "follower":
        assert time.monotonic() < end, "the follower has not joined"
        time.sleep(LOOK_S)


def _state(address: str) -> str:
    return str(_replication(address).state)


def _replication(address: str) -> pb.GetReplicationResponse:
    with grpc.insecure_channel(address) as channel:
        stub = replication_pb2_grpc.ReplicationServiceStub(channel)
        return stub.GetReplication(pb.GetReplicationRequest())


def with_log(script: Script, before: Sequence[str]) -> WireFigure:
    """Play a script against a core that writes its input to a log of NATS, which syncs each message."""
    with tempfile.TemporaryDirectory() as folder:
        with wire.kept(client=True):
            nats = Engine(Path(folder))
            nats.start()
        try:
            return wire.run(script, before=before, options=["--log", nats.url], beside=_logged)
        finally:
            nats.kill()


@contextmanager
def _logged(core: Server) -> Iterator[None]:
    yield
    end = time.monotonic() + JOIN_S
    while (found := _replication(core.address)).log.position < found.position:
        assert time.monotonic() < end, f"the log lacks input: {found.log}"
        time.sleep(LOOK_S)
    assert found.log.gaps <= 1, "the log lost some of the input"


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
        Added("a history", with_history),
        Added("a follower", with_follower),
        Added("a log", with_log),
        Added("an epoch", with_epoch),
    )
}
"""The additions to a core, by name."""
