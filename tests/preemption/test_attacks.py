"""All policies together in random runs, checked by an independent model, and cases from such runs that no story covers."""

from collections import Counter
from dataclasses import replace

import pytest

from server.core.queries.simulate import prepared
from server.model.asks import AskSpec, Constraints, Protection
from server.model.decisions import Decided, Decision, Noted
from server.model.events import AllocationAdded, AskAdded
from server.model.reasons import Code
from server.model.resources import resource
from server.preemption.nodes.reservation import RESERVE_AFTER_MS
from tests.effort import TRIES_ALL, cases
from tests.preemption.attacks import Attack
from tests.preemption.clusters import MANAGER, Cluster, leaf

LIVES = cases(24)
"""Half of the partitions share by weight: as many plain ones as before there were shares."""
LIVES_SOAK = 2_000
CHUNK = 50
TICKS_MOST = 10


def daemons(cluster: Cluster, *nodes: str, **wanted: int) -> None:
    """Asks that require these nodes, where everything is taken."""
    cluster.nodes(*nodes, memory=10)
    cluster.application("x")
    cluster.application("y", "root.b")
    for node in nodes:
        cluster.existing(f"e-{node}", node, "y", memory=10)
        spec = AskSpec(resource(wanted), constraints=Constraints(required_node=node))
        cluster.say(AskAdded(MANAGER, f"d-{node}", "x", spec))


def told_until_quiet(cluster: Cluster, budget: int) -> list[Decision]:
    """Return what the ticks of one instant decide, until no tick asks for more."""
    told: list[Decision] = []
    for _ in range(TICKS_MOST):
        tick = cluster.core.tick(cluster.now, budget)
        told += tick.decisions
        if not tick.more:
            return told
    raise AssertionError("ticks do not end")


def test_daemons_without_headroom_do_not_keep_a_round_with_a_small_budget_going() -> None:
    cluster = Cluster(leaf("a", memory=1), leaf("b"))
    daemons(cluster, "n1", "n2", "n3", memory=5)
    notes = [one for one in told_until_quiet(cluster, budget=1) if isinstance(one, Noted)]
    refused = [one.subject for one in notes if one.code is Code.PREEMPTION_REFUSED]
    assert refused == ["d-n1", "d-n2", "d-n3"]


def test_daemons_are_observed_once_and_do_not_keep_a_round_with_a_small_budget_going() -> None:
    cluster = Cluster(leaf("a"), leaf("b"))
    spec = cluster.partition.spec
    cluster.partition.spec = replace(spec, preemption=replace(spec.preemption, observe_only=True))
    daemons(cluster, "n1", "n2", "n3", memory=5)
    told = told_until_quiet(cluster, budget=1)
    assert len([one for one in told if isinstance(one, Decided)]) == 3


def test_a_trim_that_finds_nobody_does_not_keep_a_round_with_a_small_budget_going() -> None:
    cluster = Cluster(leaf("a"), leaf("b"))
    spec = cluster.partition.spec
    settings = replace(spec.preemption, entitlement="proportional")
    cluster.partition.spec = replace(spec, preemption=settings)
    cluster.nodes("n1", memory=10)
    cluster.application("x")
    stays = AskSpec(resource({"memory": 10}), protection=Protection.UNTOUCHABLE)
    cluster.say(AllocationAdded(MANAGER, "e", "x", "n1", stays))
    cluster.resize("n1", memory=8)
    cluster.say(AskAdded(MANAGER, "d", "x", AskSpec(resource({"memory": 8})), created_ms=0))
    told_until_quiet(cluster, budget=1)
    assert cluster.reserved() == {"d": "n1"}


