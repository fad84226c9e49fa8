"""Errors say what is wrong, where, and what to do; nothing is written to the standard output."""

import socket
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2  # type: ignore[import-untyped]

from evenhand.v1 import config_pb2, decisions_pb2, explain_pb2, inspect_pb2, simulate_pb2
from evenhand_cli.rpc_faults import fault_of, reason_of
from tests.cli import samples
from tests.cli.fake import Failure, FakeCore, running
from tests.cli.run import Ended, evenhand


def fault(ended: Ended) -> dict[str, str]:
    """Return the parts of a fault by their words, after a check that the output is empty."""
    assert ended.out == ""
    assert "Traceback" not in ended.err
    parts: dict[str, str] = {}
    for line in ended.err.splitlines():
        word, colon, rest = line.partition(":")
        if colon and word in ("error", "where", "do"):
            parts[word] = rest.strip()
    return parts


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    "command",
    [["queues"], ["nodes", "-o", "json"], ["explain", "x"], ["events"], ["doctor"], ["health"]],
)
def test_no_core_there(command: list[str], free_port: int) -> None:
    ended = evenhand(*command, "--core", f"127.0.0.1:{free_port}")
    told = fault(ended)
    assert ended.code == 3
    assert told["error"] == f"cannot reach the core at 127.0.0.1:{free_port}"
    assert "refused" in told["where"]
    assert "evenhand serve" in told["do"]


def test_the_address_may_come_from_the_environment(free_port: int) -> None:
    ended = evenhand("queues", EVENHAND_CORE=f"127.0.0.1:{free_port}")
    assert str(free_port) in fault(ended)["error"]


def test_a_silent_core_is_given_up_after_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        ended = evenhand("queues", "--core", address, "--timeout", "0.2")
    assert ended.code == 3
    assert "--timeout" in fault(ended)["do"]


def test_version_tells_its_own_without_a_core(free_port: int) -> None:
    ended = evenhand("version", "-o", "json", "--core", f"127.0.0.1:{free_port}")
    assert ended.code == 0
    assert ended.value()["core"] is None


def test_a_mistyped_command_is_guessed() -> None:
    ended = evenhand("heatlh")
    assert ended.code == 2
    assert "Did you mean 'health'" in ended.err


@pytest.mark.parametrize("address", ["nowhere", ":1", "127.0.0.1:x"])
def test_an_address_of_another_form(address: str) -> None:
    ended = evenhand("queues", "--core", address)
    assert ended.code == 2
    assert fault(ended)["do"] == "write HOST:PORT, such as 127.0.0.1:50051"


def test_details_of_the_status_name_the_field() -> None:
    violation = error_details_pb2.BadRequest.FieldViolation(
        field="partition", description="unknown"
    )
    help_link = error_details_pb2.Help.Link(description="list them first")
    failure = Failure(
        grpc.StatusCode.INVALID_ARGUMENT,
        "no partition `x`",
        (
            error_details_pb2.BadRequest(field_violations=[violation]),
            error_details_pb2.Help(links=[help_link]),
        ),
    )
    with running(FakeCore(ListNodes=failure)) as core:
        ended = evenhand("nodes", "-p", "x", "--core", core.address)
    assert ended.code == 1
    assert fault(ended) == {
        "error": "no partition `x`",
        "where": "partition: unknown",
        "do": "list them first",
    }


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (grpc.StatusCode.UNAUTHENTICATED, "--token-file"),
        (grpc.StatusCode.PERMISSION_DENIED, "role"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "--timeout"),
    ],
)
def test_a_refusal_says_what_would_help(code: grpc.StatusCode, advice: str) -> None:
    with running(FakeCore(ListPartitions=Failure(code, "no"))) as core:
        ended = evenhand("partitions", "--core", core.address)
    assert ended.code == 3
    assert advice in fault(ended)["do"]


def test_another_server_than_a_core() -> None:
    with running(FakeCore()) as core:
        ended = evenhand("partitions", "--core", core.address)
    assert ended.code == 3
    assert "evenhand version" in fault(ended)["do"]


