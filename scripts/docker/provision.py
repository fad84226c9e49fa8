"""The installation of a Docker engine, docker-compose and a base image for the tests of tests/compose.

`make real` runs this module, and a user can run it. `python -m scripts.docker.provision` prints the environment that a client
needs. `... --keep` leaves a private engine running for that client, and `... --stop` ends this engine. When an
engine answers already, nothing is installed or started. A second run takes a second.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from scripts import children
from scripts.docker import base_image, compose, engine
from scripts.docker.engine import Engine, EngineError
from scripts.packages import InstallError, install

PACKAGES = {
    "dockerd": "docker.io",
    "docker-compose": "docker-compose",
    "debootstrap": "debootstrap",
}
"""The Debian package that contains each program; docker.io contains the client too."""
NOT_HERE = """not installed: {}; {}.
Install the packages {}
(or start Docker, or set DOCKER_HOST to an engine that you may use), and say it again.
Until then the tests of tests/compose are skipped."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Install and start what is missing and print what is available; exit with a message when that fails."""
    parser = argparse.ArgumentParser(
        description="A Docker engine for the tests and the local stack."
    )
    parser.add_argument("--keep", action="store_true", help="leave a private engine running")
    parser.add_argument("--stop", action="store_true", help="stop the private engine, do no more")
    options = parser.parse_args(arguments)
    children.listen()
    try:
        if options.stop:
            _say("stopped" if engine.stop() else "no private engine was running")
            return
        _provide(keep=options.keep)
    except EngineError as error:
        raise SystemExit(f"docker: {error}") from error


def _provide(*, keep: bool) -> None:
    found = engine.find()
    if found is None:
        _install(["dockerd"])
    if compose.command() is None:
        _install(["docker-compose"])
    # The installation may have started an engine as a service, which is used like any other.
    found = found or engine.find()
    if found is None or found.private:
        _make_base()
    with engine.borrowed(keep=keep) as borrowed:
        _load_base(borrowed)
        base_image.tidy(borrowed)
        _tell(borrowed, stays=keep or found is not None)


def _make_base() -> None:
    if base_image.is_wanted() and not base_image.archive().exists():
        _install(["debootstrap"])
        _say("making a base image with debootstrap (once; a minute or two) ...")
        base_image.make()


def _load_base(borrowed: Engine) -> None:
    if base_image.environment(borrowed) and not base_image.is_loaded(borrowed):
        _say(f"giving {base_image.IMAGE} to the engine ...")
        base_image.load(borrowed)


def _install(programs: Sequence[str]) -> None:
    """Install the packages of missing programs. Raise EngineError when this user may not install packages."""
    missing = [name for name in programs if not engine.has(name)]
    if not missing:
        return
    packages = [PACKAGES[name] for name in missing]
    why = "only root may install them" if engine.has("apt-get") else "there is no apt-get"
    if os.geteuid() != 0 or not engine.has("apt-get"):
        raise EngineError(NOT_HERE.format(", ".join(missing), why, " ".join(packages)))
    _say(f"installing {', '.join(packages)} (once; half a minute) ...")
    try:
        install(*packages)
    except InstallError as error:
        raise EngineError(str(error)) from error


def _tell(borrowed: Engine, *, stays: bool) -> None:
    whose = "a private one" if borrowed.private else "found"
    _say(
        f"docker: engine {borrowed.version}, {whose}; compose: {' '.join(compose.command() or ())}"
    )
    environment = borrowed.environment() | base_image.environment(borrowed)
    if stays and environment:
        _say("its clients need:")
        for name, value in environment.items():
            _say(f"  export {name}={value}")


def _say(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
