"""Shadow decisions over a socket: all for operators, a viewer's own, events, and none for a shim."""

from dataclasses import replace
from typing import Any

from evenhand.v1 import decisions_pb2 as pb
from evenhand.v1 import decisions_pb2_grpc as rpc
from evenhand.v1 import explain_pb2 as explain
from evenhand.v1 import explain_pb2_grpc as explain_rpc
from evenhand.v1 import watch_pb2 as watch
from evenhand.v1 import watch_pb2_grpc as watch_rpc
from server.model.decisions import ShadowDecided
from server.model.records import Lost
from server.model.shadow import Choice, Difference, ShadowRecord, Sum, settings_of
from server.state.shadow import Shadow
from si.v1 import si_pb2 as si
from tests.rpc.decided import T0, tell, victim
from tests.rpc.harness import RM, Served, Stream, asks
from tests.rpc.test_evenhand import VIEWER, cluster

FOREIGN = ("other", "root.b", "n1", "claims everything", "third")


def recorded(key: str = "large", queue: str = "root.a", **more: Any) -> ShadowRecord:
    """Return the record of an ask for which only the shadow would evict a pod of root.b."""
    choice = Choice("guaranteed", "n1", (victim("other", "root.b")._replace(ran_ms=2_000),))
    given: dict[str, Any] = {
        "live": None,
        "shadow": choice,
        "law": "policy-off",
        "because": "root.b claims everything",
        "application_id": "app",
        "resource": (("vcore", 50),),
        "priority": 7,
        **more,
    }
    difference = given.pop("difference", Difference.ONLY_SHADOW)
    return ShadowRecord("default", key, "ask", queue, T0, difference, **given)


def remember(served: Served, *records: ShadowRecord) -> None:
    """Give the partition a shadow with these records."""
    partition = served.core.state.partitions["default"]
    live = replace(
        partition.spec.preemption, shadow={"policies": ("guaranteed",), "backoff_ms": 2_000}
    )
    partition.spec = replace(partition.spec, preemption=live)
    other = replace(partition.spec, preemption=settings_of(live))
    known = partition.shadow = Shadow(partition.spec, other, partition.round, T0)
    for one in records:
        known.keep(one)
    known.sums["guaranteed", "shadow"] = Sum(1, Lost(1, 2_000, 4_000))


async def listed(served: Served, metadata: Any = None, **wanted: Any) -> Any:
    stub: Any = rpc.DecisionServiceStub(served.channel)
    request = pb.ListShadowDecisionsRequest(**wanted)
    return await stub.ListShadowDecisions(request, metadata=metadata)


async def test_an_operator_sees_both_sides_and_the_sums() -> None:
    async with cluster() as (served, _):
        remember(served, recorded(), recorded("third", "root.b", difference=Difference.ONLY_LIVE))
        found = await listed(served)
        (one, _) = found.decisions
        assert (one.allocation_key, one.queue, one.law) == ("large", "root.a", "policy-off")
        assert one.difference == pb.SHADOW_DIFFERENCE_ONLY_SHADOW
        assert not one.HasField("live")
        (goes,) = one.shadow.victims
        assert (goes.allocation_key, one.shadow.node_id) == ("other", "n1")
        assert one.shadow.lost_ran_ms == 2_000
        assert "1 allocation would go from node n1" in one.summary
        (shadow,) = found.shadows
        assert dict(shadow.settings) == {"policies": "guaranteed", "backoff": "2s"}
        assert [(each.policy, each.shadow, each.victims) for each in shadow.sums] == [
            ("guaranteed", True, 1)
        ]
        counts = {each.difference: each.count for each in shadow.counts}
        assert counts == {
            pb.SHADOW_DIFFERENCE_ONLY_SHADOW: 1,
            pb.SHADOW_DIFFERENCE_ONLY_LIVE: 1,
        }


async def test_a_list_is_narrowed_and_paged() -> None:
    async with cluster() as (served, _):
        remember(served, *(recorded(f"ask-{number}") for number in range(5)))
        first = await listed(served, page_size=2)
        rest = await listed(served, page_size=9, page_token=first.next_page_token)
        keys = [one.allocation_key for one in (*first.decisions, *rest.decisions)]
        assert keys == [f"ask-{number}" for number in range(5)]
        assert not rest.next_page_token
        assert not (await listed(served, difference=pb.SHADOW_DIFFERENCE_SAME)).decisions
        assert not (await listed(served, queue="root.c")).decisions
        assert len((await listed(served, queue="root.b")).decisions) == 5


async def test_a_viewer_sees_its_own_side_alone() -> None:
    async with cluster() as (served, _):
        remember(
            served,
            recorded(shadow=replace(recorded().shadow, node_id="n0")),  # type: ignore[type-var]
            recorded("third", "root.b"),
            recorded(
                "third-2", "root.b", shadow=Choice("guaranteed", "n1", (victim("mine", "root.a"),))
            ),
        )
        found = await listed(served, VIEWER)
        own, victims = found.decisions
        assert (own.allocation_key, own.law, own.because) == ("large", "policy-off", "")
        assert (own.shadow.victims_elsewhere, list(own.shadow.victims)) == (1, [])
        assert (victims.allocation_key, victims.queue) == ("", "another queue")
        assert [one.allocation_key for one in victims.shadow.victims] == ["mine"]
        (shadow,) = found.shadows
        assert not shadow.settings
        assert not shadow.sums
        text = str(own)
        assert not [name for name in FOREIGN if f'"{name}' in text]
        assert not (await listed(served, VIEWER, queue="root.b")).decisions


async def test_explain_says_what_the_shadow_would_do() -> None:
    async with cluster() as (served, _):
        stub: Any = explain_rpc.ExplainServiceStub(served.channel)
        without = await stub.Explain(explain.ExplainRequest(key="large"))
        assert not without.waiting.HasField("shadow")
        remember(served)
        found = await stub.Explain(explain.ExplainRequest(key="large"))
        assert found.waiting.shadow.law
        assert any(line.startswith("Under the shadow settings: ") for line in found.lines)


async def test_it_is_an_event_and_no_shim_hears_of_it() -> None:
    async with cluster() as (served, stream):
        one = ShadowDecided(RM, recorded())
        stub = watch_rpc.WatchServiceStub(served.channel)
        events = Stream(stub.WatchEvents(watch.WatchEventsRequest(kinds=["shadow"])))
        tell(served, one)
        (heard,) = (await events.read(watch.WatchEventsResponse)).events
        assert (heard.kind, heard.code, heard.queue) == ("shadow", "only-shadow", "root.a")
        assert heard.object == "large"
        assert "under the shadow 1 allocation would go" in heard.message
        events.call.cancel()
        await stream.send(asks("more", applicationID="side"))
        assert await everything_until(stream, "more") == {"new": ["more"]}


async def everything_until(stream: Stream, key: str) -> dict[str, list[str]]:
    """Return the keys that a shim receives until this ask is placed, by field, without scheduling states."""
    told = si.AllocationResponse()
    while key not in [one.allocationKey for one in told.new]:
        told.MergeFrom(await stream.read(si.AllocationResponse))
    found = {field.name: [one.allocationKey for one in many] for field, many in told.ListFields()}
    found.pop("schedulingStates", None)
    return found
