"""Certificates, roles and tokens that change while a core serves: which are in force, and what happens to open calls."""

import asyncio
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme

from evenhand.v1 import inspect_pb2, inspect_pb2_grpc, watch_pb2, watch_pb2_grpc
from scripts.real.cluster import free_ports
from server.bootstrap import ServeOptions, serve
from server.rpc.access import Access
from server.rpc.identity import Identities, digest
from server.rpc.roles import Caller, Role
from server.rpc.secrets import EXPIRY_WARNING_MS, Secrets
from server.rpc.x509 import BadCertificateError, read_certificate
from tests.rpc.harness import PATIENCE_S, Stream, asks, refusal, serving, with_identities
from tests.rpc.test_access import files, scraped, trusting

NOW = 1_800_000_000_000
OPERATOR = (("authorization", "Bearer operator-0123456789"),)
LEAVER = (("authorization", "Bearer leaver-0123456789abc"),)
ONLY_OPERATOR = "tokens: [{token: operator-0123456789, role: operator}]"
BOTH = ONLY_OPERATOR.replace("]", ", {token: leaver-0123456789abc, role: viewer}]")


@asynccontextmanager
async def running(options: ServeOptions) -> AsyncIterator[tuple[str, asyncio.Event]]:
    """Hold a server in this process; yield its address, and the event that makes it reread its files."""
    where: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    hangup, stop = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(
        serve(options, ready=where.set_result, hangup=hangup, stop=stop, errors=where.set_result)
    )
    try:
        yield await asyncio.wait_for(where, PATIENCE_S), hangup
    finally:
        stop.set()
        await task


def channel(where: str, authority: trustme.CA, own: trustme.LeafCert | None = None) -> Any:
    """Return a channel over a connection of its own, trusting one authority."""
    credentials = grpc.ssl_channel_credentials(
        authority.cert_pem.bytes(),
        own.private_key_pem.bytes() if own else None,
        own.cert_chain_pems[0].bytes() if own else None,
    )
    options = (("grpc.use_local_subchannel_pool", 1),)
    return grpc.aio.secure_channel(where, credentials, options=options)


def ask(asked: Any, metadata: Any = ()) -> Any:
    """Return a call that every role may make."""
    stub = inspect_pb2_grpc.InspectServiceStub(asked)
    return stub.ServerInfo(inspect_pb2.ServerInfoRequest(), metadata=metadata)


def watch(asked: Any, metadata: Any = ()) -> Stream:
    """Return a call that stays open."""
    stub = watch_pb2_grpc.WatchServiceStub(asked)
    return Stream(stub.WatchQueues(watch_pb2.WatchQueuesRequest(), metadata=metadata))


def certify(folder: Path, authority: trustme.CA) -> bytes:
    """Write a new certificate with its key, and return the certificate in DER form."""
    own = authority.issue_cert("127.0.0.1")
    own.private_key_pem.write_to_path(folder / "key")
    own.cert_chain_pems[0].write_to_path(folder / "cert")
    return ssl.PEM_cert_to_DER_cert(own.cert_chain_pems[0].bytes().decode())


async def seen(where: str, context: ssl.SSLContext) -> bytes:
    """Return the certificate that the server shows to a new connection, in DER form."""
    host, _, port = where.rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname=host)
    shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return shown


async def eventually(true: Callable[[], Any]) -> None:
    """Poll until the answer is yes."""
    async with asyncio.timeout(PATIENCE_S):
        done = False
        while not done:
            done = await true()


# Over a socket --------------------------------------------------------------------------------------------------------


async def test_a_new_certificate_is_shown_to_new_connections_and_streams_stay(
    tmp_path: Path,
) -> None:
    access, authority = files(tmp_path, clients=False, tokens=True)
    metrics = f"127.0.0.1:{free_ports(1)[0]}"
    options = ServeOptions("127.0.0.1:0", access=access, metrics=metrics)
    trusted = trusting(authority)
    async with running(options) as (where, hangup), channel(where, authority) as asked:
        stream = watch(asked, OPERATOR)
        await stream.read(watch_pb2.WatchQueuesResponse)
        before = await seen(where, trusted)
        renewed = certify(tmp_path, authority)
        assert renewed != before
        hangup.set()

        async def shown() -> bool:
            return await seen(where, trusted) == renewed == await seen(metrics, trusted)

        await eventually(shown)
        await ask(asked, OPERATOR)
        assert not stream.call.done()


