"""The rules: each cited id is defined in docs/rules, and each defined id is cited and has a story."""

import re
from pathlib import Path
from typing import Final

import pytest

from scripts import figures
from tests.stories.story import stories

ROOT: Final = Path(__file__).parents[2]
RULES: Final = ROOT / "docs" / "rules"
GUARANTEED: Final = [f"G{number}" for number in range(1, 13)]
"""Claims under a guarantee (docs/rules/guarantee.md)."""
JOBS: Final = [f"J{number}" for number in range(1, 13)]
"""Jobs (docs/rules/gangs.md)."""
IN_QUEUE: Final = [f"I{number}" for number in range(1, 6)]
"""Replacement within a queue (docs/rules/in-queue.md)."""
QUOTAS: Final = [f"Q{number}" for number in range(1, 18)]
"""Lowered quotas (docs/rules/quota.md)."""
ROUNDS: Final = [f"P{number}" for number in range(1, 10)]
"""Paced rounds (docs/rules/rounds.md)."""
RULE: Final = re.compile(r"\b([A-Z])([0-9]{1,2})\b(?: to \1?([0-9]{1,2})\b)?")
INVARIANT: Final = re.compile(r"\binvariants? ([0-9]+)\b")
EXAMPLE: Final = re.compile(r"^\*Examples?:\*(.*?)(?:\n\n|\Z)", re.MULTILINE | re.DOTALL)
STORY: Final = re.compile(r'\b[Ss]tor(?:y|ies) ("[^"]+"(?:(?:, and|,| and) "[^"]+")*)')
"""One story or several, as the examples of a rule quote their titles."""
SOURCES: Final = (
    "server/**/*.py",
    "shim_client/**/*.py",
    "evenhand_cli/**/*.py",
    "evenhand_console/**/*.py",
    "tests/**/*.py",
    "tests/**/*.yaml",
)


def named(text: str) -> set[str]:
    """Return the rules that a text names: "G4 and Q12, ancestors", "G2 to G4"."""
    return {
        f"{letter}{number}"
        for letter, first, last in RULE.findall(text)
        for number in range(int(first), int(last or first) + 1)
    }


def defined() -> set[str]:
    """Return the ids of rules that have a heading."""
    pages = (page.read_text(encoding="utf-8") for page in RULES.glob("*.md"))
    return {one for text in pages for one in re.findall(r"^### ([A-Z]\d+)$", text, re.MULTILINE)}


def cited() -> tuple[set[str], set[int]]:
    """Return the rules and the invariants that code, tests and stories cite."""
    rules, invariants = set[str](), set[int]()
    for path in (path for pattern in SOURCES for path in ROOT.glob(pattern)):
        if path == Path(__file__):
            continue
        text = path.read_text(encoding="utf-8")
        invariants.update(map(int, INVARIANT.findall(text)))
        rules |= named(text)
    return rules, invariants


@pytest.mark.parametrize(
    "rules",
    [GUARANTEED, QUOTAS, JOBS, IN_QUEUE, ROUNDS],
    ids=["guaranteed", "quotas", "jobs", "in-queue", "rounds"],
)
def test_every_rule_has_a_story(rules: list[str]) -> None:
    kept = set[str]().union(*(named(story.rule) for _, story in stories()))
    assert [rule for rule in rules if rule not in kept] == []


def test_every_story_that_a_page_quotes_exists() -> None:
    titles = {story.title for _, story in stories()}
    lost = [
        f"{page.name}: {quoted}"
        for page in RULES.glob("*.md")
        for example in EXAMPLE.findall(page.read_text(encoding="utf-8"))
        for named in STORY.findall(" ".join(example.split()))
        for quoted in re.findall(r'"([^"]+)"', named)
        if quoted not in titles
    ]
    assert lost == []


def test_a_line_names_its_rules() -> None:
    assert named("G1, the delay") == {"G1"}
    assert named("G11 and Q2 to Q4") == {"G11", "Q2", "Q3", "Q4"}
    assert named("docs/rules/protection.md, level 2") == set()


def test_every_cited_id_has_a_definition() -> None:
    assert figures.unresolved(ROOT) == {}


def test_every_rule_is_cited_by_code_tests_or_stories() -> None:
    rules, _ = cited()
    assert sorted(defined() - rules) == []


def test_every_cited_invariant_is_in_the_list() -> None:
    _, invariants = cited()
    page = (RULES / "invariants.md").read_text(encoding="utf-8")
    listed = set(map(int, re.findall(r"^\| ([0-9]+) \|", page, re.MULTILINE)))
    assert listed == set(range(1, 21))
    assert invariants - listed == set()
