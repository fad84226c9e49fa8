"""A real API server for the tests of this folder, and the processes that they start with it.

REAL_KUBECONFIG or KUBECONFIG names a cluster. Otherwise the tests start their own on the loopback, with the programs
that `make real` builds. KUBERNETES chooses the version of API server and kubectl. When programs are missing, the tests
are skipped; with REQUIRE_REAL=1 they fail.
"""

import os
import random
import re
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from scripts.real import provision
from scripts.real.cluster import Cluster
from tests.faults.kubernetes import audit
from tests.kubernetes import objects
from tests.kubernetes.kube import Kube, Object
from tests.kubernetes.stack import Stack
from tests.real.needs import absent

DEPLOY = Path(__file__).parents[2] / "deploy"
DEPLOY_HA = Path(__file__).parents[2] / "deploy-ha"
NAMESPACE_LENGTH = 40


@pytest.fixture(scope="session")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kube]:
    """Provide the API server, with the shim's account and role from deploy/."""
    given = os.environ.get("REAL_KUBECONFIG") or os.environ.get("KUBECONFIG", "")
    own = None if given else _own_cluster(tmp_path_factory.mktemp("cluster"))
    try:
        with closing(Kube(Path(given) if own is None else own.kubeconfig(), own)) as kube:
            for file in ("namespace.yaml", "rbac.yaml"):
                said = kube.kubectl("apply", "--server-side", "-f", str(DEPLOY / file))
                assert said.returncode == 0, said.stderr
            yield kube
    finally:
        if own is not None:
            own.stop()


def _own_cluster(folder: Path) -> Cluster:
    missing = provision.missing()
    if missing:
        absent(f"no KUBECONFIG, and not built: {', '.join(missing)} (`make real` builds them)")
    cluster = Cluster(folder, audit.flags(folder))
    cluster.start()
    return cluster


@pytest.fixture
def own(kube: Kube) -> Cluster:
    """Provide the cluster that the tests started, whose audit log can be read."""
    if kube.own is None:
        pytest.skip("the audit log of a cluster that is not ours cannot be read")
    return kube.own


@pytest.fixture
def chance() -> random.Random:
    seed = int(os.environ.get("EVENHAND_SEED") or int.from_bytes(os.urandom(4)))
    print(f"EVENHAND_SEED={seed}")  # noqa: T201 -- how to see it again.
    return random.Random(seed)


@pytest.fixture(scope="session")
def shim_kubeconfig(kube: Kube, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the kubeconfig of the shim's service account, which has exactly the rights that deploy/ gives."""
    return kube.account("evenhand-shim", "evenhand", tmp_path_factory.mktemp("account"))


@pytest.fixture
def namespace(kube: Kube, request: pytest.FixtureRequest) -> Iterator[str]:
    """Provide a namespace for this test, in which the shim may read ConfigMaps as in its own.

    Afterwards its pods and nodes are deleted. The empty namespace stays, because this cluster has no controller that
    removes it.
    """
    name = _name(request.node.name)
    kube.create(objects.namespace(name))
    kube.ensure(objects.service_account("default", name))
    kube.create(*_as_own_namespace(name))
    yield name
    kube.delete_all("Pod", name)
    for node in kube.all("Node", "", {objects.OF: name}):
        kube.delete("Node", node["metadata"]["name"])


@pytest.fixture
def stack(namespace: str, shim_kubeconfig: Path, tmp_path: Path) -> Iterator[Stack]:
    """Provide core and shim, not started yet; the test calls `stack.start()` when the cluster is prepared.

    A failed test shows the end of their logs.
    """
    stack = Stack(tmp_path, shim_kubeconfig, namespace)
    yield stack
    stack.stop()
    print(stack.told())  # noqa: T201


@pytest.fixture(scope="session")
def manifests(kube: Kube) -> list[Object]:
    """Provide the objects that `kubectl apply -k deploy` would send."""
    return _rendered(kube, DEPLOY)


@pytest.fixture(scope="session")
def pair(kube: Kube) -> list[Object]:
    """Provide the objects that `kubectl apply -k deploy-ha` would send."""
    return _rendered(kube, DEPLOY_HA)


def _rendered(kube: Kube, folder: Path) -> list[Object]:
    said = kube.kubectl("kustomize", str(folder))
    assert said.returncode == 0, said.stderr
    return list(yaml.safe_load_all(said.stdout))


@pytest.fixture(scope="session")
def certificates(kube: Kube, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create the secrets with deploy/certificates.sh and provide the folder with the certificate authority."""
    folder = tmp_path_factory.mktemp("certificates")
    path = f"{provision.search_path()}{os.pathsep}{os.environ['PATH']}"
    for _ in range(2):  # The second time renews the certificates.
        said = subprocess.run(
            [str(DEPLOY / "certificates.sh"), str(folder)],
            env=os.environ | {"KUBECONFIG": str(kube.kubeconfig), "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert said.returncode == 0, said.stderr
    return folder


def _name(test: str) -> str:
    """Return a name that no other run uses."""
    plain = re.sub(r"[^a-z0-9]+", "-", test.lower().removeprefix("test_"))[:NAMESPACE_LENGTH]
    return f"{plain.strip('-')}-{os.urandom(3).hex()}"


def _as_own_namespace(namespace: str) -> Iterator[objects.Object]:
    """Yield the Roles and RoleBindings of deploy/ for the shim's own namespace, changed to this namespace."""
    for item in yaml.safe_load_all((DEPLOY / "rbac.yaml").read_text()):
        if item["kind"] in {"Role", "RoleBinding"}:
            item["metadata"]["namespace"] = namespace
            yield item
