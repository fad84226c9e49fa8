"""A viewer's numbers and simulations reveal nothing about other tenants, neither by headroom nor by asks that name nodes."""

from dataclasses import replace
from typing import Any

import grpc
import pytest

from evenhand.v1 import (
    explain_pb2,
    explain_pb2_grpc,
    inspect_pb2,
    inspect_pb2_grpc,
    watch_pb2,
    watch_pb2_grpc,
)
from evenhand.v1 import simulate_pb2 as simulate
from evenhand.v1 import simulate_pb2_grpc as simulate_rpc
from server.core.core import Core
from server.rpc.errors import CallError
from server.rpc.evenhand.reader import Reader
from server.rpc.identity import Identities, digest
from server.rpc.roles import Caller, Role
from si.v1 import si_pb2 as si
from tests.rpc.harness import Served, Stream, ask, asks, serving, with_identities

QUEUES = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: up
            resources: {max: {vcore: 60m}}
            queues:
              - {name: a, resources: {max: {vcore: 50m}}}
              - name: b
"""
VERA = Caller("vera", Role.VIEWER, "root.up.a")
BEN = Caller("ben", Role.VIEWER, "root.up.b")
KNOWN = Identities(tokens={digest(one.name): one for one in (VERA, BEN)})


def token(name: str) -> Any:
    return (("authorization", f"Bearer {name}"),)


async def head_room(served: Served, name: str) -> dict[str, int]:
    stub = inspect_pb2_grpc.InspectServiceStub(served.channel)
    metadata = token(name) if name else None
    tree = (await stub.GetQueueTree(inspect_pb2.GetQueueTreeRequest(), metadata=metadata)).tree
    found = {one.path: one for one in below(tree.root)}
    path = {"vera": "root.up.a", "ben": "root.up.b"}.get(name, "root.up.a")
    return dict(found[path].head_room)


def below(queue: inspect_pb2.Queue) -> list[inspect_pb2.Queue]:
    return [queue, *(one for child in queue.children for one in below(child))]


async def test_a_viewers_headroom_tells_nothing_of_its_siblings() -> None:
    async with serving(with_identities(KNOWN)) as served:
        stream = await served.ready(nodes=2, queue="root.up.a", config=QUEUES)
        await served.submit("side", "root.up.b")
        await stream.send(
            asks("own", resourcePerAlloc=si.Resource(resources={"vcore": si.Quantity(value=12)}))
        )
        await stream.read(si.AllocationResponse)
        assert await head_room(served, "vera") == {"vcore": 38}
        sibling = ask("sibling", applicationID="side")
        sibling.resourcePerAlloc.resources["vcore"].value = 30
        await stream.send(si.AllocationRequest(rmID="rm", allocations=[sibling]))
        await stream.read(si.AllocationResponse)
        assert await head_room(served, "") == {"vcore": 18}, "an operator sees what is left"
        assert await head_room(served, "vera") == {"vcore": 38}
        assert await head_room(served, "ben") == {}
        stub = explain_pb2_grpc.ExplainServiceStub(served.channel)
        request = explain_pb2.ExplainRequest(key="root.up.a")
        told = await stub.Explain(request, metadata=token("vera"))
        assert dict(told.queue.queue.head_room) == {"vcore": 38}


async def test_a_viewer_is_woken_by_its_own_events_alone() -> None:
    """The first message to each tenant is about its own queue, although the other queue's events came before it."""
    async with serving(with_identities(KNOWN)) as served:
        stream = await served.ready(nodes=2, queue="root.up.a", config=QUEUES)
        await served.submit("side", "root.up.b")
        stub = watch_pb2_grpc.WatchServiceStub(served.channel)
        of_pods = ("placed", "released", "waiting")
        kinds = watch_pb2.WatchEventsRequest(kinds_only=True, kinds=of_pods)
        vera, ben = (
            Stream(stub.WatchEvents(kinds, metadata=token(one))) for one in ("vera", "ben")
        )
        for one in (vera, ben):
            assert await one.read(watch_pb2.WatchEventsResponse) == watch_pb2.WatchEventsResponse()
        await stream.send(asks("of-ben", applicationID="side"))
        await stream.read(si.AllocationResponse)
        assert (await ben.read(watch_pb2.WatchEventsResponse)).kinds == ["placed"]
        large = {"vcore": si.Quantity(value=5_000)}
        await stream.send(asks("of-vera", resourcePerAlloc=si.Resource(resources=large)))
        assert (await vera.read(watch_pb2.WatchEventsResponse)).kinds == ["waiting"]
        gone = si.AllocationRelease(
            partitionName="default", applicationID="side", allocationKey="of-ben"
        )
        released = si.AllocationReleasesRequest(allocationsToRelease=[gone])
        await stream.send(si.AllocationRequest(rmID="rm", releases=released))
        assert (await ben.read(watch_pb2.WatchEventsResponse)).kinds == ["released"]
        await stream.send(asks("also-of-vera"))
        assert (await vera.read(watch_pb2.WatchEventsResponse)).kinds == ["placed"]
        for one in (vera, ben):
            one.call.cancel()


