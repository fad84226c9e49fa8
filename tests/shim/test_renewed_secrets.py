"""Certificates and tokens that are replaced while a shim runs: the next session uses the new ones."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import grpc
import pytest
import trustme

from evenhand_cli import renewed_secrets
from evenhand_cli.connect import read_token
from evenhand_cli.renewed_secrets import RenewedSecrets
from shim_client.bootstrap import make_shim, run_shim
from shim_client.config import Settings
from shim_client.core_client import connection as connecting
from shim_client.core_client.address import CoreAddress
from shim_client.core_client.errors import CoreRefusedError
from shim_client.embedded.cluster import EmbeddedCluster
from tests.shim.fake_core import FakeCore
from tests.shim.objects import node
from tests.shim.polling import until
from tests.shim.test_embedded_store import Clock


class Files:
    """The files of a shim: the authority of the cores, its own certificate and key, and a token."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.ca, self.cert, self.key = (folder / name for name in ("ca", "cert", "key"))
        self.token = folder / "token"
        self.authority.cert_pem.write_to_path(str(self.ca))

    def write(self, issuer: trustme.CA, token: str) -> None:
        """Write a new certificate, a new key and a token."""
        own = issuer.issue_cert("shim.example")
        self.cert.write_bytes(b"".join(one.bytes() for one in own.cert_chain_pems))
        own.private_key_pem.write_to_path(str(self.key))
        self.token.write_text(f"{token}\n")

    def secrets(self) -> RenewedSecrets:
        """Return the content of the files, which is read again when they change."""
        return RenewedSecrets(self.ca, self.cert, self.key, self.token)

    def accepting(self, issuer: trustme.CA) -> grpc.ServerCredentials:
        """Return the credentials of a core that accepts shims with certificates of an issuer."""
        own = self.authority.issue_cert("127.0.0.1")
        chain = b"".join(one.bytes() for one in own.cert_chain_pems)
        pairs = [(own.private_key_pem.bytes(), chain)]
        return grpc.ssl_server_credentials(pairs, issuer.cert_pem.bytes(), require_client_auth=True)


@asynccontextmanager
async def running(*addresses: CoreAddress) -> AsyncIterator[asyncio.Task[None]]:
    """Run a shim for as long as the block lasts."""
    cluster = EmbeddedCluster(Clock())
    cluster.create(node("n1"))
    shim = make_shim(cluster, addresses, Settings(cluster_id="test", queues="partitions: []"))
    task = asyncio.create_task(run_shim(shim, cluster))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_next_session_has_the_certificate_and_the_token_that_were_replaced(
    tmp_path: Path,
) -> None:
    """The second core accepts only the new certificate."""
    files, old, new = Files(tmp_path), trustme.CA(), trustme.CA()
    files.write(old, "first")
    secrets = files.secrets()
    core, after = FakeCore(), FakeCore()
    target = await core.start(credentials=files.accepting(old))
    credentials, token = secrets()
    async with running(CoreAddress(target, credentials, token, secrets)):
        await until(lambda: core.synced == 1)
        files.write(new, "second")
        await core.stop()
        await after.start(core.port, files.accepting(new))
        await until(lambda: after.synced == 1)
    found = [one.registered_with[0]["authorization"] for one in (core, after)]
    assert found == ["Bearer first", "Bearer second"]
    await after.stop()


REFUSED = (grpc.StatusCode.UNAUTHENTICATED, "this token is not known")


@pytest.mark.parametrize("is_replaced", [True, False])
async def test_a_shim_whose_token_a_core_no_longer_knows_waits_for_a_new_one(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_replaced: bool,  # noqa: FBT001
) -> None:
    """The new token reached the core first. Without a new one, the shim ends after a time."""
    monkeypatch.setattr(connecting, "RENEWAL_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(connecting, "RENEWAL_ATTEMPTS_MAX", 1_000 if is_replaced else 3)
    token = tmp_path / "token"
    token.write_text("first")
    core = FakeCore()
    secrets = RenewedSecrets(None, None, None, token)
    address = CoreAddress(await core.start(), None, "first", secrets)
    async with running(address) as task:
        await until(lambda: core.synced == 1)
        core.refuse = REFUSED
        core.end_streams(*REFUSED)
        if is_replaced:
            await until(lambda: core.refusals > 3)
            token.write_text("second")
            core.refuse = None
            await until(lambda: len(core.registrations) == 2)
            assert core.registered_with[1]["authorization"] == "Bearer second"
        else:
            await asyncio.wait({task})
            assert isinstance(task.exception(), CoreRefusedError)
            assert core.refusals == 4
    await core.stop()


async def test_a_shim_whose_first_token_a_core_does_not_know_ends() -> None:
    core = FakeCore()
    core.refuse = REFUSED
    async with running(CoreAddress(await core.start(), token="wrong")) as task:  # noqa: S106 - of this test
        await asyncio.wait({task})
        assert isinstance(task.exception(), CoreRefusedError)
    assert core.refusals == 1
    await core.stop()


async def test_a_shim_waits_for_a_new_token_whatever_another_core_says_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "RENEWAL_PAUSE_SECONDS", 0.01)
    token = tmp_path / "token"
    token.write_text("first")
    secrets = RenewedSecrets(None, None, None, token)
    used, other = FakeCore(), FakeCore()
    addresses = [CoreAddress(await one.start(), None, "first", secrets) for one in (used, other)]
    async with running(*addresses) as task:
        await until(lambda: used.synced == 1)
        used.refuse, other.refuse = REFUSED, (grpc.StatusCode.PERMISSION_DENIED, "no role")
        used.end_streams(*REFUSED)
        await until(lambda: task.done() or other.refusals > 3)
        assert not task.done()
    await used.stop()
    await other.stop()


