"""Plan checks while more groups wait than one tick looks at: answers have the same effects as with few groups (design 1.8)."""

import pytest

from evenhand_cli.story.form import Example
from evenhand_cli.story.play import Player
from server.core.preemption import beside_claims, claim_chunks
from tests.stories.story import stories

STORIES = [story for file, story in stories() if file.startswith("plan_checks")]


@pytest.mark.parametrize("story", STORIES, ids=[story.title for story in STORIES])
def test_answers_have_the_same_effects_during_looks_of_several_ticks(
    story: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_chunks, "_are_many", lambda _partition: True)
    monkeypatch.setattr(claim_chunks, "SEARCH_MOST", 1)
    monkeypatch.setattr(claim_chunks, "SHARE_MOST", 1)
    monkeypatch.setattr(beside_claims, "SEARCH_MOST", 0)
    monkeypatch.setattr(beside_claims, "PART_MOST", 1)
    for turn in Player.of(story).turns():
        assert [one for one in turn.checks if not one.holds] == [], turn.moment.step


def test_there_are_stories_of_plan_checks() -> None:
    assert len(STORIES) >= 10
