"""Reports agree with the state in amounts, counts, headroom and codes, and have pages in a fixed order."""

import pytest

from server.core.queries import inspect
from server.model.asks import Taint
from server.model.events import ConfigurationApplied, ManagerRegistered, SyncCompleted
from server.model.quota import QueueProperties, UserLimit
from server.model.reports import QueueReport
from tests.inspect.world import MANAGER, START, World, configuration, crowd, leaf, parent


def tree(world: World) -> dict[str, QueueReport]:
    found: dict[str, QueueReport] = {}
    rest = [inspect.queue_tree(world.core, "default")]
    while rest:
        one = rest.pop()
        found[one.path] = one
        rest += one.children
    return found


def codes(world: World) -> dict[str, str]:
    rows = inspect.allocations(world.core, "default", asks=True)
    return {one.key: one.code for one in rows if one.code}


# Partitions and managers ----------------------------------------------------------------------------------------


def test_a_partition_is_the_sum_of_what_is_in_it() -> None:
    (one,) = inspect.partitions(crowd().core)
    assert (one.name, one.node_sort, one.synced) == ("default", "fair", True)
    assert (one.nodes, one.schedulable_nodes, one.applications) == (4, 3, 4)
    assert (one.allocations, one.asks, one.foreign, one.reservations) == (10, 16, 3, 1)
    assert one.capacity == {"gpu": 6, "memory": 400, "vcore": 34}
    assert one.usage == {"gpu": 1, "vcore": 12}
    assert one.foreign_usage == {"vcore": 3}
    assert sum(one.waiting.values()) == one.asks
    assert next(iter(one.waiting.items())) == ("no-node", 4)


def test_the_totals_of_a_partition_are_those_of_its_root() -> None:
    core = crowd().core
    (one,) = inspect.partitions(core, counted=False)
    tree, count = inspect.queue_tree(core, "default"), 0
    below = [tree]
    while below:
        count += 1
        below += below.pop().children
    assert (one.promised, one.pending, one.queues) == (tree.promised, tree.pending, count)
    assert one.promised
    assert one.pending
    assert not one.waiting


def test_partitions_come_by_name_and_an_unknown_one_is_empty() -> None:
    core = World().core
    assert [one.name for one in inspect.partitions(core)] == ["default"]
    for listing in (inspect.applications, inspect.nodes, inspect.allocations):
        assert listing(core, "nowhere") == []
    with pytest.raises(KeyError):
        inspect.queue_tree(core, "nowhere")


def test_managers_show_whether_they_have_synced() -> None:
    world = World(explicit_sync=True)
    (one,) = inspect.managers(world.core)
    assert (one.rm_id, one.version, one.registered_ms) == (MANAGER, "1.0", START)
    assert (one.explicit_sync, one.synced) == (True, False)
    world.say(SyncCompleted(MANAGER))
    assert inspect.managers(world.core)[0].synced


# Queues ---------------------------------------------------------------------------------------------------------


def test_a_queue_shows_its_amounts_and_those_below_it() -> None:
    world = crowd()
    world.application("idle", "root.a")
    queues = tree(world)
    p, b, c = queues["root.p"], queues["root.p.b"], queues["root.p.c"]
    assert [one.path for one in p.children] == ["root.p.b", "root.p.c"]
    assert (p.leaf, b.leaf) == (False, True)
    assert p.usage == {"vcore": 6}
    assert p.promised == c.promised == {"vcore": 10}
    assert p.pending["vcore"] == b.pending["vcore"] + c.pending["vcore"]
    assert (p.applications, p.pending_asks, p.allocations) == (3, 11, 6)
    assert queues["root"].allocations == 10
    for path, queue in queues.items():
        listed = inspect.applications(world.core, "default", path)
        assert queue.applications == len(listed)
        assert queue.applications_waiting == sum(one.asks > 0 for one in listed)
    assert 0 < queues["root"].applications_waiting < queues["root"].applications
    assert queues["root.a"].releasing == {"vcore": 2}


def test_headroom_is_the_least_over_the_levels_and_never_negative() -> None:
    world = World(
        parent("p", leaf("c", max=(("gpu", 1), ("vcore", 50))), max=(("vcore", 5),)), leaf("free")
    )
    world.node("n1", vcore=100, extra={"gpu": 4})
    world.application("app", "root.p.c")
    assert tree(world)["root.p.c"].headroom == {"gpu": 1, "vcore": 5}
    assert tree(world)["root.free"].headroom == {}
    world.allocation("one", "n1", vcore=7)
    assert tree(world)["root.p.c"].headroom == {"gpu": 1, "vcore": 0}
    assert tree(world)["root.p"].max == {"vcore": 5}


