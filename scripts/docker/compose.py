"""The compose program of this machine: the plugin of the docker client, or the older separate program."""

import subprocess

from scripts.docker import engine

ANSWER_S = 20.0


def command() -> tuple[str, ...] | None:
    """Return the command that runs compose, preferring the plugin.

    Return None when neither is installed.
    """
    if engine.has("docker") and _answers(engine.program("docker"), "compose"):
        return ("docker", "compose")
    return ("docker-compose",) if engine.has("docker-compose") else None


def builder() -> dict[str, str]:
    """Return the environment variables of a build: without buildx, they choose the client's older builder."""
    if engine.has("docker") and _answers(engine.program("docker"), "buildx"):
        return {}
    return {"DOCKER_BUILDKIT": "0", "COMPOSE_DOCKER_CLI_BUILD": "0"}


def _answers(docker: str, plugin: str) -> bool:
    done = subprocess.run(  # noqa: S603 -- our words.
        [docker, plugin, "version"], capture_output=True, timeout=ANSWER_S, check=False
    )
    return done.returncode == 0
