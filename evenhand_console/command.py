"""The command `evenhand console`: the web console of a core."""

import sys
from typing import Annotated
from urllib.parse import urlsplit

import typer

from evenhand_cli.combinations import refuse_without
from evenhand_cli.connect import FollowerOpener, opens_core
from evenhand_cli.console_process import address_of, check_console_extra, is_loopback, listening
from evenhand_cli.faults import ExitCode, Fault

DEFAULT_LISTEN = "127.0.0.1:8080"


@opens_core
def console(  # noqa: PLR0913, PLR0917 -- the options of a command
    opener: FollowerOpener,
    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="Address on which to listen; port 0 means any free port.",
        ),
    ] = DEFAULT_LISTEN,
    origin: Annotated[
        list[str] | None,
        typer.Option(
            "--origin",
            metavar="URL",
            help="Address by which browsers reach the console, such as https://evenhand.example; may be repeated. The address of"
            " --listen is always one.",
        ),
    ] = None,
    token_header: Annotated[
        str,
        typer.Option(
            "--token-header",
            metavar="NAME",
            help="Header in which a proxy passes the visitor's token. Trust it only if nobody reaches the console past the"
            " proxy.",
        ),
    ] = "",
    share_identity: Annotated[
        bool,
        typer.Option(
            "--share-identity",
            help="With --origin: visitors who have not logged in read with the console's own token or certificate. By default"
            " they are asked to log in.",
        ),
    ] = False,
    address_connections: Annotated[
        int,
        typer.Option(
            "--address-connections",
            min=0,
            metavar="N",
            help="Largest number of connections from one address; 0 means no limit. A page takes two. Behind a proxy all browsers"
            " have the address of the proxy: set the limit there.",
        ),
    ] = 0,
) -> None:
    """Serve the web console of a core until SIGTERM or Ctrl-C, and print its address.

    The token of each visitor goes to the core, which decides what the visitor may see. With --token-file or --tls-cert,
    visitors who have not logged in read with that identity. If --origin is given, they do so only with
    --share-identity.

    Examples:
        evenhand console
        evenhand console --core core-a:50051,core-b:50051 --listen 127.0.0.1:8080
        evenhand console --listen 0.0.0.0:8080 --origin https://evenhand.example

    """
    check_console_extra("evenhand console")
    origins = tuple(origin or ())
    for one in origins:
        _check_origin(one)
    _check_reachable(listen, origins)
    if not origins:
        refuse_without("--origin", share_identity=share_identity)
    from evenhand_console.bootstrap import ConsoleSettings, run  # noqa: PLC0415 -- needs the extra

    with listening(listen, "--listen") as sock:
        address = address_of(sock)
        sys.stdout.write(f"console on http://{address}\n")
        sys.stdout.flush()
        run(
            lambda token: opener(follower=True, token=token),
            sock,
            ConsoleSettings(address, origins, token_header, share_identity, address_connections),
        )


def _check_origin(text: str) -> None:
    parts = urlsplit(text)
    rest = (parts.path.rstrip("/"), parts.query, parts.fragment, parts.username or "")
    if parts.scheme not in {"http", "https"} or not parts.netloc or any(rest):
        raise Fault(
            f"`{text}` is not the address of a site",
            where="--origin",
            advice="write it as browsers do, without a path: https://evenhand.example",
            code=ExitCode.USAGE,
        )


def _check_reachable(listen: str, origins: tuple[str, ...]) -> None:
    """Raise Fault if other machines can reach the console, but no option names the address that they use."""
    if not is_loopback(listen) and not origins:
        raise Fault(
            f"{listen} can be reached from other machines",
            where="--listen",
            advice="put a proxy with TLS before it, and name the address that browsers use: --origin https://HOST",
            code=ExitCode.USAGE,
        )
