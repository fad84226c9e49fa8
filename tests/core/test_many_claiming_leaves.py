"""A round whose claims are in many leaves checks no more found claims in a tick than its allowance, and decides the same (P3, P4)."""

from collections.abc import Iterator, Sequence

import pytest

from server.core.core import Core
from server.core.preemption import claim_chunks, rounds
from server.model.asks import AskSpec
from server.model.decisions import Noted
from server.model.events import (
    ApplicationAdded,
    ApplicationRemoved,
    ManagerRegistered,
    NodeAdded,
    ReleaseRequested,
)
from server.model.quota import (
    Acl,
    Configuration,
    PartitionSpec,
    PlacementRule,
    QueueSpec,
)
from server.model.resources import resource
from server.preemption.claims import guarantee
from server.preemption.policy import Intent
from server.preemption.trial import Trial
from tests.core import test_many_claiming_events
from tests.core.test_many_claiming import (
    DELAY_MS,
    KINDS,
    NOW,
    AtOnce,
    ask,
    story,
    ticks,
    without_reasons,
)
from tests.core.test_many_claiming_events import World
from tests.effort import cases

LEAVES = 40
ASKS = 30
MOST = 50
"""The largest number of found claims that a tick of these tests checks before it tries the first claim, and after that."""


def many_leaves() -> Core:
    """Return a core with two nodes that are full of pods of leaf `d`, and with many leaves below their guarantees."""
    names = [f"q{at}" for at in range(LEAVES)]
    guaranteed = resource({"vcore": 20_000})
    tree = QueueSpec(
        "root",
        parent=True,
        submit_acl=Acl(everyone=True),
        children=(*(QueueSpec(one, guaranteed=guaranteed) for one in names), QueueSpec("d")),
    )
    core = Core(Configuration((PartitionSpec("default", tree),)))
    core.handle(ManagerRegistered("rm"), NOW)
    for at in range(2):
        core.handle(NodeAdded("rm", f"n{at}", resource({"vcore": 4_000})), NOW)
    for leaf in (*names, "d"):
        core.handle(ApplicationAdded("rm", f"app-{leaf}", f"root.{leaf}", user="ann"), NOW)
    for at in range(2):
        ask(core, f"runs-{at}", "d", AskSpec(resource({"vcore": 4_000})), NOW)
    ticks(core, NOW, 1_000)
    return core


def found(core: Core) -> int:
    """Return how many claims the search has found that no tick has read yet."""
    search = core.state.partitions["default"].round.claim_search
    return 0 if search is None else sum(map(len, search.found.values()))


def search_order(core: Core) -> list[str]:
    """Return the numbers of the leaves in the order in which a tick reads their claims."""
    search = core.state.partitions["default"].round.claim_search
    return [] if search is None else [path.removeprefix("root.q") for path in search.found]


def in_turn(key: str) -> tuple[int, int]:
    """Return the sort key of an ask: asks of all leaves came in turn."""
    leaf, at = key.split("-")
    return int(at), int(leaf)


def checks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list whose last number counts the checks of claims that were found earlier."""
    checked = [0]
    is_due = claim_chunks._is_due

    def counted(*given: object) -> bool:
        checked[-1] += 1
        return is_due(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(claim_chunks, "_is_due", counted)
    return checked


@pytest.mark.parametrize("read_most", [0, 2 * LEAVES])
@pytest.mark.parametrize("keeps", [1, 3])
def test_a_tick_checks_no_more_found_claims_than_its_allowance(
    read_most: int, keeps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nearly all claims that a search found are withdrawn before they are tried, so that none of them costs a step."""
    core = many_leaves()
    asks = [(leaf, at) for at in range(ASKS) for leaf in range(LEAVES)]
    for leaf, at in asks:
        ask(core, f"{leaf}-{at}", f"q{leaf}", AskSpec(resource({"vcore": 5_000 + at})), NOW)
    ticks(core, NOW, 1_000)
    monkeypatch.setattr(claim_chunks, "SEARCH_MOST", MOST)
    monkeypatch.setattr(claim_chunks, "SHARE_MOST", MOST)
    monkeypatch.setattr(claim_chunks, "LATE_MOST", MOST)
    monkeypatch.setattr(claim_chunks, "FIRST_MOST", 1)
    monkeypatch.setattr(claim_chunks, "READ_MOST", read_most)
    monkeypatch.setattr(claim_chunks, "_are_many", lambda _partition: True)
    while found(core) < LEAVES * ASKS - MOST:
        core.tick(NOW + DELAY_MS, 1_000)
    first, *others = search_order(core)
    kept = [f"{first}-0", f"{first}-{ASKS - 1}", f"{others[-1]}-{ASKS - 1}"][:keeps]
    for leaf, at in asks:
        if f"{leaf}-{at}" not in kept:
            core.handle(ReleaseRequested("rm", f"app-q{leaf}", f"{leaf}-{at}"), NOW + DELAY_MS)
    checked, more = checks(monkeypatch), True
    tried: list[str] = []
    while more:
        tick = core.tick(NOW + DELAY_MS, 1_000)
        tried += [one.subject for one in tick.decisions if type(one) is Noted]
        more = tick.more
        checked.append(0)
    assert sum(checked) >= LEAVES * ASKS - MOST
    assert max(checked) <= 2 * MOST + keeps
    assert tried == sorted(kept, key=in_turn)


