"""A second core as its users have it: followed over TLS, asked, compared before an upgrade, and started again after a kill."""

import json
from pathlib import Path
from typing import Any

import pytest
import trustme

from scripts.real.cluster import free_ports
from server.replication import checkpoint, saved
from tests.cli.processes import ROOT, address_of, finished, running, until
from tests.cli.run import check_replay, evenhand
from tests.cli.test_embedded_restart import decisions, places, shim
from tests.cli.test_end_to_end import await_counts
from tests.cli.test_shim_ends import logged
from tests.scrape import scraped

CLAIM = ROOT / "examples" / "clusters" / "claim"
ANY = ("serve", "--listen", "127.0.0.1:0")
TOKEN = "the-token-of-the-follower-here"  # noqa: S105 - of this test alone
OPERATOR = "the-token-of-the-operator-here"


def replication(*options: str) -> dict[str, Any]:
    """Return what a core says about whom it follows."""
    return evenhand("replication", *options, "-o", "json").value()  # type: ignore[no-any-return]


def is_level(address: str) -> bool:
    """Return whether a follower has all input that its leader is known to have had."""
    found = replication("--core", address)
    follows = found["state"] == "follower"
    return bool(follows and found["position"] >= found["leader_position"] > 0)


def metrics(log: Path) -> dict[str, float]:
    """Return what a core answers on the metrics port that its log names, by name and labels."""
    return scraped(logged(log, "metrics")["address"])


def look_at_metrics(folder: Path) -> None:
    """Compare what a leader and its follower export."""
    leads, follows = metrics(folder / "a.log"), metrics(folder / "b.log")
    assert (leads["evenhand_followers"], follows["evenhand_followers"]) == (1, 0)
    assert follows['evenhand_replica_state{state="follower"}'] == 1
    assert follows["evenhand_replica_lag_inputs"] == 0
    assert follows["evenhand_replica_joins_total"] == 1
    outcomes = ("acknowledged", "late", "alone")
    waits = [f'evenhand_follower_waits_total{{outcome="{one}"}}' for one in outcomes]
    assert sum(leads[one] for one in waits) >= 1
    assert not set(waits) & set(follows)


def look_at_positions(leader: str, follower: str) -> None:
    """Ask a follower for a state that the leader has shown, and for one that does not come."""
    seen = evenhand("queues", "--core", leader, "-o", "json").value()["picture"]
    ask = ("allocations", "--core", follower, "--at-least")
    assert evenhand(*ask, f"{seen['position']}@{seen['term']}").code == 0
    behind = evenhand(*ask, f"1000000000@{seen['term']}")
    assert (behind.code, behind.out) == (1, "")
    assert "error: this core follows and has got " in behind.err


def test_a_follower_shows_what_its_leader_decided_and_would_decide_the_same(tmp_path: Path) -> None:
    scraped = ("--metrics", "127.0.0.1:0")
    waits = ("--follower-acknowledges", "2s")
    with running([*ANY, *scraped, *waits], tmp_path / "a.log") as leader:
        first = address_of(leader, tmp_path / "a.log")
        with (
            running([*ANY, *scraped, "--follow", first], tmp_path / "b.log") as follower,
            running(shim(CLAIM, tmp_path / "state", first), tmp_path / "shim.log"),
        ):
            second = address_of(follower, tmp_path / "b.log")
            until(lambda: len(decisions(first)) == 8)
            await_counts(first, allocations=16, waiting_asks=2)
            until(lambda: is_level(second) and places(second) == places(first))
            assert decisions(second) == decisions(first)
            shown = finished("queues", "--core", second)
            assert f"picture of a core that does not decide: it follows {first}" in shown.stderr
            assert "this core follows" in evenhand("replication", "--core", second).out
            told = evenhand("replication", "--core", first).out
            assert told.startswith("this core decides; ")
            assert f"follower {second}" in told or "follower 127.0.0.1:0: level" in told
            health = evenhand("health", "--core", second)
            assert (health.code, health.out) == (0, "core serving, follows\n")
            as_data = evenhand("health", "--core", first, "-o", "json").value()
            assert (as_data["leads"], as_data["current"], as_data["healthy"]) == (True, True, True)
            look_at_metrics(tmp_path)
            look_at_positions(first, second)
            both = f"127.0.0.1:1,{second},{first}"
            assert evenhand("replication", "--core", both).out.startswith("this core decides")
            assert evenhand("replication", "--core", f"127.0.0.1:1,{second}").code == 0
            ended = evenhand("follow", "--core", first, "--for", "2s", "-o", "json")
            assert (ended.code, ended.value()["difference"]) == (0, "")


