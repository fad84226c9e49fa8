"""Inspection, explanation, configuration and watching over a small cluster."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from evenhand.v1 import config_pb2 as config
from evenhand.v1 import config_pb2_grpc as config_rpc
from evenhand.v1 import explain_pb2 as explain
from evenhand.v1 import explain_pb2_grpc as explain_rpc
from evenhand.v1 import inspect_pb2 as inspect
from evenhand.v1 import inspect_pb2_grpc as inspect_rpc
from evenhand.v1 import watch_pb2 as watch
from evenhand.v1 import watch_pb2_grpc as watch_rpc
from server.core.core import Core
from server.core.queries import inspect as inspect_queries
from server.model.assignment import Assignment
from server.model.queue_settings import ReachReport
from server.model.reports import AllocationReport
from server.model.revisions import Beginning, Revision
from server.rpc.evenhand import encode_queue_settings, inspect_service
from server.rpc.evenhand.inspect_service import InspectService
from server.rpc.identity import Identities, digest
from server.rpc.roles import CALLER, LOCAL_OPERATOR, Caller, Role
from si.v1 import si_pb2 as si
from tests.inspect.world import World, leaf
from tests.rpc.harness import (
    RM,
    Served,
    Stream,
    ask,
    asks,
    node,
    reason,
    refusal,
    resource,
    serving,
    with_identities,
)

QUEUES = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: a
            resources: {max: {vcore: 10m}}
          - name: b
"""
VIEWER: Any = (("authorization", "Bearer viewer-of-a"),)
KNOWN = Identities(tokens={digest("viewer-of-a"): Caller("vera", Role.VIEWER, "root.a")})


@asynccontextmanager
async def cluster() -> AsyncIterator[tuple[Served, Stream]]:
    """Two queues; in root.a `small` runs and `large` waits, in root.b `other` runs; one foreign pod."""
    async with serving(with_identities(KNOWN)) as served:
        await served.register(config=QUEUES, version="1.2", policyGroup="queues")
        nodes = [
            node("n0", labels={"zone": "z"}, taints=[TAINT], attributes={"rack": "r1"}),
            node("n1"),
        ]
        await (await served.open("UpdateNode", si.NodeRequest(rmID=RM, nodes=nodes))).next()
        await served.submit("app", "root.a")
        await served.submit("side", "root.b")
        foreign = si.Allocation(
            allocationKey="foreign",
            nodeID="n1",
            allocationTags={"foreign": "static"},
            resourcePerAlloc=resource(vcore=2),
        )
        wanted = [
            ask("small", priority=7, allocationTags={"creationTime": "5", "colour": "red"}),
            ask("large", resourcePerAlloc=resource(vcore=50), jobKey=""),
            ask("other", applicationID="side"),
            foreign,
        ]
        stream = await served.open(
            "UpdateAllocation", si.AllocationRequest(rmID=RM, allocations=wanted)
        )
        await placed(stream, 2)
        yield served, stream


async def placed(stream: Stream, count: int) -> list[str]:
    """Return the keys of the next placements, ignoring other answers in between."""
    found: list[str] = []
    while len(found) < count:
        answer = await stream.read(si.AllocationResponse)
        found += [one.allocationKey for one in answer.new]
    return found


TAINT = si.Taint(key="gpu", value="yes", effect="PreferNoSchedule")


