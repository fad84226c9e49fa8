"""Groups of cores in the chart: the table is the one that cores, shims and commands read, and each group has its own objects."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest

from evenhand_cli.app import Shelf
from evenhand_cli.core_table import CoreTable, read_core_table
from tests.chart.helm import Object, rendered
from tests.chart.matrix import MATRIX
from tests.chart.test_objects import pods

PAIRS = MATRIX["groups of cores"]
SINGLE: dict[str, Any] = {
    "core.groups": [{"name": "b", "partitions": ["gpu"], "revision": 2}],
    "core.state.persistent": True,
}
WAYS = {"two cores in each group": PAIRS, "one core in each group": SINGLE}
TABLE = "/etc/evenhand/cores/cores.yaml"


def shown(values: dict[str, Any]) -> dict[tuple[str, str], Object]:
    """Return the objects that the chart renders, by kind and name."""
    return {(it["kind"], it["metadata"]["name"]): it for it in rendered(values)}


@cache
def objects_of(way: str) -> dict[tuple[str, str], Object]:
    """Return the objects of one way. Tests do not change these objects."""
    return shown(WAYS[way])


def table_of(objects: dict[tuple[str, str], Object], folder: Path) -> CoreTable:
    """Return the table as the real reader of `--cores` reads it."""
    file = folder / "cores.yaml"
    file.write_text(objects["ConfigMap", "evenhand-cores"]["data"]["cores.yaml"])
    return read_core_table(file)


def pod_of(objects: dict[tuple[str, str], Object], name: str) -> Mapping[str, Any]:
    """Return the pod template of a workload."""
    return dict(pods([*objects.values()]))[name]


def workload(group: str) -> str:
    """Return the name of the workload with the cores of a group."""
    return "evenhand-core" if group == "a" else f"evenhand-core-{group}"


def parsed(template: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a pod's container as the real command line reads them. Raises click.UsageError for others."""
    name, *options = template["spec"]["containers"][0]["args"]
    command = Shelf()[name]
    found: dict[str, Any]
    found, rest, _ = command.make_parser(click.Context(command)).parse_args(options)
    assert rest == []
    return found


def test_the_table_names_the_groups_of_the_values(tmp_path: Path) -> None:
    pairs = table_of(objects_of("two cores in each group"), tmp_path)
    assert [(one.name, one.partitions, one.revision) for one in pairs.groups] == [
        ("a", ("default",), 3),
        ("b", ("gpu", "on"), 12_345_678),
        ("no", (), 0),
    ]
    single = table_of(objects_of("one core in each group"), tmp_path)
    assert [(one.name, one.addresses, one.revision) for one in single.groups] == [
        ("a", "evenhand-core:50051", 0),
        ("b", "evenhand-core-b:50051", 2),
    ]


@pytest.mark.parametrize("way", WAYS)
def test_every_address_is_a_core_of_its_group_and_a_name_in_the_certificate(
    way: str, tmp_path: Path
) -> None:
    """A host is a Service of the group, or a pod of its StatefulSet below the Service without an address."""
    objects = objects_of(way)
    [job] = [it for (kind, _), it in objects.items() if kind == "Job"]
    words = job["spec"]["template"]["spec"]["containers"][0]["args"]
    [certificate] = [word for word in words if word.startswith("--server=evenhand-core-tls=")]
    certified = certificate.rpartition("=")[2].split(",")
    for group in table_of(objects, tmp_path).groups:
        name = workload(group.name)
        template = pod_of(objects, name)
        for address in group.addresses.split(","):
            host, _, port = address.partition(":")
            pod, _, headless = host.rpartition(".")
            service = objects["Service", headless]["spec"]
            assert service["selector"].items() <= template["metadata"]["labels"].items()
            assert [one["port"] for one in service["ports"] if one["name"] == "grpc"] == [int(port)]
            if pod:
                stateful = objects["StatefulSet", name]["spec"]
                assert stateful["serviceName"] == headless
                assert pod in {f"{name}-{at}" for at in range(stateful["replicas"])}
            assert {host, f"{host}.evenhand.svc"} <= {*certified}


