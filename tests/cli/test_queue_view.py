"""The view of one queue and the table of settings, at 80 columns."""

from evenhand.v1 import inspect_pb2
from tests.cli import samples
from tests.cli.fake import FakeCore, running
from tests.cli.run import evenhand

WIDTH = 80


def test_a_queue_is_explained_with_numbers_settings_and_their_origin() -> None:
    with running(FakeCore(Explain=samples.explained_queue())) as core:
        ended = evenhand("explain", "root.research", "--core", core.address, width=WIDTH)
        value = evenhand("explain", "root.research", "--core", core.address, "-o", "json").value()
    lines = ended.out.splitlines()
    assert len(lines) <= 30
    assert max(map(len, lines)) <= WIDTH
    assert lines[0] == "root.research  queue  partition default"
    assert lines[1].strip() == "It is over its guarantee by 4 cores; 4 asks wait."
    assert ended.words("cores  ")[:4] == ["cores", "12", "8", "24"]
    assert "guaranteed              8 cores, 32 GiB memory  here" in ended.out
    assert "max                     no gpu" in ended.out
    assert "preemption.policy       fence" in ended.out
    assert "inherited from root.up; no" in ended.out
    assert "by default: weight 1" in ended.out
    assert value["queue"]["settings"][0]["amount"] == 8000
    assert value["queue"]["settings"][0]["origin"] == "here"


def settings_core(**rest: inspect_pb2.GetQueueTreeResponse) -> FakeCore:
    queues = [
        inspect_pb2.QueueSettings(path="root"),
        inspect_pb2.QueueSettings(path="root.research", settings=samples.queue_settings()),
    ]
    tree = inspect_pb2.GetQueueTreeResponse(tree=samples.queue_tree())
    listed = inspect_pb2.ListQueueSettingsResponse(queues=queues)
    return FakeCore(ListQueueSettings=listed, GetQueueTree=tree, **rest)


def test_settings_of_all_queues_are_listed_without_defaults() -> None:
    with running(settings_core()) as core:
        ended = evenhand("queues", "--settings", "--core", core.address, width=WIDTH)
        value = evenhand("queues", "--settings", "--core", core.address, "-o", "json").value()
    assert ended.words("root  ") == ["root", "all", "by", "default"]
    assert ended.words("preemption.policy") == ["preemption.policy", "fence", "here"]
    assert "weight" not in ended.out
    assert "submitacl" not in ended.out
    assert max(map(len, ended.out.splitlines())) <= WIDTH
    assert len(value["queues"][1]["settings"]) == len(samples.queue_settings())


def test_settings_of_a_queue_that_does_not_exist_name_the_nearest() -> None:
    with running(settings_core()) as core:
        ended = evenhand("queues", "root.reserch", "--settings", "--core", core.address)
        asked = evenhand("queues", "root.research", "--settings", "--core", core.address)
        assert asked.code == 0
        assert core.requests[-1] == inspect_pb2.ListQueueSettingsRequest(
            queue="root.research", page_size=1000
        )
    assert (ended.code, ended.out) == (1, "")
    assert "did you mean `root.research`?" in ended.err


def test_settings_and_unmet_do_not_go_together() -> None:
    with running(settings_core()) as core:
        ended = evenhand("queues", "--settings", "--unmet", "--core", core.address)
    assert ended.code == 2
    assert "--settings and --unmet cannot be combined" in ended.err


def queues_at(width: int, tree: inspect_pb2.QueueTree) -> str:
    answers = {
        "GetQueueTree": inspect_pb2.GetQueueTreeResponse(tree=tree),
        "ListPartitions": inspect_pb2.ListPartitionsResponse(partitions=[samples.partition()]),
    }
    with running(FakeCore(**answers)) as core:
        return evenhand("queues", "--core", core.address, width=width).out


def test_guarantee_and_reason_stay_in_a_narrow_terminal() -> None:
    header = queues_at(WIDTH, samples.queue_tree()).splitlines()[0]
    assert "guaranteed" in header
    assert "waits for" in header


def test_the_state_gives_way_first_when_all_queues_are_active() -> None:
    tree = samples.queue_tree()
    for one in tree.root.children:
        one.state = inspect_pb2.QUEUE_STATE_ACTIVE
        one.dynamic = False
    narrowest_with_all = next(
        width for width in range(80, 240) if "left out" not in queues_at(width, tree)
    )
    narrower = queues_at(narrowest_with_all - 1, tree)
    assert "left out: state (active everywhere);" in narrower
    tree.root.children[0].state = inspect_pb2.QUEUE_STATE_DRAINING
    assert "state" in queues_at(100, tree).splitlines()[0]


# Who opted out -------------------------------------------------------------------------------------------------


def protected_core() -> FakeCore:
    found = []
    for number, protection in enumerate(("normal", "normal", "firm", "untouchable")):
        one = samples.allocation(f"pod-{number}")
        one.protection = protection
        one.may_be_preempted = number != 1
        found.append(one)
    return FakeCore(ListAllocations=inspect_pb2.ListAllocationsResponse(allocations=found))


def test_allocations_show_and_filter_how_pods_are_protected() -> None:
    with running(protected_core()) as core:
        every_one = evenhand("allocations", "--core", core.address)
        opted = evenhand(
            "allocations", "--protection", "prefer-not", "--protection", "firm",
            "--core", core.address, width=WIDTH,
        )  # fmt: skip
        wrong = evenhand("allocations", "--protection", "prefer", "--core", core.address)
    assert every_one.words("pod-0")[-1] != "normal"
    assert every_one.words("pod-3")[-1] == "untouchable"
    assert "pod-0" not in opted.out
    assert [opted.words(f"pod-{number}")[-1] for number in (1, 2)] == ["prefer-not", "firm"]
    assert wrong.code == 2
    assert "did you mean `prefer-not`?" in wrong.err


# Where the configuration comes from ---------------------------------------------------------------------------


def test_version_names_the_file_and_when_it_was_read() -> None:
    info = inspect_pb2.ServerInfoResponse(
        version="1", config_source="file queues.yaml", config_digest="f" * 64
    )
    with running(FakeCore(ServerInfo=info)) as core:
        ended = evenhand("version", "--core", core.address)
    assert "from file queues.yaml, read at its start" in ended.out
