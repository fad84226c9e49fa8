"""The options of all listings: output forms, order, filters, a width of 80 columns, and repetition after changes."""

import json

import grpc
import pytest
import yaml

from evenhand.v1 import decisions_pb2, inspect_pb2, watch_pb2
from tests.cli import samples
from tests.cli.fake import Failure, FakeCore, Turns, running
from tests.cli.run import Ended, evenhand

WIDTH = 80
LEAVES = Failure(grpc.StatusCode.UNAVAILABLE, "Connection refused")


def pod(name: str, queue: str = "root.research", **tags: str) -> inspect_pb2.Allocation:
    namespace, _, pod_name = name.partition("/")
    found = samples.allocation(f"uid-of-{pod_name}")
    found.queue = queue
    found.tags.update(
        {"kubernetes.io/meta/namespace": namespace, "kubernetes.io/meta/podName": pod_name}
    )
    found.tags.update({f"kubernetes.io/label/{key}": value for key, value in tags.items()})
    return found


def waiting(name: str, code: str) -> inspect_pb2.Allocation:
    found = pod(name)
    found.state, found.node_id = inspect_pb2.ALLOCATION_STATE_WAITING, ""
    found.waiting_code, found.priority = code, 100
    return found


def test_what_is_alike_is_shown_together() -> None:
    pods = [pod(f"lab/p-{at:02}", cpu="1") for at in range(40)]
    pods += [waiting("lab/w-0", "no-node")]
    listed = inspect_pb2.ListAllocationsResponse(allocations=pods)
    with running(FakeCore(ListAllocations=listed)) as core:
        asked = ("allocations", "--asks", "--summary", "--core", core.address)
        brief = evenhand(*asked, width=WIDTH).out
        wide = evenhand(*asked, "--output", "wide").out
        bare = evenhand(*asked, "--no-headers", width=WIDTH).out
    assert "root.research  40 pods, allocated: " in brief
    assert "lab/p-29 and 10 more: --output wide" in " ".join(brief.split())
    assert "root.research  1 pod, waiting (no-node): " in brief
    assert brief.endswith("41 rows, 1 of them waiting\n")
    assert "lab/p-39" in wide
    assert bare + "41 rows, 1 of them waiting\n" == brief


def test_an_ask_with_kept_capacity_counts_as_waiting() -> None:
    pods = [pod("lab/p-0"), waiting("lab/w-0", "no-node"), waiting("lab/k-0", "no-node")]
    pods[2].state = inspect_pb2.ALLOCATION_STATE_PLEDGED
    listed = inspect_pb2.ListAllocationsResponse(allocations=pods)
    with running(FakeCore(ListAllocations=listed)) as core:
        both = evenhand("allocations", "--asks", "--core", core.address, width=WIDTH).out
        asks = evenhand("allocations", "--waiting", "--core", core.address, width=WIDTH).out
        kept = evenhand("allocations", "--state", "pledged", "--core", core.address).out
    assert both.endswith("3 rows, 2 of them waiting\n")
    assert asks.endswith("2 waiting asks\n")
    assert "lab/k-0" in kept
    assert "lab/w-0" not in kept


def node(name: str, cores: float, *, zone: str = "a", ready: bool = True) -> inspect_pb2.Node:
    found = samples.node()
    found.node_id, found.schedulable = name, ready
    found.usage["vcore"] = int(cores * 1000)
    found.labels["zone"] = zone
    return found


def application(name: str, user: str, asks: int, namespace: str) -> inspect_pb2.Application:
    found = samples.application()
    found.application_id, found.user, found.asks_waiting = name, user, asks
    found.tags["namespace"] = namespace
    if not asks:
        del found.waiting_reasons[:]
    return found


