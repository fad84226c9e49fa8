"""`kubectl evenhand` with the real kubectl and API server: the node of a core is asked to run the command."""

import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import trustme

from scripts.real import provision
from tests.kubernetes import objects
from tests.kubernetes.kube import Kube, Object, until

BIN = Path(sys.executable).parent
LABEL = "app.kubernetes.io/name"


class Kubelet:
    """The port of a node's kubelet. Requests to execute a command are recorded and refused."""

    def __init__(self, folder: Path) -> None:
        self.asked: list[tuple[str, list[str]]] = []
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                parts = urlsplit(self.path)
                asked.append((parts.path, parse_qs(parts.query)["command"]))
                self.send_error(403, "recorded")

            do_GET = do_POST = answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        pem = folder / "kubelet.pem"
        trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(pem))
        context.load_cert_chain(pem)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)

    @property
    def port(self) -> int:
        return int(self.server.server_address[1])


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    kubelet = Kubelet(tmp_path)
    thread = threading.Thread(target=kubelet.server.serve_forever)
    thread.start()
    yield kubelet
    kubelet.server.shutdown()
    thread.join()
    kubelet.server.server_close()


@pytest.fixture
def core(kube: Kube, namespace: str, kubelet: Kubelet) -> str:
    """Provide the name of a pod like that of a core, which runs on the node of the kubelet."""
    node: Object = objects.node(f"{namespace}-0", namespace)
    node["status"]["addresses"] = [{"type": "InternalIP", "address": "127.0.0.1"}]
    node["status"]["daemonEndpoints"] = {"kubeletEndpoint": {"Port": kubelet.port}}
    container = {"name": "core", "image": "none"}
    given = {"nodeName": f"{namespace}-0", "containers": [container]}
    pod = objects.pod("core-1", namespace, labels={LABEL: namespace}, **given)
    kube.create(node, pod)
    until(lambda: (kube.find("Pod", "core-1", namespace) or {})["status"]["phase"] == "Running")
    return "core-1"


def kubectl(kube: Kube, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run kubectl with the plugin on its path, as a user does."""
    own = ("EVENHAND_", "KUBECONFIG")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    path = os.pathsep.join((str(BIN), provision.search_path(), os.environ["PATH"]))
    return subprocess.run(
        ["kubectl", *words],
        env=inherited | {"PATH": path, "KUBECONFIG": str(kube.kubeconfig)} | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_command_runs_in_the_container_of_a_core(
    kube: Kube, namespace: str, core: str, kubelet: Kubelet
) -> None:
    own = ("-l", f"{LABEL}={namespace}")
    said = kubectl(kube, "evenhand", *own, "explain", "default/hello", "--output=json")
    path = f"/exec/{namespace}/{core}/core"
    words = ["evenhand", "explain", "default/hello", "--output=json"]
    assert (path, words) in kubelet.asked, said.stderr
    assert said.returncode != 0, "the node refused"


def test_a_core_in_another_namespace_is_not_asked(
    kube: Kube, namespace: str, core: str, kubelet: Kubelet
) -> None:
    own = ("-n", "default", f"--selector={LABEL}={namespace}")
    said = kubectl(kube, "evenhand", *own, "queues")
    assert (said.returncode, kubelet.asked) == (3, [])
    assert "no pod has the label" in said.stderr
    assert core not in said.stderr


def test_kubectl_lists_the_plugin_and_shows_its_help(kube: Kube) -> None:
    assert str(BIN / "kubectl-evenhand") in kubectl(kube, "plugin", "list").stdout
    assert "kubectl evenhand queues" in kubectl(kube, "evenhand", "--help").stdout


def test_a_named_core_is_called_from_here(kube: Kube) -> None:
    """Nothing listens on the port, so that the command says that no core answers."""
    words = ("evenhand", "--kubeconfig=/nonexistent", "queues", "--timeout=1")
    for said in (
        kubectl(kube, *words, "--core=127.0.0.1:1"),
        kubectl(kube, *words, EVENHAND_CORE="127.0.0.1:1"),
    ):
        assert said.returncode == 3
        assert "127.0.0.1:1" in said.stderr
