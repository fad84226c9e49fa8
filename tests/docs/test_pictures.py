"""The pictures of the console: one of each page, of one size, small, and named on the page of the console."""

import re
from pathlib import Path

import pytest

from evenhand_console.views import VIEWS
from scripts.real import browser
from tests.docs.pages import DOCS
from tests.pictures import __main__ as pictures

BYTES_MAX = 1_500_000
LINK = re.compile(r"!\[([^\]]+)\]\(([^)]+\.webp)\)")


def _size(file: Path) -> tuple[int, int]:
    """Return width and height of a picture in WebP's extended form, which Chromium writes."""
    data = file.read_bytes()
    assert (data[:4], data[8:16]) == (b"RIFF", b"WEBPVP8X"), file
    width, height = (int.from_bytes(data[at : at + 3], "little") for at in (24, 27))
    return width + 1, height + 1


def test_every_page_has_a_picture_with_an_alternative_text() -> None:
    named = {path: text for text, path in LINK.findall((DOCS / "console.md").read_text("utf-8"))}
    pages = {one.name for one in VIEWS} | {"what-if"}
    assert pages <= set(pictures.NAMES)
    assert set(named) == {f"pictures/console-{name}.webp" for name in pictures.NAMES}
    assert all(len(text) > 20 for text in named.values())


def test_the_pictures_that_pages_name_have_one_size_and_are_small() -> None:
    files = sorted(pictures.FOLDER.iterdir())
    assert {one.name for one in files} == {pictures.file_of(name).name for name in pictures.NAMES}
    assert {_size(one) for one in files} == {pictures.SIZE}
    assert sum(one.stat().st_size for one in files) < BYTES_MAX
    for page in (DOCS.parent / "README.md", DOCS / "console.md"):
        for _, path in LINK.findall(page.read_text("utf-8")):
            assert (page.parent / path).is_file(), (page, path)


def test_without_a_browser_it_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser, "find", lambda: None)
    with pytest.raises(SystemExit, match="`make real` installs it"):
        pictures.main()
