"""The design decisions: each cited number has a page, and each page is complete, agrees with the code, and is cited."""

import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from scripts.figures import cited_decisions

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "docs" / "decisions"
PAGES: Final = sorted(FOLDER.glob("[0-9]*.md"))
PATH: Final = re.compile(
    r"`((?:server|shim_client|evenhand_cli|evenhand_console|proto|tests|docs)/[\w./-]+)`"
)
LINK: Final = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
PARTS: Final = ["Context", "Decision", "Consequence"]
LINES: Final = range(20, 61)
WIDTH: Final = 150


def number(page: Path) -> str:
    """Return the number that the page's name begins with."""
    return page.name.partition("-")[0]


@cache
def cited() -> dict[str, list[str]]:
    """Return the files that cite each decision."""
    patterns = (
        *(
            f"{folder}/**/*.py"
            for folder in ("server", "shim_client", "evenhand_cli", "evenhand_console", "scripts")
        ),
        "*.py",
        "*.md",
        "proto/**/*.proto",
        "tests/**/*.py",
        "tests/**/*.yaml",
        "docs/**/*.md",
    )
    found: dict[str, list[str]] = {}
    for file in (file for pattern in patterns for file in sorted(ROOT.glob(pattern))):
        if FOLDER in file.parents or file == Path(__file__):
            continue
        for one in set(cited_decisions(file.read_text(encoding="utf-8"))):
            found.setdefault(one, []).append(str(file.relative_to(ROOT)))
    return found


def test_each_cited_decision_has_a_page() -> None:
    written = {number(page) for page in PAGES}
    assert {one: files for one, files in cited().items() if one not in written} == {}


def test_each_page_is_cited() -> None:
    assert [page.name for page in PAGES if number(page) not in cited()] == []


def test_a_decision_has_one_page() -> None:
    written = [number(page) for page in PAGES]
    assert len(written) == len(set(written))


@pytest.mark.parametrize("page", PAGES, ids=number)
def test_a_page_is_complete(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    lines = text.splitlines()
    assert lines[0].startswith(f"# {number(page)} ")
    assert re.findall(r"^\*\*(\w+)\.\*\*(?: \S|$)", text, re.MULTILINE) == PARTS
    assert len(lines) in LINES
    assert max(map(len, lines)) <= WIDTH


@pytest.mark.parametrize("page", PAGES, ids=number)
def test_a_page_names_code_and_tests_that_exist(page: Path) -> None:
    named = PATH.findall(page.read_text(encoding="utf-8"))
    assert [path for path in named if not (ROOT / path).exists()] == []
    assert any(not path.startswith("tests/") for path in named)
    assert any(path.startswith("tests/") for path in named)


@pytest.mark.parametrize("page", [*PAGES, FOLDER / "README.md"], ids=lambda page: page.name)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_index_lists_every_page_with_its_title() -> None:
    index = (FOLDER / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[([0-9.]+)\]\((\S+)\) \| (.+?) \| .+ \|$", index, re.MULTILINE)
    titles = [page.read_text(encoding="utf-8").splitlines()[0].split(" ", 2) for page in PAGES]
    written = {(one, page.name, title) for page, (_, one, title) in zip(PAGES, titles, strict=True)}
    assert set(listed) == written


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(design 6.3)", {"6.3"}),
        ("design 1.8 and 6.10.", {"1.8", "6.10"}),
        ("(design 6.3, 6.4)", {"6.3", "6.4"}),
        ("design 6.3-6.5, 6.10", {"6.3", "6.4", "6.5", "6.10"}),
        ("design 6.3 to 6.5", {"6.3", "6.4", "6.5"}),
        ("a new snapshot (design\n6.2).", {"6.2"}),
        ("design 5, invariant 8", {"5"}),
        ("design 6.6, 10 % of the nodes", {"6.6"}),
    ],
)
def test_a_citation_may_have_several_numbers(text: str, expected: set[str]) -> None:
    assert set(cited_decisions(text)) == expected
