"""The health service of one of several cores: `leader` and `readiness` tell a leader, a follower and a joining core apart."""

from typing import Any

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from server.core.core import Core
from server.model.assignment import Assignment
from server.model.revisions import Beginning, Revision
from server.replication import feed as feed_module
from server.replication.feed import Feed
from server.rpc.following import SILENT_S, Replica
from server.rpc.level import LEADER, READINESS, gauges
from si.v1 import si_pb2 as si
from tests.rpc.harness import Served, asks, serving, until
from tests.rpc.test_following import following, level, replication

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


def numbers(served: Served) -> dict[str, float]:
    """Return the metrics of a core among several by name, with the labels behind the name."""
    endpoint = served.endpoint
    found = gauges(endpoint.replica, endpoint.feed, served.clock.now)()
    return {" ".join((name, *labels.values())): value for name, value, labels in found}


async def test_metrics_of_a_leader_and_its_follower() -> None:
    async with serving() as leader:
        await leader.ready()
        async with following(leader) as follower:
            await level(leader, follower)
            position = (await replication(leader)).position
            led, followed = numbers(leader), numbers(follower)
            name = f"core-{follower.endpoint.replica.process}"
            assert led["replica_state leader"] == followed["replica_state follower"] == 1
            assert led["replica_state follower"] == followed["replica_state leader"] == 0
            assert led["replica_position"] == followed["replica_position"] == position
            assert (led["followers"], followed["followers"], followed["replica_joins"]) == (1, 0, 1)
            assert led[f"follower_lag_inputs {name}"] == led[f"follower_backlog_bytes {name}"] == 0
            assert "replica_lag_inputs" not in led
            assert followed["replica_leader_position"] == position
            follower.clock.ms += 1_500
            followed = numbers(follower)
            assert (followed["replica_lag_inputs"], followed["replica_lag_seconds"]) == (0, 1.5)


async def test_a_follower_that_decides_otherwise_is_counted() -> None:
    async with serving() as leader:
        stream = await leader.ready()
        async with following(leader) as follower:
            await level(leader, follower)
            follower.endpoint.feed.decided += 1
            await stream.send(asks("k"))
            await stream.read(si.AllocationResponse)
            await until(lambda: numbers(follower)["replica_joins"] == 2)
            assert numbers(follower)["replica_differences"] == 1


async def test_a_follower_that_is_too_slow_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "BACKLOG_BYTES_MAX", 0)
    async with serving() as leader:
        stream = await leader.ready()
        async with following(leader):
            await stream.send(asks("k"))
            await stream.read(si.AllocationResponse)
            await until(lambda: numbers(leader)["followers_cut_off"] >= 1)


def test_a_core_names_its_own_group_and_the_groups_that_have_partitions() -> None:
    for table, groups in (
        (None, {"": 1}),
        (Assignment("b", {"gpu": "b", "web": "c"}, "a"), {"a": 0, "b": 1, "c": 0}),
    ):
        core = Core(None, Beginning(Revision(), assignment=table))
        found = gauges(Replica(), Feed(core, "v"), lambda: 0)()
        named = {labels["group"]: value for name, value, labels in found if name == "core_group"}
        assert named == groups