async def test_partitions_and_queues() -> None:
    async with cluster() as (served, _):
        stub = inspect_rpc.InspectServiceStub(served.channel)
        (partition,) = (await stub.ListPartitions(inspect.ListPartitionsRequest())).partitions
        assert partition.name == "default"
        assert partition.capacity == {"vcore": 200}
        assert partition.usage == {"vcore": 2}
        assert partition.foreign_usage == {"vcore": 2}
        counts = partition.counts
        assert (counts.nodes, counts.queues, counts.applications) == (2, 3, 2)
        assert (counts.allocations, counts.waiting_asks, counts.placed_total) == (2, 1, 2)
        tree = (await stub.GetQueueTree(inspect.GetQueueTreeRequest())).tree
        assert [queue.path for queue in tree.root.children] == ["root.a", "root.b"]
        a = tree.root.children[0]
        assert (a.name, a.leaf, a.dynamic, a.state) == (
            "a",
            True,
            False,
            inspect.QUEUE_STATE_ACTIVE,
        )
        assert a.max == {"vcore": 10}
        assert a.head_room == {"vcore": 9}
        assert a.preemption_delay_ms == 30_000
        assert a.pending == {"vcore": 50}
        assert (a.applications, a.applications_waiting) == (1, 1)
        assert (tree.root.applications, tree.root.applications_waiting) == (2, 1)
        assert [(one.code, one.count) for one in a.waiting_reasons] == [("queue-limit", 1)]


async def test_applications_nodes_and_allocations() -> None:
    async with cluster() as (served, _):
        stub = inspect_rpc.InspectServiceStub(served.channel)
        listed = await stub.ListApplications(inspect.ListApplicationsRequest(queue="root.a"))
        (application,) = listed.applications
        assert (application.application_id, application.asks_waiting) == ("app", 1)
        assert application.waiting_reasons[0].code == "queue-limit"
        none = inspect.ListApplicationsRequest(states=["failed"])
        assert not (await stub.ListApplications(none)).applications
        nodes = (await stub.ListNodes(inspect.ListNodesRequest())).nodes
        assert [one.node_id for one in nodes] == ["n0", "n1"]
        assert nodes[0].labels == {"zone": "z"}
        assert nodes[0].attributes == {"rack": "r1"}
        assert (nodes[0].taints[0].key, nodes[0].taints[0].value) == ("gpu", "yes")
        assert nodes[1].foreign_usage == {"vcore": 2}
        assert [one.foreign_allocations for one in nodes] == [0, 1]
        request = inspect.ListAllocationsRequest(include_asks=True, include_foreign=True)
        found = {
            one.allocation_key: one for one in (await stub.ListAllocations(request)).allocations
        }
        assert found["small"].state == inspect.ALLOCATION_STATE_ALLOCATED
        assert found["small"].tags == {"creationTime": "5", "colour": "red"}
        assert (found["small"].may_be_preempted, found["small"].may_preempt) == (True, True)
        assert found["small"].protection == "normal"
        assert found["large"].state == inspect.ALLOCATION_STATE_WAITING
        assert found["large"].waiting_code == "queue-limit"
        assert found["foreign"].state == inspect.ALLOCATION_STATE_FOREIGN
        plain = (await stub.ListAllocations(inspect.ListAllocationsRequest())).allocations
        assert sorted(one.allocation_key for one in plain) == ["other", "small"]


async def test_pages() -> None:
    async with cluster() as (served, _):
        stub = inspect_rpc.InspectServiceStub(served.channel)
        first = await stub.ListNodes(inspect.ListNodesRequest(page_size=1))
        assert ([one.node_id for one in first.nodes], bool(first.next_page_token)) == (["n0"], True)
        request = inspect.ListNodesRequest(page_size=1, page_token=first.next_page_token)
        second = await stub.ListNodes(request)
        assert ([one.node_id for one in second.nodes], second.next_page_token) == (["n1"], "")
        for wrong in (
            inspect.ListNodesRequest(page_token="x"),  # noqa: S106
            inspect.ListNodesRequest(page_size=-1),
        ):
            call = stub.ListNodes(wrong)
            assert (await refusal(call))[:2] == (
                grpc.StatusCode.INVALID_ARGUMENT,
                "INVALID_PAGE",
            )