@pytest.mark.parametrize(
    "asked",
    [watch_pb2.WatchEventsRequest(), watch_pb2.WatchEventsRequest(held_only=True)],
    ids=["all", "held"],
)
async def test_a_viewer_reads_no_events(asked: watch_pb2.WatchEventsRequest) -> None:
    async with serving(with_identities(KNOWN)) as served:
        await served.ready(nodes=1, queue="root.up.a", config=QUEUES)
        stub = watch_pb2_grpc.WatchServiceStub(served.channel)
        refused = Stream(stub.WatchEvents(asked, metadata=token("vera")))
        assert (await refused.end())[0] == grpc.StatusCode.PERMISSION_DENIED


async def test_a_viewers_limits_are_those_of_its_own_queues() -> None:
    """A limit of a queue above shows what the same user has in other queues, so that a viewer does not see it."""
    limits = '[{limit: "", users: [ann], maxresources: {vcore: %sm}}]'
    config = QUEUES.replace("submitacl", f"limits: {limits % 50}\n        submitacl", 1)
    config = config.replace("{name: a,", f"{{name: a, limits: {limits % 10},")
    async with serving(with_identities(KNOWN)) as served:
        stream = await served.ready(nodes=2, queue="root.up.b", config=config)
        user = si.UserGroupInformation(user="ann")
        for name, queue in (("own", "root.up.a"), ("side", "root.up.b")):
            new = si.AddApplicationRequest(applicationID=name, queueName=queue, ugi=user)
            line = await served.open(
                "UpdateApplication", si.ApplicationRequest(rmID="rm", new=[new])
            )
            await line.read(si.ApplicationResponse)
        wanted = [
            ask("p", applicationID="own"),
            ask("q", applicationID="side"),
            ask("z", applicationID="own"),
        ]
        for one, much in zip(wanted, (4, 30, 9), strict=True):
            one.resourcePerAlloc.resources["vcore"].value = much
            await stream.send(si.AllocationRequest(rmID="rm", allocations=[one]))
            await stream.read(si.AllocationResponse)
        assert await limits_of(served, "") == {
            ("root", 34, 50, ""),
            ("root.up.a", 4, 10, ""),
            ("root", 34, 50, "z"),
            ("root.up.a", 4, 10, "z"),
        }
        assert await limits_of(served, "vera") == {
            ("root.up.a", 4, 10, ""),
            ("root.up.a", 4, 10, "z"),
        }
        assert await limits_of(served, "ben", "q") == set()


