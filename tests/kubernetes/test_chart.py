"""The Helm chart in deploy/chart on the API server: accepted, installed, upgraded, rolled back and removed.

kubeconform and kubernetes-validate compare objects with published schemas. The API server does more: it refuses unknown
fields, too (server-side apply), and applies its own rules and admission. For this reason, each way to install is a dry
run on the API server here.
"""

import base64
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509

from scripts.real import provision
from tests.chart.helm import CHART, helm, nested, rendered
from tests.chart.matrix import MATRIX
from tests.kubernetes.admission import OLDER
from tests.kubernetes.conftest import DEPLOY
from tests.kubernetes.controllers import certified
from tests.kubernetes.kube import Kube

ELSEWHERE = ("cert-manager.io/", "monitoring.coreos.com/")
"""Groups of kinds that the API server of the tests does not know."""
NAMES = {"core", "shim", "operator", "follower", "metrics"}


@pytest.mark.parametrize("way", MATRIX)
def test_the_api_server_takes_it_without_a_warning(kube: Kube, way: str) -> None:
    """The namespace makes the API server warn of pods that violate the profile `restricted`."""
    said = kube.kubectl("apply", "--server-side", "-f", str(DEPLOY / "namespace.yaml"))
    assert said.returncode == 0, said.stderr
    version = {"admissionPolicies.mutatingApiVersion": OLDER.get(provision.kubernetes(), "v1")}
    known = [
        it for it in rendered(MATRIX[way] | version) if not it["apiVersion"].startswith(ELSEWHERE)
    ]
    apply = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-")
    said = kube.kubectl(*apply, given=yaml.safe_dump_all(known))
    assert (said.returncode, said.stderr) == (0, "")


class Release:
    """A release of the chart in a namespace of its own, with a prefix of its own."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self.kube, self.namespace = kube, namespace
        self.values: dict[str, Any] = {"fullnameOverride": namespace[-20:].strip("-")}

    def helm(self, *words: str, **values: object) -> str:
        """Run helm for this release, and return its output. Values replace dots by two underscores."""
        paths = {path.replace("__", "."): value for path, value in values.items()}
        given = json.dumps(nested(self.values | paths))
        reach = (f"--namespace={self.namespace}", f"--kubeconfig={self.kube.kubeconfig}")
        files = ("--values=-",) if words[0] in {"install", "upgrade"} else ()
        said = helm(*words, *reach, *files, given=given)
        assert said.returncode == 0, said.stderr
        return said.stdout

    def name(self, part: str) -> str:
        """Return the name of a part, such as `core`."""
        return f"{self.values['fullnameOverride']}-{part}"

    def has(self, kind: str, part: str) -> bool:
        """Return whether an object exists."""
        said = self.kube.kubectl("get", kind, self.name(part), f"--namespace={self.namespace}")
        return said.returncode == 0

    def files(self, part: str) -> dict[str, bytes]:
        """Return the files of a certificate's Secret."""
        secret = self.kube.find("Secret", self.name(f"{part}-tls"), self.namespace)
        assert secret is not None
        return {key: base64.b64decode(text) for key, text in secret["data"].items()}

    def certify(self, folder: Path, *more: str) -> list[str]:
        """Run the program of the certificates' job. Return the Secrets that the program wrote."""
        return certified(self.kube, self.namespace, folder, *more)


@pytest.fixture
def release(kube: Kube, namespace: str) -> Iterator[Release]:
    """Provide a release that is not installed yet; afterwards its objects of the whole cluster are deleted."""
    release = Release(kube, namespace)
    yield release
    for kind in ("ClusterRole", "ClusterRoleBinding"):
        kube.delete(kind, release.name("shim"))


