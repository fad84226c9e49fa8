"""The rights of callers: every RPC of every service against every role, and the identification of callers."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from evenhand.v1 import (
    config_pb2,
    config_pb2_grpc,
    decisions_pb2,
    explain_pb2,
    history_pb2,
    inspect_pb2,
    inspect_pb2_grpc,
    replication_pb2,
    reports_pb2,
    simulate_pb2,
    watch_pb2,
)
from server.rpc.identity import Identities, digest, roles, tokens
from server.rpc.roles import DEEDS, OPEN, TABLE, Caller, Role
from si.v1 import si_pb2
from tests.rpc.harness import reason, refusal, serving, with_identities

FILES = (
    si_pb2,
    inspect_pb2,
    explain_pb2,
    config_pb2,
    watch_pb2,
    decisions_pb2,
    simulate_pb2,
    reports_pb2,
    replication_pb2,
    history_pb2,
    health_pb2,
    reflection_pb2,
)
CALLERS = {role: Caller(role.value, role) for role in Role}
KNOWN = Identities(
    open_to_all=False, tokens={digest(f"token-of-{role}"): CALLERS[role] for role in Role}
)

MAY = {
    "si.v1.Scheduler": "shim operator",
    "evenhand.v1.InspectService": "operator",
    "evenhand.v1.InspectService/ListPartitions": "viewer operator",
    "evenhand.v1.InspectService/GetQueueTree": "viewer operator",
    "evenhand.v1.InspectService/ListQueueSettings": "viewer operator",
    "evenhand.v1.InspectService/ListApplications": "viewer operator",
    "evenhand.v1.InspectService/ListAllocations": "viewer operator",
    "evenhand.v1.InspectService/ServerInfo": "shim viewer operator",
    "evenhand.v1.ExplainService": "viewer operator",
    "evenhand.v1.ConfigurationService": "operator",
    "evenhand.v1.ConfigurationService/Validate": "shim operator",
    "evenhand.v1.ConfigurationService/Apply": "shim operator",
    "evenhand.v1.WatchService/WatchQueues": "viewer operator",
    "evenhand.v1.WatchService/WatchEvents": "viewer operator",
    "evenhand.v1.DecisionService": "viewer operator",
    "evenhand.v1.SimulateService": "operator",
    "evenhand.v1.SimulateService/SimulateAsks": "viewer operator",
    "evenhand.v1.ReportService": "viewer operator",
    "evenhand.v1.ReplicationService/Follow": "follower operator",
    "evenhand.v1.ReplicationService/GetReplication": "shim viewer operator follower",
    "evenhand.v1.ReplicationService/Acknowledge": "operator follower",
    "evenhand.v1.ReplicationService/HandOver": "operator",
    "evenhand.v1.ReplicationService/GetMove": "operator",
    "evenhand.v1.ReplicationService/ExportPartition": "operator",
    "evenhand.v1.ReplicationService/ImportPartition": "operator",
    "evenhand.v1.ReplicationService/CompleteMove": "operator",
    "evenhand.v1.ReplicationService/CancelMove": "operator",
    "evenhand.v1.HistoryService": "viewer operator",
    "evenhand.v1.HistoryService/ListConfigurations": "operator",
    "evenhand.v1.HistoryService/GetConfiguration": "operator",
    "evenhand.v1.HistoryService/ListFailovers": "operator",
    "grpc.reflection.v1alpha.ServerReflection": "shim viewer operator",
    "grpc.health.v1.Health": "shim viewer operator metrics follower nobody",
}
"""The expected rights by service, and by method where one differs, written apart from the table under test."""


def services() -> Iterator[ServiceDescriptor]:
    for file in FILES:
        yield from file.DESCRIPTOR.services_by_name.values()


def methods() -> list[str]:
    return [
        f"{service.full_name}/{method.name}" for service in services() for method in service.methods
    ]


def test_every_rpc_has_a_row() -> None:
    assert {f"/{method}" for method in methods()} == {*TABLE, *OPEN}
    assert set(DEEDS) == set(TABLE)


@pytest.mark.parametrize("method", methods())
async def test_every_rpc_against_every_role(method: str) -> None:
    expected = MAY.get(method) or MAY[method.split("/", maxsplit=1)[0]]
    async with serving(with_identities(KNOWN)) as served:
        for role in (*Role, None):
            allowed = (role or "nobody") in expected.split()
            metadata = (("authorization", f"Bearer token-of-{role}"),) if role else None
            raw: Any = served.channel.stream_stream(f"/{method}")
            call = raw(metadata=metadata)
            if allowed:
                # Malformed on purpose: who may call is told so, and nothing happens. Who may not is refused before any message,
                # and writes none here: a write that fails because the call has ended gives it the client's own status, INTERNAL.
                await call.write(b"\xff")
            code = await call.code()
            if allowed:
                assert code is grpc.StatusCode.INVALID_ARGUMENT, (role, code)
            elif role:
                assert code is grpc.StatusCode.PERMISSION_DENIED, role
            else:
                assert code is grpc.StatusCode.UNAUTHENTICATED


async def test_without_identities_the_caller_on_loopback_is_the_operator() -> None:
    async with serving() as served:
        stub = config_pb2_grpc.ConfigurationServiceStub(served.channel)
        await stub.Get(config_pb2.GetRequest())
        unknown = (("authorization", "Bearer nobody-gave-me-this"),)
        call = stub.Get(config_pb2.GetRequest(), metadata=unknown)
        assert (await refusal(call))[:2] == (grpc.StatusCode.UNAUTHENTICATED, "UNKNOWN_CALLER")


async def test_an_unknown_method_is_unimplemented() -> None:
    async with serving() as served:
        raw: Any = served.channel.unary_unary("/si.v1.Scheduler/Nothing")
        assert (await refusal(raw(b"")))[0] is grpc.StatusCode.UNIMPLEMENTED


async def test_health_needs_no_role_and_reflection_any() -> None:
    async with serving(with_identities(KNOWN)) as served:
        health: Any = health_pb2_grpc.HealthStub(served.channel)
        for name in ("", "si.v1.Scheduler", "evenhand.v1.WatchService"):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=name))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        token = (("authorization", "Bearer token-of-viewer"),)
        channel: Any = served.channel
        reflection: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
        call = reflection.ServerReflectionInfo(metadata=token)
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        found = {one.name for one in (await call.read()).list_services_response.service}
        assert {service.full_name for service in services()} == found
        await call.done_writing()


def test_tokens_are_read_from_yaml_and_kept_as_digests() -> None:
    text = "tokens: [{token: 0123456789abcdef, role: viewer, queue: root.a, name: anna}]"
    assert tokens(text) == {digest("0123456789abcdef"): Caller("anna", Role.VIEWER, "root.a")}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("tokens: [{token: short, role: viewer}]", "tokens.0.token: "),
        ("tokens: [{token: 0123456789abcdef, role: king}]", "tokens.0.role: "),
        ("tokens: [{token: 0123456789abcdef, role: viewer, queue: a}]", "tokens.0.queue: "),
        ("tokens: [{token: 0123456789abcdef, role: viewer, more: 1}]", "tokens.0.more: "),
        (
            "tokens: [{token: 0123456789abcdef, role: operator, queue: root.a}]",
            "tokens.0: .*queue is for the role viewer, not for operator",
        ),
        ("tokens: [", "line "),
        ("[]", ": "),
    ],
)
def test_a_wrong_tokens_file_is_refused_without_repeating_it(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as found:
        tokens(text)
    assert "0123456789abcdef" not in str(found.value)
    assert "short" not in str(found.value).replace("shorter", "")


def test_a_name_of_two_roles_is_refused() -> None:
    text = "certificates: [{name: Ada.example, role: operator}, {name: ada.example, role: shim}]"
    with pytest.raises(ValueError, match=r"certificates\.1: ada\.example has an entry above"):
        roles(text)


def test_a_token_of_two_roles_is_refused_without_repeating_it() -> None:
    one = "{token: 0123456789abcdef, role: %s}"
    with pytest.raises(ValueError, match=r"tokens\.1: this token has an entry above") as found:
        tokens(f"tokens: [{one % 'viewer'}, {one % 'operator'}]")
    assert "0123456789abcdef" not in str(found.value)


def test_names_of_hosts_have_no_case_and_uris_have_one() -> None:
    text = "certificates: [{name: Ada.Example, role: operator}, {name: 'spiffe://M/A', role: shim}]"
    assert set(roles(text).callers) == {"ada.example", "spiffe://M/A"}


async def test_what_a_denied_call_says() -> None:
    async with serving(with_identities(KNOWN)) as served:
        stub = inspect_pb2_grpc.InspectServiceStub(served.channel)
        token = (("authorization", "Bearer token-of-viewer"),)
        call = stub.ListNodes(inspect_pb2.ListNodesRequest(), metadata=token)
        code, why, _ = await refusal(call)
        assert (code, why) == (grpc.StatusCode.PERMISSION_DENIED, "ROLE_DENIED")
        told = await call.details()
        assert told == "your role (viewer of root) may not list nodes; ask an operator"
        assert reason(None) == ""
