"""The connection of a page stays open until all reads that the page began have ended."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest

from evenhand_cli.connect import Core, connected_core
from evenhand_cli.contexts import Context
from evenhand_cli.faults import Fault
from evenhand_console.at_once import begin
from evenhand_console.connection import RENEW_S, Connection
from evenhand_console.reading import Source
from tests.cli.processes import until

SECONDS_MAX = 30


class _Away(grpc.RpcError):
    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE


def test_a_page_that_fails_leaves_the_connection_open_for_its_other_reads() -> None:
    closed, may_end = threading.Event(), threading.Event()
    begun: list[Future[bool]] = []

    @contextmanager
    def opened(_token: str) -> Iterator[Core]:
        with connected_core(Context(core="127.0.0.1:1"), "", 5.0) as core:
            yield core
        closed.set()

    def view(_core: Core) -> None:
        begun.append(begin(lambda: may_end.wait(SECONDS_MAX)))
        raise Fault("the core does not answer") from _Away()

    with pytest.raises(Fault):
        Source(Connection(opened, lambda: 0.0)).read("", view)
    assert not closed.is_set()
    may_end.set()
    assert begun[0].result()
    assert closed.wait(SECONDS_MAX)


def test_a_renewal_that_fails_unexpectedly_is_not_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core = cast("Core", SimpleNamespace(address="here", follower=None))
    now, failed = [0.0], threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda _: failed.set())
    opened: list[int] = []

    def opener(_token: str) -> AbstractContextManager[Core]:
        opened.append(len(opened))
        if len(opened) == 2:
            raise OSError
        return _held(core)

    connection = Connection(opener, lambda: now[0])
    for _ in range(2):
        now[0] += RENEW_S
        with connection.lease() as leased:
            now[0] += RENEW_S
            connection.renew(leased, "")
        assert failed.wait(SECONDS_MAX)
        until(lambda: not connection._renewing)
    assert len(opened) == 3


def test_reads_outside_a_page_hold_no_connection() -> None:
    core = cast("Core", SimpleNamespace(address="here", follower=None))
    connection = Connection(lambda _token: _held(core), lambda: 0.0)
    assert begin(lambda: 1).result() == 1
    with connection.lease() as leased:
        end = connection.extend(leased)
    assert leased.users
    end()
    assert not leased.users


@contextmanager
def _held(core: Core) -> Iterator[Any]:
    yield core
