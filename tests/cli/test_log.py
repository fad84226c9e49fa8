"""Cores with an input log as their users have them: two of them, all killed and one started alone, over TLS, and wrong options."""

import base64
import json
from pathlib import Path
from typing import Any

import nkeys  # type: ignore[import-untyped]
import pytest
import trustme

from server.replication.log import Access
from server.replication.log import address as log_address
from server.rpc import following
from server.rpc.access import BadOptionError
from server.rpc.following import Joining
from server.rpc.log_engine import AwayError, connect
from tests.cli.processes import address_of, finished, running, until
from tests.cli.run import evenhand
from tests.cli.test_embedded_restart import decisions, places, shim
from tests.cli.test_end_to_end import await_counts
from tests.cli.test_followers import ANY, CLAIM, is_level, replication
from tests.cli.test_shim_ends import logged
from tests.replication.engine import engine

pytestmark = pytest.mark.real


def is_logged(address: str) -> bool:
    """Return whether the log has everything that a leader was given."""
    found = replication("--core", address)
    return bool(found["position"] == found["log"]["position"] > 0)


def test_a_core_alone_has_from_the_log_what_the_killed_ones_knew(tmp_path: Path) -> None:
    (tmp_path / "nats").mkdir()
    with engine(tmp_path / "nats") as nats:
        serve = [*ANY, "--log", nats.url]
        with (
            running(serve, tmp_path / "a.log") as leader,
            running(serve, tmp_path / "b.log") as follower,
        ):
            first = address_of(leader, tmp_path / "a.log")
            second = address_of(follower, tmp_path / "b.log")
            with running(shim(CLAIM, tmp_path / "state", first), tmp_path / "shim.log"):
                until(lambda: len(decisions(first)) == 8)
                await_counts(first, allocations=16, waiting_asks=2)
                until(lambda: is_level(second) and places(second) == places(first))
                assert decisions(second) == decisions(first)
                told = [evenhand("replication", "--core", one).out for one in (first, second)]
                assert f"log {nats.url}: level at message" in told[0]
                assert told[1].startswith(f"this core follows {nats.url}: level")
            until(lambda: is_logged(first))
            before = places(first), decisions(first)
            for one in (leader, follower):
                one.kill()
                one.wait()
        nats.kill()
        nats.start()
        with running(serve, tmp_path / "c.log") as alone:
            address = address_of(alone, tmp_path / "c.log")
            until(lambda: replication("--core", address)["state"] == "follower")
            until(lambda: is_level(address))
            assert (places(address), decisions(address)) == before
            with running(shim(CLAIM, tmp_path / "state", address), tmp_path / "shim2.log"):
                logged(tmp_path / "shim2.log", "the core knows everything")
                assert replication("--core", address)["state"] == "leader"
                await_counts(address, allocations=16, waiting_asks=2)
                assert (places(address), decisions(address)) == before


def test_what_a_core_says_while_its_log_is_away(tmp_path: Path) -> None:
    with engine(tmp_path) as nats, running([*ANY, "--log", nats.url], tmp_path / "a.log") as core:
        address = address_of(core, tmp_path / "a.log")
        nats.kill()
        until(lambda: replication("--core", address)["log"]["away_since_ms"] > 0)
        told = evenhand("replication", "--core", address).out
        assert f"log {nats.url}: cannot be used for" in told
        doctor = evenhand("doctor", "--core", address)
        assert "log-away" in doctor.out


