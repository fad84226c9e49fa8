"""`evenhand cluster`: every command on a running embedded cluster with a real core, over real sockets."""

import asyncio
import json
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from evenhand_cli.embedded.hosting import service_of
from shim_client import cluster_service
from shim_client.embedded.cluster import EmbeddedCluster
from tests.cli.clusters import deployment, node, write
from tests.cli.processes import address_of, finished, line_of, running, until
from tests.cli.run import Ended, evenhand
from tests.cli.test_end_to_end import await_counts
from tests.cli.test_shim_ends import logged

WIDTH = 80


class Running:
    """A running embedded cluster, and the core that it has joined."""

    def __init__(self, address: str, core: str, folder: Path) -> None:
        self.address = address
        self.core = core
        self.folder = folder

    def run(self, *words: str, given: str | None = None) -> Ended:
        """Run a cluster command."""
        ended = evenhand("cluster", *words, "--address", self.address, width=WIDTH, given=given)
        text = ended.err if "json" in words else ended.out + ended.err
        assert max(map(len, text.splitlines()), default=0) <= WIDTH
        return ended

    def value(self, *words: str) -> Any:
        """Return the JSON of a cluster command that succeeds."""
        ended = self.run(*words, "--output", "json")
        assert ended.code == 0, ended.err
        return ended.value()

    def pods(self, namespace: str) -> dict[str, str]:
        """Return the node of each pod of a namespace that is not being deleted; "" while it waits."""
        found = [(one["metadata"], one["spec"]) for one in self.value("get", "pods")["pods"]]
        return {
            metadata["name"]: spec.get("nodeName", "")
            for metadata, spec in found
            if metadata["namespace"] == namespace
        }

    def settled(self, namespace: str, count: int) -> None:
        """Wait until a namespace has this number of pods, each with a node."""
        until(lambda: len(self.pods(namespace)) == count and all(self.pods(namespace).values()))

    def file(self, *items: Any) -> str:
        """Return the path of a file with these objects."""
        path = self.folder / "given.yaml"
        path.write_text(yaml.safe_dump_all(items))
        return str(path)


def said(process: subprocess.Popen[str], words: str) -> str:
    """Return the first line of a process that contains these words."""
    while True:
        line = line_of(process)
        assert line, f"it never said {words!r}"
        if words in line:
            return line


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("cluster")
    files = write(folder / "files", [node(f"node-{number}") for number in range(3)])
    with running(["serve", "--listen", "127.0.0.1:0"], folder / "serve.log") as core:
        address = address_of(core, folder / "serve.log")
        shim = [
            "shim",
            "--cluster",
            str(files),
            "--core",
            address,
            "--cluster-listen",
            "127.0.0.1:0",
        ]
        with running(shim, folder / "shim.log") as process:
            at = said(process, "cluster commands at").split()[3]
            logged(folder / "shim.log", "the core knows everything")
            yield Running(at, address, folder)


def app(name: str, replicas: int, cpu: str = "1") -> Any:
    """Return a Deployment in a namespace of its own."""
    return deployment(name, name, replicas, cpu, "root.services")


def budget(name: str, available: int) -> Any:
    """Return a PodDisruptionBudget for the Deployment of the same name."""
    selector = {"matchLabels": {"app": name}}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": name},
        "spec": {"minAvailable": available, "selector": selector},
    }


def test_applied_objects_are_created_changed_and_left_alone(cluster: Running) -> None:
    first = cluster.run("apply", cluster.file(app("one", 2), budget("one", 1)))
    assert first.code == 0, first.err
    assert first.out.splitlines() == [
        "PodDisruptionBudget/one in one created",
        "Deployment/one in one created",
    ]
    cluster.settled("one", 2)
    second = cluster.run("apply", cluster.file(app("one", 3), budget("one", 1)))
    assert [line.split()[-1] for line in second.out.splitlines()] == ["unchanged", "configured"]
    cluster.settled("one", 3)
    given = str(cluster.folder / "given.yaml")
    value = cluster.run("apply", given, "--output", "json").value()
    assert [one["outcome"] for one in value["results"]] == ["unchanged", "unchanged"]


