"""The shape of the source tree: checks that no existing linter makes."""

import ast
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("server", "shim_client", "evenhand_cli", "evenhand_console")
LINES_MAX = 600
FORBIDDEN_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "misc"}
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def tracked() -> list[Path]:
    """Return the files that git tracks. Skips the test without git."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("git is not here, or this is no checkout")
    command = [git, "ls-files", "-z"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"git does not read this checkout: {done.stderr}")
    return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_a_module_can_be_read_in_one_sitting() -> None:
    long = {name_of(path): len(path.read_text().splitlines()) for path in MODULES}
    assert {name: lines for name, lines in long.items() if lines > LINES_MAX} == {}


def test_a_module_says_what_it_is() -> None:
    silent = [name_of(path) for path in MODULES if not ast.get_docstring(_tree(path))]
    assert silent == []


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert [name_of(path) for path in MODULES if path.stem in FORBIDDEN_NAMES] == []


def test_no_work_is_left_in_comments() -> None:
    left = re.compile(r"\b(TODO|FIXME|XXX)\b")
    ours = [path for path in MODULES if left.search(path.read_text())]
    assert [name_of(path) for path in ours] == []


def test_generated_code_is_not_committed() -> None:
    names = [name_of(path) for path in tracked()]
    made = [name for name in names if "_pb2" in name or name.startswith("gen/")]
    assert made == []


def test_every_make_target_is_explained() -> None:
    text = (ROOT / "Makefile").read_text()
    targets = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    assert targets
    explained = re.findall(r"^([a-z-]+):.*## \S", text, re.MULTILINE)
    assert sorted(explained) == sorted(targets[1].split())
