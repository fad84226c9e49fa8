"""TLS, certificates and tokens, as the command line uses them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from evenhand.v1 import inspect_pb2
from tests.cli.fake import FakeCore
from tests.cli.fake import running as fake_running
from tests.cli.processes import address_of, finished, running
from tests.cli.run import evenhand

TOKEN = "a-token-that-is-long-enough"  # noqa: S105 - of this test alone
VIEWER = "another-token-that-is-long"


@dataclass(frozen=True)
class Secured:
    """A core that speaks TLS, and the files that open it."""

    address: str
    ca: Path
    token: Path
    viewer: Path

    def options(self, token: Path) -> list[str]:
        return ["--core", self.address, "--tls-ca", str(self.ca), "--token-file", str(token)]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    own = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    own.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    own.private_key_pem.write_to_path(folder / "key.pem")
    (folder / "token").write_text(TOKEN + "\n")
    (folder / "viewer").write_text(VIEWER + "\n")
    (folder / "tokens.yaml").write_text(
        f"tokens:\n- {{token: {TOKEN}, role: operator}}\n- {{token: {VIEWER}, role: viewer}}\n"
    )
    serve = ["serve", "--listen", "127.0.0.1:0", "--tokens", str(folder / "tokens.yaml")]
    files = ["--tls-cert", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem")]
    with running([*serve, *files], folder / "log") as process:
        address = address_of(process, folder / "log")
        yield Secured(address, folder / "ca.pem", folder / "token", folder / "viewer")


def test_a_token_over_tls_opens_the_core(secured: Secured) -> None:
    ended = evenhand("doctor", *secured.options(secured.token))
    assert ended.code == 0, ended.err


def test_a_role_that_may_not_is_told_so(secured: Secured) -> None:
    ended = evenhand("doctor", *secured.options(secured.viewer))
    assert (ended.code, ended.out) == (3, "")
    assert "your role (viewer of root) may not ask the doctor; ask an operator" in ended.err
    seen = evenhand("version", *secured.options(secured.viewer))
    assert seen.code == 0, seen.err
    assert "are hidden from viewers" in seen.out
    assert "reported 0" not in seen.out


def test_without_a_token_it_says_what_to_give(secured: Secured) -> None:
    ended = evenhand("queues", "--core", secured.address, "--tls-ca", str(secured.ca))
    assert ended.code == 3
    assert "--token-file" in ended.err


def test_without_tls_it_says_what_to_give(secured: Secured) -> None:
    ended = evenhand("queues", "--core", secured.address)
    assert ended.code == 3
    assert "--tls-ca" in ended.err


def test_an_authority_that_did_not_sign_it(secured: Secured, tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    ended = evenhand("queues", "--core", secured.address, "--tls-ca", str(tmp_path / "other.pem"))
    assert ended.code == 3
    assert "cannot reach" in ended.err


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--listen", "0.0.0.0:0"], "--insecure"),
        (["--tls-cert", "/nowhere/cert.pem"], "--tls-key"),
        (
            ["--insecure", "--tls-cert", "/nowhere/cert.pem", "--tls-key", "/nowhere/key.pem"],
            "--insecure has no effect with --tls-cert",
        ),
        (["--tokens", "/nowhere/tokens.yaml"], "/nowhere/tokens.yaml"),
        (["--listen", "here"], "HOST:PORT"),
        (["--metrics", "0.0.0.0:0"], "--metrics"),
    ],
)
def test_a_wrong_way_to_serve_is_refused(options: list[str], word: str) -> None:
    ended = finished("serve", *options)
    assert ended.returncode == 2
    assert word in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_viewer_s_partitions_are_those_of_its_queue_and_say_so() -> None:
    seen = inspect_pb2.Partition(
        name="default",
        node_sort_policy="fair",
        usage={"vcore": 12_000},
        counts=inspect_pb2.ClusterCounts(applications=3, allocations=12, waiting_asks=4),
        visible_queue="root.research",
    )
    answer = inspect_pb2.ListPartitionsResponse(partitions=[seen])
    with fake_running(FakeCore(ListPartitions=answer)) as core:
        ended = evenhand("partitions", "--core", core.address, width=80)
    assert ended.words("default") == ["default", "fair", "-", "3", "12", "4", "cores", "12/-"]
    assert ended.out.splitlines()[-1] == (
        "numbers of root.research and below: nodes and capacity are hidden from viewers"
    )


def test_a_refusal_says_what_the_role_may_not_do(secured: Secured) -> None:
    ended = evenhand("nodes", *secured.options(secured.viewer))
    assert ended.code == 3
    assert "error: your role (viewer of root) may not list nodes; ask an operator\n" in ended.err
