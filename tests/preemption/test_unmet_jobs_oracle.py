"""The unmet-guarantee report on jobs compared with the text of their rules: each remedy serves the whole job.

The same clusters are judged without policy `job`: the report names listing it as a remedy exactly when the rules have
a plan.
"""

from collections import Counter
from copy import deepcopy
from dataclasses import fields, replace
from fractions import Fraction
from typing import Final

import pytest

from server.core.queries.unmet.report import report
from server.model.decisions import Placed
from server.model.quota import PreemptionSettings
from server.model.unmet import Binding, Change, Cure, UnmetAsks
from tests.effort import TRIES_ALL, cases
from tests.preemption.job_clusters import START, Amounts, Dice, Member, World, tell
from tests.preemption.job_oracle import Oracle, total
from tests.preemption.paths import is_below, queue_of

WORLDS: Final = cases(400)
WORLDS_SOAK: Final = 20_000
CHUNK: Final = 1_000
NUMBERS: Final = {Change.RAISE_MAX, Change.RAISE_GUARANTEE, Change.LOWER_GUARANTEE}


class Unlisted(World):
    """The world of a job, without policy `job`."""

    @property
    def settings(self) -> PreemptionSettings:
        return replace(super().settings, policies=("required-node", "guaranteed"))


def unlisted(world: World) -> Unlisted:
    return Unlisted(**{one.name: getattr(world, one.name) for one in fields(world)})


def judge(seed: int) -> Counter[str]:
    """One world, with the policy and without; how the reports on it end."""
    world = Dice(seed).plain()  # what is odd is told of single cases alone
    found: Counter[str] = Counter()
    for asks in told(seed, world):
        _check(seed, world, asks)
        found[_end(asks)] += 1
    for asks in told(seed, unlisted(world)):
        _check_unlisted(seed, unlisted(world), asks)
        found[f"unlisted {_end(asks)}"] += 1
    return found


def _end(asks: UnmetAsks) -> str:
    return asks.binding.value if asks.cure is None else asks.cure.change.value


def told(seed: int, world: World) -> list[UnmetAsks]:
    """Return what the report says of the job, once; [] where no queue above it lacks what it wants."""
    core = tell(world)
    before = core.digest()
    found = report(core, "default", START)
    assert core.digest() == before, f"seed {seed}: the report changed the state"
    asks = [one for queue in found.queues for one in queue.asks]
    for one in asks:
        assert (one.count, one.resource) == (
            len(world.members),
            total(each.size for each in world.members),
        ), f"seed {seed}: {one} is not the whole job"
        assert one.searched, f"seed {seed}: the budget was spent on a world of toys"
    return asks[:1]


# With the policy ------------------------------------------------------------------------------------------------------


def _check(seed: int, world: World, asks: UnmetAsks) -> None:
    where = f"seed {seed}: {asks.binding}, {asks.law}, {asks.cure}, in {world}"
    if asks.binding is Binding.SERVED:
        assert helped(world), where
        return
    assert not helped(world), where
    if asks.cure is None:
        assert not helped(_with_node(world, world.members)), where
        return
    assert helped(changed(world, asks.cure)), where
    for less in _one_less(world, asks.cure):
        assert not helped(changed(world, less)), f"{less} helps, too: {where}"
    if asks.cure.change is Change.ADD_NODE:
        _check_nothing_smaller(world, asks, where)


def helped(world: World) -> bool:
    """Return whether the rules have a plan for the job, or placement takes it."""
    return Oracle(world).plan() is not None or placed(world)


def placed(world: World) -> bool:
    return any(isinstance(one, Placed) for one in tell(world).tick(START).decisions)


def changed(world: World, cure: Cure) -> World:
    """Return the world with the change applied by hand."""
    after = deepcopy(world)
    match cure.change:
        case Change.RAISE_MAX:
            queue = queue_of(after.queues, cure.subject)
            assert queue.max is not None
            queue.max = _sum(queue.max, cure, 1)
        case Change.RAISE_GUARANTEE:
            queue = queue_of(after.queues, cure.subject)
            queue.guaranteed = _sum(queue.guaranteed, cure, 1)
        case Change.LOWER_GUARANTEE:
            queue = queue_of(after.queues, cure.subject)
            queue.guaranteed = _sum(queue.guaranteed, cure, -1)
        case Change.LIFT_FENCE:
            queue_of(after.queues, cure.subject).fence = False
        case Change.RAISE_PRIORITY:
            for one in after.members:
                one.priority = max(one.priority, cure.amounts["priority"])
        case Change.ADD_NODE:
            after.nodes["~new"] = dict(cure.amounts)
        case _:
            assert cure.subject == "job.victimgang", cure
            after.victim_gang = "whole"
    return after