@pytest.mark.parametrize("way", WAYS)
def test_every_process_reads_the_table(way: str, tmp_path: Path) -> None:
    objects = objects_of(way)
    groups = table_of(objects, tmp_path)
    names = [workload(one.name) for one in groups.groups]
    for group, name in zip(groups.groups, names, strict=True):
        template = pod_of(objects, name)
        found = parsed(template)
        assert (found["cores"], groups.assignment(found["group"]).group) == (TABLE, group.name)
        followed = group.addresses if "," in group.addresses else None
        assert found.get("follow") == followed
        env = {one["name"]: one.get("value") for one in template["spec"]["containers"][0]["env"]}
        assert env["EVENHAND_CORES"] == TABLE
        assert "EVENHAND_CORE" not in env
    clients = ["evenhand-shim"] + ["evenhand-console"] * ("console.enabled" in WAYS[way])
    for name in [*names, *clients]:
        template = pod_of(objects, name)
        found = parsed(template)
        assert (found["cores"], found.get("core")) == (TABLE, None)
        [mount] = [
            one
            for one in template["spec"]["containers"][0]["volumeMounts"]
            if one["mountPath"] == str(Path(TABLE).parent)
        ]
        [volume] = [one for one in template["spec"]["volumes"] if one["name"] == mount["name"]]
        assert volume["configMap"]["name"] == "evenhand-cores"


def test_each_group_has_its_own_pods_budget_policy_and_scrape() -> None:
    objects = objects_of("two cores in each group")
    parts = ["evenhand-core", "evenhand-core-b", "evenhand-core-no"]
    for part in parts:
        own = {"app.kubernetes.io/name": part}
        for kind in ("StatefulSet", "PodDisruptionBudget", "ServiceMonitor"):
            assert objects[kind, part]["spec"]["selector"]["matchLabels"] == own
        assert pod_of(objects, part)["metadata"]["labels"] == own
        policy = objects["NetworkPolicy", part]["spec"]
        assert policy["podSelector"]["matchLabels"] == own
        peers = {
            one["podSelector"]["matchLabels"].get("app.kubernetes.io/name")
            for one in policy["ingress"][0]["from"]
        }
        assert peers >= {*parts, "evenhand-shim", "evenhand-console"}
    single = objects_of("one core in each group")
    claims = {name for kind, name in single if kind == "PersistentVolumeClaim"}
    assert claims == {"evenhand-core", "evenhand-core-b"}


def test_groups_share_no_log_and_no_database() -> None:
    values = {
        "core.replicas": 2,
        "core.log.url": "nats://nats:4222/prod",
        "core.history.url": "postgresql+psycopg://db/a",
        "core.groups": [{"name": "b", "historyUrl": "postgresql+psycopg://db/b"}],
    }
    objects = shown(values)
    found = [parsed(pod_of(objects, name)) for name in ("evenhand-core", "evenhand-core-b")]
    assert [one["log"] for one in found] == ["nats://nats:4222/prod", "nats://nats:4222/prod-b"]
    assert [one["history"] for one in found] == [
        "postgresql+psycopg://db/a",
        "postgresql+psycopg://db/b",
    ]


def changed(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    """Return the names of the objects that differ, without those that are only in one of both."""
    one, other = shown(before), shown(after)
    return {
        f"{kind}/{name}"
        for kind, name in one.keys() & other.keys()
        if one[kind, name] != other[kind, name]
    }


def test_a_moved_partition_starts_no_pod_again_and_another_group_does() -> None:
    moved = {
        "core.group.partitions": ["default", "gpu"],
        "core.group.revision": 1,
        "core.groups": [{"name": "b", "revision": 3}],
    }
    assert changed(SINGLE, SINGLE | moved) == {"ConfigMap/evenhand-cores"}
    more = {"core.groups": [*SINGLE["core.groups"], {"name": "c"}]}
    assert {
        "ConfigMap/evenhand-cores",
        "Deployment/evenhand-core",
        "Deployment/evenhand-core-b",
        "Deployment/evenhand-shim",
    } <= changed(SINGLE, SINGLE | more)


def test_without_groups_nothing_of_the_table_is_rendered() -> None:
    named = {"core.group.name": "zz", "core.group.partitions": ["zz"], "core.group.revision": 9}
    objects = rendered(MATRIX["pair"])
    assert objects == rendered(MATRIX["pair"] | named)
    text = json.dumps(objects)
    assert not any(word in text for word in ("--cores", "--group", "EVENHAND_CORES", "cores.yaml"))
