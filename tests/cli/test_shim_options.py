"""The options of `evenhand shim`: the values that reach the shim, and the options that each kind of cluster refuses."""

from pathlib import Path

import pytest
import trustme

from shim_client import deployed
from shim_client.core_client.address import CoreAddress
from shim_client.deployed import ShimOptions
from tests.cli.clusters import write_known
from tests.cli.run import evenhand

Joined = list[tuple[ShimOptions, CoreAddress]]


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> Joined:
    """Provide the list of clusters that `evenhand shim --kubernetes` would join; none is joined."""
    found: Joined = []

    async def join(place: ShimOptions, core: CoreAddress) -> None:
        found.append((place, core))

    monkeypatch.setattr(deployed, "run_on_kubernetes", join)
    return found


def test_what_is_given_reaches_the_shim(joined: Joined, tmp_path: Path) -> None:
    own = trustme.CA()
    pair = own.issue_cert("shim.example")
    own.cert_pem.write_to_path(tmp_path / "ca")
    pair.cert_chain_pems[0].write_to_path(tmp_path / "cert")
    pair.private_key_pem.write_to_path(tmp_path / "key")
    (tmp_path / "token").write_text("a-token-of-a-shim\n")
    place = ["--kubeconfig", "admin.conf", "--context", "lab", "--namespace", "scheduling"]
    more = ["--instance", "shim-0", "--health", "127.0.0.1:0", "--qps", "7", "--burst", "9"]
    more += ["--metrics", "127.0.0.1:9"]
    files = ["--tls-ca", "ca", "--tls-cert", "cert", "--tls-key", "key", "--token-file", "token"]
    tls = [str(tmp_path / word) if not word.startswith("--") else word for word in files]
    ended = evenhand("shim", "--kubernetes", *place, *more, "--core", "127.0.0.1:7", *tls)
    assert ended.code == 0, ended.err
    ((found, core),) = joined
    assert found == ShimOptions(
        kubeconfig=Path("admin.conf"),
        context="lab",
        namespace="scheduling",
        health="127.0.0.1:0",
        metrics="127.0.0.1:9",
        qps=7,
        burst=9,
        instance="shim-0",
    )
    assert (core.target, core.token) == ("127.0.0.1:7", "a-token-of-a-shim")
    assert core.credentials is not None


@pytest.mark.parametrize("file", ["--tls-ca", "--token-file"])
def test_a_file_that_is_not_there_is_named(file: str, tmp_path: Path) -> None:
    ended = evenhand("shim", "--cluster", str(tmp_path), file, "/nowhere/file")
    assert ended.code == 1
    assert file in ended.err


def test_an_address_that_is_none_is_named_with_its_option(joined: Joined) -> None:
    for option, where in (("--metrics", "--metrics"), ("--core", "--core or EVENHAND_CORE")):
        ended = evenhand("shim", "--kubernetes", option, "nowhere")
        assert (ended.code, joined) == (2, [])
        assert ended.err.startswith(f"error: `nowhere` is not an address\nwhere: {where}\n")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--kubeconfig", "admin.conf"),
        ("--context", "lab"),
        ("--namespace", "scheduling"),
        ("--instance", "shim-0"),
        ("--health", "127.0.0.1:0"),
        ("--metrics", "127.0.0.1:0"),
        ("--qps", "7"),
        ("--burst", "9"),
    ],
)
def test_an_embedded_cluster_has_no_use_for_options_of_kubernetes(
    option: str, value: str, tmp_path: Path
) -> None:
    cluster = str(write_known(tmp_path / "cluster"))
    ended = evenhand("shim", "--cluster", cluster, option, value)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"error: {option} has no effect without --kubernetes")


def test_variables_of_a_pod_are_no_options_of_an_embedded_cluster(tmp_path: Path) -> None:
    ended = evenhand(
        *("shim", "--cluster", str(tmp_path), "--core", "127.0.0.1:1", "--no-wait"),
        NAMESPACE="scheduling",
        POD_NAME="shim-0",
    )
    assert "describes no cluster" in ended.err


def test_a_kubernetes_cluster_ends_its_pods_itself(joined: Joined) -> None:
    ended = evenhand("shim", "--kubernetes", "--stop", "5s")
    assert (ended.code, joined) == (2, [])
    assert ended.err.startswith("error: --stop has no effect without --cluster")
