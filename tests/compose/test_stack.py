"""The local stack of docker-compose.yml: healthy, closed to other machines, and limited in its rights."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.compose.conftest import awaited
from tests.compose.docker import Stack

SERVICES = ("core", "shim")


def counts(stack: Stack) -> Any:
    """Return the core's counts of the only partition, empty while there is none."""
    found = stack.evenhand("partitions")["partitions"]
    return found[0]["counts"] if found else {}


@pytest.fixture(scope="module")
def settled(stack: Stack, image: str) -> Any:
    """Provide the pod counts in which the demonstration of the same cluster ends."""
    said = stack.docker.said("docker", "run", "--rm", image, "demo", "--output", "json")
    return json.loads(said)["pods"]


def test_the_cluster_is_placed_as_in_the_demonstration(stack: Stack, settled: Any) -> None:
    awaited(lambda: counts(stack).get("allocations") == settled["bound"])
    assert settled["bound"] > 0
    # A gated pod is no ask yet, so that fewer may wait than are pending.
    assert counts(stack)["waiting_asks"] <= settled["pending"]
    tree = stack.evenhand("queues")["root"]
    assert tree["allocations"] == settled["bound"]
    assert {"production", "research", "batch"} <= {one["name"] for one in tree["children"]}
    assert stack.evenhand("doctor")["healthy"] is True


@pytest.mark.parametrize("service", SERVICES)
def test_a_container_has_no_more_rights_than_it_needs(stack: Stack, service: str) -> None:
    found = stack.inspect(service)
    host = found["HostConfig"]
    assert found["State"]["Health"]["Status"] == "healthy"
    assert found["Config"]["User"] == "65532:65532"
    assert host["ReadonlyRootfs"] is True
    assert host["CapDrop"] == ["ALL"]
    assert not host["Privileged"]
    assert [option.split(":")[0] for option in host["SecurityOpt"]] == ["no-new-privileges"]
    assert host["RestartPolicy"]["Name"] == "unless-stopped"
    assert [mount["RW"] for mount in found["Mounts"]] == [False] * len(found["Mounts"])


def test_only_the_core_is_published_and_on_the_loopback_alone(stack: Stack) -> None:
    bound = stack.inspect("core")["NetworkSettings"]["Ports"]["50051/tcp"]
    assert {one["HostIp"] for one in bound} == {"127.0.0.1"}
    assert not any((stack.inspect("shim")["NetworkSettings"]["Ports"] or {}).values())


def test_the_shim_starts_when_the_core_serves(stack: Stack) -> None:
    core, shim = (stack.inspect(service) for service in SERVICES)
    first_look = core["State"]["Health"]["Log"]
    assert first_look
    assert core["State"]["StartedAt"] < shim["State"]["StartedAt"]
    assert stack.evenhand("health", "--manager", "evenhand")["healthy"] is True


@pytest.mark.parametrize("service", SERVICES)
def test_one_that_is_killed_comes_back_and_nothing_is_lost(
    stack: Stack, settled: Any, service: str
) -> None:
    before = stack.inspect(service)
    pid = before["State"]["Pid"]
    if not stack.docker.engine.private or not Path(f"/proc/{pid}").exists():
        pytest.skip("only a private engine's containers may be killed from here")
    os.kill(pid, signal.SIGKILL)
    awaited(lambda: stack.inspect(service)["RestartCount"] == before["RestartCount"] + 1)
    awaited(lambda: stack.inspect("core")["State"]["Running"])
    # The doctor calls a shim that takes longer to come back than a few seconds away.
    awaited(lambda: _well(stack, settled["bound"]) and _sound(stack))


def _sound(stack: Stack) -> bool:
    """Return whether the doctor finds nothing."""
    done = stack.try_evenhand("doctor", "--output", "json")
    return done.returncode == 0 and json.loads(done.stdout)["healthy"] is True


def _well(stack: Stack, allocations: int) -> bool:
    """Return whether the core answers, knows the shim, and has this number of allocations."""
    asked = stack.try_evenhand("health", "--manager", "evenhand")
    return asked.returncode == 0 and counts(stack).get("allocations") == allocations


def test_compose_reads_the_queues_as_the_document_says(stack: Stack) -> None:
    said = stack.said("exec", "-T", "core", "evenhand", "queues")
    assert "production" in said


def test_a_stopped_stack_ends_in_order_and_in_time(stack: Stack) -> None:
    """The last one: what it stops stays so."""
    stack.said("stop")
    for service in SERVICES:
        stopped = stack.inspect(service)["State"]
        # A container that was not done within its grace would have been killed: 137.
        assert (stopped["Status"], stopped["ExitCode"]) == ("exited", 0)
