"""Connections that send nothing, or take nothing, are closed; those of browsers that wait for events stay."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest
from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.server import ServerState

from evenhand_cli.render.words import instant
from evenhand_console import bootstrap, patience

LOOKS = 20
REQUEST = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"


class _Transport(asyncio.Transport):
    """The other end: what it has not taken yet, and whether it was closed."""

    def __init__(self, address: str) -> None:
        super().__init__({"peername": (address, 9), "sockname": ("127.0.0.1", 8080)})
        self.waiting: list[int] = []
        """The bytes that wait at each look; none at further ones."""
        self.looks = 0
        self.enough = asyncio.Event()
        self.ended = ""
        self.end = asyncio.Event()

    def write(self, data: Any) -> None:
        del data

    def get_write_buffer_size(self) -> int:
        self.looks += 1
        if self.looks == LOOKS:
            self.enough.set()
        return self.waiting.pop(0) if self.waiting else 0

    def is_closing(self) -> bool:
        return bool(self.ended)

    def _ended(self, how: str) -> None:
        self.ended = self.ended or how
        self.end.set()
        self.enough.set()

    def close(self) -> None:
        self._ended("closed")

    def abort(self) -> None:
        self._ended("aborted")


async def _app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer at once, or begin an answer that never ends."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/live":
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        await receive()
        await receive()
    await send({"type": "http.response.body", "body": b"x"})


def _connected(
    state: ServerState, address: str = "127.0.0.1", most: int = 0
) -> tuple[patience.Impatient, _Transport]:
    config = Config(_app, http=patience.Impatient, ws="none", log_config=None, lifespan="off")
    config.load()
    one = patience.impatient(most)(config, state, {})
    transport = _Transport(address)
    one.connection_made(transport)
    return one, transport


@pytest.fixture(autouse=True)
def _own_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give the zone of the process back, which the console changes."""
    with monkeypatch.context() as changed:
        changed.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "WAIT_S", 0.0)


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HT", REQUEST], ids=["nothing", "a part", "one request"]
)
async def test_a_connection_without_a_further_request_is_closed(sent: bytes) -> None:
    one, transport = _connected(ServerState())
    if sent:
        one.data_received(sent)
    await asyncio.wait_for(transport.end.wait(), 30)
    assert transport.ended == "closed"


async def test_a_stream_stays_while_its_client_takes_it() -> None:
    one, transport = _connected(ServerState())
    one.data_received(REQUEST.replace(b"/ ", b"/live "))
    transport.waiting = [9, 5, 5 - 1, 0, 9]
    await asyncio.wait_for(transport.enough.wait(), 30)
    assert not transport.ended
    one.connection_lost(None)
    looks = transport.looks
    for _ in range(10):
        await asyncio.sleep(0)
    assert transport.looks == looks


async def test_a_client_that_takes_nothing_is_cut_off() -> None:
    one, transport = _connected(ServerState())
    one.data_received(REQUEST.replace(b"/ ", b"/live "))
    transport.waiting = [0, 7, 7]
    await asyncio.wait_for(transport.enough.wait(), 30)
    assert transport.ended == "aborted"
    one.connection_lost(None)


async def test_there_is_a_limit_of_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "CONNECTIONS_MAX", 1)
    state = ServerState()
    first, kept = _connected(state)
    second, refused = _connected(state)
    assert (kept.ended, refused.ended) == ("", "aborted")
    for one in (first, second):
        one.connection_lost(None)


async def test_one_address_has_a_limit_of_connections_of_its_own() -> None:
    state = ServerState()
    here, there = "10.0.0.1", "10.0.0.2"
    found = [_connected(state, address, 2) for address in (here, here, there, here, there)]
    assert [one.ended for _, one in found] == ["", "", "", "aborted", ""]
    for one, _ in found[1:4]:
        one.connection_lost(None)
    later, kept = _connected(state, here, 2)
    assert not kept.ended
    for one in (found[0][0], found[4][0], later):
        one.connection_lost(None)


def test_the_server_is_impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The console is served by this class, and by no other that happens to be installed."""
    given: list[Config] = []

    class _Server:
        def __init__(self, config: Config) -> None:
            given.append(config)

        def run(self, sockets: object) -> None:
            del sockets

    monkeypatch.setattr("uvicorn.Server", _Server)
    place = bootstrap.ConsoleSettings("127.0.0.1:8080", address_max=7)
    bootstrap.run(cast("Any", None), cast("Any", None), place)
    protocol = cast("type[patience.Impatient]", given[0].http)
    assert issubclass(protocol, patience.Impatient)
    assert (protocol.address_max, given[0].ws) == (7, "none")


def test_the_instants_on_pages_are_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts that pages share with the command line have local times there."""
    assert instant(3_600_000).startswith("1970-01-01 10:00:00")
    monkeypatch.setattr("uvicorn.Server.run", lambda *_, **__: None)
    bootstrap.run(cast("Any", None), cast("Any", None), bootstrap.ConsoleSettings("127.0.0.1:8080"))
    assert instant(3_600_000) == "1970-01-01 01:00:00 UTC"
