"""The health service of one of several cores: `leader` and `readiness` tell a leader, a follower and a joining core apart."""

from typing import Any

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from server.rpc.following import SILENT_S
from server.rpc.level import LEADER, READINESS
from tests.rpc.harness import Served, serving
from tests.rpc.test_following import following

pytestmark = pytest.mark.asyncio
SERVING = health_pb2.HealthCheckResponse.SERVING


async def health(served: Served) -> dict[str, bool]:
    """Return what the health service lists about the standing of a core."""
    stub: Any = health_pb2_grpc.HealthStub(served.channel)
    found = {}
    for name in (LEADER, READINESS):
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=name))
        found[name] = answer.status == SERVING
    return found


async def test_a_core_alone_leads() -> None:
    async with serving() as alone:
        assert await health(alone) == {LEADER: True, READINESS: True}


async def test_a_follower_is_ready_and_leads_once_a_manager_registers() -> None:
    async with serving() as leader:
        await leader.ready()
        async with following(leader) as follower:
            assert await health(follower) == {LEADER: False, READINESS: True}
            await follower.register()
            assert await health(follower) == {LEADER: True, READINESS: True}


async def test_a_joining_core_is_not_ready_and_a_manager_makes_it_the_leader() -> None:
    async with serving(leaders=("127.0.0.1:1",)) as joining:
        assert await health(joining) == {LEADER: False, READINESS: False}
        await joining.register()
        assert await health(joining) == {LEADER: True, READINESS: True}


async def test_a_follower_that_hears_nothing_is_not_ready() -> None:
    async with serving() as leader:
        await leader.ready()
        async with following(leader) as follower:
            await leader.endpoint.stop()
            follower.clock.ms += int(SILENT_S * 1000)
            assert (await health(follower))[READINESS]
            follower.clock.ms += 1
            assert await health(follower) == {LEADER: False, READINESS: False}


async def test_a_watch_of_the_leader_sees_the_change() -> None:
    async with serving() as leader:
        await leader.ready()
        async with following(leader) as follower:
            stub: Any = health_pb2_grpc.HealthStub(follower.channel)
            watch = stub.Watch(health_pb2.HealthCheckRequest(service=LEADER))
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
            await follower.register()
            assert (await watch.read()).status == SERVING