PODS = [
    pod("science/train-1", team="vision"),
    pod("science/train-10", team="nlp"),
    pod("shop/front-2", "root.production.web", team="web", tier="front"),
    waiting("science/train-2", "no-node-capacity"),
    waiting("shop/front-3", "queue-limit"),
]
PODS[2].application_id = "front"
NODES = [node("gpu-2", 7.5), node("gpu-10", 2, zone="b"), node("cpu-1", 15.5, ready=False)]
APPLICATIONS = [
    application("train-1", "ada", 4, "science"),
    application("front", "bob", 0, "shop"),
]
TREE = samples.queue_tree()


@pytest.fixture(scope="module")
def core():  # type: ignore[no-untyped-def]  # noqa: ANN201
    prepared = FakeCore(
        ListAllocations=inspect_pb2.ListAllocationsResponse(allocations=PODS),
        ListNodes=inspect_pb2.ListNodesResponse(nodes=NODES),
        ListApplications=inspect_pb2.ListApplicationsResponse(applications=APPLICATIONS),
        ListPartitions=inspect_pb2.ListPartitionsResponse(partitions=[samples.partition()]),
        GetQueueTree=inspect_pb2.GetQueueTreeResponse(tree=TREE),
    )
    with running(prepared) as started:
        yield started


def look(core: FakeCore, *arguments: str, width: int = 200) -> Ended:
    return evenhand(*arguments, "--core", core.address, width=width)


def names(core: FakeCore, *arguments: str) -> list[str]:
    ended = look(core, *arguments, "--output", "name")
    assert (ended.code, ended.err) == (0, "")
    return ended.out.splitlines()


# Forms ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", ["partitions", "apps", "nodes", "allocations", "queues", "doctor"]
)
def test_yaml_says_what_json_says(command: str) -> None:
    answers = FakeCore(
        ListAllocations=inspect_pb2.ListAllocationsResponse(allocations=PODS),
        ListNodes=inspect_pb2.ListNodesResponse(nodes=NODES),
        ListApplications=inspect_pb2.ListApplicationsResponse(applications=APPLICATIONS),
        ListPartitions=inspect_pb2.ListPartitionsResponse(partitions=[samples.partition()]),
        GetQueueTree=inspect_pb2.GetQueueTreeResponse(tree=TREE),
        CheckConsistency=inspect_pb2.CheckConsistencyResponse(checks=["usage"]),
    )
    with running(answers) as core:
        as_json = look(core, command, "-o", "json").value()
        assert yaml.safe_load(look(core, command, "-o", "yaml").out) == as_json


def test_names_are_one_a_line(core: FakeCore) -> None:
    assert names(core, "partitions") == ["default"]
    assert names(core, "queues") == ["root", "root.adhoc", "root.research"]
    assert names(core, "nodes") == ["gpu-2", "gpu-10", "cpu-1"]
    assert names(core, "apps") == ["train-1", "front"]
    assert names(core, "allocations")[:2] == ["science/train-1", "science/train-10"]


def test_what_is_no_listing_has_no_names() -> None:
    with running(FakeCore(CheckConsistency=inspect_pb2.CheckConsistencyResponse())) as core:
        ended = look(core, "doctor", "-o", "name")
    assert (ended.code, ended.out) == (2, "")
    assert "no names" in ended.err


def test_wide_shows_every_column_at_any_width(core: FakeCore) -> None:
    narrow = look(core, "allocations", width=60).out
    wide = look(core, "allocations", "--output", "wide", width=60).out
    assert "left out: " in narrow
    assert "left out" not in wide
    assert {"key", "application", "priority", "resources"} <= set(wide.split())


def test_without_headers_only_rows_are_left(core: FakeCore) -> None:
    ended = look(core, "nodes", "--no-headers", width=60)
    assert [line.split()[0] for line in ended.out.splitlines()] == ["gpu-2", "gpu-10", "cpu-1"]
    rows = look(core, "partitions", "--no-headers").out.splitlines()
    assert rows[0].split()[:2] == ["default", "fair"]
    assert "guarantee" not in look(core, "queues", "--no-headers").out


# Order ----------------------------------------------------------------------------------------------------------


