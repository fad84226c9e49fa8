"""Every rule of preemption kept by now has a story that names it; rules without a case are listed here."""

import re
from typing import Final

import pytest

from tests.stories.story import stories

GUARANTEED: Final = [f"G{number}" for number in range(1, 13)]
"""Claims under a guarantee (specification 3)."""
JOBS: Final = [f"J{number}" for number in range(1, 13)]
"""Jobs (specification 5)."""
IN_QUEUE: Final = [f"I{number}" for number in range(1, 6)]
"""Replacement within a queue (specification 7.8)."""
QUOTAS: Final = [f"Q{number}" for number in range(1, 18)]
"""Lowered quotas (specification 2)."""
ROUNDS: Final = [f"P{number}" for number in range(1, 10)]
"""Paced rounds (specification 4)."""
NAMED: Final = re.compile(r"\b([GIJPQ])(\d+)(?: to [GIJPQ]?(\d+))?")


def named(law: str) -> set[str]:
    """Return the rules that a story's line names: "G4 and Q12, ancestors", "G2 to G4"."""
    return {
        f"{letter}{number}"
        for letter, first, last in NAMED.findall(law)
        for number in range(int(first), int(last or first) + 1)
    }


@pytest.mark.parametrize(
    "laws",
    [GUARANTEED, QUOTAS, JOBS, IN_QUEUE, ROUNDS],
    ids=["guaranteed", "quotas", "jobs", "in-queue", "rounds"],
)
def test_every_law_has_a_story(laws: list[str]) -> None:
    kept = set[str]().union(*(named(story.law) for _, story in stories()))
    assert [law for law in laws if law not in kept] == []


def test_a_line_names_its_laws() -> None:
    assert named("G1, the delay") == {"G1"}
    assert named("G11 and Q2 to Q4") == {"G11", "Q2", "Q3", "Q4"}
    assert named("specification 7.6, rung 2") == set()
