"""A shim with a list of cores: it uses the first one that serves and accepts it, one at a time (design 7.2)."""

import asyncio
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import grpc
import pytest

from server.rpc.errors import handed_over
from shim_client.bootstrap import make_shim, run_shim
from shim_client.config import Settings
from shim_client.core_client import connection, outbox, streams
from shim_client.core_client.address import CoreAddress
from shim_client.core_client.configuration import ConfigurationPost
from shim_client.core_client.connection import RESUME_ROUNDS_MAX, Connection, Registration
from shim_client.core_client.errors import CoreRefusedError, NoCoreError
from shim_client.core_client.spread import CoreGroup
from shim_client.embedded.cluster import EmbeddedCluster
from shim_client.messages import Decision, SyncComplete
from shim_client.shim import Shim
from si.v1 import si_pb2
from tests.shim.fake_core import FakeCore
from tests.shim.objects import node, pod
from tests.shim.polling import until
from tests.shim.rig import core_process, free_port
from tests.shim.test_embedded_store import Clock
from tests.shim.test_leading import epoch_old, with_reason

SETTINGS = Settings(cluster_id="test", queues="partitions: []")
START_S = 60.0
DETECTED_S = 2.5
"""Longest time until a dead core is left, with some seconds for a busy machine; alone it takes about one second."""


@pytest.fixture
async def cores() -> AsyncIterator[tuple[FakeCore, FakeCore]]:
    made = FakeCore(), FakeCore()
    for one in made:
        await one.start()
    yield made
    for one in made:
        await one.stop()


@pytest.fixture
def cluster() -> EmbeddedCluster:
    made = EmbeddedCluster(Clock())
    for item in (node("n1"), node("n2"), pod("a")):
        made.create(item)
    made.step()
    return made


@asynccontextmanager
async def running(
    cluster: EmbeddedCluster, *ports: int, settings: Settings = SETTINGS
) -> AsyncIterator[tuple[Shim, asyncio.Task[None]]]:
    shim = make_shim(cluster, [CoreAddress(f"127.0.0.1:{port}") for port in ports], settings)
    task = asyncio.create_task(run_shim(shim, cluster))
    try:
        yield shim, task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_first_core_that_serves_is_used(
    cluster: EmbeddedCluster, cores: tuple[FakeCore, FakeCore]
) -> None:
    one, two = cores
    async with running(cluster, free_port(), one.port, two.port):
        await until(lambda: one.synced == 1)
    assert (len(one.registrations), len(two.registrations)) == (1, 0)


async def test_a_shim_names_the_revision_of_its_table_when_it_registers(
    cluster: EmbeddedCluster, cores: tuple[FakeCore, FakeCore]
) -> None:
    for revision, core in zip((7, 0), cores, strict=True):
        group = CoreGroup("a", (CoreAddress(f"127.0.0.1:{core.port}"),), ("default",), revision)
        shim = make_shim(cluster, [group], SETTINGS)
        task = asyncio.create_task(run_shim(shim, cluster))
        await until(partial(_is_synced, core))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    with_it, without = (one.registered_with[0] for one in cores)
    assert with_it["evenhand-table-revision"] == "7"
    assert "evenhand-table-revision" not in without


async def test_a_session_that_the_shim_ends_begins_again_without_a_pause(
    cores: tuple[FakeCore, FakeCore],
) -> None:
    """A partition moved to the only core of a group, whose other partitions wait for the next session."""
    one, _ = cores

    async def pause(seconds: float) -> None:
        raise AssertionError(f"{seconds} s")

    registration = Registration("test", "v", "queues", "", table_revision=6)
    connection = Connection([CoreAddress(f"127.0.0.1:{one.port}")], registration, sleep=pause)
    task = asyncio.create_task(connection.run(_Ears()))
    await until(lambda: one.open_streams == 3)
    connection.use_table(7)
    await until(lambda: len(one.registrations) == 2 or task.done())
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len(one.registrations) == 2


def _is_synced(core: FakeCore) -> bool:
    return core.synced == 1