def test_standard_input_lists_and_directories(cluster: Running) -> None:
    listed = {"kind": "List", "items": [app("two", 1)]}
    ended = cluster.run("apply", "-", given=yaml.safe_dump(listed))
    assert (ended.code, ended.out) == (0, "Deployment/two in two created\n")
    more = cluster.folder / "more"
    (more / "deeper").mkdir(parents=True)
    (more / "queues.yaml").write_text("partitions: []\n")
    (more / "deeper" / "a.json").write_text(json.dumps(app("two", 2)))
    assert cluster.run("apply", str(more)).out == "Deployment/two in two configured\n"
    cluster.settled("two", 2)


def test_a_refused_object_is_said_with_place_and_the_others_are_carried_out(
    cluster: Running,
) -> None:
    bad = {"kind": "Pod", "metadata": {"name": "rich"}, "spec": {"priorityClassName": "gold"}}
    bad["spec"]["containers"] = [{"name": "c"}]  # type: ignore[index]
    other = {"kind": "Pod", "metadata": {"name": "lost"}, "spec": {"containers": [{"name": "c"}]}}
    service = {"kind": "Service", "metadata": {"name": "web"}}
    ended = cluster.run("apply", cluster.file(bad, other, service))
    assert ended.code == 1
    assert ended.out == "Pod/lost in default created\n"
    assert "Pod/rich in default refused: no PriorityClass with name gold" in ended.err
    assert "given.yaml" in ended.err
    assert "left out, an embedded cluster has no use for it: 1 Service" in ended.err
    assert "warning: Pod/lost in default: spec.schedulerName" in ended.err
    assert cluster.run("delete", "pod", "lost").code == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind: [\n", "not YAML"),
        ("metadata: {name: x}\n", "not a Kubernetes object with a kind"),
        ("kind: Service\nmetadata: {name: x}\n", "there are no objects for an embedded cluster"),
        ("kind: Pod\nmetadata: {name: x}\nspec: !!binary aGk=\n", "no JSON"),
    ],
)
def test_a_file_that_cannot_be_read_changes_nothing(
    cluster: Running, text: str, words: str
) -> None:
    ended = cluster.run("apply", "-", given=text)
    assert (ended.code, ended.out) == (1, "")
    assert words in ended.err
    assert "do:" in ended.err


def test_objects_are_deleted_by_name_and_by_file(cluster: Running) -> None:
    cluster.run("apply", cluster.file(app("three", 2)))
    cluster.settled("three", 2)
    name = min(cluster.pods("three"))
    assert cluster.run("delete", f"pod/{name}", "--namespace", "three").code == 0
    until(lambda: name not in cluster.pods("three"))
    cluster.settled("three", 2)
    gone = cluster.run("delete", "--file", str(cluster.folder / "given.yaml"))
    assert gone.out == "Deployment/three in three deleted\n"
    until(lambda: cluster.pods("three") == {})


def test_a_name_that_is_missing_gets_near_matches(cluster: Running) -> None:
    for words in (
        ("delete", "node", "nod-1"),
        ("describe", "node", "nod-1"),
        ("get", "node", "nod-1"),
        ("cordon", "nod-1"),
        ("drain", "nod-1"),
    ):
        ended = cluster.run(*words)
        assert (ended.code, ended.out) == (1, ""), words
        assert "node-1" in ended.err, words
    cluster.run("apply", cluster.file(app("four", 1)))
    elsewhere = cluster.run("scale", "deployment", "four", "--replicas", "2")
    assert elsewhere.code == 1
    assert "namespace four has one: --namespace four" in elsewhere.err
    kind = cluster.run("get", "deploymnts")
    assert kind.code == 2
    assert "did you mean `deployments`" in kind.err


@pytest.mark.parametrize(
    "words",
    [
        ("delete",),
        ("delete", "pod"),
        ("delete", "pod", "a", "--file", "b"),
        ("delete", "pod/a", "node/b"),
        ("describe", "pod"),
        ("scale", "pods", "--replicas", "2"),
        ("events", "pod", "a", "b"),
    ],
)
def test_a_wrong_command_line_is_refused(cluster: Running, words: tuple[str, ...]) -> None:
    ended = cluster.run(*words)
    assert (ended.code, ended.out) == (2, "")
    assert "do:" in ended.err


