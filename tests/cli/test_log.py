"""Cores with an input log as their users have them: two of them, all killed and one started alone, over TLS, and wrong options."""

import base64
from pathlib import Path
from typing import Any

import nkeys  # type: ignore[import-untyped]
import pytest
import trustme

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


def seed(raw: bytes) -> bytearray:
    """Return the seed of a user's key in the form of NATS."""
    kind, user = 18 << 3, 20 << 3
    data = bytes([kind | user >> 5, (user & 31) << 3]) + raw
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
