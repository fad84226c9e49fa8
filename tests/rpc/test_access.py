"""Addresses, TLS and files: what `serve` accepts and refuses, and how callers are identified by TLS."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc

from evenhand.v1 import config_pb2, config_pb2_grpc, inspect_pb2, inspect_pb2_grpc
from scripts.real.cluster import free_ports
from server.bootstrap import Exit, ServeOptions, serve
from server.rpc import callers, probes
from server.rpc.access import Access, BadOptionError, address, is_loopback
from server.rpc.errors import CallError
from server.rpc.identity import Identities, authentication
from server.rpc.roles import Caller, Role
from tests.rpc.harness import PATIENCE_S, refusal

TOKENS = """
tokens:
  - {token: operator-0123456789, role: operator, name: olga}
  - {token: viewer-0123456789abc, role: viewer, queue: root.a}
  - {token: metrics-0123456789ab, role: metrics}
"""
ROLES = """
certificates:
  - {name: shim.test, role: shim}
  - {name: admin.test, role: operator}
  - {name: scraper.test, role: metrics}
"""

HEALTH: Any = health_pb2.DESCRIPTOR.services_by_name["Health"]
LIST = GetMessageClass(HEALTH.methods_by_name["List"].input_type)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),  # noqa: S104 - only looked at
        ("::", False),
        ("10.0.0.1", False),
        ("core.example", False),
        ("127.0.0.1.example", False),
    ],
)
def test_loopback(host: str, *, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_addresses() -> None:
    assert address("--listen", "127.0.0.1:0") == ("127.0.0.1", 0)
    assert address("--listen", "[::1]:50051") == ("::1", 50051)
    for text in ("", "50051", ":50051", "host", "host:", "host:x", "host:65536", "host:-1"):
        with pytest.raises(BadOptionError, match="--listen"):
            address("--listen", text)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (ServeOptions("0.0.0.0:0"), "--listen 0.0.0.0:0 can be reached from outside"),
        (ServeOptions("127.0.0.1:0", metrics="0.0.0.0:0"), "--metrics 0.0.0.0:0 can be"),
        (ServeOptions("nowhere"), "is no address"),
        (ServeOptions("127.0.0.1:0", health="nowhere"), "--health 'nowhere' is no address"),
        (ServeOptions("127.0.0.1:0", Path("absent.yaml")), "absent.yaml"),
        (ServeOptions("127.0.0.1:0", access=Access(tls_cert=Path("c"))), "given together"),
        (ServeOptions("127.0.0.1:0", access=Access(roles_file=Path("r"))), "--roles needs"),
        (ServeOptions("127.0.0.1:0", access=Access(tokens_file=Path("absent"))), "absent: "),
        (
            ServeOptions("127.0.0.1:0", access=Access(tls_cert=Path("c"), tls_key=Path("k"))),
            "no caller could identify",
        ),
    ],
)
async def test_wrong_options_end_with_a_complaint(options: ServeOptions, complaint: str) -> None:
    said: list[str] = []
    code = await serve(options, ready=_never, errors=said.append)
    assert code == Exit.BAD_OPTIONS
    assert complaint in said[0]


def _never(where: str) -> None:
    raise AssertionError(f"it listens at {where}")


async def test_a_wrong_configuration_file_is_told_line_by_line(tmp_path: Path) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text("partitions:\n  - name: default\n    queue: []\n")
    said: list[str] = []
    options = ServeOptions("127.0.0.1:0", file)
    assert await serve(options, ready=_never, errors=said.append) == Exit.BAD_OPTIONS
    assert f"{file}:3: error: partitions[0].queue" in said[0]


async def test_a_port_that_is_taken_ends_with_a_complaint() -> None:
    async with running(ServeOptions("127.0.0.1:0")) as where:
        said: list[str] = []
        code = await serve(ServeOptions(where), ready=_never, errors=said.append)
        assert code == Exit.NO_ADDRESS
        assert where in said[0]


@asynccontextmanager
async def running(options: ServeOptions) -> AsyncIterator[str]:
    """Hold a server in this process until the block ends, and yield its address."""
    where: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(options, ready=where.set_result))
    first: set[Any] = {task, where}
    await asyncio.wait(first, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
    try:
        yield where.result()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def files(tmp_path: Path, *, clients: bool, tokens: bool) -> tuple[Access, trustme.CA]:
    """Provide certificates of a test authority, and the files of roles and tokens."""
    authority = trustme.CA()
    own = authority.issue_cert("127.0.0.1")
    own.private_key_pem.write_to_path(tmp_path / "key")
    own.cert_chain_pems[0].write_to_path(tmp_path / "cert")
    authority.cert_pem.write_to_path(tmp_path / "ca")
    (tmp_path / "tokens").write_text(TOKENS)
    (tmp_path / "roles").write_text(ROLES)
    access = Access(
        tls_cert=tmp_path / "cert",
        tls_key=tmp_path / "key",
        tls_client_ca=tmp_path / "ca" if clients else None,
        tokens_file=tmp_path / "tokens" if tokens else None,
        roles_file=tmp_path / "roles" if clients else None,
    )
    return access, authority


def channel(where: str, authority: trustme.CA, name: str = "") -> grpc.aio.Channel:
    """Return a channel over TLS, with a client certificate for the name."""
    own = authority.issue_cert(name) if name else None
    credentials = grpc.ssl_channel_credentials(
        authority.cert_pem.bytes(),
        own.private_key_pem.bytes() if own else None,
        own.cert_chain_pems[0].bytes() if own else None,
    )
    return grpc.aio.secure_channel(where, credentials)


async def test_a_certificate_name_gives_the_role(tmp_path: Path) -> None:
    access, authority = files(tmp_path, clients=True, tokens=False)
    async with running(ServeOptions("127.0.0.1:0", access=access)) as where:
        async with channel(where, authority, "admin.test") as admin:
            await config_pb2_grpc.ConfigurationServiceStub(admin).Get(config_pb2.GetRequest())
        async with channel(where, authority, "shim.test") as shim:
            stub = config_pb2_grpc.ConfigurationServiceStub(shim)
            await stub.Validate(config_pb2.ValidateRequest())
            denied = await refusal(stub.Get(config_pb2.GetRequest()))
            assert denied[0] is grpc.StatusCode.PERMISSION_DENIED
        async with channel(where, authority, "stranger.test") as stranger:
            stub = config_pb2_grpc.ConfigurationServiceStub(stranger)
            unknown = await refusal(stub.Get(config_pb2.GetRequest()))
            assert unknown[:2] == (grpc.StatusCode.UNAUTHENTICATED, "UNKNOWN_CALLER")


async def test_strangers_do_not_connect(tmp_path: Path) -> None:
    access, authority = files(tmp_path, clients=True, tokens=False)
    other = trustme.CA()
    async with running(ServeOptions("127.0.0.1:0", access=access)) as where:
        for wrong in (channel(where, authority), channel(where, other, "shim.test")):
            async with wrong:
                stub = inspect_pb2_grpc.InspectServiceStub(wrong)
                call = stub.ServerInfo(inspect_pb2.ServerInfoRequest())
                assert (await refusal(call))[0] is grpc.StatusCode.UNAVAILABLE


async def test_a_probe_without_a_certificate_asks_the_port_for_health(tmp_path: Path) -> None:
    access, _ = files(tmp_path, clients=True, tokens=False)
    probed = f"127.0.0.1:{free_ports(1)[0]}"
    options = ServeOptions("127.0.0.1:0", access=access, health=probed)
    async with running(options), grpc.aio.insecure_channel(probed) as plain:
        stub: Any = health_pb2_grpc.HealthStub(plain)
        answer = await stub.Check(health_pb2.HealthCheckRequest())
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        other = inspect_pb2_grpc.InspectServiceStub(plain)
        refused = await refusal(other.ServerInfo(inspect_pb2.ServerInfoRequest()))
        assert refused[0] is grpc.StatusCode.UNIMPLEMENTED, "nothing else is served there"


async def test_watches_of_health_are_limited_and_give_way_when_they_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probes, "HEALTH_WATCHES_MAX", 2)
    probed = f"127.0.0.1:{free_ports(1)[0]}"
    async with (
        running(ServeOptions("127.0.0.1:0", health=probed)) as where,
        grpc.aio.insecure_channel(probed) as plain,
        grpc.aio.insecure_channel(where) as guarded,
    ):
        stubs: list[Any] = [health_pb2_grpc.HealthStub(way) for way in (plain, guarded)]
        one, other = stubs
        first, second = await watched(one), await watched(other)
        for stub in stubs:
            third = stub.Watch(health_pb2.HealthCheckRequest())
            assert (await refusal(third.read()))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        first.cancel()
        await until_watched(other)
        assert not second.done()


async def test_a_probe_has_capacity_on_its_own_port_whatever_comes_to_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(callers, "MOST_IN_ALL", {**callers.MOST_IN_ALL, callers.CHECKS: 1})
    probed = f"127.0.0.1:{free_ports(1)[0]}"
    async with (
        running(ServeOptions("127.0.0.1:0", health=probed)) as where,
        grpc.aio.insecure_channel(probed) as plain,
        grpc.aio.insecure_channel(where) as guarded,
    ):
        silent = guarded.stream_stream("/grpc.health.v1.Health/Check")()  # type: ignore[var-annotated]
        await silent.wait_for_connection()
        own, other = (health_pb2_grpc.HealthStub(way) for way in (plain, guarded))
        question: Any = health_pb2.HealthCheckRequest()
        asked: Any = other
        assert (await refusal(asked.Check(question)))[:2] == (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "LIMIT_REACHED",
        )
        asked = own
        assert (await asked.Check(question)).status == health_pb2.HealthCheckResponse.SERVING
        silent.cancel()


async def test_health_is_told_of_each_service_and_of_all() -> None:
    async with (
        running(ServeOptions("127.0.0.1:0")) as where,
        grpc.aio.insecure_channel(where) as plain,
    ):
        stub: Any = health_pb2_grpc.HealthStub(plain)
        answer = await stub.Check(health_pb2.HealthCheckRequest(service="si.v1.Scheduler"))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        absent = stub.Check(health_pb2.HealthCheckRequest(service="absent"))
        assert (await refusal(absent))[:2] == (grpc.StatusCode.NOT_FOUND, "NOT_FOUND")
        unknown = stub.Watch(health_pb2.HealthCheckRequest(service="absent"))
        assert (await unknown.read()).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        every = await stub.List(LIST())
        assert {"", "si.v1.Scheduler"} < set(every.statuses)


async def watched(stub: Any) -> Any:
    """Return a watch that has answered once."""
    watch = stub.Watch(health_pb2.HealthCheckRequest())
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
    return watch


async def until_watched(stub: Any) -> None:
    """Try until there is a place for another watch: the end of one arrives later than its cancellation."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            watch = stub.Watch(health_pb2.HealthCheckRequest())
            with suppress(grpc.aio.AioRpcError):
                assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
                return


