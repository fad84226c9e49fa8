"""A Kubernetes cluster on this machine's loopback: etcd, the API server, and kwok instead of kubelets.

    python -m scripts.real.cluster up       # prints how to reach the cluster
    python -m scripts.real.cluster down

Tests start their own cluster through `Cluster`, unless the environment names one. There is no controller manager.
Therefore no pods are created for Deployments, and no garbage is collected. Namespaces are not removed, service accounts
are not created, and the status of PodDisruptionBudgets is not written. Admission plugins that need those are
therefore off. There is no scheduler either.
"""

import argparse
import json
import os
import secrets
import signal
import socket
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import trustme
import yaml

from scripts.real import programs, provision
from scripts.real.toolchain import cache

USERS = {"admin": "system:masters", "kwok": "system:masters", "nobody": ""}
"""Users who have a token, each with its group; the shim uses its service account instead."""

PARTS = ("etcd", "kube-apiserver", "kwok")
STAGES = Path(__file__).with_name("stages.yaml")
CLAIMS_BY_DEFAULT = 34
"""The minor version from which the API server keeps a pod's device claims by default; before, it removes the field."""
POLICIES_BY_DEFAULT, POLICIES_BETA = 36, 34
"""The minor versions from which MutatingAdmissionPolicies are on by default, and from which their API is v1beta1."""
READY_S_MAX = 60.0
PAUSE_S = 0.1
PORTS = range(20_000, 32_000)
"""Ports below those that the kernel assigns by itself.

The port of a component therefore stays free while the component restarts.
"""


class ClusterFault(Exception):
    """The error of a cluster that does not run; the message contains the last output of its programs."""


class Cluster:
    """A cluster whose files are all in its folder.

    After a stop the folder keeps its state: when the cluster is started again, its objects still exist.
    """

    def __init__(self, folder: Path, api_flags: Sequence[str] = ()) -> None:
        """Prepare a cluster in a folder.

        `api_flags` are passed to the API server in addition to the usual flags.
        """
        self.folder = folder.absolute()
        self._more_api_flags = tuple(api_flags)
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        if not (self.folder / "ports").exists():
            self._invent()
        ports = (self.folder / "ports").read_text().split()
        self._etcd, self._peer, self._api, self._kwok = map(int, ports)

    @property
    def server(self) -> str:
        """The address of the API server."""
        return f"https://127.0.0.1:{self._api}"

    @property
    def port(self) -> int:
        """The port of the API server."""
        return self._api

    @property
    def etcd(self) -> str:
        """The address of etcd, as plain HTTP."""
        return f"http://127.0.0.1:{self._etcd}"

    def kubeconfig(self, user: str = "admin") -> Path:
        """Return the kubeconfig file with which a user reaches the API server."""
        return self.folder / f"{user}.kubeconfig"

    def start(self, *, kwok: bool = True) -> None:
        """Start those components that do not run.

        Raise ClusterFault if one of them does not start.
        """
        absent = provision.missing(("etcd", "kube-apiserver", *(["kwok"] if kwok else [])))
        if absent:
            raise ClusterFault(f"not built yet: {', '.join(absent)}; say `make real`")
        self._start("etcd", self._etcd_flags())
        self.start_api_server()
        if kwok:
            self._start("kwok", self._kwok_flags())

    def stop(self) -> None:
        """Stop those components that run, the one started last first."""
        for name in reversed(PARTS):
            programs.end(self.folder, name)

    def start_api_server(self) -> None:
        """Start the API server and wait until it is ready.

        Raise ClusterFault if it does not become ready.
        """
        self._start("kube-apiserver", self._api_flags())
        for _ in range(int(READY_S_MAX / PAUSE_S)):
            if self.is_ready():
                return
            if not all(programs.running(self.folder, name) for name in PARTS[:2]):
                break
            time.sleep(PAUSE_S)
        said = "\n".join(programs.last_words(self.folder, name) for name in PARTS[:2])
        raise ClusterFault(f"the API server does not get ready\n{said}")

    def kill_api_server(self) -> None:
        """Kill the API server; every connection to it breaks."""
        programs.end(self.folder, "kube-apiserver", signal.SIGKILL)

    def forget_history(self) -> None:
        """Compact etcd and restart the API server, so that no watch can begin at an older version."""
        revision = self._ask_etcd("range", {"key": "AA=="})["header"]["revision"]
        self.kill_api_server()
        self._ask_etcd("compaction", {"revision": revision, "physical": True})
        self.start_api_server()

    def _ask_etcd(self, method: str, question: dict[str, object]) -> dict[str, Any]:
        """Send one request to etcd's JSON gateway and return the answer."""
        asked = urllib.request.Request(  # noqa: S310 -- our own address.
            f"{self.etcd}/v3/kv/{method}", json.dumps(question).encode()
        )
        with urllib.request.urlopen(asked, timeout=READY_S_MAX) as answer:  # noqa: S310
            found: dict[str, Any] = json.load(answer)
        return found

    def is_ready(self) -> bool:
        """Return whether the API server reports that it is ready."""
        headers = {"Authorization": f"Bearer {self._token('admin')}"}
        question = urllib.request.Request(f"{self.server}/readyz", headers=headers)  # noqa: S310
        trust = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        try:
            with urllib.request.urlopen(question, timeout=5, context=trust) as answer:  # noqa: S310
                return bool(answer.status == 200)  # noqa: PLR2004
        except (urllib.error.URLError, OSError):
            return False

    def _start(self, name: str, flags: list[str]) -> None:
        program = provision.program(name)
        if program is None:
            raise ClusterFault(f"{name} is not built yet; say `make real`")
        if programs.running(self.folder, name) is None:
            programs.start(self.folder, program, flags)

    def _etcd_flags(self) -> list[str]:
        """Return the flags of etcd.

        With these flags etcd is faster, but may lose data when the machine fails.
        """
        peer = f"http://127.0.0.1:{self._peer}"
        return [
            "--name=one",
            f"--data-dir={self.folder / 'etcd'}",
            "--unsafe-no-fsync",
            "--log-level=warn",
            f"--listen-client-urls={self.etcd}",
            f"--advertise-client-urls={self.etcd}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=one={peer}",
        ]

    def _api_flags(self) -> list[str]:
        return [
            f"--etcd-servers={self.etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._api}",
            f"--cert-dir={self.folder}",
            f"--tls-cert-file={self.folder / 'server.pem'}",
            f"--tls-private-key-file={self.folder / 'server.pem'}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            f"--service-account-issuer={self.server}",
            f"--service-account-key-file={self.folder / 'accounts.key'}",
            f"--service-account-signing-key-file={self.folder / 'accounts.key'}",
            "--authorization-mode=RBAC",
            "--anonymous-auth=false",
            "--service-cluster-ip-range=10.96.0.0/24",
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
            "--endpoint-reconciler-type=none",
            "--profiling=false",
            *_gates(),
            *self._more_api_flags,
        ]

    def _kwok_flags(self) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig('kwok')}",
            f"--config={STAGES}",
            "--manage-all-nodes=true",
            f"--server-address=127.0.0.1:{self._kwok}",
            "--node-lease-duration-seconds=0",
            "--cidr=10.0.0.0/8",
            "--node-ip=127.0.0.1",
        ]

    def _token(self, user: str) -> str:
        for line in (self.folder / "tokens.csv").read_text().splitlines():
            token, name, *_ = line.split(",")
            if name == user:
                return token
        raise ClusterFault(f"no user {user}")

    def _invent(self) -> None:
        """Choose ports, and create keys, tokens and kubeconfig files."""
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.folder / "ca.pem")
        served = authority.issue_cert("127.0.0.1", "localhost")
        served.private_key_and_cert_chain_pem.write_to_path(self.folder / "server.pem")
        trustme.CA().private_key_pem.write_to_path(self.folder / "accounts.key")
        ports = free_ports(4)
        lines = [f"{secrets.token_hex(24)},{user},{user},{USERS[user]}" for user in USERS]
        (self.folder / "tokens.csv").write_text("\n".join(line.rstrip(",") for line in lines))
        for user in USERS:
            server = f"https://127.0.0.1:{ports[2]}"
            text = kubeconfig(server, self.folder / "ca.pem", user, self._token(user))
            self.kubeconfig(user).write_text(text)
        (self.folder / "ports").write_text(" ".join(map(str, ports)))


