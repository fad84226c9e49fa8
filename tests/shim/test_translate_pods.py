"""The translation of a pod to facts and a report."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from shim_client.config import Settings
from shim_client.translate.fields import BadObjectError
from shim_client.translate.pod import PodFacts, for_core, is_terminated, read_pod
from shim_client.translate.wire import allocation
from tests.shim.objects import pod

CASES = Path(__file__).parent / "cases"


def load(name: str) -> list[Any]:
    cases: list[Any] = yaml.safe_load((CASES / name).read_text())
    return [
        pytest.param(case, id=f"{case.get('section', '1.5')} {case['title']}") for case in cases
    ]


def the_pod(given: dict[str, Any]) -> dict[str, Any]:
    item = pod("p", **given)
    item["metadata"] = {
        **item["metadata"],
        "uid": "u-1",
        "creationTimestamp": "2026-01-01T00:00:10Z",
        "labels": given.get("labels", {}),
        **given.get("metadata", {}),
    }
    return item


def seen(facts: PodFacts, case: dict[str, Any]) -> dict[str, Any]:
    """Return everything that a case may name, as plain values."""
    report = for_core(facts, class_allows=case.get("class_allows", True), originator=False)
    wanted = report.constraints
    known: dict[str, Any] = {name: getattr(report, name) for name in report.__slots__}
    known |= {
        "queue": facts.membership.queue,
        "user": facts.membership.user,
        "groups": list(facts.membership.groups),
        "ours": facts.ours,
        "gates": list(facts.gates),
        "claims": list(facts.claims),
        "problems": len(facts.problems),
        "sized_by": facts.sized_by
        and [getattr(facts.sized_by, name) for name in ("kind", "namespace", "name", "uid")],
        "protection": report.protection.name,
        "tags": dict(allocation(report).allocationTags),
        "required_node": report.tags.get("yunikorn.apache.org/requiredNode"),
        "selector": [list(pair) for pair in wanted.node_selector] if wanted else [],
        "terms": [
            [[item.key, item.operator, list(item.values)] for item in term.match_expressions]
            for term in (wanted.required_terms if wanted else ())
        ],
        "tolerations": [
            [item.key, item.operator, item.value, item.effect]
            for item in (wanted.tolerations if wanted else ())
        ],
        "ports": [
            [item.protocol, item.host_ip, item.port]
            for item in (wanted.host_ports if wanted else ())
        ],
    }
    mark = report.releasing
    known["releasing"] = mark and [
        mark.termination.name,
        mark.decision,
        mark.beneficiary,
        mark.node,
    ]
    return known


@pytest.mark.parametrize("case", load("pods.yaml"))
def test_a_pod_is_told_as_the_specification_says(case: dict[str, Any]) -> None:
    settings: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in case.get("settings", {}).items()
    }
    found = seen(read_pod(the_pod(case["pod"]), Settings(**settings)), case)
    assert {key: found[key] for key in case["expect"]} == case["expect"]


@pytest.mark.parametrize("case", load("resources.yaml"))
def test_what_a_pod_takes(case: dict[str, Any]) -> None:
    item = pod("p", spec=case["spec"], status=case.get("status", {}))
    assert dict(read_pod(item, Settings()).report.resource) == case["expect"]


def test_equal_resources_and_constraints_are_one_object() -> None:
    first, second = (
        read_pod(pod(name, spec={"nodeSelector": {"a": "b"}}), Settings()).report for name in "xy"
    )
    assert first.resource is second.resource
    assert first.constraints is second.constraints


@pytest.mark.parametrize(
    ("phase", "ended"),
    [("Pending", False), ("Running", False), ("Succeeded", True), ("Failed", True)],
)
def test_1_1_an_ended_pod_is_known_by_its_phase(*, phase: str, ended: bool) -> None:
    assert is_terminated(pod("p", status={"phase": phase})) is ended


GARBAGE: list[tuple[dict[str, Any], str]] = [
    ({"metadata": {"labels": {"a": 5}}}, "metadata.labels[a]"),
    ({"metadata": {"labels": ["a"]}}, "metadata.labels"),
    ({"metadata": {"annotations": {"a": {"b": 1}}}}, "metadata.annotations[a]"),
    ({"metadata": {"creationTimestamp": "yesterday"}}, "metadata.creationTimestamp"),
    ({"metadata": {"creationTimestamp": 5}}, "metadata.creationTimestamp"),
    ({"metadata": {"ownerReferences": "me"}}, "metadata.ownerReferences"),
    ({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1 Gi"}}}]}}, "cpu"),
    ({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "-1"}}}]}}, "cpu"),
    ({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": True}}}]}}, "cpu"),
    ({"spec": {"containers": [{"name": "c", "resources": {"requests": {"x": "9e99"}}}]}}, "x"),
    ({"spec": {"containers": [{"name": "c", "resources": {"requests": [1]}}]}}, "requests"),
    ({"spec": {"containers": "none"}}, "spec.containers"),
    ({"spec": {"priority": 2**31}}, "spec.priority"),
    ({"spec": {"priority": "high"}}, "spec.priority"),
    ({"spec": {"nodeSelector": {"a": 1}}}, "spec.nodeSelector[a]"),
    ({"spec": {"tolerations": [{"operator": 1}]}}, "spec.tolerations[].operator"),
    ({"spec": {"terminationGracePeriodSeconds": -1}}, "spec.terminationGracePeriodSeconds"),
    ({"spec": {"hostNetwork": "yes"}}, "spec.hostNetwork"),
    ({"status": {"containerStatuses": {}}}, "status.containerStatuses"),
    ({"status": {"startTime": "noon"}}, "status.startTime"),
    (
        {"labels": {"pod-group.scheduling.sigs.k8s.io": "j",
                    "pod-group.scheduling.sigs.k8s.io/min-available": "many"}},
        "min-available",
    ),
    (
        {"spec": {"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "a", "operator": "Like"}]}]}}}}},
        "operator",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("given", "path"), GARBAGE, ids=[path for _, path in GARBAGE])
def test_garbage_is_an_error_that_names_the_field(given: dict[str, Any], path: str) -> None:
    with pytest.raises(BadObjectError) as error:
        read_pod(pod("p", **given), Settings())
    assert path in str(error.value)


def test_a_sum_beyond_the_limit_is_refused() -> None:
    containers = [{"name": f"c{n}", "resources": {"requests": {"memory": "3Ei"}}} for n in range(3)]
    with pytest.raises(BadObjectError, match="memory"):
        read_pod(pod("p", spec={"containers": containers}), Settings())
