"""The manifests in deploy/: the API server accepts them, they are hardened, and core and shim run with them."""

import copy

import pytest
import yaml

from tests.kubernetes.conftest import DEPLOY
from tests.kubernetes.deployed import NAMESPACE, one, pod_of
from tests.kubernetes.kube import Kube, Object

BOTH = ("evenhand-core", "evenhand-shim")


def test_the_api_server_takes_it_without_a_warning(kube: Kube) -> None:
    dry = () if kube.own else ("--dry-run=server",)
    said = kube.kubectl("apply", "--server-side", *dry, "-k", str(DEPLOY))
    assert (said.returncode, said.stderr) == (0, "")


@pytest.mark.parametrize("name", BOTH)
def test_its_pods_keep_the_strictest_standard(
    kube: Kube, manifests: list[Object], name: str
) -> None:
    """The namespace enforces the profile `restricted`, so that the API server refuses a pod that violates this profile."""
    kube.kubectl("apply", "--server-side", "-f", str(DEPLOY / "namespace.yaml"))
    template = pod_of(manifests, name)
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": template["spec"]}
    pod["metadata"] = {
        "name": "probe",
        "namespace": NAMESPACE,
        "labels": template["metadata"]["labels"],
    }
    create = ("create", "--dry-run=server", "-f", "-")
    assert kube.kubectl(*create, given=yaml.safe_dump(pod)).returncode == 0
    pod["spec"] = copy.deepcopy(template["spec"])
    del pod["spec"]["containers"][0]["securityContext"]["capabilities"]
    refused = kube.kubectl(*create, given=yaml.safe_dump(pod))
    assert "violates PodSecurity" in refused.stderr


@pytest.mark.parametrize("name", BOTH)
def test_hardening(manifests: list[Object], name: str) -> None:
    spec = pod_of(manifests, name)["spec"]
    [container] = spec["containers"]
    context = spec["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] >= 1000
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert set(container["resources"]["requests"]) == {"cpu", "memory"}
    assert set(container["resources"]["limits"]) == {"memory"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert all({"secret", "configMap", "emptyDir"} & set(volume) for volume in spec["volumes"])
    state = {volume["name"] for volume in spec["volumes"] if "emptyDir" in volume}
    assert state == ({"state"} if name == "evenhand-core" else set())
    assert all(
        mount["readOnly"] for mount in container["volumeMounts"] if mount["name"] not in state
    )
    assert "--insecure" not in container["args"]


@pytest.mark.parametrize("name", BOTH)
def test_probes_are_grpc_on_a_port_of_the_container(manifests: list[Object], name: str) -> None:
    [container] = pod_of(manifests, name)["spec"]["containers"]
    ports = {port["containerPort"] for port in container["ports"]}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["grpc"]["port"] in ports


@pytest.mark.parametrize("name", BOTH)
def test_never_two_at_once_and_not_placed_by_itself(manifests: list[Object], name: str) -> None:
    deployment = one(manifests, "Deployment", name)["spec"]
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})
    assert pod_of(manifests, name)["spec"]["schedulerName"] == "default-scheduler"


def test_the_core_has_no_account_at_the_api_server(manifests: list[Object]) -> None:
    spec = pod_of(manifests, "evenhand-core")["spec"]
    assert spec["automountServiceAccountToken"] is False
    bindings = [it for it in manifests if it["kind"] in {"RoleBinding", "ClusterRoleBinding"}]
    subjects = {subject["name"] for binding in bindings for subject in binding["subjects"]}
    assert subjects == {"evenhand-shim"}


def test_services_and_policies_select_the_pods_that_there_are(manifests: list[Object]) -> None:
    labels = [pod_of(manifests, name)["metadata"]["labels"] for name in BOTH]
    selectors = [
        item["spec"].get("selector") or item["spec"]["podSelector"]["matchLabels"]
        for item in manifests
        if item["kind"] in {"Service", "NetworkPolicy"}
    ]
    assert len(selectors) == 3
    for selector in selectors:
        assert sum(selector.items() <= label.items() for label in labels) == 1


@pytest.mark.usefixtures("certificates")
@pytest.mark.parametrize("name", BOTH)
def test_all_that_a_pod_mounts_is_there(kube: Kube, manifests: list[Object], name: str) -> None:
    spec = pod_of(manifests, name)["spec"]
    for volume in spec["volumes"]:
        if "secret" in volume:
            secret = kube.find("Secret", volume["secret"]["secretName"], NAMESPACE)
            assert secret is not None
            assert set(secret["data"]) == {"tls.crt", "tls.key", "ca.crt"}
        elif "configMap" in volume:
            assert one(manifests, "ConfigMap", volume["configMap"]["name"])
    assert one(manifests, "ServiceAccount", spec["serviceAccountName"])


def test_cert_manager_would_make_the_same_secrets(manifests: list[Object]) -> None:
    """Not every API server knows the kinds of cert-manager, so that the test compares names only."""
    made = list(yaml.safe_load_all((DEPLOY / "cert-manager.yaml").read_text()))
    secrets = {it["spec"]["secretName"] for it in made if it["kind"] == "Certificate"}
    volumes = [volume for name in BOTH for volume in pod_of(manifests, name)["spec"]["volumes"]]
    mounted = {volume["secret"]["secretName"] for volume in volumes if "secret" in volume}
    elsewhere = {"evenhand-metrics-tls", "evenhand-follower-tls"}  # Prometheus and deploy-ha
    assert secrets == mounted | {"evenhand-authority"} | elsewhere
    roles = yaml.safe_load(one(manifests, "ConfigMap", "evenhand-core")["data"]["roles.yaml"])
    named = {name for it in made for name in it["spec"].get("dnsNames", [])}
    assert {entry["name"] for entry in roles["certificates"]} <= named
