"""`evenhand demo` as a process: it ends by itself, and its numbers are correct."""

import json
import re
import signal
import socket
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from evenhand_cli.commands.demo import LIMIT_S
from evenhand_cli.demo.run import Plan
from evenhand_cli.faults import Fault
from tests.cli.clusters import node, write, write_known
from tests.cli.processes import ROOT, finished, running
from tests.cli.run import evenhand

EXAMPLE = ROOT / "examples" / "clusters" / "small"
CLAIM = ROOT / "examples" / "clusters" / "claim"


def summary(*arguments: str) -> Any:
    ended = finished("demo", "--output", "json", *arguments)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_the_example_cluster_settles() -> None:
    told = summary()
    objects = [
        one for file in EXAMPLE.glob("*.yaml") for one in yaml.safe_load_all(file.read_text())
    ]
    kinds = Counter(one.get("kind") for one in objects if one)
    pods = told["pods"]
    assert told["settled"] is True
    assert told["consistent"] is True
    assert told["findings"] == told["disagreements"] == []
    assert told["nodes"]["total"] == kinds["Node"]
    assert pods["total"] == pods["bound"] + pods["pending"] + pods["refused"] + pods["finished"]
    assert sum(group["pods"] for group in told["waiting"]) == pods["pending"] + pods["refused"]
    assert all(group["code"] and group["why"] for group in told["waiting"])
    assert told["usage"].keys() <= told["capacity"].keys()
    assert all(told["usage"][kind] <= told["capacity"][kind] for kind in told["usage"])


def test_the_numbers_of_a_known_cluster(tmp_path: Path) -> None:
    told = summary("--cluster", str(write_known(tmp_path / "cluster")))
    assert told["pods"] == {
        "total": 62, "before": 0, "bound": 44, "finished": 0, "pending": 18, "refused": 0, "others": 0,
    }  # fmt: skip
    assert told["placements"]["total"] == 44
    assert told["preemption"]["decisions"] == 0
    assert told["preemption"]["example"] is None
    assert told["usage"]["vcore"] == 12 * 500 + 8 * 2000 + 24 * 1000
    assert told["usage"]["memory"] == 44 << 30
    reasons = {group["code"]: (group["pods"], group["pod"]) for group in told["waiting"]}
    assert {code: count for code, (count, _) in reasons.items()} == {
        "queue-limit": 16,
        "no-node-capacity": 2,
    }
    assert reasons["no-node-capacity"][1].startswith("lab/huge-")


def test_without_a_terminal_it_ends_with_screen_and_summary(tmp_path: Path) -> None:
    ended = finished("demo", "--cluster", str(write_known(tmp_path / "cluster")))
    lines = ended.stdout.splitlines()
    assert ended.returncode == 0, ended.stderr
    assert any(line.startswith("nodes 6/6") and "44/62" in line for line in lines)
    assert any("─ batch" in line and "24/24" in line for line in lines)
    assert "settled: every pod has its node or its reason; the state agrees" in lines
    assert any(line.split()[:2] == ["16", "queue-limit"] for line in lines)


def test_a_claim_tells_who_went_for_whom() -> None:
    told = summary("--cluster", str(CLAIM))
    assert (told["settled"], told["consistent"]) == (True, True)
    pods = told["pods"]
    assert (pods["before"], pods["bound"], pods["total"], pods["pending"]) == (16, 16, 18, 2)
    found = told["preemption"]
    example = found.pop("example")
    assert found == {
        "decisions": 8, "policies": {"guaranteed": 8},
        "gone": 8, "leaving": 0, "served": 8, "observed": 0,
    }  # fmt: skip
    (gets,), (victim,) = example["beneficiaries"], example["victims"]
    assert (example["state"], victim["state"]) == ("fulfilled", "gone")
    assert (gets["queue"], victim["queue"]) == ("root.shop", "root.batch")
    assert gets["node_id"] == victim["node_id"]


def test_a_claim_is_told_in_lines() -> None:
    ended = finished("demo", "--cluster", str(CLAIM))
    lines = ended.stdout.splitlines()
    assert ended.returncode == 0, ended.stderr
    assert any(line.endswith("2 wait; 16 ran before") for line in lines)
    assert "preemption: 8 pods evicted for 8 others; 8 decisions: 8 guaranteed" in lines
    (story,) = (line for line in lines if line.startswith("such as g-"))
    assert re.fullmatch(
        r"such as \S+ \(guaranteed\): studio/frame-\d\d of root.batch is evicted from node-\d"
        r" for shop/shop-\S+ of root.shop",
        story,
    )
    assert "`evenhand explain ID`" in ended.stdout


def test_another_configuration_wins_over_the_clusters(tmp_path: Path) -> None:
    cluster = write_known(tmp_path / "cluster")
    wider = tmp_path / "wider.yaml"
    queues = (cluster / "queues.yaml").read_text()
    wider.write_text(queues.replace("max: {vcore: 24, memory: 64Gi}", "max: {vcore: 30}"))
    told = summary("--cluster", str(cluster), "--config", str(wider))
    assert told["pods"]["bound"] == 50