def test_install_upgrade_roll_back_and_uninstall(release: Release) -> None:
    told = release.helm("install", "evenhand", str(CHART))
    assert f"kubectl -n {release.namespace} exec deploy/{release.name('core')}" in told
    assert release.has("deployment", "core")
    assert release.has("deployment", "shim")
    assert release.has("cronjob", "certificates")
    assert not release.has("service", "cores")
    release.helm("upgrade", "evenhand", str(CHART), core__replicas=2, shim__replicas=2)
    assert release.has("statefulset", "core")
    assert release.has("service", "cores")
    assert release.has("poddisruptionbudget", "shim")
    assert not release.has("deployment", "core")
    release.helm("rollback", "evenhand", "1")
    assert release.has("deployment", "core")
    assert not release.has("statefulset", "core")
    release.helm("uninstall", "evenhand")
    assert not release.has("deployment", "core")
    assert not release.has("clusterrole", "shim")


def test_an_upgrade_with_another_program_replaces_the_job(release: Release) -> None:
    release.helm("install", "evenhand", str(CHART))
    release.helm("upgrade", "evenhand", str(CHART), tls__job__days=60)
    said = release.kube.kubectl("get", "jobs", "-o", "json", f"--namespace={release.namespace}")
    [job] = json.loads(said.stdout)["items"]
    [container] = job["spec"]["template"]["spec"]["containers"]
    assert "--days=60" in container["args"]


def test_the_job_makes_certificates_with_which_core_and_clients_meet(
    release: Release, tmp_path: Path
) -> None:
    """The account of the job may read and write the Secrets of the chart, and no others."""
    release.helm("install", "evenhand", str(CHART), tls__extraNames=["core.example"])
    written = release.certify(tmp_path)
    assert set(written) == {release.name(f"{name}-tls") for name in NAMES} | {
        release.name("authority")
    }
    assert "tls.key" in release.files("core")
    for client in NAMES - {"core"}:
        names = meet(release, client, f"{release.name('core')}.{release.namespace}.svc", tmp_path)
        assert names == {release.name(client)}
    assert meet(release, "shim", "core.example", tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError):
        meet(release, "shim", "elsewhere.example", tmp_path)
    account = f"system:serviceaccount:{release.namespace}:{release.name('certificates')}"
    for verb, thing in (("get", "secrets/other"), ("list", "secrets"), ("get", "configmaps")):
        may = ("auth", "can-i", verb, thing, f"--as={account}", f"--namespace={release.namespace}")
        assert release.kube.kubectl(*may).returncode == 1, (verb, thing)


def test_the_job_renews_what_ends_and_what_has_other_names_and_keeps_the_rest(
    release: Release, tmp_path: Path
) -> None:
    release.helm("install", "evenhand", str(CHART))
    assert release.certify(tmp_path)
    before = release.files("shim")
    assert release.certify(tmp_path) == []
    release.helm("upgrade", "evenhand", str(CHART), tls__extraNames=["core.example"])
    assert release.certify(tmp_path) == [release.name("core-tls")]
    renewed = release.certify(tmp_path, "--renew-before-days=90")
    assert set(renewed) == {release.name(f"{name}-tls") for name in NAMES}
    after = release.files("shim")
    assert after["tls.crt"] != before["tls.crt"]
    assert after["ca.crt"] == before["ca.crt"], "the authority stays"


def meet(release: Release, client: str, host: str, folder: Path) -> set[str]:
    """Connect a client to a core in memory, each with its certificate. Return the names that the core sees in the client's certificate.

    Raises SSLCertVerificationError when the core has another name.
    """
    ends = []
    for part, purpose in (("core", ssl.PROTOCOL_TLS_SERVER), (client, ssl.PROTOCOL_TLS_CLIENT)):
        context = ssl.SSLContext(purpose)
        context.verify_mode = ssl.CERT_REQUIRED
        for name, text in release.files(part).items():
            (folder / name).write_bytes(text)
        context.load_verify_locations(folder / "ca.crt")
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        ends.append(context)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = ends[0].wrap_bio(up, down, server_side=True)
    visitor = ends[1].wrap_bio(down, up, server_hostname=host)
    for end in (visitor, server, visitor, server):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    seen = server.getpeercert(binary_form=True)
    assert seen is not None
    certificate = x509.load_der_x509_certificate(seen)
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return set(found.get_values_for_type(x509.DNSName))
