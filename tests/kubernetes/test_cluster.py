"""The test cluster itself: it does what the other tests rely on, also after a restart of its API server."""

import json

import pytest

from scripts.real import provision
from tests.kubernetes import objects
from tests.kubernetes.kube import Kube, until


def phase(kube: Kube, namespace: str, pod: str) -> str:
    found = kube.find("Pod", pod, namespace)
    return str(found["status"]["phase"]) if found else "gone"


def test_the_programs_are_of_the_chosen_version(kube: Kube) -> None:
    if kube.own is None:
        pytest.skip("the cluster is not ours, and has a version of its own")
    said = json.loads(kube.kubectl("version", "--output=json").stdout)
    release = f"v{provision.releases()[provision.kubernetes()]}"
    assert said["serverVersion"]["gitVersion"] == said["clientVersion"]["gitVersion"] == release


def test_a_pod_with_a_node_runs_and_goes_when_it_is_deleted(kube: Kube, namespace: str) -> None:
    kube.create(*objects.nodes(1, namespace))
    kube.create(objects.pod("placed", namespace, nodeName=f"{namespace}-0"))
    kube.create(objects.pod("waiting", namespace))
    until(lambda: phase(kube, namespace, "placed") == "Running")
    assert phase(kube, namespace, "waiting") == "Pending", "nothing else places pods here"
    kube.delete("Pod", "placed", namespace)
    until(lambda: phase(kube, namespace, "placed") == "gone")


def test_a_pod_runs_for_as_long_as_it_says(kube: Kube, namespace: str) -> None:
    kube.create(*objects.nodes(1, namespace))
    annotations = {"evenhand.test/runs-for": "300ms"}
    kube.create(objects.pod("p", namespace, nodeName=f"{namespace}-0", annotations=annotations))
    until(lambda: phase(kube, namespace, "p") == "Succeeded")


def test_objects_outlive_the_api_server(kube: Kube, namespace: str) -> None:
    if kube.own is None:
        pytest.skip("the cluster is not ours to restart")
    kube.create(objects.pod("p", namespace))
    kube.own.kill_api_server()
    assert not kube.own.is_ready()
    kube.own.start_api_server()
    assert phase(kube, namespace, "p") == "Pending"