async def test_a_session_with_one_of_several_cores_goes_on_with_another_token(
    tmp_path: Path,
) -> None:
    """The core ends the streams of the old token, as it does when a certificate expires."""
    token = tmp_path / "token"
    token.write_text("first")
    secrets = RenewedSecrets(None, None, None, token)
    cores = FakeCore(), FakeCore()
    for one in cores:
        one.resumes = True
        await one.start()
    address = partial(CoreAddress, token="first", renew=secrets)  # noqa: S106 - of this test
    first, second = cores
    async with running(*(address(f"127.0.0.1:{one.port}") for one in cores)):
        await until(lambda: first.synced == 1)
        token.write_text("second")
        first.end_streams(grpc.StatusCode.UNAUTHENTICATED, "expired")
        await until(lambda: len(second.registrations) == 1)
    assert second.registrations[0].resume.sessionID
    assert second.registered_with[0]["authorization"] == "Bearer second"
    for one in cores:
        await one.stop()


def test_a_file_that_cannot_be_used_changes_nothing_until_it_can(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    secrets = RenewedSecrets(None, None, None, token)
    assert secrets() is secrets()
    token.write_text("two\nlines")
    assert secrets() == (None, "first")
    token.unlink()
    assert secrets() == (None, "first")
    token.write_text("second")
    assert secrets() == (None, "second")


async def test_a_shim_that_begins_late_finds_the_core_that_leads_with_the_new_certificate(
    tmp_path: Path,
) -> None:
    """A warm shim that is elected after its certificate was replaced: the core that leads is not the first of the list."""
    files, old, new = Files(tmp_path), trustme.CA(), trustme.CA()
    files.write(old, "first")
    secrets = files.secrets()
    credentials, token = secrets()
    files.write(new, "second")
    cores = FakeCore(), FakeCore()
    first, leader = cores
    first.leads, leader.leads = False, True
    targets = [await one.start(credentials=files.accepting(new)) for one in cores]
    async with running(*(CoreAddress(one, credentials, token, secrets) for one in targets)):
        await until(lambda: leader.synced == 1 or first.synced == 1)
    assert (len(first.registrations), len(leader.registrations)) == (0, 1)
    for one in cores:
        await one.stop()


def test_the_key_of_another_certificate_is_not_used(tmp_path: Path) -> None:
    """A program writes first the certificate, and then the key."""
    files, issuer = Files(tmp_path), trustme.CA()
    files.write(issuer, "first")
    secrets = files.secrets()
    before = secrets()
    key = files.key.read_bytes()
    files.write(issuer, "second")
    new_key = files.key.read_bytes()
    files.key.write_bytes(key)
    assert secrets() == before
    files.key.write_bytes(new_key)
    assert secrets()[0] is not before[0]
    assert secrets()[1] == "second"
    files.ca.write_text("no certificate")
    after = secrets()
    assert after[1] == "second"
    assert secrets() is after


def test_files_that_are_replaced_while_they_are_read_are_read_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kubernetes replaces a link to the folder of all files. The token is read before, and the certificate after that."""
    for name in "123":
        (tmp_path / name).mkdir()
        Files(tmp_path / name).write(trustme.CA(), name)
    current = tmp_path / "current"
    current.symlink_to("1")
    paths = [current / name for name in ("ca", "cert", "key", "token")]
    secrets = RenewedSecrets(*paths)

    def replace(name: str) -> None:
        (tmp_path / "next").symlink_to(name)
        (tmp_path / "next").replace(current)

    def read(file: Path) -> str:
        token = read_token(file)
        if token == "2":  # noqa: S105 - of this test
            replace("3")
        return token

    monkeypatch.setattr(renewed_secrets, "read_token", read)
    assert secrets()[1] == "1"
    replace("2")
    found = secrets()
    assert found[1] == "3"
    assert secrets() is found
