"""The stories of this folder."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from evenhand_cli.story.form import Example
from evenhand_cli.story.play import Player
from evenhand_cli.story.reading import read_examples

HERE = Path(__file__).parent


def stories(beginning: str = "") -> Iterator[tuple[str, Example]]:
    """Yield every story of the files whose names begin so, each with the name of its file."""
    for path in sorted(HERE.glob(f"{beginning}*.yaml")):
        for story in _read(path):
            yield path.stem, story


@cache
def _read(path: Path) -> tuple[Example, ...]:
    """Return the stories of a file. Several modules need them, so a process reads each file once."""
    return tuple(read_examples(path.read_text("utf-8"), path.name))


def check(story: Example) -> None:
    """Run a story through the core and assert that each of its steps holds."""
    for turn in Player.of(story).turns():
        assert [one for one in turn.checks if not one.holds] == [], turn.moment.step
