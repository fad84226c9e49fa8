"""The values of the chart: each value is described, typed and used, and unknown values are refused."""

import json
import re
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts import chart_values
from tests.chart.helm import CHART, helm, nested, template

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads(chart_values.SCHEMA.read_text())
UNUSED = {"global"}
"""Values that the chart accepts and does not read: a parent chart sets them."""


def leaves(node: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the schema of every value by its path; an object without fixed keys is one value."""
    for name, below in node["properties"].items():
        here = f"{path}.{name}".removeprefix(".")
        if "properties" in below:
            yield from leaves(below, here)
        else:
            yield here, below


def nodes(node: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every schema of objects with fixed keys."""
    if isinstance(node, dict):
        if "properties" in node and isinstance(node["properties"], dict):
            yield node
        for below in node.values():
            yield from nodes(below)


LEAVES = dict(leaves(SCHEMA))


def test_every_value_has_a_type_a_default_and_a_description() -> None:
    assert len(LEAVES) > 100
    for path, leaf in LEAVES.items():
        assert {"type", "default"} <= leaf.keys(), path
        assert leaf["description"].endswith("."), path


def test_no_object_with_fixed_keys_takes_others() -> None:
    found = list(nodes(SCHEMA))
    assert len(found) > 30
    assert all(node["additionalProperties"] is False for node in found)


def test_the_files_that_people_read_are_those_of_the_schema() -> None:
    assert chart_values.VALUES.read_text() == chart_values.values_yaml(SCHEMA)
    text = chart_values.README.read_text()
    assert text == chart_values.readme(text, SCHEMA)
    rows = set(re.findall(r"^\| `([\w.]+)` \| ", text, re.MULTILINE))
    assert rows >= LEAVES.keys()


def test_the_defaults_are_those_of_the_schema() -> None:
    values = yaml.safe_load(chart_values.VALUES.read_text())
    for path, leaf in LEAVES.items():
        found = values
        for name in path.split("."):
            found = found[name]
        assert found == leaf["default"], path


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert chart["version"] == chart["appVersion"] == project["version"]


def test_the_linter_has_nothing_to_say() -> None:
    said = helm("lint", "--strict", str(CHART))
    assert said.returncode == 0, said.stdout


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"replicas": 2}, "replicas"),
        ({"core.replica": 2}, "replica"),
        ({"core.replicas": 3}, "/core/replicas"),
        ({"core.replicas": "2"}, "/core/replicas"),
        ({"core.probes.liveness.port": 1}, "port"),
        ({"shim.lease.duration": "6 s"}, "/shim/lease/duration"),
        ({"core.roles": [{"name": "ada", "role": "root"}]}, "/core/roles/0/role"),
        ({"tls.secrets.core": "Not A Name"}, "/tls/secrets/core"),
        ({"core.groups": [{"name": "B"}]}, "/core/groups/0/name"),
        ({"core.groups": [{"name": "b", "replicas": 2}]}, "/core/groups/0"),
    ],
)
def test_another_value_is_refused_with_its_place(wrong: Mapping[str, Any], told: str) -> None:
    said = template(wrong)
    assert said.returncode != 0
    assert told in said.stderr


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"core.log.url": "nats://nats:4222/prod"}, "core.replicas=2"),
        ({"core.log.caSecret": "ca"}, "core.log.url"),
        ({"core.decisionLog.durable": True}, "core.decisionLog.enabled=true"),
        ({"core.history.passwordSecret": "history"}, "core.history.url"),
        ({"tls.job.days": 30}, "less than tls.job.days"),
        ({"core.groups": [{"name": "a"}]}, "two groups have the name `a`"),
        (
            {"core.groups": [{"name": "b", "partitions": ["DEFAULT"]}]},
            "`default` is named by group `a` and by group `b`",
        ),
        (
            {"core.groups": [{"name": "b"}], "core.history.url": "postgresql+psycopg://db/a"},
            "group `b` needs a historyUrl",
        ),
        (
            {
                "core.groups": [{"name": "b", "historyUrl": "postgresql+psycopg://db/a"}],
                "core.history.url": "postgresql+psycopg://db/a",
            },
            "a database of its own",
        ),
        (
            {
                "core.groups": [{"name": "b", "historyUrl": "postgresql+psycopg://db/b"}],
                "core.history.enabled": False,
            },
            "core.history.enabled=true",
        ),
        (
            {"core.groups": [{"name": "b" * 20}], "fullnameOverride": "a" * 40},
            "more than 52 characters",
        ),
        ({"console.enabled": True}, "core.tokensSecret"),
        ({"monitoring.podMonitor.enabled": True}, "shim.metrics=true"),
    ],
)
def test_values_that_exclude_each_other_are_refused_with_what_to_set(
    wrong: Mapping[str, Any], told: str
) -> None:
    said = template(wrong)
    assert said.returncode != 0
    assert told in said.stderr