async def test_an_authority_that_is_replaced_lets_its_certificates_in_no_more(
    tmp_path: Path,
) -> None:
    access, old = files(tmp_path, clients=True, tokens=False)
    metrics = f"127.0.0.1:{free_ports(1)[0]}"
    options = ServeOptions("127.0.0.1:0", access=access, metrics=metrics)
    new = trustme.CA()
    known, strange = new.issue_cert("shim.test"), old.issue_cert("shim.test")
    async with running(options) as (where, hangup):
        assert await scraped(metrics, trusting(old, "scraper.test")) == HTTPStatus.OK
        new.cert_pem.write_to_path(tmp_path / "ca")
        hangup.set()

        async def admitted() -> bool:
            async with channel(where, old, known) as asked:
                try:
                    return bool((await ask(asked)).version)
                except grpc.aio.AioRpcError:
                    return False

        await eventually(admitted)
        async with channel(where, old, strange) as asked:
            assert (await refusal(ask(asked)))[0] is grpc.StatusCode.UNAVAILABLE
        assert await scraped(metrics, trusting(old, "scraper.test")) == 0
        trusted = trusting(old)
        new.issue_cert("scraper.test").configure_cert(trusted)
        assert await scraped(metrics, trusted) == HTTPStatus.OK


async def test_a_token_that_is_taken_away_ends_its_streams_and_no_others(tmp_path: Path) -> None:
    access, authority = files(tmp_path, clients=False, tokens=True)
    (tmp_path / "tokens").write_text(BOTH)
    async with (
        running(ServeOptions("127.0.0.1:0", access=access)) as (where, hangup),
        channel(where, authority) as asked,
    ):
        lost, kept = watch(asked, LEAVER), watch(asked, OPERATOR)
        await ask(asked, LEAVER)
        for one in (lost, kept):
            await one.read(watch_pb2.WatchQueuesResponse)
        (tmp_path / "tokens").write_text(ONLY_OPERATOR)
        hangup.set()
        assert await lost.end() == (grpc.StatusCode.UNAUTHENTICATED, "UNKNOWN_CALLER")
        assert (await refusal(ask(asked, LEAVER)))[0] is grpc.StatusCode.UNAUTHENTICATED
        await ask(asked, OPERATOR)
        assert not kept.call.done()


