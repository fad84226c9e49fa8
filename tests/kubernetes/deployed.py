"""The containers of deploy/ as processes: with the commands of deploy/, and files and ports of this machine."""

import base64
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scripts.real.cluster import free_ports
from tests.kubernetes.kube import Kube, Object
from tests.kubernetes.stack import Process, run, serves

NAMESPACE = "evenhand"


def one(manifests: list[Object], kind: str, name: str) -> Object:
    [found] = [it for it in manifests if (it["kind"], it["metadata"]["name"]) == (kind, name)]
    return found


def pod_of(manifests: list[Object], name: str) -> Any:
    return one(manifests, "Deployment", name)["spec"]["template"]


class Deployed:
    """The containers of deploy/ as processes: with the commands of deploy/, and files and ports of this machine."""

    def __init__(self, kube: Kube, manifests: list[Object], folder: Path) -> None:
        self._kube, self._manifests, self._folder = kube, manifests, folder
        core, core_health, shim_health, metrics = free_ports(4)
        self._ports = {
            "evenhand-core": {"0.0.0.0:50052": core_health, "0.0.0.0:9464": metrics},
            "evenhand-shim": {"0.0.0.0:50052": shim_health},
        }
        for ports in self._ports.values():
            ports |= {"0.0.0.0:50051": core, "evenhand-core:50051": core, "localhost:50051": core}

    def _arguments(self, name: str) -> list[str]:
        """Return the arguments of a container."""
        [container] = pod_of(self._manifests, name)["spec"]["containers"]
        return [self._here(name, argument) for argument in container["args"]]

    def _environment(self, name: str) -> dict[str, str]:
        """Return the environment variables of a container that have a literal value."""
        [container] = pod_of(self._manifests, name)["spec"]["containers"]
        given = (variable for variable in container["env"] if "value" in variable)
        return {variable["name"]: self._here(name, variable["value"]) for variable in given}

    def _mount(self, name: str) -> None:
        """Write the files that a pod mounts."""
        spec = pod_of(self._manifests, name)["spec"]
        paths = {it["name"]: it["mountPath"] for it in spec["containers"][0]["volumeMounts"]}
        for volume in spec["volumes"]:
            folder = self._folder / name / paths[volume["name"]].lstrip("/")
            folder.mkdir(parents=True)
            for key, text in self._content(volume).items():
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
        """Hold a running container while the block runs, then print its log, which a failed test shows."""
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
        [container] = pod_of(self._manifests, name)["spec"]["containers"]
        health = self._ports[name]["0.0.0.0:50052"]
        return serves(f"127.0.0.1:{health}", container["readinessProbe"]["grpc"]["service"])

    def command(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run one command of `evenhand` in the environment of a container."""
        return run(*words, **self._environment(name))
