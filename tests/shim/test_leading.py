"""A shim that stands for election: it follows the cluster and sends nothing until it leads, and ends with its term (design 7.2)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
import structlog
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from shim_client.bootstrap import elapsed_clock, make_shim, process_name, run_elected
from shim_client.cluster import Bind
from shim_client.config import Settings
from shim_client.core_client.address import CoreAddress
from shim_client.core_client.errors import CoreRefusedError
from shim_client.election.candidate import Candidate
from shim_client.election.elector import Elector, LeaseLostError, Term
from shim_client.election.lease import Lease, LeaseTerms
from shim_client.embedded.cluster import EmbeddedCluster
from shim_client.shim import Shim
from si.v1 import si_pb2
from tests.election.store import Link, Server
from tests.shim.fake_core import FakeCore
from tests.shim.objects import node, pod
from tests.shim.polling import until
from tests.shim.test_embedded_store import Clock

SETTINGS = Settings(cluster_id="test", queues="partitions: []")
TERMS = LeaseTerms(2, 0.4, 0.5, 0.05)
LOG = structlog.get_logger("test")


class Vote:
    """A leadership that a test decides."""

    def __init__(self) -> None:
        self.term: asyncio.Future[Term] = asyncio.get_running_loop().create_future()
        self.over = asyncio.Event()
        self.raises: list[int] = []

    async def acquired(self) -> Term:
        return await self.term

    async def lost(self, _term: Term) -> None:
        await self.over.wait()

    async def raised(self, term: Term, above: int) -> Term:
        self.raises.append(above)
        return Term(term.number, above + 1)


class Held(EmbeddedCluster):
    """A cluster whose bindings wait until a test lets them go on; `asked` has all that were asked for, `bound` those made."""

    def __init__(self) -> None:
        super().__init__(Clock())
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.asked: list[str] = []
        self.bound: list[str] = []

    async def bind(self, order: Bind) -> None:
        self.asked.append(order.pod.name)
        await self.goes_on.wait()
        await super().bind(order)
        self.bound.append(order.pod.name)


@pytest.fixture
async def core() -> AsyncIterator[FakeCore]:
    made = FakeCore()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def cluster() -> AsyncIterator[Held]:
    made = Held()
    for item in (node("n1"), node("n2"), pod("a"), pod("b")):
        made.create(item)
    made.step()
    running = asyncio.create_task(made.run())
    yield made
    running.cancel()


@asynccontextmanager
async def standing(
    cluster: Held, core: FakeCore, vote: Vote
) -> AsyncIterator[tuple[Shim, asyncio.Task[None]]]:
    """Hold a shim that stands for election."""
    shim = make_shim(cluster, address(core), SETTINGS, "one")
    shim.leadership = vote
    task = asyncio.create_task(shim.run())
    try:
        yield shim, task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def address(core: FakeCore) -> CoreAddress:
    return CoreAddress(f"127.0.0.1:{core.port}")


async def warm(shim: Shim) -> None:
    """Wait until a shim has listed everything; it must not be running yet."""
    listed = asyncio.Event()
    shim.on_warm.append(listed.set)
    await asyncio.wait_for(listed.wait(), 10)


async def test_a_shim_that_does_not_lead_knows_the_cluster_and_sends_nothing(
    cluster: Held, core: FakeCore
) -> None:
    core.place_on, vote = "n1", Vote()
    async with standing(cluster, core, vote) as (shim, task):
        await warm(shim)
        cluster.create(pod("c"))
        await until(lambda: shim.progress().tally.held == 3)
        assert (core.registrations, core.messages, cluster.asked) == ([], [], [])
        vote.term.set_result(Term(1, 7))
        await until(lambda: sorted(cluster.bound) == ["a", "b", "c"])
        assert not task.done()
    assert [(one.epoch, one.buildInfo["instance"]) for one in core.registrations] == [(7, "one")]


async def test_the_end_of_the_term_ends_the_shim_and_what_waits_is_not_done(
    cluster: Held, core: FakeCore
) -> None:
    core.place_on, vote = "n1", Vote()
    cluster.goes_on.clear()
    async with standing(cluster, core, vote) as (_, task):
        vote.term.set_result(Term(1, 1))
        await until(lambda: len(cluster.asked) == 2)
        vote.over.set()
        with pytest.raises(ExceptionGroup) as ended:
            await asyncio.wait_for(task, 10)
        assert ended.group_contains(LeaseLostError)
    cluster.goes_on.set()
    await asyncio.sleep(0)
    assert cluster.bound == []


async def test_an_answer_that_was_made_for_another_epoch_is_dropped(
    cluster: Held, core: FakeCore
) -> None:
    vote = Vote()
    vote.term.set_result(Term(1, 3))
    async with standing(cluster, core, vote):
        await until(lambda: core.synced == 1 and len(core.asks) == 2)

        def placed(key: str, epoch: int) -> si_pb2.AllocationResponse:
            new = si_pb2.Allocation(allocationKey=f"uid-{key}", applicationID="x", nodeID="n1")
            return si_pb2.AllocationResponse(new=[new], epoch=epoch)

        core.say("allocations", placed("a", 2))
        core.say("allocations", placed("b", 3))
        await until(lambda: cluster.bound == ["b"])
        assert cluster.asked == ["b"]


async def test_the_streams_carry_the_epoch(cluster: Held, core: FakeCore) -> None:
    vote = Vote()
    vote.term.set_result(Term(1, 3))
    async with standing(cluster, core, vote):
        await until(lambda: core.synced == 1)
    assert core.stream_metadata
    assert {one.get("evenhand-epoch") for one in core.stream_metadata} == {"3"}


def with_reason(reason: str, **facts: str) -> Any:
    """Return the status with which a core refuses a registration for this reason."""
    status = status_pb2.Status(code=9, message="refused")
    info = error_details_pb2.ErrorInfo(reason=reason, domain="evenhand", metadata=facts)
    status.details.add().Pack(info)
    return status


def epoch_old(known: int, *, connected: bool) -> Any:
    """Return the status of a core that knows this epoch, and whose process is connected or not."""
    return with_reason("EPOCH_OLD", epoch=str(known), connected="true" if connected else "false")


async def test_the_epoch_is_raised_when_no_process_of_the_higher_one_is_connected(
    cluster: Held, core: FakeCore
) -> None:
    vote = Vote()
    vote.term.set_result(Term(1, 1))
    core.refuse_with = epoch_old(9, connected=False)
    async with standing(cluster, core, vote):
        await asyncio.wait_for(core.refused.wait(), 10)
        core.refuse_with = None
        await until(lambda: core.synced == 1)
    assert vote.raises
    assert set(vote.raises) == {9}
    assert core.registrations[-1].epoch == 10


async def test_the_epoch_is_not_raised_while_a_process_of_the_higher_one_is_connected(
    cluster: Held, core: FakeCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shim_client.shim.EPOCH_PAUSE_SECONDS", 0.01)
    vote = Vote()
    vote.term.set_result(Term(1, 1))
    core.refuse_with = epoch_old(9, connected=True)
    async with standing(cluster, core, vote):
        await until(lambda: core.refusals >= 3)
        assert vote.raises == []
        core.refuse_with = None
        await until(lambda: core.synced == 1)
    assert core.registrations[-1].epoch == 1


async def test_a_shim_that_elects_none_ends_when_the_core_knows_an_epoch(
    cluster: Held, core: FakeCore
) -> None:
    core.refuse_with = epoch_old(9, connected=True)
    shim = make_shim(cluster, address(core), SETTINGS)
    with pytest.raises(ExceptionGroup) as ended:
        await asyncio.wait_for(shim.run(), 10)
    assert ended.group_contains(CoreRefusedError)


# With an elector -------------------------------------------------------------------------------------------------


class Electing:
    """A process that elects: one shim after the other in it."""

    def __init__(self, cluster: Held, core: FakeCore, server: Server, name: str) -> None:
        self.link = Link(server)
        self.elector = Elector(self.link, Candidate(process_name(name), TERMS), elapsed_clock())
        self.shims: list[Shim] = []
        self._cluster, self._core = cluster, core
        self.task = asyncio.create_task(run_elected(self._make, self.elector, LOG))

    def _make(self) -> Shim:
        shim = make_shim(self._cluster, address(self._core), SETTINGS, self.elector.identity)
        shim.leadership = self.elector
        self.shims.append(shim)
        return shim

    async def end(self) -> None:
        """End it in order, as SIGTERM does."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@asynccontextmanager
