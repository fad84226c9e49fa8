"""Core and shim run as in deploy/: over TLS, each with its own role."""

from pathlib import Path

import pytest
import yaml

from tests.kubernetes.deployed import NAMESPACE, Deployed
from tests.kubernetes.kube import Kube, Object, until


@pytest.mark.usefixtures("certificates")
def test_core_and_shim_meet_over_tls_as_deployed(
    kube: Kube, manifests: list[Object], shim_kubeconfig: Path, tmp_path: Path
) -> None:
    """Arguments, variables, files and probes are those of the manifests. An operator reads the state meanwhile."""
    deployed = Deployed(kube, manifests, tmp_path)
    with deployed.running("evenhand-core"):
        until(lambda: deployed.is_ready("evenhand-core"))
        extra = (f"--kubeconfig={shim_kubeconfig}", f"--namespace={NAMESPACE}")
        with deployed.running("evenhand-shim", *extra) as shim:
            until(lambda: deployed.is_ready("evenhand-shim") or not shim.is_running())
            assert shim.is_running()
            said = deployed.command("evenhand-core", "queues", "--output=json")
            assert said.returncode == 0, said.stderr
            assert yaml.safe_load(said.stdout)