async def test_a_core_that_leads_already_is_used_before_the_first_of_the_list(
    cluster: EmbeddedCluster,
) -> None:
    """Another shim used it, so it has the state; the first core of the list may have been just started."""
    one, two = FakeCore(), FakeCore()
    one.leads, two.leads = False, True
    await one.start()
    await two.start()
    async with running(cluster, one.port, two.port):
        await until(lambda: two.synced == 1)
    await one.stop()
    await two.stop()
    assert not one.registrations


class _Ears:
    """A listener that takes everything. `heard` is set once the core has sent something."""

    def __init__(self) -> None:
        self.heard = asyncio.Event()
        self.on_skipped: list[Callable[[], None]] = []
        self.refusals: list[tuple[str, bool]] = []

    async def registered(self, core: str) -> None:
        del core

    async def resumed(self, core: str, why: str) -> None:
        raise AssertionError(f"{core}: {why}")

    async def unreachable(self, why: str) -> None:
        pass

    async def skipped(self, core: str, why: str) -> None:
        del core, why
        while self.on_skipped:
            self.on_skipped.pop()()

    async def refused(self, why: str, *, is_unknown: bool) -> None:
        self.refusals.append((why, is_unknown))

    async def unknown(self, why: str, seconds: float) -> None:
        raise AssertionError(f"{why}: {seconds}")

    async def lost(self, why: str) -> None:
        pass

    async def decided(self, decisions: list[Decision]) -> None:
        del decisions
        self.heard.set()


@asynccontextmanager
async def heard_from(
    cores: tuple[FakeCore, FakeCore], table_revision: int = 0
) -> AsyncIterator[tuple[Connection, _Ears]]:
    """Hold a connection whose session is with the first core, which has sent something."""
    one, _ = cores
    addresses = [CoreAddress(f"127.0.0.1:{each.port}") for each in cores]
    registration = Registration("test", "v", "queues", "", table_revision=table_revision)
    connection = Connection(addresses, registration, session_name=lambda: "name")
    ears = _Ears()
    task = asyncio.create_task(connection.run(ears))
    try:
        await until(lambda: one.open_streams == 3)
        one.say("nodes", si_pb2.NodeResponse())
        await ears.heard.wait()
        yield connection, ears
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    ("code", "is_unknown"),
    [(grpc.StatusCode.UNAUTHENTICATED, True), (grpc.StatusCode.PERMISSION_DENIED, False)],
)
async def test_a_refusal_is_reported_while_the_other_core_is_away(
    code: grpc.StatusCode,
    is_unknown: bool,  # noqa: FBT001
) -> None:
    """The connection retries, because the core that is away may accept the shim. A person has to learn of the refusal."""
    away, refusing = FakeCore(), FakeCore()
    for one in (away, refusing):
        await one.start()
    await away.stop()
    refusing.refuse = (code, "this token is not known")
    addresses = [CoreAddress(f"127.0.0.1:{one.port}") for one in (away, refusing)]
    connection = Connection(addresses, Registration("test", "v", "queues", ""))
    ears = _Ears()
    task = asyncio.create_task(connection.run(ears))
    await until(lambda: len(ears.refusals) > 1)
    assert not task.done()
    why, found = ears.refusals[0]
    assert found is is_unknown
    assert f"127.0.0.1:{refusing.port}" in why
    assert "this token is not known" in why
    refusing.refuse = None
    await until(lambda: bool(refusing.registrations))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await refusing.stop()


async def test_a_shim_with_another_table_registers_again_at_the_same_core(
    cores: tuple[FakeCore, FakeCore],
) -> None:
    """A partition moved to these cores (design 7.9): the core that decides keeps doing so, and no session continues."""
    one, two = cores
    async with heard_from(cores, table_revision=6) as (connection, _):
        connection.use_table(7)
        await until(lambda: len(one.registrations) == 2)
    told = [each["evenhand-table-revision"] for each in one.registered_with]
    assert (told, two.registrations) == (["6", "7"], [])
    assert not one.registrations[1].HasField("resume")


