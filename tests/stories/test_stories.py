"""All stories of this folder, run through the core."""

import pytest

from evenhand_cli import terminal
from evenhand_cli.faults import Fault
from evenhand_cli.story.answers import Answers
from evenhand_cli.story.form import Example
from evenhand_cli.story.play import Player
from evenhand_cli.story.reading import read_examples
from evenhand_cli.story.text import Steps, Told, instant, label_width
from evenhand_cli.story.words import Known, UnknownWordError, events
from tests.effort import cases
from tests.stories.story import check, stories

STORIES = list(stories())
STORIES_LEAST = 60
STORIES_TOLD_LEAST = 5
"""Stories of each file that are told at the least effort."""
WIDTH = 80


@pytest.mark.parametrize(
    "story",
    [story for _, story in STORIES],
    ids=[f"{file}: {story.title}" for file, story in STORIES],
)
def test_story(story: Example) -> None:
    check(story)


@pytest.mark.parametrize("file", sorted({file for file, _ in STORIES}))
def test_each_step_is_told_in_plain_words(file: str) -> None:
    mine = [story for name, story in STORIES if name == file]
    for story in mine[: cases(len(mine), STORIES_TOLD_LEAST)]:
        player = Player.of(story)
        answers, steps = Answers.of(player), Steps(label_width(story))
        for turn in player.turns():
            told = Told.of(turn, answers)
            assert all(entry.lines and entry.short for entry in told.entries)
            console = terminal.results(WIDTH)
            with console.capture() as shown:
                console.print(steps.step(told, WIDTH))
            assert shown.get().startswith(instant(turn.now)), story.title


def test_there_are_many_stories_and_each_title_is_its_own() -> None:
    titles = [story.title for _, story in STORIES]
    assert len(titles) >= STORIES_LEAST
    assert len(set(titles)) == len(titles)


def test_each_story_names_what_it_shows() -> None:
    assert [story.title for _, story in STORIES if not story.rule] == []


@pytest.mark.parametrize(
    "text",
    [
        "- {title: t, steps: [{at: 0}], colour: red}",
        "- {title: t, steps: [{do: [], than: []}]}",
        "- {title: t, title: u, steps: [{at: 0}]}",
        "- {title: t}",
        "- {steps: [{at: 0}]}",
    ],
)
def test_a_story_with_unknown_doubled_or_missing_keys_is_an_error(text: str) -> None:
    with pytest.raises(Fault):
        read_examples(text, "story.yaml")


@pytest.mark.parametrize(
    "line",
    ["dance n1", "node n1 memery=5", "ask a1 x memory=1 quick", "ask", "node n1 memory=1 memory=2"],
)
def test_a_line_with_unknown_doubled_or_missing_words_is_an_error(line: str) -> None:
    with pytest.raises(UnknownWordError):
        list(events(line, Known()))
