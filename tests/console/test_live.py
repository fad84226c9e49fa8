"""A console beside a core that runs as a process: pages, a stream, and the end of both."""

import re
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from evenhand_console.views import VIEWS
from tests.cli.processes import CONSOLE, SECONDS_MAX, address_of, running, until

ANY_PORT = "127.0.0.1:0"


def _get(address: str, path: str) -> tuple[int, str]:
    with closing(HTTPConnection(address, timeout=SECONDS_MAX)) as connection:
        connection.request("GET", path)
        with connection.getresponse() as answer:
            return answer.status, answer.read().decode()


def test_a_core_with_a_console(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running(["serve", "--listen", ANY_PORT, "--console", ANY_PORT], log) as process:
        address_of(process, log)
        console = address_of(process, log, CONSOLE)
        for view in VIEWS:
            status, page = _get(console, view.path)
            assert status == 200, page
        with closing(HTTPConnection(console, timeout=SECONDS_MAX)) as stream:
            stream.request("GET", "/live/queues")
            with stream.getresponse() as events:
                first = [events.readline().decode() for _ in range(3)]
        assert first[0].startswith("retry: ")
        known = re.fullmatch(r"id: ([0-9a-f]{16})\n", first[2])
        assert known is not None
        assert known[1] in _get(console, "/queues")[1]
    until(lambda: not _listens(console))


def _listens(address: str) -> bool:
    try:
        _get(address, "/healthz")
    except OSError:
        return False
    return True


@pytest.mark.parametrize("form", ["json", "table"])
def test_a_demonstration_with_a_console_says_its_address(tmp_path: Path, form: str) -> None:
    log = tmp_path / "log"
    given = ["--watch", "--console", ANY_PORT, "--output", form]
    with running(["demo", *given], log):
        until(lambda: "console on http://" in log.read_text())
        found = re.search(r"console on http://(\S+)", log.read_text())
        assert found is not None
        until(lambda: _listens(found[1]))
        assert _get(found[1], "/queues")[0] in {200, 503}
