"""One browser for all tests of a module, a core with pods that run and wait, and consoles beside cores."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from scripts.real import browser
from tests.browser.served import Site, claim_site, console_beside
from tests.cli import fake
from tests.console import samples
from tests.real.needs import absent

HOSTILE = samples.MARKUP + samples.CONTROLS + samples.LONG
"""All hostile names in one."""


# For one module: while the browser is open, an event loop runs, and tests elsewhere run theirs.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Provide the browser."""
    path = browser.find() or absent("Chromium is not here (`make real` installs it)")
    with sync_playwright() as started:
        opened = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def site(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Provide a core with running and waiting pods and a decision, and the console beside it."""
    del chromium  # Without a browser, no core is started.
    with claim_site(tmp_path_factory.mktemp("claim")) as found:
        yield found


@pytest.fixture(scope="module")
def hostile(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Provide the address of the console of a core whose objects all have a hostile name."""
    del chromium
    log: Path = tmp_path_factory.mktemp("hostile") / "log"
    with fake.running(samples.core(HOSTILE)) as core, console_beside(core.address, log) as url:
        yield url
