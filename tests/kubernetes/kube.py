"""A Kubernetes cluster as the tests use it: with all rights, and objects as plain mappings."""

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import yaml
from lightkube import ApiError, Client, KubeConfig
from lightkube.codecs import from_dict, resource_registry
from lightkube.types import PatchType

from scripts.real import provision
from scripts.real.cluster import Cluster

SECONDS_MAX = 60.0
AT_ONCE = 16
NOT_FOUND, CONFLICT = 404, 409
VERSIONS = {
    "PriorityClass": "scheduling.k8s.io/v1",
    "PodDisruptionBudget": "policy/v1",
    "Deployment": "apps/v1",
    "ClusterRole": "rbac.authorization.k8s.io/v1",
    "ClusterRoleBinding": "rbac.authorization.k8s.io/v1",
    "Role": "rbac.authorization.k8s.io/v1",
    "RoleBinding": "rbac.authorization.k8s.io/v1",
    "SubjectAccessReview": "authorization.k8s.io/v1",
    "StorageClass": "storage.k8s.io/v1",
    "CSINode": "storage.k8s.io/v1",
    "ValidatingAdmissionPolicyBinding": "admissionregistration.k8s.io/v1",
}
"""The API versions of the kinds that are not in v1."""

Object = dict[str, Any]


def until(condition: Callable[[], bool], seconds: float = SECONDS_MAX) -> None:
    """Wait until other processes make the condition true. Raises TimeoutError."""
    latest = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > latest:
            raise TimeoutError(f"not within {seconds:.0f} s: {condition}")
        time.sleep(0.05)


class Kube:
    """An API server, used as its administrator.

    `own` is the cluster that the tests started; None when the environment names another cluster, which must not be
    stopped or restarted.
    """

    def __init__(self, kubeconfig: Path, own: Cluster | None = None) -> None:
        self.kubeconfig, self.own = kubeconfig, own
        self.config = KubeConfig.from_file(str(kubeconfig))
        self.client: Any = Client(self.config, trust_env=False, timeout=httpx2.Timeout(SECONDS_MAX))

    def close(self) -> None:
        """Close the client's connections."""
        self.client.close()

    def create(self, *objects: Mapping[str, Any]) -> list[Object]:
        """Create objects, many at the same time, and return them as the API server stores them. Raises ApiError."""
        # The class is created here and not in the threads, because the client must not create a class for
        # the first time in two threads.
        models = [from_dict(dict(item)) for item in objects]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return [made.to_dict() for made in pool.map(self.client.create, models)]

    def ensure(self, item: Mapping[str, Any]) -> None:
        """Create an object unless it exists."""
        try:
            self.create(item)
        except ApiError as error:
            if error.status.code != CONFLICT:
                raise

    def find(self, kind: str, name: str, namespace: str = "") -> Object | None:
        """Return one object, None when there is no such object."""
        try:
            found: Object = self.client.get(resource(kind), name, **_within(namespace)).to_dict()
        except ApiError as error:
            if error.status.code == NOT_FOUND:
                return None
            raise
        return found

    def all(
        self, kind: str, namespace: str = "*", labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        """Return all objects of a kind, in all namespaces unless one is named."""
        found = self.client.list(resource(kind), labels=labels, **_within(namespace))
        return [item.to_dict() for item in found]

    def patch(self, kind: str, name: str, change: Object, namespace: str = "") -> Object:
        """Merge a change into an object and return the result."""
        patched: Object = self.client.patch(
            resource(kind), name, change, patch_type=PatchType.MERGE, **_within(namespace)
        ).to_dict()
        return patched

    def delete(self, kind: str, name: str, namespace: str = "", grace_s: int | None = None) -> None:
        """Delete an object if it exists."""
        try:
            self.client.delete(resource(kind), name, grace_period=grace_s, **_within(namespace))
        except ApiError as error:
            if error.status.code != NOT_FOUND:
                raise

    def delete_all(self, kind: str, namespace: str) -> None:
        """Delete all objects of a kind in a namespace, without a grace period."""
        self.client.deletecollection(resource(kind), namespace=namespace, grace_period=0)

    def version(self) -> int:
        """Return the present resource version of the cluster."""
        said = self.kubectl("get", "--raw", "/api/v1/namespaces?limit=1")
        return int(json.loads(said.stdout)["metadata"]["resourceVersion"])

    def is_too_old(self, version: int) -> bool:
        """Return whether the API server refuses to watch pods from a resource version (410)."""
        query = f"watch=1&timeoutSeconds=1&resourceVersion={version}"
        said = self.kubectl("get", "--raw", f"/api/v1/pods?{query}")
        return '"code":410' in said.stdout or "too old resource version" in said.stderr

    def kubectl(self, *words: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run kubectl to its end."""
        program = provision.program("kubectl") or shutil.which("kubectl")
        assert program is not None, "there is no kubectl"
        return subprocess.run(
            [str(program), f"--kubeconfig={self.kubeconfig}", *words],
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS_MAX,
        )

    def account(self, name: str, namespace: str, folder: Path) -> Path:
        """Write a kubeconfig with a service account's token, as in the account's pod, and return its path."""
        said = self.kubectl("create", "token", name, f"--namespace={namespace}", "--duration=24h")
        assert said.returncode == 0, said.stderr
        config = yaml.safe_load(self.kubectl("config", "view", "--raw", "--minify").stdout)
        config["users"][0]["user"] = {"token": said.stdout.strip()}
        file = folder / f"{name}.kubeconfig"
        file.touch(mode=0o600)
        file.write_text(yaml.safe_dump(config))
        return file


def resource(kind: str) -> Any:
    """Return the client's class for a kind."""
    return resource_registry.load(VERSIONS.get(kind, "v1"), kind)


def _within(namespace: str) -> dict[str, str]:
    return {"namespace": namespace} if namespace else {}