ALL_ON = {
    "console.enabled": True,
    "monitoring.serviceMonitor.enabled": True,
    "monitoring.podMonitor.enabled": True,
    "monitoring.prometheusRule.enabled": True,
    "monitoring.dashboards.enabled": True,
    "admissionPolicies.enabled": True,
    "core.decisionLog.enabled": True,
    "core.decisionLog.durable": True,
    "core.tokensSecret": "tokens",
    "shim.metrics": True,
}
PAIRED = ALL_ON | {
    "core.replicas": 2,
    "shim.replicas": 2,
    "core.log.url": "nats://nats:4222/prod",
    "tls.mode": "certManager",
    "tls.certManager.issuer.name": "corporate",
}
WAYS: tuple[dict[str, Any], ...] = ({"core.tokensSecret": "tokens"}, ALL_ON, PAIRED)
"""Three ways to install Evenhand: as little as possible, everything, and everything with two cores and two shims."""


SHIM = "system:serviceaccount:evenhand:evenhand-shim"


def policy(kind: str, name: str) -> str:
    """Return the text of an admission policy that names the shim."""
    head = f"apiVersion: admissionregistration.k8s.io/v1\nkind: {kind}\n"
    return f"{head}metadata: {{name: {name}}}\nspec: {{who: {SHIM}}}\n"


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the chart with only one file in each folder from which it includes files of `deploy`."""
    chart = tmp_path_factory.mktemp("full") / "evenhand"
    shutil.copytree(CHART, chart)
    for folder in ("admission", "monitoring"):
        shutil.rmtree(chart / "files" / folder)
    files = {
        "monitoring/alerts.yaml": "groups:\n- {name: sample, rules: []}\n",
        "monitoring/dashboards/sample.json": '{"title": "{{ sample }}"}',
        "admission/guards/kustomization.yaml": "kind: Kustomization\n",
        "admission/guards/sample.yaml": policy("ValidatingAdmissionPolicy", "refuses"),
        "admission/defaults/sample.yaml": policy("MutatingAdmissionPolicy", "writes"),
    }
    for name, text in files.items():
        path = chart / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return chart


def marked(leaf: Mapping[str, Any], number: int) -> Any:
    """Return a value that the schema accepts, and that can be found in the rendered objects."""
    kinds = leaf["type"] if isinstance(leaf["type"], list) else [leaf["type"]]
    if "integer" in kinds:
        return number if leaf.get("maximum", number) >= number else leaf["maximum"]
    if "object" in kinds:
        return {f"mark{number}": "1"}
    if "array" in kinds:
        return [_element(leaf["items"], number)]
    pattern = re.compile(leaf.get("pattern", ""))
    plain = (f"mark{number}", f"{number}s", f"{number}h", f"{number}Gi", f"{number}MiB")
    urls = (f"nats://nats/mark{number}", f"postgresql+psycopg://one@db/mark{number}")
    others = (f"sha256:{number:064}", f"{number} * * * *")
    return next(one for one in (*plain, *urls, *others) if pattern.search(one))


def _element(items: Mapping[str, Any], number: int) -> Any:
    if items["type"] == "string":
        pattern = items.get("pattern", "")
        candidates = (f"mark{number}", f"--mark{number}", f"https://mark{number}")
        return next(one for one in candidates if re.search(pattern, one))
    known = items.get("properties", {})
    if "serial" in known:
        return {"serial": f"mark{number}"}
    role = {"role": "viewer"} if "role" in known else {}
    url = {"historyUrl": f"postgresql+psycopg://two@db/mark{number}"}
    return {"name": f"mark{number}"} | role | (url if "historyUrl" in known else {})


def is_choice(leaf: Mapping[str, Any]) -> bool:
    return "enum" in leaf or leaf["type"] == "boolean"


def test_every_text_and_number_is_used(full: Path) -> None:
    """All texts and numbers are set to marks at once. The marks are found in the rendered objects, for each way to make certificates."""
    marks: dict[str, Any] = {}
    for number, (path, leaf) in enumerate(LEAVES.items(), 1001):
        if path not in UNUSED and not is_choice(leaf):
            marks[path] = marked(leaf, number)
    marks["tls.job.days"], marks["tls.job.renewBeforeDays"] = 7002, 7001
    assert len(marks) > 80
    ways: tuple[dict[str, Any], ...] = (
        {"image.digest": ""},
        {"tls.mode": "certManager"},
        {"shim.affinity": {}, "core.affinity": {}},
    )
    text = ""
    for way in ways:
        said = template(PAIRED | marks | {"tls.mode": "job"} | way, chart=full)
        assert said.returncode == 0, said.stderr
        text += said.stdout
    unused = [path for path, mark in marks.items() if not _is_in(mark, text)]
    assert unused == []


def _is_in(mark: Any, text: str) -> bool:
    if isinstance(mark, dict):
        return all(key in text for key in mark)
    if isinstance(mark, list):
        first = mark[0]
        return _is_in(next(iter(first.values())) if isinstance(first, dict) else first, text)
    return re.search(rf"(?<![\w]){re.escape(str(mark))}(?![\w])", text) is not None


CHOICES = [
    (path, choice)
    for path, leaf in LEAVES.items()
    if is_choice(leaf)
    for choice in leaf.get("enum", (True, False))
    if choice != leaf["default"]
]


def test_every_choice_changes_what_is_rendered(full: Path) -> None:
    """For each choice there is a way to install Evenhand in which the choice changes the rendered objects."""

    @cache
    def shown(way: int, path: str, choice: str) -> str | None:
        said = template(WAYS[way] | ({path: json.loads(choice)} if path else {}), chart=full)
        return said.stdout if said.returncode == 0 else None

    def differs(way: int, path: str, choice: object) -> bool:
        plain = LEAVES[path]["default"]
        is_base = WAYS[way].get(path, plain) == plain
        before = shown(way, *(("", "") if is_base else (path, json.dumps(plain))))
        after = shown(way, path, json.dumps(choice))
        return None not in {before, after} and before != after

    assert len(CHOICES) > 25
    ways = range(len(WAYS))
    dead = [one for one in CHOICES if not any(differs(way, *one) for way in ways)]
    assert dead == []


def test_files_are_included_as_they_are_and_only_when_they_are_wanted(full: Path) -> None:
    said = template(ALL_ON, chart=full).stdout
    found = {(it["kind"], it["metadata"]["name"]): it for it in yaml.safe_load_all(said) if it}
    assert found["PrometheusRule", "evenhand"]["spec"] == {
        "groups": [{"name": "sample", "rules": []}]
    }
    dashboard = found["ConfigMap", "evenhand-dashboard-sample"]["data"]["sample.json"]
    assert json.loads(dashboard) == {"title": "{{ sample }}"}
    assert found["ValidatingAdmissionPolicy", "refuses"]["spec"] == {"who": SHIM}
    assert found["ValidatingAdmissionPolicy", "refuses"]["apiVersion"].endswith("/v1")
    assert found["MutatingAdmissionPolicy", "writes"]["apiVersion"].endswith("/v1")
    assert "Kustomization" not in {kind for kind, _ in found}
    plain = template({}, chart=full).stdout
    assert not {"sample", "refuses"} & set(re.findall(r"\w+", plain))


def test_the_notes_name_files_that_are_not_there(tmp_path: Path) -> None:
    chart = tmp_path / "evenhand"
    shutil.copytree(CHART, chart)
    for folder in ("admission", "monitoring"):
        shutil.rmtree(chart / "files" / folder)
    words = ("install", "evenhand", str(chart), "--namespace=evenhand", "--dry-run=client")
    notes = helm(*words, "--values=-", given=json.dumps(nested(ALL_ON))).stdout
    for value in (
        "monitoring.prometheusRule.enabled",
        "monitoring.dashboards.enabled",
        "admissionPolicies.enabled",
    ):
        assert f"{value} has no effect" in notes


def test_policies_name_the_account_and_namespace_of_the_release(full: Path) -> None:
    values = {
        "admissionPolicies.enabled": True,
        "admissionPolicies.mutatingApiVersion": "v1beta1",
        "fullnameOverride": "second",
    }
    said = template(values, chart=full, namespace="elsewhere").stdout
    found = {it["kind"]: it for it in yaml.safe_load_all(said) if it}
    account = "system:serviceaccount:elsewhere:second-shim"
    assert found["ValidatingAdmissionPolicy"]["spec"] == {"who": account}
    assert found["ValidatingAdmissionPolicy"]["apiVersion"].endswith("/v1")
    assert found["MutatingAdmissionPolicy"]["apiVersion"].endswith("/v1beta1")
    guards = template(values | {"admissionPolicies.defaults": False}, chart=full).stdout
    assert "ValidatingAdmissionPolicy" in guards
    assert "MutatingAdmissionPolicy" not in guards