def _gates() -> list[str]:
    """Return the flags for features that the tests need and that this version of Kubernetes leaves off by default."""
    minor = int(provision.kubernetes().removeprefix("1."))
    gates = [] if minor >= CLAIMS_BY_DEFAULT else ["DynamicResourceAllocation=true"]
    served = []
    if minor < POLICIES_BY_DEFAULT:
        version = "v1beta1" if minor >= POLICIES_BETA else "v1alpha1"
        gates.append("MutatingAdmissionPolicy=true")
        served.append(f"--runtime-config=admissionregistration.k8s.io/{version}=true")
    return [*served, *([f"--feature-gates={','.join(gates)}"] if gates else [])]


def kubeconfig(server: str, authority: Path, user: str, token: str) -> str:
    """Return the text of a kubeconfig for one user of one server."""
    cluster = {"server": server, "certificate-authority": str(authority)}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "real",
            "clusters": [{"name": "real", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "real", "context": {"cluster": "real", "user": user}}],
        }
    )


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback on which nothing listens.

    Each process starts its search at another port.
    """
    first = os.getpid() * 16 % len(PORTS)
    found: list[int] = []
    for port in (*PORTS[first:], *PORTS[:first]):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue  # Another process listens on it.
        found.append(port)
        if len(found) == count:
            return found
    raise ClusterFault("no port is free")


def default_folder() -> Path:
    """Return the folder of the cluster that `up` starts: one for each version of Kubernetes, because none reads the state of a later one."""
    chosen = provision.kubernetes()
    return cache() / ("cluster" if chosen == provision.default() else f"cluster-{chosen}")


def main() -> None:
    """Start or stop a cluster on behalf of a user."""
    parser = argparse.ArgumentParser(description="A Kubernetes cluster on the loopback.")
    parser.add_argument("what", choices=("up", "down"))
    parser.add_argument("--folder", type=Path, help="where it stands")
    parser.add_argument("--no-kwok", action="store_true", help="no kubelets: bound pods never run")
    given = parser.parse_args()
    try:
        cluster = Cluster(given.folder or default_folder())
        if given.what == "down":
            cluster.stop()
            return
        cluster.start(kwok=not given.no_kwok)
    except (ClusterFault, provision.UnknownVersionError) as fault:
        raise SystemExit(str(fault)) from fault
    sys.stdout.write(f"export KUBECONFIG={cluster.kubeconfig()}\n")
    sys.stdout.write(f"export PATH={provision.search_path()}:$PATH\n")


if __name__ == "__main__":
    main()
