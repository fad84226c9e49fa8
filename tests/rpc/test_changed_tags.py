"""Changed tags of applications on the wire: a raised quota reaches waiting asks, and a bad one is refused with a reason."""

import pytest

from server.core.queries import inspect
from si.v1 import si_pb2 as si
from tests.rpc.harness import RM, Served, Stream, resource, serving

QUOTA = "namespace.resourcequota"


def changed(quota: str, application: str = "app", **more: str) -> si.ApplicationRequest:
    update = si.ApplicationUpdate(applicationID=application, tags={QUOTA: quota}, **more)
    return si.ApplicationRequest(rmID=RM, updates=[update])


async def limited(served: Served) -> tuple[Stream, Stream]:
    """Submit an application whose queue may use 10 millicores, with two asks of 10, and return the streams of both kinds."""
    await served.ready()
    tags = {QUOTA: '{"resources":{"vcore":{"value":"10"}}}'}
    new = si.AddApplicationRequest(applicationID="shop", queueName="root.shop", tags=tags)
    request = si.ApplicationRequest(rmID=RM, new=[new])
    applications = await served.open("UpdateApplication", request)
    answer = await applications.read(si.ApplicationResponse)
    assert [one.applicationID for one in answer.accepted] == ["shop"]
    asks = [
        si.Allocation(allocationKey=key, applicationID="shop", resourcePerAlloc=resource(vcore=10))
        for key in ("a", "b")
    ]
    stream = await served.open("UpdateAllocation", si.AllocationRequest(rmID=RM, allocations=asks))
    answered = si.AllocationResponse()
    while not answered.new or not answered.schedulingStates:
        answered.MergeFrom(await stream.read(si.AllocationResponse))
    assert [one.allocationKey for one in answered.new] == ["a"]
    assert [one.allocationKey for one in answered.schedulingStates] == ["b"]
    return applications, stream


async def test_a_raised_quota_places_what_waits() -> None:
    async with serving() as served:
        applications, stream = await limited(served)
        await applications.send(changed('{"vcore":20}', "shop"))
        answer = si.AllocationResponse()
        while not answer.new:
            answer.MergeFrom(await stream.read(si.AllocationResponse))
        assert [one.allocationKey for one in answer.new] == ["b"]


@pytest.mark.parametrize(
    ("request_", "application", "reason"),
    [
        (changed('{"vcore":"1.5"}', "shop"), "shop", QUOTA),
        (changed("{" * 5_000, "shop"), "shop", QUOTA),
        (changed('{"vcore":20}', "stranger"), "stranger", "not known"),
        (changed('{"vcore":20}', "shop", partitionName="gpu"), "shop", "not known"),
        (changed('{"vcore":20}', ""), "", "applicationID: is empty"),
    ],
)
async def test_a_bad_change_is_refused_with_its_reason(
    request_: si.ApplicationRequest, application: str, reason: str
) -> None:
    async with serving() as served:
        applications, stream = await limited(served)
        before = served.core.digest()
        await applications.send(request_)
        answer = await applications.read(si.ApplicationResponse)
        while not answer.rejectedUpdates:
            answer = await applications.read(si.ApplicationResponse)
        (refused,) = answer.rejectedUpdates
        assert refused.applicationID == application
        assert reason in refused.reason
        assert not answer.rejected
        assert served.core.digest() == before
        await applications.send(changed('{"vcore":20}', "shop"))
        placed = si.AllocationResponse()
        while not placed.new:
            placed.MergeFrom(await stream.read(si.AllocationResponse))
        assert [one.allocationKey for one in placed.new] == ["b"]
        queues = inspect.queue_tree(served.core, "default").children
        assert [dict(one.max) for one in queues if one.path == "root.shop"] == [{"vcore": 20}]