async def test_a_token_gives_the_role_over_tls(tmp_path: Path) -> None:
    access, authority = files(tmp_path, clients=False, tokens=True)
    async with (
        running(ServeOptions("127.0.0.1:0", access=access)) as where,
        channel(where, authority) as open_channel,
    ):
        stub = config_pb2_grpc.ConfigurationServiceStub(open_channel)
        known = (("authorization", "Bearer operator-0123456789"),)
        await stub.Get(config_pb2.GetRequest(), metadata=known)
        viewer = (("authorization", "Bearer viewer-0123456789abc"),)
        denied = await refusal(stub.Get(config_pb2.GetRequest(), metadata=viewer))
        assert denied[0] is grpc.StatusCode.PERMISSION_DENIED
        missing = await refusal(stub.Get(config_pb2.GetRequest()))
        assert missing[0] is grpc.StatusCode.UNAUTHENTICATED


async def test_an_insecure_port_with_a_tokens_file_needs_a_token(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(TOKENS)
    access = Access(insecure=True, tokens_file=tmp_path / "tokens")
    async with (
        running(ServeOptions("127.0.0.1:0", access=access)) as where,
        grpc.aio.insecure_channel(where) as plain,
    ):
        stub = config_pb2_grpc.ConfigurationServiceStub(plain)
        missing = await refusal(stub.Get(config_pb2.GetRequest()))
        assert missing[0] is grpc.StatusCode.UNAUTHENTICATED


# Metrics --------------------------------------------------------------------------------------------------------------


async def scraped(where: str, trusted: ssl.SSLContext | None, token: str = "") -> int:
    """Return the HTTP status of a request for the metrics, 0 where the connection is refused."""
    host, _, port = where.rpartition(":")
    reader, writer = await asyncio.open_connection(
        host, int(port), ssl=trusted, server_hostname=host if trusted else None
    )
    header = f"Authorization: Bearer {token}\r\n" if token else ""
    writer.write(f"GET /metrics HTTP/1.1\r\nHost: core\r\n{header}\r\n".encode())
    try:
        line = await asyncio.wait_for(reader.readline(), PATIENCE_S)
    except OSError:
        return 0
    finally:
        writer.close()
    return int(line.split()[1]) if line else 0


def trusting(authority: trustme.CA, *names: str, common: str | None = None) -> ssl.SSLContext:
    """Return a scraper's TLS context that trusts the core, with a client certificate for these names."""
    context = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
    if names or common:
        authority.issue_cert(*names, common_name=common).configure_cert(context)
    return context


async def test_metrics_need_a_role_that_reads_them(tmp_path: Path) -> None:
    access, authority = files(tmp_path, clients=False, tokens=True)
    where = f"127.0.0.1:{free_ports(1)[0]}"
    async with running(ServeOptions("127.0.0.1:0", access=access, metrics=where)):
        plain = trusting(authority)
        assert await scraped(where, plain) == HTTPStatus.UNAUTHORIZED
        assert await scraped(where, plain, "nobody-0123456789abc") == HTTPStatus.UNAUTHORIZED
        assert await scraped(where, plain, "viewer-0123456789abc") == HTTPStatus.FORBIDDEN
        assert await scraped(where, plain, "metrics-0123456789ab") == HTTPStatus.OK
        assert await scraped(where, plain, "operator-0123456789") == HTTPStatus.OK


async def test_metrics_need_a_certificate_with_a_role(tmp_path: Path) -> None:
    access, authority = files(tmp_path, clients=True, tokens=False)
    where = f"127.0.0.1:{free_ports(1)[0]}"
    async with running(ServeOptions("127.0.0.1:0", access=access, metrics=where)):
        assert await scraped(where, trusting(authority)) == 0, "TLS ends it"
        strange = await scraped(where, trusting(authority, "stranger.test"))
        assert strange == HTTPStatus.UNAUTHORIZED
        assert await scraped(where, trusting(authority, "shim.test")) == HTTPStatus.FORBIDDEN
        assert await scraped(where, trusting(authority, "scraper.test")) == HTTPStatus.OK


async def test_metrics_on_the_loopback_are_open_where_no_role_is_given() -> None:
    where = f"127.0.0.1:{free_ports(1)[0]}"
    async with running(ServeOptions("127.0.0.1:0", metrics=where)):
        assert await scraped(where, None) == HTTPStatus.OK


# Names in certificates ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "common", "known"),
    [
        (("admin.test",), None, True),
        (("other.test", "admin.test"), None, True),
        (("ADMIN.Test",), None, True),  # DNS names have no case (RFC 6125, 6.4.1)
        (("*.test",), None, False),  # a wildcard in a client's certificate is that name alone
        ((), "admin.test", True),
        (
            ("other.test",),
            "admin.test",
            False,
        ),  # the common name counts only where there is no other
        (("admin.test@mail.test",), None, False),
    ],
)
async def test_a_dns_name_counts_and_the_common_name_only_without_others(
    tmp_path: Path, names: tuple[str, ...], common: str | None, *, known: bool
) -> None:
    access, authority = files(tmp_path, clients=True, tokens=False)
    own = authority.issue_cert(*names, common_name=common)
    credentials = grpc.ssl_channel_credentials(
        authority.cert_pem.bytes(), own.private_key_pem.bytes(), own.cert_chain_pems[0].bytes()
    )
    async with (
        running(ServeOptions("127.0.0.1:0", access=access)) as where,
        grpc.aio.secure_channel(where, credentials) as asking,
    ):
        stub = config_pb2_grpc.ConfigurationServiceStub(asking)
        call = stub.Get(config_pb2.GetRequest())
        if known:
            await call
        else:
            assert (await refusal(call))[0] is grpc.StatusCode.UNAUTHENTICATED


