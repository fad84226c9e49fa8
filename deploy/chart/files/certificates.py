"""Make and renew the certificates of an installation, as Secrets of the pod's namespace.

The job of the chart runs this program in the image of Evenhand, which has lightkube and openssl. The key of the
authority is in the Secret `--authority`. A certificate is made if its Secret is missing, has other names or another
authority, or ends within `--renew-before-days`. Otherwise its Secret is not written. Keys are files in a temporary
folder until the API server has them.

    certificates.py --authority=NAME --days=90 --renew-before-days=30 --server=SECRET=NAME,... --client=SECRET=NAME,...
"""

import argparse
import base64
import ipaddress
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from lightkube import ApiError, Client, KubeConfig
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Secret

AUTHORITY_DAYS = 3650
DAY_S = 86_400
NOT_FOUND = 404
FIELD_MANAGER = "evenhand-certificates"
CRT, KEY, CA = "tls.crt", "tls.key", "ca.crt"

Files = Mapping[str, bytes]


def openssl(*words: str) -> subprocess.CompletedProcess[str]:
    """Run openssl. Raises CalledProcessError, after openssl has said why."""
    command = ["openssl", *words]
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE)  # noqa: S603


def new_key(path: Path) -> None:
    """Write a key on the curve P-256."""
    openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", str(path))


def new_authority(folder: Path) -> Files:
    """Return a new authority: its certificate and key."""
    key, certificate = folder / KEY, folder / CRT
    new_key(key)
    words = ["req", "-x509", "-new", "-key", str(key), "-sha256", "-days", str(AUTHORITY_DAYS)]
    words += ["-subj", "/CN=evenhand authority", "-out", str(certificate)]
    openssl(*words, "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    text = certificate.read_bytes()
    return {CRT: text, KEY: key.read_bytes(), CA: text}


def issue(folder: Path, authority: Files, names: list[str], use: str, days: int) -> Files:
    """Return a certificate for these names, its key, and the authority's certificate."""
    for name in (CRT, KEY):
        (folder / f"authority-{name}").write_bytes(authority[name])
    key, request, extensions = folder / KEY, folder / "request", folder / "extensions"
    new_key(key)
    openssl("req", "-new", "-key", str(key), "-subj", f"/CN={names[0]}", "-out", str(request))
    lines = [f"subjectAltName={alternative(names)}", "keyUsage=critical,digitalSignature"]
    lines += [f"extendedKeyUsage={use}", "basicConstraints=CA:FALSE"]
    extensions.write_text("\n".join(lines) + "\n")
    words = ["x509", "-req", "-in", str(request), "-sha256", "-days", str(days), "-CAcreateserial"]
    words += ["-CA", str(folder / f"authority-{CRT}"), "-CAkey", str(folder / f"authority-{KEY}")]
    openssl(*words, "-extfile", str(extensions), "-out", str(folder / CRT))
    return {
        CRT: (folder / CRT).read_bytes(),
        KEY: key.read_bytes(),
        CA: authority[CRT],
    }


def alternative(names: list[str]) -> str:
    """Return the subject alternative names as openssl reads them."""
    return ",".join(f"{'IP' if is_address(name) else 'DNS'}:{name}" for name in names)


def is_address(name: str) -> bool:
    """Return whether a name is an IP address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def one_form(name: str) -> str:
    """Return a name in the form that is compared: openssl writes an IPv6 address in full and in capital letters."""
    return str(ipaddress.ip_address(name)) if is_address(name) else name


def names_of(certificate: Path) -> set[str]:
    """Return the subject alternative names of a certificate."""
    said = openssl("x509", "-in", str(certificate), "-noout", "-ext", "subjectAltName").stdout
    line = said.splitlines()[-1]
    return {one_form(one.partition(":")[2].strip()) for one in line.split(",")}


def lasts(certificate: Path, days: int) -> bool:
    """Return whether a certificate is valid for more than this number of days."""
    command = ["openssl", "x509", "-in", str(certificate), "-noout", "-checkend", str(days * DAY_S)]
    done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)  # noqa: S603
    return done.returncode == 0


class Secrets:
    """The Secrets of one namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace

    def read(self, name: str) -> Files:
        """Return the files of a Secret; empty when it is missing."""
        try:
            found = self._client.get(Secret, name, namespace=self._namespace)
        except ApiError as error:
            if error.status.code == NOT_FOUND:
                return {}
            raise
        return {key: base64.b64decode(text) for key, text in (found.data or {}).items()}

    def write(self, name: str, files: Files) -> None:
        """Write the files of a Secret."""
        data = {key: base64.b64encode(text).decode() for key, text in files.items()}
        metadata = ObjectMeta(name=name, namespace=self._namespace)
        secret = Secret(metadata=metadata, type="kubernetes.io/tls", data=data)
        self._client.apply(secret, field_manager=FIELD_MANAGER, force=True)
        sys.stdout.write(f"{name}: written\n")


def is_valid(folder: Path, found: Files, authority: Files, names: list[str], days: int) -> bool:
    """Return whether the files of a Secret have these names and this authority, and last for these days."""
    if not found.get(KEY) or not found.get(CRT) or found.get(CA) != authority[CRT]:
        return False
    file = folder / "present"
    file.write_bytes(found[CRT])
    return names_of(file) == {one_form(name) for name in names} and lasts(file, days)


def kept_authority(secrets: Secrets, name: str, days: int) -> Files:
    """Return the authority, a new one when none is there or when it ends before a certificate would."""
    found = secrets.read(name)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if found.get(CRT) and found.get(KEY):
            (folder / "present").write_bytes(found[CRT])
            if lasts(folder / "present", days):
                return found
        made = new_authority(folder)
    secrets.write(name, made)
    return made


def main() -> None:
    """Make what is missing and renew what ends soon."""
    os.umask(0o077)
    parser = argparse.ArgumentParser(description="Make and renew certificates.")
    parser.add_argument("--authority", required=True)
    parser.add_argument("--days", type=int, required=True)
    parser.add_argument("--renew-before-days", type=int, required=True)
    parser.add_argument("--server", action="append", default=[], metavar="SECRET=NAME,...")
    parser.add_argument("--client", action="append", default=[], metavar="SECRET=NAME,...")
    given = parser.parse_args()
    client = Client(KubeConfig.from_env(), trust_env=False)
    secrets = Secrets(client, os.environ["NAMESPACE"])
    authority = kept_authority(secrets, given.authority, given.days)
    wanted = [(one, "serverAuth") for one in given.server]
    wanted += [(one, "clientAuth") for one in given.client]
    for entry, use in wanted:
        secret, _, listed = entry.partition("=")
        names = listed.split(",")
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            found = secrets.read(secret)
            if not is_valid(folder, found, authority, names, given.renew_before_days):
                secrets.write(secret, issue(folder, authority, names, use, given.days))


if __name__ == "__main__":
    main()
