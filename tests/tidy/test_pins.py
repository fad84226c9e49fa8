"""The pinned versions are ones that pyproject.toml allows."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PINS = dict(
    re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / "requirements-dev.txt").read_text(), re.MULTILINE)
)
WANTED = [
    *SETTINGS["project"]["dependencies"],
    *SETTINGS["project"]["optional-dependencies"]["kubernetes"],
    *SETTINGS["dependency-groups"]["dev"],
    *SETTINGS["build-system"]["requires"],
]


@pytest.mark.parametrize("wanted", sorted(set(WANTED)))
def test_a_requirement_is_pinned_within_its_bounds(wanted: str) -> None:
    requirement = Requirement(wanted)
    assert requirement.specifier.contains(PINS[requirement.name.lower()], prereleases=True)