def test_rows_are_sorted_by_what_stands_behind_a_column(core: FakeCore) -> None:
    assert names(core, "nodes", "--sort-by", "node") == ["cpu-1", "gpu-2", "gpu-10"]
    assert names(core, "nodes", "--sort-by", "cores") == ["gpu-10", "gpu-2", "cpu-1"]
    assert names(core, "nodes", "--sort-by", "-cores") == ["cpu-1", "gpu-2", "gpu-10"]
    assert names(core, "apps", "--sort-by", "waiting") == ["front", "train-1"]
    by_reason = names(core, "allocations", "--waiting", "--sort-by", "-waits-for")
    assert by_reason == ["shop/front-3", "science/train-2"]
    value = look(core, "nodes", "--sort-by", "cores", "-o", "json").value()
    assert [one["node_id"] for one in value["nodes"]] == ["gpu-10", "gpu-2", "cpu-1"]


def test_queues_are_sorted_below_their_parent(core: FakeCore) -> None:
    assert names(core, "queues", "--sort-by", "-running") == ["root", "root.research", "root.adhoc"]


def test_a_column_that_does_not_exist_is_a_fault(core: FakeCore) -> None:
    ended = look(core, "apps", "--sort-by", "waitng")
    assert (ended.code, ended.out) == (2, "")
    assert "did you mean `waiting`" in ended.err
    assert look(core, "queues", "--sort-by", "nothing").code == 2


# Filters --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (("--waiting",), ["science/train-2", "shop/front-3"]),
        (("--reason", "queue-limit"), ["shop/front-3"]),
        (("--namespace", "shop"), ["shop/front-2", "shop/front-3"]),
        (("-n", "shop", "--state", "allocated"), ["shop/front-2"]),
        (("--user", "bob"), ["shop/front-2"]),
        (("--label", "team=vision"), ["science/train-1"]),
        (("-l", "team=web", "-l", "tier"), ["shop/front-2"]),
        (("--priority", "100"), ["science/train-2", "shop/front-3"]),
        (("--priority", "..99"), ["science/train-1", "science/train-10", "shop/front-2"]),
        (("--priority", "11..100", "-n", "shop"), ["shop/front-3"]),
    ],
)
def test_allocations_are_filtered(
    core: FakeCore, options: tuple[str, ...], found: list[str]
) -> None:
    assert names(core, "allocations", *options) == found


def test_a_reason_that_does_not_exist_is_a_fault(core: FakeCore) -> None:
    for command in ("apps", "allocations"):
        ended = look(core, command, "--reason", "no-nod")
        assert (ended.code, ended.out) == (1, "")
        assert "there is no reason `no-nod`" in ended.err
        assert "`no-node`" in ended.err
    assert look(core, "apps", "--reason", "gang-gathering").code == 0


@pytest.mark.parametrize(
    ("option", "count"),
    [(("--waiting",), "2 waiting asks"), (("--reason", "queue-limit"), "1 waiting ask")],
)
def test_waiting_asks_are_asked_for_and_counted(
    core: FakeCore, option: tuple[str, ...], count: str
) -> None:
    ended = look(core, "allocations", *option)
    assert ended.out.splitlines()[-1] == count
    asked = [one for one in core.requests if isinstance(one, inspect_pb2.ListAllocationsRequest)]
    assert asked[-1].include_asks


