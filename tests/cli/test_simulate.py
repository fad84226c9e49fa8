"""Simulations: which parts of a file are read, what is sent to the core, and how the answer is shown."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from evenhand.v1 import config_pb2, decisions_pb2, simulate_pb2
from evenhand_cli.app import app
from evenhand_cli.asks import simulated
from si.v1 import si_pb2 as si
from tests.cli import decided
from tests.cli.fake import FakeCore, running
from tests.cli.run import Ended, evenhand
from tests.cli.samples import T0, cores_and_gib

PLACED = simulate_pb2.ASK_OUTCOME_PLACED
GIB = 1 << 30


@pytest.fixture(scope="module")
def core() -> Iterator[FakeCore]:
    """Provide a core that places whatever it is asked about."""
    answer = simulate_pb2.AskSimulation(
        allocation_key="lab/train-1", outcome=PLACED, queue="root.research", node_id="node-a"
    )
    prepared = FakeCore(
        SimulateAsks=simulate_pb2.SimulateAsksResponse(asks=[answer], taken_at_ms=T0)
    )
    with running(prepared) as started:
        yield started


def pod(name: str = "train-1", **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "resources": {"requests": {"cpu": "500m", "memory": "2Gi"}}}
    wanted = {"schedulerName": "evenhand", "containers": [container], **spec}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "lab"},
        "spec": wanted,
    }


def priority_class(name: str, value: int, **more: Any) -> dict[str, Any]:
    return {"kind": "PriorityClass", "metadata": {"name": name}, "value": value, **more}


def written(folder: Path, *documents: Any) -> str:
    file = folder / "asks.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    return str(file)


def sent(core: FakeCore, file: str, *arguments: str) -> simulate_pb2.SimulateAsksRequest:
    """Return the request that reaches the core when a file is simulated."""
    ended = evenhand("simulate", "ask", file, *arguments, "--core", core.address)
    assert ended.code == 0, ended.err
    request = core.requests[-1]
    assert isinstance(request, simulate_pb2.SimulateAsksRequest)
    return request


def refused(core: FakeCore, file: str, *arguments: str) -> str:
    """Return the error text for a file that cannot be used."""
    before = len(core.requests)
    ended = evenhand("simulate", "ask", file, *arguments, "--core", core.address)
    assert (ended.code, ended.out, len(core.requests)) == (1, "", before)
    return ended.err


def amounts(message: si.Allocation) -> dict[str, int]:
    return {kind: one.value for kind, one in message.resourcePerAlloc.resources.items()}


# Pods -----------------------------------------------------------------------------------------------------------


def test_pods_of_a_cron_job_and_a_replication_controller(core: FakeCore, tmp_path: Path) -> None:
    template = {"spec": pod()["spec"]}
    job = {"parallelism": 2, "template": template}
    nightly = {
        "kind": "CronJob",
        "metadata": {"name": "nightly", "namespace": "lab"},
        "spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": job}},
    }
    old = {
        "kind": "ReplicationController",
        "metadata": {"name": "old", "namespace": "lab"},
        "spec": {"replicas": 3, "template": template},
    }
    assert len(sent(core, written(tmp_path, nightly)).asks) == 2
    assert len(sent(core, written(tmp_path, old)).asks) == 3


def test_a_pod_becomes_the_ask_that_the_shim_would_send(core: FakeCore, tmp_path: Path) -> None:
    manifest = pod(nodeSelector={"zone": "a"}, tolerations=[{"operator": "Exists"}])
    manifest["metadata"]["labels"] = {"applicationId": "train", "queue": "root.research"}
    request = sent(core, written(tmp_path, manifest))
    (one,) = request.asks
    assert (one.ask.allocationKey, one.ask.applicationID) == ("lab/train-1", "train")
    assert amounts(one.ask) == {"vcore": 500, "memory": 2 * GIB, "pods": 1}
    assert dict(one.ask.constraints.nodeSelector) == {"zone": "a"}
    assert one.ask.constraints.tolerations[0].operator == "Exists"
    assert (one.queue, one.application.queueName) == ("", "root.research")
    assert dict(one.application.tags) == {"namespace": "lab"}
    assert (one.application.ugi.user, request.partition) == ("nobody", "default")


def test_options_say_queue_namespace_and_partition(core: FakeCore, tmp_path: Path) -> None:
    manifest = pod()
    del manifest["metadata"]["namespace"]
    file = written(tmp_path, manifest)
    request = sent(core, file, "--queue", "root.b", "--namespace", "web", "--partition", "blue")
    (one,) = request.asks
    assert (one.queue, one.ask.allocationKey, request.partition) == (
        "root.b",
        "web/train-1",
        "blue",
    )
    assert dict(one.application.tags) == {"namespace": "web"}


def test_priority_classes_of_the_same_file_count(core: FakeCore, tmp_path: Path) -> None:
    willing = priority_class("high", 1000, preemptionPolicy="Never")
    kept = priority_class("kept", 50)
    kept["metadata"]["annotations"] = {"yunikorn.apache.org/allow-preemption": "false"}
    default = priority_class("usual", 7, globalDefault=True)
    pods = [
        pod("a", priorityClassName="high"),
        pod("b", priorityClassName="kept"),
        pod("c"),
        pod("d", priorityClassName="system-node-critical"),
    ]
    file = written(tmp_path, *pods, willing, kept, default)
    found = [one.ask for one in sent(core, file, "--priority", "99").asks]
    assert [one.priority for one in found] == [1000, 50, 7, 2_000_001_000]
    assert [one.preemptionPolicy.allowPreemptOther for one in found] == [False, True, True, True]
    assert [one.preemptionPolicy.allowPreemptSelf for one in found] == [True, False, True, True]
    assert found[3].protection == si.PROTECTION_UNTOUCHABLE


def test_a_priority_that_the_file_does_not_say(core: FakeCore, tmp_path: Path) -> None:
    unknown, plain = pod("a", priorityClassName="high"), pod("b")
    both = written(tmp_path, unknown, plain)
    assert [one.ask.priority for one in sent(core, both, "--priority", "99").asks] == [99, 99]
    printed = pod(priorityClassName="high", priority=1000, preemptionPolicy="Never")
    (one,) = sent(core, written(tmp_path, printed)).asks
    assert (one.ask.priority, one.ask.preemptionPolicy.allowPreemptOther) == (1000, False)
    told = refused(core, written(tmp_path, unknown))
    assert "the file holds no PriorityClass `high`" in told
    assert "kubectl get priorityclass high -o yaml" in told


def test_where_a_priority_comes_from_is_said(core: FakeCore, tmp_path: Path) -> None:
    more = tmp_path / "classes.yaml"
    usual = priority_class("usual", 100, globalDefault=True)
    more.write_text(yaml.safe_dump_all([priority_class("high", 1000), usual]))

    def said(spec: dict[str, Any], *arguments: str) -> str:
        file = written(tmp_path, pod("train-1", **spec))
        ended = evenhand("simulate", "ask", file, *arguments, "--core", core.address)
        return " ".join(ended.out.split())

    assert "priority 0: no priorityClassName, and the cluster's globalDefault" in said({})
    assert "--classes FILE or --priority N" in said({})
    assert "priority 9: --priority" in said({}, "--priority", "9")
    classes = ("--classes", str(more))
    assert "priority 100: PriorityClass usual, the globalDefault" in said({}, *classes)
    high = {"priorityClassName": "high"}
    assert "priority 1000: PriorityClass high" in said(high, *classes)
    assert "priority 5: written in the pod" in said({**high, "priority": 5})
    assert "namespace lab" in said({})


def test_a_pod_that_runs_is_taken_as_new(core: FakeCore, tmp_path: Path) -> None:
    manifest = pod(nodeName="node-b", schedulingGates=[{"name": "wait"}])
    manifest["metadata"] |= {
        "uid": "5d",
        "creationTimestamp": "2026-11-21T10:00:00Z",
        "deletionTimestamp": "2026-11-21T11:00:00Z",
        "annotations": {"evenhand.io/released-for": "g-1-1/x/node-b"},
    }
    manifest["status"] = {"phase": "Running"}
    file = written(tmp_path, manifest)
    (one,) = sent(core, file).asks
    assert (one.ask.nodeID, one.ask.startedAt, one.ask.HasField("releasing")) == ("", 0, False)
    ended = evenhand("simulate", "ask", file, "--core", core.address)
    assert "lab/train-1: its scheduling gates are taken as open" in ended.err


def test_what_is_not_followed_is_said(core: FakeCore, tmp_path: Path) -> None:
    claims: dict[str, Any] = {
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    }
    other = pod(**claims)
    del other["spec"]["schedulerName"]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    ended = evenhand("simulate", "ask", written(tmp_path, other, service), "--core", core.address)
    assert "volumes, affinity between pods and spread are not judged" in ended.err
    assert "it names the scheduler `default-scheduler`" in ended.err
    assert "left out: 1 Service" in ended.err


@pytest.mark.parametrize(
    ("kind", "spec", "count"),
    [
        ("Deployment", {"replicas": 3}, 3),
        ("ReplicaSet", {}, 1),
        ("StatefulSet", {"replicas": 2}, 2),
        ("Job", {"parallelism": 4, "completions": 2}, 2),
    ],
)
def test_workloads_are_all_their_pods(
    core: FakeCore, tmp_path: Path, kind: str, spec: dict[str, Any], count: int
) -> None:
    template = {"metadata": {"labels": {"applicationId": "a"}}, "spec": pod()["spec"]}
    item = {
        "kind": kind,
        "metadata": {"name": "front", "namespace": "web"},
        "spec": {**spec, "template": template},
    }
    found = sent(core, written(tmp_path, item)).asks
    assert len({one.ask.allocationKey for one in found}) == count
    assert all(one.ask.allocationKey.startswith("web/front-") for one in found)
    assert {one.ask.applicationID for one in found} == {"a"}


@pytest.mark.parametrize(("labelled", "size"), [("", 3), ("2", 2)])
def test_a_job_is_as_large_as_its_owner_wants_unless_a_label_says_it(
    core: FakeCore, tmp_path: Path, labelled: str, size: int
) -> None:
    job = "pod-group.scheduling.sigs.k8s.io"
    labels = {job: "train", **({f"{job}/min-available": labelled} if labelled else {})}
    item = {
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "web"},
        "spec": {
            "parallelism": 3,
            "completions": 9,
            "template": {"metadata": {"labels": labels}, "spec": pod()["spec"]},
        },
    }
    found = sent(core, written(tmp_path, item)).asks
    assert [(one.ask.jobKey, one.ask.jobMembers) for one in found] == [("train", size)] * 3


def test_a_list_and_a_namespace(core: FakeCore, tmp_path: Path) -> None:
    namespace = {"kind": "Namespace", "metadata": {"name": "lab", "annotations": {
        "yunikorn.apache.org/parentqueue": "root.tenants"}}}  # fmt: skip
    listed = {"kind": "List", "items": [pod("a"), pod("b")]}
    found = sent(core, written(tmp_path, namespace, listed)).asks
    assert [one.ask.allocationKey for one in found] == ["lab/a", "lab/b"]
    assert found[0].application.tags["namespace.parentqueue"] == "root.tenants"


def test_a_file_can_come_on_the_input(core: FakeCore) -> None:
    manifest = pod()
    manifest["metadata"] = {"generateName": "train-"}
    arguments = ["simulate", "ask", "-", "--core", core.address]
    result = CliRunner().invoke(app, arguments, input=yaml.safe_dump(manifest))
    assert result.exit_code == 0, result.stderr
    request = core.requests[-1]
    assert isinstance(request, simulate_pb2.SimulateAsksRequest)
    assert request.asks[0].ask.allocationKey == "default/train-x"


# The short form -------------------------------------------------------------------------------------------------


def test_the_short_form(core: FakeCore, tmp_path: Path) -> None:
    short = {
        "queue": "root.research.training",
        "application": "train-9",
        "resources": {"vcore": 4, "memory": "16Gi", "nvidia.com/gpu": 1},
        "priority": 100,
        "count": 2,
        "mayPreempt": False,
        "nodeSelector": {"zone": "a"},
        "requiredNode": "node-b",
        "jobKey": "job",
        "jobMembers": 2,
        "preemptible": False,
        "canPreempt": True,
        "user": "ada",
    }
    found = sent(core, written(tmp_path, short)).asks
    assert [one.ask.allocationKey for one in found] == ["ask-1-1", "ask-1-2"]
    one = found[0]
    assert amounts(one.ask) == {
        "vcore": 4_000, "memory": 16 * GIB, "nvidia.com/gpu": 1, "pods": 1,
    }  # fmt: skip
    assert (one.queue, one.ask.applicationID, one.ask.priority) == (
        "root.research.training",
        "train-9",
        100,
    )
    assert not one.ask.preemptionPolicy.allowPreemptOther
    assert one.ask.allocationTags["yunikorn.apache.org/requiredNode"] == "node-b"
    assert (one.ask.jobKey, one.ask.jobMembers, one.application.ugi.user) == ("job", 2, "ada")
    assert (one.ask.protection, one.ask.jobTrigger) == (si.PROTECTION_FIRM, si.JOB_TRIGGER_YES)


def test_several_in_the_short_form(core: FakeCore, tmp_path: Path) -> None:
    asks = {"asks": [
        {"name": "first", "resources": {"cpu": "250m"}},
        {"queue": "batch", "resources": {"vcore": "1"}},
    ]}  # fmt: skip
    found = sent(core, written(tmp_path, asks, pod()), "--priority", "5").asks
    assert [one.ask.allocationKey for one in found] == ["first", "ask-2", "lab/train-1"]
    assert [amounts(one.ask)["vcore"] for one in found] == [250, 1_000, 500]
    assert (found[1].queue, found[1].application.queueName) == ("", "batch")
    assert [one.ask.priority for one in found] == [5, 5, 5]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "holds no pod and no ask"),
        ("kind: Service\nmetadata: {name: s}\n", "holds no pod and no ask, only 1 Service"),
        ("kind: JobSet\nmetadata: {name: s}\n", "kubectl get pod NAME -o yaml"),
        ("kind: CronJob\nmetadata: {name: s}\n", "CronJob s: spec.jobTemplate.spec: is missing"),
        ("- 1\n", "asks.yaml:1"),
        ("a: [\n", "asks.yaml:2"),
        ("colour: red\n", "neither a Kubernetes object nor an ask"),
        ("kind: DaemonSet\nmetadata: {name: d}\n", "a pod for each node"),
        ("kind: Deployment\nspec: {}\n", "has no metadata.name"),
        ("kind: Deployment\nmetadata: {name: d}\nspec: {replicas: -1}\n", "has no pod spec"),
        ("kind: Pod\nspec: {containers: []}\n", "has no metadata"),
        ("kind: Pod\nmetadata: {name: p}\nspec: {containers: []}\n", "needs at least one"),
        ("kind: List\nitems: [1]\n", "items[0]"),
        ("kind: PriorityClass\nmetadata: {name: p}\nvalue: high\n", "whole value"),
        ("kind: PriorityClass\nmetadata: {name: 5}\n", "metadata.name"),
        ("kind: Namespace\nmetadata: {annotations: 5}\n", "metadata.annotations"),
        ("---\n\n---\nresources: {}\n", "asks.yaml:4"),
        ("resources: {vcore: 1}\ncolour: red\n", "colour: extra inputs"),
        ("resources: {vcore: 1}\ncount: 0\n", "count: input should be greater"),
        ("asks: 5\n", "`asks` is a list"),
        ("asks: [{resources: {memory: 5Gx}}]\n", "memory"),
        ("asks:\n- {resources: {vcore: 1}, priority: 5000000000}\n", "asks[0].priority"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used(core: FakeCore, tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "asks.yaml"
    file.write_text(text)
    assert told in refused(core, str(file))


def test_too_many_asks_and_several_partitions(
    core: FakeCore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blue = pod("b")
    blue["metadata"]["labels"] = {"evenhand.io/partition": "blue"}
    two = written(tmp_path, pod("a"), blue)
    assert "several partitions: blue, default" in refused(core, two)
    assert sent(core, two, "--partition", "blue").partition == "blue"
    monkeypatch.setattr("evenhand_cli.asks.reading.ASKS_MAX", 1)
    assert "more than 1 asks" in refused(core, two, "--partition", "blue")
    assert simulated.ASKS_MAX == 1_000


# What the core answers ------------------------------------------------------------------------------------------


def simulation(key: str, outcome: int, **more: Any) -> simulate_pb2.AskSimulation:
    return simulate_pb2.AskSimulation(
        allocation_key=key,
        outcome=outcome,  # type: ignore[arg-type]
        queue="root.research",
        resources=cores_and_gib(4, 8),
        priority=100,
        **more,
    )


def told(folder: Path, *answers: simulate_pb2.AskSimulation, width: int = 160) -> Ended:
    answer = simulate_pb2.SimulateAsksResponse(asks=answers, taken_at_ms=T0 + 95_000)
    with running(FakeCore(SimulateAsks=answer)) as core:
        return evenhand(
            "simulate", "ask", written(folder, pod()), "--core", core.address, width=width
        )


def would_go(name: str) -> decisions_pb2.Victim:
    one = decided.victim(name)
    one.ClearField("state")
    return one


def preempts(key: str = "lab/train-1") -> simulate_pb2.AskSimulation:
    return simulation(
        key,
        simulate_pb2.ASK_OUTCOME_PREEMPTS,
        node_id="node-a",
        victims=[would_go("count-1"), would_go("count-2")],
        spared=[decided.spared()],
        levels=[decided.level()],
        lines=["It would get node-a when 2 pods have gone."],
    )


def waits(key: str = "lab/train-1") -> simulate_pb2.AskSimulation:
    return simulation(
        key,
        simulate_pb2.ASK_OUTCOME_WAITS,
        verdict=decided.verdict(),
        lines=["It would wait: no node has enough free capacity."],
    )


def test_one_ask_says_who_would_go(tmp_path: Path) -> None:
    ended = told(tmp_path, preempts())
    assert ended.code == 0
    assert ended.out.startswith("lab/train-1  preempts\n  It would get node-a when 2 pods")
    assert ended.words("node  ") == ["node", "node-a"]
    assert "would be evicted: 2" in ended.out
    assert "leaving" not in ended.out
    assert "2 victims  root.batch is over its guarantee (rule 5, G4)" in ended.out
    assert "12 candidates: 12 below-guarantee (all: --output wide)" in ended.out
    assert ended.words("deciding")[0] == "root.research"


def test_one_ask_says_which_rule_blocks(tmp_path: Path) -> None:
    ended = told(tmp_path, waits())
    assert ended.out.startswith("lab/train-1  waits\n")
    assert "frees no capacity (`no-covering-victims`): node-b comes nearest" in ended.out
    assert "node-b lacks 1.5 cores" in ended.out


def test_several_asks_are_a_line_each_and_those_not_placed_in_detail(tmp_path: Path) -> None:
    side = simulation("t", simulate_pb2.ASK_OUTCOME_PREEMPTS, victims_elsewhere=3)
    ended = told(tmp_path, simulation("p", PLACED, node_id="n"), preempts("x"), waits("w"), side)
    assert ended.words("placed") == ["p", "root.research", "placed", "n", "0"]
    assert ended.words("preempts") == [
        "x", "root.research", "preempts", "node-a", "2", "crunch/count-1,", "crunch/count-2", "root.batch",
    ]  # fmt: skip
    assert ended.words("waits")[-1] == "no-covering-victims"
    assert "4 asks: 1 placed, 2 preempt, 1 waits; 5 allocations would be evicted" in ended.out
    assert "2 victims  root.batch is over its guarantee (rule 5, G4)" in ended.out
    assert "3 victims of other queues" in ended.out
    many = told(tmp_path, *(waits(f"w{number}") for number in range(12)))
    assert "10 more: --output wide" in many.out
    assert "12 asks: 12 wait; nothing would be evicted" in many.out


def test_a_refused_ask_ends_with_a_problem(tmp_path: Path) -> None:
    answer = simulation("a", simulate_pb2.ASK_OUTCOME_REFUSED, lines=["There is no queue root.x."])
    ended = told(tmp_path, answer)
    assert (ended.code, "There is no queue root.x." in ended.out) == (1, True)


def test_equal_refusals_are_told_once_with_what_to_do(tmp_path: Path) -> None:
    same = {"lines": ["There is no queue root.x."], "advice": "name a leaf queue with --queue"}
    refusals = [
        simulation(f"w{number}", simulate_pb2.ASK_OUTCOME_REFUSED, **same) for number in range(5)
    ]
    other = simulation("v", simulate_pb2.ASK_OUTCOME_REFUSED, lines=["It asks for nothing."])
    ended = told(tmp_path, *refusals, other, width=80)
    assert ended.out.count("There is no queue root.x.") == 1
    assert ended.out.count("do: name a leaf queue with --queue") == 1
    assert "w0 and 4 like it" in ended.out
    assert "6 asks: 6 refused; nothing would be evicted" in ended.out


def test_the_answer_as_json(core: FakeCore, tmp_path: Path) -> None:
    file = written(tmp_path, pod())
    value = evenhand("simulate", "ask", file, "-o", "json", "--core", core.address).value()
    (one,) = value["asks"]
    assert (one["outcome"], one["verdict"], value["taken_at_ms"]) == ("placed", None, T0)
    assert set(one) == {field.name for field in simulate_pb2.AskSimulation.DESCRIPTOR.fields}


# Another configuration ------------------------------------------------------------------------------------------


def over_max(**more: Any) -> simulate_pb2.QueueSimulation:
    return simulate_pb2.QueueSimulation(
        queue="root.batch",
        usage=cores_and_gib(24, 40),
        max=cores_and_gib(16, 64),
        target={"vcore": 8_000},
        **more,
    )


def configured(
    *queues: simulate_pb2.QueueSimulation, partition: dict[str, Any] | None = None, **more: Any
) -> FakeCore:
    found = simulate_pb2.PartitionSimulation(
        partition="default", queues=queues, **(partition or {})
    )
    answer = {"valid": True, "complete": True, "partitions": [found], "taken_at_ms": T0, **more}
    return FakeCore(SimulateConfiguration=simulate_pb2.SimulateConfigurationResponse(**answer))


def simulate_config(core: FakeCore, folder: Path, *arguments: str) -> Ended:
    file = folder / "queues.yaml"
    file.write_text("partitions: []\n")
    with running(core) as started:
        return evenhand(
            "simulate", "config", str(file), *arguments, "--core", started.address, width=200
        )


def test_a_lowered_max_says_who_goes_what_is_missing_and_when(tmp_path: Path) -> None:
    run = decided.quota_run().quota_run
    due = over_max(
        delay_ms=300_000,
        due_ms=T0 + 300_000,
        victims=[would_go("count-1")],
        run=run,
    )
    ended = simulate_config(configured(due), tmp_path)
    assert ended.code == 0
    words = ended.words("root.batch")
    assert words[:8] == ["root.batch", "cores", "24", "16", "8", "2", "1", "shortfall"]
    assert " ".join(words[8:]) == "after 5 m 00 s"


def test_warnings_are_silenced_by_the_text_and_by_the_option(tmp_path: Path) -> None:
    def warning(code: str) -> config_pb2.ConfigProblem:
        severity = config_pb2.PROBLEM_SEVERITY_WARNING
        return config_pb2.ConfigProblem(severity=severity, line=1, message="so", code=code)

    told_of = [warning("access-nobody"), warning("value-ignored")]
    core = configured(problems=told_of, silenced=[warning("weight-unused")])
    ended = simulate_config(core, tmp_path, "--ignore", "access-nobody")
    assert "1 warning: value-ignored; evenhand config check" in ended.out
    assert "2 warnings silenced: access-nobody (1), weight-unused (1)" in ended.out
    value = simulate_config(core, tmp_path, "--ignore", "access-nobody", "-o", "json").value()
    assert [one["code"] for one in value["problems"]] == ["value-ignored"]
    assert [one["code"] for one in value["silenced"]] == ["weight-unused", "access-nobody"]
    wrong = simulate_config(core, tmp_path, "--ignore", "access-nobdy")
    assert (wrong.code, "did you mean 'access-nobody'?" in wrong.err) == (2, True)


def test_a_max_that_nothing_enforces_is_said(tmp_path: Path) -> None:
    ended = simulate_config(
        configured(over_max(why_not="quota.preemption.delay is not set")), tmp_path
    )
    assert ended.words("root.batch")[-1] == "never"
    assert "what is not enforced" in ended.out
    assert "quota.preemption.delay is not set" in ended.out


def test_nothing_would_be_evicted(tmp_path: Path) -> None:
    ended = simulate_config(configured(assumptions=["nothing arrives"]), tmp_path)
    assert ended.code == 0
    assert ended.out.splitlines()[0] == "Nothing would be evicted."
    assert "after that nothing more happens by itself" in ended.out
    assert "assumed: nothing arrives" in ended.out


def test_a_simulation_that_was_cut_says_so_first(tmp_path: Path) -> None:
    core = configured(complete=False, cut=HORIZON, until_ms=86_400_000)
    first = simulate_config(core, tmp_path).out.splitlines()[0]
    assert first.startswith("Nothing would be evicted within 1 d 00 h.")
    assert f"What comes later was not judged: {HORIZON}." in first


def test_a_simulation_that_was_cut_at_its_first_instant_claims_no_instant(tmp_path: Path) -> None:
    core = configured(complete=False, cut="a simulation ends after 5,000 ticks of the core")
    ended = simulate_config(core, tmp_path)
    assert ended.out.startswith("Nothing would be evicted in what was simulated. What comes later")
    assert "simulated for a part of the instant at which it is applied" in ended.out


def test_a_quota_run_after_the_cut_is_not_judged(tmp_path: Path) -> None:
    due = over_max(due_ms=T0 + 30 * 3_600_000)
    core = configured(due, complete=False, cut=HORIZON, until_ms=86_400_000)
    ended = simulate_config(core, tmp_path)
    words = ended.words("root.batch")
    assert words[6:9] == ["-", "not", "judged"]


HORIZON = "a simulation looks 24 hours ahead"


def test_a_partition_that_was_not_judged_is_named_first(tmp_path: Path) -> None:
    first = simulate_config(configured(partition={"unsynced": True}), tmp_path).out.splitlines()[0]
    assert first.startswith("Partition default was not judged")


def test_nothing_is_said_of_the_partitions_that_were_judged_alone(tmp_path: Path) -> None:
    parts = [
        simulate_pb2.PartitionSimulation(partition="default", unsynced=True),
        simulate_pb2.PartitionSimulation(partition="other"),
    ]
    ended = simulate_config(configured(partitions=parts), tmp_path)
    assert ended.out.startswith("Nothing would be evicted elsewhere. Partition default was not")
    assert "to see whether its manager is there: evenhand health" in ended.out


def foreseen(at: int, victim: str, asker: str, after_ms: int = 4_000) -> Any:
    gets = decisions_pb2.Beneficiary(
        allocation_key=asker, name=asker, queue="root.prod", node_id=f"node-{at}"
    )
    goes = decisions_pb2.Victim(
        allocation_key=victim, name=victim, queue="root.batch", node_id=f"node-{at}"
    )
    decision = decisions_pb2.Decision(
        decision_id=f"g-{at}", policy="guaranteed", beneficiaries=[gets], victims=[goes]
    )
    return simulate_pb2.ForeseenDecision(after_ms=after_ms, decision=decision)


def test_victims_are_named_with_their_instants_and_preemptors(tmp_path: Path) -> None:
    decided = [foreseen(1, "night/b-1", "shop/web-1"), foreseen(2, "night/b-2", "shop/web-2")]
    decided[0].unchanged.append("night/b-1")
    ended = simulate_config(configured(partition={"decisions": decided}), tmp_path)
    assert ended.out.splitlines()[0] == (
        "2 pods of root.batch would be evicted within 4.0 s of applying it, in favour of 2 asks of root.prod. "
        "Without the change 1 of them would be evicted, too."
    )
    assert ended.words("night/b-1")[-5:] == [
        "shop/web-1",
        "root.prod",
        "night/b-1",
        "root.batch",
        "node-1",
    ]
    look, apply = ended.out.splitlines()[-2:]
    assert look == "to look at a victim: evenhand explain night/b-1"
    assert apply.startswith("to apply it: evenhand config apply ")


def test_many_decisions_that_are_alike_share_a_row(tmp_path: Path) -> None:
    decided = [foreseen(at, f"night/b-{at}", f"shop/web-{at}") for at in range(40)]
    core = configured(partition={"decisions": decided})
    ended = simulate_config(core, tmp_path)
    assert "40 asks of root.prod" in ended.out
    assert "40 pods of root.batch" in ended.out
    assert "night/b-7 and 32 more: --all" in ended.out
    assert "night/b-8" not in ended.out
    assert len(ended.out.splitlines()) <= 30
    assert "night/b-39" in simulate_config(core, tmp_path, "--all").out


def test_a_partition_that_would_observe_evicts_nothing(tmp_path: Path) -> None:
    partition = {"decisions": [foreseen(1, "night/b-1", "shop/web-1")], "observed": True}
    first = simulate_config(configured(partition=partition), tmp_path).out.splitlines()[0]
    assert first.startswith("Nothing would be evicted: the partition only observes.")


def test_shares_by_weight_are_shown_before_and_after(tmp_path: Path) -> None:
    numbers = simulate_pb2.QueueNumbers(held={"vcore": 8_000})
    shared = simulate_pb2.QueueNumbers(
        held={"vcore": 8_000}, proportional=True, deserved={"vcore": 6_000}
    )
    queue = simulate_pb2.QueueForecast(
        queue="root.batch", before=numbers, applied=shared, after=shared
    )
    ended = simulate_config(configured(partition={"forecasts": [queue]}), tmp_path)
    assert ended.words("root.batch")[1:] == ["cores", "8", "8", "-", "->", "6"]


def test_a_configuration_with_errors_is_not_simulated(tmp_path: Path) -> None:
    problem = config_pb2.ConfigProblem(
        severity=config_pb2.PROBLEM_SEVERITY_ERROR, line=3, message="no such key"
    )
    answer = simulate_pb2.SimulateConfigurationResponse(problems=[problem])
    ended = simulate_config(FakeCore(SimulateConfiguration=answer), tmp_path)
    assert ended.code == 1
    assert "queues.yaml:3: error: no such key" in ended.out


def test_the_simulated_configuration_as_json(tmp_path: Path) -> None:
    core = configured(over_max(run=decided_run()))
    value = simulate_config(core, tmp_path, "-o", "json").value()
    (queue,) = value["partitions"][0]["queues"]
    assert (queue["run"]["result"], queue["target"]) == ("complete", {"vcore": 8_000})
    assert value["source"].endswith("queues.yaml")
    (request,) = core.requests
    assert isinstance(request, simulate_pb2.SimulateConfigurationRequest)
    assert request.yaml == "partitions: []\n"


def decided_run() -> decisions_pb2.QuotaRun:
    return decisions_pb2.QuotaRun(
        queue="root.batch", result=decisions_pb2.QUOTA_RESULT_COMPLETE, freed={"vcore": 8_000}
    )
