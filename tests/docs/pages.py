"""Worked examples in the documents: the blocks of a page are run in order, as a story.

    yaml queues           a new example, and the configuration that it starts with
    yaml queues applied   another configuration, applied at the next step
    yaml file NAME        a file that commands may name
    yaml story            steps of a story; quantities as on the wire: millicores, bytes, units
    console               commands after a `$`, and their output at that instant; a line `...` leaves lines out

These are the words after the three backquotes of a block; other blocks of a page are ignored. `evenhand story PAGE` runs
the same examples, without files and commands.
"""

import asyncio
import re
import shlex
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from evenhand_cli.story.form import Example as Story
from evenhand_cli.story.play import Player
from evenhand_cli.story.reading import APPLIED, QUEUES, STEPS, Block, blocks, read_examples
from server.config import load
from server.model.quota import Configuration
from tests.cli.run import evenhand
from tests.rpc.harness import serving

DOCS: Final = Path(__file__).parents[2] / "docs"
WIDTH: Final = 104
FILE, CONSOLE = "yaml file", "console"
STORY: Final = "$ evenhand story "
"""The beginning of a command that runs an example of a page."""
KINDS: Final = (QUEUES, APPLIED, STEPS, CONSOLE)


@dataclass(frozen=True)
class Example:
    """The blocks from one configuration to the next, and the story in them."""

    page: str
    story: Story
    blocks: tuple[Block, ...]

    def __str__(self) -> str:
        return f"{self.page}: {self.story.title}"


def examples(page: Path) -> list[Example]:
    """Return all examples of a page, in order."""
    text, found = page.read_text("utf-8"), list[list[Block]]()
    if f"```{QUEUES}\n" not in text:
        return []
    for block in blocks(text):
        if block.info == QUEUES:
            found.append([])
        if found and (block.info in KINDS or block.info.startswith(f"{FILE} ")):
            found[-1].append(block)
    stories = read_examples(text, page.name)
    return [Example(page.name, *each) for each in zip(stories, map(tuple, found), strict=True)]


def configured(text: str) -> tuple[Configuration, list[str]]:
    """Return a configuration as it would be applied, and the paths of its warnings."""
    configuration, problems = load(text, "example")
    assert configuration is not None, [str(problem) for problem in problems]
    return configuration, [problem.path for problem in problems]


def printed(example: Example, folder: Path) -> Iterator[tuple[Block, str]]:
    """Run an example, which checks its steps, and yield each block of commands with its output."""
    player, moments = Player.of(example.story), list(example.story.moments)
    for block in example.blocks[1:]:
        if block.info.startswith(FILE):
            (folder / block.info.removeprefix(FILE).strip()).write_text(block.text, "utf-8")
        elif block.info == STEPS:
            last = block.line + block.text.count("\n")
            while moments and moments[0].line <= last:
                turn = player.take(moments.pop(0))
                assert [one for one in turn.checks if not one.holds] == [], turn.moment.step
        elif block.info == CONSOLE:
            yield block, _commands(player, block.text)
    assert moments == []


def shows(block: Block, said: str) -> bool:
    """Return whether the page shows this output, except for the lines that the page leaves out."""
    parts = [re.escape(part) for part in re.split(r"^\.\.\.\n", block.text, flags=re.MULTILINE)]
    return re.fullmatch(r"(?:.*\n)*?".join(parts), said) is not None


def _commands(player: Player, text: str) -> str:
    """Return the commands of a block with their output now."""
    lines = [line for line in text.splitlines() if line.startswith("$ ")]
    if all(line.startswith(STORY) for line in lines):
        return "\n".join(map(_ran, lines))
    return asyncio.run(_served(player, lines))


def _ran(line: str) -> str:
    """Return the output of a command `evenhand story`; pages are named from the project's folder."""
    with chdir(DOCS.parent if "docs/" in line else "."):
        return _said(line)


async def _served(player: Player, lines: list[str]) -> str:
    """Return commands with their output from a server over the story's core."""
    async with serving(core=player.core) as served:
        served.clock.ms = player.now
        address = ("--core", f"127.0.0.1:{served.port}")
        said = [await asyncio.to_thread(_said, line, *address) for line in lines]
    return "\n".join(said)


def _said(line: str, *address: str) -> str:
    _, command, *arguments = shlex.split(line)
    assert command == "evenhand", line
    ended = evenhand(*arguments, *address, width=WIDTH)
    out = "".join(f"{each.rstrip()}\n" for each in (ended.out + ended.err).splitlines())
    return f"{line}\n{out}"
