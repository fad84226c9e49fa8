"""The eligibility of victims that is computed for all leaves at once equals the one that is computed leaf by leaf (G2-G5).

Each claim of random clusters and stories compares the columns with the plain twin `by_leaf`, also after plans and between snapshots
that share the arrays of queues.
"""

import random
from collections import Counter
from dataclasses import replace
from typing import Final

import pytest

from server.core.core import Core
from server.kernels.fit import Mask
from server.model.asks import AskSpec
from server.model.events import ApplicationAdded, AskAdded, ManagerRegistered, NodeAdded
from server.model.quota import Acl, Configuration, PartitionSpec, QueueSpec
from server.model.resources import resource
from server.preemption.claims import candidate_pool, eligibility, margins
from server.preemption.claims.eligibility import CODES, RULES, ClaimEligibility, SparedByLeaf
from server.preemption.policy import SPARED_KEYS_MAX, ProtectedCandidates, Rule
from server.preemption.trial import Trial
from server.snapshot.eligibility_filter import FilteredRows
from server.snapshot.leaf_eligibility import PASSED, UNLIMITED, EligibilityColumns
from server.snapshot.snapshot import Snapshot
from tests.core.test_many_claiming import DELAY_MS, KINDS, NOW, story, ticks
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


def test_protected_candidates_are_told_alike_where_only_some_leaves_were_filtered_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pool that another queue's claim uses tells the protected candidates of the changed leaves, and keeps the others."""
    kept = Counter[bool]()
    again = eligibility.spared_again

    def compared(
        snapshot: Snapshot, known: SparedByLeaf, filtered: FilteredRows, changed: Mask
    ) -> SparedByLeaf:
        found = again(snapshot, known, filtered, changed)
        assert list(found.items()) == list(eligibility.spared(snapshot, filtered).items())
        assert [*found.values()] == plain_spared(snapshot, filtered)
        kept[bool(set(found) & set(known))] += 1
        return found

    monkeypatch.setattr(candidate_pool, "spared_again", compared)
    monkeypatch.setattr(eligibility, "CHANGED_MOST", 1 << 62)
    for seed in range(cases(40)):
        many_leaves(seed)
    assert kept[True]


def plain_spared(snapshot: Snapshot, filtered: FilteredRows) -> list[ProtectedCandidates]:
    """Return the protected candidates, found row by row."""
    columns, found = snapshot.allocations, dict[tuple[int, int], list[tuple[int, str]]]()
    for row, key in enumerate(columns.keys):
        code, leaf = int(filtered.codes[row]), int(columns.leaves[row])
        if columns.alive[row] and code not in {PASSED, CODES.gone} and leaf in snapshot.leaf_paths:
            found.setdefault((code, leaf), []).append((int(columns.created_ms[row]), key))
    return [
        ProtectedCandidates(
            RULES[code - 1],
            snapshot.leaf_paths[leaf],
            len(aged),
            tuple(key for _, key in sorted(aged)[:SPARED_KEYS_MAX]),
        )
        for (code, leaf), aged in sorted(found.items())
    ]


def many_leaves(seed: int) -> None:
    """Let several queues below their guarantees claim from others, of which some have many pods of equal age."""
    chance = random.Random(seed)
    poor = tuple(QueueSpec(f"p{at}", guaranteed=resource({"vcore": 2_000})) for at in range(4))
    rich = tuple(
        QueueSpec(f"r{at}", guaranteed=resource({"vcore": chance.choice((0, 3_000))}))
        for at in range(3)
    )
    top = QueueSpec("root", parent=True, submit_acl=Acl(everyone=True), children=(*poor, *rich))
    core = Core(Configuration((PartitionSpec("default", top),)))
    core.handle(ManagerRegistered("rm"), NOW)
    for at in range(8):
        core.handle(NodeAdded("rm", f"n{at}", resource({"vcore": 10_000})), NOW)
    for queue in (*poor, *rich):
        core.handle(ApplicationAdded("rm", f"app-{queue.name}", f"root.{queue.name}"), NOW)
    keys = [f"{number:03}" for number in range(80)]
    chance.shuffle(keys)
    for at, key in enumerate(keys):
        leaf = poor[at].name if at < len(poor) else chance.choice(rich).name
        spec = AskSpec(resource({"vcore": 1_000}), priority=chance.randrange(2))
        core.handle(AskAdded("rm", key, f"app-{leaf}", spec), NOW)
    ticks(core, NOW, 1_000)
    for at, queue in enumerate(poor):
        for number in range(2):
            spec = AskSpec(resource({"vcore": 1_000}), priority=1)
            core.handle(AskAdded("rm", f"w{at}{number}", f"app-{queue.name}", spec), NOW)
    ticks(core, NOW + DELAY_MS, 1_000)
