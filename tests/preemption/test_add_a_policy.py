"""The policy of docs/development/add-a-policy.md: its three pieces make it decide, explain itself and be recorded.

The test reads the pieces from the page. It runs the page's example in a process of its own, in which the three
changed modules replace those of the project.
"""

import json
import os
import re
import subprocess
import sys
from typing import Any, Final, NamedTuple

import pytest

from tests.docs.pages import DOCS

ROOT: Final = DOCS.parent
PAGE: Final = DOCS / "development" / "add-a-policy.md"
BLOCK: Final = re.compile(r"^```([^\n`]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILES_MAX: Final = 3
"""The most files of the core that a new policy may touch."""
OF_THE_POLICY: Final = " of the new policy"

RUN: Final = """
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import spec_from_loader
from pathlib import Path

pieces = Path(sys.argv[1])

class Pieces:
    @staticmethod
    def find_spec(name, path=None, target=None):
        file = pieces.joinpath(*name.split(".")).with_suffix(".py")
        return spec_from_loader(name, SourceFileLoader(name, str(file))) if file.exists() else None

sys.meta_path.insert(0, Pieces)

from server.record.entries import entry, told
from server.record.log import DecisionLog
from tests.docs import pages
from evenhand_cli.story.play import Player
from evenhand_cli.story.words import START

log, decide = DecisionLog(pieces / "decisions.jsonl", START), Player.decide

def recorded(player, moment):
    decisions = decide(player, moment)
    for one in told(decisions, lambda: None, player.now):
        log.note(entry(one, player.now))
    return decisions

Player.decide = recorded
(example,) = pages.examples(Path(sys.argv[2]))
for block, said in pages.printed(example, pieces):
    print(said, end="")
    assert pages.shows(block, said), said
log.flush()
"""


def pieces() -> dict[str, str]:
    """Return the files of the core with the page's changes in them, by path."""
    found: dict[str, str] = {}
    for info, text in BLOCK.findall(PAGE.read_text("utf-8")):
        kind, _, path = info.partition(" ")
        if kind == "python":
            found[path] = text
        if kind == "diff":
            before = found.get(path) or (ROOT / path).read_text("utf-8")
            found[path] = changed(before, text)
    return found


def changed(source: str, difference: str) -> str:
    """Return a source after the change: the lines that stay and go are there once, one after another."""
    lines = difference.splitlines(keepends=True)
    old = "".join(line[1:] for line in lines if line[0] in " -")
    new = "".join(line[1:] for line in lines if line[0] in " +")
    assert source.count(old) == 1, f"the page no longer fits the source: {old}"
    return source.replace(old, new)


class Ran(NamedTuple):
    """The output of the commands of the page's example, which it shows, and the decisions in the log of its run."""

    printed: str
    records: list[dict[str, Any]]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Run the page's example with the policy added."""
    folder = tmp_path_factory.mktemp("pieces")
    for path, text in pieces().items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    page = folder / PAGE.name
    page.write_text(PAGE.read_text("utf-8").replace(f"{OF_THE_POLICY}\n", "\n"), "utf-8")
    command = [sys.executable, "-c", RUN, str(folder), str(page)]
    in_utc = {**os.environ, "TZ": "UTC"}
    done = subprocess.run(
        command, cwd=ROOT, env=in_utc, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = map(json.loads, (folder / "decisions.jsonl").read_text("utf-8").splitlines())
    return Ran(done.stdout, [one["facts"]["record"] for one in lines if one["kind"] == "decided"])


def test_a_policy_is_three_files() -> None:
    assert len(pieces()) <= FILES_MAX


def test_it_decides_and_explains_itself(ran: Ran) -> None:
    of_the_victim = ran.printed.partition("$ evenhand explain y2\n")[2]
    assert "releasing    by y-1a3185c5000-8 (swap) for x1\n" in of_the_victim
    assert "in its queue (Y1)\n" in of_the_victim


def test_its_decision_is_in_the_log_with_its_rule(ran: Ran) -> None:
    (record,) = ran.records
    (victim,) = record["victims"]
    assert record["policy"] == "swap"
    assert record["decision_id"].startswith("y-")
    assert victim["key"] == "y2"
    assert victim["because"].endswith("(Y1)")