class Keys:
    """The keys of a user, and the files and the configuration for a server with TLS that knows this user alone."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        own = authority.issue_cert("127.0.0.1")
        authority.cert_pem.write_to_path(folder / "ca.pem")
        own.cert_chain_pems[0].write_to_path(folder / "server.pem")
        own.private_key_pem.write_to_path(folder / "server.key")
        pair = nkeys.from_seed(seed(b"the seed of a user in this test."))
        (folder / "user.nk").write_bytes(bytes(pair.seed) + b"\n")
        (folder / "user.nk").chmod(0o600)
        public = pair.public_key.decode()
        self.lines = (
            f'tls {{ cert_file: "{folder}/server.pem", key_file: "{folder}/server.key" }}\n'
            f"authorization {{ users: [ {{ nkey: {public} }} ] }}"
        )


USER, ACCOUNT, OPERATOR = 20 << 3, 0, 14 << 3
"""The kinds of keys of NATS."""


def seed(raw: bytes, of: int = USER) -> bytearray:
    """Return the seed of a key of a kind in the form of NATS."""
    kind = 18 << 3
    data = bytes([kind | of >> 5, (of & 31) << 3]) + raw
    crc = 0
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return bytearray(base64.b32encode(data + crc.to_bytes(2, "little")).rstrip(b"="))


def test_a_log_over_tls_with_credentials(tmp_path: Path) -> None:
    keys = Keys(tmp_path)

    def said(*options: str) -> dict[str, Any]:
        with running([*ANY, "--log", url, *options], tmp_path / "core.log") as core:
            address = address_of(core, tmp_path / "core.log")
            found: list[dict[str, Any]] = []

            def tried() -> bool:
                found.append(replication("--core", address)["log"])
                return bool(found[-1]["why"] or found[-1]["connected"])

            until(tried)
            return found[-1]

    with engine(tmp_path, keys.lines) as nats:
        url = f"tls://{nats.server}/test"
        authority = ("--log-tls-ca", str(tmp_path / "ca.pem"))
        user = ("--log-credentials", str(tmp_path / "user.nk"))
        assert said(*authority, *user)["connected"]
        assert "certificate" in said(*user)["why"].lower()
        assert "authorization" in said(*authority)["why"].lower()


def token(issuer: Any, subject: Any, name: str, **claims: Any) -> str:
    """Return a JWT of NATS about a subject, signed by an issuer."""

    def coded(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    body = {
        "jti": name,
        "iat": 1,
        "iss": issuer.public_key.decode(),
        "name": name,
        "sub": subject.public_key.decode(),
        "nats": {"version": 2, **claims},
    }
    head = {"typ": "JWT", "alg": "ed25519-nkey"}
    text = ".".join(coded(json.dumps(one).encode()) for one in (head, body))
    return f"{text}.{coded(issuer.sign(text.encode()))}"


def creds(folder: Path) -> str:
    """Write the file of a user's credentials, and return lines for a server that knows the user's account."""
    operator, account, user, system = (
        nkeys.from_seed(seed(letter * 32, of))
        for letter, of in ((b"o", OPERATOR), (b"a", ACCOUNT), (b"u", USER), (b"s", ACCOUNT))
    )
    limits = {
        "subs": -1,
        "data": -1,
        "payload": -1,
        "imports": -1,
        "exports": -1,
        "wildcards": True,
        "conn": -1,
        "leaf": -1,
    }
    stored = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
    own = token(account, user, "core", type="user", subs=-1, data=-1, payload=-1)
    lines = "-----BEGIN NATS USER JWT-----", own, "------END NATS USER JWT------", ""
    more = (
        "-----BEGIN USER NKEY SEED-----",
        bytes(user.seed).decode(),
        "------END USER NKEY SEED------",
    )
    (folder / "core.creds").write_text("\n".join([*lines, *more, ""]))
    (folder / "core.creds").chmod(0o600)
    named = {"system": (system, limits), "cores": (account, limits | stored)}
    known = "\n".join(
        f"{key.public_key.decode()}: {token(operator, key, name, type='account', limits=most)}"
        for name, (key, most) in named.items()
    )
    return (
        f"operator: {token(operator, operator, 'op', type='operator')}\n"
        f"system_account: {system.public_key.decode()}\n"
        f"resolver: MEMORY\nresolver_preload {{ {known} }}"
    )


async def test_a_creds_file_opens_the_log(tmp_path: Path) -> None:
    with engine(tmp_path, creds(tmp_path)) as nats:
        text = (tmp_path / "core.creds").read_text()
        link = await connect(Access(log_address(nats.url), text), "core")
        assert (await link.tail()).last == 0
        await link.close()
        with pytest.raises(AwayError, match=r"(?i)authorization"):
            await connect(Access(log_address(nats.url)), "core")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--log", "127.0.0.1:4222"], "is no address of a log"),
        (["--log", "nats://127.0.0.1:x"], "is no HOST:PORT"),
        (["--log", "nats://127.0.0.1/a b"], "is no name of a log"),
        (["--log", "nats://me:secret@127.0.0.1"], "use --log-credentials"),
        (["--log", "nats://127.0.0.1", "--follow", "127.0.0.1:1"], "exclude each other"),
        (["--log", "nats://127.0.0.1", "--trace", "t.jsonl"], "--trace: a core that follows"),
        (["--log", "nats://127.0.0.1", "--log-credentials", "/nowhere/f"], "No such file"),
        (["--log-credentials", "f"], "there is no log"),
        (["--log-tls-ca", "f"], "there is no log"),
    ],
)
def test_options_of_the_log_that_cannot_be_used_are_refused(
    options: list[str], why: str, tmp_path: Path
) -> None:
    ended = finished(*ANY, *options, folder=tmp_path)
    assert ended.returncode == 2, ended.stderr
    assert why in " ".join(ended.stderr.split())


def test_without_the_client_of_nats_the_error_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> None:
        assert name == "nats"

    joining = Joining(log="nats://127.0.0.1")
    joining.check(traced=False)
    monkeypatch.setattr(following, "find_spec", missing)
    with pytest.raises(BadOptionError, match=r"pip install 'evenhand\[ha\]'"):
        joining.check(traced=False)
