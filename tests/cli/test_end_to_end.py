"""Every command that queries a core, with a real core and a real shim in their own processes."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.clusters import QUEUES, write_known
from tests.cli.processes import address_of, finished, running
from tests.cli.run import evenhand

LOOKS_MAX = 300


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Provide the address of a core with a settled cluster."""
    folder = tmp_path_factory.mktemp("end-to-end")
    cluster = write_known(folder / "cluster")
    serve = ["serve", "--listen", "127.0.0.1:0"]
    with running(serve, folder / "serve.log") as process:
        address = address_of(process, folder / "serve.log")
        shim = ["shim", "--cluster", str(cluster), "--core", address]
        with running(shim, folder / "shim.log"):
            await_counts(address, allocations=44, waiting_asks=18)
            yield address
    assert process.returncode == 0, (folder / "serve.log").read_text()


def await_counts(address: str, **wanted: int) -> None:
    """Poll until the core has these counts, with a limit on the number of looks."""
    for _ in range(LOOKS_MAX):
        found = evenhand("partitions", "--core", address, "-o", "json").value()["partitions"]
        counts = found[0]["counts"] if found else {}
        if all(counts.get(name) == value for name, value in wanted.items()):
            return
        time.sleep(0.1)  # Between two looks; the number of looks is the limit.
    raise AssertionError(f"the core never had {wanted}")


def test_partitions(core: str) -> None:
    assert evenhand("partitions", "--core", core).words("cores")[2:8] == [
        "6/6", "4", "44", "18", "cores", "46/96",
    ]  # fmt: skip
    (told,) = evenhand("partitions", "--core", core, "-o", "json").value()["partitions"]
    assert told["usage"]["vcore"] == 46_000
    assert told["counts"]["placed_total"] == 44


def test_queues(core: str) -> None:
    words = evenhand("queues", "--core", core, width=200).words("batch")
    assert words[1:3] == ["batch", "cores"]
    assert words[4:] == [
        "100",
        "%",
        "24",
        "-",
        "24",
        "0",
        "16",
        "1",
        "24",
        "16",
        "active",
        "16",
        "queue-limit",
    ]
    root = evenhand("queues", "--core", core, "-o", "json").value()["root"]
    assert {one["name"]: one["allocations"] for one in root["children"]} == {
        "batch": 24, "research": 8, "services": 12,
    }  # fmt: skip


def test_applications(core: str) -> None:
    told = evenhand("apps", "--core", core, "-o", "json").value()["applications"]
    assert {one["application_id"]: one["allocations"] for one in told} == {
        "front": 12, "train": 8, "huge": 0, "count": 24,
    }  # fmt: skip
    one = evenhand("apps", "--core", core, "--queue", "root.batch", "-o", "json").value()
    assert [app["application_id"] for app in one["applications"]] == ["count"]
    assert evenhand("apps", "--core", core, "--state", "running").out.count("Running") == 3


def test_nodes(core: str) -> None:
    told = evenhand("nodes", "--core", core, "-o", "json").value()["nodes"]
    assert sum(one["usage"]["vcore"] for one in told) == 46_000
    assert sum(one["allocations"] for one in told) == 44
    assert evenhand("nodes", "--core", core).out.splitlines()[-1] == "6 nodes"


def test_allocations_by_queue_application_and_node(core: str) -> None:
    def keys(*arguments: str) -> list[str]:
        value = evenhand("allocations", *arguments, "--core", core, "-o", "json").value()
        return [one["allocation_key"] for one in value["allocations"]]

    assert len(keys()) == 44
    assert len(keys("--asks")) == 62
    assert len(keys("--queue", "root.batch")) == 24
    assert len(keys("--app", "train")) == 8
    assert sorted(key for number in range(6) for key in keys("--node", f"node-{number}")) == sorted(
        keys()
    )


def test_a_waiting_pod_is_explained_by_its_name(core: str) -> None:
    asks = evenhand("allocations", "--asks", "--app", "count", "--core", core, "-o", "json").value()
    ask = next(one for one in asks["allocations"] if one["state"] == "waiting")
    name = ask["tags"]["kubernetes.io/meta/podName"]
    for key in (ask["allocation_key"], name, f"crunch/{name}"):
        told = evenhand("explain", key, "--core", core, "-o", "json").value()
        assert told["kind"] == "waiting_ask"
        assert told["waiting"]["code"] == "queue-limit"
        assert told["waiting"]["levels"][0]["short_types"] == ["vcore"]
    shown = evenhand("explain", name, "--core", core).out
    assert "too small: cores" in shown


def test_a_running_pod_a_node_and_an_application_are_explained(core: str) -> None:
    (first, *_) = evenhand("allocations", "--app", "train", "--core", core, "-o", "json").value()[
        "allocations"
    ]
    told = evenhand("explain", first["allocation_key"], "--core", core, "-o", "json").value()
    assert told["placed"]["node_id"] == first["node_id"]
    node = evenhand("explain", "node-1", "--core", core, "-o", "json").value()["node"]
    listed = evenhand("nodes", "--core", core, "-o", "json").value()["nodes"]
    same = next(one for one in listed if one["node_id"] == "node-1")
    assert {name: node[name] for name in ("allocations", "available", "schedulable")} == {
        name: same[name] for name in ("allocations", "available", "schedulable")
    }
    application = evenhand("explain", "huge", "--core", core, "-o", "json").value()["application"]
    assert application["asks_waiting"] == 2
    assert [(one["code"], one["asks"]) for one in application["groups"]] == [
        ("no-node-capacity", 2)
    ]


