"""The stories of this folder."""

from collections.abc import Iterator
from pathlib import Path

from evenhand_cli.story.form import Example
from evenhand_cli.story.reading import read_examples

HERE = Path(__file__).parent


def stories() -> Iterator[tuple[str, Example]]:
    """Yield every story of this folder with the name of its file."""
    for path in sorted(HERE.glob("*.yaml")):
        for story in read_examples(path.read_text("utf-8"), path.name):
            yield path.stem, story