@pytest.mark.parametrize(
    ("queue", "ppm"),
    [
        (leaf("a", guaranteed=(("vcore", 20),)), 150_000),
        (leaf("a", max=(("vcore", 9),)), 333_333),
        (leaf("a"), 30_000),
        (leaf("a", guaranteed=(("gpu", 1),), max=(("vcore", 0),)), -1),
    ],
    ids=["of the guarantee", "of the max", "of the partition", "of nothing"],
)
def test_share_is_measured_as_the_order_of_queues_does(queue: object, ppm: int) -> None:
    world = World(queue)  # type: ignore[arg-type]
    world.node("n1", vcore=100)
    world.application("app")
    world.allocation("one", "n1", vcore=3)
    assert tree(world)["root.a"].share_ppm == ppm


def test_limits_of_users_and_groups_have_the_usage_that_counts_against_them() -> None:
    named = UserLimit(users=("ann",), groups=("devs",), max_resources=(("vcore", 4),))
    others = UserLimit(users=("*",), max_resources=(("gpu", 2),), max_applications=3)
    world = World(leaf("a", limits=(named, others)), leaf("b"))
    world.node("n1", extra={"gpu": 4})
    world.application("one", user="ann", groups=("devs",))
    world.application("two", user="zoe")
    world.application("three", user="bob")
    world.application("four", "root.b", user="carl")
    world.ask("p", "one", vcore=3)
    world.ask("q", "two", extra={"gpu": 1})
    world.tick()
    found = inspect.user_limits(world.core, "default")
    assert list(found) == ["root.a"]
    assert [
        (one.kind, one.name, one.max, one.usage, one.max_applications, one.applications)
        for one in found["root.a"]
    ] == [
        ("user", "ann", {"vcore": 4}, {"vcore": 3}, 0, 1),
        ("group", "devs", {"vcore": 4}, {"vcore": 3}, 0, 1),
        ("user", "*", {"gpu": 2}, {}, 3, 0),
        ("user", "bob", {"gpu": 2}, {}, 3, 1),
        ("user", "zoe", {"gpu": 2}, {"gpu": 1, "vcore": 1}, 3, 1),
    ]
    world.release("p", "one")
    world.release("q", "two")
    assert [one.usage for one in inspect.user_limits(world.core, "default")["root.a"]] == [{}] * 5


def test_properties_are_those_in_force() -> None:
    own = QueueProperties(preemption_delay_ms=90_000, quota_delay_ms=300_000, priority_sort=False)
    raw = {"preemption.delay": "-1s", "comment": "x"}
    world = World(leaf("a", properties=own, raw_properties=raw, weight=3, max_applications=4))
    shown = tree(world)["root.a"]
    assert shown.properties["preemption.delay"] == "90s"
    assert shown.properties["quota.preemption.delay"] == "5m"
    assert shown.properties["application.sort.priority"] == "disabled"
    assert shown.properties["comment"] == "x"
    assert (shown.weight, shown.max_applications) == (3, 4)


def test_a_queue_that_is_gone_from_the_configuration_drains() -> None:
    world = World(leaf("a"), leaf("b"))
    world.application("app")
    world.say(ConfigurationApplied(configuration(leaf("b")), "test"))
    assert tree(world)["root.a"].state == "Draining"
    world.application("new", "root.made")
    assert not tree(world)["root.made"].managed


# Applications and nodes -----------------------------------------------------------------------------------------


def test_an_application_shows_who_and_how_much() -> None:
    world = crowd()
    first, *_ = inspect.applications(world.core, "default")
    assert (first.application_id, first.queue, first.user) == ("app", "root.a", "ann")
    assert (first.groups, first.state, first.rm_id) == (("devs",), "Running", MANAGER)
    assert (first.asks, first.allocations, first.submitted_ms) == (5, 4, START)
    assert first.usage == {"gpu": 1, "vcore": 6}
    assert first.pending == {"gpu": 2, "vcore": 6}


def test_applications_are_listed_by_queue_with_all_below() -> None:
    core = crowd().core
    names = [one.application_id for one in inspect.applications(core, "default")]
    assert names == ["app", "fair", "other", "deep"]
    below = [one.application_id for one in inspect.applications(core, "default", "root.p")]
    assert below == ["fair", "other", "deep"]
    assert inspect.applications(core, "default", "root.nowhere") == []
    (second,) = inspect.applications(core, "default", start=1, size=1)
    assert second.application_id == "fair"


