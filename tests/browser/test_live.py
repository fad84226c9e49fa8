"""Pages that update by themselves: placed pods appear, lost connections resume, and updates keep the visitor's focus and choices."""

import re
from contextlib import ExitStack
from pathlib import Path

from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.served import ANY_PORT, Site, console_beside, proxy, shim_beside
from tests.browser.watched import NARROW, WAIT_MS, live, visit
from tests.cli.processes import address_of, running, until

expect.set_options(timeout=WAIT_MS)
TOKEN = "token-of-a-viewer-of-tests"  # noqa: S105 -- of a core of this test.
ALL = "There is no node."
UNKNOWN = "Log in to see this page"
NOT_ALLOWED = "Your role may not see this page"


def _as_of(page: Page) -> str:
    """Return the instant of the answer that the page shows."""
    return page.locator("#view time").last.inner_text()


def _updated(page: Page) -> None:
    """Wait until the page shows a later answer."""
    before = _as_of(page)
    until(lambda: _as_of(page) != before)


def test_placed_pods_show_without_a_reload(chromium: Browser, tmp_path: Path) -> None:
    with running(["serve", "--listen", ANY_PORT], tmp_path / "core.log") as core:
        address = address_of(core, tmp_path / "core.log")
        with (
            console_beside(address, tmp_path / "console.log") as url,
            visit(chromium, url + "/nodes") as page,
        ):
            live(page)
            page.evaluate("window.unloaded = false")
            expect(page.locator("#view")).to_contain_text("There is no node.")
            with shim_beside(address, tmp_path / "shim.log"):
                expect(page.locator("#view")).to_contain_text(re.compile(r"[1-9] pods"))
            assert page.evaluate("window.unloaded") is False


def test_a_lost_connection_is_said_and_resumed(
    chromium: Browser, site: Site, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        between = stack.enter_context(proxy())
        origin = ("--origin", between.url)
        first = stack.enter_context(console_beside(site.core, tmp_path / "a", *origin))
        between.target = first
        with visit(chromium, between.url + "/timers", may_fail=True) as page:
            live(page)
            page.evaluate("window.unloaded = false")
            _updated(page)
            between.cut()
            expect(page.locator("#connection")).to_contain_text(
                "connection to the console was lost"
            )
            assert page.locator("#view h2").count()
            between.target = first
            expect(page.locator("#connection")).to_be_hidden()
            _updated(page)
            between.cut()
            expect(page.locator("#connection")).to_be_visible()
            with console_beside(site.core, tmp_path / "b", *origin) as second:
                between.target = second
                expect(page.locator("#connection")).to_be_hidden()
                _updated(page)
            assert page.evaluate("window.unloaded") is False


def test_a_page_that_opens_without_a_stream_tries_again(chromium: Browser, site: Site) -> None:
    with visit(chromium, site.url + "/nodes", may_fail=True) as page:
        page.route("**/live/**", lambda route: route.abort())
        page.reload()
        expect(page.locator("#connection")).to_contain_text("does not answer")
        page.unroute_all(behavior="wait")
        expect(page.locator("#connection")).to_be_hidden()
        _updated(page)


def test_a_page_is_live_though_a_script_loads_late(chromium: Browser, site: Site) -> None:
    with visit(chromium, site.url + "/queues") as page:

        def late(route: Route) -> None:
            page.wait_for_timeout(500)  # Longer than htmx waits for its extensions.
            route.continue_()

        page.route("**/hx-sse.min.js", late)
        page.goto(site.url + "/nodes")
        live(page)
        _updated(page)


def test_an_update_leaves_what_the_visitor_does(chromium: Browser, site: Site) -> None:
    with visit(chromium, site.url + "/decisions") as page:
        live(page)
        field = page.locator("#queue")
        field.fill("root.ba")
        _updated(page)
        assert field.input_value() == "root.ba"
        field.press("t")
        assert page.evaluate("document.activeElement.id") == "queue"
        page.goto(site.url + site.paths["queue"])
        live(page)
        page.locator("figure.chart summary").first.click()
        _updated(page)
        expect(page.locator("figure.chart details").first).to_have_attribute("open", "")


def test_lines_are_drawn_for_the_width_and_the_colours(chromium: Browser, site: Site) -> None:
    with visit(chromium, site.url + "/healthz", may_fail=True, color_scheme="light") as page:
        page.route("**/live/**", lambda route: route.abort())  # An update would draw, too.
        page.goto(site.url + site.paths["queue"])
        canvas = page.locator("figure.chart .plot canvas").first
        expect(canvas).to_be_visible()
        expect(page.locator("figure.chart > svg").first).to_be_hidden()
        before = canvas.evaluate("one => one.toDataURL()")
        page.emulate_media(color_scheme="dark")
        until(lambda: canvas.evaluate("one => one.toDataURL()") != before)
        page.set_viewport_size(NARROW)
        fits = "document.querySelector('.plot').scrollWidth <= document.querySelector('.chart').clientWidth"
        until(lambda: page.evaluate(fits))


def _ground(page: Page) -> str:
    """Return the colour of the page's ground, once its styles are loaded."""
    page.wait_for_load_state("load")
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


def test_the_choice_of_colours(chromium: Browser, site: Site) -> None:
    with visit(chromium, site.url + "/queues", color_scheme="light") as page:
        light = _ground(page)
        page.get_by_role("button", name="dark").press("Enter")
        expect(page.get_by_role("button", name="dark")).to_have_attribute("aria-pressed", "true")
        assert page.url == site.url + "/queues"
        assert _ground(page) != light
        page.reload()
        assert _ground(page) != light
        page.get_by_role("button", name="auto").press("Enter")
        expect(page.get_by_role("button", name="auto")).to_have_attribute("aria-pressed", "true")
        assert _ground(page) == light


def test_log_in_and_log_out(chromium: Browser, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.yaml"
    viewer = f"{{token: {TOKEN}, role: viewer, queue: root.research, name: science}}"
    tokens.write_text(f"tokens:\n  - {viewer}\n")
    tokens.chmod(0o600)
    serve = ["serve", "--listen", ANY_PORT, "--tokens", str(tokens)]
    with running(serve, tmp_path / "core.log") as core:
        address = address_of(core, tmp_path / "core.log")
        with (
            console_beside(address, tmp_path / "console.log") as url,
            visit(chromium, url + "/nodes", may_fail=True) as page,
        ):
            view = page.locator("#view")
            expect(view).to_contain_text(ALL)
            for token, shown in (("t" * 20, UNKNOWN), (TOKEN, NOT_ALLOWED)):
                page.locator("summary", has_text="Log in").press("Enter")
                page.get_by_label("Token").fill(token)
                page.get_by_label("Token").press("Enter")
                expect(view).to_contain_text(shown)
                assert page.url == url + "/nodes"
                assert token not in page.content()
                assert page.evaluate("document.cookie") == ""
                if token == TOKEN:  # A page that asks to log in does not update.
                    live(page)
                page.get_by_role("button", name="Log out").press("Enter")
                expect(view).to_contain_text(ALL)
