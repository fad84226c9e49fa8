"""Answers of a real core about objects that wait, at 80 columns: each has an answer, a next step and a limited height."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from server.model.events import ConfigurationApplied
from server.model.quota import PreemptionPolicy, PreemptionSettings, QueueProperties
from tests.cli.run import Ended, evenhand
from tests.inspect.world import World, configuration, leaf, parent
from tests.rpc.harness import serving

WIDTH = 80
CORE = 1_000
GIB = 1 << 30


def told(world: World, *arguments: str) -> Ended:
    """Return the output of a command that asks the world's core."""

    async def ask() -> Ended:
        async with serving(core=world.core) as served:
            served.clock.ms = world.now
            address = ("--core", f"127.0.0.1:{served.port}")
            return await asyncio.to_thread(evenhand, *arguments, *address, width=WIDTH)

    return asyncio.run(ask())


def lines(ended: Ended, most: int) -> str:
    """Return the output in one line, once it is short and narrow enough. A command with a long path stands whole on its line."""
    shown = ended.out.splitlines()
    assert len(shown) <= most, ended.out
    wide = [line for line in shown if len(line) > WIDTH]
    assert all(line.lstrip().startswith("evenhand ") and "/" in line for line in wide), wide
    return " ".join(ended.out.split())


def cluster() -> World:
    """Return a world of two nodes of 8 cores with 4 free each, and a waiting gang of twelve members of one core."""
    world = World(leaf("research", guaranteed=(("vcore", 8 * CORE),)), leaf("sweeps"))
    world.application("train", "root.research")
    world.application("tuning", "root.sweeps")
    for name in ("node-1", "node-2"):
        world.node(name, vcore=8 * CORE, memory=32 * GIB, extra={"pods": 110})
        world.allocation(f"x-{name}", name, "train", vcore=4 * CORE)
    for number in range(12):
        member: Any = {"gang_key": "sweep", "min_members": 12, "extra": {"memory": 2 * GIB}}
        world.ask(f"sweep-{number}", "tuning", vcore=CORE, **member)
    world.tick()
    return world


def written(folder: Path, document: dict[str, Any]) -> str:
    file = folder / "asks.yaml"
    file.write_text(yaml.safe_dump(document))
    return str(file)


def gang(count: int, **more: Any) -> dict[str, Any]:
    asked = {"name": "lab/train", "queue": "root.sweeps", "count": count, "jobKey": "big"}
    return {**asked, "jobMembers": count, "resources": {"vcore": 2, "memory": "4Gi"}, **more}


def test_a_member_of_a_gang_says_how_many_fit_what_is_missing_and_what_to_do() -> None:
    said = lines(told(cluster(), "explain", "sweep-3"), 25)
    assert "8 of the 12 waiting members of gang sweep fit now" in said
    assert "nodes lack 4 cores in total for the other 4" in said
    assert "do: wait until 4 cores more are free on node-1, or add nodes with 4 cores and" in said
    assert "or lower min-available to 8" in said
    assert "node-1 4 4 cores" in said
    assert "4 cores for 4 more" in said
    assert "job frees no capacity (`policy-off`)" in said


def test_a_policy_that_is_off_is_named_with_its_setting_and_where_that_goes() -> None:
    said = lines(told(cluster(), "explain", "sweep-3"), 28)
    assert (
        "it belongs to a gang, and preemption.policies of this partition does not list job" in said
    )
    assert (
        "do: or switch on policy job with preemption.policies and preemption.enabled of the" in said
    )


def test_a_gang_is_explained_by_its_name() -> None:
    ended = told(cluster(), "explain", "sweep")
    assert "12 pods, 12 waiting, 0 with a node; this is sweep-0" in ended.err
    assert "8 of the 12 waiting members of gang sweep fit now" in " ".join(ended.out.split())


def namesakes() -> World:
    """Return a world with a gang of twelve and an application, both named `tuning`.

    The gang `train` of the application `train` runs.
    """
    world = cluster()
    for number in range(12):
        world.ask(f"more-{number}", "train", vcore=CORE, gang_key="tuning", min_members=12)
    for number in range(2):
        name = f"train-{number}"
        world.allocation(name, "node-1", "train", vcore=1, gang_key="train", min_members=2)
    world.tick()
    return world