ALTERNATIVES = [
    # (kind and name of each alternative name, what counts)
    ([("DNS", "ada.example")], ["ada.example"]),
    ([("email", "ada.example"), ("IP Address", "10.0.0.1")], []),
    ([("URI", "ada.example")], []),
    ([("URI", "spiffe://mesh/ada"), ("DNS", "b.example")], ["b.example", "spiffe://mesh/ada"]),
    ([("DNS", "*.example")], []),
    ([("URI", "spiffe://mesh/ADA"), ("URI", "SPIFFE://mesh/ada")], []),
]


@pytest.mark.parametrize(("alternatives", "known"), ALTERNATIVES)
def test_only_dns_names_and_whole_uris_count(
    alternatives: list[tuple[str, str]], known: list[str]
) -> None:
    certificate = {
        "subject": ((("commonName", "ada.example"),),),
        "subjectAltName": tuple(alternatives),
    }
    callers = {name: Caller(name, Role.OPERATOR) for name in ("ada.example", *known)}
    identities = Identities(open_to_all=False, certificates=callers)
    if known:
        assert identities.caller(authentication(certificate), (), 0).name == known[0]
    else:
        with pytest.raises(CallError):
            identities.caller(authentication(certificate), (), 0)


def test_wrong_certificate_files_are_named(tmp_path: Path) -> None:
    access, _ = files(tmp_path, clients=True, tokens=True)
    (tmp_path / "cert").write_text("no certificate")
    with pytest.raises(BadOptionError, match="no certificate and key"):
        access.tls()


@pytest.mark.parametrize("name", ["tokens", "roles", "key"])
def test_a_file_that_everybody_may_write_to_gives_nobody_a_role(tmp_path: Path, name: str) -> None:
    access, _ = files(tmp_path, clients=True, tokens=True)
    (tmp_path / name).chmod(0o666)
    with pytest.raises(BadOptionError, match=r"everybody may write to it \(mode 0666\)"):
        access.tls(), access.roles(), access.tokens()
