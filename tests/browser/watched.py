"""Pages in the browser, with a check for forbidden acts: an error, a request to another host, or a violation of the content security policy."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, ViewportSize

from tests.cli.processes import until

WAIT_MS = 60_000.0
"""Milliseconds after which a page that does not change fails a test."""
WIDE: ViewportSize = {"width": 1280, "height": 800}
NARROW: ViewportSize = {"width": 360, "height": 640}
AXE = Axe()


@contextmanager
def visit(browser: Browser, url: str, *, may_fail: bool = False, **options: Any) -> Iterator[Page]:
    """Open a page for a new visitor. At the end, check that the page did nothing forbidden. With `may_fail`, requests may fail."""
    context = browser.new_context(viewport=WIDE, **options)
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    wrong: list[str] = []
    hosts: set[str] = set()
    _watch(page, wrong)
    page.on("request", lambda one: hosts.add(urlsplit(one.url).netloc))
    try:
        page.goto(url)
        yield page
    finally:
        context.close()
    assert hosts == {urlsplit(url).netloc}
    failed = ("error: Failed to load resource", "error: htmx: htmx:")
    told = [one for one in wrong if not (may_fail and one.startswith(failed))]
    assert not told, told


def _watch(page: Page, wrong: list[str]) -> None:
    """Collect the errors that a page reports. Violations of its content security policy are among the messages of the browser's console."""

    def message(one: ConsoleMessage) -> None:
        if one.type in {"error", "warning"}:
            wrong.append(f"{one.type}: {one.text}")

    def dialog(one: Dialog) -> None:
        wrong.append(f"dialog: {one.message}")
        one.dismiss()

    page.on("console", message)
    page.on("dialog", dialog)
    page.on("pageerror", lambda one: wrong.append(f"error: {one}"))


def live(page: Page) -> None:
    """Wait until the stream of the page is open."""
    until(lambda: bool(page.evaluate("!!document.getElementById('live')?._htmx?.sse")))


def findings(page: Page) -> list[str]:
    """Return the findings of axe: the rule, and for each element its selector and the reason."""
    found = AXE.run(page).response["violations"]
    return [
        f"{one['id']}: {node['target']} {node['failureSummary']}"
        for one in found
        for node in one["nodes"]
    ]