async def test_a_changed_file_counts_without_a_hangup_as_often_as_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files are looked at again and again; a wrong text in between ends neither the look nor what is in force."""
    monkeypatch.setattr("server.bootstrap.LOOK_S", 0.01)
    access, authority = files(tmp_path, clients=False, tokens=True)
    tokens = tmp_path / "tokens"
    async with (
        running(ServeOptions("127.0.0.1:0", access=access)) as (where, _),
        channel(where, authority) as asked,
    ):

        async def known() -> bool:
            try:
                await ask(asked, LEAVER)
            except grpc.aio.AioRpcError:
                return False
            return True

        async def unknown() -> bool:
            return not await known()

        for _ in range(2):
            tokens.write_text(BOTH)
            await eventually(known)
            tokens.write_text("tokens: [")
            stream = watch(asked, LEAVER)
            await stream.read(watch_pb2.WatchQueuesResponse)
            tokens.write_text(ONLY_OPERATOR)
            assert (await stream.end())[0] is grpc.StatusCode.UNAUTHENTICATED
            await eventually(unknown)


async def test_a_name_taken_out_with_its_authority_ends_what_it_has_open(tmp_path: Path) -> None:
    """A connection of a removed authority stays as long as its names have roles; docs/security.md says what to do."""
    access, old = files(tmp_path, clients=True, tokens=False)
    own = old.issue_cert("admin.test")
    async with (
        running(ServeOptions("127.0.0.1:0", access=access)) as (where, hangup),
        channel(where, old, own) as asked,
    ):
        stream = watch(asked)
        await stream.read(watch_pb2.WatchQueuesResponse)
        trustme.CA().cert_pem.write_to_path(tmp_path / "ca")
        (tmp_path / "roles").write_text("certificates: []")
        hangup.set()
        assert await stream.end() == (grpc.StatusCode.UNAUTHENTICATED, "UNKNOWN_CALLER")


@pytest.mark.parametrize("by", ["serial", "fingerprint"])
async def test_a_revoked_certificate_ends_its_streams_and_no_others(
    tmp_path: Path, by: str
) -> None:
    access, authority = files(tmp_path, clients=True, tokens=False)
    metrics = f"127.0.0.1:{free_ports(1)[0]}"
    lost, kept = authority.issue_cert("admin.test"), authority.issue_cert("admin.test")
    found = read_certificate(lost.cert_chain_pems[0].bytes())
    named = {"serial": f"{found.serial:X}", "fingerprint": found.fingerprint.hex(":").upper()}
    options = ServeOptions("127.0.0.1:0", access=access, metrics=metrics)
    async with (
        running(options) as (where, hangup),
        channel(where, authority, lost) as bad,
        channel(where, authority, kept) as good,
    ):
        ending, staying = watch(bad), watch(good)
        for one in (ending, staying):
            await one.read(watch_pb2.WatchQueuesResponse)
        with (tmp_path / "roles").open("a") as roles:
            roles.write(f'revoked: [{{{by}: "{named[by]}"}}]')
        hangup.set()
        assert await ending.end() == (grpc.StatusCode.UNAUTHENTICATED, "UNKNOWN_CALLER")
        assert (await refusal(ask(bad)))[0] is grpc.StatusCode.UNAUTHENTICATED
        await ask(good)
        assert not staying.call.done()
        trusted = trusting(authority)
        lost.configure_cert(trusted)
        assert await scraped(metrics, trusted) == HTTPStatus.UNAUTHORIZED


async def test_a_certificate_that_expires_ends_what_its_connection_has_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TLS judges a certificate once: a connection went on for ever with one that had expired."""
    now = [datetime.now(UTC)]
    monkeypatch.setattr("server.bootstrap._clock", lambda: lambda: unix_ms(now[0]))
    monkeypatch.setattr("server.bootstrap.LOOK_S", 0.01)
    access, authority = files(tmp_path, clients=True, tokens=False)
    early = now[0] + timedelta(days=1)
    brief = authority.issue_cert("admin.test", not_after=early)
    long = authority.issue_cert("admin.test", not_after=early + timedelta(days=1))
    async with (
        running(ServeOptions("127.0.0.1:0", access=access)) as (where, _),
        channel(where, authority, brief) as bad,
        channel(where, authority, long) as good,
    ):
        ending, staying = watch(bad), watch(good)
        for one in (ending, staying):
            await one.read(watch_pb2.WatchQueuesResponse)
        now[0] = early + timedelta(minutes=1)
        assert await ending.end() == (grpc.StatusCode.UNAUTHENTICATED, "UNKNOWN_CALLER")
        with pytest.raises(grpc.aio.AioRpcError, match="has expired: renew it"):
            await ask(bad)
        await ask(good)
        assert not staying.call.done()


@pytest.mark.parametrize("days", [-1, 1])
async def test_a_certificate_before_or_after_its_time_opens_no_connection(
    tmp_path: Path, days: int
) -> None:
    access, authority = files(tmp_path, clients=True, tokens=False)
    middle = datetime.now(UTC) + timedelta(days=days)
    half = timedelta(hours=12)
    own = authority.issue_cert("admin.test", not_before=middle - half, not_after=middle + half)
    async with (
        running(ServeOptions("127.0.0.1:0", access=access)) as (where, _),
        channel(where, authority, own) as asked,
    ):
        assert (await refusal(ask(asked)))[0] is grpc.StatusCode.UNAVAILABLE


def unix_ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


async def test_a_wrong_file_leaves_the_one_before_in_force_and_the_doctor_says_so(
    tmp_path: Path,
) -> None:
    access, authority = files(tmp_path, clients=False, tokens=True)
    async with (
        running(ServeOptions("127.0.0.1:0", access=access)) as (where, hangup),
        channel(where, authority) as asked,
    ):
        (tmp_path / "tokens").write_text("tokens: [")
        hangup.set()
        stub = inspect_pb2_grpc.InspectServiceStub(asked)
        codes: set[str] = set()

        async def told() -> bool:
            request = inspect_pb2.CheckConsistencyRequest()
            answer = await stub.CheckConsistency(request, metadata=OPERATOR)
            codes.update(one.code for one in answer.findings)
            return "secret-not-reloaded" in codes

        await eventually(told)


