"""Plans for jobs compared with the text of the rules on random small clusters: equal nodes and victims, nothing missed."""

from collections import Counter
from dataclasses import replace
from typing import Final

import pytest

from server.core.core import Core
from server.model.decisions import Placed, Released
from server.state.digest import Record, records
from tests.effort import TRIES_ALL, cases
from tests.preemption.job_clusters import START, Dice, Member, Pod, Queue, World, decided, tell
from tests.preemption.job_oracle import Oracle

WORLDS: Final = cases(400)
MIXED: Final = cases(1_000)
WORLDS_SOAK: Final = 20_000
CHUNK: Final = 1_000
LEAST: Final = 3
BACK_OFF_MS: Final = 16_000


def judge(seed: int) -> str:
    """One random world, judged."""
    return judge_world(seed, Dice(seed).world())


def standing(core: Core) -> list[Record]:
    """Return the state of the core, except for the instants of the last round and of the last refusal to each ask."""
    core.digest()  # queues the asks that are not in a queue yet
    found = [one for partition in core.state.partitions.values() for one in records(partition)]
    return [_without_last_refusal(one) for one in found if one[0] not in {"rounds", "released"}]


def _without_last_refusal(record: Record) -> Record:
    if record[0] != "ask":
        return record
    *rest, tries = record
    assert isinstance(tries, tuple)
    return (*rest, tries[:-1])


def judge_world(seed: int, world: World) -> str:
    """One world: what the core decides for its job, and what the rules say; how it ended."""
    core = tell(world)
    known = Oracle(world).plan()
    decisions = core.tick(START).decisions
    after = standing(core)
    core.validate()
    if any(isinstance(one, Placed) for one in decisions):
        assert {one.key for one in decisions if isinstance(one, Placed)} == {
            one.key for one in world.members
        }, f"seed {seed}: a part of the job was placed"
        return "placed"
    record = decided(decisions)
    released = [one.key for one in decisions if isinstance(one, Released)]
    if record is None:
        assert known is None, f"seed {seed}: nobody plans {known} in {world}"
        assert not released
        core.tick(START + BACK_OFF_MS)  # the second look tells nobody anything new
        assert standing(core) == after, f"seed {seed}: a plan that failed changed something"
        return "refused"
    assignments = [(one.key, one.node_id) for one in record.beneficiaries]
    assert known is not None, f"seed {seed}: {assignments}, {released} in {world}"
    _check_legal(seed, world, assignments, released)
    assert (assignments, released) == (known.assignments, [one.key for one in known.victims]), (
        f"seed {seed}: not {known} in {world}"
    )
    return "victims" if released else "pledges"


def _check_legal(
    seed: int, world: World, assignments: list[tuple[str, str]], released: list[str]
) -> None:
    """All or nothing, legal as a whole, and nobody can be given back: whatever order it was found in (8, 9, 11)."""
    oracle = Oracle(world)
    members = {one.key: one for one in world.members}
    assert sorted(key for key, _ in assignments) == sorted(members), f"seed {seed}: not all members"
    at = [(members[key], node) for key, node in assignments]
    gone = [one for one in world.pods if one.key in released]
    assert oracle.holds(at, gone), f"seed {seed}: {assignments}, {released} in {world}"
    assert oracle.justified(at, gone), f"seed {seed}: {released} for nothing guaranteed in {world}"
    for pod in gone:
        assert oracle.may_join(pod, willing=False), f"seed {seed}: {pod} may not go in {world}"
    for unit in oracle.units(gone):
        rest = [one for one in gone if one not in unit]
        assert not oracle.holds(at, rest), f"seed {seed}: {unit} goes for nothing in {world}"


def _without(world: World) -> dict[str, World]:
    """Return the world, by rule, without what that rule looks at."""
    queues = world.queues
    return {
        "budgets": replace(world, budgets="ignore"),
        "equal": replace(world, equal_priority="allow"),
        "disabled": replace(world, queues=[replace(one, disabled=False) for one in queues]),
        "fences": replace(world, queues=[replace(one, fence=False) for one in queues]),
        "runtime": replace(world, queues=[replace(one, min_runtime=0) for one in queues]),
        "offsets": replace(
            world, queues=[replace(one, offset=0, priority_fence=False) for one in queues]
        ),
        "firm asks": replace(world, waiting=[]),
        "dead zone": replace(world, dead_zone=0),
        "weights": replace(world, entitlement="guaranteed"),
    }


def _run(seeds: range) -> Counter[str]:
    return Counter(judge(seed) for seed in seeds)


def _run_mixed(seeds: range) -> Counter[str]:
    """Compare core and oracle where queues guarantee some types alone, and count the plans that this leaves unjustified."""
    found: Counter[str] = Counter()
    for seed in seeds:
        world = Dice(seed).mixed()
        end = judge_world(seed, world)
        found[end] += 1
        first = Oracle(world).attempt(willing=False)
        found[f"unjustified, {end}"] += first is not None and not Oracle(world).is_justified(first)
    return found


def test_plans_for_jobs_are_those_of_the_rules() -> None:
    ends = _run(range(WORLDS))
    if TRIES_ALL:
        assert min(ends[one] for one in ("victims", "refused", "placed")) >= WORLDS // 20, ends


def test_plans_for_jobs_whose_queue_is_guaranteed_some_types_alone() -> None:
    ends = _run_mixed(range(MIXED))
    kinds = ("victims", "refused", "unjustified, victims", "unjustified, refused")
    if TRIES_ALL:
        assert min(ends[one] for one in kinds) >= LEAST, ends


def test_each_rule_often_decides() -> None:
    changed: Counter[str] = Counter()
    for seed in range(WORLDS):
        world = Dice(seed).world()
        known = Oracle(world).plan()
        for rule, other in _without(world).items():
            changed[rule] += other != world and Oracle(other).plan() != known
    assert len(changed) == len(_without(Dice(0).world())), changed
    if TRIES_ALL:
        assert min(changed.values()) >= LEAST, changed


@pytest.mark.soak
@pytest.mark.parametrize("chunk", range(WORLDS_SOAK // CHUNK))
def test_plans_for_very_many_jobs(chunk: int) -> None:
    seeds = range(chunk * CHUNK, (chunk + 1) * CHUNK)
    _run(seeds)
    _run_mixed(seeds)


def test_the_oracle_knows_the_story_of_the_specification() -> None:
    """Three times 4 cores: n1 is free, n2 after a victim, n3 never; two of three fit, so that nobody goes (J8)."""
    queues = [Queue("root.p.a", {"vcore": 12}), Queue("root.p.b")]
    nodes = {name: {"vcore": 4} for name in ("n1", "n2", "n3")}
    pods = [
        Pod("y1", "root.p.b", "n2", {"vcore": 4}),
        Pod("y2", "root.p.b", "n3", {"vcore": 4}, firm=True),
    ]
    members = [Member(f"g{at}", {"vcore": 4}) for at in range(3)]
    assert Oracle(World(queues, nodes, pods, "root.p.a", members)).plan() is None
    pods[1].firm = False
    found = Oracle(World(queues, nodes, pods, "root.p.a", members)).plan()
    assert found is not None
    assert [one.key for one in found.victims] == ["y1", "y2"]