async def test_a_session_that_broke_off_is_not_continued_with_another_table(
    cores: tuple[FakeCore, FakeCore],
) -> None:
    """The shim does not count on what was reported in that session any more."""
    one, two = cores
    two.refuse_with = with_reason("NOT_LEADER")
    async with heard_from(cores) as (connection, ears):
        ears.on_skipped.append(connection.use_table)
        one.end_streams(grpc.StatusCode.UNAVAILABLE, "it ends")
        await until(lambda: len(one.registrations) == 2)
    assert not ears.on_skipped
    assert not one.registrations[1].HasField("resume")


async def test_a_session_whose_reports_were_dropped_is_not_continued(
    cores: tuple[FakeCore, FakeCore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More reports come than may wait while the shim looks for a core."""
    monkeypatch.setattr(outbox, "OUTBOX_MAX", 2)
    one, two = cores
    two.refuse_with = with_reason("NOT_LEADER")
    async with heard_from(cores) as (connection, ears):
        ears.on_skipped.append(lambda: connection.send([SyncComplete(0, 0, 0, 0)] * 4))
        one.end_streams(grpc.StatusCode.UNAVAILABLE, "it ends")
        await until(lambda: len(one.registrations) == 2)
    assert not one.registrations[1].HasField("resume")


async def test_when_a_core_is_gone_the_next_one_gets_everything(
    cluster: EmbeddedCluster, cores: tuple[FakeCore, FakeCore]
) -> None:
    one, two = cores
    async with running(cluster, one.port, two.port):
        await until(lambda: one.synced == 1)
        await one.stop()
        await until(lambda: two.synced == 1)
        assert set(two.asks) == {"uid-a"}


@pytest.mark.parametrize("rounds", [1, RESUME_ROUNDS_MAX])
async def test_a_session_goes_on_at_a_core_that_answers_in_time_only_in_a_later_round(
    cluster: EmbeddedCluster,
    cores: tuple[FakeCore, FakeCore],
    rounds: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other core of the list is gone, so that nobody answers in a round. After the last round the session is lost."""
    monkeypatch.setattr(connection, "PAUSE_SECONDS_FIRST", 0.0)
    one, two = cores
    two.resumes, two.refuse = True, (grpc.StatusCode.DEADLINE_EXCEEDED, "busy")
    two.answers_after = rounds
    async with running(cluster, one.port, two.port) as (shim, _):
        await until(lambda: one.synced == 1)
        await one.stop()
        await until(lambda: len(two.registrations) == 1)
        assert two.refusals == rounds
        is_offered = bool(two.registrations[0].resume.sessionID)
        assert is_offered == (rounds < RESUME_ROUNDS_MAX)
        cluster.create(pod("b"))
        await until(lambda: "uid-b" in two.asks)
        assert shim.progress().sessions == 1 + (not is_offered)


class _Busy:
    """A state machine that processes decisions only once `goes_on` is set. `begun` is set when decisions wait for it."""

    def __init__(self, shim: Shim, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.goes_on = asyncio.Event(), asyncio.Event()
        self._decided = shim.decided
        monkeypatch.setattr(shim, "decided", self._slowly)

    async def _slowly(self, decisions: list[Decision], group: str) -> None:
        self.begun.set()
        await self.goes_on.wait()
        await self._decided(decisions, group)


async def test_a_response_that_is_processed_while_the_core_dies_does_not_end_the_session(
    cluster: EmbeddedCluster, cores: tuple[FakeCore, FakeCore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state machine is busy, so that the response waits for it."""
    one, two = cores
    two.resumes = True
    async with running(cluster, one.port, two.port) as (shim, _):
        await until(lambda: one.synced == 1)
        busy, ended = _Busy(shim, monkeypatch), asyncio.Event()
        end_of = streams._end_of

        async def end(call: streams.Call, error: BaseException | None) -> Exception:
            found = await end_of(call, error)
            ended.set()
            return found

        monkeypatch.setattr(streams, "_end_of", end)
        placed = si_pb2.Allocation(allocationKey="uid-a", applicationID="x", nodeID="n1")
        one.say("allocations", si_pb2.AllocationResponse(new=[placed]))
        await busy.begun.wait()
        await one.stop()
        await ended.wait()
        for _ in range(10):
            await asyncio.sleep(0)
        busy.goes_on.set()
        await until(lambda: len(two.registrations) == 1)
        assert two.registrations[0].resume.sessionID
        await until(lambda: shim.progress().tally.bound >= 1)
        assert shim.progress().sessions == 1


async def test_a_response_is_processed_although_the_configuration_cannot_be_sent(
    cluster: EmbeddedCluster, cores: tuple[FakeCore, FakeCore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The core dies while it is sent a configuration, and the state machine is busy with a response."""
    one, two = cores
    two.resumes = True
    dies = asyncio.Event()

    async def follow(*_: object) -> None:
        await dies.wait()
        dies.clear()
        raise streams.SessionLostError("the core did not take the queues")

    monkeypatch.setattr(ConfigurationPost, "follow", follow)
    async with running(cluster, one.port, two.port) as (shim, _):
        await until(lambda: one.synced == 1)
        busy = _Busy(shim, monkeypatch)
        placed = si_pb2.Allocation(allocationKey="uid-a", applicationID="x", nodeID="n1")
        one.say("allocations", si_pb2.AllocationResponse(new=[placed]))
        await busy.begun.wait()
        dies.set()
        for _ in range(10):
            await asyncio.sleep(0)
        busy.goes_on.set()
        await until(lambda: len(two.registrations) == 1)
        assert two.registrations[0].resume.sessionID
        await until(lambda: shim.progress().tally.bound >= 1)


async def test_when_a_core_hands_over_the_shim_goes_to_the_core_that_it_names(
    cluster: EmbeddedCluster,
) -> None:
    """Another core of the list hangs. The shim does not wait for its answer."""
    made = [FakeCore() for _ in range(3)]
    for number, one in enumerate(made):
        one.leads, one.process = number == 0, f"p{number}"
        await one.start()
    first, second, third = made
    status = handed_over("core 3", "p2").status()
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        ports = first.port, hanging.getsockname()[1], second.port, third.port
        async with running(cluster, *ports):
            await until(lambda: first.synced == 1)
            first.end_with(status)
            await until(lambda: third.synced == 1)
    assert second.registrations == []
    for one in made:
        await one.stop()


async def test_a_successor_that_the_shim_does_not_know_changes_nothing(
    cluster: EmbeddedCluster,
) -> None:
    made = [FakeCore() for _ in range(2)]
    for number, one in enumerate(made):
        one.leads, one.process = number == 0, f"p{number}"
        await one.start()
    first, second = made
    async with running(cluster, first.port, second.port):
        await until(lambda: first.synced == 1)
        first.end_with(handed_over("another", "p9").status())
        await until(lambda: second.synced == 1)
    for one in made:
        await one.stop()


async def test_a_core_has_no_streams_when_the_shim_registers_at_the_next_one(
    cluster: EmbeddedCluster, cores: tuple[FakeCore, FakeCore]
) -> None:
    """A core that ends one stream only still has the other two, until the shim itself closes them."""
    one, two = cores
    one.others = two.others = cores
    async with running(cluster, one.port, two.port):
        await until(lambda: one.synced == 1)
        assert one.open_streams == 3
        one.say("allocations", (grpc.StatusCode.RESOURCE_EXHAUSTED, "not read"))
        await until(lambda: two.synced == 1)
    assert two.open_elsewhere == [0]


async def test_a_late_answer_of_the_former_core_is_dropped(
    cluster: EmbeddedCluster, cores: tuple[FakeCore, FakeCore]
) -> None:
    one, two = cores
    async with running(cluster, one.port, two.port) as (shim, _):
        await until(lambda: one.synced == 1)
        one.say("nodes", (grpc.StatusCode.UNAVAILABLE, "the server is stopping"))
        await until(lambda: two.synced == 1)
        late = si_pb2.Allocation(allocationKey="uid-a", applicationID="x", nodeID="n1")
        one.say("allocations", si_pb2.AllocationResponse(new=[late]))
        two.place_on = "n2"
        cluster.create(pod("b"))
        await until(lambda: bool(cluster.pods()) and shim.progress().tally.bound >= 1)
        nodes = {one["metadata"]["name"]: one["spec"].get("nodeName") for one in cluster.pods()}
    assert nodes["b"] == "n2"
    assert nodes["a"] != "n1"


@pytest.mark.parametrize("reason", ["NOT_LEADER", "FOLLOWER_BEHIND"])
async def test_a_core_that_follows_another_one_is_skipped_and_asked_later(
    cluster: EmbeddedCluster, cores: tuple[FakeCore, FakeCore], reason: str
) -> None:
    one, two = cores
    one.refuse_with = with_reason(reason)
    async with running(cluster, one.port, two.port):
        await until(lambda: two.synced == 1)
        one.refuse_with = None
        await two.stop()
        await until(lambda: one.synced == 1)


async def test_a_single_core_that_follows_another_one_is_asked_again(
    cluster: EmbeddedCluster, cores: tuple[FakeCore, FakeCore]
) -> None:
    one, _ = cores
    one.refuse_with = with_reason("NOT_LEADER")
    async with running(cluster, one.port):
        await until(lambda: one.refusals >= 2)
        one.refuse_with = None
        await until(lambda: one.synced == 1)


async def test_a_core_that_refuses_the_shim_does_not_end_it_while_another_one_may_accept_it(
    cluster: EmbeddedCluster, cores: tuple[FakeCore, FakeCore]
) -> None:
    one, two = cores
    one.refuse = (grpc.StatusCode.PERMISSION_DENIED, "no")
    async with running(cluster, one.port, two.port):
        await until(lambda: two.synced == 1)


async def test_when_every_core_refuses_the_shim_ends(
    cluster: EmbeddedCluster, cores: tuple[FakeCore, FakeCore]
) -> None:
    for number, one in enumerate(cores):
        one.refuse = (grpc.StatusCode.INVALID_ARGUMENT, f"bad queues, says {number}")
    async with running(cluster, *(one.port for one in cores)) as (_, task):
        with pytest.raises(CoreRefusedError, match="bad queues, says 0"):
            await asyncio.wait_for(task, 10)


async def test_a_shim_that_is_not_to_wait_ends_when_no_core_answers(
    cluster: EmbeddedCluster,
) -> None:
    addresses = [CoreAddress(f"127.0.0.1:{free_port()}") for _ in range(2)]
    shim = make_shim(cluster, addresses, SETTINGS, wait=False)
    with pytest.raises(NoCoreError):
        await asyncio.wait_for(run_shim(shim, cluster), 10)


async def test_a_newer_epoch_at_one_core_is_no_reason_to_try_the_next_one(
    cluster: EmbeddedCluster, cores: tuple[FakeCore, FakeCore]
) -> None:
    one, two = cores
    one.refuse_with = epoch_old(9, connected=True)
    async with running(cluster, one.port, two.port) as (_, task):
        with pytest.raises(CoreRefusedError):
            await asyncio.wait_for(task, 10)
    assert two.registrations == []


async def listening(port: int) -> None:
    """Wait until a core listens on a port."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        await asyncio.wait_for(channel.channel_ready(), START_S)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_dead_core_is_left_in_about_a_second(
    cluster: EmbeddedCluster, how: signal.Signals
) -> None:
    """A core that was killed closes its connections. One that hangs leaves them open: only its silence tells."""
    ports = free_port(), free_port()
    first, second = [await core_process(port) for port in ports]
    try:
        for port in ports:
            await listening(port)
        async with running(cluster, *ports, settings=Settings(cluster_id="test")) as (shim, _):
            await until(lambda: shim.progress().sessions == 1 and shim.progress().tally.live)
            began = time.monotonic()
            first.send_signal(how)
            await until(lambda: shim.progress().sessions == 2, pause=0.001)
            took = time.monotonic() - began
            print(f"{how.name}: registered at the other core after {took:.2f} s")  # noqa: T201
            await until(lambda: shim.progress().tally.live)
        assert took < DETECTED_S
    finally:
        for one in (first, second):
            if one.returncode is None:
                one.kill()
            await one.wait()
