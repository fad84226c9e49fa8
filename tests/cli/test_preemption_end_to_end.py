"""The commands on preemption, with a real core and a real shim in their own processes.

The cluster is `examples/clusters/claim`: in one run all victims end, in another they take ten minutes to end.
"""

import json
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import ROOT, SECONDS_MAX, address_of, running
from tests.cli.run import evenhand

LOOKS_MAX = 600
CLAIM = ROOT / "examples" / "clusters" / "claim"
QUEUES = (CLAIM / "queues.yaml").read_text()
CLAIMS = 8
"""Pods of the shop that fit into the guarantee of their queue."""


@dataclass(frozen=True, slots=True)
class Live:
    """A core with the cluster, and `evenhand decisions --follow` that began before there was any."""

    address: str
    following: subprocess.Popen[str]

    def value(self, *arguments: str) -> Any:
        """Return the JSON output of a command."""
        return evenhand(*arguments, "--core", self.address, "-o", "json").value()

    def decisions(self, *arguments: str) -> list[Any]:
        """Return the decisions as JSON."""
        found = self.value("decisions", *arguments)["decisions"]
        assert isinstance(found, list)
        return found


@contextmanager
def live(folder: Path, cluster: Path, *shim: str, states: dict[str, int]) -> Iterator[Live]:
    """Hold core, follower and shim as processes, once the decisions are in these states."""
    with running(["serve", "--listen", "127.0.0.1:0"], folder / "serve.log") as process:
        address = address_of(process, folder / "serve.log")
        follow = ["decisions", "--follow", "--count", str(3 * CLAIMS), "-o", "json"]
        join = ["shim", "--cluster", str(cluster), *shim]
        with (
            running([*follow, "--core", address], folder / "follow.log") as following,
            running([*join, "--core", address], folder / "shim.log"),
        ):
            started = Live(address, following)
            await_states(started, states)
            yield started
    assert process.returncode == 0, (folder / "serve.log").read_text()


def await_states(core: Live, wanted: dict[str, int]) -> None:
    """Poll until each state has the wanted number of decisions, with a limit on the number of looks."""
    found: Counter[str] = Counter()
    for _ in range(LOOKS_MAX):
        found = Counter(one["state"] for one in core.decisions())
        if found == wanted:
            return
        time.sleep(0.1)  # Between two looks; the number of looks is the limit.
    raise AssertionError(f"the core never had {wanted}, but {found}")


@pytest.fixture(scope="module")
def claimed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Provide a core whose victims are all gone and whose preemptors are all placed."""
    folder = tmp_path_factory.mktemp("claimed")
    with live(folder, CLAIM, states={"fulfilled": CLAIMS}) as core:
        yield core


@pytest.fixture(scope="module")
def leaving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Provide a core that has ordered all evictions, of which none is finished."""
    folder = tmp_path_factory.mktemp("leaving")
    cluster = folder / "cluster"
    shutil.copytree(CLAIM, cluster)
    night = cluster / "night.yaml"
    grace = "terminationGracePeriodSeconds: "
    night.write_text(night.read_text().replace(f"{grace}30", f"{grace}600"))
    # A ninth pod would get a reservation as soon as it has waited for 2 s.
    queues = cluster / "queues.yaml"
    named = "  - name: default\n"
    assert named in QUEUES
    queues.write_text(QUEUES.replace(named, f"{named}    reservations: {{enabled: false}}\n"))
    with live(folder, cluster, "--stop", "10m", states={"ordered": CLAIMS}) as core:
        yield core


# Decisions --------------------------------------------------------------------------------------------------------


def test_decisions_are_listed(claimed: Live) -> None:
    found = claimed.decisions()
    assert {one["policy"] for one in found} == {"guaranteed"}
    assert [one["at_ms"] for one in found] == sorted(one["at_ms"] for one in found)
    for one in found:
        (gets,), (victim,) = one["beneficiaries"], one["victims"]
        assert (gets["queue"], victim["queue"], victim["state"]) == (
            "root.shop",
            "root.batch",
            "gone",
        )
        assert gets["node_id"] == victim["node_id"]
    shown = evenhand("decisions", "--core", claimed.address, width=160)
    words = shown.words(found[0]["decision_id"])
    at = words.index("node-1")
    assert [*words[at : at + 3], words[-1]] == ["node-1", "1", "root.batch", "fulfilled"]
    assert shown.out.splitlines()[-1] == "8 decisions, 0 of them open"


def test_decisions_are_narrowed(claimed: Live) -> None:
    assert len(claimed.decisions("--queue", "root.batch")) == CLAIMS
    assert len(claimed.decisions("--policy", "guaranteed", "--since", "1h")) == CLAIMS
    assert claimed.decisions("--open") == claimed.decisions("--policy", "quota") == []
    ended = evenhand("decisions", "--queue", "root.shp", "--core", claimed.address)
    assert ended.code == 1
    assert "`root.shop`" in ended.err


