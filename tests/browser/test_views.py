"""Each page in a real browser: both colour schemes, narrow and wide windows, axe, keyboard, hostile names, and no JavaScript."""

from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.conftest import HOSTILE
from tests.browser.served import NAMES, Site, named_paths
from tests.browser.watched import NARROW, WIDE, findings, live, visit
from tests.console.samples import LONG, MARKUP

OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
FOCUSABLE = """() => [...document.querySelectorAll(
    "a[href], button, input:not([type=hidden]), select, textarea:not([hidden]), summary, [tabindex='0']")]
  .filter((one) => one.checkVisibility())
  .map((one, at) => { one.stop = at; return one.outerHTML.slice(0, 120); })"""
FOCUSED = """() => {
  const one = document.activeElement;
  if (!one || one === document.body) return null;
  const box = one.getBoundingClientRect();
  const style = getComputedStyle(one);
  const seen = box.width > 0 && box.height > 0 && box.bottom > 0 && box.right > 0
    && box.top < innerHeight && box.left < innerWidth;
  const marked = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  return { stop: one.stop ?? -1, html: one.outerHTML.slice(0, 120), seen, marked };
}"""
STOPS_MAX = 400


@pytest.mark.parametrize("name", NAMES)
def test_a_page_in_both_colours_and_widths(chromium: Browser, site: Site, name: str) -> None:
    with visit(chromium, site.url + site.paths[name]) as page:
        if name != "what-if":
            live(page)
        for colours in ("light", "dark"):
            page.emulate_media(color_scheme=colours)
            for size in (WIDE, NARROW):
                page.set_viewport_size(size)
                assert page.evaluate(OVERFLOW) == 0, (colours, size)
                assert findings(page) == [], (colours, size)


@pytest.mark.parametrize("name", NAMES)
def test_a_page_by_keyboard_alone(chromium: Browser, site: Site, name: str) -> None:
    with visit(chromium, site.url + site.paths[name]) as page:
        expected = page.evaluate(FOCUSABLE)
        page.keyboard.press("Tab")
        assert page.evaluate(FOCUSED)["html"].startswith('<a class="skip"')
        reached = _stops(page)
        assert [one for one in reached if not (one["seen"] and one["marked"])] == []
        stops = [one["stop"] for one in reached if one["stop"] >= 0]
        assert [html for at, html in enumerate(expected) if at not in stops] == []
        assert stops == sorted(stops)
        page.keyboard.press("Tab")
        page.locator("a.skip").focus()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.closest('#view') !== null")


def _stops(page: Page) -> list[dict[str, Any]]:
    """Return each element that gets the focus, from the present element to the last."""
    found = []
    while (one := page.evaluate(FOCUSED)) is not None:
        found.append(one)
        assert len(found) < STOPS_MAX
        page.keyboard.press("Tab")
    return found


@pytest.mark.parametrize("name", NAMES)
def test_hostile_names_are_text(chromium: Browser, hostile: str, name: str) -> None:
    with visit(chromium, hostile + named_paths(HOSTILE)[name]) as page:
        if name != "what-if":
            live(page)
        assert page.locator("main script, main img, main iframe").count() == 0
        shown = page.locator("main").inner_text() + page.locator("main").inner_html()
        assert MARKUP[:8] in page.locator("main").inner_text() or LONG in shown
        page.set_viewport_size(NARROW)
        assert page.evaluate(OVERFLOW) == 0
        assert findings(page) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_page_can_be_read_without_javascript(chromium: Browser, site: Site, name: str) -> None:
    with visit(chromium, site.url + site.paths[name], java_script_enabled=False) as page:
        assert page.locator("h1").is_visible()
        assert page.locator("#view").inner_text().strip()
        assert page.locator("#connection").is_hidden()
        for chart in page.locator("figure svg").all():
            assert chart.is_visible()
        page.get_by_role("link", name="Queues", exact=True).click()
        assert page.locator("h1").inner_text() == "Queues"
