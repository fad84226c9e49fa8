"""A console beside a leader and its follower: pages are read at the follower, and at the leader once the follower is gone."""

import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

from evenhand.v1 import config_pb2, config_pb2_grpc, inspect_pb2, inspect_pb2_grpc
from evenhand_cli.connect import Core, connected_core
from evenhand_cli.contexts import Context
from evenhand_console.connection import Connection
from evenhand_console.reading import Source
from tests.cli.processes import CONSOLE, SECONDS_MAX, address_of, running, until
from tests.cli.run import evenhand

SERVE = ["serve", "--listen", "127.0.0.1:0"]
APPLIES = 5


def _is_level(leader: str, follower: str) -> bool:
    states = [
        evenhand("replication", "--core", one, "-o", "json").value() for one in (leader, follower)
    ]
    roles = [one["state"] for one in states]
    return roles == ["leader", "follower"] and states[0]["term"] == states[1]["term"]


@contextmanager
def _open(console: str, path: str) -> Iterator[HTTPResponse]:
    """Hold a page open."""
    with closing(HTTPConnection(console, timeout=SECONDS_MAX)) as connection:
        connection.request("GET", f"/live{path}")
        with connection.getresponse() as page:
            yield page


def _version(page: HTTPResponse) -> str:
    """Return the next version of an open page."""
    lines: list[str] = []
    while line := page.readline().decode():
        if line.startswith(("id: ", "data: ")):
            lines.append(line)
        elif lines and not line.strip():
            return "".join(lines)
    raise AssertionError("the page has ended")


def _queue_applied(core: Core) -> str:
    """Apply a configuration with a new queue, and return the name of the queue."""
    config = config_pb2_grpc.ConfigurationServiceStub(core.channel)
    present = core.ask(config.Get, config_pb2.GetRequest())
    name = f"applied-{present.revision}"
    text = f"partitions:\n- name: default\n  queues:\n  - name: root\n    queues:\n    - name: {name}\n"
    assert core.ask(config.Apply, config_pb2.ApplyRequest(yaml=text)).applied
    return name


def _queues(core: Core) -> list[str]:
    inspect = inspect_pb2_grpc.InspectServiceStub(core.channel)
    tree = core.ask(inspect.GetQueueTree, inspect_pb2.GetQueueTreeRequest()).tree
    return [one.name for one in tree.root.children]


def test_pages_of_a_leader_with_a_follower(tmp_path: Path) -> None:
    logs = [tmp_path / name for name in ("a.log", "b.log", "console.log")]
    with running(SERVE, logs[0]) as first:
        leader = address_of(first, logs[0])
        with running([*SERVE, "--follow", leader], logs[1]) as second:
            follower = address_of(second, logs[1])
            until(lambda: _is_level(leader, follower))
            listed = f"{follower},{leader}"
            _look_at_applied(listed, follower)
            serve = ["console", "--core", listed, "--listen", "127.0.0.1:0"]
            with running(serve, logs[2]) as process:
                console = address_of(process, logs[2], CONSOLE)
                with _open(console, "/queues") as page:
                    named = f"Read at {follower}, which follows {leader}."
                    assert named in _version(page)
                    second.send_signal(signal.SIGKILL)
                    while named in (shown := _version(page)):
                        pass
                    assert "root.applied-" in shown
                    assert "does not answer" not in shown


def _look_at_applied(listed: str, follower: str) -> None:
    """Apply configurations at the leader, and read each of them at the follower at once."""
    context = Context(core=listed)
    opener = lambda _token: connected_core(context, "", 30.0, follower=True)  # noqa: E731 -- a closure is shortest
    with closing(Connection(opener, time.monotonic)) as connection:
        source = Source(connection)
        for _ in range(APPLIES):
            name = source.ask("", _queue_applied).value
            found = source.read("", _queues)
            assert name in found.value
            assert follower in found.read_at