def test_all_applications_that_are_refused_alike_hear_of_it_and_rest() -> None:
    cluster = Cluster(replace(leaf("a"), guaranteed=(("memory", 50),)), leaf("b"))
    cluster.nodes("n1", memory=10)
    cluster.application("y", "root.b")
    spec = AskSpec(resource({"memory": 10}), priority=9)
    cluster.say(AllocationAdded(MANAGER, "e", "y", "n1", spec))
    for name in ("x1", "x2", "x3"):
        cluster.application(name)
        wanted = AskSpec(resource({"memory": 10}))
        cluster.say(AskAdded(MANAGER, f"d-{name}", name, wanted, created_ms=0))
    cluster.tick(wait_ms=60_000)
    assert cluster.noted(Code.PREEMPTION_REFUSED) == ["d-x1", "d-x2", "d-x3"]
    assert cluster.core.next_due() == cluster.now + cluster.partition.spec.preemption.backoff_ms


def looking(cluster: Cluster, looks: bool) -> None:  # noqa: FBT001
    """Somebody asks what would happen, perhaps."""
    if looks:
        list(prepared(cluster.core, "default", [], cluster.now).answers())


@pytest.mark.parametrize("looks", [False, True])
def test_looking_in_between_changes_no_record(
    looks: bool,  # noqa: FBT001
) -> None:
    cluster = Cluster(replace(leaf("a"), guaranteed=(("memory", 50),)), leaf("b"))
    cluster.nodes("n1", memory=32)
    cluster.application("x")
    cluster.application("y", "root.b")
    cluster.existing("e1", "n1", "x", memory=5)
    cluster.existing("e2", "n1", "x", memory=3)
    cluster.existing("e4", "n1", "x", memory=2)
    looking(cluster, looks)
    cluster.release("e2")
    looking(cluster, looks)
    cluster.existing("e3", "n1", "x", memory=5)
    cluster.existing("y1", "n1", "y", memory=20)
    cluster.now += 60_000
    cluster.say(AskAdded(MANAGER, "d", "x", AskSpec(resource({"memory": 20})), created_ms=0))
    made = [one for one in told_until_quiet(cluster, 20_000) if isinstance(one, Decided)]
    assert [one.keys for one in made[0].record.spared] == [("e1", "e3", "e4")]


def test_an_owner_that_let_an_urgent_ask_go_first_gets_its_node_when_that_ask_is_gone() -> None:
    """The budget ended the tick before the urgent ask was tried, and then it was released."""
    cluster = Cluster(leaf("a"), leaf("b"))
    cluster.nodes("n1", memory=10)
    cluster.application("x")
    cluster.existing("e", "n1", memory=5)
    cluster.existing("f", "n1", memory=3)
    cluster.ask("owner", memory=5)
    cluster.tick()
    cluster.tick(wait_ms=RESERVE_AFTER_MS)
    assert cluster.reserved() == {"owner": "n1"}
    cluster.ask("urgent", spec=replace(AskSpec(()), priority=9), memory=5)
    cluster.ask("small", spec=replace(AskSpec(()), priority=10), memory=1)
    cluster.release("e")
    assert cluster.core.tick(cluster.now, 1).more
    assert cluster.partition.decisions.reservations["owner"].yields
    cluster.release("urgent")
    told_until_quiet(cluster, budget=1)
    assert cluster.partition.asks["owner"].node is not None


def live(seed: int) -> Counter[str]:
    """One life, twice; what its account saw."""
    attack = Attack(seed)
    try:
        attack.live()
        attack.assert_same_again()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error
    return attack.account.seen


def test_everything_at_once() -> None:
    seen = sum((live(seed) for seed in range(LIVES)), Counter[str]())
    if TRIES_ALL:
        for policy in ("guaranteed", "required-node", "quota", "trim"):
            assert seen[f"{policy} ordered"] >= 2, seen
        for end in ("fulfilled", "aborted", "expired"):
            assert seen[f"guaranteed {end}"] >= 1, seen
        assert seen["ordered"] >= LIVES, seen
        assert seen["ordered again"] >= 1, seen
        assert seen["noted victim-vetoed"] >= 1, seen


@pytest.mark.soak
@pytest.mark.parametrize("chunk", range(LIVES_SOAK // CHUNK))
def test_everything_at_once_very_often(chunk: int) -> None:
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        live(seed)