def test_a_name_that_a_gang_and_an_application_share_is_the_gangs() -> None:
    said = lines(told(namesakes(), "explain", "tuning"), 26)
    assert said.startswith("tuning gang ")
    assert "of the 12 waiting members of gang tuning fit now" in said
    assert said.endswith("application tuning: evenhand explain tuning --application")
    other = lines(told(namesakes(), "explain", "tuning", "--application"), 26)
    assert other.startswith("tuning application ")
    assert (
        "there is no application `sweep`"
        in told(namesakes(), "explain", "sweep", "--application").err
    )


def test_a_gang_that_runs_is_explained_whole_and_before_its_application() -> None:
    ended = told(namesakes(), "explain", "train")
    said = lines(ended, 16)
    assert said.startswith("train gang partition default All 2 pods run, on 1 node; none waits.")
    assert "do: evenhand explain train-0: about one of them" in said
    assert "nodes node-1 (2) queue root.research, application train" in said
    assert "each holds 0.001 cores; priority 0" in said
    assert said.count("Of all types queue root.research uses cores the most") == 1
    assert "application train: evenhand explain train --application" in said
    members = told(namesakes(), "explain", "train", "-o", "json").value()["members"]
    assert [one["allocation_key"] for one in members] == ["train-0", "train-1"]


def test_of_a_gang_that_runs_each_threat_is_told_once_with_its_members() -> None:
    """The max of the queue is lowered below what the gang holds: half of it will be evicted."""
    enforced = PreemptionSettings(quota_enabled=True)
    world = World(leaf("a"), preemption=enforced)
    world.node("node-1", vcore=8 * CORE)
    world.application("app", "root.a")
    for number in range(4):
        name = f"train-{number}"
        world.allocation(name, "node-1", vcore=CORE, gang_key="train", min_members=1)
    properties = QueueProperties(quota_delay_ms=60_000)
    lower = leaf("a", max=(("vcore", 2 * CORE),), properties=properties)
    world.say(ConfigurationApplied(configuration(lower, preemption=enforced), "test"))
    said = lines(told(world, "explain", "train"), 24)
    assert "All 4 pods run, on 1 node; none waits." in said
    assert "2 of 4 Queue root.a is 2 cores over its max; enforcement starts in 1 m 00 s" in said
    assert "it would be evicted. (train-0 and train-1)" in said
    assert "it would keep running, as the eviction of 2 other pods is enough. (train-2" in said
    assert said.count("2 of 4") == 2


def test_a_simulated_gang_is_answered_once_by_what_it_lacks(tmp_path: Path) -> None:
    said = lines(told(cluster(), "simulate", "ask", written(tmp_path, gang(8))), 25)
    assert "gang big (8 members) waits" in said
    assert "4 of the 8 waiting members of gang big fit now; nodes lack 8 cores in total" in said
    assert "do: wait until 8 cores more are free" in said
    assert "job frees no capacity (`policy-off`)" in said
    assert "guaranteed" not in said
    assert said.count("2 cores, 4 GiB memory") == 1


def test_equal_asks_that_wait_are_counted_together_under_their_own_names(tmp_path: Path) -> None:
    asks = gang(7, jobKey="", jobMembers=0)
    said = lines(told(cluster(), "simulate", "ask", written(tmp_path, asks)), 35)
    assert "7 asks: 4 placed, 3 wait; nothing would be evicted" in said
    assert "lab/train-5 and 2 like it waits" in said
    assert "missing 6 cores in total" in said
    assert "simulation-" not in said


def test_the_answer_says_what_it_rests_on(tmp_path: Path) -> None:
    file = written(tmp_path, gang(1, jobKey="", jobMembers=0))
    ended = told(cluster(), "simulate", "ask", file)
    said = " ".join(ended.out.split())
    assert "priority 0: the ask names none: write `priority`, or pass --priority N" in said
    assert "queue root.sweeps (named in the request)" in said
    assert "user none (its limits apply)" in said
    assert "preemptionPolicy PreemptLowerPriority" in said
    assert "age new (preemption.delay of 30 s counts as over)" in said
    other = told(cluster(), "simulate", "ask", file, "--priority", "7")
    assert "priority 7: --priority" in " ".join(other.out.split())