def test_a_pod_that_is_too_large_names_the_nearest_node(core: str) -> None:
    asks = evenhand("allocations", "--asks", "--app", "huge", "--core", core, "-o", "json").value()
    key = asks["allocations"][0]["allocation_key"]
    waiting = evenhand("explain", key, "--core", core, "-o", "json").value()["waiting"]
    assert waiting["nearest_node"].startswith("node-")
    assert waiting["nearest_missing"]["vcore"] > 0
    assert (waiting["nodes_examined"], waiting["nodes_fitting"]) == (6, 0)
    assert waiting["node_tally"][0]["nodes"] == 6
    assert "nearest node" in evenhand("explain", key, "--core", core).out


def test_an_unknown_key_brings_near_ones(core: str) -> None:
    ended = evenhand("explain", "node-11", "--core", core)
    assert ended.code == 1
    assert "did you mean `node-1`" in ended.err


def test_an_unknown_partition_is_named(core: str) -> None:
    for command in ("queues", "apps", "nodes", "allocations"):
        ended = evenhand(command, "--partition", "gpu", "--core", core)
        assert (ended.code, ended.out) == (1, "")
        assert "gpu" in ended.err


def test_the_doctor(core: str) -> None:
    value = evenhand("doctor", "--core", core, "-o", "json").value()
    assert value["healthy"] is True
    assert value["findings"] == []


def test_the_version_names_the_shim(core: str) -> None:
    value = evenhand("version", "--core", core, "-o", "json").value()
    assert value["core"]["managers"][0]["sync_state"] == "synced"
    assert evenhand("version", "--core", core).words("synced")[0] == "evenhand"


def test_events_from_the_beginning(core: str) -> None:
    ended = evenhand("events", "--kind", "placed", "--count", "44", "-o", "json", "--core", core)
    events = [json.loads(line) for line in ended.out.splitlines()]
    assert len({one["object"] for one in events}) == 44
    assert {one["kind"] for one in events} == {"placed"}


def test_health_of_the_core_and_of_a_manager(core: str) -> None:
    said = r"core serving, leads; manager evenhand here, heard \d+(\.\d)? s ago\n"
    assert re.fullmatch(said, evenhand("health", "--core", core).out)
    assert evenhand("health", "--core-only", "--core", core).out == "core serving, leads\n"
    well = evenhand("health", "--manager", "evenhand", "--core", core, "-o", "json")
    assert (well.code, well.value()) == (0, {
        "status": "serving", "leads": True, "current": True, "manager": "evenhand", "manager_state": "synced", "managers_away": {},
        "managers_here": {}, "healthy": True,
    })  # fmt: skip
    ended = evenhand("health", "--manager", "nobody", "--core", core)
    assert (ended.code, ended.out) == (1, "core serving, leads; manager nobody unknown\n")


def test_the_configuration_in_force_is_the_clusters(core: str) -> None:
    first, _, text = evenhand("config", "show", "--core", core).out.partition("\n")
    assert first.startswith("# revision 2 ")
    assert text == QUEUES
    value = evenhand("config", "show", "--core", core, "-o", "json").value()
    assert value["yaml"] == QUEUES
    assert re.fullmatch("[0-9a-f]{64}", value["digest"])


def test_a_configuration_is_compared_and_applied(core: str, tmp_path: Path) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text(QUEUES.replace("vcore: 24, memory: 64Gi", "vcore: 26, memory: 64Gi"))
    dry = evenhand("config", "apply", str(file), "--dry-run", "--core", core)
    assert dry.code == 0
    assert "root.batch" in dry.out
    assert "nothing was applied" in dry.out
    await_counts(core, allocations=44)
    applied = evenhand("config", "apply", str(file), "--core", core, "-o", "json").value()
    assert applied["applied"] is True
    assert len(applied["changes"]) == 1
    await_counts(core, allocations=46, waiting_asks=16)
    broken = tmp_path / "broken.yaml"
    broken.write_text(QUEUES.replace("max:", "mox:"))
    ended = evenhand("config", "apply", str(broken), "--core", core)
    assert ended.code == 1
    assert "mox" in ended.out
    file.write_text(QUEUES)
    evenhand("config", "apply", str(file), "--core", core)


def test_a_second_shim_of_the_same_cluster_ends_the_first(tmp_path: Path) -> None:
    cluster = str(write_known(tmp_path / "cluster"))
    with running(["serve", "--listen", "127.0.0.1:0"], tmp_path / "serve.log") as process:
        address = address_of(process, tmp_path / "serve.log")
        shim = ["shim", "--cluster", cluster, "--core", address]
        with running(shim, tmp_path / "first.log") as first:
            await_counts(address, allocations=44)
            with running(shim, tmp_path / "second.log"):
                first.wait(timeout=60)
        told = (tmp_path / "first.log").read_text()
    assert first.returncode == 1
    assert "another shim took over" in told
    assert "Traceback" not in told


def test_a_shim_with_a_queue_file_that_the_core_refuses(tmp_path: Path) -> None:
    cluster = write_known(tmp_path / "cluster")
    (cluster / "queues.yaml").write_text("partitions: 1\n")
    with running(["serve", "--listen", "127.0.0.1:0"], tmp_path / "serve.log") as process:
        address = address_of(process, tmp_path / "serve.log")
        ended = finished("shim", "--cluster", str(cluster), "--core", address)
    assert ended.returncode == 3
    assert "config check" in ended.stderr
    assert "Traceback" not in ended.stderr
