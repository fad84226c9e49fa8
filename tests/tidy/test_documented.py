"""The user guide has every command, reason code, node reason and metric, and none that no longer exists; links work."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from evenhand_cli.app import COMMANDS, app
from server.core.core import Core
from server.core.wait_reasons import node_filters
from server.model.asks import Constraints, Term, Toleration
from server.model.reasons import Code
from server.model.records import DecisionState
from server.observe import metrics
from server.observe.durations import Durations
from server.preemption.policy import Rule
from server.rpc.evenhand.rule_text import words

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "user-guide.md").read_text(encoding="utf-8")
OPTION = re.compile(r"--[a-z][a-z-]+")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
USED = re.compile(r"(?:`|^ *(?:\$ )?)evenhand ([a-z]+)(?: ([a-z]+(?:-[a-z]+)*)\b)?", re.MULTILINE)
"""A command with the word behind it, where a line or a code span begins."""
ROW = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)
MAKERS = {"create_counter": "_total", "create_histogram": "_seconds"}
"""The suffixes that the exporter adds to the name of a meter."""


def test_every_code_has_its_line() -> None:
    told = rows("Reason codes")
    assert len(told) == len(set(told))
    assert set(told) == {code.value for code in Code}


def test_every_rule_has_its_line() -> None:
    told = rows("Rules of preemption")
    assert len(told) == len(set(told))
    assert set(told) == {rule.value for rule in Rule}
    assert {rule for rule in Rule if f"| `{rule}` | {words(rule)} |" not in GUIDE} == set()


def test_every_state_of_a_decision_has_its_line() -> None:
    assert set(rows("Which pods are evicted, and why")) == {state.value for state in DecisionState}


def test_every_meter_has_its_line() -> None:
    assert set(rows("Metrics")) == set(meters())


def test_every_reason_of_a_node_is_named() -> None:
    text = section("Reason codes")
    named = {
        value for name, value in vars(node_filters).items() if name.isupper() and is_word(value)
    }
    every = Constraints(
        node_selector=(("zone", "a"),),
        required_terms=(Term(),),
        tolerations=(Toleration(),),
        node_name="node-1",
    )
    named |= {name for name, _ in node_filters.parts(every)}
    assert len(named) > 10
    assert {name for name in named if f"`{name}" not in text} == set()


def test_every_command_is_shown() -> None:
    assert {name for name in COMMANDS if f"evenhand {name}" not in GUIDE} == set()


def test_every_command_in_a_document_exists() -> None:
    documents = [ROOT / "README.md", *(ROOT / "docs").glob("**/*.md")]
    written = {found for page in documents for found in USED.findall(page.read_text("utf-8"))}
    assert ("config", "apply") in written
    top: Any = get_command(app)
    context = top.context_class(top)
    unknown = set()
    for name, below in written:
        group: Any = top.get_command(context, name) if name in COMMANDS else None
        known = group and (not below or below in getattr(group, "commands", {below}))
        if not known:
            unknown.add(f"{name} {below}")
    assert unknown == set()


def test_every_option_of_a_command_is_named_in_a_document() -> None:
    documents = [ROOT / "README.md", *(ROOT / "docs").glob("**/*.md")]
    lines = (line for page in documents for line in page.read_text("utf-8").splitlines())
    ours = [line for line in lines if not re.search(r"-m scripts|^ +(kubectl|docker) ", line)]
    named = {word for line in ours for word in OPTION.findall(line)}
    assert options(get_command(app)) - {"--help"} - named == set()


@pytest.mark.parametrize(
    "page", ["README.md", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md"))]
)
def test_links_lead_to_files(page: str) -> None:
    file = ROOT / page
    links = LINK.findall(file.read_text(encoding="utf-8"))
    assert [link for link in links if not (file.parent / link).exists()] == []


def options(command: Any) -> set[str]:  # a command of Typer or of Click, as its version has it
    """Return the long options of a command and of those below it."""
    found = {word for one in command.params for word in one.opts if OPTION.fullmatch(word)}
    if not hasattr(command, "list_commands"):
        return found
    context = command.context_class(command)
    below = (command.get_command(context, name) for name in command.list_commands(context))
    return found.union(*(options(one) for one in below))


def is_word(value: object) -> bool:
    return isinstance(value, str)


def meters() -> list[str]:
    """Return the metric names that Prometheus sees: gauges and sums from their tables, others from the code."""
    tree = ast.parse(Path(metrics.__file__).read_text(encoding="utf-8"))
    made = [
        node.args[0].value.replace(".", "_") + MAKERS[node.func.attr]
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in MAKERS
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
    ]
    gauges = [f"evenhand_{name}" for name in metrics._GAUGES]
    made += [one.name for one in Durations(Core()).histograms]
    return made + gauges + [f"evenhand_{name}_total" for name in metrics._SUMS]


def rows(title: str) -> list[str]:
    """Return the first column of a section's tables."""
    return ROW.findall(section(title))


def section(title: str) -> str:
    return GUIDE.split(f"\n## {title}\n")[1].split("\n## ")[0]
