"""The output about a cluster whose resource manager is away: for prepared answers, and for a shim that was killed."""

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from grpc_health.v1.health_pb2 import HealthCheckResponse

from evenhand.v1 import inspect_pb2 as pb
from tests.cli import samples
from tests.cli.clusters import write_known
from tests.cli.fake import FakeCore
from tests.cli.fake import running as fake_running
from tests.cli.processes import address_of, running
from tests.cli.run import Ended, evenhand

LOOKS_MAX = 300
LISTINGS = (
    ("partitions",),
    ("queues",),
    ("apps",),
    ("nodes",),
    ("allocations", "--asks"),
    ("decisions",),
    ("decisions", "--lost-work"),
    ("queues", "--unmet"),
    ("decisions", "--shadow"),
    ("explain", "root"),
    ("simulate", "ask", "POD"),
    ("explain", "node-0"),
    ("simulate", "config", "examples/clusters/small/queues.yaml"),
)


@pytest.fixture(scope="module")
def abandoned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Provide the address of a core whose only shim was killed, as soon as the core says so."""
    folder = tmp_path_factory.mktemp("abandoned")
    cluster = write_known(folder / "cluster")
    with running(["serve", "--listen", "127.0.0.1:0"], folder / "serve.log") as process:
        address = address_of(process, folder / "serve.log")
        with running(
            ["shim", "--cluster", str(cluster), "--core", address], folder / "shim.log"
        ) as shim:
            look_until(address, "health", "--manager", "evenhand", code=0)
            assert evenhand("doctor", "--core", address).code == 0
            shim.send_signal(signal.SIGKILL)
            shim.wait(30)
            look_until(address, "health", code=1)
            yield address


def look_until(address: str, *command: str, code: int) -> Ended:
    """Look until the command ends with the code, with a limit on the number of looks."""
    ended = evenhand(*command, "--core", address)
    for _ in range(LOOKS_MAX):
        if ended.code == code:
            return ended
        time.sleep(0.1)  # Between two looks; the number of looks is the limit.
        ended = evenhand(*command, "--core", address)
    raise AssertionError(f"`{' '.join(command)}` never ended with {code}: {ended.out}{ended.err}")


def test_the_doctor_and_health_see_a_killed_shim(abandoned: str) -> None:
    doctor = evenhand("doctor", "--core", abandoned)
    assert doctor.code == 1
    assert doctor.words("error ")[:6] == ["error", "manager", "evenhand", "it", "is", "away"]
    health = evenhand("health", "--core", abandoned)
    assert (
        health.code,
        health.out.startswith("core serving, leads; manager evenhand away for"),
    ) == (
        1,
        True,
    )
    as_json = evenhand("health", "--core", abandoned, "-o", "json").value()
    assert list(as_json["managers_away"]) == ["evenhand"]
    assert evenhand("version", "--core", abandoned).words(" away ")[2:4] == ["away", "for"]


@pytest.mark.parametrize("command", LISTINGS)
def test_every_listing_says_that_its_picture_is_old(
    abandoned: str, command: tuple[str, ...], tmp_path: Path
) -> None:
    pod = tmp_path / "pod.yaml"
    pod.write_text("{kind: Pod, metadata: {name: new}, spec: {containers: [{name: c}]}}")
    command = tuple(str(pod) if one == "POD" else one for one in command)
    ended = evenhand(*command, "--core", abandoned)
    assert any(line.startswith("picture of ") for line in ended.err.splitlines()), ended.err
    assert ended.err.count("its manager 'evenhand' is away for") == 1
    value = json.loads(evenhand(*command, "--core", abandoned, "-o", "json").out)
    assert [one["rm_id"] for one in value["picture"]["away"]] == ["evenhand"]


def test_a_reconnect_is_no_alarm() -> None:
    manager = pb.ManagerInfo(rm_id="rm", away_since_ms=samples.T0, away=False)
    server = pb.ServerInfoResponse(managers=[manager], now_ms=samples.T0 + 1_000)
    with fake_running(FakeCore(ServerInfo=server)) as core:
        assert evenhand("version", "--core", core.address).words("rm")[-4:] == [
            "away",
            "for",
            "1.0",
            "s",
        ]


@pytest.mark.parametrize(("away", "code", "state"), [(False, 0, "synced"), (True, 1, "away")])
def test_health_of_a_manager_is_bad_once_it_counts_as_away(
    away: bool,  # noqa: FBT001
    code: int,
    state: str,
) -> None:
    manager = pb.ManagerInfo(
        rm_id="rm", sync_state=pb.SYNC_STATE_SYNCED, away_since_ms=samples.T0, away=away
    )
    server = pb.ServerInfoResponse(managers=[manager], now_ms=samples.T0 + 6_000)
    serving = HealthCheckResponse(status=HealthCheckResponse.SERVING)
    with fake_running(FakeCore(ServerInfo=server, Check=serving)) as core:
        ended = evenhand("health", "--manager", "rm", "--core", core.address, "-o", "json")
    assert (ended.code, ended.value()["manager_state"]) == (code, state)


def test_a_picture_of_another_day_has_its_date_and_a_viewer_no_name() -> None:
    picture = pb.Picture(
        taken_at_ms=samples.T0 + 200_000_000, away=[pb.AbsentManager(since_ms=samples.T0)]
    )
    answer = pb.ListPartitionsResponse(partitions=[samples.partition()], picture=picture)
    with fake_running(FakeCore(ListPartitions=answer)) as core:
        ended = evenhand("partitions", "--core", core.address)
    assert ended.err.startswith("picture of 20")
    assert ended.err.endswith(": its manager is away for 2 d 07 h\n")


def test_a_picture_that_is_not_complete_says_so() -> None:
    answer = pb.ListPartitionsResponse(
        partitions=[samples.partition()], picture=pb.Picture(syncing=["rm"])
    )
    with fake_running(FakeCore(ListPartitions=answer)) as core:
        ended = evenhand("partitions", "--core", core.address)
    assert ended.err == "picture is not complete: its manager 'rm' still sends what it knows\n"


@pytest.mark.parametrize(
    ("log", "where"),
    [
        ("", "decisions of earlier runs: not kept, for want of --decision-log"),
        ("/var/log/d.jsonl", "decisions of earlier runs: in /var/log/d.jsonl"),
    ],
)
@pytest.mark.parametrize(
    ("reported", "told"),
    [
        ((242, 1), "; at registration its managers reported 242 allocations and 1 ask"),
        ((0, 0), ""),
    ],
)
def test_a_core_says_what_managers_reported_and_where_decisions_of_earlier_runs_are(
    log: str, where: str, reported: tuple[int, int], told: str
) -> None:
    allocations, asks = reported
    manager = pb.ManagerInfo(
        rm_id="rm",
        open_streams=["node"],
        recovered_allocations=allocations,
        recovered_asks=asks,
    )
    now = samples.T0 + 18_000
    server = pb.ServerInfoResponse(
        managers=[manager], started_at_ms=samples.T0, now_ms=now, decision_log=log
    )
    checked = pb.CheckConsistencyResponse(
        checks=["usage"],
        started_at_ms=samples.T0,
        checked_at_ms=now,
        recovered_allocations=allocations,
        recovered_asks=asks,
        decision_log=log,
    )
    with fake_running(FakeCore(ServerInfo=server, CheckConsistency=checked)) as core:
        version = evenhand("version", "--core", core.address)
        doctor = evenhand("doctor", "--core", core.address)
    up = f"core up 18 s{told}"
    assert version.out.splitlines()[-2:] == [up, where]
    assert doctor.out.splitlines() == ["all is well (1 check)", up, where]


def test_version_names_the_configuration_of_the_previous_run_while_another_is_in_force() -> None:
    server = pb.ServerInfoResponse(
        started_at_ms=samples.T0,
        now_ms=samples.T0 + 18_000,
        config_digest="a" * 64,
        config_source="file queues.yaml",
        previous_config_digest="b" * 64,
        previous_config_source="apply q.yaml",
    )
    with fake_running(FakeCore(ServerInfo=server)) as core:
        ended = evenhand("version", "--core", core.address, width=80)
        server.config_digest = "b" * 64
        same = evenhand("version", "--core", core.address)
    assert " ".join(ended.words("previous run")) == (
        f"previous run {'b' * 12} from apply q.yaml, until the last restart"
    )
    assert "previous run" not in same.out


def test_a_viewer_s_version_says_what_is_hidden_and_claims_nothing_of_it() -> None:
    server = pb.ServerInfoResponse(
        started_at_ms=samples.T0, now_ms=samples.T0 + 18_000, visible_queue="root.research"
    )
    with fake_running(FakeCore(ServerInfo=server)) as core:
        ended = evenhand("version", "--core", core.address)
    assert "your role sees root.research and below: configuration, managers" in ended.out
    assert "reported 0" not in ended.out
    assert "lost" not in ended.out


def test_an_age_that_is_not_known_is_shown_as_a_bound() -> None:
    one = samples.allocation("pod-1")
    one.since_at_the_latest = True
    answer = pb.ListAllocationsResponse(allocations=[one])
    with fake_running(FakeCore(ListAllocations=answer)) as core:
        ended = evenhand("allocations", "--core", core.address, width=240)
    assert "  before " in ended.out


def test_a_watched_listing_says_so_too(abandoned: str, tmp_path: Path) -> None:
    with running(["queues", "--watch", "--core", abandoned], tmp_path / "watch.log") as process:
        for _ in range(LOOKS_MAX):
            if "its manager 'evenhand' is away" in (tmp_path / "watch.log").read_text():
                break
            time.sleep(0.1)  # Between two looks; the number of looks is the limit.
        else:
            raise AssertionError((tmp_path / "watch.log").read_text())
        process.send_signal(signal.SIGINT)
