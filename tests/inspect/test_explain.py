"""Explanations name the first rule that fails, the facts about the others, and say so in sentences."""

from dataclasses import replace
from typing import Any

import pytest

from server.core.queries import inspect, next_steps
from server.model.asks import Constraints, HostPort, Operator, Requirement, Taint, Term
from server.model.decisions import Termination
from server.model.events import NodeDrained, SyncCompleted
from server.model.quota import QueueProperties, UserLimit
from server.model.reports import Explanation
from tests.inspect.world import MANAGER, World, crowd, leaf, parent, pledge


def explain(world: World, key: str, partition: str = "") -> Explanation:
    found = inspect.explain(world.core, key, world.now, partition)
    assert found.lines[0] == found.summary
    assert all(line.endswith(".") and line[0].isupper() for line in found.lines)
    return found


def said(found: Explanation, text: str) -> bool:
    return any(text in line for line in found.lines)


# The first rule that fails --------------------------------------------------------------------------------------


def test_nothing_is_placed_before_the_sync() -> None:
    world = World(leaf("a"), explicit_sync=True)
    world.node("n1")
    world.application("app")
    world.ask("one")
    world.wait(12_000)
    found = explain(world, "one")
    assert (found.kind, found.code, found.partition) == ("ask", "not-synced", "default")
    assert found.summary.startswith("It has waited 12 s: nothing is placed before")
    assert said(found, MANAGER)
    world.say(SyncCompleted(MANAGER))
    assert explain(world, "one").code == "not-tried"
    assert said(explain(world, "one"), "the next tick tries it")


def test_a_stopped_partition_places_nothing() -> None:
    world = World(leaf("a"))
    world.application("app")
    world.ask("one")
    world.partition.retired = True
    assert explain(world, "one").code == "queue-stopped"
    assert said(explain(world, "one"), "queue root.a is stopped")


def test_a_job_gathers_its_members() -> None:
    found = explain(crowd(), "crew-1")
    assert found.code == "gang-gathering"
    assert said(found, "1 of 9 members of gang crew is there")


def test_a_job_without_a_size_says_when_it_is_whole() -> None:
    world = World(leaf("a"))
    world.node("n1")
    world.application("app")
    world.ask("one", gang_key="brood")
    world.wait(1_000)
    world.ask("two", gang_key="brood")
    world.wait(900)
    found = explain(world, "one")
    assert found.code == "gang-counting"
    assert said(found, "gang brood gathers, 2 members so far, and is whole in 1 s unless")


def test_a_job_that_does_not_fit_whole_names_the_limit_that_it_lacks() -> None:
    world = World(leaf("a", max=(("vcore", 5),)))
    world.node("n1", vcore=100)
    world.application("app")
    for number in range(3):
        world.ask(f"m-{number}", vcore=2, gang_key="job", min_members=3)
    world.tick()
    found = explain(world, "m-0")
    assert found.code == "gang-partial"
    assert found.brief.endswith(
        "the 3 waiting members of gang job do not fit together, and a gang is placed whole or not at all."
    )
    assert found.summary.endswith(
        "2 of the 3 waiting members of gang job fit now; queue root.a has headroom for 2 of the 3 "
        "and lacks 0.001 cores for all."
    )
    assert found.levels[0].short == ("vcore",)


