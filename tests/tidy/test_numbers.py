"""Numbers in sentences agree with their nouns and verbs: `1 pod is`, `2 pods are`.

The tests read every template in the source: a number before a noun in the plural, and a counted noun before a verb, come
from the helpers `count`, `quantities` and `plural`, which know the number.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from evenhand_cli.render.words import plural
from server.model.phrases import agreeing, count, quantities

ROOT = Path(__file__).parents[2]
FOLDERS = ("server", "shim_client", "evenhand_cli", "evenhand_console")
INTERNAL = ("server/state/invariants/",)
"""Texts of assertions, which no user reads."""
NOUNS = (
    "pods|asks|cores|nodes|members|queues|victims|candidates|applications|users|placeholders|reservations|decisions|gangs|"
    "jobs|allocations|claims|records|entries|rows|partitions|groups|others|events|lines|keys|waiting members"
)
PLURAL_VERBS = "are|were|have|wait|run|go|do|fit|take|end|need"
OF_HELPER = re.compile(r"(count|quantities|quantity|plural|phrase)\(")
_NOUN = re.compile(
    rf" (further |more |other |waiting )?({NOUNS})\b(?! and (ticks|replies)|, the most)"
)
_VERB = re.compile(rf" (more )?(({PLURAL_VERBS}|stays)\b|free $)")
"""A verb; `free` is one only before an object, which is a value of the template."""
_CONSTANT = re.compile(r"([\w.]+\.)?_?[A-Z][A-Z_]+|.*\bmost\b.*")
"""A limit, which is greater than one."""


def breaches(source: str) -> Iterator[str]:
    """Yield each number in a template that does not agree with what follows it."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.JoinedStr):
            continue
        for value, after in zip(node.values, node.values[1:], strict=False):
            if not (isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant)):
                continue
            number, text = ast.unparse(value.value), str(after.value)
            by_helper = OF_HELPER.match(number)
            wrong = _VERB if by_helper else _NOUN
            if wrong.match(text) and (by_helper or not _CONSTANT.fullmatch(number)):
                yield f"line {node.lineno}: {{{number}}}{text}"


def test_a_number_in_a_sentence_agrees_with_noun_and_verb() -> None:
    found = [
        f"{path.relative_to(ROOT)}, {one}"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not str(path.relative_to(ROOT)).startswith(INTERNAL)
        for one in breaches(path.read_text())
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "template",
    [
        'f"{len(found)} pods wait"',
        "f\"{count(n, 'pod')} are left\"",
        'f"{quantities(x)} more are free"',
        'f"{quantities(x)} stays missing"',
        "f\"{count(n, 'candidate')} free {amount}\"",
    ],
)
def test_a_template_that_does_not_know_its_number_is_found(template: str) -> None:
    assert list(breaches(template))


def test_helpers_agree_for_one_and_for_many() -> None:
    assert count(1, "pod", "are") == "1 pod is"
    assert count(2, "pod", "are") == "2 pods are"
    assert count(0, "pod", "are") == "0 pods are"
    assert plural(1, "ask", "wait") == "1 ask waits"
    assert plural(1_000, "ask", "wait") == "1,000 asks wait"
    assert count(1, "entry") == "1 entry"
    assert count(2, "entry") == "2 entries"
    assert f"1 {agreeing('would', 1)}" == "1 would"


@pytest.mark.parametrize(
    ("amounts", "text"),
    [
        ({"vcore": 1_000}, "1 core more is"),
        ({"vcore": 4_000}, "4 cores more are"),
        ({"vcore": 500}, "0.5 cores more are"),
        ({"memory": 2 << 30}, "2 GiB memory more is"),
        ({"ephemeral-storage": 1}, "1 B ephemeral-storage more is"),
        ({"hugepages-2Mi": 2 << 20}, "2 MiB hugepages-2Mi more is"),
        ({"nvidia.com/gpu": 1}, "1 gpu more is"),
        ({"nvidia.com/gpu": 2}, "2 gpu more are"),
        ({"pods": 1}, "1 pod more is"),
        ({"pods": 2}, "2 pods more are"),
        ({"vcore": 1_000, "memory": 1 << 30}, "1 core and 1 GiB memory more are"),
        ({"vcore": 1_000, "memory": 0}, "1 core more is"),
        ({}, "nothing more is"),
    ],
)
def test_quantities_of_every_unit_agree_with_their_verb(amounts: dict[str, int], text: str) -> None:
    assert quantities(amounts, "more are") == text
