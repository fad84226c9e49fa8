"""A configuration is prepared in pieces, and comes into force at one instant: with the result of the plain way, `plain_tree`.

The plain way makes every limiter again and tries every waiting ask again. The product keeps asks parked that would not fit
(design 6.16). Which of them the plain way tries, and which it leaves unsearched in a blocked queue, is no difference.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, TypeVar

import pytest

from server.core import core as core_module
from server.core.core import BUDGET, Core
from server.core.events import configuration as configuration_events
from server.core.preemption import due_quota
from server.model.asks import AskSpec
from server.model.decisions import Decision, Tick
from server.model.events import (
    ApplicationAdded,
    ApplicationRemoved,
    AskAdded,
    ConfigurationApplied,
    Event,
    ManagerRegistered,
    NodeAdded,
    NodeRemoved,
    ReleaseRequested,
)
from server.model.parts import Parts, whole
from server.model.quota import (
    Acl,
    ChildTemplate,
    Configuration,
    PartitionSpec,
    PlacementRule,
    PreemptionSettings,
    PriorityPolicy,
    QueueProperties,
    QueueSpec,
    SortPolicy,
    UserLimit,
)
from server.model.resources import resource
from server.state import prepared, quota_timers, reclassing, reranking, reranking_fast, tree
from server.state.applications import Application, Gang, Group
from server.state.limits import OWN, Limiter
from server.state.partition import Partition
from server.state.prepared import Prepared
from server.state.queues import ChildEntry, Queue
from tests.core import plain_tree
from tests.effort import cases

T = TypeVar("T")
SEEDS = range(cases(12, 4))
STEPS = 40
TYPES = ("vcore", "memory", "gpu", "disk")
ALL = Acl(everyone=True)


@dataclass
class Life:
    """What happened to a core: its decisions and pictures after each step."""

    decisions: list[str] = field(default_factory=list)
    pictures: list[str] = field(default_factory=list)
    used: int = 0
    """How many prepared queues came into use."""


def amounts(chance: random.Random, most: int) -> dict[str, int]:
    return {
        name: chance.randrange(most)
        for name in TYPES[: chance.choice((2, 2, 3, 4))]
        if chance.random() < 0.5
    }


def queue(chance: random.Random, name: str, depth: int, kinds: tuple[str, ...]) -> QueueSpec:
    width = chance.randrange(1, 4) if depth < 3 and (depth == 0 or chance.random() < 0.5) else 0
    names = chance.sample(("a", "b", "c", "d", "e"), width)
    parent = bool(names) or depth == 0 or chance.random() < 0.1
    limits = UserLimit(("u",), max_resources=resource(amounts(chance, 9_000)), max_applications=9)
    return QueueSpec(
        name,
        parent=parent,
        guaranteed=resource(amounts(chance, 3_000)) if depth else (),
        max=resource(amounts(chance, 9_000)) if depth and chance.random() < 0.6 else None,
        weight=chance.randrange(1, 4),
        properties=QueueProperties(
            sort_policy=chance.choice([*SortPolicy]),
            priority_sort=chance.random() < 0.6,
            priority_policy=chance.choice([*PriorityPolicy]),
            priority_offset=chance.randrange(-2, 3),
        ),
        submit_acl=ALL,
        limits=(limits,) if chance.random() < 0.1 else (),
        template=ChildTemplate(max=resource({"vcore": 4_000}))
        if parent and chance.random() < 0.3
        else None,
        children=tuple(queue(chance, one, depth + 1, kinds) for one in names),
    )


def configuration(chance: random.Random, number: int) -> Configuration:
    policies = ("required-node", "guaranteed", *(("job",) if chance.random() < 0.3 else ()))
    settings = PreemptionSettings(
        policies=policies,
        entitlement=chance.choice(("guaranteed", "guaranteed", "proportional")),
        demand_cap=chance.random() < 0.5,
        quota_enabled=chance.random() < 0.5,
        job_default_preemptible=chance.random() < 0.5,
    )
    rules = (PlacementRule(kind="provided", create=True),)
    weights = tuple((name, 1_000) for name in chance.sample(TYPES, 2))
    specs = tuple(
        PartitionSpec(
            name,
            queue(chance, "root", 0, TYPES),
            rules=rules,
            node_weights=weights,
            preemption=settings,
        )
        for name in ("default", "other")
        if name == "default" or chance.random() < 0.5
    )
    return Configuration(specs, digest=f"{number}")


def adjusted(chance: random.Random, before: Configuration, number: int) -> Configuration:
    """Return a configuration with other limits and queues, in which the queues that stay sort as before."""
    firm = chance.random() < 0.5
    specs = (
        replace(
            one,
            root=_adjusted(chance, one.root, 0),
            preemption=replace(one.preemption, job_default_preemptible=not firm),
        )
        for one in before.partitions
    )
    return Configuration(tuple(specs), digest=f"{number}")


def _adjusted(chance: random.Random, spec: QueueSpec, depth: int) -> QueueSpec:
    children = [_adjusted(chance, one, depth + 1) for one in spec.children if chance.random() < 0.9]
    if spec.children and chance.random() < 0.2:
        children.append(QueueSpec("added", max=resource(amounts(chance, 9_000)), submit_acl=ALL))
    known = {one.name: one for one in children}
    changed: dict[str, Any] = {"children": tuple(known.values())}
    if depth and chance.random() < 0.6:
        changed["guaranteed"] = resource(amounts(chance, 3_000))
    if depth and spec.max is not None and chance.random() < 0.6:
        changed["max"] = resource(amounts(chance, 9_000))
    return replace(spec, weight=chance.randrange(1, 4), **changed)


def following(chance: random.Random, known: list[Configuration], number: int) -> Configuration:
    """Return the next configuration, and add it to those that are known if it is new."""
    if known and chance.random() < 0.5:
        known.append(adjusted(chance, known[-1], number))
    elif not known or chance.random() < 0.8:
        known.append(configuration(chance, number))
    return chance.choice(known)


def events(chance: random.Random) -> Iterator[Event]:
    """Yield the events of a life: nodes and pods come and go, and every fifth event is another configuration or one again."""
    yield ManagerRegistered("rm")
    known: list[Configuration] = []
    for at in range(STEPS):
        name = f"app{chance.randrange(12)}"
        path = "root." + ".".join(chance.choices("abcde", k=chance.randrange(1, 4)))
        if at % 5 == 4:
            found = following(chance, known, at)
            # an equal configuration of other objects
            copied = Configuration(found.partitions, digest=f"{found.digest}-{at}")
            yield ConfigurationApplied(copied, "test", by="x", one_by_one=bool(at % 2))
        elif at % 5 == 0:
            sizes = {kind: chance.randrange(1, 20_000) for kind in TYPES if chance.random() < 0.7}
            yield NodeAdded("rm", f"n{at}", resource(sizes))
        elif chance.random() < 0.1:
            yield NodeRemoved("rm", f"n{at // 10 * 5}")
        elif chance.random() < 0.1:
            yield ApplicationRemoved("rm", name)
        else:
            yield ApplicationAdded("rm", name, path, user=chance.choice("uv"))
            for one in range(3):
                spec = AskSpec(
                    resource({"vcore": chance.randrange(1, 3) * 500, "memory": 10}),
                    priority=chance.randrange(3),
                    lendable=chance.choice((None, None, False, True)),
                )
                yield AskAdded("rm", f"{name}-{at}-{one}", name, spec)
            yield ReleaseRequested("rm", name, f"{name}-{chance.randrange(STEPS)}-0")


class InParts(Core):
    """A core that ticks, and takes configurations and registrations, in parts, and counts the pauses."""

    pauses = 0

    def handle(self, event: Event, now: int) -> list[Decision]:
        if not isinstance(event, ConfigurationApplied | ManagerRegistered):
            return super().handle(event, now)
        return self._whole(self.take_in_parts(event, now))

    def tick(self, now: int, budget: int = BUDGET) -> Tick:
        return self._whole(self.tick_in_parts(now, budget))

    def _whole(self, parts: Parts[T]) -> T:
        while True:
            try:
                next(parts)
            except StopIteration as end:
                assert not self.is_amid
                result: T = end.value
                return result
            assert self.is_amid
            self.pauses += 1


def live(
    seed: int,
    *,
    interrupted: bool = False,
    prepares: bool = False,
    core: Core | None = None,
    budget: int = BUDGET,
) -> Life:
    """Return the life of a core. While a configuration is prepared, events may come that change the state."""
    core, life, now = core or Core(), Life(), 1_000
    for event in events(random.Random(seed)):
        now += 500
        if isinstance(event, ConfigurationApplied):
            ahead = core.prepare(event.configuration) if prepares else iter(())
            next(ahead, None)
            if interrupted:
                for other in between(now):
                    life.decisions.append(repr(core.handle(other, now)))
                tick(core, life, now, budget)
            assert not any(ahead)
        life.decisions.append(repr(core.handle(event, now)))
        tick(core, life, now, budget)
        life.used += sum(len(one.used) for one in core.state.prepared.values())
        assert not any(core.drop_prepared())
    return life


def between(now: int) -> Iterator[Event]:
    """Yield a node with another type of resource, and an application that may bring a queue."""
    yield NodeAdded("rm", f"i{now}", resource({"vcore": 3_000, f"new{now // 500 % 3}": 1}))
    yield ApplicationAdded("rm", f"i{now}", f"root.{'abcde'[now // 500 % 5]}")


def tick(core: Core, life: Life, now: int, budget: int = BUDGET) -> None:
    """Decide until nothing is left to decide."""
    for _ in range(200):
        done = core.tick(now, budget)
        life.decisions.append(repr(done.decisions))
        if not done.more:
            break
    else:
        raise AssertionError("it never ends")
    core.validate()
    life.pictures.append(repr(picture(core)))


def picture(core: Core) -> object:
    """Return what a digest leaves out, too: numbers, limits, measures and the order of heaps."""
    return core.digest(), [
        (
            name,
            partition.numbers,
            partition.types.names,
            partition.quota_due,
            [_queue(one) for one in partition.queues.values()],
            [_application(one) for one in partition.applications.values()],
            [(key, _limiter(one)) for key, one in partition.limits.by_key.items()],
            _parked(partition),
        )
        for name, partition in core.state.partitions.items()
    ]


def _queue(one: Queue) -> object:
    return (
        (one.path, one.number, one.state, one.managed, one.leaf, list(one.children)),
        (one.fair, one.priority_first, one.fence, one.offset, one.spec.name),
        (one.measure, one.measure_scales, one.basis, one.basis_scales),
        (one.usage, one.promised, one.releasing, one.lost, one.firm_held, one.firm_waiting),
        (one.share, one.blocked_asks),
        sorted(_ranked(entry) for entry in one.heap if _is_in_order(entry)),
        (_limiter(one.limiter), _limiter(one.firm)),
        [queue.path for pair in one.climb for queue in pair],
    )


def _application(one: Application) -> object:
    share = one.share if one.leaf.fair else None  # other leaves sort by arrival
    heap = sorted(
        entry[:-1] for entry in one.heap if entry[-1].entry is entry and not _is_parked(entry[-1])
    )
    limits = [(limit.kind, limit.name, limit.queue.path) for limit in one.limiters]
    return one.application_id, one.leaf.path, one.number, share, heap, limits


def _ranked(entry: ChildEntry) -> tuple[str, int]:
    """Return the name and share of a child. Its announced priority may be too high for a while, which `validate` allows, too."""
    child = entry[-1]
    return (child.path if isinstance(child, Queue) else child.application_id), child.share


def _is_parked(one: Group | Gang) -> bool:
    """Return whether a group or gang is parked, or would be if it were tried, because a limit blocks its class already."""
    if one.parked or isinstance(one, Gang):
        return one.parked
    return any(one.ask_class in limit.blocked for limit in one.application.limits_of(one.ask_class))


def _is_in_order(entry: ChildEntry) -> bool:
    """Return whether the entry is valid and leads to an ask that may be placeable. Other entries are removed at the next search."""
    child = entry[-1]
    if child.entry is not entry:
        return False
    if isinstance(child, Application):
        return any(entry[-1].entry is entry and not _is_parked(entry[-1]) for entry in child.heap)
    return any(map(_is_in_order, child.heap))


def _limiter(one: Limiter | None) -> object:
    if one is None:
        return None
    blocked = sorted(each.number for each in one.blocked)
    members = None if one.kind in OWN else one.applications
    return one.kind, one.name, one.queue.path, one.headroom, blocked, members


def _parked(partition: Partition) -> object:
    return [
        (group.number, _is_parked(group))
        for application in partition.applications.values()
        for group in application.groups.values()
    ]


@pytest.mark.parametrize("interrupted", [False, True], ids=["alone", "between events"])
def test_decisions_and_state_are_those_of_the_plain_way(
    monkeypatch: pytest.MonkeyPatch, *, interrupted: bool
) -> None:
    monkeypatch.setattr(prepared, "PIECE", 3)
    monkeypatch.setattr(prepared, "READ_PIECE", 3)
    monkeypatch.setattr(reclassing, "STEP", 3)
    used = 0
    for seed in SEEDS:
        monkeypatch.setattr(configuration_events, "PUT_OFF_FROM", 1 if seed % 2 else 5_000)
        with monkeypatch.context() as patched:
            plain_tree.patch(patched)
            want = live(seed, interrupted=interrupted)
        for prepares in (False, True):
            found = live(seed, interrupted=interrupted, prepares=prepares)
            assert found.decisions == want.decisions, f"seed {seed}, {prepares=}"
            assert found.pictures == want.pictures, f"seed {seed}, {prepares=}"
            used += found.used
    assert used > len(SEEDS)


def test_the_fast_path_of_ranks_decides_as_the_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ticks with few steps show that both park the same groups: a step parks a group or places an ask."""
    ranked: list[str] = []
    real = reranking_fast.rebuild_in_parts

    def counted(partition: Partition, ahead: Prepared) -> Parts[None]:
        ranked.append(partition.name)
        yield from real(partition, ahead)

    monkeypatch.setattr(reranking_fast, "rebuild_in_parts", counted)
    for seed, budget in product(SEEDS, (2, BUDGET)):
        with monkeypatch.context() as patched:
            patched.setattr(reranking, "is_kept", lambda *_: False)
            want = live(seed, prepares=True, budget=budget)
        found = live(seed, prepares=True, budget=budget)
        assert found.decisions == want.decisions, f"seed {seed}, {budget=}"
        assert found.pictures == want.pictures, f"seed {seed}, {budget=}"
    assert len(ranked) > 2 * len(SEEDS)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_done_in_parts_is_done_as_a_whole(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    for module in (
        configuration_events, due_quota, quota_timers, reranking, reranking_fast, tree,
    ):  # fmt: skip
        monkeypatch.setattr(module, "PART", 2)
    core = InParts()
    want, found = live(seed), live(seed, core=core)
    assert found.decisions == want.decisions
    assert found.pictures == want.pictures
    assert core.pauses > 5 * STEPS


def test_an_event_in_parts_is_taken_as_many_are() -> None:
    one, other = Core(), Core()
    for event in events(random.Random(0)):
        assert one.take([event], 1) == whole(other.take_in_parts(event, 1))
    assert one.digest() == other.digest()


def test_a_tick_that_ranks_many_queues_does_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    core = Core()
    core.handle(ManagerRegistered("rm"), 1)
    core.handle(ApplicationAdded("rm", "app", "root.a"), 1)
    core.handle(AskAdded("rm", "p", "app", AskSpec(resource({"vcore": 1}))), 1)
    monkeypatch.setattr(core_module, "RANKED_ALONE", 3)
    core.handle(NodeAdded("rm", "n", resource({"vcore": 1})), 1)
    first, second = core.tick(1), core.tick(1)
    assert first.more
    assert not first.decisions
    assert second.decisions
    assert not second.more
