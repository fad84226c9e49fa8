"""Every policy and every setting together, with restarts: an independent model checks the invariants.

Each random run is checked step by step by the model, and run a second time to compare decision by decision. A run
proves something only about what happened in it. Each policy must therefore have decided often enough, and each check
must have been reached.

Victims are checked for all policies. Amounts are checked for claims, preemption within a queue, required-node
preemption, jobs, quota runs and surplus reclaim, except in these cases (LEAST counts them): while a decision is
replanned after a veto, from a restart to the next tick, and while a placeholder is being replaced. Capacity and
give-back are not checked for asks with host ports, for members of gangs outside policy `job`, and beside firm pods
that are evicted.

Not checked here, but by oracles and stories: whether a claim's victim by weight could be given back (W6), whether
another plan had been better (G8, J9), whether a job fits on other nodes without victims (invariant 12), shares of
quota runs (Q15), the deadzone (P9) and disruption budgets.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

import pytest

from server.core.queries import inspect
from server.model.asks import AskSpec
from server.model.decisions import ApplicationUpdated
from server.model.events import AllocationAdded, ApplicationAdded, AskAdded, ManagerRegistered
from tests.effort import TRIES_ALL, cases, drawn
from tests.preemption.clusters import MANAGER, Cluster
from tests.simulation.everything_life import Everything

LIVES: Final = (*range(cases(40)), *drawn((41, 57, 112, 338)))
"""Seeds. In lives 41 and 57 queues are trimmed, which is rare. In life 112 a job takes from other queues no more than its
share, which is rare, too (J7). In life 338 a decision is planned again that gave a victim up, which is evicted for another decision
by then (J11)."""
LIVES_SOAK: Final = 4_000
CHUNK: Final = 100
DONE: Final = {
    "required-node ordered": 15,
    "guaranteed ordered": 30,
    "job ordered": 20,
    "in-queue ordered": 25,
    "quota ordered": 3,
    "trim ordered": 5,
    "shadow differs": 20,
    "gangs placed": 12,
    "placeholder PLACEHOLDER_REPLACED": 8,
    "withdrawn": 2,
    "restarts with open decisions": 5,
    "lost cores with open decisions": 3,
    "noted victim-vetoed": 6,
    "noted reserved": 50,
    "budgets that bound": 3,
    "lives with a fence": len(LIVES) // 5,
}
"""How often things have to happen in the lives of the plain run."""
JUDGED: Final = {
    "guaranteed: beneficiary": 40,
    "guaranteed: pair of other queues": 30,
    "guaranteed: pair within a fence": 5,
    "guaranteed: owed": 20,
    "guaranteed: capacity": 15,
    "guaranteed: given back": 10,
    "job: beneficiary": 30,
    "job: pair of other queues": 20,
    "job: pair of its own queue": 20,
    "job: whole": 2,
    "job: capacity": 8,
    "job: share": 1,
    "job: given back": 6,
    "in-queue: beneficiary": 30,
    "in-queue: pair of its own queue": 20,
    "in-queue: capacity": 15,
    "in-queue: given back": 12,
    "required-node: pair": 20,
    "required-node: capacity": 8,
    "required-node: given back": 10,
    "quota: victim": 4,
    "quota: given back": 4,
    "trim: victim": 8,
    "trim: given back": 8,
    "shares": 400,
    "shares after a restart": 8,
}
"""How often each judgement has to be reached in them: of a beneficiary, of a pair with its victim, or of amounts."""
LEAST: Final = DONE | JUDGED


def live(seeds: Iterable[int]) -> Counter[str]:
    """Lives one after the other; a failure names its seed."""
    found: Counter[str] = Counter()
    for seed in seeds:
        try:
            life = Everything(seed)
            life.live()
            life.assert_same_again()
        except AssertionError as fault:
            fault.add_note(f"seed {seed}")
            raise
        found += life.seen
    return found


def test_all_policies_together() -> None:
    found = live(LIVES)
    if TRIES_ALL:
        rare = {what: found[what] for what, least in LEAST.items() if found[what] < least}
        assert not rare, f"{rare} happened too rarely: {dict(found)}"


@pytest.mark.soak
@pytest.mark.parametrize("first", range(100_000, 100_000 + LIVES_SOAK, CHUNK))
def test_all_policies_together_for_long(first: int) -> None:
    live(range(first, first + CHUNK))


# What such lives found and no story can say -----------------------------------------------------------------------


def told(cluster: Cluster) -> None:
    """Add an application that fails unless its placeholders all have places in time; none has one yet."""
    declared = (("memory", 20),)
    added = ApplicationAdded(MANAGER, "x", "root.a", execution_timeout_ms=60_000)
    cluster.say(added._replace(gang_style="Hard", placeholder_ask=declared))


PLACEHOLDER: Final = AskSpec((("memory", 5),), placeholder=True, task_group="g")


def test_an_application_that_fails_with_nothing_left_has_failed_in_the_same_tick() -> None:
    cluster = Cluster()
    cluster.nodes("n1", memory=1)
    told(cluster)
    cluster.say(AskAdded(MANAGER, "p1", "x", PLACEHOLDER))
    tick = cluster.core.tick(cluster.now + 60_000)
    states = [one.state.value for one in tick.decisions if isinstance(one, ApplicationUpdated)]
    assert states == ["Failing", "Failed"]
    assert cluster.core.next_due() is None


def test_what_a_manager_had_before_it_registered_anew_ends_nothing_that_came_since() -> None:
    """An application fails, its manager tells it again, and it fails again: its placeholder is still there."""
    cluster = Cluster()
    began = cluster.now
    for instant in (began + 60_000, began + 90_000):
        cluster.now = instant
        cluster.say(ManagerRegistered(MANAGER))
        cluster.nodes("n1", memory=5)
        told(cluster)
        known = AllocationAdded(MANAGER, "p1", "x", "n1", PLACEHOLDER, created_ms=began)
        cluster.say(known)
        while cluster.core.tick(cluster.now).more:
            pass
        cluster.core.validate()
    assert inspect.applications(cluster.core, "default")[0].state == "Failing"
