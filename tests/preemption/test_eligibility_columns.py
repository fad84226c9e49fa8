"""The eligibility of victims that is computed for all leaves at once equals the one that is computed leaf by leaf (G2-G5).

Each claim of random clusters and stories compares the columns with the plain twin `by_leaf`, also after plans and between snapshots
that share the arrays of queues.
"""

from collections import Counter
from dataclasses import replace
from typing import Final

import pytest

from server.preemption.claims import margins
from server.preemption.claims.eligibility import CODES, RULES, ClaimEligibility
from server.preemption.policy import Rule
from server.preemption.trial import Trial
from server.snapshot.leaf_eligibility import PASSED, UNLIMITED, EligibilityColumns
from tests.core.test_many_claiming import KINDS, story
from tests.effort import cases
from tests.preemption.claim_clusters import (
    START,
    AlikeDice,
    Dice,
    LayeredDice,
    WeightedDice,
    look_again,
    slices,
    tell,
)
from tests.preemption.class_clusters import FullClassDice, WeightedClassDice

DICE: Final = (Dice, LayeredDice, WeightedDice, AlikeDice, FullClassDice, WeightedClassDice)
TRIES: Final = cases(60)
ON_LEAVES: Final = (Rule.OWN_QUEUE, Rule.FENCE, Rule.DECIDING_QUEUE, Rule.CANDIDATE_DISABLED)


class Watched:
    """The comparisons so far: how often each rule protected a leaf, and how often leaves were open."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: Counter[str] = Counter()
        columns = ClaimEligibility.columns

        def compared(eligibility: ClaimEligibility, trial: Trial) -> EligibilityColumns:
            found = columns(eligibility, trial)
            self.compare(ClaimEligibility(trial, eligibility.ask), trial, found)
            return found

        monkeypatch.setattr(ClaimEligibility, "columns", compared)

    def compare(self, plain: ClaimEligibility, trial: Trial, found: EligibilityColumns) -> None:
        """Assert that the columns have the values of the plain twin."""
        leaves, width = trial.snapshot.allocations.leaf_places()[0], len(trial.snapshot.types)
        by_leaf = dict(plain.by_leaf(trial))
        expected = EligibilityColumns.of(leaves, by_leaf, width, CODES.gone)
        for name in EligibilityColumns.__slots__:
            assert getattr(found, name).tolist() == getattr(expected, name).tolist(), name
        assert margins.of(trial).count == len(by_leaf)
        for one in by_leaf.values():
            self.seen["open" if one.spared == PASSED else RULES[one.spared - 1].value] += 1
            self.seen["inside"] += bool(one.inside)
            self.seen["limited"] += one.spared == PASSED and one.priority != UNLIMITED
        self.seen["after plans"] += bool(trial.plans)


@pytest.mark.parametrize("dice", DICE)
def test_the_eligibility_of_all_leaves_is_that_of_each_leaf(
    dice: type[Dice], monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(monkeypatch)
    for seed in range(TRIES):
        cluster = dice(seed).cluster()
        told = tell(cluster)
        look_again(told.core, cluster, START + 16_000)
        slices(told.core, START + 16_000)
    assert watched.seen["open"] > TRIES // 4


def test_the_comparisons_meet_each_rule_on_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    for dice in DICE:
        for seed in range(60):
            tell(dice(seed).cluster())
    for name in (*ON_LEAVES, "inside", "limited"):
        assert watched.seen[name], watched.seen
    assert watched.seen["after plans"]


@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_snapshots_that_follow_each_other_have_the_usage_of_their_own_instant(
    kind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(KINDS[kind], deadzone_permyriad=500 * (kind % 2))
    watched = Watched(monkeypatch)
    for seed in range(cases(10)):
        story(seed, settings)
    assert watched.seen["open"]