def test_one_decision_is_told_rule_by_rule(claimed: Live) -> None:
    wanted = claimed.decisions()[0]["decision_id"]
    told = claimed.value("decisions", wanted)
    assert told["decision"]["decision_id"] == wanted
    assert len(told["lines"]) >= 3
    shown = evenhand("decisions", wanted, "--all", "--core", claimed.address).out
    for words in ("fulfilled", "why they go", "(G4)", "queues that decided"):
        assert words in shown
    assert re.search(r"root\.shop +cores +0 +16 +- +deciding", shown)


def test_an_unknown_decision_brings_near_ones(claimed: Live) -> None:
    wanted = claimed.decisions()[0]["decision_id"]
    ended = evenhand("decisions", f"{wanted}0", "--core", claimed.address)
    assert ended.code == 1
    assert f"`{wanted}`" in ended.err


def test_changes_are_followed_from_the_order_to_the_end(claimed: Live) -> None:
    out, _ = claimed.following.communicate(timeout=SECONDS_MAX)
    changes = [json.loads(line) for line in out.splitlines()]
    assert claimed.following.returncode == 0
    states: dict[str, list[str]] = {}
    for one in changes:
        states.setdefault(one["decision_id"], []).append(one["state"])
    assert sorted(states) == sorted(one["decision_id"] for one in claimed.decisions())
    assert set(map(tuple, states.values())) == {("ordered", "confirmed", "fulfilled")}
    asked = ("decisions", "--follow", "--count", "3", "--core", claimed.address)
    again = evenhand(*asked, width=240)
    assert [line.split()[4] for line in again.out.splitlines()] == ["ordered"] * 3


# Explanations -----------------------------------------------------------------------------------------------------


def test_a_decision_and_one_who_went_for_it_are_explained(claimed: Live) -> None:
    decision = claimed.decisions()[0]
    victim, told = decision["victims"][0], claimed.value("explain", decision["decision_id"])
    assert told["kind"] == "decision"
    assert told["decision"]["victims"] == [victim]
    for key in (victim["name"], victim["name"].partition("/")[2], victim["allocation_key"]):
        assert claimed.value("explain", key)["key"] == decision["decision_id"]
    shown = evenhand("explain", victim["name"], "--core", claimed.address).out
    assert shown.startswith(f"{victim['name']}  decision {decision['decision_id']}")


def test_one_who_waits_behind_a_guarantee_hears_of_it(claimed: Live) -> None:
    asks = claimed.value("allocations", "--asks", "--app", "shop")["allocations"]
    key = next(one["allocation_key"] for one in asks if one["state"] == "waiting")
    verdict = claimed.value("explain", key)["waiting"]["preemption"]
    assert (verdict["policy"], verdict["law"]) == ("guaranteed", "over-guarantee")
    assert verdict["because"] == "queue root.shop holds 16 cores, its guarantee is 16 cores"


def test_a_victim_that_leaves_is_explained(leaving: Live) -> None:
    decision = leaving.decisions("--open")[0]
    (victim,), (gets,) = decision["victims"], decision["beneficiaries"]
    assert victim["state"] == "leaving"
    placed = leaving.value("explain", victim["name"])["placed"]
    assert placed["released_for"] == gets["name"]
    release = placed["release"]
    assert (release["decision_id"], release["policy"], release["state"]) == (
        decision["decision_id"],
        "guaranteed",
        "ordered",
    )
    assert release["because"] == victim["because"]
    shown = evenhand("explain", victim["name"], "--core", leaving.address).out
    assert decision["decision_id"] in shown
    assert gets["name"] in shown


def test_one_whose_capacity_is_coming_is_explained(leaving: Live) -> None:
    decision = leaving.decisions()[0]
    key = decision["beneficiaries"][0]["allocation_key"]
    waiting = leaving.value("explain", key)["waiting"]
    assert decision["decision_id"] in waiting["preemption"]["because"]
    assert not waiting["preemption"]["law"]


def test_open_decisions_and_what_they_take_stand_in_the_lists(leaving: Live) -> None:
    shown = evenhand("decisions", "--open", "--core", leaving.address)
    assert shown.out.splitlines()[-1] == "8 decisions, 8 of them open"
    root = leaving.value("queues")["root"]
    batch, shop = root["children"]
    assert batch["releasing"]["vcore"] == shop["promised"]["vcore"] == 2_000 * CLAIMS


# Simulations ------------------------------------------------------------------------------------------------------


