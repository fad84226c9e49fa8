"""The pinned versions are within the ranges of pyproject.toml."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())


def pins(name: str) -> dict[str, str]:
    text = (ROOT / name).read_text()
    return dict(re.findall(r"^([\w.-]+)==([\w.]+)", text, re.MULTILINE))


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