def test_a_pod_that_is_no_ask_yet_has_its_reason_too(tmp_path: Path) -> None:
    containers = [{"name": "main", "image": "main", "resources": {"requests": {"cpu": "1"}}}]
    gates = [{"name": "example.com/later"}]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "later", "namespace": "lab", "labels": {"applicationId": "later"}},
        "spec": {"schedulerName": "evenhand", "schedulingGates": gates, "containers": containers},
    }
    told = summary("--cluster", str(write(tmp_path / "cluster", [node("node-1"), pod])))
    (group,) = told["waiting"]
    assert (group["pods"], group["pod"], group["key"]) == (1, "lab/later", "")
    assert "example.com/later" in group["why"]


def test_refused_objects_are_counted_and_end_with_exit_code_1(tmp_path: Path) -> None:
    """The smallest case: a class that does not exist, which left neither pod nor message before."""
    containers = [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]
    pod = {
        "kind": "Pod",
        "metadata": {"name": "rich", "namespace": "lab"},
        "spec": {
            "schedulerName": "evenhand",
            "priorityClassName": "gold",
            "containers": containers,
        },
    }
    groups = {"yunikorn.apache.org/task-groups": "[{"}
    vague = {
        **pod,
        "metadata": {"name": "vague", "namespace": "lab", "annotations": groups},
        "spec": {"schedulerName": "evenhand", "containers": containers},
    }
    cluster = str(write(tmp_path / "cluster", [node("node-1"), pod, vague]))
    ended = finished("demo", "--cluster", cluster, "--output", "json")
    assert ended.returncode == 1, ended.stderr
    told = json.loads(ended.stdout)
    refused, without_effect = told["faults"]
    assert (refused["refused"], refused["example"], refused["objects"]) == (True, "lab/rich", 1)
    assert "gold" in refused["message"]
    assert (without_effect["refused"], without_effect["example"]) == (False, "lab/vague")
    shown = finished("demo", "--cluster", cluster, columns=80)
    assert shown.returncode == 1
    assert "settled, but 1 object of the cluster was refused" in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80


def test_watching_ends_by_a_signal_in_order(tmp_path: Path) -> None:
    cluster = write_known(tmp_path / "cluster")
    log = tmp_path / "log"
    arguments = ["demo", "--watch", "-o", "json", "--cluster", str(cluster)]
    with running(arguments, log) as process:
        _await_line(process, log, "44 of 62 pods placed")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0, log.read_text()
    assert json.loads(out)["pods"]["bound"] == 44


def _await_line(process: subprocess.Popen[str], log: Path, words: str) -> None:
    """Poll the error stream for the words, with a limit on the number of looks."""
    for _ in range(600):
        if words in log.read_text():
            return
        try:
            process.wait(timeout=0.1)
        except subprocess.TimeoutExpired:
            continue
        break
    raise AssertionError(log.read_text())


def test_a_limit_counts_unless_it_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[Plan] = []

    async def demonstrate(plan: Plan, _view: object, _stop: object) -> None:
        plans.append(plan)
        raise Fault("it was only to be planned")

    monkeypatch.setattr("evenhand_cli.commands.demo.demonstrate", demonstrate)
    for limit in ((), ("--limit", "7")):
        assert evenhand("demo", *limit).code == 1
    assert [one.limit_s for one in plans] == [LIMIT_S, 7]
    ended = evenhand("demo", "--watch", "--limit", "7")
    assert ended.code == 2
    assert ended.err.startswith("error: --watch and --limit cannot be combined")


def test_a_picture_is_drawn_of_a_real_run(tmp_path: Path) -> None:
    drawn = tmp_path / "demo.svg"
    told = summary("--cluster", str(write_known(tmp_path / "cluster")), "--picture", str(drawn))
    text = drawn.read_text()
    assert told["settled"] is True
    assert text.startswith("<svg")
    assert "research" in text
    assert "url(" not in text.replace("url(#", "")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--cluster", "/nowhere/at/all"], "there is no such directory"),
        (["--listen", "127.0.0.1:x"], "--listen"),
        (["--config", "/nowhere/queues.yaml"], "no such file"),
    ],
)
def test_a_wrong_option_is_named(arguments: list[str], word: str) -> None:
    ended = finished("demo", *arguments)
    assert ended.returncode in (1, 2)
    assert ended.stdout == ""
    assert word in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_broken_file_has_its_line(tmp_path: Path) -> None:
    cluster = write_known(tmp_path / "cluster")
    (cluster / "bad.yaml").write_text("kind: Pod\nmetadata: {name: [\n")
    ended = finished("demo", "--cluster", str(cluster))
    assert ended.returncode == 1
    assert "bad.yaml:" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_bad_queues_of_a_cluster_are_told_with_their_line(tmp_path: Path) -> None:
    cluster = write_known(tmp_path / "cluster")
    queues = cluster / "queues.yaml"
    queues.write_text(queues.read_text().replace("vcore: 16,", "vcore: 16x,"))
    ended = finished("demo", "--cluster", str(cluster))
    assert ended.returncode == 3
    assert "guaranteed.vcore" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_port_in_use_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for command in ("serve", "demo"):
            ended = finished(command, "--listen", f"127.0.0.1:{port}")
            assert ended.returncode == 1, ended.stderr
            assert f"127.0.0.1:{port}" in ended.stderr
            assert "another process may have that port" in ended.stderr
            assert "Traceback" not in ended.stderr
