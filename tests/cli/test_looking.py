"""Every listing as text and as JSON, for a core with prepared answers."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from evenhand.v1 import explain_pb2, inspect_pb2, watch_pb2
from evenhand_cli.commands.events import Kind
from evenhand_cli.demo.picture import picture_console
from evenhand_cli.render import queues as picture
from server.rpc.event_buffer import KINDS
from tests.cli import samples
from tests.cli.fake import FakeCore, running
from tests.cli.run import evenhand


@pytest.fixture(scope="module")
def core() -> Iterator[FakeCore]:
    pages = [
        inspect_pb2.ListAllocationsResponse(
            allocations=[samples.allocation("pod-1")],
            next_page_token="1",  # noqa: S106 - a page, not a secret
        ),
        inspect_pb2.ListAllocationsResponse(allocations=[samples.waiting_ask("pod-2")]),
    ]
    prepared = FakeCore(
        ListPartitions=inspect_pb2.ListPartitionsResponse(partitions=[samples.partition()]),
        GetQueueTree=inspect_pb2.GetQueueTreeResponse(tree=samples.queue_tree()),
        ListApplications=inspect_pb2.ListApplicationsResponse(applications=[samples.application()]),
        ListNodes=inspect_pb2.ListNodesResponse(nodes=[samples.node()]),
        ListAllocations=pages,
        Explain=samples.why_it_waits("pod-2"),
        CheckConsistency=inspect_pb2.CheckConsistencyResponse(checks=["usage", "heaps"]),
        ServerInfo=inspect_pb2.ServerInfoResponse(
            version="9.8.7", started_at_ms=samples.T0, now_ms=samples.T0 + 65_000
        ),
        WatchEvents=[
            watch_pb2.WatchEventsResponse(events=[samples.event(1)]),
            watch_pb2.WatchEventsResponse(events=[samples.event(2), samples.event(3)], missed=4),
        ],
    )
    with running(prepared) as started:
        yield started


def test_partitions(core: FakeCore) -> None:
    ended = evenhand("partitions", "--core", core.address)
    assert ended.code == 0
    assert ended.words("cores")[:8] == ["default", "fair", "3/4", "4", "14", "4", "cores", "15/64"]
    value = evenhand("partitions", "--core", core.address, "--output", "json").value()
    assert value["partitions"][0]["capacity"] == {"memory": 256 << 30, "vcore": 64_000}
    assert value["partitions"][0]["counts"]["waiting_asks"] == 4


def test_queues_show_usage_guarantee_max_and_headroom(core: FakeCore) -> None:
    ended = evenhand("queues", "--core", core.address, width=200)
    words = ended.words("research")
    assert words[:3] == ["└─", "research", "cores"]
    assert words[4:] == [
        "50",
        "%",
        "12",
        "8",
        "24",
        "12",
        "4",
        "3",
        "12",
        "4",
        "active",
        "4",
        "no-node",
    ]
    assert ended.words("adhoc")[-2:] == ["draining", "dynamic"]
    bars = {
        line.split()[1]: [sign for sign in line if sign in "█░┃"]
        for line in ended.out.splitlines()
        if "─ " in line
    }
    assert bars["adhoc"] == ["█"] * 16
    assert bars["research"] == ["█"] * 5 + ["┃"] + ["█"] * 2 + ["░"] * 8


def test_queues_show_what_moves_and_what_is_over_its_max() -> None:
    tree = samples.queue_tree()
    adhoc, research = tree.root.children
    research.promised["vcore"] = 4_000
    research.releasing["vcore"] = 2_000
    adhoc.over_max["vcore"] = 1_500
    adhoc.not_enforced = "quota.preemption.delay is not set"
    with running(FakeCore(**queues_of(tree))) as core:
        ended = evenhand("queues", "--core", core.address, width=200)
        adhoc.quota_due_ms = tree.taken_at_ms + 65_000
    assert ended.words("queue")[7:10] == ["promised", "leaving", "pending"]
    assert ended.words("research")[9:12] == ["12", "4", "2"]
    assert "1.5 cores too much, never enforced: quota.preemption.delay is not set" in ended.out
    with running(FakeCore(**queues_of(tree))) as core:
        ended = evenhand("queues", "--core", core.address, width=200)
    assert "1.5 cores too much, enforced in 1 m 05 s" in ended.out
    adhoc.quota_due_ms, adhoc.not_enforced = 0, ""
    with running(FakeCore(**queues_of(tree))) as core:
        ended = evenhand("queues", "--core", core.address, width=200)
    assert "1.5 cores too much, pods are leaving" in ended.out


def test_a_share_beyond_the_max_is_in_colour() -> None:
    tree = samples.queue_tree()
    adhoc, research = tree.root.children
    adhoc.usage["vcore"], adhoc.over_max["vcore"] = 3_000, 1_000
    research.usage["vcore"], research.releasing["vcore"] = 48_000, 24_000
    console = picture_console()
    drawn = console.render(picture.tree(tree.root, {}, console, samples.T0))
    styles = {one.text.strip(): str(one.style) for one in drawn if " %" in one.text}
    assert (styles["150 %"], styles["200 %"]) == ("bold red", "yellow")
    assert styles["42 %"] in {"", "none", "None"}


def test_columns_that_say_nothing_in_any_queue_are_left_out() -> None:
    tree = samples.queue_tree()
    for one in (tree.root, *tree.root.children):
        for amounts in (one.guaranteed, one.max, one.head_room):
            amounts.clear()
    with running(FakeCore(**queues_of(tree))) as core:
        ended = evenhand("queues", "--core", core.address, width=200)
    assert ended.words("queue")[:5] == ["queue", "type", "%", "used", "pending"]
    assert "left out" not in ended.out


def queues_of(tree: inspect_pb2.QueueTree) -> dict[str, Any]:
    listed = inspect_pb2.ListPartitionsResponse(partitions=[samples.partition()])
    return {
        "GetQueueTree": inspect_pb2.GetQueueTreeResponse(tree=tree),
        "ListPartitions": listed,
    }


def test_queues_as_json_keep_exact_numbers_and_every_field(core: FakeCore) -> None:
    value = evenhand("queues", "--core", core.address, "-o", "json").value()
    research = value["root"]["children"][1]
    assert research["guaranteed"] == {"memory": 32 << 30, "vcore": 8000}
    assert research["state"] == "active"
    assert set(research) == {field.name for field in inspect_pb2.Queue.DESCRIPTOR.fields}


def test_one_queue_with_those_below(core: FakeCore) -> None:
    value = evenhand("queues", "root.adhoc", "--core", core.address, "-o", "json").value()
    assert value["root"]["path"] == "root.adhoc"
    ended = evenhand("queues", "root.adhoc", "--core", core.address)
    assert "research" not in ended.out


def test_apps(core: FakeCore) -> None:
    ended = evenhand(
        "apps", "--core", core.address, "--state", "running", "--queue", "root.research"
    )
    assert ended.words("train-1")[:4] == ["train-1", "root.research", "Running", "ada"]
    assert "12 cores, 40 GiB memory" in ended.out
    assert core.requests[-1] == inspect_pb2.ListApplicationsRequest(
        queue="root.research", states=["Running"], page_size=1000
    )
    value = evenhand("apps", "--core", core.address, "-o", "json").value()
    assert [one["application_id"] for one in value["applications"]] == ["train-1"]


def test_nodes(core: FakeCore) -> None:
    ended = evenhand("nodes", "--core", core.address)
    assert ended.words("node-a")[:7] == ["node-a", "ready", "6", "8/16", "17/64", "GiB", "1/4"]
    assert "2 foreign, 1 taint" in ended.out
    value = evenhand("nodes", "--core", core.address, "-o", "json").value()
    assert value["nodes"][0]["taints"] == [{"key": "gpu", "value": "", "effect": "NoSchedule"}]


def test_allocations_come_from_every_page(core: FakeCore) -> None:
    ended = evenhand("allocations", "--asks", "--core", core.address)
    assert ended.words("pod-1")[3:5] == ["node-a", "allocated"]
    assert ended.words("pod-2")[3:5] == ["-", "waiting"]
    assert ended.out.splitlines()[-1] == "2 rows, 1 of them waiting"
    value = evenhand("allocations", "--core", core.address, "-o", "json").value()
    assert [one["allocation_key"] for one in value["allocations"]] == ["pod-1", "pod-2"]
    assert value["allocations"][1]["waiting_code"] == "no-node"


def test_a_waiting_ask_is_explained_level_by_level(core: FakeCore) -> None:
    ended = evenhand("explain", "pod-2", "--core", core.address)
    assert ended.words("1.5 cores")[-3:] == ["missing", "1.5", "cores"]
    assert ended.words("63.5/64")[:3] == ["root", "63.5/64", "(0.5)"]
    assert "too small: cores" in ended.out
    assert ended.words("short of") == ["3", "short", "of", "cores", "node-a,", "node-b"]
    value = evenhand("explain", "pod-2", "--core", core.address, "-o", "json").value()
    assert value["kind"] == "waiting_ask"
    assert value["waiting"]["levels"][1]["blocks"] is True
    assert value["placed"] is None
    assert ended.words("before it") == [
        "before",
        "it",
        "2",
        "asks",
        "of",
        "the",
        "same",
        "application",
    ]


def test_limits_of_users_are_shown_when_one_blocks_the_ask() -> None:
    answer = samples.why_it_waits("pod-2")
    limit = answer.waiting.limits.add(queue="root.research", subject="user ann")
    limit.usage["vcore"], limit.max["vcore"], limit.head_room["vcore"] = 3_000, 4_000, 1_000
    with running(FakeCore(Explain=answer)) as core:
        brief = evenhand("explain", "pod-2", "--core", core.address).out
        wide = evenhand("explain", "pod-2", "--core", core.address, "-o", "wide")
    assert "user ann" not in brief
    assert wide.words("user ann") == ["root.research", "user", "ann", "3/4", "(1)", "fits"]
    limit.short_types.append("vcore")
    limit.blocks = True
    with running(FakeCore(Explain=answer)) as core:
        ended = evenhand("explain", "pod-2", "--core", core.address)
    assert ended.words("user ann") == [
        "root.research",
        "user",
        "ann",
        "3/4",
        "(1)",
        "too",
        "small:",
        "cores",
    ]


def test_a_pod_that_a_quota_run_would_evict_is_told_so_in_a_narrow_terminal() -> None:
    sentence = (
        "Queue root.batch is 76 cores over its max; enforcement starts in 116 s. "
        "This pod is number 12 of 80 in the order and would be evicted."
    )
    outlook = explain_pb2.QuotaOutlook(queue="root.batch", over={"vcore": 76_000}, rank=12)
    answer = explain_pb2.ExplainResponse(
        kind=explain_pb2.SUBJECT_KIND_ALLOCATION,
        key="pod-1",
        partition="default",
        lines=["It runs on node node-a.", sentence],
        placed=explain_pb2.PlacedAllocation(queue="root.batch.night", quota_outlook=[outlook]),
    )
    with running(FakeCore(Explain=answer)) as core:
        ended = evenhand("explain", "pod-1", "--core", core.address, width=80)
        value = evenhand("explain", "pod-1", "--core", core.address, "-o", "json").value()
    assert all(len(line) <= 80 for line in ended.out.splitlines())
    assert sentence in " ".join(ended.out.split())
    assert value["placed"]["quota_outlook"][0]["over"] == {"vcore": 76_000}


def test_a_key_is_explained_under_the_name_of_its_pod() -> None:
    answer = explain_pb2.ExplainResponse(
        kind=explain_pb2.SUBJECT_KIND_ALLOCATION,
        key="uid-1",
        name="lab/train-1",
        lines=["It runs on node node-a."],
        placed=explain_pb2.PlacedAllocation(queue="root.lab"),
    )
    with running(FakeCore(Explain=answer)) as core:
        by_key = evenhand("explain", "uid-1", "--core", core.address)
        value = evenhand("explain", "uid-1", "--core", core.address, "-o", "json").value()
    assert by_key.out.splitlines()[0] == "lab/train-1  allocation uid-1"
    assert value["name"] == "lab/train-1"


def test_the_doctor_is_content(core: FakeCore) -> None:
    ended = evenhand("doctor", "--core", core.address)
    assert (ended.code, ended.out.strip()) == (0, "all is well (2 checks)")
    assert evenhand("doctor", "--core", core.address, "-o", "json").value()["healthy"] is True


def test_the_doctor_finds_an_error() -> None:
    answer = inspect_pb2.CheckConsistencyResponse(findings=[samples.finding()])
    with running(FakeCore(CheckConsistency=answer)) as core:
        ended = evenhand("doctor", "--core", core.address)
        as_json = evenhand("doctor", "--core", core.address, "-o", "json")
    assert ended.code == as_json.code == 1
    assert "restart the core and report this" in ended.out
    assert as_json.value()["findings"][0]["severity"] == "error"


def test_events_that_are_followed_end_after_a_count(core: FakeCore) -> None:
    ended = evenhand("events", "--follow", "--count", "2", "--since", "7", "--core", core.address)
    assert ended.code == 0
    assert [line.split()[0] for line in ended.out.splitlines()] == ["1", "2"]
    assert [line.split()[5] for line in ended.out.splitlines()] == ["train-1-1", "train-1-2"]
    assert core.requests[-1] == watch_pb2.WatchEventsRequest(since=7)


def test_events_are_listed_with_their_numbers_and_end(core: FakeCore) -> None:
    ended = evenhand("events", "--kind", "placed", "--core", core.address)
    assert ended.code == 0
    assert [line.split()[0] for line in ended.out.splitlines()] == ["1", "2", "3"]
    assert "4 events were missed" in ended.err
    assert core.requests[-1] == watch_pb2.WatchEventsRequest(kinds=["placed"], held_only=True)


def test_a_count_of_listed_events_are_the_latest(core: FakeCore) -> None:
    ended = evenhand("events", "--count", "2", "-o", "json", "--core", core.address)
    lines = [json.loads(line) for line in ended.out.splitlines()]
    assert [one["number"] for one in lines] == [2, 3]


def test_an_event_of_a_pod_has_its_name() -> None:
    record = watch_pb2.EventRecord(number=9, kind="placed", object="uid-1", name="lab/train-1")
    answers = [watch_pb2.WatchEventsResponse(events=[record])]
    with running(FakeCore(WatchEvents=answers)) as core:
        ended = evenhand("events", "--core", core.address)
        names = evenhand("events", "-o", "name", "--core", core.address)
    assert "lab/train-1" in ended.out
    assert "uid-1" not in ended.out
    assert names.out == "lab/train-1\n"


REFUSED = watch_pb2.EventRecord(
    number=673,
    kind="ask",
    object="uid-1",
    name="lab/fence-break-j4l6mwmbb-7n8g9l",
    code="preemption-refused",
    message="preemption does not help: no node has enough free capacity, even if every eligible pod is evicted",
)


def events(record: watch_pb2.EventRecord, width: int) -> list[str]:
    with running(FakeCore(WatchEvents=[watch_pb2.WatchEventsResponse(events=[record])])) as core:
        out = evenhand("events", "--core", core.address, width=width).out
    return out.splitlines()


def test_an_event_goes_on_below_its_line_in_a_narrow_terminal() -> None:
    assert events(REFUSED, 80)[1:] == [
        "          preemption does not help: no node has enough free capacity, even if",
        "          every eligible pod is evicted  [preemption-refused]",
    ]
    assert events(REFUSED, 80)[0].endswith("  ask           lab/fence-break-j4l6mwmbb-7n8g9l")


def test_an_event_is_one_line_with_its_code_where_it_fits() -> None:
    (line,) = events(REFUSED, 240)
    assert line.endswith("even if every eligible pod is evicted  [preemption-refused]")


def test_what_the_text_of_an_event_says_already_is_not_said_twice() -> None:
    record = watch_pb2.EventRecord(
        number=1, kind="placed", object="a", code="placed", message="placed on node n", node_id="n"
    )
    (line,) = events(record, 80)
    assert line.endswith("placed        a  placed on node n")


def test_no_event_is_one_sentence() -> None:
    with running(FakeCore(WatchEvents=[watch_pb2.WatchEventsResponse()])) as core:
        ended = evenhand("events", "--kind", "shadow", "--core", core.address)
        as_json = evenhand("events", "-o", "json", "--core", core.address)
    assert (ended.code, ended.out) == (0, "No event matches --kind shadow.\n")
    assert (as_json.code, as_json.out) == (0, "")


@pytest.mark.parametrize(
    ("kind", "near"), [("plased", "did you mean `placed`"), ("nosuch", "there are placed, ")]
)
def test_a_kind_of_event_that_does_not_exist_is_refused(kind: str, near: str) -> None:
    ended = evenhand("events", "--kind", kind, "--core", "127.0.0.1:1")
    assert (ended.code, ended.out) == (2, "")
    assert near in ended.err


def test_the_kinds_are_those_of_the_core() -> None:
    assert tuple(Kind) == KINDS


def test_version_of_both_sides(core: FakeCore) -> None:
    value = evenhand("version", "--core", core.address, "-o", "json").value()
    assert value["core"]["version"] == "9.8.7"
    assert "up 1 m 05 s" in evenhand("version", "--core", core.address).out


def test_a_manager_without_streams_is_away() -> None:
    managers = [
        inspect_pb2.ManagerInfo(
            rm_id=name, sync_state=inspect_pb2.SYNC_STATE_SYNCED, open_streams=open_
        )
        for name, open_ in (("here", ["node"]), ("gone", []))
    ]
    with running(FakeCore(ServerInfo=inspect_pb2.ServerInfoResponse(managers=managers))) as core:
        ended = evenhand("version", "--core", core.address)
    assert ended.words("here") == ["here", "synced", "node"]
    assert ended.words("gone") == ["gone", "away"]


def test_keys_are_whole_when_the_output_is_no_terminal() -> None:
    key = "k" * 120
    answer = inspect_pb2.ListAllocationsResponse(allocations=[samples.allocation(key)])
    with running(FakeCore(ListAllocations=answer)) as core:
        ended = evenhand("allocations", "--core", core.address, width=400)
    assert key in ended.out


def test_an_allocation_is_explained_by_its_place() -> None:
    placed = explain_pb2.PlacedAllocation(
        node_id="node-a",
        queue="root.research",
        application_id="train-1",
    )
    answer = explain_pb2.ExplainResponse(
        kind=explain_pb2.SUBJECT_KIND_ALLOCATION, key="pod-1", placed=placed
    )
    with running(FakeCore(Explain=answer)) as core:
        ended = evenhand("explain", "pod-1", "--core", core.address)
    assert ended.words("node-a") == ["node", "node-a"]
    assert ended.words("root.research") == ["queue", "root.research"]
    assert ended.words("train-1") == ["application", "train-1"]


def test_a_foreign_pod_has_no_row_for_what_it_does_not_have() -> None:
    placed = explain_pb2.PlacedAllocation(node_id="node-a", foreign=True)
    answer = explain_pb2.ExplainResponse(
        kind=explain_pb2.SUBJECT_KIND_ALLOCATION, key="pod-1", placed=placed
    )
    with running(FakeCore(Explain=answer)) as core:
        ended = evenhand("explain", "pod-1", "--core", core.address)
    assert ended.words("node-a") == ["node", "node-a"]
    for row in ("application", "queue", "runs"):
        assert row not in ended.out


NARROW = 72


def test_narrow_terminals_leave_whole_columns_out_and_say_which() -> None:
    key = "team-red/" + "k" * 30
    long = samples.allocation("uid-1")
    long.tags["kubernetes.io/meta/namespace"], _, long.tags["kubernetes.io/meta/podName"] = (
        key.partition("/")
    )
    with running(FakeCore(ListAllocations=listed(long))) as core:
        wide = evenhand("allocations", "--core", core.address, width=240)
        narrow = evenhand("allocations", "--core", core.address, width=NARROW)
    assert wide.words(key)[:3] == ["uid-1", key, "train-1"]
    assert narrow.words(key) == [key, "node-a", "allocated"]
    left_out = (
        "left out: key, application, queue, since, priority, resources; --output wide shows all"
    )
    assert " ".join(narrow.out.split()).endswith(f"{left_out} 1 allocation")
    assert all(len(line) <= NARROW for line in narrow.out.splitlines())


def test_columns_that_say_nothing_are_left_out() -> None:
    with running(FakeCore(ListAllocations=listed(samples.allocation("pod-1")))) as core:
        ended = evenhand("allocations", "--core", core.address)
    assert "waits for" not in ended.out


def test_allocations_say_by_which_decision_they_go() -> None:
    going = samples.allocation("pod-1")
    going.state, going.decision_id = inspect_pb2.ALLOCATION_STATE_RELEASING, "g-1-1"
    with running(FakeCore(ListAllocations=listed(going))) as core:
        ended = evenhand("allocations", "--core", core.address, width=200)
    assert ended.words("pod-1")[-1] == "g-1-1"


def listed(*allocations: inspect_pb2.Allocation) -> inspect_pb2.ListAllocationsResponse:
    return inspect_pb2.ListAllocationsResponse(allocations=allocations)


@pytest.mark.parametrize(
    ("option", "value", "near"),
    [
        ("--queue", "root.reserch", "did you mean `root.research`"),
        ("--app", "train-2", "did you mean `train-1`"),
        ("--node", "node-x", "did you mean `node-a`"),
        ("--node", "zzz", "evenhand nodes"),
    ],
)
def test_a_filter_that_names_nothing_is_a_fault(option: str, value: str, near: str) -> None:
    empty = FakeCore(
        ListAllocations=inspect_pb2.ListAllocationsResponse(),
        GetQueueTree=inspect_pb2.GetQueueTreeResponse(tree=samples.queue_tree()),
        ListApplications=inspect_pb2.ListApplicationsResponse(applications=[samples.application()]),
        ListNodes=inspect_pb2.ListNodesResponse(nodes=[samples.node()]),
    )
    with running(empty) as core:
        ended = evenhand("allocations", option, value, "--core", core.address)
    assert (ended.code, ended.out) == (1, "")
    assert f"`{value}`" in ended.err
    assert near in ended.err


def test_nothing_in_a_queue_that_exists_is_an_answer() -> None:
    tree = inspect_pb2.GetQueueTreeResponse(tree=samples.queue_tree())
    none = inspect_pb2.ListApplicationsResponse()
    with running(FakeCore(ListApplications=none, GetQueueTree=tree)) as core:
        ended = evenhand("apps", "--queue", "root.adhoc", "--core", core.address)
    assert (ended.code, ended.out.splitlines()[-1]) == (
        0,
        "No application matches --queue root.adhoc.",
    )


def test_an_unknown_state_is_refused(core: FakeCore) -> None:
    ended = evenhand("apps", "--state", "runing", "--core", core.address)
    assert (ended.code, ended.out) == (2, "")
