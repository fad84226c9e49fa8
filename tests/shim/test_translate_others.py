"""The translation of nodes, namespaces, PriorityClasses and settings."""

import json
from typing import Any

import pytest

from shim_client.config import BadSettingError, Settings, settings_from
from shim_client.messages import NodeAction, Taint
from shim_client.translate.applications import read_namespace
from shim_client.translate.fields import BadObjectError
from shim_client.translate.node import node_report, read_node
from shim_client.translate.priority import read_priority_class
from tests.shim.objects import named, node

ALLOW = "yunikorn.apache.org/allow-preemption"


def test_1_6_capacity_is_allocatable_only() -> None:
    item = node("n1", cpu="7900m")
    item["status"]["capacity"] = {"cpu": "8", "memory": "32Gi"}
    facts = read_node(item)
    assert facts.capacity == {"vcore": 7900, "memory": 16 * 2**30, "pods": 110}


def test_1_6_a_new_node_is_draining_and_has_its_attributes() -> None:
    taints = [{"key": "k", "effect": "NoSchedule"}]
    item = node("n1", labels={"zone": "a", "evenhand.io/partition": "gpu"}, taints=taints)
    report = node_report(read_node(item), NodeAction.CREATE_DRAIN)
    assert report.attributes == {
        "si.io/hostname": "n1",
        "si.io/rackname": "/rack-default",
        "evenhand.io/partition": "gpu",
    }
    assert (report.partition, report.labels["zone"]) == ("gpu", "a")
    assert report.taints == (Taint("k", "", "NoSchedule"),)


def test_1_6_a_cordoned_node_says_so() -> None:
    assert read_node(node("n1", unschedulable=True)).unschedulable


@pytest.mark.parametrize(
    ("field", "value"),
    [("status", {"allocatable": {"cpu": "many"}}), ("spec", {"taints": 5}), ("metadata", {})],
)
def test_a_bad_node_is_an_error(field: str, value: Any) -> None:
    with pytest.raises(BadObjectError):
        read_node({**node("n1"), field: value})


PREFIX = "yunikorn.apache.org/"


@pytest.mark.parametrize(
    ("annotations", "tags", "problems"),
    [
        ({}, {}, 0),
        (
            {"namespace.quota": '{"cpu": "64", "memory": "100G", "nvidia.com/gpu": 1}'},
            {"resourcequota": {"vcore": 64000, "memory": 10**11, "nvidia.com/gpu": 1}},
            0,
        ),
        (
            {"namespace.max.cpu": "2", "namespace.max.memory": "1Ki"},
            {"resourcequota": {"vcore": 2000, "memory": 1024}},
            0,
        ),
        (
            {"namespace.quota": '{"cpu": "1"}', "namespace.max.cpu": "2"},
            {"resourcequota": {"vcore": 1000}},
            0,
        ),
        ({"namespace.guaranteed": '{"cpu": "500m"}'}, {"resourceguaranteed": {"vcore": 500}}, 0),
        ({"namespace.maxApps": "7"}, {"resourcemaxapps": "7"}, 0),
        ({"parentqueue": "root.users"}, {"parentqueue": "root.users"}, 0),
        ({"namespace.quota": '{"cpu": '}, {}, 1),
        ({"namespace.quota": "[1]"}, {}, 1),
        ({"namespace.quota": '{"cpu": "lots"}'}, {}, 1),
        ({"namespace.max.cpu": "lots"}, {}, 1),
        ({"namespace.maxApps": "-1"}, {}, 1),
    ],
)
def test_1_3_namespace_annotations_become_tags(
    annotations: dict[str, str], tags: dict[str, Any], problems: int
) -> None:
    written = {PREFIX + key: value for key, value in annotations.items()}
    facts = read_namespace(named("Namespace", "team", annotations=written))
    found: dict[str, Any] = {}
    for tag, value in facts.tags.items():
        name = tag.removeprefix("namespace.")
        if name.startswith("resource") and value.startswith("{"):
            amounts = json.loads(value)["resources"]
            found[name] = {kind: amount["value"] for kind, amount in amounts.items()}
        else:
            found[name] = value
    assert found == {"namespace": "team", **tags}
    assert len(facts.problems) == problems


@pytest.mark.parametrize(
    ("text", "allows"),
    [("false", False), ("true", True), ("False", True), ("no", True), ("", True)],
)
def test_1_4_only_the_exact_text_opts_a_class_out(*, text: str, allows: bool) -> None:
    item = named("PriorityClass", "c", annotations={ALLOW: text}, value=1)
    assert read_priority_class(item).allow_preemption is allows


def test_1_10_settings_have_defaults() -> None:
    assert settings_from({}) == Settings()


def test_1_10_settings_are_read_from_flat_keys() -> None:
    found = settings_from(
        {
            "service.schedulerName": "evenhand, yunikorn",
            "service.clusterId": "east",
            "service.policyGroup": "batch",
            "admissionController.filtering.generateUniqueAppId": "true",
            "service.podAllowPreemption": "ignore",
            "batch.yaml": "partitions: []",
            "something.else": "is left alone",
        }
    )
    assert found == Settings(
        scheduler_names=("evenhand", "yunikorn"),
        cluster_id="east",
        policy_group="batch",
        generate_unique_app_id=True,
        honour_pod_annotation=False,
        queues="partitions: []",
    )


@pytest.mark.parametrize(
    "flat",
    [
        {"service.schedulerName": " , "},
        {"service.schedulerName": ",".join(f"s{n}" for n in range(17))},
        {"service.clusterId": ""},
        {"service.clusterId": "x" * 254},
        {"service.podAllowPreemption": "maybe"},
        {"admissionController.filtering.generateUniqueAppId": "yes"},
        {"queues.yaml": "#" * (1024 * 1024 + 1)},
        {"service.placeholderRunAsUser": "00000000001" + "9" * 20},
        {"service.placeholderFsGroup": "00000000001" + "9" * 5000},
        {"service.placeholderRunAsGroup": str(2**31)},
        {"kubernetes.qps": "000000001" + "9" * 20},
        {"kubernetes.burst": "000000001" + "9" * 5000},
    ],
    ids=lambda flat: next(iter(flat)),
)
def test_a_bad_setting_is_an_error_that_names_its_key(flat: dict[str, str]) -> None:
    with pytest.raises(BadSettingError, match=next(iter(flat))):
        settings_from(flat)
