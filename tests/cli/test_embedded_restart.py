"""An embedded cluster outlives its shim: after a kill everything runs where it ran, and nothing is decided twice."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.clusters import node, write_known
from tests.cli.processes import ROOT, address_of, finished, running, until
from tests.cli.run import evenhand
from tests.cli.test_cluster import said
from tests.cli.test_end_to_end import await_counts
from tests.cli.test_shim_ends import logged

CLAIM = ROOT / "examples" / "clusters" / "claim"
ALL = ("the core knows everything",)


def shim(cluster: Path, state: Path, address: str, *more: str) -> list[str]:
    """Return the command line of a shim."""
    return ["shim", "--cluster", str(cluster), "--state", str(state), "--core", address, *more]


def places(address: str) -> dict[str, str]:
    """Return the node of each allocation, by key."""
    found = evenhand("allocations", "--core", address, "-o", "json").value()["allocations"]
    return {one["allocation_key"]: one["node_id"] for one in found}


def placed(address: str) -> int:
    """Return how many placements the core has made."""
    (one,) = evenhand("partitions", "--core", address, "-o", "json").value()["partitions"]
    return int(one["counts"]["placed_total"])


def decisions(address: str) -> list[str]:
    found = evenhand("decisions", "--core", address, "-o", "json").value()["decisions"]
    return sorted(one["decision_id"] for one in found)


def test_a_shim_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with running(["serve", "--listen", "127.0.0.1:0"], tmp_path / "serve.log") as core:
        address = address_of(core, tmp_path / "serve.log")
        with running(shim(CLAIM, state, address), tmp_path / "first.log") as first:
            logged(tmp_path / "first.log", *ALL)
            until(lambda: len(decisions(address)) == 8)
            await_counts(address, allocations=16, waiting_asks=2)
            before = (places(address), placed(address), decisions(address))
            first.kill()
            first.wait()
        with running(shim(CLAIM, state, address), tmp_path / "second.log"):
            told = logged(tmp_path / "second.log", "the cluster goes on where it was")
            logged(tmp_path / "second.log", *ALL)
            await_counts(address, allocations=16, waiting_asks=2)
            assert (places(address), placed(address), decisions(address)) == before
            assert told["files"] == "unchanged"
    assert len(before[0]) == 16


def test_a_shim_that_is_killed_at_any_time_keeps_what_ran(tmp_path: Path) -> None:
    """Kills amid placements and commands; a pod that ran stays on its node, and both sides agree at the end."""
    cluster, state = write_known(tmp_path / "cluster"), tmp_path / "state"
    listen = "127.0.0.1:0"
    with running(["serve", "--listen", "127.0.0.1:0"], tmp_path / "serve.log") as core:
        address = address_of(core, tmp_path / "serve.log")
        ran: dict[str, str] = {}
        for turn, replicas in enumerate((3, 14, 6)):
            log = tmp_path / f"{turn}.log"
            with running(shim(cluster, state, address, "--cluster-listen", listen), log) as process:
                at = said(process, "cluster commands at").split()[3]
                front = ["deployment/front", "--namespace", "web", "--address", at]
                assert evenhand("cluster", "scale", *front, "--replicas", str(replicas)).code == 0
                now = bound(at)
                kept = ran.keys() & now.keys()
                assert {key: now[key] for key in kept} == {key: ran[key] for key in kept}
                process.kill()
                process.wait()
                ran = now
        with running(
            shim(cluster, state, address, "--cluster-listen", listen), tmp_path / "last.log"
        ) as process:
            at = said(process, "cluster commands at").split()[3]
            await_counts(address, allocations=38, waiting_asks=18)
            assert bound(at) == places(address)
            assert evenhand("doctor", "--core", address).code == 0


def bound(at: str) -> dict[str, str]:
    """Return the node of each pod of an embedded cluster that has one, by uid."""
    found = evenhand("cluster", "get", "pods", "--address", at, "-o", "json").value()["pods"]
    return {
        one["metadata"]["uid"]: one["spec"]["nodeName"]
        for one in found
        if "nodeName" in one["spec"]
    }


def test_what_the_files_say_otherwise_after_a_restart_is_carried_out(tmp_path: Path) -> None:
    cluster, state = write_known(tmp_path / "cluster"), tmp_path / "state"
    with running(["serve", "--listen", "127.0.0.1:0"], tmp_path / "serve.log") as core:
        address = address_of(core, tmp_path / "serve.log")
        with running(shim(cluster, state, address), tmp_path / "first.log") as first:
            await_counts(address, allocations=44, waiting_asks=18)
            before = places(address)
            first.kill()
            first.wait()
        (cluster / "more.json").write_text(json.dumps(node("node-6")))
        with running(shim(cluster, state, address), tmp_path / "second.log"):
            told = logged(tmp_path / "second.log", "the cluster goes on where it was")
            await_counts(address, nodes=7, allocations=44)
            assert told["files"] == "1 created"
            assert places(address) == before


def test_fresh_begins_with_the_manifests_again(tmp_path: Path) -> None:
    cluster, state = write_known(tmp_path / "cluster"), tmp_path / "state"
    nowhere = "127.0.0.1:1"
    file = state / "cluster.jsonl"
    ended = finished(*shim(cluster, state, nowhere, "--no-wait"))
    assert ended.returncode == 3
    assert file.read_text().count('"kind":"Pod"') == 62
    objects = json.loads((cluster / "objects.json").read_text().splitlines()[0])
    (cluster / "objects.json").write_text(json.dumps(objects))
    assert finished(*shim(cluster, state, nowhere, "--no-wait", "--fresh")).returncode == 3
    assert kept(file) == {"Node": 1, "PriorityClass": 2}


def test_a_shim_may_have_the_core_forget_what_it_knows(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with running(["serve", "--listen", "127.0.0.1:0"], tmp_path / "serve.log") as core:
        address = address_of(core, tmp_path / "serve.log")
        for turn, more in enumerate(([], [], ["--forget"])):
            log = tmp_path / f"{turn}.log"
            with running(shim(CLAIM, state, address, *more), log):
                logged(log, *ALL)
                await_counts(address, allocations=16, waiting_asks=2)
        events = evenhand("events", "--core", address, "-o", "json").out
        assert events.count("manager-resumed") == 1
        assert events.count("manager-replaced") == 1


def kept(file: Path) -> dict[str, int]:
    """Return how many objects of each kind a state file has."""
    found: dict[str, int] = {}
    for line in file.read_text().splitlines():
        item: Any = json.loads(line).get("put")
        if item is not None:
            found[item["kind"]] = found.get(item["kind"], 0) + 1
    return found


def test_a_shim_that_cannot_keep_a_state_says_so_and_runs(tmp_path: Path) -> None:
    cluster = write_known(tmp_path / "cluster")
    (tmp_path / "file").write_text("")
    nowhere = ["shim", "--cluster", str(cluster), "--core", "127.0.0.1:1", "--no-wait"]
    ended = evenhand(*nowhere, XDG_STATE_HOME=str(tmp_path / "file"))
    assert ended.code == 3, ended.err
    assert "the cluster is not kept for the next start" in ended.err
    refused = evenhand(*nowhere, "--state", str(tmp_path / "file" / "state"))
    assert (refused.code, refused.out) == (1, "")
    assert "--state" in refused.err
    assert "name a folder that you may write" in refused.err


def test_a_shim_keeps_its_state_in_the_users_state_directory(tmp_path: Path) -> None:
    cluster = write_known(tmp_path / "cluster")
    nowhere = ["shim", "--cluster", str(cluster), "--core", "127.0.0.1:1", "--no-wait"]
    assert evenhand(*nowhere, XDG_STATE_HOME=str(tmp_path / "states")).code == 3
    (file,) = (tmp_path / "states").rglob("cluster.jsonl")
    assert file.parent.name.startswith("cluster-")
    assert kept(file)["Pod"] == 62


def test_a_second_shim_of_the_same_state_is_refused(tmp_path: Path) -> None:
    cluster, state = write_known(tmp_path / "cluster"), tmp_path / "state"
    nowhere = "127.0.0.1:1"
    with running(shim(cluster, state, nowhere), tmp_path / "first.log"):
        logged(tmp_path / "first.log", "cannot reach the core")
        ended = finished(*shim(cluster, state, nowhere, "--no-wait"))
    assert ended.returncode == 1
    assert "another process keeps its cluster there" in ended.stderr
    assert "--state" in ended.stderr


@pytest.mark.parametrize(
    ("text", "words"), [("{}\n", "line 1"), ('{"format":1}\n{"put":3}\n', "line 2")]
)
def test_a_state_that_cannot_be_read_is_said_with_its_line(
    tmp_path: Path, text: str, words: str
) -> None:
    cluster, state = write_known(tmp_path / "cluster"), tmp_path / "state"
    state.mkdir()
    (state / "cluster.jsonl").write_text(text)
    ended = finished(*shim(cluster, state, "127.0.0.1:1", "--no-wait"))
    assert ended.returncode == 1
    assert words in ended.stderr
    assert "--fresh" in ended.stderr
    assert (state / "cluster.jsonl").read_text() == text
