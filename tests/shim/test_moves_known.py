"""What a shim does with the moves of partitions that the cores name, whichever of them names a move first (design 7.9)."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from server.rpc.errors import CallError
from shim_client.bootstrap import make_shim, run_shim
from shim_client.core_client.address import CoreAddress
from shim_client.core_client.spread import CoreGroup
from shim_client.embedded.cluster import EmbeddedCluster
from shim_client.translate import labels
from tests.shim.fake_core import FakeCore
from tests.shim.objects import node, pod
from tests.shim.polling import until
from tests.shim.test_embedded_store import Clock
from tests.shim.test_several_cores import SETTINGS

IN_GPU = {labels.PARTITION: "gpu"}
Named = tuple[int, str, str, int]
"""A move as a core names it: the revision of its own group, the partition, its owner, and the revision of that group."""


class TabledCore(FakeCore):
    """A core whose group has a revision, and that names its moves to a shim with an older one."""

    def __init__(self, revision: int, *moves: Named) -> None:
        super().__init__()
        self._revision = revision
        self._moves = moves
        self.asked: list[int] = []
        """The revisions with which the shim registered, those of refused registrations included."""

    async def RegisterResourceManager(self, request: Any, context: Any) -> Any:  # noqa: N802
        theirs = int(dict(context.invocation_metadata())["evenhand-table-revision"])
        self.asked.append(theirs)
        self.refuse_with = None if theirs == self._revision else self._other_table(theirs)
        return await super().RegisterResourceManager(request, context)

    def _other_table(self, theirs: int) -> Any:
        moves = json.dumps([one for one in self._moves if one[0] > theirs])
        code = grpc.StatusCode.FAILED_PRECONDITION
        return CallError(code, "OTHER_TABLE", "another table", facts={"moves": moves}).status()


@asynccontextmanager
async def running(a: TabledCore, b: TabledCore, *revisions: int) -> AsyncIterator[None]:
    """Hold a shim with a table in which `a` has `default`, and `b` has `gpu`."""
    cluster = EmbeddedCluster(Clock())
    for item in (node("n1"), node("g1", labels=IN_GPU), pod("web"), pod("train", labels=IN_GPU)):
        cluster.create(item)
    cluster.step()
    groups = []
    owned = {"a": ("default",), "b": ("gpu",)}
    for (name, partitions), core, revision in zip(owned.items(), (a, b), revisions, strict=True):
        address = CoreAddress(await core.start())
        groups.append(CoreGroup(name, (address,), partitions, revision))
    task = asyncio.create_task(run_shim(make_shim(cluster, groups, SETTINGS), cluster))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.gather(a.stop(), b.stop())


async def test_a_partition_that_came_back_is_reported_to_its_owner_alone() -> None:
    """The shim was away while `gpu` went to `a` and back, and hears of both moves from both cores."""
    a = TabledCore(3, (2, "gpu", "a", 2), (3, "gpu", "b", 6))
    b = TabledCore(6, (5, "gpu", "a", 2), (6, "gpu", "b", 6))
    async with running(a, b, 1, 4):
        await until(lambda: set(a.asks) == {"uid-web"} and set(b.asks) == {"uid-train"})
        await until(lambda: bool(a.synced and b.synced))
    assert set(a.asked) <= {1, 3}
    assert set(b.asked) <= {4, 6}
    told = [one.nodeID for message in a.messages for one in getattr(message, "nodes", ())]
    assert "g1" not in told


async def test_a_move_that_the_shim_knows_ends_no_session() -> None:
    a, b = TabledCore(3, (3, "gpu", "b", 6)), TabledCore(6)
    a.refuse = (grpc.StatusCode.UNAVAILABLE, "it starts")
    async with running(a, b, 2, 6):
        await until(lambda: b.synced == 1)
        a.refuse = None
        await until(lambda: a.synced == 1)
        assert (b.open_streams, len(b.registrations)) == (3, 1)
    assert a.asked[-2:] == [2, 3]