def _sum(before: Amounts, cure: Cure, sign: int) -> Amounts:
    return before | {
        kind: before.get(kind, 0) + sign * amount for kind, amount in cure.amounts.items()
    }


def _one_less(world: World, cure: Cure) -> list[Cure]:
    """Return the change with one unit less of one type, a lower priority, or a member less that gets the node."""
    if cure.change is Change.RAISE_PRIORITY:
        less = cure.amounts["priority"] - 1
        return [Cure(cure.change, cure.subject, "", {"priority": less})] if less else []
    if cure.change is Change.ADD_NODE:
        some = _largest(world)
        while total(one.size for one in some) != cure.amounts:
            some.pop()
        return [Cure(cure.change, "", "", total(one.size for one in some[:-1]))] if some[1:] else []
    if cure.change not in NUMBERS:
        return []
    return [
        Cure(cure.change, cure.subject, "", {**cure.amounts, kind: amount - 1})
        for kind, amount in cure.amounts.items()
        if _may_be(world, cure, kind, amount - 1)
    ]


def _may_be(world: World, cure: Cure, kind: str, less: int) -> bool:
    """Return whether `config apply` takes a guarantee lowered by less, given the guarantees of the queues below."""
    if cure.change is not Change.LOWER_GUARANTEE:
        return True
    below = [one for one in world.queues if one.path.startswith(f"{cure.subject}.")]
    parts = sum(one.guaranteed.get(kind, 0) for one in below)
    return queue_of(world.queues, cure.subject).guaranteed[kind] - less >= parts


def _largest(world: World) -> list[Member]:
    whole = total(world.nodes.values())
    return sorted(
        world.members,
        key=lambda one: (
            -max(Fraction(much, whole[kind]) for kind, much in one.size.items()),
            -one.priority,
            world.members.index(one),
        ),
    )


def _with_node(world: World, members: list[Member]) -> World:
    amounts = total(one.size for one in members)
    return changed(world, Cure(Change.ADD_NODE, "", "", amounts))


def _check_nothing_smaller(world: World, asks: UnmetAsks, where: str) -> None:
    """No other queue's guarantee, nor its fence, alone would have done."""
    for queue in world.queues:
        if asks.law == "member-without-node" and not is_below(world.queue, queue.path):
            less = deepcopy(world)
            queue_of(less.queues, queue.path).guaranteed = {}
            assert not helped(less), f"without the guarantee of {queue.path} it helps: {where}"
    open_ = deepcopy(world)
    for queue in open_.queues:
        if queue.path == Oracle(world).scope():
            queue.fence = False
    assert not helped(open_), f"without its fence it helps: {where}"


# Without it -----------------------------------------------------------------------------------------------------------


def _check_unlisted(seed: int, world: Unlisted, asks: UnmetAsks) -> None:
    where = f"seed {seed}: {asks.binding}, {asks.law}, {asks.cure}, in {world}"
    assert (asks.binding is Binding.SERVED) == placed(world), where
    if asks.binding is Binding.SERVED:
        return
    assert (asks.binding, asks.law) == (Binding.POLICY_OFF, "policy-off"), where
    planned = Oracle(world).plan() is not None
    if asks.cure is not None and asks.cure.subject == "policies":
        assert planned, where
        return
    assert not planned or (asks.cure and asks.cure.change is Change.RAISE_MAX), where
    if asks.cure is not None:
        assert placed(changed(world, asks.cure)), where


# Tests ----------------------------------------------------------------------------------------------------------------


def test_cures_of_jobs_help_the_whole_and_are_the_least_that_does() -> None:
    found: Counter[str] = Counter()
    for seed in range(WORLDS):
        found += judge(seed)
    kinds = {
        "being-served",
        "lower-guarantee",
        "raise-guarantee",
        "raise-max",
        "raise-priority",
        "lift-fence",
        "add-node",
        "unlisted setting",
        "unlisted add-node",
    }
    if TRIES_ALL:
        assert kinds <= found.keys(), found


@pytest.mark.soak
@pytest.mark.parametrize("chunk", range(WORLDS_SOAK // CHUNK))
def test_cures_of_very_many_jobs(chunk: int) -> None:
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        judge(seed)
