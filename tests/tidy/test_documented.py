"""The user guide knows every command, reason code, reason of a node and meter, and none that is gone; links lead somewhere."""

import ast
import re
from pathlib import Path

import pytest

from evenhand_cli.app import COMMANDS
from server.core import tally
from server.model.asks import Constraints, Term, Toleration
from server.model.reasons import Code
from server.model.records import DecisionState
from server.observe import metrics
from server.preemption.policy import Law
from server.rpc.evenhand.law_words import words

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "user-guide.md").read_text(encoding="utf-8")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
ROW = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)
MAKERS = {"create_counter": "_total", "create_histogram": "_seconds"}
"""What the exporter adds to the name of a meter."""


def test_every_code_has_its_line() -> None:
    told = rows("Reason codes")
    assert len(told) == len(set(told))
    assert set(told) == {code.value for code in Code}


def test_every_law_has_its_line() -> None:
    told = rows("Laws of preemption")
    assert len(told) == len(set(told))
    assert set(told) == {law.value for law in Law}
    assert {law for law in Law if f"| `{law}` | {words(law)} |" not in GUIDE} == set()


def test_every_state_of_a_decision_has_its_line() -> None:
    assert set(rows("Who has to go, and why")) == {state.value for state in DecisionState}


def test_every_meter_has_its_line() -> None:
    assert set(rows("Metrics")) == set(meters())


def test_every_reason_of_a_node_is_named() -> None:
    text = section("Reason codes")
    named = {value for name, value in vars(tally).items() if name.isupper() and is_word(value)}
    every = Constraints(
        node_selector=(("zone", "a"),),
        required_terms=(Term(),),
        tolerations=(Toleration(),),
        node_name="node-1",
    )
    named |= {name for name, _ in tally.parts(every)}
    assert len(named) > 10
    assert {name for name in named if f"`{name}" not in text} == set()


def test_every_command_is_shown() -> None:
    assert {name for name in COMMANDS if f"evenhand {name}" not in GUIDE} == set()


@pytest.mark.parametrize(
    "page", ["README.md", *sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]
)
def test_links_lead_to_files(page: str) -> None:
    file = ROOT / page
    links = LINK.findall(file.read_text(encoding="utf-8"))
    assert [link for link in links if not (file.parent / link).exists()] == []


def is_word(value: object) -> bool:
    return isinstance(value, str)


def meters() -> list[str]:
    """The names under which Prometheus sees them: gauges from their table, the others where they are made."""
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
    return made + gauges


def rows(title: str) -> list[str]:
    """What stands in the first column of a section's tables."""
    return ROW.findall(section(title))


def section(title: str) -> str:
    return GUIDE.split(f"\n## {title}\n")[1].split("\n## ")[0]
