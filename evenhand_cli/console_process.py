"""The process of the web console that `serve` and `demo` start in addition to a core (`--console`).

The console runs in a separate process, so that open pages take no time from the decisions of the core.
"""

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from ipaddress import ip_address
from typing import Annotated, Final

import typer

from evenhand_cli.connect import checked_address
from evenhand_cli.faults import ExitCode, Fault

INSTALL: Final = "pip install 'evenhand[console]'"
EXTRA: Final = ("jinja2", "starlette", "uvicorn")
END_S: Final = 10.0
"""Seconds that the console may take to end."""
_MODULE: Final = "evenhand_console.beside"

ConsoleListen = Annotated[
    str,
    typer.Option(
        "--console",
        metavar="HOST:PORT",
        help="Also serve the web console on this address of this machine; port 0 means any free port.",
    ),
]


def check_console_extra(where: str) -> None:
    """Raise Fault where the packages of the console are not installed."""
    missing = [name for name in EXTRA if find_spec(name) is None]
    if missing:
        raise Fault(
            f"this installation has no web console: there is no module {missing[0]}",
            where=where,
            advice=f"install the extra: {INSTALL}",
        )


@contextmanager
def listening(listen: str, option: str) -> Iterator[socket.socket]:
    """Yield a socket that listens on HOST:PORT. Raises Fault, which names the option, if the address cannot be used."""
    host, _, port = checked_address(listen, option).rpartition(":")
    bare = host.strip("[]")
    family = socket.AF_INET6 if ":" in bare else socket.AF_INET
    try:
        sock = socket.create_server((bare, int(port)), family=family)
    except (OSError, OverflowError) as error:
        raise Fault(
            f"cannot listen on {listen}: {error}",
            where=option,
            advice="choose another HOST:PORT; port 0 takes any that is free",
        ) from error
    with sock:
        yield sock


def address_of(sock: socket.socket) -> str:
    """Return HOST:PORT of a socket that listens."""
    host, port = sock.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(listen: str) -> bool:
    """Return whether only this machine reaches an address HOST:PORT."""
    host = listen.rpartition(":")[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextmanager
def perhaps_beside(listen: str) -> Iterator[tuple[str, Callable[[str], None]]]:
    """Yield the URL and the function of `console_beside`.

    If `listen` is empty, yield an empty URL, and a function that starts nothing. Raises Fault as `console_beside` does.
    """
    if listen:
        with console_beside(listen) as found:
            yield found
    else:
        yield "", lambda _: None


@contextmanager
def console_beside(listen: str) -> Iterator[tuple[str, Callable[[str], None]]]:
    """Yield the URL of a console, and a function that starts the console's process. The function gets the address of the core.

    The process ends with the block. Raises Fault if the packages of the console are not installed, or if the address
    cannot be used.
    """
    check_console_extra("--console")
    if not is_loopback(checked_address(listen, "--console")):
        raise Fault(
            f"{listen} can be reached from other machines",
            where="--console",
            advice="run `evenhand console --origin URL` for that",
            code=ExitCode.USAGE,
        )
    started: list[subprocess.Popen[bytes]] = []
    with listening(listen, "--console") as sock:

        def start(core: str) -> None:
            started.append(_started(sock, core))

        try:
            yield f"http://{address_of(sock)}", start
        finally:
            for process in started:
                _end(process)


def _started(sock: socket.socket, core: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", _MODULE]
    core = _reached(core)
    number = sock.fileno()
    process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[number])  # noqa: S603 -- our words
    assert process.stdin is not None
    process.stdin.write(json.dumps({"socket": number, "core": core}).encode() + b"\n")
    process.stdin.flush()
    return process


def _reached(core: str) -> str:
    """Return an address at which this machine reaches a core.

    The address differs from `core` only if `core` stands for all addresses of the machine (`0.0.0.0`).
    """
    host, _, port = core.rpartition(":")
    with suppress(ValueError):
        given = ip_address(host.strip("[]"))
        if given.is_unspecified:
            return f"[::1]:{port}" if given.version == 6 else f"127.0.0.1:{port}"  # noqa: PLR2004
    return core


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the console's process by closing its standard input.

    If the present process, which started the console, ends by itself, that standard input is closed, too.
    """
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.close()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