def test_a_version_with_another_layout_is_compared_by_the_trace_of_a_running_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"--decision-log": tmp_path / "decisions.jsonl", "--trace": tmp_path / "trace.jsonl"}
    words = [str(word) for pair in files.items() for word in pair]
    with running([*ANY, *words], tmp_path / "a.log") as core:
        address = address_of(core, tmp_path / "a.log")
        with running(shim(CLAIM, tmp_path / "state", address), tmp_path / "shim.log"):
            until(lambda: len(decisions(address)) == 8)
            await_counts(address, allocations=16, waiting_asks=2)
            monkeypatch.setattr(checkpoint, "layout", lambda: "another")
            refused = evenhand("follow", "--core", address, "--for", "1s")
            assert refused.code == 1
            assert "compare the versions by an input trace" in " ".join(refused.err.split())
            check_replay(files["--decision-log"], files["--trace"])


def test_a_restarted_core_has_what_the_killed_one_knew(tmp_path: Path) -> None:
    serve = [*ANY, "--state-dir", str(tmp_path)]
    with running(serve, tmp_path / "a.log") as core:
        address = address_of(core, tmp_path / "a.log")
        with running(shim(CLAIM, tmp_path / "state", address), tmp_path / "shim.log"):
            until(lambda: len(decisions(address)) == 8)
            await_counts(address, allocations=16, waiting_asks=2)
            before = places(address), decisions(address)
            until((tmp_path / "state.checkpoint").exists)
            until(lambda: saved_since(tmp_path, address))
        core.kill()
        core.wait()
    with running(serve, tmp_path / "b.log") as core:
        address = address_of(core, tmp_path / "b.log")
        assert replication("--core", address)["state"] == "restored"
        assert (places(address), decisions(address)) == before
        waits = "core serving, has no leader and waits for a manager\n"
        for options, code in (((), 1), (("--core-only",), 0)):
            health = evenhand("health", *options, "--core", address)
            assert (health.code, health.out) == (code, waits)
        shown = finished("queues", "--core", address)
        assert "picture of a core that does not decide: it shows an earlier run" in shown.stderr
        refused = evenhand("config", "apply", str(config(tmp_path)), "--core", address)
        assert refused.code != 0
        assert "waits for a manager to register" in refused.err
        with running(shim(CLAIM, tmp_path / "state", address), tmp_path / "shim2.log"):
            logged(tmp_path / "shim2.log", "the core knows everything")
            assert replication("--core", address)["state"] == "leader"
            await_counts(address, allocations=16, waiting_asks=2)
            assert (places(address), decisions(address)) == before


def config(folder: Path) -> Path:
    """Write a configuration, and return its file."""
    file = folder / "queues.yaml"
    file.write_text("partitions: [{name: default, queues: [{name: root}]}]\n")
    return file


def saved_since(folder: Path, address: str) -> bool:
    """Return whether the state was saved after everything that the core was given, as far as can be seen from outside."""
    found = saved.read(folder / saved.NAME)
    return (
        found.header is not None
        and found.header.position >= replication("--core", address)["position"]
    )


@pytest.fixture
def tls(tmp_path: Path) -> Path:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    for name in ("leader", "follower"):
        own = authority.issue_cert("127.0.0.1")
        own.cert_chain_pems[0].write_to_path(tmp_path / f"{name}.pem")
        own.private_key_pem.write_to_path(tmp_path / f"{name}.key")
    rows = f"- {{token: {TOKEN}, role: follower}}\n- {{token: {OPERATOR}, role: operator}}\n"
    (tmp_path / "tokens.yaml").write_text(f"tokens:\n{rows}")
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    (tmp_path / "operator").write_text(f"{OPERATOR}\n")
    return tmp_path


