"""Worked examples in the documents: the blocks of a page are run in order, as a story.

    yaml queues           a new example, and the configuration that it starts with
    yaml queues applied   another configuration, applied at the next step
    yaml file NAME        a file that commands may name
    yaml story            steps in the form of tests/stories; quantities as on the wire: millicores, bytes, units
    console               commands after a `$`, and their output at that instant; a line `...` leaves lines out

These are the words after the three backquotes of a block; other blocks of a page are ignored.
"""

import asyncio
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from server.config import load
from server.core.core import Core
from server.model.events import ManagerRegistered
from server.model.quota import Configuration
from tests.cli.run import evenhand
from tests.rpc.harness import serving
from tests.stories.story import Step, Story, configuration_text
from tests.stories.test_stories import Telling
from tests.stories.words import MANAGER, START

DOCS: Final = Path(__file__).parents[2] / "docs"
WIDTH: Final = 104
QUEUES, APPLIED, FILE, STEPS, CONSOLE = (
    "yaml queues",
    "yaml queues applied",
    "yaml file",
    "yaml story",
    "console",
)
_BLOCK: Final = re.compile(r"^```([^\n`]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ROOT_KEYS: Final = {"name", "submitacl", "queues"}


@dataclass(frozen=True)
class Block:
    """A block of a page: the words after its backquotes, its content, and its place in the page."""

    kind: str
    name: str
    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Example:
    """The blocks from one configuration to the next."""

    page: str
    title: str
    blocks: tuple[Block, ...]

    def __str__(self) -> str:
        return f"{self.page}: {self.title}"


def examples(page: Path) -> list[Example]:
    """Return all examples of a page, in order."""
    text, found = page.read_text("utf-8"), list[list[Block]]()
    for match in _BLOCK.finditer(text):
        block = _block(match)
        if block is None or not (found or block.kind == QUEUES):
            continue
        if block.kind == QUEUES:
            found.append([])
        found[-1].append(block)
    return [Example(page.name, _heading(text, blocks[0]), tuple(blocks)) for blocks in found]


def _block(match: re.Match[str]) -> Block | None:
    info = match[1].strip()
    kind = FILE if info.startswith(f"{FILE} ") else info
    if kind not in {QUEUES, APPLIED, FILE, STEPS, CONSOLE}:
        return None
    return Block(kind, info.removeprefix(kind).strip(), match[2], match.start(2), match.end(2))


def _heading(text: str, block: Block) -> str:
    return str(re.findall(r"^#+ (.+)$", text[: block.start], re.MULTILINE)[-1])


def configured(text: str) -> tuple[Configuration, list[str]]:
    """Return a configuration as it would be applied, and the paths of its warnings."""
    configuration, problems = load(text, "example")
    assert configuration is not None, [str(problem) for problem in problems]
    return configuration, [problem.path for problem in problems]


def printed(example: Example, folder: Path) -> Iterator[tuple[Block, str]]:
    """Run an example, which checks its steps, and yield each block of commands with its output."""
    telling, applied = _begin(example.blocks[0].text), dict[str, Any]()
    for block in example.blocks[1:]:
        if block.kind == APPLIED:
            applied = _as_step(block.text)
        elif block.kind == FILE:
            (folder / block.name).write_text(block.text, "utf-8")
        elif block.kind == STEPS:
            for step in yaml.safe_load(block.text):
                telling.tell(Step.model_validate(step | applied))
                applied = {}
        else:
            yield block, asyncio.run(_commands(telling, block.text))


def shows(block: Block, said: str) -> bool:
    """Return whether the page shows this output, except for the lines that the page leaves out."""
    parts = [re.escape(part) for part in re.split(r"^\.\.\.\n", block.text, flags=re.MULTILINE)]
    return re.fullmatch(r"(?:.*\n)*?".join(parts), said) is not None


def _begin(text: str) -> Telling:
    step = _as_step(text)
    story = Story(
        title="an example",
        rule="of the documents",
        queues=step["queues"],
        partition=step["partition"],
        also=["decisions", "notes"],
        steps=[],
    )
    configuration, _ = configured(configuration_text(story))
    telling = Telling(story, Core(configuration))
    telling.core.handle(ManagerRegistered(MANAGER), START)
    return telling


def _as_step(text: str) -> dict[str, Any]:
    """Return a configuration as a step of a story: the queues below a root that is open to all users."""
    configured(text)
    (partition,) = yaml.safe_load(text)["partitions"]
    (root,) = partition["queues"]
    assert set(root) <= _ROOT_KEYS, "an example may say nothing of root"
    others = {key: value for key, value in partition.items() if key not in {"name", "queues"}}
    return {"queues": root["queues"], "partition": others}


async def _commands(telling: Telling, text: str) -> str:
    """Return the commands of a block with their output now, from a server over the story's core."""
    async with serving(core=telling.core) as served:
        served.clock.ms = telling.now
        address = ("--core", f"127.0.0.1:{served.port}")
        lines = [line for line in text.splitlines() if line.startswith("$ ")]
        said = [await asyncio.to_thread(_said, line, address) for line in lines]
    return "\n".join(said)


def _said(line: str, address: tuple[str, str]) -> str:
    _, command, *arguments = shlex.split(line)
    assert command == "evenhand", line
    ended = evenhand(*arguments, *address, width=WIDTH)
    out = "".join(f"{each.rstrip()}\n" for each in (ended.out + ended.err).splitlines())
    return f"{line}\n{out}"
