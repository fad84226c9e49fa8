"""`evenhand explain RULE`: the text of a rule without a core, and the file with the rules in the package."""

import json

import pytest

from evenhand_cli.rules import rules
from scripts import rule_texts
from tests.cli.run import evenhand


def test_the_file_has_the_rules_of_the_pages() -> None:
    written = json.loads(rule_texts.FILE.read_text(encoding="utf-8"))
    assert written == rule_texts.rules(), "`python -m scripts.rule_texts` writes it again"


@pytest.mark.parametrize("name", rules())
def test_each_rule_has_statement_reason_source_and_page(name: str) -> None:
    found = rules()[name]
    assert found.statement.endswith((".", ":"))
    assert found.reason
    assert found.source
    page, _, anchor = found.page.partition("#")
    assert f"### {anchor.upper()}\n" in (rule_texts.ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", rules())
def test_a_rule_is_printed_within_80_columns_without_a_core(name: str) -> None:
    ended = evenhand("explain", name, "--core", "127.0.0.1:1")
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert lines[0].startswith(f"{name}  ")
    assert lines[-1] == f"read on: {rules()[name].page}, with examples"
    assert max(map(len, lines)) <= 80


def test_a_rule_as_data() -> None:
    found = json.loads(evenhand("explain", "V4", "--output", "json").out)
    assert (found["rule"], found["page"]) == ("V4", "docs/rules/protection.md#v4")


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        (f"G{99}", "rules G1 to G12 begin with G"),
        ("X1", "rules begin with C, G, I, J, O, P, Q, V, W"),
    ],
)
def test_an_id_that_no_rule_has(name: str, advice: str) -> None:
    ended = evenhand("explain", name, "--core", "127.0.0.1:1")
    assert ended.code == 1
    assert f"there is no rule `{name}`" in ended.err
    assert advice in ended.err


def test_a_name_in_small_letters_is_no_rule() -> None:
    ended = evenhand("explain", "g4", "--core", "127.0.0.1:1", "--timeout", "1")
    assert "cannot reach the core" in ended.err
