"""The controllers and kubelets that the API server of the tests lacks, as far as a tutorial needs them.

`Controllers` creates and counts the pods of Deployments, and removes namespaces that were deleted; kwok runs these pods.
`Installed` runs the pods of a release of Evenhand's chart as processes of this machine: with the commands, Secrets,
accounts and probes of the objects that helm created.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from lightkube import ApiError
from lightkube.resources.apps_v1 import Deployment

from tests.chart.helm import CHART
from tests.kubernetes.deployed import NAMESPACE, Deployed
from tests.kubernetes.kube import NOT_FOUND, Kube, Object

PAUSE_S: Final = 0.1
LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
"""The characters of the ends of pods' names."""
HASH: Final = "6d5b7c9f84"
"""The part of a pod's name that names its ReplicaSet."""
CORE, SHIM, CONSOLE = "evenhand-core", "evenhand-shim", "evenhand-console"
PROGRAM: Final = CHART / "files" / "certificates.py"
"""The program of the certificates' job."""
PODS: Final = {name: name for name in (CORE, SHIM, CONSOLE)}


class Controllers:
    """The controllers of a cluster. Each look does what is due."""

    def __init__(self, kube: Kube, folder: Path) -> None:
        self._kube, self._made = kube, dict[str, int]()
        self.installed = Installed(kube, folder)

    def look(self) -> None:
        """Create, count and delete what the objects of the cluster ask for."""
        namespaces = self._kube.all("Namespace", "")
        ending = {
            one["metadata"]["name"] for one in namespaces if "deletionTimestamp" in one["metadata"]
        }
        for deployment in self._kube.all("Deployment"):
            if deployment["metadata"]["namespace"] not in {NAMESPACE, *ending}:
                self._scale(deployment)
        self.installed.look()
        for name in ending:
            self._finish(name)

    def _scale(self, deployment: Object) -> None:
        """Create the pods that a Deployment lacks, delete those that it has too many, and write its status."""
        name, namespace = deployment["metadata"]["name"], deployment["metadata"]["namespace"]
        wanted = deployment["spec"]["replicas"]
        labels = deployment["spec"]["selector"]["matchLabels"]
        pods = [
            one
            for one in self._kube.all("Pod", namespace, labels)
            if "deletionTimestamp" not in one["metadata"]
        ]
        for pod in pods[wanted:]:
            self._kube.delete("Pod", pod["metadata"]["name"], namespace)
        for _ in range(wanted - len(pods)):
            self._create(deployment, name, namespace)
        ready = sum(one["status"].get("phase") == "Running" for one in pods[:wanted])
        self._count(name, namespace, min(len(pods), wanted), ready)

    def _create(self, deployment: Object, name: str, namespace: str) -> None:
        number = self._made[namespace] = self._made.get(namespace, 0) + 1
        end = "".join(LETTERS[number * step % len(LETTERS)] for step in (1, 5, 7, 11, 13))
        template = deployment["spec"]["template"]
        made = {"name": f"{name}-{HASH}-{end}", "namespace": namespace}
        metadata = template.get("metadata", {}) | made
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        self._kube.create(pod)

    def _count(self, name: str, namespace: str, pods: int, ready: int) -> None:
        status = {"replicas": pods, "updatedReplicas": pods, "readyReplicas": ready}
        status |= {"availableReplicas": ready, "unavailableReplicas": pods - ready}
        _write(self._kube, name, namespace, status)

    def _finish(self, name: str) -> None:
        """Delete Deployments and pods of a namespace, then the namespace."""
        self._kube.delete_all("Deployment", name)
        self._kube.delete_all("Pod", name)
        end = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        words = ("replace", "--raw", f"/api/v1/namespaces/{name}/finalize", "-f", "-")
        self._kube.kubectl(*words, given=json.dumps(end | {"spec": {"finalizers": []}}))


class Installed:
    """The pods of a release of the chart, as processes."""

    def __init__(self, kube: Kube, folder: Path) -> None:
        self._kube, self._folder, self._pods = kube, folder, ExitStack()
        self._deployed: Deployed | None = None

    def close(self) -> None:
        """End the pods."""
        self._pods.close()
        self._deployed = None

    @property
    def console(self) -> str:
        """The address of the console."""
        assert self._deployed is not None, "the chart is not installed"
        return f"http://{self._deployed.address(CONSOLE)}"

    def look(self) -> None:
        """Start the pods when the objects are there, report which are ready, and end the pods when the objects are gone."""
        objects = self._objects()
        if self._deployed is None and len(objects) == len(PODS):
            certified(self._kube, NAMESPACE, self._folder)
            self._start(objects)
        if self._deployed is not None and not objects:
            self.close()
        for one in objects:
            if self._deployed is not None:
                self._report(one)

    def _objects(self) -> list[Object]:
        found = self._kube.all("Deployment", NAMESPACE)
        return [one for one in found if one["metadata"]["name"] in PODS]

    def _start(self, objects: list[Object]) -> None:
        maps = [one | {"kind": "ConfigMap"} for one in self._kube.all("ConfigMap", NAMESPACE)]
        workloads = [one | {"kind": "Deployment"} for one in objects]
        self._deployed = Deployed(self._kube, [*maps, *workloads], self._folder, PODS)
        account = self._kube.account(SHIM, NAMESPACE, self._folder)
        given = {SHIM: (f"--kubeconfig={account}", f"--namespace={NAMESPACE}")}
        for name in PODS:
            self._pods.enter_context(self._deployed.running(name, *given.get(name, ())))

    def _report(self, one: Object) -> None:
        assert self._deployed is not None
        name, replicas = one["metadata"]["name"], one["spec"]["replicas"]
        ready = replicas if self._deployed.is_ready(name) else 0
        status = {
            "observedGeneration": one["metadata"]["generation"],
            "replicas": replicas,
            "updatedReplicas": replicas,
            "readyReplicas": ready,
            "availableReplicas": ready,
        }
        _write(self._kube, name, NAMESPACE, status)


def certified(kube: Kube, namespace: str, folder: Path, *more: str) -> list[str]:
    """Run the program of the certificates' job with the arguments and the account of the job. Return the Secrets that the program wrote."""
    said = kube.kubectl("get", "jobs", "-o", "json", f"--namespace={namespace}")
    [job] = json.loads(said.stdout)["items"]
    spec = job["spec"]["template"]["spec"]
    [container] = spec["containers"]
    config = kube.account(spec["serviceAccountName"], namespace, folder)
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *container["args"], *more],
        env=os.environ | {"KUBECONFIG": str(config), "NAMESPACE": namespace},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [line.partition(":")[0] for line in done.stdout.splitlines()]


def _write(kube: Kube, name: str, namespace: str, status: Object) -> None:
    """Write the status of a Deployment, unless the Deployment was deleted meanwhile."""
    try:
        kube.client.patch(Deployment.Status, name, {"status": status}, namespace=namespace)
    except ApiError as error:
        if error.status.code != NOT_FOUND:
            raise


@contextmanager
def looking(look: Callable[[], None]) -> Iterator[None]:
    """Call a function again and again, in a thread, while the block runs. An error of the function is raised at the end."""
    ended, errors = threading.Event(), list[Exception]()

    def run() -> None:
        while not ended.wait(PAUSE_S):
            try:
                look()
            except Exception as error:
                errors.append(error)
                return

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        if errors:
            raise errors[0]
