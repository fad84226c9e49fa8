"""A Docker engine, the image and the stack for the tests of this folder.

The engine is the one of DOCKER_HOST, the one that the docker client finds, or a private one that is started for the
tests and stopped after them. Without an engine the tests are skipped or, with REQUIRE_REAL=1, fail; `make real`
provides an engine.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from scripts.docker import base_image, compose
from scripts.docker.engine import EngineError, borrowed
from tests.compose.docker import BUILD_SECONDS_MAX, IMAGE, Docker, Stack, environment
from tests.real.needs import absent

LOOKS_MAX = 300
LOOK_S = 0.2


@pytest.fixture(scope="session")
def docker() -> Iterator[Docker]:
    """Provide a Docker engine that answers."""
    try:
        engine = borrowed()
        found = engine.__enter__()
    except EngineError as error:
        why = " ".join(str(error).split())
        absent(f"there is no Docker engine: {why} (`make real` provides one)")
    try:
        yield Docker(found, environment(found))
    finally:
        engine.__exit__(None, None, None)


@pytest.fixture(scope="session")
def image(docker: Docker) -> str:
    """Provide the name of the image, built from this checkout."""
    if compose.command() is None:
        absent("docker compose is not here (`make real` provides it)")
    if base_image.environment(docker.engine) and not base_image.is_loaded(docker.engine):
        if not base_image.archive().exists():
            absent("there is no base image (`make real` makes it)")
        base_image.load(docker.engine)
    Stack(docker, "evenhand-build").said("build", "core", seconds=BUILD_SECONDS_MAX)
    return IMAGE


@pytest.fixture(scope="module")
def stack(docker: Docker, image: str) -> Iterator[Stack]:
    """Start the local stack and provide it once it is healthy."""
    assert image
    with started(docker, ["shim"]) as stack:
        yield stack


@contextmanager
def started(docker: Docker, services: Sequence[str], *options: str) -> Iterator[Stack]:
    """Start the local stack with options of compose, and provide it once these services are healthy."""
    stack = Stack(docker, f"evenhand-test-{os.urandom(3).hex()}")
    try:
        stack.said(*options, "up", "--detach", "--no-build")
        awaited(lambda: all(map(stack.is_healthy, services)))
        yield stack
    finally:
        stack.run(*options, "down", "--volumes")


def awaited(question: Callable[[], bool]) -> None:
    """Poll until the answer is true; the number of polls is limited."""
    for _ in range(LOOKS_MAX):
        if question():
            return
        time.sleep(LOOK_S)  # The pause between two polls, whose number is limited.
    raise AssertionError("it did not become true")
