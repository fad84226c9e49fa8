"""Texts that would end the program, or keep it busy for hours: deep nesting, and aliases that repeat what they name."""

import subprocess
import sys
from pathlib import Path

import pytest

from evenhand_cli.asks import documents
from evenhand_cli.faults import Fault


def _repeated(levels: int, start: str, item: str) -> str:
    """Return a text whose each level names the one below ten times."""
    lines = [f"a0: &a0 {start}"]
    for level in range(1, levels):
        names = ", ".join([f"*a{level - 1}"] * 10)
        lines.append(f"a{level}: &a{level} {item.replace('...', names)}")
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "a: " + "{a: " * 100_000, "a: " + "[" * 101 + "]" * 101],
    ids=["lists", "mappings", "closed"],
)
def test_a_deep_text_is_refused_and_does_not_end_the_process(text: str, tmp_path: Path) -> None:
    file = tmp_path / "text.yaml"
    file.write_text(text)
    # A process of its own, because the stack of the parser ends the process.
    command = [sys.executable, "-m", "evenhand_cli", "simulate", "ask", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.returncode
    assert "nested deeper than 100 levels" in done.stderr


@pytest.mark.parametrize(
    "text",
    [
        _repeated(9, "[1]", "[...]"),
        _repeated(9, "{k: 1}", "{<<: [...]}"),
        "\n".join(["a0: &a0 []", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 2_000))]),
        "a: &a [*a]",
    ],
    ids=["lists", "merges", "chain", "circle"],
)
def test_aliases_repeat_a_bounded_number_of_values(text: str) -> None:
    with pytest.raises(Fault, match="alias") as caught:
        documents.parsed(text, "text")
    assert caught.value.where.startswith("text:")


def test_ordinary_aliases_and_merges_work() -> None:
    text = "a: &a {b: 1}\nc: [*a, *a]\nd: {<<: *a, e: 2}\n"
    (found,) = documents.parsed(text, "text")
    assert found.item == {"a": {"b": 1}, "c": [{"b": 1}] * 2, "d": {"b": 1, "e": 2}}