async def test_the_doctor_says_that_others_can_read_the_tokens(tmp_path: Path) -> None:
    """The default mode of a Secret in Kubernetes is 0644: it works, and says what to do."""
    access, authority = files(tmp_path, clients=False, tokens=True)
    (tmp_path / "tokens").write_text(BOTH)
    (tmp_path / "tokens").chmod(0o644)
    (tmp_path / "key").chmod(0o600)
    async with (
        running(ServeOptions("127.0.0.1:0", access=access)) as (where, _),
        channel(where, authority) as asked,
    ):
        stub = inspect_pb2_grpc.InspectServiceStub(asked)
        request = inspect_pb2.CheckConsistencyRequest()
        found = (await stub.CheckConsistency(request, metadata=OPERATOR)).findings
        messages = [one.message for one in found if one.code == "file-open-to-others"]
        tokens = tmp_path / "tokens"
        assert messages == [f"{tokens}: everybody may read it (mode 0644); run chmod o-r {tokens}"]
        tokens.chmod(0o440)
        found = (await stub.CheckConsistency(request, metadata=OPERATOR)).findings
        assert "file-open-to-others" not in {one.code for one in found}


async def test_a_hangup_ends_no_process(tmp_path: Path) -> None:
    access, authority = files(tmp_path, clients=False, tokens=True)
    (tmp_path / "tokens").write_text(BOTH)
    options = ["--tls-cert", str(access.tls_cert), "--tls-key", str(access.tls_key)]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "evenhand_cli", "serve", "--listen", "127.0.0.1:0"),
        *(*options, "--tokens", str(access.tokens_file)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)
        where = line.decode().split()[-1]
        async with channel(where, authority) as asked:
            stream = watch(asked, LEAVER)
            await stream.read(watch_pb2.WatchQueuesResponse)
            (tmp_path / "tokens").write_text(ONLY_OPERATOR)
            process.send_signal(signal.SIGHUP)
            assert (await stream.end())[0] is grpc.StatusCode.UNAUTHENTICATED
            await ask(asked, OPERATOR)
        process.terminate()
        assert await asyncio.wait_for(process.wait(), PATIENCE_S) == 0
    finally:
        if process.returncode is None:
            process.kill()


# Open calls -----------------------------------------------------------------------------------------------------------


async def test_the_stream_of_a_shim_ends_with_its_token_and_another_goes_on() -> None:
    shims = {digest(name): Caller(name, Role.SHIM) for name in ("first", "second")}
    async with serving(with_identities(Identities(open_to_all=False, tokens=shims))) as served:
        lost, kept = (
            Stream(served.stub.UpdateAllocation(metadata=(("authorization", f"Bearer {name}"),)))
            for name in ("first", "second")
        )
        await lost.send(asks("a", rm_id="one"))
        await kept.send(asks("a", rm_id="two"))
        for stream in (lost, kept):
            await stream.next()
        left = Identities(open_to_all=False, tokens={digest("second"): Caller("second", Role.SHIM)})
        assert served.endpoint.renew(left) == 1
        assert await lost.end() == (grpc.StatusCode.UNAUTHENTICATED, "UNKNOWN_CALLER")
        await kept.send(asks("b", rm_id="two"))
        assert await kept.next() is not None
        assert len(served.endpoint.sessions) == 1


async def test_a_stream_of_a_role_that_changed_ends() -> None:
    def known(caller: Caller) -> Identities:
        return Identities(tokens={digest("token"): caller})

    before = known(Caller("vera", Role.VIEWER))
    async with serving(with_identities(before)) as served:
        stream = watch(served.channel, (("authorization", "Bearer token"),))
        await stream.read(watch_pb2.WatchQueuesResponse)
        assert served.endpoint.renew(before) == 0, "the same as before"
        served.endpoint.renew(known(Caller("vera", Role.VIEWER, "root.a")))
        assert (await stream.end())[0] is grpc.StatusCode.UNAUTHENTICATED