def test_an_unknown_key_brings_near_ones() -> None:
    """What has a name is offered by its name, and not by its key."""
    named = samples.allocation("train-77")
    named.name = "lab/other"
    prepared = FakeCore(
        Explain=explain_pb2.ExplainResponse(kind=explain_pb2.SUBJECT_KIND_UNKNOWN, key="train-7"),
        ListAllocations=inspect_pb2.ListAllocationsResponse(
            allocations=[samples.waiting_ask("train-1-a"), samples.allocation("other"), named]
        ),
        ListDecisions=decisions_pb2.ListDecisionsResponse(),
        ListApplications=inspect_pb2.ListApplicationsResponse(applications=[samples.application()]),
        GetQueueTree=inspect_pb2.GetQueueTreeResponse(),
        ListNodes=inspect_pb2.ListNodesResponse(nodes=[samples.node()]),
    )
    with running(prepared) as core:
        ended = evenhand("explain", "train-7", "--core", core.address)
    assert ended.code == 1
    assert fault(ended)["do"] == "did you mean `train-1` or `train-1-a`?"


def test_a_pod_that_is_gone_is_not_taken_for_another_of_its_workload() -> None:
    """A restarted core has forgotten what it evicted, and says since when it knows of decisions."""
    pod = samples.allocation("key-of-b-003")
    pod.tags["kubernetes.io/meta/namespace"] = "night"
    pod.tags["kubernetes.io/meta/podName"] = "b-003"
    prepared = FakeCore(
        Explain=explain_pb2.ExplainResponse(kind=explain_pb2.SUBJECT_KIND_UNKNOWN),
        ListAllocations=inspect_pb2.ListAllocationsResponse(allocations=[pod]),
        ListApplications=inspect_pb2.ListApplicationsResponse(),
        ListNodes=inspect_pb2.ListNodesResponse(),
        GetQueueTree=inspect_pb2.GetQueueTreeResponse(),
        ServerInfo=inspect_pb2.ServerInfoResponse(started_at_ms=samples.T0),
    )
    with running(prepared) as core:
        ended = evenhand("explain", "night/b-004", "--core", core.address)
    assert ended.code == 1
    assert "night/b-003" not in ended.err
    assert "decisions are known since the core started" in ended.err
    assert "evenhand replay TRACE --explain KEY" in ended.err


def test_a_name_of_several_pods_is_not_guessed() -> None:
    pods = []
    for namespace in ("red", "blue"):
        pod = samples.allocation(f"key-{namespace}")
        pod.tags["kubernetes.io/meta/namespace"] = namespace
        pod.tags["kubernetes.io/meta/podName"] = "web-0"
        pods.append(pod)
    prepared = FakeCore(
        Explain=explain_pb2.ExplainResponse(kind=explain_pb2.SUBJECT_KIND_UNKNOWN),
        ListAllocations=inspect_pb2.ListAllocationsResponse(allocations=pods),
    )
    with running(prepared) as core:
        ended = evenhand("explain", "web-0", "--core", core.address)
    assert ended.code == 1
    assert fault(ended)["error"] == "2 pods have the name `web-0`"
    assert fault(ended)["do"] == "say which: `blue/web-0` or `red/web-0`"


def test_an_unknown_queue_brings_near_ones() -> None:
    prepared = FakeCore(
        GetQueueTree=inspect_pb2.GetQueueTreeResponse(tree=samples.queue_tree()),
        ListPartitions=inspect_pb2.ListPartitionsResponse(partitions=[samples.partition()]),
    )
    with running(prepared) as core:
        ended = evenhand("queues", "root.reserch", "--core", core.address)
    assert fault(ended)["do"] == "did you mean `root.research`?"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    missing = tmp_path / "queues.yaml"
    for command in (["config", "check"], ["config", "apply"]):
        ended = evenhand(*command, str(missing))
        assert ended.code == 1
        assert fault(ended)["error"] == f"cannot read {missing}: no such file or directory"


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "queues.yaml"
    file.write_bytes(b"partitions:\n- name: \xff\n")
    assert fault(evenhand("config", "check", str(file)))["where"] == f"{file}:2"