def test_each_level_shows_its_headroom_and_the_lowest_without_it_is_named() -> None:
    limits = parent("p", leaf("c", max=(("vcore", 6),)), max=(("gpu", 1), ("vcore", 4)))
    world = World(limits)
    world.node("n1", vcore=100, extra={"gpu": 9})
    world.application("app", "root.p.c")
    world.ask("one", vcore=3, extra={"gpu": 1})
    world.tick()
    world.ask("two", vcore=2, extra={"gpu": 1})
    world.tick()
    found = explain(world, "two")
    assert found.code == "queue-limit"
    assert said(found, "queue root.p has no headroom for it and lacks 0.001 cores and 1 gpu")
    low, middle, root = found.levels
    assert (low.path, low.headroom, low.short) == ("root.p.c", {"vcore": 3}, ())
    assert (middle.max, middle.usage) == ({"gpu": 1, "vcore": 4}, {"gpu": 1, "vcore": 3})
    assert (middle.headroom, middle.short) == ({"gpu": 0, "vcore": 1}, ("gpu", "vcore"))
    assert (root.path, root.max, root.short) == ("root", {}, ())
    world.ask("three", vcore=9)
    assert explain(world, "three").levels[0].short == ("vcore",)
    assert said(
        explain(world, "three"), "Queue root.p has no headroom for it and lacks 0.008 cores"
    )


@pytest.mark.parametrize(
    ("limit", "code", "subject"),
    [
        (UserLimit(users=("ann",), max_resources=(("vcore", 1),)), "user-limit", "user ann"),
        (UserLimit(groups=("devs",), max_resources=(("vcore", 1),)), "group-limit", "group devs"),
    ],
)
def test_a_user_or_group_has_used_up_its_limit(limit: UserLimit, code: str, subject: str) -> None:
    world = World(leaf("a", limits=(limit,)))
    world.node("n1")
    world.application("app", user="ann", groups=("devs",))
    world.ask("one")
    world.ask("two")
    world.tick()
    found = explain(world, "two")
    assert found.code == code
    assert said(found, f"{subject} in queue root.a has no headroom for it")
    (row,) = found.limits
    assert (row.queue, f"{row.kind} {row.name}") == ("root.a", subject)
    assert (row.max, row.usage, row.headroom) == ({"vcore": 1}, {"vcore": 1}, {"vcore": 0})
    assert row.short == ("vcore",)
    assert said(found, "Were there headroom, of 1 node: 1 with free capacity for it now.")


# Nodes ----------------------------------------------------------------------------------------------------------

ZONE = Requirement("zone", Operator.IN, ("z1",))
SSD = Requirement("disk", Operator.IN, ("ssd",))
CONSTRAINTS = [
    (Constraints(node_selector=(("zone", "z1"),)), "node-selector"),
    (Constraints(required_terms=(Term(match_expressions=(SSD,)),)), "node-affinity"),
    (Constraints(node_name="n9"), "node-name"),
    (Constraints(excluded_nodes=("n1",)), "node-name"),
]


@pytest.mark.parametrize(("constraints", "part"), CONSTRAINTS)
def test_the_part_of_a_constraint_that_keeps_it_off_is_named(
    constraints: Constraints, part: str
) -> None:
    world = World(leaf("a"))
    world.node("n1")
    world.application("app")
    world.ask("one", constraints=constraints)
    world.tick()
    found = explain(world, "one")
    assert (found.code, found.tally) == ("no-node-constraints", {part: 1})
    assert "its constraints allow none of the 1 node" in found.brief
    only = "node n9, the only one it may run on, is not known"
    assert (only if constraints.node_name else "its constraints allow none") in found.summary
    assert found.nearest == ""


def test_a_pod_that_requires_a_node_hears_of_that_node_first() -> None:
    """A DaemonSet's pod has one node: what the others have does not matter to it."""
    world = World(leaf("a"))
    world.node("n1", vcore=10)
    world.node("n2", vcore=50)
    world.node("n3", vcore=50)
    world.node("n4", taints=(Taint("only", "gpu", "NoSchedule"),))
    world.application("app")
    world.allocation("a1", "n1", vcore=7, priority=9)
    world.allocation("a3", "n3", vcore=47)
    for node, vcore in (("n1", 8), ("n2", 60), ("n3", 8), ("n4", 1)):
        world.ask(f"agent-{node}", vcore=vcore, constraints=Constraints(required_node=node))
    world.tick()
    only = "the only one it may run on,"
    for node, text in (
        ("n1", f"node n1, {only} lacks 0.005 cores."),
        ("n2", f"node n2, {only} lacks 0.01 cores, also when nothing else runs there."),
        ("n3", f"node n3, {only} is kept for it and still lacks 0.005 cores."),
        ("n4", f"node n4, {only} is one with a taint that it does not tolerate."),
    ):
        assert explain(world, f"agent-{node}").summary.endswith(text)