# Files ----------------------------------------------------------------------------------------------------------------


def test_what_did_not_change_is_not_read_again(tmp_path: Path) -> None:
    access, _ = files(tmp_path, clients=True, tokens=True)
    secrets = Secrets(access, lambda: NOW)
    assert not secrets.renew(whole=False)
    assert secrets.renew(whole=True)
    (tmp_path / "tokens").write_text(ONLY_OPERATOR)
    assert secrets.renew(whole=False)
    assert len(secrets.identities.tokens) == 1
    assert not secrets.renew(whole=False)
    assert secrets.health().reloads == 2


def test_a_link_that_is_swapped_is_a_change(tmp_path: Path) -> None:
    """Kubernetes renews mounted secrets by swapping the link `..data`; the files' own links stay."""
    for version, text in (
        ("v1", ONLY_OPERATOR),
        ("v2", ONLY_OPERATOR.replace("9}", "9, name: o}")),
    ):
        (tmp_path / version).mkdir()
        (tmp_path / version / "tokens").write_text(text)
    (tmp_path / "..data").symlink_to("v1")
    (tmp_path / "tokens").symlink_to("..data/tokens")
    secrets = Secrets(Access(tokens_file=tmp_path / "tokens"), lambda: NOW)
    (tmp_path / "..new").symlink_to("v2")
    (tmp_path / "..new").rename(tmp_path / "..data")
    assert secrets.renew(whole=False)


def test_each_secret_is_taken_whole_and_one_that_is_wrong_holds_up_no_other(tmp_path: Path) -> None:
    access, authority = files(tmp_path, clients=True, tokens=True)
    secrets = Secrets(access, lambda: NOW)
    before = secrets.identities
    (tmp_path / "cert").write_bytes(authority.issue_cert("127.0.0.1").cert_chain_pems[0].bytes())
    (tmp_path / "roles").unlink()
    (tmp_path / "tokens").write_text(ONLY_OPERATOR)
    assert secrets.renew(whole=False)
    failing = secrets.health().failing
    assert "no certificate and key" in failing["tls"], "the key is that of another certificate"
    assert "No such file" in failing["roles"]
    assert not failing["tokens"]
    assert secrets.identities.certificates == before.certificates
    assert len(secrets.identities.tokens) == 1
    assert [one.code for one in secrets.findings()] == ["secret-not-reloaded"] * 2
    certify(tmp_path, authority)
    (tmp_path / "roles").write_text("certificates: []")
    assert secrets.renew(whole=False)
    assert not any(secrets.health().failing.values())


def test_a_certificate_warns_before_it_expires(tmp_path: Path) -> None:
    access, authority = files(tmp_path, clients=False, tokens=True)
    end = datetime.fromtimestamp(NOW / 1000, UTC)
    own = authority.issue_cert("127.0.0.1", not_before=end - timedelta(days=90), not_after=end)
    own.private_key_pem.write_to_path(tmp_path / "key")
    own.cert_chain_pems[0].write_to_path(tmp_path / "cert")
    now = [NOW - EXPIRY_WARNING_MS]
    secrets = Secrets(access, lambda: now[0])
    assert secrets.health().expires_ms == NOW
    assert not list(secrets.findings())
    now[0] += 1
    assert "expires in 13 d" in next(secrets.findings()).message
    now[0] = NOW
    (finding,) = secrets.findings()
    assert (finding.severity, finding.code) == ("warning", "certificate-expires")
    assert "has expired" in finding.message


def test_certificates_are_read() -> None:
    end = datetime(2051, 2, 3, 4, 5, 6, tzinfo=UTC)
    own = trustme.CA().issue_cert("a.test", not_after=end)
    pem = own.cert_chain_pems[0].bytes()
    found = read_certificate(b"a chain begins\n" + pem + trustme.CA().cert_pem.bytes())
    assert found.expires_ms == int(end.timestamp()) * 1000
    assert found.serial > 0
    for wrong in (
        b"",
        pem[:100],
        pem.replace(b"M", b"A"),
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
    ):
        with pytest.raises(BadCertificateError):
            read_certificate(wrong)
