"""The base image for machines that cannot pull one: Debian with its Python, created by debootstrap.

The archive with the image's files is in the cache; its name depends on the recipe. Every engine loads the image from
this archive. The image trusts the certificates that this machine trusts, so that the Dockerfile need not name a mirror
of packages.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from scripts import children
from scripts.docker.engine import Engine, EngineError, cache, program

SUITE = "bookworm"
PACKAGES = ("ca-certificates", "python3", "python3-pip", "python3-venv")
LEFT_OUT = (
    "var/cache/apt",
    "var/lib/apt/lists",
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "var/log",
)
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
CHANGES = (
    f"ENV LANG=C.UTF-8 PIP_CERT={CERTIFICATES}",
    'CMD ["python3"]',
)
KEPT = "72h"
RECIPE = hashlib.sha256(repr((SUITE, PACKAGES, LEFT_OUT, CHANGES)).encode()).hexdigest()[:12]
IMAGE = f"evenhand/python-base:{RECIPE}"


def archive() -> Path:
    """Return the path of the archive with the image's files."""
    return cache() / "base" / f"{SUITE}-{RECIPE}.tar"


def is_wanted() -> bool:
    """Return whether the private engine builds on this image, which it does unless BASE_IMAGE names another one."""
    return not os.environ.get("BASE_IMAGE")


def environment(engine: Engine) -> dict[str, str]:
    """Return the environment variables for a build on this engine.

    Engines other than the private one can pull images.
    """
    return {"BASE_IMAGE": IMAGE} if engine.private and is_wanted() else {}


def is_loaded(engine: Engine) -> bool:
    """Return whether the engine has the image."""
    return _docker(engine, "image", "inspect", IMAGE).returncode == 0


def load(engine: Engine) -> None:
    """Import the image into the engine. Raise EngineError with the message of docker if that fails."""
    changes = [word for change in CHANGES for word in ("--change", change)]
    done = _docker(engine, "import", *changes, str(archive()), IMAGE)
    if done.returncode != 0:
        raise EngineError(f"the base image cannot be imported: {done.stderr.strip()}")


def tidy(engine: Engine) -> None:
    """Remove the layers of builds that were not repeated for days from a private engine."""
    if engine.private:
        _docker(engine, "image", "prune", "--force", "--filter", f"until={KEPT}")


def make() -> None:
    """Create the archive, which takes a minute. Raise EngineError when that fails."""
    if os.geteuid() != 0:
        raise EngineError("a base image is made by root, with debootstrap")
    debootstrap = program("debootstrap")
    archive().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive().parent) as folder:
        root = Path(folder) / "root"
        included = f"--include={','.join(PACKAGES)}"
        _run([debootstrap, "--variant=minbase", included, SUITE, str(root)])
        _prepare(root)
        half = Path(folder) / "base.tar"
        _run(["tar", "-C", str(root), "-cf", str(half), "."])
        half.replace(archive())


def _prepare(root: Path) -> None:
    """Add the files that a container image of Python is expected to have.

    Remove files that it does not need.
    """
    if CERTIFICATES.exists():
        shutil.copy(CERTIFICATES, root / CERTIFICATES.relative_to("/"))
    for mark in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
        mark.unlink()
    python = root / "usr/bin/python"
    if not python.exists():
        python.symlink_to("python3")
    for name in LEFT_OUT:
        for found in (root / name).glob("*"):
            is_folder = found.is_dir() and not found.is_symlink()
            shutil.rmtree(found) if is_folder else found.unlink()


def _docker(engine: Engine, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(  # noqa: S603 -- our words.
        [program("docker"), *words], env=os.environ | engine.environment(), capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def _run(command: list[str]) -> None:
    done = children.run(command)
    if done.returncode != 0:
        said = "\n".join(done.stdout.splitlines()[-15:])
        raise EngineError(f"failed: {' '.join(command)}\n{said}")