def test_a_taint_keeps_it_off() -> None:
    world = World(leaf("a"))
    world.node("n1", taints=(Taint("only", "gpu", "NoSchedule"),))
    world.node("n2", schedulable=False)
    world.application("app")
    world.ask("one")
    world.tick()
    found = explain(world, "one")
    assert (found.code, found.tally) == ("no-node-constraints", {"not-schedulable": 1, "taint": 1})


def test_the_tally_counts_each_node_once_by_its_first_reason() -> None:
    world = World(leaf("a"))
    world.node("full", vcore=10)
    world.node("small", vcore=5)
    world.node("drained", vcore=50)
    world.node("held", vcore=12)
    world.node("near", vcore=20)
    world.application("app")
    world.allocation("a1", "full", vcore=7)
    world.allocation("a2", "near", vcore=13)
    world.allocation("a3", "held", vcore=3)
    world.say(NodeDrained(MANAGER, "drained"))
    world.ask("first", vcore=10)
    world.tick()
    pledge(world, "first", "held")
    world.ask("one", vcore=8)
    world.tick()
    found = explain(world, "one")
    assert found.code == "capacity-reserved"
    assert found.tally == {"short-vcore": 2, "not-schedulable": 1, "reserved": 1, "too-small": 1}
    assert (found.nearest, found.nearest_missing) == ("near", {"vcore": 1})
    assert said(found, "Nearest is node near, which lacks 0.001 cores.")


@pytest.mark.parametrize(
    ("owner", "own", "words"),
    [
        (0, 0, "an ask with priority 10 (against 0 of this one, as their queues count) until"),
        (-10, 0, "an ask with priority 0 (against 0 of this one, as their queues count) until"),
    ],
)
def test_a_reservation_names_the_priority_that_decides(owner: int, own: int, words: str) -> None:
    """The owner's queue adds 10 to it, and the queues above both compare the sums (G5)."""
    world = World(leaf("a", properties=QueueProperties(priority_offset=10)), leaf("b"))
    _reserve_beside(world, "root.a", owner)
    world.ask("two", "other", priority=own)
    world.tick()
    found = explain(world, "two")
    assert said(found, f"is reserved for {words}")
    assert said(
        found, f"an ask of queue root.a with priority {owner}, which counts as {owner + 10}"
    )


def test_without_offsets_a_reservation_names_the_priority_of_its_owner() -> None:
    world = World(leaf("a"), leaf("b"))
    _reserve_beside(world, "root.a", 5)
    world.ask("two", "other", priority=5)
    world.tick()
    assert said(explain(world, "two"), "is reserved for an ask with priority 5 until")


def _reserve_beside(world: World, queue: str, priority: int) -> None:
    """Reserve a node of 12 for an ask of 10, of which 9 are free."""
    world.application("app", queue)
    world.application("other", "root.b")
    world.node("held", vcore=12)
    world.allocation("a1", "held", "app", vcore=3)
    world.ask("first", vcore=10, priority=priority)
    world.tick()
    pledge(world, "first", "held")


def test_capacity_that_is_pledged_to_others_is_missing_and_never_free_below_zero() -> None:
    world = World(leaf("a"))
    world.application("app")
    for name in ("n1", "n2"):
        world.node(name, vcore=8)
        world.allocation(f"runs-{name}", name, vcore=8)
    world.ask("first", vcore=2)
    world.tick()
    pledge(world, "first", "n1")
    world.ask("one", vcore=2)
    world.tick()
    found = explain(world, "one")
    assert (found.nearest, found.nearest_missing) == ("n2", {"vcore": 2})
    assert said(explain(world, "n1"), "100 B memory is free.")
    used = "Capacity here is pledged to first, of which 0.002 cores are still in use."
    assert said(explain(world, "n1"), used)


