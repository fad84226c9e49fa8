"""Global state, which every test leaves as it was; the effort of random tests; the immediate report of failures."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import hypothesis
import pytest
import structlog

import server  # noqa: F401 - before gRPC, see there
from scripts.real import provision
from tests.effort import cases
from tests.folders import API_SERVER, LONGEST, REAL, UNAIDED

ROOT: Final = Path(__file__).parent

hypothesis.settings.register_profile(
    "effort",
    max_examples=cases(100, least=10),
    # Other work on the machine slows tests and their drawing of data, so no test fails because it is slow.
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("effort")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.relative_to(ROOT).as_posix() not in LONGEST)
    for item in items:
        place = item.path.relative_to(ROOT)
        if place.parts[0] in REAL and place.as_posix() not in UNAIDED:
            item.add_marker("real")
            if place.parts[0] in API_SERVER:
                item.add_marker("api_server")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    try:
        provision.kubernetes()
    except provision.UnknownVersionError as error:
        raise pytest.UsageError(str(error)) from error
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        config.pluginmanager.register(_Failures(reporter), "failures-at-once")


class _Failures:
    """A reporter that writes the name of each failed test and the first line of its error."""

    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self._reporter = reporter

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._reporter.ensure_newline()
            self._reporter.write_line(f"{report.nodeid}: {_first_line(report)}")


def _first_line(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    message = str(report.longrepr if crash is None else crash.message)
    return next((line for line in message.splitlines() if line.strip()), report.when)


@pytest.fixture(autouse=True)
def unconfigured_log() -> Iterator[None]:
    """Reset the log after each test, because a command that ran in this process leaves it set to a closed stream."""
    yield
    structlog.reset_defaults()