def test_a_workload_is_scaled(cluster: Running) -> None:
    cluster.run("apply", cluster.file(app("five", 1)))
    ended = cluster.run("scale", "deploy/five", "--replicas", "3", "-n", "five")
    assert ended.out == "Deployment/five wants 3 pods, 1 before\n"
    cluster.settled("five", 3)
    again = cluster.run("scale", "deploy", "five", "--replicas", "3", "--namespace", "five")
    assert again.out == "Deployment/five wanted 3 pods already\n"
    owned = cluster.value("get", "replicasets", "-n", "five")["replicasets"][0]["metadata"]["name"]
    refused = cluster.run("scale", f"rs/{owned}", "--replicas", "1", "-n", "five")
    assert refused.code == 1
    assert "it belongs to Deployment five" in refused.err
    pod = cluster.run("scale", "pod", min(cluster.pods("five")), "--replicas", "1", "-n", "five")
    assert pod.code == 1
    assert "a Pod has no number of pods" in pod.err


def test_a_cordoned_node_takes_no_pods(cluster: Running) -> None:
    for number in range(3):
        assert cluster.run("cordon", f"node-{number}").code == 0
    assert cluster.run("cordon", "node-0").out == "node-0 was cordoned already\n"
    assert cluster.run("get", "nodes").out.count("Cordoned") == 3
    cluster.run("apply", cluster.file(app("six", 1)))
    until(lambda: _waits_for_a_node(cluster, "six"))
    for number in range(3):
        assert cluster.run("uncordon", f"node-{number}").code == 0
    cluster.settled("six", 1)


def _waits_for_a_node(cluster: Running, namespace: str) -> bool:
    (pod,) = cluster.value("get", "pods", "-n", namespace)["pods"]
    return any(
        one["type"] == "PodScheduled" and one["status"] == "False"
        for one in pod["status"].get("conditions", ())
    )


def test_a_drain_respects_budgets_and_names_what_it_left(cluster: Running) -> None:
    bare = {
        "kind": "Pod",
        "metadata": {
            "name": "bare",
            "namespace": "seven",
            "labels": {"applicationId": "bare", "queue": "root.services"},
        },
        "spec": {"schedulerName": "evenhand", "containers": [{"name": "c"}]},
    }
    daemon = {
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "seven"},
        "spec": {"template": {"metadata": bare["metadata"], "spec": bare["spec"]}},
    }
    given = cluster.file(app("seven", 6), budget("seven", 5), bare, daemon)
    assert cluster.run("apply", given).code == 0
    cluster.settled("seven", 10)
    target = cluster.pods("seven")["bare"]
    before = {name for name, at in cluster.pods("seven").items() if at == target}
    ended = cluster.run("drain", target)
    assert ended.code == 1
    assert "left seven/bare: has no workload" in ended.out
    assert f"to evict pods without a workload: evenhand cluster drain {target} --force" in ended.out
    assert re.search(r"left seven/agent-\w+: belongs to DaemonSet agent", ended.out)
    mine = [name for name in before if name.startswith("seven-")]
    left = [name for name in mine if f"left seven/{name}: Cannot evict pod" in ended.out]
    evicted = [name for name in mine if f"evicted seven/{name}" in ended.out]
    assert (f"when their budgets allow it: evenhand cluster drain {target}" in ended.out) == bool(
        left
    )
    assert len(evicted) == min(1, len(mine))
    assert sorted(left + evicted) == sorted(mine)
    for _ in mine:
        cluster.settled("seven", 10)
        cluster.run("drain", target)
    until(lambda: cluster.run("drain", target, "--force").code == 0)
    left_now = cluster.value("drain", target)["left"]
    assert [one["may_stay"] for one in left_now] == [True]
    cluster.settled("seven", 9)
    assert cluster.run("uncordon", target).code == 0