def test_a_single_ask_that_waits_fits_on_a_screen() -> None:
    world = cluster()
    world.ask("web-1", "train", vcore=6 * CORE, extra={"memory": GIB})
    world.tick()
    said = lines(told(world, "explain", "web-1"), 30)
    assert "no node that could hold it has enough free capacity now" in said
    assert "do: wait until 2 cores more are free on node node-1, or add a node with 6 cores" in said


def test_a_headroom_table_names_its_queues_whole() -> None:
    path = "research-and-development-of-models"
    world = World(leaf(path, max=(("vcore", 4 * CORE), ("memory", 64 * GIB), ("gpu", 6))))
    world.node("node-1", vcore=64 * CORE, memory=256 * GIB, extra={"gpu": 8, "pods": 110})
    world.application("train", f"root.{path}")
    world.ask("web-1", "train", vcore=6 * CORE, extra={"memory": GIB, "gpu": 1})
    world.tick()
    ended = told(world, "explain", "web-1")
    assert any(line.startswith(f"root.{path} ") for line in ended.out.splitlines())
    assert "too small: cores" in ended.out


def test_by_weight_a_decision_tells_the_share_that_decided() -> None:
    by_weight = PreemptionSettings(entitlement="proportional")
    world = World(leaf("a", guaranteed=(("vcore", CORE),)), leaf("b"))
    tree = configuration(leaf("a", guaranteed=(("vcore", CORE),)), leaf("b"), preemption=by_weight)
    world.say(ConfigurationApplied(tree, "test"))
    world.node("node-1", vcore=8 * CORE)
    for name in ("a", "b"):
        world.application(name, f"root.{name}")
    for number in range(8):
        world.allocation(f"a-{number}", "node-1", "a", vcore=CORE)
    world.ask("b-0", "b", vcore=CORE)
    world.ask("b-1", "b", vcore=5 * CORE)
    world.tick()
    (decision_id,) = world.partition.decisions.records
    said = lines(told(world, "decisions", decision_id), 30)
    assert "root.a 8/4 cores entitled by weight (victim)" in said
    assert "root.b 0/4 cores entitled by weight (deciding)" in said
    assert "cores guaranteed" not in said
    victim = world.partition.decisions.records[decision_id].victims[0].key
    evicted = lines(told(world, "explain", victim), 30)
    assert "8 cores of 4 cores entitled by weight" in evicted


def test_by_weight_a_decision_of_a_gang_tells_the_share_that_decided() -> None:
    by_weight = PreemptionSettings(
        entitlement="proportional", policies=("required-node", "guaranteed", "job")
    )
    world = World(leaf("a"), leaf("b"), preemption=by_weight)
    world.node("node-1", vcore=8 * CORE)
    for name in ("a", "b"):
        world.application(name, f"root.{name}")
    for number in range(8):
        world.allocation(f"a-{number}", "node-1", "a", vcore=CORE, lendable=True)
    for number in range(2):
        world.ask(f"b-{number}", "b", vcore=CORE, gang_key="train", min_members=2)
    world.tick()
    (decision,) = world.partition.decisions.records.values()
    assert (decision.policy, [one.by_weight for one in decision.levels]) == ("job", [True])
    said = lines(told(world, "decisions", decision.decision_id), 30)
    assert "root.b 0/2 cores entitled by weight (deciding)" in said
    assert "guaranteed" not in said
    assert "evenhand explain root.a: a higher weight or guarantee keeps more" in said


def test_a_cure_says_how_many_of_the_asks_it_serves() -> None:
    """The team is guaranteed 12 cores: without its fence three of its four asks for 4 cores get them."""
    fence = QueueProperties(preemption_policy=PreemptionPolicy.FENCE)
    world = World(
        parent("team", leaf("a", guaranteed=(("vcore", 12 * CORE),)), properties=fence),
        leaf("batch"),
    )
    world.node("node-1", vcore=32 * CORE)
    world.application("batch", "root.batch")
    world.application("a", "root.team.a")
    for number in range(32):
        world.allocation(f"b-{number}", "node-1", "batch", vcore=CORE)
    for number in range(4):
        world.ask(f"a-{number}", "a", vcore=4 * CORE)
    world.now += 60_000
    world.tick()
    said = lines(told(world, "queues", "--unmet"), 30)
    assert "cure lift the fence of queue root.team" in said
    assert "serves 3 of these 4 asks; not the next one: " in said
    assert "queue root.team.a holds 12 cores, its guarantee is 12 cores" in said


