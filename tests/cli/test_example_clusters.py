"""The clusters under `examples/clusters`: what the head of each `queues.yaml` promises happens in `evenhand demo --cluster`."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from scripts.real.cluster import free_ports
from tests.cli.processes import ROOT, running, until
from tests.cli.run import evenhand

CLUSTERS: Final = ROOT / "examples" / "clusters"
COMMAND: Final = re.compile(r"`evenhand ([^`]+)`")
ROUND_MS: Final = 500
"""The interval of rounds in the cluster `rounds`."""


class Live:
    """A running demonstration, and the commands that its head names."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address

    def value(self, *arguments: str) -> Any:
        """Return the JSON output of a command; None while the core does not answer."""
        ended = evenhand(*arguments, "--core", self.address, "-o", "json")
        return None if ended.code == 3 else ended.value()

    def decisions(self) -> list[Any]:
        """Return the decisions; none while the core does not answer."""
        found = self.value("decisions")
        return [] if found is None else list(found["decisions"])

    def states(self, queue: str) -> Counter[str]:
        """Return how many pods of a queue are in each state."""
        found = self.value("allocations", "--asks", "--queue", queue)
        return Counter() if found is None else Counter(one["state"] for one in found["allocations"])

    def await_true(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds. Raises TimeoutError."""
        until(condition)

    def victims(self) -> list[tuple[str, str]]:
        """Return the names of all victims with their states, in the order of the decisions."""
        return [(one["name"], one["state"]) for each in self.decisions() for one in each["victims"]]

    def serves(self, queue: str, running_pods: int, waiting: int) -> bool:
        """Return whether these numbers of pods of a queue run and wait, and no decision is open."""
        states = self.states(queue)
        open_ones = [
            one for one in self.decisions() if one["state"] in {"planned", "ordered", "confirmed"}
        ]
        waits = states["waiting"] + states["pledged"]
        return (states["allocated"], waits, open_ones) == (running_pods, waiting, [])


@contextmanager
def live(name: str, folder: Path) -> Iterator[Live]:
    """Run the demonstration of a cluster while the block runs."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    command = ["demo", "--cluster", f"examples/clusters/{name}", "--watch", "--listen", address]
    with running([*command, "--cluster-listen", "127.0.0.1:0"], folder / "log"):
        yield Live(name, address)


def head(name: str) -> str:
    """Return the comment at the beginning of the configuration of a cluster."""
    lines = (CLUSTERS / name / "queues.yaml").read_text("utf-8").splitlines()
    comment = lines[: next(number for number, line in enumerate(lines) if not line.startswith("#"))]
    return " ".join(line.removeprefix("# ") for line in comment)


def check_fence(core: Live) -> None:
    core.await_true(lambda: core.serves("root.tenant.day", 1, 1))
    assert core.victims() == [("night/backup-1", "gone")]
    assert core.states("root.batch") == {"allocated": 3}
    preemption = core.value("explain", "day/report-2")["waiting"]["preemption"]
    spared = {(one["law"], one["queue"], one["count"]) for one in preemption["spared"]}
    assert ("outside-fence", "root.batch", 3) in spared


def check_quota(core: Live) -> None:
    core.await_true(lambda: core.serves("root.science", 12, 0))
    lowered = str(CLUSTERS / "quota" / "lowered.queues")
    assert evenhand("config", "apply", lowered, "--core", core.address).code == 0
    core.await_true(lambda: core.serves("root.science", 8, 4))
    (decision,) = core.decisions()
    assert (decision["policy"], len(decision["victims"])) == ("quota", 4)
    assert decision["quota_run"]["queue"] == "root.science"
    waiting = core.value("allocations", "--waiting", "--queue", "root.science")["allocations"]
    assert {one["waiting_code"] for one in waiting} == {"queue-limit"}


def check_daemonset(core: Live) -> None:
    core.await_true(lambda: core.serves("root.system", 2, 0))
    found = core.decisions()
    assert [one["policy"] for one in found] == ["required-node"] * 2
    assert sorted(one["victims"][0]["node_id"] for one in found) == ["node-1", "node-2"]
    assert {one["victims"][0]["queue"] for one in found} == {"root.shop"}
    assert all("G11" in one["victims"][0]["because"] for one in found)


def check_weights(core: Live) -> None:
    core.await_true(lambda: core.serves("root.ads", 4, 2))
    assert core.states("root.lab") == {"allocated": 2}
    assert len(core.victims()) == 4
    assert all(one["levels"][0]["by_weight"] for one in core.decisions())


def check_shadow(core: Live) -> None:
    core.await_true(lambda: bool((core.value("decisions", "--shadow") or {}).get("decisions")))
    (record,) = core.value("decisions", "--shadow")["decisions"]
    assert record["difference"] == "only_shadow"
    assert [one["queue"] for one in record["shadow"]["victims"]] == ["root.batch"]
    assert core.decisions() == []
    assert core.states("root.batch") == {"allocated": 3}


def check_veto(core: Live) -> None:
    core.await_true(lambda: core.serves("root.shop", 1, 0))
    assert core.victims() == [("batch/db-1", "vetoed"), ("batch/crunch-1", "gone")]
    assert core.states("root.batch") == {"allocated": 1}


def check_rounds(core: Live) -> None:
    core.await_true(lambda: core.serves("root.shop", 8, 0))
    rounds = Counter(one["at_ms"] for one in core.decisions())
    assert list(rounds.values()) == [2, 2, 2, 2]
    instants = list(rounds)
    assert all(later - before >= ROUND_MS for before, later in pairwise(instants))


CHECKS: Final[dict[str, Callable[[Live], None]]] = {
    "fence": check_fence,
    "quota": check_quota,
    "daemonset": check_daemonset,
    "weights": check_weights,
    "shadow": check_shadow,
    "veto": check_veto,
    "rounds": check_rounds,
}
ELSEWHERE: Final = {"small", "claim", "gang", "placeholders"}
"""Clusters that other tests run."""


@pytest.mark.parametrize("name", CHECKS)
def test_a_cluster_shows_what_its_head_promises(name: str, tmp_path: Path) -> None:
    with live(name, tmp_path) as core:
        CHECKS[name](core)
        for line in COMMAND.findall(head(name)):
            words = line.split()
            if words[0] == "demo" or words[:2] == ["config", "apply"]:
                assert f"examples/clusters/{name}" in line
            elif words[0] != "cluster":  # The service of this cluster listens on another port.
                rule = words[0] == "explain" and re.fullmatch(r"[A-Z]\d+", words[1])
                ended = evenhand(*words, *(() if rule else ("--core", core.address)))
                assert (ended.code, bool(ended.out)) == (0, True), line


def test_every_cluster_has_a_check_and_a_line_in_the_page() -> None:
    names = {path.name for path in CLUSTERS.iterdir() if path.is_dir()}
    assert names == set(CHECKS) | ELSEWHERE
    page = (ROOT / "docs" / "embedded-cluster.md").read_text("utf-8")
    assert names == set(re.findall(r"^\| `examples/clusters/(\w+)` \|", page, re.MULTILINE))