def test_applications_and_nodes_are_filtered(core: FakeCore) -> None:
    assert names(core, "apps", "--waiting") == ["train-1"]
    assert names(core, "apps", "--reason", "no-node") == ["train-1"]
    assert names(core, "apps", "--user", "bob") == ["front"]
    assert names(core, "apps", "-n", "science") == ["train-1"]
    assert names(core, "nodes", "--label", "zone=b") == ["gpu-10"]
    assert names(core, "nodes", "--state", "draining") == ["cpu-1"]
    assert names(core, "nodes", "gpu-10") == ["gpu-10"]
    assert names(core, "queues", "--waiting") == ["root", "root.research"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("allocations", "-n", "sciense"), "did you mean `science`"),
        (("allocations", "-n", "gpu-10"), "a node is named by --node gpu-10"),
        (("allocations", "--user", "ad"), "did you mean `ada`"),
        (("nodes", "gpu-11"), "did you mean `gpu-10`"),
    ],
)
def test_a_name_that_does_not_exist_is_a_fault(
    core: FakeCore, arguments: tuple[str, ...], words: str
) -> None:
    ended = look(core, *arguments)
    assert (ended.code, ended.out) == (1, "")
    assert words in ended.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("allocations", "--state", "runing"),
        ("nodes", "--state", "down"),
        ("allocations", "--priority", "high"),
        ("allocations", "--priority", ".."),
        ("allocations", "--label", "=x"),
    ],
)
def test_a_filter_that_cannot_be_read_is_a_wrong_command_line(
    core: FakeCore, arguments: tuple[str, ...]
) -> None:
    ended = look(core, *arguments)
    assert (ended.code, ended.out) == (2, "")


# Columns --------------------------------------------------------------------------------------------------------


def narrow(ended: Ended) -> list[str]:
    lines = ended.out.splitlines()
    assert all(len(line) <= WIDTH for line in lines), ended.out
    return lines


def test_queues_keep_guaranteed_and_what_they_wait_for() -> None:
    tree = samples.queue_tree()
    research = tree.root.children[1]
    research.name, research.path = "training-and-inference", "root.training-and-inference"
    del research.waiting_reasons[:]
    research.waiting_reasons.add(code="no-node-capacity", count=40)
    research.waiting_reasons.add(code="queue-limit", count=3)
    tree.root.children[0].state = inspect_pb2.QUEUE_STATE_ACTIVE
    answers = FakeCore(
        ListPartitions=inspect_pb2.ListPartitionsResponse(partitions=[samples.partition()]),
        GetQueueTree=inspect_pb2.GetQueueTreeResponse(tree=tree),
    )
    with running(answers) as core:
        lines = narrow(look(core, "queues", width=WIDTH))
    assert {"queue", "type", "used", "guaranteed", "waits"} <= set(lines[0].split())
    assert "no-node-capacity" in "".join(lines)
    assert "state (active everywhere)" in " ".join(" ".join(lines).split())


def test_applications_keep_what_they_wait_for() -> None:
    long = application("science/train-vision-large", "ada", 12, "science")
    long.queue = "root.research.training"
    short = application("front", "ada", 0, "shop")
    listed = inspect_pb2.ListApplicationsResponse(applications=[long, short])
    with running(FakeCore(ListApplications=listed)) as core:
        lines = narrow(look(core, "apps", width=WIDTH))
    assert lines[0].split()[-2:] == ["waits", "for"]
    assert lines[1].endswith("4 no-node")


def long_decision() -> decisions_pb2.Decision:
    one = decisions_pb2.Decision(
        decision_id="g-19aa1b2c3d4-17",
        policy="required-node",
        at_ms=samples.T0,
        state=decisions_pb2.DECISION_STATE_FULFILLED,
    )
    asker = one.beneficiaries.add(name="science/train-nlp-large-model-worker-0-5qr44lgbb")
    asker.queue, asker.node_id = "root.research.training", "gpu-1"
    one.victims.add(name="batch/etl-1", queue="root.batch.etl-nightly", node_id="gpu-1")
    return one


def listed_decisions(*found: decisions_pb2.Decision, width: int = WIDTH, form: str = "") -> Ended:
    listed = decisions_pb2.ListDecisionsResponse(decisions=found, taken_at_ms=samples.T0)
    output = ("--output", form) if form else ()
    with running(FakeCore(ListDecisions=listed)) as core:
        return look(core, "decisions", *output, width=width)


