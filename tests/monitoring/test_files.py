"""The files of deploy/monitoring equal the output of the scripts, and each alert has a page with commands that exist."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner

from evenhand_cli.app import app
from scripts.monitoring import __main__ as script
from scripts.monitoring import dashboards, rules

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "monitoring"
PAGES = ROOT / "docs" / "runbooks"
ALERTS: dict[str, Any] = {
    rule["alert"]: rule
    for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
}
PARTS = ("What it means", "How bad it is", "What to look at", "What to do")
RENEW = "python -m scripts.monitoring"


def test_the_dashboards_are_those_that_the_script_makes() -> None:
    kept = {path.name: path.read_text() for path in (FOLDER / "dashboards").glob("*.json")}
    assert kept == dashboards.files(), RENEW


def test_the_resource_is_made_from_the_plain_file() -> None:
    assert (FOLDER / "prometheusrule.yaml").read_text() == rules.resource(), RENEW
    made = yaml.safe_load(rules.resource())
    assert made["spec"] == yaml.safe_load((FOLDER / "alerts.yaml").read_text())


def test_queries_of_a_panel_have_different_names_and_panels_do_not_overlap() -> None:
    for name, text in dashboards.files().items():
        taken: set[tuple[int, int]] = set()
        for panel in json.loads(text)["panels"]:
            references = [one["refId"] for one in panel["targets"]]
            assert len(set(references)) == len(references) > 0
            at = panel["gridPos"]
            cells = {
                (at["x"] + right, at["y"] + down)
                for right in range(at["w"])
                for down in range(at["h"])
            }
            assert taken.isdisjoint(cells), f"{name}: {panel['title']}"
            taken |= cells


def test_another_place_of_the_pages(tmp_path: Path) -> None:
    base = "https://wiki.example/evenhand"
    script.main(runbooks=base, out=tmp_path)
    plain = yaml.safe_load((tmp_path / "alerts.yaml").read_text())
    resource = yaml.safe_load((tmp_path / "prometheusrule.yaml").read_text())
    assert resource["spec"] == plain
    found = {
        rule["alert"]: rule["annotations"]["runbook_url"]
        for group in plain["groups"]
        for rule in group["rules"]
    }
    assert found == {name: f"{base}/{name}.md" for name in ALERTS}
    assert {path.name for path in (tmp_path / "dashboards").iterdir()} == dashboards.files().keys()


def test_each_alert_has_a_page_and_each_page_an_alert() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} == ALERTS.keys() | {"README"}
    overview = (PAGES / "README.md").read_text()
    rows = dict(re.findall(r"^\| \[(\w+)\]\(\1\.md\) \| (\w+) \|", overview, re.MULTILINE))
    assert rows == {name: rule["labels"]["severity"] for name, rule in ALERTS.items()}


@pytest.mark.parametrize("name", ALERTS)
def test_a_page_has_every_part_and_the_severity_of_its_alert(name: str) -> None:
    assert ALERTS[name]["annotations"]["runbook_url"] == f"{rules.BASE}{name}.md"
    text = (PAGES / f"{name}.md").read_text()
    assert text.startswith(f"# {name}\n\nSeverity: {ALERTS[name]['labels']['severity']}. ")
    assert tuple(re.findall(r"^## (.*)$", text, re.MULTILINE)) == PARTS


def commands() -> list[str]:
    """Return every command in the tables of a page."""
    row = re.compile(r"^\| [^|]+ \| `(evenhand [^`]+)` \|$", re.MULTILINE)
    pages = {path.stem: row.findall(path.read_text()) for path in PAGES.glob("Evenhand*.md")}
    assert all(pages.values()), "each page has a command"
    return sorted({command for found in pages.values() for command in found})


@pytest.mark.parametrize("command", commands())
def test_a_command_of_a_page_is_understood(command: str) -> None:
    """The command line is read; the command itself does not run, because ``--help`` ends it."""
    words = shlex.split(command)[1:]
    group: Any = get_command(app)
    context = group.context_class(group)
    while hasattr(group, "get_command"):
        group = group.get_command(context, words.pop(0))
        assert group is not None, command
        context = group.context_class(group)
    given = group.make_parser(context) if hasattr(group, "make_parser") else None
    if given is not None:
        given.parse_args(args=words)
    done = CliRunner().invoke(app, [*shlex.split(command)[1:], "--help"])
    assert done.exit_code == 0, done.output
