"""The tutorial: every command of the page, run in order against real processes, prints what the page shows."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.run import evenhand
from tests.docs.pages import DOCS
from tests.docs.terminals import Terminals, matches, normal, of_evenhand, steps
from tests.shim.rig import free_port

PAGE = DOCS / "tutorial.md"
KILL = "kill -9 "


@pytest.fixture
def ports() -> dict[str, int]:
    return {"core": free_port(), "cluster": free_port()}


@pytest.fixture
def terminals(tmp_path: Path, ports: dict[str, int]) -> Iterator[Terminals]:
    made = of_evenhand(tmp_path, ports)
    try:
        yield made
    finally:
        made.close()


def pods(port: int) -> dict[str, tuple[str, str]]:
    """Return name and node of each pod of the cluster, by uid."""
    found: Any = evenhand(
        "cluster", "get", "pods", "--address", f"127.0.0.1:{port}", "-o", "json"
    ).value()
    return {
        one["metadata"]["uid"]: (one["metadata"]["name"], one["spec"].get("nodeName", ""))
        for one in found["pods"]
    }


def allocations(port: int) -> dict[str, str]:
    """Return the node of each allocation of the core."""
    found = evenhand("allocations", "--core", f"127.0.0.1:{port}", "-o", "json").value()
    return {one["allocation_key"]: one["node_id"] for one in found["allocations"]}


def test_every_command_prints_what_the_page_shows(
    terminals: Terminals, ports: dict[str, int]
) -> None:
    before: list[Any] = []
    for step in steps(PAGE.read_text("utf-8")):
        if step.command.startswith(KILL):
            before = [pods(ports["cluster"]), allocations(ports["core"])]
        terminals.follow(step, PAGE.name)
    assert any(node for _, node in before[0].values())
    assert [pods(ports["cluster"]), allocations(ports["core"])] == before


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\nb\n", "a\nc\n", False),
        ("a\n", "a\nb\n", False),
        ("a\n...\nc\n", "a\nb\nb\nc\n", True),
        ("a\n...\nc\n", "a\nb\n", False),
        ("12 s ago  x\n", "3.4 s ago x\n", True),
        ("12 s ago  x\n", "3.4 s ago y\n", False),
        ("2026-11-27 09:00:00 UTC a\n", "2026-11-28T01:02:03.123456Z a\n", True),
        ("at 127.0.0.1:50051\n", "at 127.0.0.1:4711\n", True),
        ("at 127.0.0.1:50051\n", "at 127.0.0.1:4712\n", False),
        ("3 pods of 12 cores\n", "3 pods of 13 cores\n", False),
        ("a\n", "\x1b[32ma\x1b[0m\r\n", True),
    ],
)
def test_outputs_agree_but_for_times_and_ports(shown: str, printed: str, *, same: bool) -> None:
    ports = {4711: 50051}
    assert matches(normal(shown, ports), normal(printed, ports)) is same
