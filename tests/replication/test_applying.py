"""A follower that joins at any moment has the state and the decisions of its leader after each slice."""

from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from evenhand_cli.story.form import Example
from evenhand_cli.story.play import Player
from server.core.core import Core
from server.model.asks import AskSpec
from server.model.decisions import Decision, Tick
from server.model.events import (
    AllocationAdded,
    ApplicationAdded,
    AskAdded,
    Event,
    ManagerRegistered,
    NodeAdded,
)
from server.model.quota import DEFAULT_CONFIGURATION
from server.replication import feed as feeding
from server.replication.applying import PIECE_EVENTS, Applier, LostError
from server.replication.feed import Feed, Follower
from tests.effort import cases
from tests.stories.story import stories
from tests.ticks import ticked

STORIES = list(stories())
REGISTERED = ManagerRegistered("rm", configuration=DEFAULT_CONFIGURATION)


@dataclass
class Pair:
    """A leader's feed, a follower, and the core of the follower."""

    leader: Feed
    follower: Follower
    mine: Feed = field(default_factory=lambda: Feed(Core(), "v"))

    def __post_init__(self) -> None:
        self.leader.join(self.follower)
        self.applier = Applier(self.mine, self.mine)
        self.applier.begin(b"".join(self.leader.checkpoint()))

    def pass_on(self) -> None:
        """Apply everything that waits for the follower."""
        for one in self.follower.take():
            self.applier.apply(one)


def pair(leader: Feed) -> Pair:
    """Return a follower that joins now."""
    return Pair(leader, Follower("f", lambda: None))


