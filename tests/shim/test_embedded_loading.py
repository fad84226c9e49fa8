"""A directory of files becomes a cluster; errors name file and line."""

from pathlib import Path

import pytest

from server.config import document
from shim_client.bootstrap import open_directory
from shim_client.config import BadSettingError
from shim_client.embedded import loading
from shim_client.embedded.loading import BadFileError, read_directory
from tests.shim.kept import events_of

NODE = "kind: Node\nmetadata: {name: n1}\nstatus: {capacity: {cpu: 4}}\n"


def nested(levels: int) -> str:
    return NODE + "spec: " + "[" * levels + "]" * levels + "\n"


def write(directory: Path, **files: str) -> Path:
    for name, text in files.items():
        (directory / name.replace("__", ".")).write_text(text)
    return directory


def test_yaml_lists_and_json_are_read_in_creation_order(tmp_path: Path) -> None:
    pod = '{"kind": "Pod", "metadata": {"name": "%s"}, "spec": {"containers": [{}]}}'
    write(
        tmp_path,
        a__yaml="---\nkind: List\nitems:\n- kind: Pod\n  metadata: {name: p1}\n  spec: {containers: [{name: c}]}\n",
        b__json=pod % "p2" + "\n" + pod % "p3",
        c__yml=pod % "p4" + "\n---\n" + pod % "p5" + "\n",
        d__yaml=NODE + "---\nkind: Service\nmetadata: {name: s}\n---\n",
        e__txt="not read",
    )
    found = read_directory(tmp_path)
    assert [item.item["metadata"]["name"] for item in found.objects] == [
        "n1", "p1", "p2", "p3", "p4", "p5",
    ]  # fmt: skip
    assert found.ignored == {"Service": 1}


def test_a_pod_group_of_other_software_is_left_out(tmp_path: Path) -> None:
    spec = "\nmetadata: {name: g}\nspec: {minMember: 3}\n"
    write(
        tmp_path,
        a__yaml=f"apiVersion: scheduling.x-k8s.io/v1alpha1\nkind: PodGroup{spec}",
        b__yaml="apiVersion: scheduling.k8s.io/v1beta1\nkind: PodGroup\nmetadata: {name: own}\n"
        "spec: {schedulingPolicy: {gang: {minCount: 3}}}\n",
    )
    found = read_directory(tmp_path)
    assert [item.item["metadata"]["name"] for item in found.objects] == ["own"]
    assert found.ignored == {"PodGroup": 1}


def test_instants_stay_texts_and_the_queues_file_is_not_an_object(tmp_path: Path) -> None:
    write(
        tmp_path,
        n__yaml="kind: Node\nmetadata: {name: n, creationTimestamp: 2026-01-01T00:00:00Z}\n",
        queues__yaml="partitions: []\n",
    )
    opened = open_directory(tmp_path)
    node = next(opened.cluster.nodes())
    assert node["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"
    assert opened.settings.queues == "partitions: []\n"


def test_the_depth_limit_of_yaml_is_that_of_the_core(tmp_path: Path) -> None:
    assert loading.DEPTH_MAX == document.DEPTH_MAX
    write(tmp_path, deepest__yaml=nested(loading.DEPTH_MAX - 1))
    assert len(read_directory(tmp_path).objects) == 1
    write(tmp_path, deeper__yaml=nested(loading.DEPTH_MAX))
    with pytest.raises(BadFileError, match=r"^deeper.yaml:4: nested deeper than 100 levels$"):
        read_directory(tmp_path)


@pytest.mark.parametrize("text", ["[" * 200_000, "{a: " * 200_000, "- " * 200_000])
def test_deep_nesting_is_refused_before_anything_is_built(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadFileError, match="nested deeper"):
        read_directory(write(tmp_path, bad__yaml=text))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("kind: Node\nmetadata: {name: n\nstatus: x\n", "bad.yaml:3"),
        ("a: b: c\n", "bad.yaml:1"),
        (NODE + "---\n\nname: x\n", "bad.yaml:6"),
        (NODE + "---\nkind: Pod\nspec: {}\n", "bad.yaml:5"),
        (NODE + "---\n- 1\n- 2\n", "bad.yaml:5"),
        ("kind: List\nitems:\n- kind: Node\n  metadata: {name: a}\n- kind: 5\n", "bad.yaml:5"),
        ('{"kind": "Node",\n "metadata": {"name": "a"}}\n{"kind": 5}\n', "bad.yaml:3"),
        ('{"kind": "Node"\n "metadata": {"name": "a"}}\n', "bad.yaml:2"),
        ("\t- a\n", "bad.yaml:1"),
        ("&a [*a, *b]\n", "bad.yaml:1"),
    ],
)
def test_a_bad_file_is_an_error_with_its_line(tmp_path: Path, text: str, place: str) -> None:
    with pytest.raises(BadFileError, match=f"^{place}"):
        read_directory(write(tmp_path, bad__yaml=text))


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadFileError, match="no such directory"):
        read_directory(tmp_path / "nowhere")


def test_a_file_of_other_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadFileError, match=r"a\.yaml"):
        read_directory(tmp_path)


def test_a_refused_object_is_an_event_and_the_rest_goes_on(tmp_path: Path) -> None:
    spec = "spec: {schedulerName: evenhand, containers: [{name: c}], priorityClassName: %s}\n"
    pods = "".join(
        f"---\nkind: Pod\nmetadata: {{name: {name}}}\n{spec % class_}"
        for name, class_ in (("bad", "nothing"), ("good", "system-node-critical"))
    )
    opened = open_directory(write(tmp_path, all__yaml=NODE + pods + pods))
    assert [item["metadata"]["name"] for item in opened.cluster.pods()] == ["good"]
    said = [(kept.about.name, kept.reason) for kept in opened.cluster.events.all()]
    assert said == [("bad", "Refused"), ("good", "Refused")]
    assert "all.yaml" in events_of(opened.cluster, "bad")[0].message


def test_settings_come_from_config_maps_and_the_second_one_wins(tmp_path: Path) -> None:
    maps = """
kind: ConfigMap
metadata: {name: yunikorn-configs, namespace: yunikorn}
data: {service.clusterId: second, queues.yaml: "partitions: []"}
---
kind: ConfigMap
metadata: {name: yunikorn-defaults, namespace: yunikorn}
data: {service.clusterId: first, service.schedulerName: yunikorn}
"""
    settings = open_directory(write(tmp_path, m__yaml=maps)).settings
    assert (settings.cluster_id, settings.scheduler_names) == ("second", ("yunikorn",))
    assert settings.queues == "partitions: []"


def test_a_bad_setting_names_its_key(tmp_path: Path) -> None:
    text = "kind: ConfigMap\nmetadata: {name: yunikorn-configs}\ndata: {service.clusterId: ''}\n"
    with pytest.raises(BadSettingError, match=r"service\.clusterId"):
        open_directory(write(tmp_path, m__yaml=text))