def test_pods_that_have_more_than_their_node_are_told() -> None:
    world = World(leaf("a"))
    world.application("app")
    world.node("n1", vcore=8)
    world.foreign("daemon", "n1", vcore=9)
    assert said(explain(world, "n1"), "Its pods have 0.001 cores more than its capacity.")


def test_a_port_in_use_is_named() -> None:
    world = World(leaf("a"))
    world.node("n1")
    world.application("app")
    for key in ("one", "two"):
        world.ask(key, constraints=Constraints(host_ports=(HostPort(80),)))
    world.tick()
    found = explain(world, "two")
    assert (found.code, found.tally) == ("no-node", {"host-port": 1})
    assert found.examples == {"host-port": (found.nearest,)}
    assert found.nearest_missing == {"hostport/TCP/80": 1}
    assert said(found, "lacks host port TCP/80")


def test_it_is_larger_than_every_node() -> None:
    world = World(leaf("a"))
    world.node("n1", vcore=10)
    world.application("app")
    world.ask("one", vcore=11)
    world.tick()
    found = explain(world, "one")
    assert (found.code, found.tally) == ("no-node-capacity", {"too-small": 1})
    assert (found.nearest, found.nearest_missing) == ("n1", {"vcore": 1})


GPUS: dict[str, Any] = {"extra": {"gpu": 2}}
GPU_TAINT = (Taint("nvidia.com/gpu", "present", "NoSchedule"),)


@pytest.mark.parametrize(
    ("nodes", "constraints", "why", "step"),
    [
        (
            {"taints": GPU_TAINT},
            Constraints(),
            "it does not tolerate their taint nvidia.com/gpu",
            "tolerate the taint nvidia.com/gpu of g2 and g1",
        ),
        (
            {},
            Constraints(node_selector=(("zone", "z1"),)),
            "its node selector excludes them",
            "let its node selector allow g2 and g1",
        ),
        (
            {"taints": GPU_TAINT},
            Constraints(required_terms=(Term(match_expressions=(ZONE,)),)),
            "it does not tolerate their taint nvidia.com/gpu and its node affinity excludes them",
            "tolerate the taint nvidia.com/gpu of g2 and g1 and let its node affinity allow them",
        ),
    ],
)
def test_nodes_that_are_large_enough_and_excluded_are_named_with_what_excludes_them(
    nodes: dict[str, Any], constraints: Constraints, why: str, step: str
) -> None:
    world = World(leaf("a"))
    world.node("w1", labels=(("zone", "z1"),))
    world.node("g1", **GPUS, **nodes)
    world.node("g2", **GPUS, **nodes)
    world.application("app")
    world.allocation("runs", "g1", vcore=10)
    world.ask("one", constraints=constraints, extra={"gpu": 1})
    world.tick()
    found = explain(world, "one")
    assert (found.code, found.nearest) == ("no-node-capacity", "")
    large = "no node that it may run on is large enough; g2 and g1 are, but"
    assert found.summary.endswith(f"{large} {why}.")
    assert found.brief.endswith(f"; 2 nodes are, but {why.replace(' nvidia.com/gpu', '')}.")
    assert "g1" not in found.brief
    add = "or add a node with 0.001 cores and 1 gpu free"
    assert next_steps.of_ask(found, None, world.now) == (f"{step}, {add}",)


def test_a_next_step_agrees_with_one_core_and_with_many() -> None:
    world = World(leaf("a"))
    world.node("n1")
    world.application("app")
    world.allocation("runs", "n1", vcore=10)
    world.ask("one")
    world.tick()
    found = explain(world, "one")
    for lacks, text in (
        ({"vcore": 1_000}, "1 core more is"),
        ({"vcore": 2_000}, "2 cores more are"),
    ):
        (step,) = next_steps.of_ask(replace(found, nearest_missing=lacks), None, world.now)
        assert step.startswith(f"wait until {text} free on node n1, or add a node with ")


