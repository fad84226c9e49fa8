"""Every policy and every setting at once, with restarts: the invariants of specification 8, judged from outside.

Each life is judged step by step by an account of its own and lived through a second time, decision by decision. What did
not happen proves nothing, so each policy has to have decided often enough.
"""

from collections import Counter
from typing import Final

import pytest

from server.core import inspect
from server.model.asks import AskSpec
from server.model.decisions import ApplicationUpdated
from server.model.events import AllocationAdded, ApplicationAdded, AskAdded, ManagerRegistered
from tests.preemption.clusters import MANAGER, Cluster
from tests.simulation.everything_life import Everything

LIVES: Final = 40
LIVES_SOAK: Final = 4_000
CHUNK: Final = 100
LEAST: Final = {
    "required-node ordered": 8,
    "guaranteed ordered": 6,
    "job ordered": 5,
    "in-queue ordered": 12,
    "quota ordered": 3,
    "trim ordered": 2,
    "shadow differs": 4,
    "gangs placed": 8,
    "placeholder PLACEHOLDER_REPLACED": 6,
    "restarts with open decisions": 3,
    "lost cores with open decisions": 2,
    "noted victim-vetoed": 3,
    "noted reserved": 30,
    "budgets that bound": 1,
}
"""How often things have to happen in the lives of the plain run."""


def live(seeds: range) -> Counter[str]:
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
    found = live(range(LIVES))
    rare = {what: found[what] for what, least in LEAST.items() if found[what] < least}
    assert not rare, f"{rare} happened too rarely: {dict(found)}"


@pytest.mark.soak
@pytest.mark.parametrize("first", range(100_000, 100_000 + LIVES_SOAK, CHUNK))
def test_all_policies_together_for_long(first: int) -> None:
    live(range(first, first + CHUNK))


# What such lives found and no story can say -----------------------------------------------------------------------


def told(cluster: Cluster) -> None:
    """An application that fails unless its placeholders all have places in time, and the one that has none yet."""
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