def test_leaves_that_are_removed_before_their_claims_are_read_have_no_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Dynamic leaves are removed together with their last application. The leaf that is left has its claims tried."""
    guaranteed = resource({"vcore": 20_000})
    children = (QueueSpec("p", parent=True, guaranteed=guaranteed), QueueSpec("d"))
    everyone = Acl(everyone=True)
    tree = QueueSpec("root", parent=True, submit_acl=everyone, children=children)
    rules = (PlacementRule("provided", create=True),)
    core = Core(Configuration((PartitionSpec("default", tree, rules),)))
    core.handle(ManagerRegistered("rm"), NOW)
    core.handle(NodeAdded("rm", "n0", resource({"vcore": 4_000})), NOW)
    leaves = [f"p.q{at}" for at in range(4)]
    for leaf in ("d", *leaves):
        core.handle(ApplicationAdded("rm", f"app-{leaf}", f"root.{leaf}", user="ann"), NOW)
    ask(core, "runs", "d", AskSpec(resource({"vcore": 4_000})), NOW)
    ticks(core, NOW, 1_000)
    for at in range(2):
        for leaf in leaves:
            ask(core, f"{leaf}-{at}", leaf, AskSpec(resource({"vcore": 5_000 + at})), NOW)
    ticks(core, NOW, 1_000)
    monkeypatch.setattr(claim_chunks, "READ_MOST", 0)
    monkeypatch.setattr(claim_chunks, "FIRST_MOST", 1)
    monkeypatch.setattr(claim_chunks, "_are_many", lambda _partition: True)
    now = NOW + DELAY_MS
    assert core.tick(now, 1).more
    gone, kept = leaves[:-1], leaves[-1]
    for leaf in gone:
        core.handle(ApplicationRemoved("rm", f"app-{leaf}"), now)
    decisions = ticks(core, now, 1_000)
    tried = [one.subject for one in decisions if type(one) is Noted and one.kind == "ask"]
    assert tried == [f"{kept}-0", f"{kept}-1"]


class Cuts:
    """How many claims each tick tried, and whether it ended because it might read no more. Ticks that tried none are left out.

    With a ``script``, ticks end where the ticks of the script ended.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, script: Sequence[tuple[int, bool]] = ()
    ) -> None:
        self.found: list[tuple[int, bool]] = []
        """The ticks so far."""
        self._script, self._tried = script, 0
        self._intents, self._try = guarantee.intents, rounds._try
        monkeypatch.setattr(guarantee, "intents", self.intents)
        monkeypatch.setattr(rounds, "_try", self.count)

    def intents(self, trial: Trial) -> Iterator[Intent]:
        """Yield the intents of a tick. End where the tick of the script ended."""
        self._tried, at = 0, len(self.found)
        most, ends = self._script[at] if at < len(self._script) else (0, False)
        try:
            for intent in self._intents(trial):
                yield intent
                if ends and self._tried == most:
                    trial.is_cut = True
                    return
        finally:
            if self._tried:
                self.found.append((self._tried, trial.is_cut))

    def count(self, *given: object) -> object:
        """Try a claim, and count it."""
        self._tried += 1
        return self._try(*given)  # type: ignore[arg-type]


@pytest.mark.parametrize("late", [1, 3])
@pytest.mark.parametrize("seed", range(cases(30)))
def test_a_tick_that_may_read_no_more_claims_is_cut_as_by_its_budget(
    seed: int, late: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin has every claim in its snapshot. Its ticks end after as many claims, and its decisions are the same."""
    with monkeypatch.context() as patch:
        few = cut(patch, late)
        found = told(seed)
    with monkeypatch.context() as patch:
        patch.setattr(claim_chunks, "Claims", AtOnce)
        every = Cuts(patch, few.found)
        assert told(seed) == found
    assert every.found == few.found


def test_ticks_of_the_stories_end_because_they_may_read_no_more_claims(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few = cut(monkeypatch, 1)
    for seed in range(6):
        told(seed)
    assert sum(ends for _, ends in few.found) >= 20


def cut(monkeypatch: pytest.MonkeyPatch, late: int) -> Cuts:
    """Let ticks read few claims, each when its leaf has its turn."""
    monkeypatch.setattr(claim_chunks, "_are_many", lambda _partition: True)
    monkeypatch.setattr(claim_chunks, "READ_MOST", 0)
    monkeypatch.setattr(claim_chunks, "FIRST_MOST", 1)
    monkeypatch.setattr(claim_chunks, "LATE_MOST", late)
    return Cuts(monkeypatch)


def told(seed: int) -> list[list[str]]:
    """Return the decisions of a random story."""
    if seed % 2:
        return without_reasons(story(seed, KINDS[seed // 2 % len(KINDS)], budget=1_000))
    kinds = test_many_claiming_events.KINDS
    return without_reasons([*World(seed, kinds[seed // 2 % len(kinds)]).story()])