def test_asks_are_simulated(claimed: Live, tmp_path: Path) -> None:
    file = tmp_path / "asks.yaml"
    file.write_text(
        """
asks:
  - {name: more, queue: root.shop, resources: {vcore: 1}}
  - {name: daemon, queue: root.batch, resources: {vcore: 1}, requiredNode: node-4}
  - {name: lost, queue: root.nowhere, resources: {vcore: 1}}
"""
    )
    ended = evenhand("simulate", "ask", str(file), "--core", claimed.address, "-o", "json")
    assert ended.code == 1
    more, daemon, lost = ended.value()["asks"]
    assert (more["outcome"], more["verdict"]["law"]) == ("waits", "over-guarantee")
    assert (daemon["outcome"], daemon["node_id"]) == ("preempts", "node-4")
    assert [one["queue"] for one in daemon["victims"]] == ["root.batch"]
    assert lost["outcome"] == "refused"
    assert "root.nowhere" in lost["lines"][0]
    shown = evenhand("simulate", "ask", str(file), "--core", claimed.address).out
    for words in ("preempts", "over-guarantee", daemon["victims"][0]["name"]):
        assert words in shown
    assert len(claimed.decisions()) == CLAIMS


def test_a_pod_that_kubectl_knows_is_simulated(claimed: Live, tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    shutil.copy(CLAIM / "morning.yaml", file)
    found = claimed.value("simulate", "ask", str(file))["asks"]
    assert [one["outcome"] for one in found] == ["waits"] * 10


def test_a_lowered_max_is_simulated(claimed: Live, tmp_path: Path) -> None:
    lower = tmp_path / "queues.yaml"
    lower.write_text(lowered())
    told = claimed.value("simulate", "config", str(lower))
    ((queue,),) = (one["queues"] for one in told["partitions"])
    assert (queue["queue"], queue["target"], queue["delay_ms"]) == (
        "root.batch",
        {"vcore": 10_000},
        60_000,
    )
    assert queue["due_ms"] == told["taken_at_ms"] + 60_000
    assert len(queue["victims"]) == 5
    assert queue["run"]["result"] == "complete"
    brief = evenhand("simulate", "config", str(lower), "--core", claimed.address).out
    assert len(brief.splitlines()) <= 30
    shown = evenhand("simulate", "config", str(lower), "--all", "--core", claimed.address).out
    assert shown.startswith("5 pods of root.batch would be evicted within 1 m 00 s")
    (row,) = [line.split() for line in shown.splitlines() if line.startswith("root.batch  cores")][
        :1
    ]
    assert row[1:6] == ["cores", "16", "6", "10", "-"]
    assert evenhand("config", "show", "--core", claimed.address).out.endswith(f"\n{QUEUES}")
    assert len(claimed.decisions()) == CLAIMS


def test_a_raised_guarantee_evicts_what_its_simulation_names(claimed: Live, tmp_path: Path) -> None:
    """The shop is to have 20 cores in place of 16: two more of the night's pods, and the dry run says the same."""
    raised = tmp_path / "queues.yaml"
    raised.write_text(QUEUES.replace("guaranteed: {vcore: 16}", "guaranteed: {vcore: 20}"))
    told = claimed.value("simulate", "config", str(raised))
    ((first, second),) = (one["decisions"] for one in told["partitions"])
    assert [one["decision"]["policy"] for one in (first, second)] == ["guaranteed"] * 2
    shown = evenhand("simulate", "config", str(raised), "--core", claimed.address).out
    dry = evenhand("config", "apply", str(raised), "--dry-run", "--core", claimed.address).out
    for lines in (shown.splitlines(), dry.splitlines()):
        assert lines[0].startswith("2 pods of root.batch would be evicted")
        assert len(lines) <= 30
    assert "queue root.shop guaranteed.vcore: 16 -> 20" in dry
    assert len(claimed.decisions()) == CLAIMS


def lowered(delay: str = "60s") -> str:
    """Return the queues with an enforced max of six cores for `batch`."""
    switched = QUEUES.replace(
        "  - name: default\n", "  - name: default\n    preemption: {quotapreemptionenabled: true}\n"
    )
    limited = f"resources: {{max: {{vcore: 6}}}}, properties: {{quota.preemption.delay: {delay}}}"
    return switched.replace("{name: batch}", f"{{name: batch, {limited}}}")


def test_a_lowered_max_is_enforced_as_it_was_simulated(claimed: Live, tmp_path: Path) -> None:
    """The last test with this core: five of the night's pods go for good."""
    lower = tmp_path / "queues.yaml"
    lower.write_text(lowered("1s"))
    assert claimed.value("config", "apply", str(lower))["applied"] is True
    await_states(claimed, {"fulfilled": CLAIMS + 1})
    (run,) = claimed.decisions("--policy", "quota")
    assert (run["quota_run"]["queue"], len(run["victims"])) == ("root.batch", 5)
    shown = evenhand("decisions", run["decision_id"], "--core", claimed.address).out
    assert "has to free" in shown
    assert "10 cores" in shown