def test_decisions_keep_whom_they_are_for_the_victims_and_the_state() -> None:
    lines = narrow(listed_decisions(long_decision()))
    assert lines[0].split() == ["decision", "policy", "for", "victims", "state"]
    assert lines[1].split() == [
        "g-19aa1b2c3d4-17",
        "required-node",
        "science/train…r-0-5qr44lgbb",
        "1",
        "fulfilled",
    ]
    told = " ".join(lines[2:])
    assert "left out: age, queue, node, of; long names are shortened; --output wide" in told


def test_a_quota_run_says_whose_max_it_is_without_its_queue() -> None:
    one = decisions_pb2.Decision(decision_id="q-19aa1b2c3d4-17", policy="quota")
    one.quota_run.queue = "root.batch.adhoc"
    assert "max of root.batch.adhoc" in listed_decisions(one).out
    one.policy = "trim"
    assert "shares below root.batch.adhoc" in listed_decisions(one).out


def test_several_asks_say_of_which_queue_they_are() -> None:
    one = long_decision()
    one.beneficiaries.add(name="science/train-1", queue="root.research.training")
    assert "2 asks of root.research.training" in listed_decisions(one, width=90).out


def test_wide_output_shows_long_names_whole() -> None:
    out = listed_decisions(long_decision(), form="wide").out
    assert "science/train-nlp-large-model-worker-0-5qr44lgbb  root.research.training" in out
    assert "…" not in out
    assert "shortened" not in out


def test_the_shadow_keeps_both_sides() -> None:
    choice = decisions_pb2.ShadowChoice(node_id="gpu-1")
    choice.victims.add(name="batch/etl-nightly-00001")
    one = decisions_pb2.ShadowDecision(
        name="science/train-nlp-0",
        queue="root.research.training",
        live=choice,
        shadow=choice,
        at_ms=samples.T0,
        difference=decisions_pb2.SHADOW_DIFFERENCE_SAME,
    )
    listed = decisions_pb2.ListShadowDecisionsResponse(
        decisions=[one],
        shadows=[decisions_pb2.Shadow(partition="default", since_ms=samples.T0)],
        taken_at_ms=samples.T0,
    )
    with running(FakeCore(ListShadowDecisions=listed)) as core:
        lines = narrow(look(core, "decisions", "--shadow", width=WIDTH))
    assert {"ask", "live", "shadow", "difference"} <= set(lines[0].split())


def test_a_bar_is_whole_or_not_there() -> None:
    one = samples.partition()
    one.name, one.counts.allocations = "production-cluster-of-the-company", 1_234_567
    listed = inspect_pb2.ListPartitionsResponse(partitions=[one])
    with running(FakeCore(ListPartitions=listed)) as core:
        lines = narrow(look(core, "partitions", width=WIDTH))
        wide = look(core, "partitions", width=140).out.splitlines()
    assert not any(sign in "".join(lines) for sign in "█░")
    assert {"partition", "running", "waiting", "used/capacity"} <= set(lines[0].split())
    assert sum(sign in "█░" for sign in wide[1]) == 10


# Repeated pictures ----------------------------------------------------------------------------------------------


def one_node(usage: float) -> inspect_pb2.ListNodesResponse:
    return inspect_pb2.ListNodesResponse(nodes=[node("gpu-2", usage)])


def watched(*arguments: str) -> Ended:
    turns = Turns(one_node(1), one_node(1), one_node(2), LEAVES)
    with running(FakeCore(ListNodes=turns)) as core:
        return look(core, "nodes", "--watch", "--interval", "0.1", *arguments)


def test_a_watched_listing_is_written_again_when_it_has_changed() -> None:
    ended = watched("--no-headers")
    assert ended.code == 3
    assert [line.split()[3] for line in ended.out.splitlines() if line] == ["1.5/16", "2.5/16"]
    assert "cannot reach the core" in ended.err


