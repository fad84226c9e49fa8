"""The containers of deploy/ and deploy-ha/ as processes: with their commands, and files and ports of this machine."""

import base64
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scripts.real.cluster import free_ports
from tests.kubernetes.kube import Kube, Object
from tests.kubernetes.stack import Process, run, serves
from tests.scrape import scraped

NAMESPACE = "evenhand"


def one(manifests: list[Object], kind: str, name: str) -> Object:
    [found] = [it for it in manifests if (it["kind"], it["metadata"]["name"]) == (kind, name)]
    return found


def pod_of(manifests: list[Object], name: str) -> Any:
    """Return the pod template of a Deployment or StatefulSet."""
    [found] = [
        it
        for it in manifests
        if it["kind"] in {"Deployment", "StatefulSet"} and it["metadata"]["name"] == name
    ]
    return found["spec"]["template"]


def _answers(url: str) -> bool:
    """Return whether an HTTP server answers with the status 200."""
    try:
        with urllib.request.urlopen(url, timeout=1) as answer:  # noqa: S310 -- an address of the test.
            return bool(answer.status == 200)
    except OSError:
        return False


SINGLE = {"evenhand-core": "evenhand-core", "evenhand-shim": "evenhand-shim"}
"""The pods of deploy/: the name of each, and that of its Deployment."""
PAIR = {
    "evenhand-core-0": "evenhand-core",
    "evenhand-core-1": "evenhand-core",
    "evenhand-shim-a": "evenhand-shim",
    "evenhand-shim-b": "evenhand-shim",
}
"""The pods of deploy-ha/: the name of each, and that of its StatefulSet or Deployment."""


class Deployed:
    """The pods of a deployment as processes: with the commands of the manifests, and files and ports of this machine."""

    def __init__(
        self,
        kube: Kube,
        manifests: list[Object],
        folder: Path,
        pods: Mapping[str, str] = SINGLE,
    ) -> None:
        self._kube, self._manifests, self._folder, self._pods = kube, manifests, folder, pods
        self._ports: dict[str, dict[str, int]] = {}
        named: dict[str, int] = {}
        free = iter(free_ports(3 * len(pods)))
        for pod in pods:
            grpc, health, metrics = next(free), next(free), next(free)
            self._ports[pod] = {
                "0.0.0.0:50052": health,
                "0.0.0.0:9464": metrics,
                "0.0.0.0:50051": grpc,
                "localhost:50051": grpc,
                "0.0.0.0:8080": grpc,  # A console has no port of gRPC.
            }
            named |= {f"{pod}:50051": grpc, f"{pod}.evenhand-cores:50051": grpc}
        for ports in self._ports.values():
            ports.update(named)

    def _spec(self, name: str) -> Any:
        return pod_of(self._manifests, self._pods[name])["spec"]

    def _arguments(self, name: str) -> list[str]:
        """Return the arguments of a container."""
        [container] = self._spec(name)["containers"]
        return [self._here(name, argument) for argument in container["args"]]

    def _environment(self, name: str) -> dict[str, str]:
        """Return the environment variables of a container that have a literal value."""
        [container] = self._spec(name)["containers"]
        given = (variable for variable in container.get("env", ()) if "value" in variable)
        return {variable["name"]: self._here(name, variable["value"]) for variable in given}

    def _mount(self, name: str) -> None:
        """Write the files that a pod mounts. A folder of a volume claim keeps its files."""
        spec = self._spec(name)
        paths = {it["name"]: it["mountPath"] for it in spec["containers"][0]["volumeMounts"]}
        contents = {volume["name"]: self._content(volume) for volume in spec["volumes"]}
        for volume, path in paths.items():
            folder = self._folder / name / path.lstrip("/")
            folder.mkdir(parents=True, exist_ok=True)
            for key, text in contents.get(volume, {}).items():
                (folder / key).write_bytes(text)

    def _content(self, volume: Object) -> dict[str, bytes]:
        if "secret" in volume:
            secret = self._kube.find("Secret", volume["secret"]["secretName"], NAMESPACE)
            assert secret is not None
            return {key: base64.b64decode(text) for key, text in secret["data"].items()}
        if "emptyDir" in volume:
            return {}
        data = one(self._manifests, "ConfigMap", volume["configMap"]["name"])["data"]
        return {key: text.encode() for key, text in data.items()}

    def _here(self, name: str, word: str) -> str:
        for address, port in self._ports[name].items():
            word = word.replace(address, f"127.0.0.1:{port}")
        for mounted in ("/etc/evenhand", "/var/lib/evenhand"):
            word = word.replace(mounted, f"{self._folder / name}{mounted}")
        return word

    @contextmanager
    def running(self, name: str, *extra: str) -> Iterator[Process]:
        """Yield a running container. At the end print its log, which pytest shows if the test failed."""
        self._mount(name)
        log = self._folder / f"{name}.log"
        process = Process([*self._arguments(name), *extra], log)
        try:
            yield process
        finally:
            process.end()
            sys.stdout.write(log.read_text())

    def is_ready(self, name: str) -> bool:
        """Return whether the readiness probe would succeed."""
        return self._probe(name, "readinessProbe")

    def is_live(self, name: str) -> bool:
        """Return whether the liveness probe would succeed."""
        return self._probe(name, "livenessProbe")

    def _probe(self, name: str, probe: str) -> bool:
        [container] = self._spec(name)["containers"]
        given = container[probe]
        if "httpGet" in given:
            return _answers(f"http://{self.address(name)}{given['httpGet']['path']}")
        return self.serves(name, given["grpc"].get("service", ""))

    def serves(self, name: str, service: str) -> bool:
        """Return whether the health port of a pod reports a service as serving."""
        return serves(f"127.0.0.1:{self._ports[name]['0.0.0.0:50052']}", service)

    def address(self, name: str) -> str:
        """Return the address of the gRPC port of a pod, or of the HTTP port of a console."""
        return f"127.0.0.1:{self._ports[name]['0.0.0.0:50051']}"

    def metrics(self, name: str) -> dict[str, float]:
        """Return the metrics of a pod, by name and labels."""
        return scraped(f"127.0.0.1:{self._ports[name]['0.0.0.0:9464']}")

    def command(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run one command of `evenhand` in the environment of a container."""
        return run(*words, **self._environment(name))