def test_by_weight_the_report_calls_a_share_what_it_is() -> None:
    world = World(leaf("a"), leaf("b"))
    by_weight = PreemptionSettings(entitlement="proportional", enabled=False)
    world.say(
        ConfigurationApplied(configuration(leaf("a"), leaf("b"), preemption=by_weight), "test")
    )
    world.node("node-1", vcore=8 * CORE)
    for name in ("a", "b"):
        world.application(name, f"root.{name}")
    world.allocation("a-0", "node-1", "a", vcore=8 * CORE)
    world.ask("b-0", "b", vcore=4 * CORE)
    world.tick()
    said = lines(told(world, "queues", "--unmet"), 30)
    assert said.startswith("queue type entitled held missing")
    assert "root.b cores 4 0 4" in said


# Other configurations -------------------------------------------------------------------------------------------------


def crowded() -> World:
    """Return a world of forty queues of which each has a pod, and a gang that waits in one of them."""
    world = cluster()
    leaves = [leaf(f"team-{number:02}") for number in range(40)]
    tree = configuration(leaf("research"), leaf("sweeps"), *leaves)
    world.say(ConfigurationApplied(tree, "test"))
    for number in range(40):
        world.application(f"app-{number}", f"root.team-{number:02}")
        world.allocation(f"runs-{number}", "node-2", f"app-{number}", vcore=10)
    return world


def queues(folder: Path, *names: str) -> str:
    file = folder / "queues.yaml"
    root = {"name": "root", "submitacl": "*", "queues": [{"name": one} for one in names]}
    file.write_text(yaml.safe_dump({"partitions": [{"name": "default", "queues": [root]}]}))
    return str(file)


def test_both_commands_tell_the_same_times(tmp_path: Path) -> None:
    """The clock goes on between the commands, as it does for people who ask one after the other."""
    file = tmp_path / "queues.yaml"
    shop = {"name": "shop", "properties": {"preemption.delay": "9s"}}
    rest = [{"name": "batch"}, shop | {"resources": {"guaranteed": {"vcore": 4}}}]
    root = {"name": "root", "submitacl": "*", "queues": rest}
    file.write_text(yaml.safe_dump({"partitions": [{"name": "default", "queues": [root]}]}))
    delayed = QueueProperties(preemption_delay_ms=9_000)
    world = World(leaf("batch"), leaf("shop", properties=delayed))
    world.node("node-1", vcore=8 * CORE)
    for name in ("batch", "shop"):
        world.application(name, f"root.{name}")
    for number in range(8):
        world.allocation(f"b-{number}", "node-1", "batch", vcore=CORE)
    for number in range(2):
        world.ask(f"s-{number}", "shop", vcore=2 * CORE)
    world.tick()
    headlines, tables = set(), set()
    for command in (("simulate", "config"), ("config", "apply", "--dry-run")):
        world.now += 2_000
        ended = told(world, *command, str(file))
        headlines.add(ended.out.split("in favour")[0])
        tables.add(ended.out.split("what would be decided")[1].split("because")[0])
    assert len(headlines) == len(tables) == 1, headlines
    assert "would be evicted by " in headlines.pop()


def test_queues_that_are_removed_say_what_becomes_of_their_pods_and_asks(tmp_path: Path) -> None:
    said = lines(told(cluster(), "simulate", "config", queues(tmp_path, "research")), 30)
    assert said.startswith(
        "Nothing would be evicted; root.sweeps drains: 0 pods keep running there, 12 waiting asks stay "
        "and may still be placed, new applications are refused."
    )


@pytest.mark.parametrize(
    "command", [("simulate", "config"), ("config", "apply", "--dry-run")], ids=" ".join
)
def test_however_many_queues_are_removed_the_answer_fits_a_screen(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    file = queues(tmp_path, "research", "sweeps")
    said = lines(told(crowded(), *command, file), 30)
    assert "root.team-00, root.team-01 and 38 more drain: 40 pods keep running there" in said
    every = told(crowded(), *command, file, "--all")
    assert len(every.out.splitlines()) > len(said.splitlines())
    if "--dry-run" in command:
        assert "more differences: --all" in said
        assert every.out.count("it drains") == 40
