"""The objects that the chart renders, for every way to install Evenhand: they equal the objects of kustomize, and are hardened in the same way."""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import pytest
import yaml

from evenhand_cli.app import Shelf
from scripts.real import provision
from tests.chart.helm import CHART, Object, helm, nested, rendered
from tests.chart.matrix import MATRIX, PAIR, PLAIN
from tests.real.needs import absent


class Difference(NamedTuple):
    """Places that the chart and kustomize write differently, and the reason."""

    places: str
    reason: str


DIFFERENCES = (
    Difference(
        r"[^:]+:metadata\.labels\.(app\.kubernetes\.io/(instance|version|managed-by)|helm\.sh/chart)",
        "Helm and people find the objects of a release by these labels",
    ),
    Difference(
        r"Service/evenhand-core:metadata\.labels\.app\.kubernetes\.io/name",
        "a ServiceMonitor selects the Service by it",
    ),
    Difference(
        r"[^:]+:.*\.startupProbe\.timeoutSeconds",
        "a default of Kubernetes, which the values of the chart show",
    ),
    Difference(
        r"[^:]+:.*\.readinessProbe\.failureThreshold",
        "a default of Kubernetes, which the values of the chart show",
    ),
)
"""All differences between what the chart and what kustomize renders. Comments within ConfigMaps do not count."""


def kustomized(folder: str) -> list[Object]:
    """Return the objects that `kubectl apply -k` would send."""
    kubectl = provision.program("kubectl")
    if kubectl is None:
        absent("kubectl is not built (`make real` builds it)")
    command = [str(kubectl), "kustomize", str(CHART.parents[1] / folder)]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    return list(yaml.safe_load_all(said.stdout))


def places(objects: list[Object]) -> dict[str, object]:
    """Return every scalar of the objects by its place, such as `Service/evenhand-core:spec.ports.0.port`."""
    found: dict[str, object] = {}
    for item in objects:
        name = f"{item['kind']}/{item['metadata']['name']}"
        assert f"{name}:kind" not in found, f"twice: {name}"
        found |= {f"{name}:{path}": value for path, value in _scalars(item)}
    return found