async def electing(cluster: Held, core: FakeCore, server: Server) -> AsyncIterator[Electing]:
    made = Electing(cluster, core, server, "one")
    try:
        yield made
    finally:
        await made.end()


async def test_after_its_term_another_shim_of_the_process_stands_for_election(
    cluster: Held, core: FakeCore
) -> None:
    core.place_on, server = "n1", Server()
    async with electing(cluster, core, server) as process:
        await until(lambda: core.synced == 1)
        process.link.cut = True
        await until(lambda: len(process.shims) == 2)
        assert process.elector.seconds_left() == 0
        process.link.cut = False
        await until(lambda: core.synced == 2)
        assert [one.epoch for one in core.registrations] == [1, 2]


async def test_when_it_ends_what_is_being_done_is_finished_and_the_lease_is_given_back(
    cluster: Held, core: FakeCore
) -> None:
    core.place_on, server = "n1", Server()
    cluster.goes_on.clear()
    async with electing(cluster, core, server) as process:
        await until(lambda: len(cluster.asked) == 2)
        process.task.cancel()
        cluster.create(pod("late"))
        await asyncio.sleep(0.05)
        assert server.lease is not None
        assert server.lease.holder == process.elector.identity
        cluster.goes_on.set()
        await asyncio.gather(process.task, return_exceptions=True)
        assert sorted(cluster.bound) == ["a", "b"]
        assert cluster.asked == cluster.bound
    assert isinstance(server.lease, Lease)
    assert (server.lease.holder, server.lease.transitions) == ("", 1)