@pytest.mark.parametrize(
    ("partition", "refused"),
    [
        ("default", (grpc.StatusCode.FAILED_PRECONDITION, "NOT_OWNER")),
        ("nowhere", (grpc.StatusCode.NOT_FOUND, "NOT_FOUND")),
    ],
)
async def test_only_a_partition_that_exists_belongs_to_other_cores(
    partition: str, refused: tuple[grpc.StatusCode, str]
) -> None:
    beginning = Beginning(Revision(), assignment=Assignment("a", {}, "b"))
    async with serving(core=Core(None, beginning)) as served:
        stub: Any = inspect_rpc.InspectServiceStub(served.channel)
        call = stub.GetQueueTree(inspect.GetQueueTreeRequest(partition=partition))
        assert (await refusal(call))[:2] == refused


async def test_an_unknown_partition_is_not_found() -> None:
    async with serving() as served:
        stub = inspect_rpc.InspectServiceStub(served.channel)
        for call in (
            stub.GetQueueTree(inspect.GetQueueTreeRequest(partition="x")),
            stub.ListNodes(inspect.ListNodesRequest(partition="x")),
            stub.ListApplications(inspect.ListApplicationsRequest(partition="x")),
            stub.ListAllocations(inspect.ListAllocationsRequest(partition="x")),
        ):
            assert (await refusal(call))[:2] == (grpc.StatusCode.NOT_FOUND, "NOT_FOUND")


async def test_the_doctor_and_the_server() -> None:
    async with cluster() as (served, _):
        stub = inspect_rpc.InspectServiceStub(served.channel)
        checked = await stub.CheckConsistency(inspect.CheckConsistencyRequest())
        assert not [
            one for one in checked.findings if one.severity == inspect.FINDING_SEVERITY_ERROR
        ]
        assert "waiting asks" in checked.checks
        served.clock.ms += 3_600_000
        later = await stub.CheckConsistency(inspect.CheckConsistencyRequest(partition="default"))
        assert "waiting-queue-limit" in {one.code for one in later.findings}
        nowhere = stub.CheckConsistency(inspect.CheckConsistencyRequest(partition="x"))
        assert (await refusal(nowhere))[0] is grpc.StatusCode.NOT_FOUND
        about = await stub.ServerInfo(inspect.ServerInfoRequest())
        assert (about.version, about.now_ms) == ("test", served.clock.ms)
        (manager,) = about.managers
        assert manager.policy_group == "queues"
        assert (manager.rm_id, manager.version) == (RM, "1.2")
        assert sorted(manager.open_streams) == ["allocation", "application", "node"]
        assert about.config_source == "registration of rm"


