"""Tags of pods that have ended: they are kept for the pods' names, up to a limit."""

import pytest

from server.model.asks import NO_TAGS, Tags
from server.model.events import AllocationAdded, AskAdded, ForeignAdded
from server.model.resources import resource
from server.state import ended_tags as state
from tests.inspect.world import MANAGER, World, leaf, spec


def tags(key: str) -> Tags:
    return (key.encode(),)


def world() -> World:
    found = World(leaf("a"))
    found.node("n")
    found.application("app")
    return found


def test_whatever_ended_keeps_its_tags() -> None:
    found = world()
    found.say(AllocationAdded(MANAGER, "runs", "app", "n", spec(1), tags=tags("runs")))
    found.say(AskAdded(MANAGER, "waits", "app", spec(100), tags=tags("waits")))
    size = resource({"vcore": 1})
    found.say(ForeignAdded(MANAGER, "foreign", "n", size, tags=tags("foreign")))
    keys = ("runs", "waits", "foreign")
    assert [found.partition.tags_of(key) for key in keys] == [tags(key) for key in keys]
    for key in keys:
        found.release(key, "" if key == "foreign" else "app")
    assert [*found.partition.asks, *found.partition.foreign.pods] == []
    assert [found.partition.tags_of(key) for key in keys] == [tags(key) for key in keys]
    assert found.partition.tags_of("nobody") == NO_TAGS


def test_a_pod_that_is_refused_keeps_its_tags() -> None:
    found = world()
    found.say(AskAdded(MANAGER, "lost", "nobody", spec(1), tags=tags("lost")))
    found.say(AllocationAdded(MANAGER, "astray", "app", "no-node", spec(1), tags=tags("astray")))
    assert [found.partition.tags_of(key) for key in ("lost", "astray")] == [
        tags("lost"),
        tags("astray"),
    ]


def test_a_pod_that_runs_keeps_its_own_tags_when_another_with_its_key_is_refused() -> None:
    found = world()
    found.say(AllocationAdded(MANAGER, "runs", "app", "n", spec(1), tags=tags("runs")))
    found.say(AskAdded(MANAGER, "runs", "nobody", spec(1), tags=tags("other")))
    found.release("runs")
    assert found.partition.tags_of("runs") == tags("runs")


def test_very_long_tags_are_not_kept() -> None:
    found = world()
    long = (b"x" * (state.TAGS_KEPT_BYTES_MAX + 1),)
    found.say(AllocationAdded(MANAGER, "runs", "app", "n", spec(1), tags=long))
    assert found.partition.tags_of("runs") == long
    found.release("runs")
    assert found.partition.tags_of("runs") == NO_TAGS


def test_the_tags_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "ENDED_KEPT_MAX", 4)
    found = world()
    for at in range(40):
        key = f"pod-{at}"
        found.say(AllocationAdded(MANAGER, key, "app", "n", spec(1), tags=tags(key)))
        found.release(key)
        latest = [f"pod-{one}" for one in range(max(at - 3, 0), at + 1)]
        assert [found.partition.tags_of(one) for one in latest] == [tags(one) for one in latest]
    assert len(found.partition.ended.recent) + len(found.partition.ended.earlier) <= 8
