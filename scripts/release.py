"""The files of a release, made from a commit: wheel, sdist, chart, bill of materials, checksums.

    python -m scripts.release --out dist [--tag v1.2.3]

Nothing is fetched: the tools are those of `make venv` and `make real`. The files are made from the commit and not from
the checkout, so that a changed file is not released. `.github/workflows/release.yml` runs this program and then does what
needs a network: image, provenance, signatures, upload.
"""

import argparse
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from uuid import NAMESPACE_URL, uuid5

import yaml
from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

from scripts.real import provision

ROOT: Final = Path(__file__).parents[1]
NAME: Final = "evenhand"
SUMS: Final = "SHA256SUMS"
PIN: Final = re.compile(
    r"^([\w.-]+)==([\w.]+)[^\n]*\\\n((?:    --hash=\S+(?: \\)?\n?)+)", re.MULTILINE
)
"""A package of requirements.txt: its name, its version, and the lines of its hashes."""


class ReleaseError(Exception):
    """A commit that cannot be released; the message says why and what to do."""


def check(source: Path, tag: str) -> str:
    """Return the version of a commit. Raises ReleaseError when its files or the tag name another one."""
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    version: str = project["version"]
    if tag and tag != f"v{version}":
        raise ReleaseError(f"the tag is {tag}, and pyproject.toml says {version}: tag v{version}")
    if tag and f"## [{version}]" not in (source / "CHANGELOG.md").read_text():
        raise ReleaseError(f"CHANGELOG.md has no section [{version}]: rename Unreleased")
    chart = yaml.safe_load((source / "deploy" / "chart" / "Chart.yaml").read_text())
    if not chart["version"] == chart["appVersion"] == version:
        raise ReleaseError(f"deploy/chart/Chart.yaml does not say {version}: set both versions")
    return version


def export(commit: str, folder: Path) -> None:
    """Write the files of a commit into a folder."""
    packed = subprocess.run(  # noqa: S603 -- our words.
        ["git", "archive", "--format=tar", commit],  # noqa: S607
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")


def committed_at(commit: str) -> int:
    """Return when a commit was made, in Unix seconds."""
    command = ["git", "show", "--no-patch", "--format=%ct", commit]
    said = subprocess.run(command, cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE).stdout  # noqa: S603
    return int(said)


def packages(source: Path, out: Path, made_at: int) -> None:
    """Build wheel and sdist; the same commit gives the same bytes."""
    programs = Path(sys.executable).parent
    path = os.pathsep.join(
        (str(programs), os.environ["PATH"])
    )  # protoc looks for its plugin there.
    subprocess.run(  # noqa: S603 -- our words.
        [sys.executable, "-m", "hatchling", "build", "--directory", str(out)],
        cwd=source,
        env=os.environ | {"PATH": path, "SOURCE_DATE_EPOCH": str(made_at)},
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def chart(source: Path, out: Path) -> None:
    """Pack the chart. Raises ReleaseError without helm."""
    helm = provision.program("helm") or shutil.which("helm")
    if helm is None:
        raise ReleaseError("helm is not here: run make real, or install helm")
    folder = str(source / "deploy" / "chart")
    for words in (("lint", "--strict", folder), ("package", folder, "--destination", str(out))):
        subprocess.run([str(helm), *words], check=True, stdout=subprocess.DEVNULL)  # noqa: S603


def materials(source: Path, out: Path, version: str, made_at: int) -> None:
    """Write the bill of materials: the Python packages of the image, with hashes and licences (CycloneDX)."""
    bom = Bom(serial_number=uuid5(NAMESPACE_URL, f"{NAME}-{version}-{made_at}"))
    bom.metadata.timestamp = datetime.fromtimestamp(made_at, UTC)
    own = Component(
        name=NAME,
        version=version,
        type=ComponentType.APPLICATION,
        purl=PackageURL("pypi", name=NAME, version=version),
        licenses=[LicenseFactory().make_from_string("Apache-2.0")],
    )
    own.bom_ref.value = NAME
    bom.metadata.component = own
    found = list(_components((source / "requirements.txt").read_text()))
    for one in found:
        bom.components.add(one)
    bom.register_dependency(own, found)
    outputter = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6)
    text = outputter.output_as_string(indent=2)
    (out / f"{NAME}-{version}.cdx.json").write_text(text + "\n")


def _components(pins: str) -> Iterator[Component]:
    for name, version, hashes in PIN.findall(pins):
        purl = PackageURL("pypi", name=name, version=version)
        digests = re.findall(r"sha256:([0-9a-f]{64})", hashes)
        yield Component(
            name=name,
            version=version,
            type=ComponentType.LIBRARY,
            purl=purl,
            bom_ref=str(purl),
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=one) for one in digests],
            licenses=[LicenseFactory().make_from_string(one) for one in _licence(name)],
        )


def _licence(name: str) -> list[str]:
    """Return the licence of an installed package, as the package names it; none when it is not installed here."""
    try:
        found = metadata.metadata(name).json
    except metadata.PackageNotFoundError:
        return []
    named = str(found.get("license_expression") or found.get("license") or "")
    return [named] if named and "\n" not in named else []


def sums(out: Path) -> None:
    """Write the checksums of all files of a release, as `sha256sum --check` reads them."""
    files = sorted(path for path in out.iterdir() if path.name != SUMS)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (out / SUMS).write_text("".join(lines))


def release(out: Path, tag: str, commit: str) -> None:
    """Make all files of a release in an empty folder. Raises ReleaseError."""
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        raise ReleaseError(f"{out} is not empty: remove it, or name another folder with --out")
    made_at = committed_at(commit)
    with TemporaryDirectory() as temporary:
        source = Path(temporary)
        export(commit, source)
        version = check(source, tag)
        packages(source, out.absolute(), made_at)
        chart(source, out)
        materials(source, out, version, made_at)
    sums(out)


def main() -> None:
    """Make the files and print their checksums."""
    parser = argparse.ArgumentParser(description="Make the files of a release.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--tag", default="", help="the tag that must name the version")
    parser.add_argument("--commit", default="HEAD")
    given = parser.parse_args()
    try:
        release(given.out, given.tag, given.commit)
    except ReleaseError as error:
        raise SystemExit(f"release: {error}") from error
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"release: failed: {' '.join(map(str, error.cmd))}") from error
    sys.stdout.write((given.out / SUMS).read_text())


if __name__ == "__main__":
    main()
