"""The marks, settings, variables and files that the documents name exist."""

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
NOT_FOR_USERS = {"RACK", "RELEASED_FOR", "DELIVERY", "OWN_ANNOTATIONS"}
MARKS = sorted(
    value
    for name, value in vars(labels).items()
    if name.isupper()
    and isinstance(value, str)
    and not name.startswith(FORMS)
    and name not in NOT_FOR_USERS
)
ELSEWHERE = re.compile(
    r"\b(?:specification,? |sections? )\d|\((?:[A-Z]\d+, )*7\.[1-8]\)", re.IGNORECASE
)
"""A numbered section, cited as if its document were here: pages, rules and decisions are cited by their names."""
ROW_MAX = 160
"""Columns of a row of a table at most: more is a list below the table."""
WRITTEN_BY_SCRIPTS = {"performance.md"}
"""Pages whose tables a script writes from measurements."""
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


@pytest.mark.parametrize("document", sorted(ROOT.glob("docs/**/*.md")), ids=lambda path: path.name)
def test_files_that_are_named_exist(document: Path) -> None:
    named = re.findall(
        r"`((?:server|shim_client|evenhand_cli|evenhand_console|tests)/[\w/.]+)`",
        document.read_text(),
    )
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(
    "document", [*sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("*.md"))]
)
def test_links_lead_to_headings(document: Path) -> None:
    written = re.findall(r"\]\((?!https?:)([^)#\s]*)#([^)\s]+)\)", document.read_text())
    lost = [
        f"{path}#{anchor}"
        for path, anchor in written
        if anchor not in anchors(document.parent / path if path else document)
    ]
    assert lost == []


def test_no_text_cites_a_numbered_section_of_a_document_that_is_not_here() -> None:
    told = [
        f"{path.relative_to(ROOT)}:{number}"
        for folder in (
            "server",
            "shim_client",
            "evenhand_cli",
            "evenhand_console",
            "scripts",
            "tests",
            "docs",
            "proto",
        )
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in {".py", ".yaml", ".md", ".proto", ".json"} and path != Path(__file__)
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if ELSEWHERE.search(line)
    ]
    assert told == []


@pytest.mark.parametrize(
    "text",
    [
        "(specification 7.6)",
        "specification, section 0",
        "see section 9",
        "Sections 2 and 3",
        "(7.6)",
    ],
)
def test_a_numbered_section_is_found(text: str) -> None:
    assert ELSEWHERE.search(text)


def test_rows_of_tables_fit_a_screen() -> None:
    pages = [*sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("*.md"))]
    long = [
        f"{page.relative_to(ROOT)}:{number}"
        for page in pages
        if page.name not in WRITTEN_BY_SCRIPTS
        for number, line in enumerate(page.read_text("utf-8").splitlines(), 1)
        if line.startswith("|") and len(line) > ROW_MAX
    ]
    assert long == []


def anchors(document: Path) -> set[str]:
    """Return the anchors of a page: those of its headings, as GitHub makes them, and those written by hand."""
    text = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    made = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in plain}
    return made | set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text))
