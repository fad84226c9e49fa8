"""The options of `evenhand console`, and a console beside a core."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from evenhand.v1 import inspect_pb2, inspect_pb2_grpc
from evenhand_cli import console_process
from evenhand_cli.faults import Fault
from evenhand_console import bootstrap
from tests.cli.fake import FakeCore, running
from tests.cli.run import Ended, evenhand

ANY_PORT = "127.0.0.1:0"


class _Run:
    """The server that the command would run: it reads from the core once, and ends."""

    def __init__(self) -> None:
        self.place = bootstrap.ConsoleSettings("")
        self.fault = ""

    def __call__(self, opener: Any, sock: socket.socket, place: bootstrap.ConsoleSettings) -> None:
        del sock
        self.place = place
        try:
            with opener("") as core:
                stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
                core.ask(stub.ServerInfo, inspect_pb2.ServerInfoRequest())
        except Fault as fault:
            self.fault = f"{fault.what} {fault.where} {fault.advice}"


@contextmanager
def _command(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[_Run, FakeCore]]:
    served = _Run()
    monkeypatch.setattr(bootstrap, "run", served)
    with running(FakeCore(ServerInfo=inspect_pb2.ServerInfoResponse(version="1"))) as core:
        yield served, core


def _console(*given: str) -> Ended:
    return evenhand("console", "--listen", ANY_PORT, *given)


def test_what_is_given_reaches_the_console(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    with _command(monkeypatch) as (served, core):
        proxied = ["--origin", "https://evenhand.example", "--token-header", "X-Token"]
        given = ["--core", core.address, "--token-file", str(token), "--at-least", "7"]
        ended = _console(*given, *proxied, "--address-connections", "40")
        assert ended.out.startswith("console on http://127.0.0.1:")
        assert served.place[1:] == (("https://evenhand.example",), "X-Token", False, 40)
        assert core.metadata[0]["authorization"] == "Bearer secret"
        assert core.metadata[0]["evenhand-min-position"] == "7"


@pytest.mark.parametrize(
    ("given", "shares"),
    [
        ([], True),
        (["--origin", "https://evenhand.example"], False),
        (["--origin", "https://evenhand.example", "--share-identity"], True),
    ],
    ids=["this machine", "others", "asked for"],
)
def test_an_identity_is_shared_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, given: list[str], *, shares: bool
) -> None:
    with _command(monkeypatch) as (served, core):
        assert _console("--core", core.address, *given).code == 0
        assert served.place.shares_identity is shares
        assert _console("--core", core.address, "--share-identity").code == 2


def test_a_context_and_a_table_of_cores_are_those_of_every_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with _command(monkeypatch) as (served, core):
        contexts = {"contexts": {"here": {"core": core.address}}}
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(contexts))
        file = str(tmp_path / "config.yaml")
        evenhand("console", "--listen", ANY_PORT, "--context", "here", EVENHAND_CONFIG=file)
        assert len(core.requests) == 1
        table = {"cores": [{"name": "a", "addresses": [core.address], "partitions": ["default"]}]}
        (tmp_path / "cores.yaml").write_text(yaml.safe_dump(table))
        _console("--cores", str(tmp_path / "cores.yaml"))
        assert (served.fault, len(core.requests)) == ("", 2)


@pytest.mark.parametrize("option", ["--tls-ca", "--tls-cert", "--tls-key", "--tls-server-name"])
def test_tls_is_that_of_every_command(monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    with _command(monkeypatch) as (served, core):
        _console("--core", core.address, option, "/nowhere/file")
        assert served.fault
        assert not core.requests


def test_an_address_that_others_reach_needs_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with _command(monkeypatch):
        refused = evenhand("console", "--listen", "0.0.0.0:0")
        assert (refused.code, "--origin" in refused.err) == (2, True)
        for wrong in ("evenhand.example", "https://evenhand.example/path", "ftp://x"):
            assert _console("--origin", wrong).code == 2


def test_an_address_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = evenhand("console", "--listen", listen)
    assert ended.code == 1
    assert "cannot listen on" in ended.err


def test_without_the_extra_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(console_process, "EXTRA", ("json", "no_such_module"))
    for command in (["console"], ["serve", "--console", ANY_PORT], ["demo", "--console", ANY_PORT]):
        ended = evenhand(*command)
        assert ended.code == 1
        assert "pip install 'evenhand[console]'" in ended.err


def test_a_console_beside_a_core_is_for_this_machine() -> None:
    assert evenhand("serve", "--console", "0.0.0.0:0").code == 2
    tls = ["--tls-cert", "/nowhere/a", "--tls-key", "/nowhere/b"]
    assert evenhand("serve", "--console", ANY_PORT, *tls).code == 2