def test_a_certificate_without_its_key(tmp_path: Path) -> None:
    ended = evenhand("queues", "--tls-cert", str(tmp_path / "a.pem"))
    assert ended.code == 2
    assert fault(ended)["where"] == "--tls-cert without --tls-key"


def test_a_token_goes_with_every_question(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret-1\n")
    answer = inspect_pb2.ListPartitionsResponse()
    with running(FakeCore(ListPartitions=answer)) as core:
        evenhand("partitions", "--core", core.address, "--token-file", str(file))
    assert core.metadata[-1]["authorization"] == "Bearer secret-1"


def test_a_token_file_without_a_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("\n")
    assert "holds no token" in fault(evenhand("queues", "--token-file", str(file)))["error"]


NOW = inspect_pb2.ServerInfoResponse()


def test_apply_with_an_error_leaves_the_old_one(tmp_path: Path) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text("partitions: []\n")
    answer = config_pb2.ApplyResponse(problems=samples.problems())
    with running(FakeCore(Apply=answer, ServerInfo=NOW)) as core:
        ended = evenhand("config", "apply", str(file), "--core", core.address)
        value = evenhand("config", "apply", str(file), "--core", core.address, "-o", "json")
    assert ended.code == value.code == 1
    assert f"{file}:7: error: `12Gx` is not a quantity" in ended.out.replace("\n", "")
    assert "the old configuration stays" in ended.out
    assert value.value()["applied"] is False


def test_apply_shows_what_changes(tmp_path: Path) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text("partitions: []\n")
    change = config_pb2.ConfigChange(
        kind="changed", subject="queue root.a", field="max.memory", before="8Gi", after="4Gi"
    )
    answer = config_pb2.ApplyResponse(changes=[change])
    simulated = simulate_pb2.SimulateConfigurationResponse(valid=True, complete=True)
    with running(FakeCore(Apply=answer, ServerInfo=NOW, SimulateConfiguration=simulated)) as core:
        ended = evenhand("config", "apply", str(file), "--dry-run", "--core", core.address)
        request = core.requests[1]
    assert ended.code == 0
    assert ended.out.splitlines()[0] == "Nothing would be evicted."
    assert "~ queue root.a max.memory: 8Gi -> 4Gi" in ended.out
    assert isinstance(request, config_pb2.ApplyRequest)
    assert request.dry_run


def test_a_dry_run_names_the_codes_of_warnings_and_tells_them_with_all(tmp_path: Path) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text("partitions: []\n")
    warnings = [
        config_pb2.ConfigProblem(
            severity=config_pb2.PROBLEM_SEVERITY_WARNING,
            message=f"delay {line}",
            line=line,
            code="delay-unused",
        )
        for line in (3, 5)
    ]
    answer = config_pb2.ApplyResponse(problems=warnings)
    simulated = simulate_pb2.SimulateConfigurationResponse(valid=True, complete=True)
    asked = ("config", "apply", str(file), "--dry-run")
    with running(FakeCore(Apply=answer, ServerInfo=NOW, SimulateConfiguration=simulated)) as core:
        brief = evenhand(*asked, "--core", core.address, width=200).out
        whole = evenhand(*asked, "--all", "--core", core.address, width=200).out
    assert f"2 warnings: delay-unused (2); evenhand config check {file}" in brief
    assert "delay 5" not in brief
    assert f"{file}:5: warning: delay 5  [delay-unused]" in whole


class _Cancelled(grpc.RpcError):
    """A call that was cancelled here while the core refused it: the status of the core has another code."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.CANCELLED

    def details(self) -> str:
        return "cancelled"

    def trailing_metadata(self) -> Any:
        return Failure(grpc.StatusCode.UNIMPLEMENTED, "no").status().trailing_metadata


def test_a_call_that_was_cancelled_while_it_failed_has_a_fault() -> None:
    error = _Cancelled()
    assert reason_of(error) == ""
    found = fault_of(error, "core:1", secure=False)
    assert (found.what, found.where) == ("cancelled", "core at core:1")
