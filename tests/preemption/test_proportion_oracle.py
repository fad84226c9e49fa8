"""Weighted shares of whole trees compared with a plain model on random trees, and their properties (W1, W2, W5, W7)."""

import random
from typing import NamedTuple

import pytest

from server.model.quota import QueueSpec
from server.preemption.proportion import Proportion, QueueStanding, Share, ShareLevel, proportion
from server.snapshot.queues import QueueFacts
from tests.effort import cases
from tests.preemption import proportion_oracle as oracle
from tests.preemption.proportion_oracle import Node

WIDTH = 3
SCALES = (3, 12, 10_000, 1 << 50)


class World(NamedTuple):
    """A tree by type, what there is of each type, and what was promised or is going in each leaf."""

    roots: tuple[Node, ...]
    total: tuple[int, ...]
    usage: dict[str, tuple[int, ...]]
    parts: dict[str, tuple[QueueFacts, tuple[int, ...]]]
    demand_cap: bool
    seed: int


def random_world(seed: int) -> World:
    """Return a tree of one to four levels, much of it scarce; guarantees and maxima need not make sense."""
    random_ = random.Random(seed)
    scale = random_.choice(SCALES)
    parents: dict[str, str] = {"root": ""}
    for _ in range(random_.choice((1, 4, 12, 24))):
        above = random_.choice([path for path in parents if path.count(".") < 3])
        parents[f"{above}.{random_.choice('abcdefgh')}{len(parents)}"] = above
    queues: dict[str, tuple[QueueFacts, tuple[int, ...]]] = {}
    for path in sorted(parents, key=lambda one: -one.count(".")):
        below = [one for one in parents if parents[one] == path]
        queues[path] = random_queue(random_, scale, path, [queues[one][0] for one in below])
    roots = tuple(node(queues, "root", at) for at in range(WIDTH))
    wanted = [oracle.demand_of(root) for root in roots]
    total = tuple(max(-1, one * random_.randint(0, 14) // 10) for one in wanted)
    usage = {path: one.usage for path, (one, _) in queues.items()}
    return World(roots, total, usage, queues, random_.random() < 0.7, seed)


def random_queue(
    random_: random.Random, scale: int, path: str, below: list[QueueFacts]
) -> tuple[QueueFacts, tuple[int, ...]]:
    """One queue, with what is pending in it."""

    def line(*most: int) -> tuple[int, ...]:
        return tuple(random_.randint(0, random_.choice(most)) for _ in range(WIDTH))

    usage, promised = line(0, scale), line(0, 0, scale // 3)
    releasing = tuple(random_.choice((0, 0, have // 2, have)) for have in usage)
    reserved = tuple(random_.choice((0, have // 2)) for have in promised)
    if below:
        usage, releasing, promised, reserved = (
            tuple(map(sum, zip(*lines, strict=True)))
            for lines in (
                [one.usage for one in below],
                [one.releasing for one in below],
                [one.promised for one in below],
                [one.reserved for one in below],
            )
        )
    facts = QueueFacts(
        path=path,
        parent=path.rpartition(".")[0],
        number=0,
        leaf=not below,
        managed=True,
        stopped=False,
        guaranteed=line(0, 0, scale // 2, scale),
        max=(None,) * WIDTH
        if path == "root" or random_.random() < 0.4
        else tuple(random_.choice((None, one)) for one in line(scale, scale * 3)),
        deserved=None,
        usage=usage,
        releasing=releasing,
        promised=promised,
        reserved=reserved,
        commitments=0,
        spec=QueueSpec(name=path, weight=random_.choice((1, 1, 2, 3, 7, 1_000_000))),
    )
    return facts, (0,) * WIDTH if below else line(0, scale, scale * 2)


def node(queues: dict[str, tuple[QueueFacts, tuple[int, ...]]], path: str, at: int) -> Node:
    """Return the queue in one type in the form that the model takes."""
    facts, pending = queues[path]
    return Node(
        path,
        facts.spec.weight,
        facts.guaranteed[at],
        facts.max[at],
        facts.usage[at] - facts.releasing[at] + facts.promised[at] - facts.reserved[at],
        pending[at],
        [node(queues, one, at) for one, (below, _) in queues.items() if below.parent == path],
    )


def check(seed: int) -> None:
    """Program and model agree on every queue and type, and the rules hold."""
    world = random_world(seed)
    queues = {path: facts for path, (facts, _) in world.parts.items()}
    pending = {path: amounts for path, (one, amounts) in world.parts.items() if one.leaf}
    found = proportion(queues, pending, world.total, demand_cap=world.demand_cap)
    standings = found.standings()
    for at, root in enumerate(world.roots):
        expected = oracle.shares(root, world.total[at], demand_cap=world.demand_cap)
        for path, outcome in expected.items():
            share = found.of(path)
            assert tuple(line[at] for line in share) == outcome, (seed, path, at)
        families(world, root, at, expected, standings)
    for path, queue in queues.items():
        assert_invariant_14(queue, found.of(path), found, seed)
        assert standings[path].sides == tuple(
            side(*line)
            for line in zip(
                queue.usage, found.of(path).deserved, found.of(path).demand, strict=True
            )
        )


def side(used: int, deserved: int, demand: int) -> ShareLevel:
    """W4."""
    if used == deserved or (used < deserved >= 0 and demand <= used):
        return ShareLevel.EVEN
    return ShareLevel.OVER if used > deserved else ShareLevel.UNDER


def assert_invariant_14(queue: QueueFacts, share: Share, found: Proportion, seed: int) -> None:
    """Assert invariant 14 for one queue."""
    for at, part in enumerate(share.deserved):
        most, demand = queue.max[at], share.demand[at]
        assert part >= 0, seed
        assert most is None or part <= most, seed
        assert not found.demand_cap or part <= demand, seed
        assert share.entitled[at] <= part, seed
        assert share.contended[at] or share.floor[at] <= part == share.cap[at], seed


def families(
    world: World,
    node: Node,
    at: int,
    expected: dict[str, oracle.Outcome],
    standings: dict[str, QueueStanding],
) -> None:
    """Among siblings: no more is deserved than there is, floors hold where they can, nothing gets lost (W1, W5, W7)."""
    paths = [child.path for child in node.children]
    if not paths:
        return
    deserved = {path: expected[path].deserved for path in paths}
    share = expected[node.path].deserved
    assert sum(deserved.values()) <= share, world.seed
    if sum(expected[path].floor for path in paths) <= share:
        assert all(expected[path].floor <= deserved[path] for path in paths), world.seed
    else:
        assert all(expected[path].floor >= deserved[path] for path in paths), world.seed
    coming = oracle.preempting(deserved, {path: world.usage[path][at] for path in paths})
    root = world.parts["root"][0]
    if root.usage[at] - root.releasing[at] > max(0, world.total[at]):
        coming = dict.fromkeys(paths, 0)  # W3: it is being cleaned up
    for path in paths:
        assert standings[path].preempting[at] == coming[path], world.seed
        assert standings[path].allocated[at] == deserved[path] - coming[path], world.seed
    for child in node.children:
        families(world, child, at, expected, standings)


@pytest.mark.parametrize("start", range(0, 120, 30))
def test_random_trees(start: int) -> None:
    for seed in range(start, start + cases(30)):
        check(seed)


@pytest.mark.soak
@pytest.mark.parametrize("start", range(10_000, 14_000, 500))
def test_many_random_trees(start: int) -> None:
    for seed in range(start, start + 500):
        check(seed)
