"""The Docker engine that the tests use: an engine of this machine, or a private engine of this project.

DOCKER_HOST takes precedence, then the engine that the docker client finds by itself. When neither answers, a private engine is
started as root. The private engine has its own socket, and its state is below the cache. The private engine changes no firewall
rule, and publishes ports only on the loopback interface. Its containers reach each other, but no other network, because it
does not masquerade addresses. Builds therefore use the network of the host.
"""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

START_LOOKS = 300
STOP_LOOKS = 300
LOOK_S = 0.1
ANSWER_S = 10.0
LOG_LINES = 15
IN_BACKGROUND = '"$@" >>"$0" 2>&1 & echo $!'
PORTS_ON_LOOPBACK = ("--ip=127.0.0.1", "--userland-proxy=true")
NO_FIREWALL = ("--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false")


class EngineError(Exception):
    """The error that an engine is missing and cannot be started.

    The message says why and what to do.
    """


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that answers; `host` is its DOCKER_HOST, empty when the client finds the engine by itself."""

    host: str
    version: str
    private: bool = False

    def environment(self) -> dict[str, str]:
        """Return the environment variables that a client of this engine needs."""
        found = {"DOCKER_HOST": self.host} if self.host else {}
        if self.private:
            # Without masquerading, only the host's network lets a build reach a package registry.
            found["BUILD_NETWORK"] = "host"
        return found


def cache() -> Path:
    """Return the folder for this project's files outside the checkout."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "evenhand"


def state() -> Path:
    """Return the folder of the private engine."""
    return cache() / "docker"


def find() -> Engine | None:
    """Return the engine that answers, None without one. Raise EngineError when DOCKER_HOST is set and does not answer."""
    given = os.environ.get("DOCKER_HOST", "")
    if given:
        version = _version(given)
        if not version:
            raise EngineError(
                f"DOCKER_HOST is {given}, and no Docker engine answers there.\n"
                "Start it, or unset DOCKER_HOST so that another one is looked for."
            )
        return Engine(given, version)
    if version := _version(""):
        return Engine("", version)
    version = _version(_own_host()) if _socket().exists() else ""
    return Engine(_own_host(), version, private=True) if version else None


def lacking() -> list[str]:
    """Return the names of missing programs that a private engine needs."""
    return [name for name in ("docker", "dockerd") if not has(name)]


def has(name: str) -> bool:
    """Return whether a program is installed."""
    return _which(name) is not None


def program(name: str) -> str:
    """Return the path of a program. Raise EngineError when it is not installed."""
    found = _which(name)
    if found is None:
        raise EngineError(f"the program {name} is not installed")
    return found


def start() -> Engine:
    """Start the private engine, which outlives this process. Raise EngineError with the end of its log if it does not start."""
    if missing := lacking():
        raise EngineError(f"not installed: {', '.join(missing)}")
    if os.geteuid() != 0:
        raise EngineError("a private Docker engine has to be started by root")
    folder = state()
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "dockerd.log"
    with log.open("wb") as output:
        done = subprocess.run(  # noqa: S603 -- our words.
            [program("sh"), "-c", IN_BACKGROUND, str(log), *_command(folder)],
            stdout=subprocess.PIPE, stderr=output, stdin=subprocess.DEVNULL, check=True, text=True,
            start_new_session=True,
        )  # fmt: skip
    return _awaited(int(done.stdout), log)


def stop() -> bool:
    """Stop the private engine by its pid and wait for its end; return False when there was none."""
    file = _pid_file()
    pid = _living_pid(file)
    _kept().unlink(missing_ok=True)
    if pid is None:
        file.unlink(missing_ok=True)
        return False
    os.kill(pid, signal.SIGTERM)
    for _ in range(STOP_LOOKS):
        if _living_pid(file) is None:
            return True
        time.sleep(LOOK_S)
    raise EngineError(f"dockerd (pid {pid}) does not end; its log: {state()}/dockerd.log")


@contextmanager
def borrowed(*, keep: bool = False) -> Iterator[Engine]:
    """Hold an engine while the block runs: one that answers, or a private engine.

    The last user of a private engine stops it. With `keep` the private engine runs until `stop` is called.
    Raise EngineError when there is no engine.
    """
    found = find()
    if found is not None and not found.private:
        yield found
        return
    with _in_use() as users:
        found = find() or _started(users)
        if keep:
            _kept().touch()
        try:
            yield found
        finally:
            if not _kept().exists() and _is_last(users):
                stop()


@contextmanager
def _in_use() -> Iterator[TextIO]:
    """Hold a lock that all users of the private engine share.

    The lock is exclusive while an engine is started or stopped.
    """
    state().mkdir(parents=True, exist_ok=True)
    with (state() / "users.lock").open("w") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        yield users


def _started(users: TextIO) -> Engine:
    """Start the private engine, unless another user has done that meanwhile.

    An engine that other users hold may not answer at once. Such an engine is asked again until it answers, or until its users
    have ended.
    """
    while not _is_last(users):
        fcntl.flock(users, fcntl.LOCK_SH)  # the lock was lost in the attempt to make it exclusive
        if (found := find()) is not None:
            return found
        time.sleep(LOOK_S)
    found = find() or start()
    fcntl.flock(users, fcntl.LOCK_SH)
    return found


def _is_last(users: TextIO) -> bool:
    """Make the lock exclusive and return True.

    When there are other users, return False. The attempt may lose the shared lock.
    """
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def client_version(environment: Mapping[str, str]) -> str:
    """Return the version of the engine that a client with this environment reaches.

    Return "" when none answers.
    """
    docker = _which("docker")
    if docker is None:
        return ""
    command = [docker, "version", "--format", "{{json .Server}}"]
    try:
        done = subprocess.run(  # noqa: S603 -- our words.
            command, env=os.environ | environment, capture_output=True, text=True,
            timeout=ANSWER_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return ""
    server = json.loads(done.stdout) if done.returncode == 0 and done.stdout.strip() else None
    return str(server["Version"]) if server else ""


def _version(host: str) -> str:
    return client_version({"DOCKER_HOST": host} if host else {})


def _command(folder: Path) -> list[str]:
    places = {"--data-root": "data", "--exec-root": "exec", "--pidfile": "dockerd.pid"}
    own = [f"{flag}={folder / name}" for flag, name in places.items()]
    return [program("dockerd"), f"--host={_own_host()}", *own, *PORTS_ON_LOOPBACK, *NO_FIREWALL]


def _awaited(pid: int, log: Path) -> Engine:
    for _ in range(START_LOOKS):
        version = _version(_own_host()) if _socket().exists() else ""
        if version:
            return Engine(_own_host(), version, private=True)
        if not _runs(pid):
            break
        time.sleep(LOOK_S)
    if _runs(pid):
        os.kill(pid, signal.SIGTERM)
    said = "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:])
    raise EngineError(f"dockerd did not start; the end of {log}:\n{said}")


def _runs(pid: int) -> bool:
    """Return whether the process runs.

    A process that has ended but was not reaped does not count.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _living_pid(file: Path) -> int | None:
    """Return the process id in a pid file if that process is a dockerd.

    Else return None.
    """
    try:
        pid = int(file.read_text())
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except (OSError, ValueError):
        return None
    return pid if name == "dockerd" else None


def _which(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/bin:/usr/sbin:/usr/local/bin")


def _socket() -> Path:
    return state() / "docker.sock"


def _own_host() -> str:
    return f"unix://{_socket()}"


def _pid_file() -> Path:
    return state() / "dockerd.pid"


def _kept() -> Path:
    """Return the path of a file that exists while the private engine is to continue after its users."""
    return state() / "kept"