def test_a_stateful_set_runs_in_order_and_scales(cluster: Running) -> None:
    item = {**app("twelve", 3), "kind": "StatefulSet"}
    item["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}}]
    ended = cluster.run("apply", cluster.file(item))
    assert ended.code == 0
    assert "spec.volumeClaimTemplates" in ended.err
    cluster.settled("twelve", 3)
    assert sorted(cluster.pods("twelve")) == ["twelve-0", "twelve-1", "twelve-2"]
    assert cluster.run("scale", "sts", "twelve", "--replicas", "1", "-n", "twelve").code == 0
    until(lambda: sorted(cluster.pods("twelve")) == ["twelve-0"])
    assert "1/1" in cluster.run("get", "sts", "--namespace", "twelve").out


def test_every_kind_is_listed_and_described_in_80_columns(cluster: Running) -> None:
    cluster.run("apply", cluster.file(app("eight", 1), budget("eight", 0)))
    cluster.settled("eight", 1)
    for kind in (
        "pods",
        "nodes",
        "deployments",
        "rs",
        "pdb",
        "pc",
        "ns",
        "jobs",
        "ds",
        "cm",
        "pvc",
        "sts",
    ):
        assert cluster.run("get", kind).code == 0, kind
    name = min(cluster.pods("eight"))
    shown = cluster.run("describe", "pod", name, "--namespace", "eight")
    for word in ("PodScheduled", "Scheduled", "applicationId=eight", "cpu 1"):
        assert word in shown.out, word
    value = cluster.value("describe", f"pod/{name}", "-n", "eight")
    assert value["object"]["spec"]["nodeName"] == cluster.pods("eight")[name]
    assert value["events"][-1]["reason"] == "Scheduled"
    for kind, named in (("node", "node-0"), ("pc", "system-node-critical"), ("ns", "eight")):
        assert cluster.run("describe", kind, named).code == 0
    assert cluster.run("describe", "deployment", "eight", "-n", "eight").code == 0
    names = cluster.run("get", "nodes", "-o", "name").out.split()
    assert names == ["node-0", "node-1", "node-2"]
    assert cluster.run("get", "nodes", "--sort-by=-name", "-o", "name").out.split() == names[::-1]
    assert "name" not in cluster.run("get", "nodes", "--no-headers").out
    none = cluster.run("get", "pdb", "--namespace", "default").out
    assert none == "No PodDisruptionBudget matches --namespace default.\n"
    for words in (("get", "pods"), ("events",)):
        ended = cluster.run(*words, "--namespace", "eigth")
        assert (ended.code, ended.out) == (1, "")
        assert "did you mean `eight`" in ended.err


def test_results_of_a_deletion_are_data_too(cluster: Running) -> None:
    cluster.run("apply", cluster.file(app("eleven", 1)))
    cluster.settled("eleven", 1)
    name = min(cluster.pods("eleven"))
    shown = cluster.run("describe", "pod", name, "-n", "eleven", "--output", "json").value()
    uid = shown["object"]["metadata"]["uid"]
    drained = cluster.run("drain", cluster.pods("eleven")[name], "--output", "json").value()
    assert {"kind": "Pod", "namespace": "eleven", "name": name} in drained["evicted"]
    assert cluster.run("uncordon", shown["object"]["spec"]["nodeName"]).code == 0
    gone = cluster.run("delete", "deployment", "eleven", "nothing", "-n", "eleven", "-o", "json")
    assert gone.code == 1
    assert [one["outcome"] for one in gone.value()["results"]] == ["deleted", "missing"]
    told = cluster.run("events", "pod", name, "--output", "json").value()["events"]
    assert uid
    assert told[0]["about"]["name"] == name


def test_events_are_listed_by_object_and_type(cluster: Running) -> None:
    cluster.run("apply", cluster.file(app("nine", 1)))
    cluster.settled("nine", 1)
    name = min(cluster.pods("nine"))
    until(lambda: bool(cluster.value("events", "pod", name, "-n", "nine")["events"]))
    told = cluster.value("events", "pod", name, "--namespace", "nine")["events"]
    assert {one["about"]["name"] for one in told} == {name}
    assert len(cluster.value("events", "--count", "2")["events"]) == 2
    warned = cluster.value("events", "--warnings")["events"]
    assert all(one["warning"] for one in warned)
    shown = cluster.run("events", "pod", name, "-n", "nine")
    assert "reason" in shown.out
    assert "reason" not in cluster.run("events", "pod", name, "-n", "nine", "--no-headers").out


def test_core_and_cluster_agree_at_the_end(cluster: Running) -> None:
    found = cluster.value("get", "pods")["pods"]
    bound = [one for one in found if one["spec"].get("nodeName")]
    await_counts(cluster.core, allocations=len(bound))
    assert evenhand("doctor", "--core", cluster.core).code == 0


def test_a_cluster_that_is_not_there_and_an_address_elsewhere() -> None:
    ended = evenhand("cluster", "get", "pods", "--address", "127.0.0.1:1")
    assert (ended.code, ended.out) == (3, "")
    assert "cannot reach an embedded cluster at 127.0.0.1:1" in ended.err
    assert "evenhand shim --cluster DIR" in ended.err
    for address in ("10.0.0.1:50052", "nowhere", "example.com:1", "127.0.0.1:99999"):
        ended = evenhand("cluster", "get", "pods", "--address", address)
        assert (ended.code, ended.out) == (2, ""), address
        assert "HOST:PORT" in ended.err


def test_a_core_is_no_embedded_cluster(cluster: Running) -> None:
    ended = evenhand("cluster", "get", "pods", "--address", cluster.core)
    assert (ended.code, ended.out) == (3, "")
    assert "not an embedded cluster" in ended.err


@pytest.mark.parametrize(
    ("address", "words"),
    [("0.0.0.0:0", "is not the loopback"), ("127.0.0.1", "is not HOST:PORT")],
)
def test_a_shim_listens_on_the_loopback_only(tmp_path: Path, address: str, words: str) -> None:
    files = write(tmp_path / "files", [node("node-0")])
    shim = ["shim", "--cluster", str(files), "--core", "127.0.0.1:1"]
    ended = finished(*shim, "--cluster-listen", address)
    assert ended.returncode == 1
    assert words in ended.stderr
    assert "--cluster-listen" in ended.stderr


def test_a_port_that_is_in_use_is_refused_when_it_was_given(
    cluster: Running, tmp_path: Path
) -> None:
    files = write(tmp_path / "files", [node("node-0")])
    shim = ["shim", "--cluster", str(files), "--core", "127.0.0.1:1"]
    for used in (cluster.address, cluster.core):
        ended = finished(*shim, "--cluster-listen", used)
        assert ended.returncode == 1
        assert "another process uses it" in ended.stderr


async def test_a_second_cluster_takes_a_free_port_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        used = f"127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setattr(cluster_service, "DEFAULT_ADDRESS", used)
        lines: list[str] = []
        work = asyncio.create_task(service_of(EmbeddedCluster(lambda: 1), "", lines.append))
        await asyncio.sleep(0)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    (line,) = lines
    assert f"{used} is in use" in line
    assert not line.startswith(f"cluster commands at {used} ")


def test_files_that_change_are_carried_out_while_the_shim_runs(cluster: Running) -> None:
    files = cluster.folder / "files"
    log = cluster.folder / "shim.log"
    (files / "ten.json").write_text(json.dumps(app("ten", 2)))
    cluster.settled("ten", 2)
    assert logged(log, "files of the cluster changed")["what"].endswith("1 created")
    (files / "ten.json").write_text("{")
    until(
        lambda: (
            "FileNotReadable"
            in [one["reason"] for one in cluster.value("events", "--warnings")["events"]]
        )
    )
    assert len(cluster.pods("ten")) == 2
    (files / "ten.json").unlink()
    until(lambda: cluster.pods("ten") == {})


def test_a_demonstration_that_is_watched_answers_too(tmp_path: Path) -> None:
    files = write(tmp_path / "files", [node("node-0"), app("web", 2)])
    log = tmp_path / "log"
    demo = ["demo", "--watch", "--cluster", str(files), "-o", "json"]
    with running([*demo, "--cluster-listen", "127.0.0.1:0"], log) as process:
        until(lambda: "cluster commands at" in log.read_text())
        found = re.search(r"cluster commands at (\S+)", log.read_text())
        assert found
        here = Running(found[1], "", tmp_path)
        here.settled("web", 2)
        assert here.run("scale", "deployment", "web", "--replicas", "4", "-n", "web").code == 0
        here.settled("web", 4)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0, log.read_text()
    assert json.loads(out)["pods"]["bound"] == 4
    refused = evenhand("demo", "--cluster-listen", "127.0.0.1:0")
    assert refused.code == 2
    assert "--watch" in refused.err
