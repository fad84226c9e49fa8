"""The tutorial of an installation: every command and every act of the page, on an API server of its own.

`controllers` replaces the controllers and kubelets of a cluster: core, shim and console are processes with the commands
of the objects that helm created. `kubectl port-forward` only prints its line, and the browser opens the console's process.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from evenhand_cli.story.reading import blocks
from scripts.real import browser, provision
from scripts.real.cluster import Cluster
from tests.cli.processes import ROOT, environment
from tests.docs import acts, terminals
from tests.docs.pages import DOCS
from tests.docs.terminals import Terminals, normal, steps_of
from tests.kubernetes import objects
from tests.kubernetes.controllers import Controllers, looking
from tests.kubernetes.kube import Kube
from tests.real.needs import absent

PAGE = DOCS / "install-tutorial.md"
ADDRESS = "http://localhost:8080"
PROGRAMS = ("etcd", "kube-apiserver", "kwok", "kubectl", "helm")
LOOKING = ("kubectl -n film get", "kubectl -n evenhand get")
FORWARDING = {2}
KUBECTL = """\
#!{python}
import os, subprocess, sys, time

if "port-forward" in sys.argv:
    words = sys.argv[1:]
    service, ports = words[words.index("port-forward") + 1 :]
    path = "jsonpath={{.spec.ports[0].port}}"
    asked = ["{kubectl}", *words[: words.index("port-forward")], "get", service, "-o", path]
    port = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    own, _, its = ports.partition(":")
    assert its == port, (its, port)
    print("Forwarding from 127.0.0.1:" + own + " -> 8080", flush=True)
    time.sleep(3600)
os.execv("{kubectl}", ["kubectl", *sys.argv[1:]])
"""
"""The program `kubectl`, in which a forwarded port is a line: there is no kubelet that could forward it."""
_AGE = re.compile(r"\b\d+m\d+s\b|\b\d+[sm]\b")


@pytest.fixture
def kube(tmp_path: Path) -> Iterator[Kube]:
    """Provide an API server of this test, because the page creates and removes the namespace `evenhand`."""
    missing = provision.missing(PROGRAMS)
    if missing:
        absent(f"not built: {', '.join(missing)} (`make real` builds them)")
    if browser.find() is None:
        absent("Chromium is not here (`make real` installs it)")
    cluster = Cluster(tmp_path / "cluster")
    cluster.start()
    try:
        with closing(Kube(cluster.kubeconfig(), cluster)) as kube:
            kube.create(*objects.nodes(2, "node", cpu="4"))
            yield kube
    finally:
        cluster.stop()


def _alike(text: str) -> str:
    """Return a text in normal form: without ages, too."""
    return _AGE.sub("<age>", normal(text, {}))


@pytest.fixture
def shells(kube: Kube, tmp_path: Path) -> Iterator[Terminals]:
    """Provide the terminals of the reader, in the folder of a checkout."""
    programs, checkout = tmp_path / "bin", tmp_path / "checkout"
    programs.mkdir()
    checkout.mkdir()
    (checkout / "deploy").symlink_to(ROOT / "deploy")
    kubectl = programs / "kubectl"
    kubectl.write_text(KUBECTL.format(python=sys.executable, kubectl=provision.program("kubectl")))
    kubectl.chmod(0o755)
    given = environment()
    path = os.pathsep.join((str(programs), provision.search_path(), given["PATH"]))
    given |= {"PATH": path, "KUBECONFIG": str(kube.kubeconfig), "TERM": "dumb", "TZ": "UTC"}
    given |= {f"HELM_{name}_HOME": str(tmp_path / "helm") for name in ("CACHE", "CONFIG", "DATA")}
    made = Terminals(checkout, given, _alike, LOOKING, FORWARDING)
    try:
        yield made
    finally:
        made.close()


def test_a_stranger_installs_it_and_sees_a_lowered_max_enforced(
    kube: Kube, shells: Terminals, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        controllers = Controllers(kube, tmp_path)
        stack.callback(controllers.installed.close)
        stack.enter_context(looking(controllers.look))
        opened = stack.enter_context(sync_playwright()).chromium.launch(
            executable_path=browser.find(), args=["--no-sandbox"]
        )
        stack.callback(opened.close)
        page = opened.new_page()
        reader: acts.Reader | None = None
        for block in blocks(PAGE.read_text("utf-8")):
            if block.info.startswith(terminals.KIND):
                for step in steps_of(block):
                    shells.follow(step, PAGE.name)
            elif block.info == acts.KIND:
                reader = reader or acts.Reader(page, ADDRESS, controllers.installed.console)
                for act in acts.acts_of(block):
                    _follow(reader, act, page.locator("#view").inner_text)
    assert reader is not None
    assert kube.find("Namespace", "evenhand") is None
    assert kube.find("Namespace", "film") is None
    assert kube.find("ClusterRole", "evenhand-shim") is None


def _follow(reader: acts.Reader, act: acts.Act, shown: Callable[[], str]) -> None:
    try:
        reader.follow(act)
    except Exception as error:
        raise AssertionError(f"{PAGE.name}:{act.line} {act.verb} {act.rest}\n{shown()}") from error