async def test_a_core_that_took_another_process_ends_the_term(
    cluster: Held, core: FakeCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shim_client.bootstrap.SUPERSEDED_PAUSE_SECONDS", 0.01)
    async with electing(cluster, core, Server()) as process:
        await until(lambda: core.synced == 1)
        core.end_streams(grpc.StatusCode.ABORTED, "this resource manager has registered again")
        await until(lambda: core.synced == 2)
        assert len(process.shims) == 2
    assert [one.epoch for one in core.registrations] == [1, 2]


async def test_a_refusal_of_the_core_ends_the_process_and_gives_the_lease_back(
    cluster: Held, core: FakeCore
) -> None:
    core.refuse, server = (grpc.StatusCode.INVALID_ARGUMENT, "bad queues"), Server()
    async with electing(cluster, core, server) as process:
        with pytest.raises(CoreRefusedError, match="bad queues"):
            await asyncio.wait_for(process.task, 10)
    assert server.lease is not None
    assert server.lease.holder == ""


async def test_of_two_processes_one_acts_and_the_other_follows_it(
    cluster: Held, core: FakeCore
) -> None:
    core.place_on, server = "n1", Server()
    one, two = (Electing(cluster, core, server, name) for name in ("one", "two"))
    try:
        await until(lambda: sorted(cluster.bound) == ["a", "b"])
        leader, other = (one, two) if one.elector.seconds_left() else (two, one)
        assert len(core.registrations) == 1
        await leader.end()
        cluster.create(pod("c"))
        await until(lambda: "c" in cluster.bound)
        assert other.elector.seconds_left() > 0
        assert [each.epoch for each in core.registrations] == [1, 2]
        assert sorted(cluster.bound) == ["a", "b", "c"]
    finally:
        await one.end()
        await two.end()


def test_a_process_has_a_name_of_its_own() -> None:
    assert process_name("pod-1") != process_name("pod-1")
    assert process_name("pod-1").startswith("pod-1_")