class Fed:
    """A core as a story's player uses it, with a feed before it."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.feed = Feed(core, "v")

    def handle(self, event: Event, now: int) -> list[Decision]:
        """Give the core an event through the feed."""
        return self.feed.take([event], now)

    def tick(self, now: int, budget: int = 20_000) -> Tick:
        """Tick through the feed."""
        return ticked(self.feed, now, budget)

    def __getattr__(self, name: str) -> object:
        return getattr(self._core, name)


@pytest.mark.parametrize("file", sorted({file for file, _ in STORIES}))
def test_a_follower_of_a_story_is_equal_after_each_step(file: str) -> None:
    mine = [story for name, story in STORIES if name == file]
    for story in mine[: cases(len(mine), 3)]:
        for join in range(cases(3, 1)):
            _follow(story, join)


def _follow(story: Example, join: int) -> None:
    player = Player.of(story)
    fed = Fed(player.core)
    player.core = fed  # type: ignore[assignment]
    found: Pair | None = None
    for number, moment in enumerate(story.moments):
        if number == join:
            found = pair(fed.feed)
        player.take(moment)
        if found is not None:
            found.pass_on()
            assert found.applier.difference == "", story.title
            assert found.mine.position == fed.feed.position
            assert found.mine.decided == fed.feed.decided
            assert found.mine._core.digest() == fed.digest(), story.title  # type: ignore[operator]


def node(number: int) -> Event:
    """Return a node of the manager."""
    return NodeAdded("rm", f"n{number}", (("vcore", 10),))


def started() -> Feed:
    """Return the feed of a core with a manager and a node."""
    one = Feed(Core(), "v")
    one.take([ManagerRegistered("rm"), node(0)], 1)
    ticked(one, 1, 100)
    return one


def test_a_follower_that_joins_amid_a_slice_gets_the_next_one_whole() -> None:
    leader = started()
    leader.take([node(1)], 2)
    found = pair(leader)
    leader.take([node(2)], 2)
    ticked(leader, 2, 100)
    leader.take([node(3)], 3)
    ticked(leader, 3, 100)
    with pytest.raises(LostError):
        # Its checkpoint is from amid the slice that it does not get: the caller joins between two slices.
        found.pass_on()


def test_a_slice_from_before_the_checkpoint_changes_nothing() -> None:
    leader = started()
    follower = Follower("f", lambda: None)
    leader.join(follower)
    leader.take([node(1)], 2)
    ticked(leader, 2, 100)
    mine = Feed(Core(), "v")
    applier = Applier(mine, mine)
    applier.begin(b"".join(leader.checkpoint()))
    assert [applier.apply(one) for one in follower.take()] == [None]
    leader.take([node(2)], 3)
    ticked(leader, 3, 100)
    assert [applied.events for one in follower.take() if (applied := applier.apply(one))] == [1]
    assert mine.position == leader.position


def test_missing_input_is_noticed() -> None:
    leader = started()
    found = pair(leader)
    for number in (1, 2):
        leader.take([node(number)], number)
        ticked(leader, number, 100)
    first, second = found.follower.take()
    found.applier.apply(first)
    third = replace_input(second, second.input[:-10])
    with pytest.raises(LostError):
        found.applier.apply(third)


def replace_input(one: feeding.Slice, packed: bytes) -> feeding.Slice:
    """Return a slice with other input."""
    return one._replace(input=packed)


def test_another_decision_is_named_with_its_place() -> None:
    leader = started()
    found = pair(leader)
    leader.take([node(1)], 2)
    ticked(leader, 2, 100)
    (one,) = found.follower.take()
    found.applier.apply(one._replace(decided=one.decided + 1))
    assert found.applier.difference.startswith(f"after input {one.position}: ")


@pytest.mark.parametrize("in_tick", [False, True])
def test_a_follower_that_joins_in_a_pause_is_fed_from_the_next_slice_on(*, in_tick: bool) -> None:
    leader = started()
    pauses = leader.tick_in_parts(3, 100) if in_tick else leader.take_in_parts(REGISTERED, 2)
    if in_tick:
        leader.take([node(1)], 2)  # its queues are to be ranked
    next(pauses)
    follower = Follower("f", lambda: None)
    leader.join(follower)
    assert not leader.followers
    assert not any(pauses)
    if not in_tick:
        ticked(leader, 3, 100)
    assert leader.followers == [follower]
    assert follower.position == leader.position
    assert not follower.take()


def test_a_follower_that_is_too_slow_has_to_join_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeding, "BACKLOG_BYTES_MAX", 500)
    leader = started()
    found = pair(leader)
    for number in range(1, 20):
        leader.take([node(number)], number)
        ticked(leader, number, 100)
    assert found.follower.is_behind
    assert found.follower.take() == []


def test_a_large_slice_is_applied_in_parts_that_end_as_the_whole() -> None:
    leader = started()
    found, whole = pair(leader), pair(leader)
    leader.take([node(number) for number in range(4 * PIECE_EVENTS)], 2)
    ticked(leader, 2, 100)
    (one,) = found.follower.take()
    whole.pass_on()
    parts = found.applier.apply_in_parts(one)
    positions = [found.mine.position for _ in parts]
    assert len(positions) >= 4
    steps = [after - before for before, after in pairwise(positions)]
    assert 0 < max(steps) <= PIECE_EVENTS
    assert found.applier.difference == ""
    assert found.mine.position == whole.mine.position == leader.position
    assert found.mine.decided == whole.mine.decided == leader.decided


def test_a_pod_that_is_reported_again_unchanged_changes_nothing_at_a_follower_either() -> None:
    """The leader has the same object for the template of the ask and of the allocation. The follower reads another one."""
    spec = AskSpec((("vcore", 1),))
    leader = Feed(core := Core(), "v")
    events: list[Event] = [
        REGISTERED,
        NodeAdded("rm", "n", (("vcore", 10),)),
        ApplicationAdded("rm", "app", "root.a"),
        AskAdded("rm", "first", "app", spec),
        AskAdded("rm", "second", "app", spec),
        AskAdded("rm", "waits", "app", AskSpec((("vcore", 20),))),
    ]
    leader.take(events, 1)
    ticked(leader, 1, 100)
    both = pair(leader)
    leader.take([AllocationAdded("rm", "first", "app", "n", spec, started_ms=2)], 2)
    leader.take([events[-1]], 2)
    ticked(leader, 2, 100)
    both.pass_on()
    assert both.applier.difference == ""
    assert both.mine._core.digest() == core.digest()
    mine, others = (one.state.partitions["default"] for one in (core, both.mine._core))
    assert (mine.relief, mine.placements) == (others.relief, others.placements)
    assert [*mine.index.nodes["n"].allocations] == [*others.index.nodes["n"].allocations]
