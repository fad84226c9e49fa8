"""The documents name what there is: marks, settings, variables and files."""

import re
from pathlib import Path

import pytest
import yaml

from shim_client import config
from shim_client.translate import labels

ROOT = Path(__file__).parents[2]
MOVING = (ROOT / "docs" / "yunikorn" / "migrate.md").read_text()
LOCAL = (ROOT / "docs" / "local-stack.md").read_text()
FORMS = ("TAG_", "ATTRIBUTE_")
"""Prefixes of constants for names on the wire alone, which users who move never write."""
NOT_FOR_USERS = {"RACK", "RELEASED_FOR", "DELIVERY"}
MARKS = sorted(
    value
    for name, value in vars(labels).items()
    if name.isupper() and not name.startswith(FORMS) and name not in NOT_FOR_USERS
)
SETTINGS = sorted(value for name, value in vars(config).items() if name.endswith("_KEY"))


@pytest.mark.parametrize("mark", [*MARKS, *SETTINGS])
def test_who_moves_finds_every_mark_and_setting(mark: str) -> None:
    assert re.search(rf"(?<![\w./-]){re.escape(mark)}(?![\w/-])", MOVING)


def test_the_local_stack_s_variables_are_explained() -> None:
    compose = (ROOT / "docker-compose.yml").read_text()
    used = set(re.findall(r"\$\{(\w+):-", compose))
    explained = set(re.findall(r"^\| `([A-Z_]+)` \|", LOCAL, re.MULTILINE))
    assert used == explained


def test_both_generations_of_compose_read_the_file() -> None:
    read = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    assert {"services", "networks"} <= read.keys()
    assert read.keys().isdisjoint({"name", "version"})
    # What only the newer one knows.
    healthchecks = [service["healthcheck"] for service in read["services"].values()]
    assert all("start_interval" not in one for one in healthchecks)


@pytest.mark.parametrize(
    "document", [*sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("*.md"))]
)
def test_links_lead_somewhere(document: Path) -> None:
    written = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", document.read_text())
    assert [link for link in written if not (document.parent / link).exists()] == []
