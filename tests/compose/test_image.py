"""The image: small, without build tools, and without privileges that it does not need."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.compose.docker import Docker

OWN_BYTES_MAX = 200 * 1024 * 1024
NO_RIGHTS = ("--read-only", "--network=none", "--cap-drop=ALL", "--security-opt=no-new-privileges")
JOB = Path(__file__).parents[2] / "deploy" / "chart" / "files" / "certificates.py"
NOT_THERE = ("gcc", "cc", "c++", "ld", "make", "protoc")


@pytest.fixture(scope="module")
def bare(image: str) -> tuple[str, ...]:
    """Provide the words before a command in a container without rights."""
    return ("docker", "run", "--rm", *NO_RIGHTS, image)


def test_it_is_no_more_than_python_and_what_runs(docker: Docker, image: str) -> None:
    found = docker.inspect(image)
    base = docker.inspect(docker.environment.get("BASE_IMAGE", "python:3.12-slim"))
    assert found["Size"] - base["Size"] < OWN_BYTES_MAX
    look = "import shutil, sys; print([name for name in sys.argv[1:] if shutil.which(name)])"
    said = docker.said(
        *("docker", "run", "--rm", "--entrypoint", "python", image, "-c", look, *NOT_THERE)
    )
    assert said.strip() == "[]"


def test_it_says_how_it_is_run(docker: Docker, image: str) -> None:
    config = docker.inspect(image)["Config"]
    assert config["User"] == "65532:65532"
    assert config["Entrypoint"] == ["evenhand"]
    assert config["Healthcheck"]["Test"][:4] == ["CMD", "evenhand", "health", "--core-only"]
    assert "50051/tcp" in config["ExposedPorts"]


def test_the_demonstration_runs_without_rights_files_or_network(
    docker: Docker, bare: tuple[str, ...]
) -> None:
    told = json.loads(docker.said(*bare, "demo", "--output", "json"))
    assert told["settled"] is True
    assert told["consistent"] is True
    assert told["pods"]["bound"] > 0


def test_it_runs_as_nobody(docker: Docker, image: str) -> None:
    look = "import os; print(os.getuid(), os.getgid(), os.access('/opt/evenhand', os.W_OK))"
    said = docker.said(
        *("docker", "run", "--rm", *NO_RIGHTS, "--entrypoint", "python", image, "-c", look)
    )
    assert said.split() == ["65532", "65532", "False"]


def test_an_open_port_needs_a_decision(docker: Docker, bare: tuple[str, ...]) -> None:
    done = docker.run(*bare)
    assert done.returncode == 2
    assert "--tls-cert" in done.stderr
    assert "--insecure" in done.stderr


def test_the_versions_are_those_that_were_pinned(docker: Docker, image: str) -> None:
    look = (
        "import importlib.metadata as m, json;"
        "print(json.dumps({d.name.lower(): d.version for d in m.distributions()}))"
    )
    said = docker.said(*("docker", "run", "--rm", "--entrypoint", "python", image, "-c", look))
    there: dict[str, Any] = json.loads(said)
    assert {"evenhand", "grpcio", "lightkube"} <= there.keys()
    assert there.keys().isdisjoint({"grpcio-tools", "mypy", "pytest", "hatchling"})


def test_it_has_what_the_job_of_the_chart_needs(docker: Docker, image: str) -> None:
    """The job makes certificates with openssl and lightkube of the image, in a folder that is in memory."""
    look = (
        "from pathlib import Path; names = {'__name__': 'job'}\n"
        f"exec({JOB.read_text()!r}, names)\n"
        "folder = Path('/tmp'); authority = names['new_authority'](folder)\n"
        "given = ['core', '127.0.0.1', 'fd00::0:1']\n"
        "made = names['issue'](folder, authority, given, 'serverAuth', 90)\n"
        "(folder / 'made').write_bytes(made['tls.crt'])\n"
        "print(sorted(names['names_of'](folder / 'made')))\n"
        "print([names['is_valid'](folder, made, authority, given, days) for days in (89, 90)])\n"
    )
    memory = ("--tmpfs", "/tmp:mode=1777")  # noqa: S108 -- within the container.
    said = docker.said(
        *("docker", "run", "--rm", *NO_RIGHTS, *memory, "--entrypoint", "python", image, "-c", look)
    )
    assert said.splitlines() == ["['127.0.0.1', 'core', 'fd00::1']", "[True, False]"]