def test_reasons_of_applications_are_counted_for_no_more_asks_than_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The allocations of an application are not read for it, however many there are."""
    world = World(leaf("a"))
    world.node("n1")
    for name, waiting in (("first", 2), ("second", 3), ("third", 1)):
        world.application(name)
        for at in range(3):
            world.allocation(f"{name}-runs-{at}", "n1", name)
        for at in range(waiting):
            world.ask(f"{name}-waits-{at}", name, vcore=11)
    world.tick()
    read: list[int] = []
    allocations = inspect_queries.allocations

    def counted(*of: Any, **page: Any) -> list[AllocationReport]:
        found = allocations(*of, **page)
        read.append(len(found))
        return found

    monkeypatch.setattr(inspect_queries, "allocations", counted)
    monkeypatch.setattr(inspect_service, "WAITING_TALLY_MAX", 4)
    CALLER.set(LOCAL_OPERATOR)
    none: Any = None
    service = InspectService(world.core, none, none, none, none)
    listed = service.list_applications(inspect.ListApplicationsRequest()).applications
    assert [[one.count for one in each.waiting_reasons] for each in listed] == [[2], [], [1]]
    assert sum(read) == 3


async def test_explanations() -> None:
    async with cluster() as (served, _):
        stub = explain_rpc.ExplainServiceStub(served.channel)
        waiting = await stub.Explain(explain.ExplainRequest(key="large"))
        assert waiting.kind == explain.SUBJECT_KIND_WAITING_ASK
        assert (waiting.waiting.code, waiting.waiting.queue) == ("queue-limit", "root.a")
        assert [one.queue for one in waiting.waiting.levels if one.blocks] == ["root.a"]
        assert waiting.lines
        runs = await stub.Explain(explain.ExplainRequest(key="small"))
        assert runs.kind == explain.SUBJECT_KIND_ALLOCATION
        assert runs.placed.queue == "root.a"
        assert (runs.placed.priority, runs.placed.foreign) == (7, False)
        foreign = await stub.Explain(explain.ExplainRequest(key="foreign"))
        assert (foreign.placed.foreign, foreign.placed.node_id) == (True, "n1")
        unknown = await stub.Explain(explain.ExplainRequest(key="nothing"))
        assert unknown.kind == explain.SUBJECT_KIND_UNKNOWN
        assert (
            await stub.Explain(explain.ExplainRequest(key="n0"))
        ).kind == explain.SUBJECT_KIND_NODE
        empty = await refusal(stub.Explain(explain.ExplainRequest()))
        assert empty == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_KEY", ["key"])


async def test_a_queue_is_explained_with_its_settings_and_its_reach() -> None:
    async with cluster() as (served, _):
        stub = explain_rpc.ExplainServiceStub(served.channel)
        found = await stub.Explain(explain.ExplainRequest(key="root.A"))
        assert (found.kind, found.key) == (explain.SUBJECT_KIND_QUEUE, "root.a")
        assert found.lines[0].startswith("It has no guarantee of its own")
        assert found.queue.queue.asks_waiting == 1
        assert not found.queue.queue.children
        assert found.queue.reach.scope_root == "root"
        assert not found.queue.reach.may_claim_from
        assert any("may claim no pods" in line for line in found.lines)
        settings = {one.name: one for one in found.queue.settings}
        most = settings["max.vcore"]
        assert (most.value, most.amount, most.origin) == ("10m", 10, inspect.SETTING_ORIGIN_HERE)
        access = settings["submitacl"]
        assert (access.origin, access.queue) == (inspect.SETTING_ORIGIN_INHERITED, "root")
        listing = inspect_rpc.InspectServiceStub(served.channel)
        every = await listing.ListQueueSettings(inspect.ListQueueSettingsRequest(page_size=2))
        assert [one.path for one in every.queues] == ["root", "root.a"]
        rest = inspect.ListQueueSettingsRequest(page_token=every.next_page_token)
        assert [one.path for one in (await listing.ListQueueSettings(rest)).queues] == ["root.b"]
        unknown = inspect.ListQueueSettingsRequest(queue="root.x")
        status, code, _ = await refusal(listing.ListQueueSettings(unknown))
        assert (status, code) == (grpc.StatusCode.NOT_FOUND, "NOT_FOUND")


def test_a_viewer_learns_only_that_other_queues_claim() -> None:
    report = ReachReport(
        "root",
        fences=(),
        disabled=False,
        may_claim_from=("root.b", "root.a.x"),
        may_be_claimed_by=("root.b",),
    )
    found = encode_queue_settings.reach(report, Caller("vera", Role.VIEWER, "root.a"))
    assert (list(found.may_claim_from), list(found.may_be_claimed_by)) == (["root.a.x"], [])
    assert found.may_claim_elsewhere
    assert found.may_be_claimed_elsewhere


async def test_a_viewer_reads_the_settings_of_its_own_queues_only() -> None:
    async with cluster() as (served, _):
        stub = explain_rpc.ExplainServiceStub(served.channel)
        own = await stub.Explain(explain.ExplainRequest(key="root.a"), metadata=VIEWER)
        assert own.kind == explain.SUBJECT_KIND_QUEUE
        assert not any("root.b" in line for line in own.lines)
        access = [one.value for one in own.queue.settings if one.name == "submitacl"]
        assert access == ["not shown"]
        for path in ("root", "root.b"):
            hidden = await stub.Explain(explain.ExplainRequest(key=path), metadata=VIEWER)
            assert hidden.kind == explain.SUBJECT_KIND_UNKNOWN
        listing = inspect_rpc.InspectServiceStub(served.channel)
        mine = await listing.ListQueueSettings(inspect.ListQueueSettingsRequest(), metadata=VIEWER)
        assert [one.path for one in mine.queues] == ["root.a"]
        other = inspect.ListQueueSettingsRequest(queue="root.b")
        status, _, _ = await refusal(listing.ListQueueSettings(other, metadata=VIEWER))
        assert status == grpc.StatusCode.NOT_FOUND


async def test_a_viewer_sees_its_queues_only() -> None:
    async with cluster() as (served, _):
        stub = inspect_rpc.InspectServiceStub(served.channel)
        tree = (await stub.GetQueueTree(inspect.GetQueueTreeRequest(), metadata=VIEWER)).tree
        assert tree.root.path == "root.a"
        (partition,) = (
            await stub.ListPartitions(inspect.ListPartitionsRequest(), metadata=VIEWER)
        ).partitions
        assert not partition.capacity
        assert (partition.counts.nodes, partition.counts.placed_total) == (0, 0)
        assert partition.visible_queue == "root.a"
        assert dict(partition.usage) == {"vcore": 1}
        counts = partition.counts
        assert (counts.queues, counts.applications) == (1, 1)
        assert (counts.allocations, counts.waiting_asks) == (1, 1)
        every = inspect.ListApplicationsRequest(queue="root")
        applications = (await stub.ListApplications(every, metadata=VIEWER)).applications
        assert [one.application_id for one in applications] == ["app"]
        request = inspect.ListAllocationsRequest(
            include_asks=True, include_foreign=True, node_id=""
        )
        found = (await stub.ListAllocations(request, metadata=VIEWER)).allocations
        assert sorted(one.allocation_key for one in found) == ["large", "small"]
        on_node = inspect.ListAllocationsRequest(include_foreign=True, node_id="n1", queue="root.b")
        found = (await stub.ListAllocations(on_node, metadata=VIEWER)).allocations
        assert all(one.queue == "root.a" for one in found)
        about = await stub.ServerInfo(inspect.ServerInfoRequest(), metadata=VIEWER)
        assert (about.version, len(about.managers), about.config_source) == ("test", 0, "")
        why = explain_rpc.ExplainServiceStub(served.channel)
        own = await why.Explain(explain.ExplainRequest(key="large"), metadata=VIEWER)
        assert own.waiting.queue == "root.a"
        assert all(not one.usage for one in own.waiting.levels if one.queue == "root")
        for key in ("other", "foreign", "n0", "side"):
            hidden = await why.Explain(explain.ExplainRequest(key=key), metadata=VIEWER)
            nothing = await why.Explain(explain.ExplainRequest(key=key * 9), metadata=VIEWER)
            assert (hidden.kind, hidden.lines) == (nothing.kind, nothing.lines)


async def test_configuration_is_checked_compared_and_applied() -> None:
    async with cluster() as (served, stream):
        stub = config_rpc.ConfigurationServiceStub(served.channel)
        wrong = await stub.Validate(config.ValidateRequest(yaml="partitions: 7"))
        assert not wrong.valid
        assert wrong.problems[0].severity == config.PROBLEM_SEVERITY_ERROR
        before = served.core.digest()
        refused = await stub.Apply(config.ApplyRequest(yaml="partitions: 7"))
        assert (refused.applied, served.core.digest()) == (False, before)
        wider = QUEUES.replace("10m", "100m")
        dry = await stub.Apply(config.ApplyRequest(yaml=wider, dry_run=True))
        assert (dry.applied, served.core.digest()) == (False, before)
        assert [(one.subject, one.after) for one in dry.changes] == [
            (one.subject, one.after)
            for one in (await stub.Diff(config.DiffRequest(yaml=wider))).changes
        ]
        assert dry.changes
        applied = await stub.Apply(config.ApplyRequest(yaml=wider, source="by hand"))
        assert applied.applied
        assert await placed(stream, 1) == ["large"]
        now = await stub.Get(config.GetRequest())
        assert (now.yaml, now.source, now.digest) == (wider, "by hand", applied.digest)
        assert now.applied_at_ms == served.clock.ms


async def test_a_registration_with_a_wrong_configuration_names_the_lines() -> None:
    async with serving() as served:
        before = served.core.digest()
        request = si.RegisterResourceManagerRequest(rmID=RM, config="partitions:\n  - nam: x\n")
        code, why, fields = await refusal(served.stub.RegisterResourceManager(request))
        assert (code, why) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_CONFIGURATION")
        assert "config.partitions[0].nam" in fields
        nameless = si.RegisterResourceManagerRequest()
        assert (await refusal(served.stub.RegisterResourceManager(nameless)))[2] == ["rmID"]
        assert served.core.digest() == before


async def test_a_watch_shows_changes() -> None:
    async with cluster() as (served, stream):
        stub = watch_rpc.WatchServiceStub(served.channel)
        pictures = Stream(stub.WatchQueues(watch.WatchQueuesRequest(min_interval_ms=100)))
        first = await pictures.read(watch.WatchQueuesResponse)
        assert (first.summary.counts.allocations, first.tree.root.path) == (2, "root")
        await stream.send(asks("more", applicationID="side"))
        second = await pictures.read(watch.WatchQueuesResponse)
        assert second.summary.counts.allocations == 3
        own = Stream(stub.WatchQueues(watch.WatchQueuesRequest(), metadata=VIEWER))
        seen = await own.read(watch.WatchQueuesResponse)
        assert (seen.tree.root.path, seen.summary.counts.allocations) == ("root.a", 1)
        pictures.call.cancel()
        own.call.cancel()


async def test_held_events_end_and_a_kind_that_does_not_exist_is_refused() -> None:
    async with cluster() as (served, _):
        stub = watch_rpc.WatchServiceStub(served.channel)
        held = watch.WatchEventsRequest(kinds=["placed"], held_only=True)
        found = await Stream(stub.WatchEvents(held)).all(watch.WatchEventsResponse)
        assert [one.object for one in found.events] == ["small", "other"]
        wrong = Stream(stub.WatchEvents(watch.WatchEventsRequest(kinds=["nosuch"])))
        assert await wrong.end() == (grpc.StatusCode.INVALID_ARGUMENT, "UNKNOWN_KIND")


async def test_an_event_of_a_pod_carries_its_name() -> None:
    async with cluster() as (served, stream):
        named = ask(
            "uid-1",
            applicationID="side",
            allocationTags={
                "kubernetes.io/meta/namespace": "lab",
                "kubernetes.io/meta/podName": "train-1",
            },
        )
        await stream.send(si.AllocationRequest(rmID=RM, allocations=[named]))
        await placed(stream, 1)
        stub = watch_rpc.WatchServiceStub(served.channel)
        held = watch.WatchEventsRequest(kinds=["placed"], held_only=True)
        found = await Stream(stub.WatchEvents(held)).all(watch.WatchEventsResponse)
        assert [one.name for one in found.events] == ["", "", "lab/train-1"]


def named(uid: str, name: str, **facts: Any) -> si.Allocation:
    tags = {"kubernetes.io/meta/namespace": "lab", "kubernetes.io/meta/podName": name}
    return ask(uid, allocationTags=tags | facts.pop("tags", {}), **facts)


async def test_an_event_of_a_pod_that_ended_keeps_its_name() -> None:
    async with cluster() as (served, stream):
        runs = named("uid-1", "train-1", applicationID="side")
        await stream.send(si.AllocationRequest(rmID=RM, allocations=[runs]))
        await placed(stream, 1)
        ended = [
            si.AllocationRelease(
                applicationID="side",
                allocationKey="uid-1",
                terminationType=si.TerminationType.STOPPED_BY_RM,
            )
        ]
        request = si.AllocationReleasesRequest(allocationsToRelease=ended)
        await stream.send(si.AllocationRequest(rmID=RM, releases=request))
        assert (await stream.read(si.AllocationResponse)).released
        stub = watch_rpc.WatchServiceStub(served.channel)
        held = watch.WatchEventsRequest(kinds=["placed", "released"], held_only=True)
        found = await Stream(stub.WatchEvents(held)).all(watch.WatchEventsResponse)
        assert [(one.kind, one.name) for one in found.events][-2:] == [
            ("placed", "lab/train-1"),
            ("released", "lab/train-1"),
        ]


async def test_a_pod_of_another_scheduler_has_its_name() -> None:
    async with cluster() as (served, stream):
        other = named("uid-3", "proxy", tags={"foreign": "default"}, applicationID="", nodeID="n1")
        more = ask("more", applicationID="side")
        await stream.send(si.AllocationRequest(rmID=RM, allocations=[other, more]))
        await placed(stream, 1)
        stub = inspect_rpc.InspectServiceStub(served.channel)
        request = inspect.ListAllocationsRequest(include_foreign=True)
        found = {
            one.allocation_key: one for one in (await stub.ListAllocations(request)).allocations
        }
        assert found["uid-3"].tags["kubernetes.io/meta/podName"] == "proxy"
        stub_of_explain = explain_rpc.ExplainServiceStub(served.channel)
        told = await stub_of_explain.Explain(explain.ExplainRequest(key="uid-3"))
        assert told.name == "lab/proxy"


async def test_an_event_of_a_waiting_pod_has_the_code_of_its_reason() -> None:
    async with cluster() as (served, _):
        stub = watch_rpc.WatchServiceStub(served.channel)
        held = watch.WatchEventsRequest(kinds=["waiting"], held_only=True)
        found = await Stream(stub.WatchEvents(held)).all(watch.WatchEventsResponse)
        assert [(one.object, one.code) for one in found.events] == [("large", "queue-limit")]


async def test_events_are_numbered_and_can_be_continued() -> None:
    async with cluster() as (served, stream):
        stub = watch_rpc.WatchServiceStub(served.channel)
        events = Stream(stub.WatchEvents(watch.WatchEventsRequest(kinds=["placed"])))
        found = (await events.read(watch.WatchEventsResponse)).events
        assert [one.object for one in found] == ["small", "other"]
        assert (found[0].queue, found[0].time_ms) == ("root.a", served.clock.ms)
        since = watch.WatchEventsRequest(since=found[-1].number, kinds=["placed"])
        later = Stream(stub.WatchEvents(since))
        await stream.send(asks("more", applicationID="side"))
        (one,) = (await later.read(watch.WatchEventsResponse)).events
        assert (one.object, one.number > found[-1].number) == ("more", True)
        events.call.cancel()
        later.call.cancel()


async def test_kinds_come_without_their_events_and_only_from_now_on() -> None:
    async with cluster() as (served, stream):
        stub = watch_rpc.WatchServiceStub(served.channel)
        asked = watch.WatchEventsRequest(kinds_only=True, kinds=["placed", "node"])
        events = Stream(stub.WatchEvents(asked))
        assert await events.read(watch.WatchEventsResponse) == watch.WatchEventsResponse()
        await stream.send(asks("more", applicationID="side"))
        found = await events.read(watch.WatchEventsResponse)
        assert (list(found.kinds), len(found.events)) == (["placed"], 0)
        await stream.send(asks("again", "thrice", applicationID="side"))
        assert (await events.read(watch.WatchEventsResponse)).kinds == ["placed"]
        events.call.cancel()


async def test_watchers_beyond_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.rpc.evenhand.watchers.WATCHERS_MAX", 1)
    async with serving() as served:
        stub = watch_rpc.WatchServiceStub(served.channel)
        first = Stream(stub.WatchQueues(watch.WatchQueuesRequest()))
        await first.read(watch.WatchQueuesResponse)
        second = Stream(stub.WatchQueues(watch.WatchQueuesRequest()))
        assert await second.end() == (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_REACHED")
        first.call.cancel()
    assert reason(None) == ""