async def limits_of(served: Served, name: str, key: str = "z") -> set[tuple[str, int, int, str]]:
    """Return queue, usage and max of the limits in the queue tree and in the explanation of an ask, with its key."""
    metadata = token(name) if name else None
    stub = inspect_pb2_grpc.InspectServiceStub(served.channel)
    tree = (await stub.GetQueueTree(inspect_pb2.GetQueueTreeRequest(), metadata=metadata)).tree
    rows: list[tuple[Any, str]] = [(one, "") for queue in below(tree.root) for one in queue.limits]
    assert all(one.user == "ann" and not one.group for one, _ in rows)
    why = explain_pb2_grpc.ExplainServiceStub(served.channel)
    told = await why.Explain(explain_pb2.ExplainRequest(key=key), metadata=metadata)
    levels: list[tuple[Any, str]] = [(one, key) for one in told.waiting.limits]
    assert all(one.subject == "user ann" for one, _ in levels)
    assert [one.queue for one, _ in levels if one.blocks] == ["root.up.a"] * (name != "ben")
    return {
        (one.queue, one.usage["vcore"], one.max["vcore"], about) for one, about in (*rows, *levels)
    }


def test_headroom_goes_down_level_by_level() -> None:
    core = Core()
    report = Reader(core, VERA)
    assert report.visible_queue == "root.up.a"
    root = Reader(core, replace(VERA, queue="root")).tree("default")
    assert root.headroom == Reader(core, Caller("olga", Role.OPERATOR)).tree("default").headroom


def test_a_partition_without_a_viewers_queue_is_not_found() -> None:
    core = Core()
    with pytest.raises(CallError) as told:
        Reader(core, VERA).partition("default")
    assert told.value.code is grpc.StatusCode.NOT_FOUND
    assert Reader(core, replace(VERA, queue="root")).partition("").name == "default"


def naming(field: str) -> si.NodeConstraints:
    expression = si.NodeSelectorRequirement(
        key="kubernetes.io/hostname", operator="In", values=["n0"]
    )
    by_field = si.NodeSelectorRequirement(key="metadata.name", operator="In", values=["n0"])
    return {
        "nodeName": si.NodeConstraints(nodeName="n0"),
        "allowedNodes": si.NodeConstraints(allowedNodes=["n0"]),
        "excludedNodes": si.NodeConstraints(excludedNodes=["n1"]),
        "nodeSelector": si.NodeConstraints(nodeSelector={"kubernetes.io/hostname": "n0"}),
        "expressions": si.NodeConstraints(
            requiredTerms=[si.NodeSelectorTerm(matchExpressions=[expression])]
        ),
        "fields": si.NodeConstraints(requiredTerms=[si.NodeSelectorTerm(matchFields=[by_field])]),
    }[field]


@pytest.mark.parametrize(
    "field", ["nodeName", "allowedNodes", "excludedNodes", "nodeSelector", "expressions", "fields"]
)
async def test_a_viewers_simulated_ask_names_no_node(field: str) -> None:
    asked = ask("x", applicationID="", constraints=naming(field))
    request = simulate.SimulateAsksRequest(
        asks=[simulate.SimulatedAsk(ask=asked, queue="root.up.a")]
    )
    async with serving(with_identities(KNOWN)) as served:
        await served.ready(nodes=2, queue="root.up.a", config=QUEUES)
        stub = simulate_rpc.SimulateServiceStub(served.channel)
        (told,) = (await stub.SimulateAsks(request, metadata=token("vera"))).asks
        assert "a viewer's simulated ask may not name nodes" in " ".join(told.lines)
        (free,) = (await stub.SimulateAsks(request)).asks
        assert "may not name" not in " ".join(free.lines)


async def test_a_viewer_simulates_asks_for_other_labels() -> None:
    zone = si.NodeConstraints(nodeSelector={"zone": "a"})
    one = simulate.SimulatedAsk(ask=ask("x", applicationID="", constraints=zone), queue="root.up.a")
    async with serving(with_identities(KNOWN)) as served:
        await served.ready(nodes=2, queue="root.up.a", config=QUEUES)
        stub = simulate_rpc.SimulateServiceStub(served.channel)
        request = simulate.SimulateAsksRequest(asks=[one])
        (told,) = (await stub.SimulateAsks(request, metadata=token("vera"))).asks
        assert "may not name" not in " ".join(told.lines)
