"""Draw docs/pictures: each page of the console, of one size, in light colours, and the overview in dark ones, too.

    make picture

The pages are those of a live core, on which `scene` has played a day. Chromium draws them. Names, amounts and the date are
the same in every run; seconds may differ.
"""

import base64
import sys
import tempfile
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, Page, sync_playwright

from evenhand_console.views import VIEWS
from scripts.real import browser
from tests.pictures.scene import paths, played

FOLDER: Final = Path(__file__).parents[2] / "docs" / "pictures"
SIZE: Final = (1280, 800)
"""Width and height of each picture, in pixels."""
QUALITY: Final = 82
WAIT_MS: Final = 120_000
"""Milliseconds for which a busy machine may take to show a page."""
WHAT_IF: Final = "what-if"
DARK: Final = "overview-dark"
NAMES: Final = (*(one.name for one in VIEWS), WHAT_IF, DARK)
"""The pictures: one of each page, and one in dark colours."""
NO_BROWSER: Final = "Chromium is not here. `make real` installs it; then run `make picture` again."


def file_of(name: str) -> Path:
    """Return the file of a picture."""
    return FOLDER / f"console-{name}.webp"


def main() -> None:
    """Play the day, and draw every picture. Errors: SystemExit without a browser."""
    program = browser.find()
    if program is None:
        raise SystemExit(NO_BROWSER)
    with tempfile.TemporaryDirectory() as folder, played(Path(folder)) as scene:
        found = {one.name: one.path for one in VIEWS} | paths(scene.core)
        with sync_playwright() as started:
            opened = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
            for name in NAMES:
                _draw(opened, f"http://{scene.console}", name, found)
            opened.close()


def _draw(opened: Browser, url: str, name: str, found: dict[str, str]) -> None:
    colours = "dark" if name == DARK else "light"
    width, height = SIZE
    size = {"width": width, "height": height}
    context = opened.new_context(viewport=size, color_scheme=colours, timezone_id="UTC")  # type: ignore[arg-type]
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    if name == WHAT_IF:
        _lowered(page, url)
    else:
        page.goto(url + found.get(name, "/"))
    page.evaluate("document.fonts.ready")
    session = context.new_cdp_session(page)
    drawn = session.send("Page.captureScreenshot", {"format": "webp", "quality": QUALITY})
    file = file_of(name)
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(base64.b64decode(drawn["data"]))
    sys.stdout.write(f"{file.relative_to(FOLDER.parents[1])}: {file.stat().st_size:,} bytes\n")
    context.close()


def _lowered(page: Page, url: str) -> None:
    """Try a configuration with a lower max."""
    page.goto(f"{url}/what-if")
    editor = page.locator("#yaml")
    editor.fill(editor.input_value().replace("max: {vcore: 48}", "max: {vcore: 40}"))
    page.locator("form", has=editor).get_by_role("button", name="Try it").click()
    page.get_by_role("heading", name="What would follow").wait_for()


if __name__ == "__main__":
    main()