def test_a_node_in_trouble_is_not_named_as_large_enough() -> None:
    world = World(leaf("a"))
    world.node("w1")
    world.node("g1", **GPUS, taints=(Taint("node.kubernetes.io/unreachable", "", "NoExecute"),))
    world.application("app")
    world.ask("one", extra={"gpu": 1})
    world.tick()
    found = explain(world, "one")
    assert found.summary.endswith("it is larger than every node that its constraints allow.")
    assert next_steps.of_ask(found, None, world.now)[0].startswith("ask for less")


def test_where_no_node_is_allowed_the_step_names_the_taint() -> None:
    world = World(leaf("a"))
    world.node("g1", **GPUS, taints=GPU_TAINT)
    world.application("app")
    world.ask("one")
    world.tick()
    found = explain(world, "one")
    assert found.code == "no-node-constraints"
    assert next_steps.of_ask(found, None, world.now) == ("tolerate the taint nvidia.com/gpu of g1",)


def test_no_node_at_all() -> None:
    world = World(leaf("a"))
    world.application("app")
    world.ask("one")
    world.tick()
    assert said(explain(world, "one"), "there are no nodes")
    world.node("n1", schedulable=False)
    world.tick()
    found = explain(world, "one")
    assert (found.code, found.tally) == ("no-nodes", {"not-schedulable": 1})


def test_a_node_is_avoided_after_a_failed_binding() -> None:
    world = World(leaf("a"))
    world.node("n1")
    world.application("app")
    world.ask("one")
    world.tick()
    world.release("one", termination=Termination.SCHEDULING_FAILED_ON_RM)
    world.tick()
    found = explain(world, "one")
    assert (found.code, found.tally) == ("no-node", {"avoided": 1})


# Reservations and ranks -----------------------------------------------------------------------------------------


def test_a_reservation_is_shown_with_what_is_still_missing() -> None:
    world = crowd()
    world.wait(5_000)
    found = explain(world, "held-1")
    assert found.reserved is not None
    assert (found.reserved.node_id, found.reserved.held_by) == ("n2", "reservation")
    assert found.reserved.since_ms == world.now - 5_000
    assert said(found, "Node n2 has been reserved for it for 5 s (reservation); still missing")
    other = explain(world, "held-2")
    assert other.reserved is None


def test_ranks_are_told_from_the_application_to_the_top() -> None:
    world = crowd()
    found = explain(world, "huge-1")
    assert found.asks_before == 2
    assert said(found, "It is 3rd of 3 asks in its application, which came 1st of 2")
    assert said(found, "Queue root.p.b has a share of 6.0 %, the 2nd smallest of 2")
    assert said(found, "Queue root.p has a share of 30.0 %, the smallest of 2")


# Other keys -----------------------------------------------------------------------------------------------------


def test_an_allocation_says_where_it_runs_and_whom_it_frees_capacity_for() -> None:
    world = crowd()
    world.wait(180_000)
    found = explain(world, "run-1")
    assert (found.kind, found.queue, found.resource) == ("allocation", "root.a", {"vcore": 2})
    assert found.since_ms == world.now - 180_000
    assert found.summary == f"It has run on node {found.node_id} for 3 min."
    assert said(found, "It is being released by decision c-held-1 (reservation).")
    assert not said(explain(world, "run-2"), "released")


def test_a_foreign_pod_belongs_to_others() -> None:
    found = explain(crowd(), "alien-1")
    assert (found.kind, found.node_id, found.queue) == ("allocation", "n1", "")
    assert said(found, "pod of another scheduler")