def _scalars(node: Any, path: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(node, str) and path.endswith(".yaml"):
        node = yaml.safe_load(node)  # The text of a ConfigMap: comments do not count.
    below = (
        node.items()
        if isinstance(node, dict)
        else enumerate(node if isinstance(node, list) else ())
    )
    found = list(below)
    for name, value in found:
        yield from _scalars(value, f"{path}.{name}".removeprefix("."))
    if not found:
        yield path, node


@cache
def differing(folder: str) -> frozenset[str]:
    """Return the places at which the chart differs from a folder of kustomize."""
    values = {"deploy": PLAIN, "deploy-ha": PAIR}[folder]
    chart, ours = places(rendered(values)), places(kustomized(folder))
    assert len(ours) > 200
    return frozenset(
        place for place in chart.keys() | ours.keys() if chart.get(place) != ours.get(place)
    )


@pytest.mark.parametrize("folder", ["deploy", "deploy-ha"])
def test_the_chart_renders_the_objects_of_kustomize(folder: str) -> None:
    named = re.compile("|".join(f"(?:{one.places})" for one in DIFFERENCES))
    assert sorted(place for place in differing(folder) if not named.fullmatch(place)) == []


def test_every_named_difference_is_one() -> None:
    found = differing("deploy") | differing("deploy-ha")
    for one in DIFFERENCES:
        assert any(re.fullmatch(one.places, place) for place in found), one


def test_cert_manager_makes_the_certificates_of_kustomize() -> None:
    """The chart makes the same Issuers and Certificates as deploy/cert-manager.yaml, apart from labels."""
    chart = rendered({"tls.mode": "certManager"})
    ours = list(yaml.safe_load_all((CHART.parent / "cert-manager.yaml").read_text()))
    for item in (*chart, *ours):
        item["metadata"].pop("labels", None)
    made = [it for it in chart if it["apiVersion"].startswith("cert-manager.io/")]
    assert places(made) == places(ours)


@cache
def objects_of(way: str) -> list[Object]:
    """Return the objects of one way to install Evenhand. Tests do not change these objects."""
    return rendered(MATRIX[way])


def pods(objects: list[Object]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the pod template of every workload by its name."""
    for item in objects:
        spec = item.get("spec") or {}
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if "template" in spec:
            yield item["metadata"]["name"], spec["template"]


@pytest.mark.parametrize("way", MATRIX)
def test_every_pod_is_hardened(way: str) -> None:
    found = dict(pods(objects_of(way)))
    assert len(found) >= 2
    for name, template_ in found.items():
        spec = template_["spec"]
        [container] = spec["containers"]
        context = spec["securityContext"]
        assert context["runAsNonRoot"] is True, name
        assert context["runAsUser"] >= 1000, name
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert spec["enableServiceLinks"] is False, name
        account = spec["serviceAccountName"]
        assert spec["automountServiceAccountToken"] is not account.endswith(("-core", "-console"))
        assert spec["schedulerName"] == "default-scheduler", name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec), name
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}, name
        assert "memory" in container["resources"]["limits"], name
        assert "--insecure" not in container["args"], name


@pytest.mark.parametrize("way", MATRIX)
def test_what_a_pod_names_is_there(way: str) -> None:
    """Accounts, ConfigMaps and ports exist; selectors of Services, budgets and policies select one workload."""
    objects = objects_of(way)
    named = {(it["kind"], it["metadata"]["name"]) for it in objects}
    assert len(named) == len(objects)
    labels = [template_["metadata"]["labels"] for _, template_ in pods(objects)]
    for name, template_ in pods(objects):
        spec = template_["spec"]
        assert ("ServiceAccount", spec["serviceAccountName"]) in named
        volumes = {volume["name"] for volume in spec["volumes"]} | {"state"}
        assert {mount["name"] for mount in spec["containers"][0]["volumeMounts"]} <= volumes, name
        for volume in spec["volumes"]:
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in named
            if "persistentVolumeClaim" in volume:
                assert (
                    "PersistentVolumeClaim",
                    volume["persistentVolumeClaim"]["claimName"],
                ) in named
    for item in objects:
        if item["kind"] in {"Service", "NetworkPolicy", "PodDisruptionBudget", "ServiceMonitor"}:
            selector = item["spec"].get("podSelector") or item["spec"]["selector"]
            wanted = selector.get("matchLabels", selector)
            assert any(wanted.items() <= one.items() for one in labels), item["metadata"]["name"]


def test_core_and_shim_know_every_option() -> None:
    """All options of all ways to install Evenhand are options of `evenhand serve` and `evenhand shim`."""
    given: dict[str, set[str]] = {"serve": set(), "shim": set()}
    for way in MATRIX:
        for _, template_ in pods(objects_of(way)):
            name, *options = template_["spec"]["containers"][0]["args"]
            if name in given:
                given[name] |= {option.partition("=")[0] for option in options}
    assert len(given["serve"]) > 20
    assert len(given["shim"]) > 10
    for name, written in given.items():
        command = Shelf()[name]
        known = {option for parameter in command.params for option in parameter.opts}
        assert written - known == set()


@pytest.mark.parametrize("secret", ["", "token-of-the-console"])
def test_the_console_asks_to_log_in_unless_a_token_is_for_everybody(secret: str) -> None:
    values = {"console.enabled": True, "core.tokensSecret": "tokens", "console.tokenSecret": secret}
    template_ = dict(pods(rendered(values)))["evenhand-console"]
    [container] = template_["spec"]["containers"]
    assert any(one.startswith("--origin=") for one in container["args"])
    shared = {"--share-identity", "--token-file=/etc/evenhand/token/token"}
    assert shared & set(container["args"]) == (shared if secret else set())


@pytest.mark.parametrize("mode", ["job", "certManager"])
@pytest.mark.parametrize("console", [False, True])
def test_every_secret_that_is_mounted_is_made(mode: str, *, console: bool) -> None:
    values = {
        "tls.mode": mode,
        "core.replicas": 2,
        "shim.replicas": 2,
        "console.enabled": console,
        "core.tokensSecret": "tokens",
    }
    objects = rendered(values)
    mounted = {
        volume["secret"]["secretName"]
        for _, template_ in pods(objects)
        for volume in template_["spec"]["volumes"]
        if "secret" in volume
    }
    mounted.remove("tokens")
    assert len(mounted) == 4 + console
    if mode == "certManager":
        made = {it["spec"]["secretName"] for it in objects if it["kind"] == "Certificate"}
    else:
        [job] = [it for it in objects if it["kind"] == "Job"]
        words = job["spec"]["template"]["spec"]["containers"][0]["args"]
        made = {word.split("=")[1] for word in words if word.startswith(("--server", "--client"))}
        [role] = [
            it
            for it in objects
            if it["metadata"]["name"] == "evenhand-certificates" and it["kind"] == "Role"
        ]
        assert made | {"evenhand-authority"} == set(role["rules"][1]["resourceNames"])
    assert mounted <= made


def test_a_changed_job_has_another_name() -> None:
    """The API server refuses to change a Job. An upgrade therefore needs a Job with another name."""

    def name(**values: object) -> str:
        [job] = [it for it in rendered(values) if it["kind"] == "Job"]
        return str(job["metadata"]["name"])

    assert name() == name()
    assert name() != name(**{"tls.extraNames": ["core.example"]})


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({}, "logs -l app.kubernetes.io/name=evenhand-certificates"),
        ({"tls.mode": "secrets"}, "deploy/certificates.sh"),
        ({"tls.mode": "certManager"}, "get certificates.cert-manager.io"),
        ({"core.replicas": 2}, "exec evenhand-core-0 -- evenhand explain"),
        (
            {"console.enabled": True, "core.tokensSecret": "tokens"},
            "service/evenhand-console 8080:80",
        ),
        ({"schedulerNames": ["ours"]}, "schedulerName: ours"),
        ({"core.groups": [{"name": "b"}]}, "exec deploy/evenhand-core -- evenhand partition move"),
    ],
)
def test_the_notes_say_what_to_do_next(values: Mapping[str, Any], told: str) -> None:
    words = ("install", "evenhand", str(CHART), "--namespace=evenhand", "--dry-run=client")
    said = helm(*words, "--values=-", given=json.dumps(nested(values)))
    assert said.returncode == 0, said.stderr
    assert told in said.stdout.partition("NOTES:")[2]
