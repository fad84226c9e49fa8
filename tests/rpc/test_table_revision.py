"""The fence of the table of cores: cores and shims with different revisions refuse each other (design 7.6)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from evenhand.v1 import config_pb2
from evenhand.v1.config_pb2_grpc import ConfigurationServiceStub
from server.core.core import Core
from server.model.assignment import Assignment
from server.model.revisions import Beginning, Revision
from server.replication import saved
from server.replication.applying import Applier
from server.replication.feed import Feed
from server.rpc.access import BadOptionError
from server.rpc.first_table import FirstTable
from server.rpc.following import State
from server.rpc.saving import restore
from server.rpc.table_revision import METADATA_KEY
from server.state.pickled import BadCheckpointError
from shim_client.core_client.connection import TABLE_KEY
from si.v1 import si_pb2 as si
from tests.rpc.harness import RM, Served, refusal, serving, until
from tests.rpc.test_following import following, level, replication

OTHER = (grpc.StatusCode.FAILED_PRECONDITION, "OTHER_TABLE")


def core(revision: int) -> Core:
    """Return a core of group `a` with a table of this revision."""
    return Core(None, Beginning(Revision(), assignment=Assignment("a", {}, "a", revision)))


def registration(served: Served, *revisions: str) -> Any:
    """Register with these revisions in the metadata."""
    metadata = [(METADATA_KEY, one) for one in revisions]
    request = si.RegisterResourceManagerRequest(rmID=RM)
    return served.stub.RegisterResourceManager(request, metadata=metadata)


async def test_a_core_accepts_only_shims_with_its_own_revision() -> None:
    async with serving(core=core(3)) as served:
        for others in (["2"], ["4"], [], [""], ["-3"], ["3" * 19]):
            assert (await refusal(registration(served, *others)))[:2] == OTHER
            assert not served.core.managers
        await registration(served, "3")
        assert list(served.core.managers) == [RM]


async def test_a_core_without_a_revision_accepts_shims_without_one() -> None:
    for made in (Core(), core(0)):
        async with serving(core=made) as served:
            assert (await refusal(registration(served, "1")))[:2] == OTHER
            await registration(served)


async def test_a_shim_with_another_revision_makes_no_follower_the_leader() -> None:
    async with serving(core=core(3)) as leader:
        await registration(leader, "3")
        async with following(leader) as follower:
            await level(leader, follower)
            assert (await refusal(registration(follower, "2")))[:2] == OTHER
            assert (await replication(follower)).state == State.FOLLOWER
            await registration(follower, "3")
            assert (await replication(follower)).state == State.LEADER


def test_both_sides_name_the_revision_alike() -> None:
    assert METADATA_KEY == TABLE_KEY


@pytest.mark.parametrize(("given", "is_refused"), [(4, True), (5, False), (6, False)])
def test_a_core_that_comes_back_with_an_older_table_does_not_start(
    tmp_path: Path,
    given: int,
    is_refused: bool,  # noqa: FBT001
) -> None:
    path = tmp_path / saved.NAME
    saved.write(path, Feed(core(5), "v").checkpoint())
    again = core(given)
    if is_refused:
        with pytest.raises(
            BadOptionError, match="has revision 4 in this table, and had revision 5"
        ):
            restore(path, Feed(again, "v"), again, None)
        return
    assert restore(path, Feed(again, "v"), again, None)
    assert again.state.assignment is not None
    assert again.state.assignment.revision == given


async def test_a_core_with_another_revision_does_not_follow_and_keeps_its_own_table() -> None:
    async with serving(core=core(3)) as leader:
        await registration(leader, "3")
        joins = leader.endpoint.feed.followers
        async with serving(core=core(4), leaders=(f"127.0.0.1:{leader.port}",)) as newer:
            await until(lambda: bool(joins))
            await until(lambda: not joins)
            assert (await replication(newer)).state == State.JOINING
            await registration(newer, "4")
            assert (await replication(newer)).state == State.LEADER


@asynccontextmanager
async def two_starts(leader: Core, follower: Core) -> AsyncIterator[tuple[Served, Served]]:
    """Hold a leader with a manager, and a core that was started to follow it."""
    async with serving(core=leader) as first:
        await registration(first, "0")
        async with serving(core=follower, leaders=(f"127.0.0.1:{first.port}",)) as second:
            yield first, second


async def test_a_core_with_the_first_table_takes_it_when_it_leads() -> None:
    async with two_starts(Core(), core(0)) as (leader, follower):
        await until(lambda: follower.endpoint.replica.state is State.FOLLOWER)
        assert follower.core.state.assignment is None, "it decides as its leader does"
        await registration(follower, "0")
        assert follower.core.state.assignment == Assignment("a", {}, "a")
        assert leader.core.state.assignment is None


async def test_a_core_without_a_table_has_that_of_its_leader_when_it_leads() -> None:
    async with two_starts(core(0), Core()) as (leader, follower):
        await until(lambda: follower.endpoint.replica.state is State.FOLLOWER)
        await registration(follower, "0")
        assert follower.core.state.assignment == leader.core.state.assignment is not None


@pytest.mark.parametrize(
    ("table", "why"),
    [
        (Assignment("a", {"default": "b"}, "a"), "gives partition 'default' to cores 'b'"),
        (Assignment("b", {}, "a"), "gives partition 'default' to cores 'a'"),
        (Assignment("a", {}, "a", 2), "revision 2"),
    ],
)
async def test_a_first_table_that_changes_who_decides_is_refused(
    table: Assignment, why: str
) -> None:
    mine = Core(None, Beginning(Revision(), assignment=table))
    with pytest.raises(BadCheckpointError) as refused:
        Applier(feed := Feed(mine, "v"), feed).begin(b"".join(Feed(Core(), "v").checkpoint()))
    assert why in str(refused.value)
    assert "end all cores of this group" in str(refused.value)
    assert mine.state.assignment == table


async def applied(served: Served, *partitions: str) -> None:
    """Apply a configuration with these partitions."""
    listed = ", ".join(f"{{name: {one}, queues: [{{name: root}}]}}" for one in partitions)
    stub: Any = ConfigurationServiceStub(served.channel)
    answer = await stub.Apply(config_pb2.ApplyRequest(yaml=f"partitions: [{listed}]"))
    assert answer.applied


async def test_a_first_table_that_a_later_configuration_forbids_is_reported() -> None:
    """The leader's configuration gets a partition of another group after the follower has joined."""
    table = Assignment("a", {"gpu": "b"}, "a")
    mine = Core(None, Beginning(Revision(), assignment=table))
    first = FirstTable(table, mine)
    async with serving() as leader:
        await registration(leader, "0")
        leaders = (f"127.0.0.1:{leader.port}",)
        async with serving(core=mine, leaders=leaders, observers=(first,)) as follower:
            await until(lambda: follower.endpoint.replica.state is State.FOLLOWER)
            assert not list(first.findings())
            await applied(leader, "default", "gpu")
            await until(lambda: "gpu" in mine.state.partitions)
            (found,) = first.findings()
            assert (found.code, "partition 'gpu' to cores 'b'" in found.message) == (
                "table-not-used",
                True,
            )
            await registration(follower, "0")
            assert mine.state.assignment is None
            assert list(first.findings()) == [found], (
                "it decides for the partition without the table"
            )
            await applied(follower, "default")
            assert not list(first.findings()), "the table counts when this core leads the next time"
