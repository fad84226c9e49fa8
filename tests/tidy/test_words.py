"""Phrases that are hard to read are refused in pages, docstrings and comments; a table names a plain word for each."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REFUSED = {
    "anew": "again, restarted, recomputed",
    "whoever": "the noun that is meant",
    "for whom": "for which pod, for which ask",
    "of whom": "of which, with the noun",
    "goes for": "is evicted for",
    "went for": "was evicted for",
    "stands in": "is in, replaces",
}
"""The phrase, and what to write."""
REFUSED_IN_STORIES = {
    "nobody": "no pod, no ask, no queue",
    "somebody": "a pod, an ask, a queue",
    "everybody": "all pods, all asks",
    "whom": "which, with the noun",
    "asker": "preemptor",
    "claimant": "preemptor, claiming queue",
    "dying": "terminating",
    "dies": "ends, is evicted",
    "kills": "evicts",
    "nobody goes": "no pod is evicted",
    "goes whole": "is evicted whole",
    "stands aside": "has preemption disabled",
    "is spared": "is not evicted, is no longer marked",
    "is told": "is ordered, is reported",
    "is owed": "is entitled to",
    "starved": "waited",
}
"""The phrase in a title or header of a story, beside those that are refused everywhere, and what to write."""
BEGINNINGS = ("The same", "It", "They", "Who", "Whoever", "As")
"""Words that begin no docstring: its reader has met no noun yet."""
PAGES = (
    *sorted(ROOT.glob("docs/**/*.md")),
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("evenhand_cli/**/*.py")),
    *sorted(ROOT.glob("evenhand_console/**/*.py")),
)
FOLDERS = (
    "server",
    "shim_client",
    "evenhand_cli",
    "evenhand_console",
    "examples",
    "scripts",
    "tests",
)
MODULES = [
    path
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path != Path(__file__)
]
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def pattern(phrase: str) -> re.Pattern[str]:
    """Return what finds a phrase, also where a line ends in the midst of it."""
    words = r"(?: +| *\n[ #]*)".join(phrase.split())
    return re.compile(rf"\b{words}\b", re.IGNORECASE)


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    """Yield the docstrings of a module with their lines, those of attributes included."""
    for node in ast.walk(ast.parse(text)):
        for one in node.body if isinstance(node, DOCUMENTED) else ():
            match one:
                case ast.Expr(value=ast.Constant(value=str(said))):
                    yield one.lineno, said


def comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield the comments of a module with their lines."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


@cache
def said() -> list[tuple[str, str]]:
    """Return all docstrings and comments with their places."""
    return [
        (f"{path.relative_to(ROOT)}:{line}", text)
        for path in MODULES
        for read in (path.read_text(),)
        for line, text in (*docstrings(read), *comments(read))
    ]


@cache
def stories() -> list[tuple[str, str]]:
    """Return the titles and the comments of all stories, the comments of their headers among them, with their places."""
    return [
        (f"{path.relative_to(ROOT)}:{number}", line)
        for path in sorted(ROOT.glob("tests/stories/*.yaml"))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if line.startswith(("- title:", "#"))
    ]


@pytest.mark.parametrize("phrase", REFUSED)
def test_no_page_has_the_phrase(phrase: str) -> None:
    found = pattern(phrase)
    told = [str(page.relative_to(ROOT)) for page in PAGES if found.search(page.read_text())]
    assert told == [], f"write {REFUSED[phrase]}"


@pytest.mark.parametrize("phrase", REFUSED | REFUSED_IN_STORIES)
def test_no_title_and_no_header_of_a_story_has_the_phrase(phrase: str) -> None:
    found = pattern(phrase)
    told = [place for place, text in stories() if found.search(text)]
    assert told == [], f"write {(REFUSED | REFUSED_IN_STORIES)[phrase]}"


@pytest.mark.parametrize("phrase", REFUSED)
def test_no_docstring_and_no_comment_has_the_phrase(phrase: str) -> None:
    found = pattern(phrase)
    told = [place for place, text in said() if found.search(text)]
    assert told == [], f"write {REFUSED[phrase]}"


def test_no_docstring_begins_with_a_word_that_stands_for_another() -> None:
    begins = re.compile(rf"\s*(?:{'|'.join(BEGINNINGS)})\b")
    told = [f"{place}: {text.strip()[:60]}" for place, text in said() if begins.match(text)]
    assert told == []


@pytest.mark.parametrize("text", ['"""Planned anew."""\n', "x = 1  # planned anew\n"])
def test_the_phrase_is_found_where_it_is(text: str) -> None:
    found = [*docstrings(text), *comments(text)]
    assert [line for line, one in found if pattern("anew").search(one)] == [1]
