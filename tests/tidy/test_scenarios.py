"""YAML files are readable: lines fit a screen, and each scenario file says what it shows and why."""

import re
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.tidy.test_shape import ROOT, name_of, tracked

LINE_MAX: Final = 160
HEADER_MIN: Final = 80
"""Characters below which a header does not say both what is shown and why."""
STORIES: Final = sorted((ROOT / "tests" / "stories").glob("*.yaml"))


ANCHOR: Final = re.compile(r"[\"']?(?:[A-Z]\d{1,2}\b|design \d|invariant \d|docs/[\w/-]+\.md\b)")
"""The beginning of what a story shows: a rule, a decision, an invariant or a page."""


def header(text: str) -> str:
    """Return the comment with which a file begins, as one line."""
    found = re.match(r"(?:#.*\n)+", text)
    return " ".join(line.lstrip("# ") for line in found[0].splitlines()) if found else ""


def test_no_line_of_yaml_is_longer_than_a_screen() -> None:
    files = [path for path in tracked() if path.suffix in {".yaml", ".yml"}]
    long = [
        f"{name_of(path)}:{number}"
        for path in files
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if len(line) > LINE_MAX
    ]
    assert long == []


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.name)
def test_a_scenario_file_says_what_it_shows_and_why(path: Path) -> None:
    said = header(path.read_text("utf-8"))
    assert len(said) >= HEADER_MIN
    assert said.endswith((".", ")"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.name)
def test_scenarios_are_blocks(path: Path) -> None:
    whole = yaml.compose(path.read_text("utf-8"), Loader=yaml.SafeLoader)
    assert isinstance(whole, yaml.SequenceNode)
    assert not whole.flow_style
    flows = [one.start_mark.line + 1 for one in whole.value if one.flow_style]
    assert flows == []


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.name)
def test_a_story_names_a_rule_a_decision_or_a_page_first(path: Path) -> None:
    lines = re.findall(r"^  rule: (.+)$", path.read_text("utf-8"), re.MULTILINE)
    assert [line for line in lines if not ANCHOR.match(line)] == []
    pages = {page for line in lines for page in re.findall(r"docs/[\w/-]+\.md", line)}
    assert [page for page in pages if not (ROOT / page).exists()] == []


def test_a_header_ends_where_the_scenarios_begin() -> None:
    assert header("# One\n# two.\n\n# Three.\n- a\n") == "One two."
    assert header("- a\n# One.\n") == ""
