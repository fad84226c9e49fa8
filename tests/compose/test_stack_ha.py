"""The profile `ha` of docker-compose.yml: a second core that follows the first one, and leads when the first one is gone."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.compose.conftest import awaited, started
from tests.compose.docker import Docker, Stack

HA = ("--profile", "ha")
SERVICES = ("core", "core-2", "shim")


@pytest.fixture
def pair(docker: Docker, image: str) -> Iterator[Stack]:
    """Start the stack with its second core, and provide it once all three are healthy."""
    assert image
    with started(docker, SERVICES, *HA) as stack:
        yield stack


def asked(stack: Stack, service: str, *words: str) -> Any:
    """Return the JSON output of the command line inside the container of a core; None if there is none."""
    command = ("docker", "exec", stack.container(service), "evenhand", *words, "--output", "json")
    said = stack.docker.run(*command)
    return json.loads(said.stdout) if said.stdout else None


def state(stack: Stack, service: str) -> str:
    """Return whether a core leads or follows; empty if it does not answer."""
    found = asked(stack, service, "replication")
    return str(found["state"]) if found else ""


def bound(stack: Stack, service: str) -> int:
    """Return how many allocations a core knows."""
    found = asked(stack, service, "partitions")["partitions"]
    return int(found[0]["counts"]["allocations"]) if found else 0


def test_the_second_core_follows_then_leads_and_the_first_one_follows_it(pair: Stack) -> None:
    awaited(lambda: (state(pair, "core"), state(pair, "core-2")) == ("leader", "follower"))
    awaited(lambda: bound(pair, "core-2") == bound(pair, "core") > 0)
    placed = bound(pair, "core")
    assert asked(pair, "core-2", "health")["current"] is True
    pair.docker.said("docker", "kill", pair.container("core"))
    awaited(lambda: state(pair, "core-2") == "leader")
    manager = ("health", "--manager", "evenhand")
    awaited(lambda: (asked(pair, "core-2", *manager) or {}).get("healthy") is True)
    assert bound(pair, "core-2") == placed
    pair.docker.said("docker", "start", pair.container("core"))
    awaited(lambda: state(pair, "core") == "follower")
    awaited(lambda: bound(pair, "core") == placed)
    assert state(pair, "core-2") == "leader"
