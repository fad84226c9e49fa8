"""The pinned versions are within the ranges of pyproject.toml; those of Kubernetes fit together and are documented."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from scripts.real import provision

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())


def pins(name: str) -> dict[str, str]:
    text = (ROOT / name).read_text()
    return dict(re.findall(r"^([\w.-]+)==([\w.!]+)", text, re.MULTILINE))


PINS = pins("requirements-dev.txt")
WANTED = [
    *SETTINGS["project"]["dependencies"],
    *SETTINGS["project"]["optional-dependencies"]["kubernetes"],
    *SETTINGS["dependency-groups"]["dev"],
    *SETTINGS["build-system"]["requires"],
]


@pytest.mark.parametrize("wanted", sorted(set(WANTED)))
def test_a_requirement_is_pinned_within_its_bounds(wanted: str) -> None:
    requirement = Requirement(wanted)
    assert requirement.specifier.contains(PINS[requirement.name.lower()], prereleases=True)


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-build.txt"])
def test_the_image_has_the_versions_that_were_tested(name: str) -> None:
    assert pins(name)
    assert pins(name).items() <= PINS.items()


def test_the_client_in_python_has_the_versions_that_were_tested() -> None:
    example = pins("examples/clients/python/requirements.txt")
    assert example == {name: PINS[name] for name in ("grpcio", "grpcio-tools", "protobuf")}


def test_the_image_has_every_requirement() -> None:
    project = SETTINGS["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["kubernetes"]]
    assert {Requirement(one).name.lower() for one in wanted} <= pins("requirements.txt").keys()
    build = {Requirement(one).name.lower() for one in SETTINGS["build-system"]["requires"]}
    assert build <= pins("requirements-build.txt").keys()


@pytest.mark.parametrize("minor", provision.releases())
def test_the_libraries_of_kubernetes_are_of_the_same_release(minor: str) -> None:
    folders = [provision.TOOLS / minor, provision.TOOLS]
    module = next(folder for folder in folders if (folder / "go.mod").exists())
    release = provision.releases()[minor]
    replaced = re.findall(
        r"^\t(k8s\.io/\S+) => (\S+) v(\S+)$", (module / "go.mod").read_text(), re.MULTILINE
    )
    assert len(replaced) > 20
    assert {(name, version) for _, name, version in replaced} == {
        (name, release.replace("1.", "0.", 1)) for name, _, _ in replaced
    }
    assert f"k8s.io/kubernetes v{release} h1:" in (module / "go.sum").read_text()


@pytest.mark.parametrize("page", ["docs/compatibility.md", "docs/kubernetes.md"])
def test_a_page_names_the_tested_releases_of_kubernetes(page: str) -> None:
    text = (ROOT / page).read_text()
    assert [one for one in provision.releases().values() if one not in text] == []