def test_a_node_shows_what_uses_its_capacity() -> None:
    world = crowd()
    world.node("n5", taints=(Taint("b", "", "NoSchedule"), Taint("a", "x", "NoExecute")))
    found = {one.node_id: one for one in inspect.nodes(world.core, "default")}
    held = found["n2"]
    assert held.reserved_for == ("held-1",)
    assert held.pledged == {"vcore": 10}
    assert held.foreign == {"vcore": 1}
    assert held.free["vcore"] == 10 - held.usage["vcore"] - 1 - 10
    assert held.labels == {"zone": "z2"}
    assert not found["n4"].schedulable
    assert found["n5"].taints == ("a=x:NoExecute", "b:NoSchedule")
    assert [one.node_id for one in inspect.nodes(world.core, "default", start=3)] == ["n4", "n5"]


# Allocations ----------------------------------------------------------------------------------------------------


def test_allocations_are_those_that_were_asked_for() -> None:
    core = crowd().core

    def keys(**chosen: object) -> set[str]:
        return {one.key for one in inspect.allocations(core, "default", **chosen)}  # type: ignore[arg-type]

    everything = keys()
    assert {"run-1", "port-1", "alien-1"} <= everything
    assert "full-1" not in everything
    assert "full-1" in keys(asks=True)
    assert keys(queue="root.a") == {"run-1", "run-2", "run-3", "gpu-1"}
    assert keys(application_id="fair") == {"zone-1", "zone-2", "zone-3"}
    assert keys(application_id="fair", queue="root.a") == set()
    assert keys(application_id="nobody") == set()
    on_node = keys(node_id="n1")
    assert "alien-1" in on_node
    assert keys(node_id="n1", queue="root.p") == {one for one in on_node if one[0] in "pz"}
    assert keys(node_id="nowhere") == set()


def test_pages_together_are_the_whole() -> None:
    core = crowd().core
    whole = inspect.allocations(core, "default", asks=True)
    pages = [
        inspect.allocations(core, "default", asks=True, start=at, size=4)
        for at in range(0, len(whole), 4)
    ]
    assert [one for page in pages for one in page] == whole
    assert len({one.key for one in whole}) == len(whole) == 29


def test_an_allocation_and_an_ask_show_what_they_are() -> None:
    world = crowd()
    rows = {one.key: one for one in inspect.allocations(world.core, "default", asks=True)}
    ran, waits, alien = rows["run-1"], rows["gang-1"], rows["alien-1"]
    assert ran.releasing
    assert (ran.placed_ms, ran.code, ran.waiting_since_ms) == (START, "", 0)
    assert ran.resource == {"vcore": 2}
    assert (waits.node_id, waits.code, waits.gang_key) == ("", "gang-partial", "gang")
    assert waits.waiting_since_ms == START
    assert (rows["held-1"].node_id, rows["held-1"].pledged) == ("", True)
    assert [one.pledged for one in (ran, waits, alien)] == [False] * 3
    assert (alien.foreign, alien.application_id, alien.queue) == (True, "", "")


# Codes ----------------------------------------------------------------------------------------------------------


def test_every_ask_has_the_first_thing_that_is_in_its_way() -> None:
    found = codes(crowd())
    assert {key.partition("-")[0]: code for key, code in found.items()} == {
        "full": "queue-limit",
        "gpu": "user-limit",
        "huge": "no-node-capacity",
        "port": "no-node",
        "crew": "gang-gathering",
        "gang": "gang-partial",
        "held": "no-node",
        "back": "no-node",
    }


def test_codes_of_the_whole_partition_come_first() -> None:
    world = World(leaf("a"), explicit_sync=True)
    world.node("n1")
    world.application("app")
    world.ask("one")
    assert codes(world) == {"one": "not-synced"}
    world.say(SyncCompleted(MANAGER))
    assert codes(world) == {"one": "not-tried"}
    world.partition.retired = True
    assert codes(world) == {"one": "queue-stopped"}


def test_nodes_are_none_or_closed_to_it() -> None:
    world = World(leaf("a"))
    world.application("app")
    world.ask("one")
    world.tick()
    assert codes(world) == {"one": "no-nodes"}
    world.node("n1", taints=(Taint("only", "", "NoSchedule"),))
    world.tick()
    assert codes(world) == {"one": "no-node-constraints"}


def test_a_second_registration_leaves_nothing_to_report() -> None:
    world = crowd()
    world.say(ManagerRegistered(MANAGER))
    (one,) = inspect.partitions(world.core)
    assert (one.nodes, one.applications, one.asks, one.allocations, one.foreign) == (0,) * 5
    world.core.validate()
