"""Phrases that make a sentence a riddle are in no page and in no text of the command line: the plain word exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REFUSED = {
    "anew": "again, restarted, recomputed",
    "whoever": "the noun that is meant",
    "for whom": "for which pod, for which ask",
    "goes for": "is evicted for",
    "went for": "was evicted for",
    "stands in for": "replaces",
}
"""The phrase, and what to write."""
PAGES = (
    *sorted(ROOT.glob("docs/**/*.md")),
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("evenhand_cli/**/*.py")),
)


@pytest.mark.parametrize("phrase", REFUSED)
def test_no_page_has_the_phrase(phrase: str) -> None:
    words = r"(?: +| *\n *)".join(phrase.split())
    found = re.compile(rf"\b{words}\b", re.IGNORECASE)
    told = [str(page.relative_to(ROOT)) for page in PAGES if found.search(page.read_text())]
    assert told == [], f"write {REFUSED[phrase]}"
