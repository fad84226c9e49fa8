"""The manifests in deploy-ha/: two cores that follow each other and two shims that elect one.

The API server accepts them, and cores and shims run with them as processes: probes tell leader, follower and joining core apart.
"""

from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from tests.kubernetes.conftest import DEPLOY, DEPLOY_HA
from tests.kubernetes.deployed import NAMESPACE, PAIR, Deployed, one, pod_of
from tests.kubernetes.kube import Kube, Object, until

CORES = ("evenhand-core-0", "evenhand-core-1")
SHIMS = ("evenhand-shim-a", "evenhand-shim-b")
WORKLOADS = (("StatefulSet", "evenhand-core"), ("Deployment", "evenhand-shim"))


def test_the_api_server_takes_it_without_a_warning(kube: Kube) -> None:
    apply = ("apply", "--server-side", "--force-conflicts", "--dry-run=server")
    said = kube.kubectl(*apply, "-k", str(DEPLOY_HA))
    assert (said.returncode, said.stderr) == (0, "")


@pytest.mark.parametrize("name", ["evenhand-core", "evenhand-shim"])
def test_its_pods_keep_the_strictest_standard(kube: Kube, pair: list[Object], name: str) -> None:
    template = pod_of(pair, name)
    kube.kubectl("apply", "--server-side", "-f", str(DEPLOY / "namespace.yaml"))
    metadata = {"name": "probe", "namespace": NAMESPACE, "labels": template["metadata"]["labels"]}
    state = [{"name": "state", "persistentVolumeClaim": {"claimName": "state-evenhand-core-0"}}]
    claims = state if name == "evenhand-core" else []
    spec = template["spec"] | {"volumes": template["spec"]["volumes"] + claims}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    said = kube.kubectl("create", "--dry-run=server", "-f", "-", given=yaml.safe_dump(pod))
    assert (said.returncode, said.stderr) == (0, "")


@pytest.mark.parametrize(("kind", "name"), WORKLOADS)
def test_two_of_each_on_two_nodes_and_one_may_be_away(
    pair: list[Object], kind: str, name: str
) -> None:
    workload, labels = one(pair, kind, name)["spec"], {"app.kubernetes.io/name": name}
    assert workload["replicas"] == 2
    spread = pod_of(pair, name)["spec"]["affinity"]["podAntiAffinity"]
    [term] = spread["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    budget = one(pair, "PodDisruptionBudget", name)["spec"]
    assert budget["maxUnavailable"] == 1
    assert term["labelSelector"] == budget["selector"] == {"matchLabels": labels}
    assert pod_of(pair, name)["metadata"]["labels"] == labels


def test_cores_have_lasting_names_and_volumes_and_start_together(pair: list[Object]) -> None:
    cores = one(pair, "StatefulSet", "evenhand-core")["spec"]
    names = one(pair, "Service", cores["serviceName"])["spec"]
    assert (names["clusterIP"], names["publishNotReadyAddresses"]) == ("None", True)
    assert cores["podManagementPolicy"] == "Parallel"
    [claim] = cores["volumeClaimTemplates"]
    mounts = pod_of(pair, "evenhand-core")["spec"]["containers"][0]["volumeMounts"]
    assert {"name": claim["metadata"]["name"], "mountPath": "/var/lib/evenhand"} in mounts
    readers = one(pair, "Service", "evenhand-core")["spec"]
    assert readers["selector"] == names["selector"] == cores["selector"]["matchLabels"]
    assert "publishNotReadyAddresses" not in readers


def test_all_else_is_as_in_the_plain_deployment(
    manifests: list[Object], pair: list[Object]
) -> None:
    """Accounts, rights, the shim's settings and the hardening are those of deploy/."""
    plain, ours = (
        {(it["kind"], it["metadata"]["name"]): it for it in of} for of in (manifests, pair)
    )
    changed = {("ConfigMap", "evenhand-core")}
    changed |= {("NetworkPolicy", "evenhand-core"), ("NetworkPolicy", "evenhand-shim")}
    changed |= {("Deployment", "evenhand-core"), ("Deployment", "evenhand-shim")}
    assert {key: it for key, it in plain.items() if key not in changed}.items() <= ours.items()
    for name in ("evenhand-core", "evenhand-shim"):
        before, after = pod_of(manifests, name)["spec"], pod_of(pair, name)["spec"]
        assert after["securityContext"] == before["securityContext"]
        for key in ("securityContext", "resources", "startupProbe", "livenessProbe"):
            assert after["containers"][0][key] == before["containers"][0][key]


@pytest.mark.usefixtures("certificates")
def test_probes_tell_leader_follower_and_joining_core_apart_and_a_drain_hands_over(
    kube: Kube, pair: list[Object], shim_kubeconfig: Path, tmp_path: Path
) -> None:
    """Arguments, variables and files are those of the manifests. The test sends SIGTERM, as a drain does."""
    deployed = Deployed(kube, pair, tmp_path, PAIR)
    first, second = CORES
    with ExitStack() as stack:
        cores = {name: stack.enter_context(deployed.running(name)) for name in CORES}
        until(lambda: all(deployed.is_live(name) for name in CORES))
        assert not any(deployed.is_ready(name) for name in CORES)
        assert not any(deployed.serves(name, "leader") for name in CORES)
        shims = {
            name: stack.enter_context(
                deployed.running(
                    name,
                    f"--kubeconfig={shim_kubeconfig}",
                    f"--namespace={NAMESPACE}",
                    f"--instance={name}",
                )
            )
            for name in SHIMS
        }
        until(lambda: deployed.serves(first, "leader"))
        until(lambda: all(deployed.is_ready(name) for name in PAIR))
        assert not deployed.serves(second, "leader")
        assert sum(deployed.serves(name, "leader") for name in SHIMS) == 1
        assert all(process.is_running() for process in shims.values())
        leading = next(name for name in SHIMS if deployed.serves(name, "leader"))
        for name in SHIMS:
            found = deployed.metrics(name)
            assert found["evenhand_shim_leader"] == (name == leading)
            assert (found["evenhand_shim_epoch"] > 0) == (name == leading)
            assert (found["evenhand_shim_lease_seconds_left"] > 0) == (name == leading)
        assert deployed.command(second, "queues", "--output=json").returncode == 0
        assert cores[first].end() == 0
        until(lambda: deployed.serves(second, "leader"))
        with deployed.running(first):
            until(lambda: deployed.is_ready(first))
            assert not deployed.serves(first, "leader")
            assert deployed.serves(second, "leader")
