"""The vendored files equal the files of their packages, and the table in their folder names each file."""

import hashlib
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "evenhand_console" / "static" / "vendor"
ROW = re.compile(
    r"\| `(?P<file>[^`]+)` \| [\w.]+ \| [\d.]+ \| [\w-]+ \| `(?P<sum>[0-9a-f]{64})` \|"
)
ROWS = {found["file"]: found["sum"] for found in ROW.finditer((FOLDER / "README.md").read_text())}


def test_the_table_names_every_file() -> None:
    assert set(ROWS) == {one.name for one in FOLDER.iterdir()} - {"README.md"}


@pytest.mark.parametrize("file", ROWS)
def test_a_file_is_as_published(file: str) -> None:
    assert hashlib.sha256((FOLDER / file).read_bytes()).hexdigest() == ROWS[file]


def test_the_notice_names_the_packages() -> None:
    notice = (FOLDER.parents[2] / "NOTICE").read_text()
    assert "htmx" in notice
    assert "uPlot" in notice