def test_a_watched_listing_as_data_is_a_line_or_a_document_each() -> None:
    lines = [json.loads(line) for line in watched("-o", "json").out.splitlines()]
    assert [one["nodes"][0]["usage"]["vcore"] for one in lines] == [1000, 2000]
    assert list(yaml.safe_load_all(watched("-o", "yaml").out)) == lines
    assert watched("-o", "name").out.split() == ["gpu-2", "gpu-2"]


def test_queues_are_watched_in_a_pipe() -> None:
    tree, later = samples.queue_tree(), samples.queue_tree()
    later.root.children[1].asks_waiting = 5
    summary = samples.partition()
    stream = [watch_pb2.WatchQueuesResponse(tree=one, summary=summary) for one in (tree, later)]
    with running(FakeCore(WatchQueues=stream)) as core:
        ended = look(core, "queues", "root.research", "--watch")
        as_json = look(core, "queues", "root.research", "--watch", "-o", "json")
    assert ended.code == 3
    pictures = [line for line in ended.out.splitlines() if line.startswith("research")]
    assert [one.split()[-4:-2] for one in pictures] == [["4", "active"], ["5", "active"]]
    assert [json.loads(line)["root"]["asks_waiting"] for line in as_json.out.splitlines()] == [4, 5]


def test_a_report_is_no_listing(core: FakeCore) -> None:
    assert look(core, "queues", "--unmet", "--sort-by", "queue").code == 2
    assert look(core, "decisions", "--follow", "--sort-by", "age").code == 2
    assert look(core, "decisions", "--lost-work", "--watch").code == 2


# Nothing to list ------------------------------------------------------------------------------------------------

EMPTY = FakeCore(
    ListNodes=inspect_pb2.ListNodesResponse(),
    ListAllocations=inspect_pb2.ListAllocationsResponse(),
    ListApplications=inspect_pb2.ListApplicationsResponse(),
    ListDecisions=decisions_pb2.ListDecisionsResponse(),
)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("nodes", "No nodes yet; a resource manager registers them: evenhand shim."),
        ("nodes --label x=y --label z --state ready", "No node matches --label x=y --label z --state ready."),
        ("apps", "No applications yet."),
        ("apps --waiting", "No application matches --waiting."),
        ("allocations --priority 0..9", "No allocation matches --priority 0..9."),
        ("decisions", "No decisions yet; evenhand explain POD says why a pod waits."),
        ("decisions --open --policy trim", "No decision matches --policy trim --open."),
    ],
)  # fmt: skip
def test_an_empty_listing_is_one_sentence(arguments: str, sentence: str) -> None:
    with running(EMPTY) as core:
        ended = look(core, *arguments.split())
        bare = look(core, *arguments.split(), "--no-headers")
        value = look(core, *arguments.split(), "-o", "json").value()
    assert (ended.code, ended.out, bare.code, bare.out) == (0, f"{sentence}\n", 0, "")
    assert next(iter(value.values())) == []


@pytest.mark.parametrize(("width", "has_legend"), [(60, False), (200, True)])
def test_the_bars_are_explained_where_there_are_bars(width: int, has_legend: object) -> None:
    answers = FakeCore(
        ListPartitions=inspect_pb2.ListPartitionsResponse(partitions=[samples.partition()]),
        GetQueueTree=inspect_pb2.GetQueueTreeResponse(tree=samples.queue_tree()),
    )
    with running(answers) as core:
        out = look(core, "queues", width=width).out
    assert ("bar:" in out) is has_legend
    assert ("░" in out) is has_legend


def test_a_tree_in_which_nothing_waits_is_one_sentence() -> None:
    tree = samples.queue_tree()
    for one in (tree.root, *tree.root.children):
        one.asks_waiting = 0
    answers = FakeCore(
        ListPartitions=inspect_pb2.ListPartitionsResponse(partitions=[samples.partition()]),
        GetQueueTree=inspect_pb2.GetQueueTreeResponse(tree=tree),
    )
    with running(answers) as core:
        assert look(core, "queues", "--waiting").out == "Nothing waits in root.\n"
        assert look(core, "queues", "--waiting", "--no-headers").out == ""