def test_a_follower_needs_its_role(tls: Path) -> None:
    secured = ["--tls-cert", str(tls / "leader.pem"), "--tls-key", str(tls / "leader.key")]
    serve = [*ANY, *secured, "--tokens", str(tls / "tokens.yaml")]
    own = ["--follow-tls-cert", str(tls / "follower.pem"), "--follow-tls-key"]
    joins = ["--follow-tls-ca", str(tls / "ca.pem"), *own, str(tls / "follower.key")]
    with running(serve, tls / "a.log") as leader:
        first = address_of(leader, tls / "a.log")
        follow = [*ANY, "--follow", first, *joins, "--follow-token", str(tls / "token")]
        with running(follow, tls / "b.log") as follower:
            second = address_of(follower, tls / "b.log")
            until(lambda: replication("--core", second)["state"] == "follower")
        asks = ["--core", first, "--tls-ca", str(tls / "ca.pem"), "--token-file"]
        assert replication(*asks, str(tls / "token"))["state"] == "leader"
        refused = evenhand("queues", *asks, str(tls / "token"))
        assert "follower" in refused.err
        without = [*ANY, "--follow", first, *joins, "--follow-token", str(tls / "operator")]
        with running(without, tls / "c.log") as other:
            third = address_of(other, tls / "c.log")
            until(lambda: replication("--core", third)["state"] == "follower")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--follow", "nowhere"], "--follow 'nowhere' is no address"),
        (["--follow", "127.0.0.1:1", "--trace", "t.jsonl"], "--trace: a core that follows"),
        (["--follow-token", "f"], "there is no core to follow"),
        (["--follow", "127.0.0.1:1", "--follow-tls-cert", "f"], "need each other"),
        (["--follow", "127.0.0.1:1", "--follow-token", "/nowhere/f"], "/nowhere/f: No such file"),
    ],
)
def test_options_that_cannot_be_used_are_refused(
    options: list[str], why: str, tmp_path: Path
) -> None:
    ended = finished(*ANY, *options, folder=tmp_path)
    assert ended.returncode == 2, ended.stderr
    assert why in " ".join(ended.stderr.split())


def test_a_core_hands_over_to_a_follower_and_back(tmp_path: Path) -> None:
    first, second = (f"127.0.0.1:{port}" for port in free_ports(2))
    both = ("--core", f"{first},{second}")
    with (
        running(["serve", "--listen", first, "--follow", second], tmp_path / "a.log") as one,
        running(["serve", "--listen", second, "--follow", first], tmp_path / "b.log") as other,
        running(shim(CLAIM, tmp_path / "state", both[1]), tmp_path / "shim.log"),
    ):
        address_of(one, tmp_path / "a.log")
        address_of(other, tmp_path / "b.log")
        until(lambda: is_level(first) or is_level(second))
        leader, follower = (second, first) if is_level(first) else (first, second)
        until(lambda: len(decisions(follower)) == 8)
        await_counts(follower, allocations=16, waiting_asks=2)
        until(lambda: is_level(follower))
        known = decisions(leader)
        refused = evenhand("replication", "hand-over", *both, "--to", "core-9")
        assert (refused.code, refused.out) == (1, "")
        assert f"no follower has the name 'core-9'; there are: {follower}" in refused.err
        done = evenhand("replication", "hand-over", *both, "--to", follower, "-o", "json").value()
        assert done["follower"] == follower
        until(lambda: is_level(leader))
        assert replication("--core", follower)["state"] == "leader"
        assert decisions(follower) == known
        until(lambda: bool(replication("--core", follower)["streams"]))
        back = evenhand("replication", "hand-over", *both)
        assert (back.code, back.out.partition(" at ")[0]) == (0, f"handed over to {leader}")
        until(lambda: is_level(follower))
        assert decisions(leader) == known


def test_what_only_a_hand_over_needs_is_refused_otherwise(tmp_path: Path) -> None:
    table = tmp_path / "cores.yaml"
    table.write_text("cores: [{name: a, addresses: ['127.0.0.1:1']}]\n")
    spread = evenhand("replication", "hand-over", "--cores", str(table))
    assert (spread.code, spread.out) == (2, "")
    assert "a hand-over is about one group of cores" in spread.err
    shown = evenhand("replication", "--to", "b", "--core", "127.0.0.1:1")
    assert shown.code == 2
    assert "--to has no effect without hand-over" in shown.err


def test_what_a_core_says_of_itself_is_data_too(tmp_path: Path) -> None:
    with running(ANY, tmp_path / "a.log") as core:
        address = address_of(core, tmp_path / "a.log")
        found = json.loads(finished("replication", "--core", address, "--output", "json").stdout)
        assert (found["state"], found["position"], found["followers"]) == ("leader", 0, [])
