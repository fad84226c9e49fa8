"""Docker and compose as a person runs them, with a separate engine in the environment."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.docker import base_image, compose
from scripts.docker.engine import Engine

ROOT = Path(__file__).parents[2]
IMAGE = "evenhand:test"
SECONDS_MAX = 120.0
BUILD_SECONDS_MAX = 900.0


@dataclass(frozen=True, slots=True)
class Docker:
    """An engine, and the environment that its clients need."""

    engine: Engine
    environment: Mapping[str, str]

    def run(self, *words: str, seconds: float = SECONDS_MAX) -> subprocess.CompletedProcess[str]:
        """Run a client to its end."""
        return subprocess.run(
            words, cwd=ROOT, env=dict(self.environment), capture_output=True, text=True,
            timeout=seconds, check=False,
        )  # fmt: skip

    def said(self, *words: str, seconds: float = SECONDS_MAX) -> str:
        """Return the output of a client after checking that its exit code is 0."""
        done = self.run(*words, seconds=seconds)
        assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
        return done.stdout

    def inspect(self, name: str) -> Any:
        """Return the engine's data on a container or an image."""
        (found,) = json.loads(self.said("docker", "inspect", name))
        return found


@dataclass(frozen=True, slots=True)
class Stack:
    """The local stack under its own project name."""

    docker: Docker
    project: str

    def run(self, *words: str, seconds: float = SECONDS_MAX) -> subprocess.CompletedProcess[str]:
        """Run compose to its end."""
        return self.docker.run(*self._compose(), *words, seconds=seconds)

    def said(self, *words: str, seconds: float = SECONDS_MAX) -> str:
        """Return the output of compose after checking that its exit code is 0."""
        return self.docker.said(*self._compose(), *words, seconds=seconds)

    def container(self, service: str) -> str:
        """Return the id of a service's container, running or not."""
        labels = {"project": self.project, "service": service}
        wanted = [f"label=com.docker.compose.{name}={value}" for name, value in labels.items()]
        filters = [word for one in wanted for word in ("--filter", one)]
        return self.docker.said("docker", "ps", "--all", "--quiet", *filters).strip()

    def inspect(self, service: str) -> Any:
        """Return the engine's data on a service's container."""
        return self.docker.inspect(self.container(service))

    def is_healthy(self, service: str) -> bool:
        """Return whether the service's health check succeeds."""
        return bool(self.inspect(service)["State"]["Health"]["Status"] == "healthy")

    def try_evenhand(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the command line inside the core's container."""
        return self.docker.run("docker", "exec", self.container("core"), "evenhand", *words)

    def evenhand(self, *words: str) -> Any:
        """Return the JSON output of the command line inside the core's container."""
        done = self.try_evenhand(*words, "--output", "json")
        assert done.returncode == 0, done.stderr or done.stdout
        return json.loads(done.stdout)

    def _compose(self) -> tuple[str, ...]:
        called = compose.command()
        assert called is not None
        return (*called, "--project-name", self.project)


def environment(engine: Engine) -> dict[str, str]:
    """Return the environment of every client: this engine, this image, and any free ports."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("COMPOSE_")}
    own = {"EVENHAND_IMAGE": IMAGE, "CORE_PORT": "0"}
    return plain | engine.environment() | base_image.environment(engine) | compose.builder() | own