def test_an_application_says_why_its_first_ask_waits() -> None:
    found = explain(crowd(), "app")
    assert (found.kind, found.code, found.queue) == ("application", "Running", "root.a")
    assert said(found, "4 allocations with 0.006 cores and 1 gpu, 5 waiting asks")
    assert said(found, "Its first waiting ask is full-1: it has waited")
    assert said(found, "Its asks wait: 3 for queue-limit and 2 for user-limit.")


def test_an_application_without_asks_waits_for_nothing() -> None:
    world = World(leaf("a"))
    world.application("app")
    found = explain(world, "app")
    assert (found.code, len(found.lines)) == ("Accepted", 2)


def test_a_node_says_what_is_on_it() -> None:
    world = crowd()
    world.node("n5", taints=(Taint("only", "", "NoSchedule"),))
    found = explain(world, "n2")
    assert (found.kind, found.node_id, found.code) == ("node", "n2", "schedulable")
    assert explain(world, "n4").code == "not-schedulable"
    assert said(found, "Capacity here is pledged to held-1, of which 0.004 cores are still in use.")
    assert said(found, "Here run 3 allocations: run-2, port-1 and gpu-1.")
    world.allocation("single", "n5", "other")
    assert said(explain(world, "n5"), "Here runs 1 allocation: single.")
    assert said(explain(world, "n4"), "It is cordoned or drained, or not enabled yet")
    assert said(explain(world, "n4"), "Nothing runs here.")
    assert said(explain(world, "n5"), "It has the taints only.")


def test_an_unknown_key_gets_near_matches() -> None:
    world = crowd()
    found = explain(world, "held-7")
    assert (found.kind, found.partition) == ("unknown", "")
    assert said(found, "Close to it are held-")
    assert said(explain(world, "ful"), "Close to it are full-1, full-2 and full-3.")
    assert len(explain(world, "####").lines) == 1
    assert explain(world, "").kind == "unknown"


def test_near_matches_are_few_among_many() -> None:
    world = World(leaf("a"))
    world.application("app")
    for number in range(3_000):
        world.ask(f"pod-{number}")
    assert explain(world, "pod-").lines[1].count(",") <= 4
    assert explain(world, "pud-17").kind == "unknown"


def test_a_partition_can_be_named() -> None:
    world = crowd()
    assert explain(world, "run-1", "default").kind == "allocation"
    found = explain(world, "run-1", "nowhere")
    assert found.kind == "unknown"
    assert said(found, "Partition 'nowhere' is not configured; there are default.")


def test_what_runs_says_in_which_type_its_queue_uses_most_and_of_what() -> None:
    world = World(
        parent(
            "p",
            leaf("a", guaranteed=(("vcore", 8_000),), max=(("gpu", 4),)),
            leaf("b"),
            max=(("vcore", 20_000),),
        ),
        leaf("c"),
        leaf("d", max=(("gpu", 0),)),
    )
    world.node("n1", vcore=40_000, extra={"gpu": 8})
    for queue in ("p.a", "p.b", "c"):
        world.application(f"app-{queue}", f"root.{queue}")
        world.allocation(f"one-{queue}", "n1", f"app-{queue}", 2_000)
    world.application("app-d", "root.d")
    world.allocation("one-d", "n1", "app-d", 2_000, extra={"gpu": 1})
    most = "uses cores the most: 2 cores"
    for queue, told in (
        ("p.a", f"Of all types queue root.p.a {most}, 25.0 % of its guarantee."),
        ("p.b", f"Of all types queue root.p.b {most}, 10.0 % of the max of queue root.p."),
        ("c", f"Of all types queue root.c {most}, 5.0 % of what the partition has."),
        ("d", "Queue root.d uses 1 gpu and should have nothing of that type."),
    ):
        assert told in explain(world, f"one-{queue}").lines
    world.allocation("two-p.a", "n1", "app-p.a", 0, extra={"gpu": 2})
    assert said(
        explain(world, "two-p.a"), "queue root.p.a uses gpu the most: 2 gpu, 50.0 % of its max."
    )
