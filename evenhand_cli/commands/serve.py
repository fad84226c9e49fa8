"""The command `evenhand serve`: the core."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from evenhand_cli import terminal
from evenhand_cli.commands.config import problems_of
from evenhand_cli.config_maps import read_queues
from evenhand_cli.faults import ExitCode, Fault
from evenhand_cli.render import findings
from evenhand_cli.stopping import hangup_event, stop_event
from server.bootstrap import DEFAULT_LISTEN, Exit, ServeOptions
from server.bootstrap import serve as run_core
from server.config import load
from server.observe import logs
from server.rpc.access import Access

PANEL = "Who may reach it"
RECORDS = "What it writes down"

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="A queues.yaml, or a ConfigMap with one; without it the configuration of the first registration counts.",
    ),
]
Listen = Annotated[
    str, typer.Option("--listen", metavar="HOST:PORT", help="Where to listen; port 0: any free.")
]
Metrics = Annotated[
    str | None,
    typer.Option("--metrics", metavar="HOST:PORT", help="Serves Prometheus metrics there."),
]
Health = Annotated[
    str | None,
    typer.Option(
        "--health",
        metavar="HOST:PORT",
        help="Serves gRPC health alone there, without TLS: for Kubernetes' probes.",
    ),
]
DecisionLog = Annotated[
    Path | None,
    typer.Option(
        "--decision-log",
        metavar="FILE",
        help="Appends every decision of preemption and every configuration, each line chained to the one before it.",
        rich_help_panel=RECORDS,
    ),
]
Durable = Annotated[
    bool,
    typer.Option(
        "--durable",
        help="Lets no decision of preemption leave before the disk has it in the decision log; needs --decision-log.",
        rich_help_panel=RECORDS,
    ),
]
Trace = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        metavar="FILE",
        help="Writes everything that the core is given, for `evenhand replay`; an earlier trace becomes FILE.previous.",
        rich_help_panel=RECORDS,
    ),
]
StateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        metavar="DIR",
        help="Keeps the configuration in force there, for a core that is started again; without it beside the decision log.",
        rich_help_panel=RECORDS,
    ),
]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure",
        help="Allow an address that others can reach without TLS.",
        rich_help_panel=PANEL,
    ),
]
TlsCert = Annotated[
    Path | None,
    typer.Option("--tls-cert", metavar="FILE", help="Own certificate.", rich_help_panel=PANEL),
]
TlsKey = Annotated[
    Path | None,
    typer.Option("--tls-key", metavar="FILE", help="Its key.", rich_help_panel=PANEL),
]
TlsClientCa = Annotated[
    Path | None,
    typer.Option(
        "--tls-client-ca",
        metavar="FILE",
        help="Authority of the clients' certificates; a certificate is needed then.",
        rich_help_panel=PANEL,
    ),
]
Tokens = Annotated[
    Path | None,
    typer.Option(
        "--tokens", metavar="FILE", help="Which token has which role.", rich_help_panel=PANEL
    ),
]
Roles = Annotated[
    Path | None,
    typer.Option(
        "--roles",
        metavar="FILE",
        help="Which certificate's name has which role.",
        rich_help_panel=PANEL,
    ),
]

ADVICE = {
    Exit.NO_ADDRESS: "another process may have that port: see which, or choose another one"
    " (port 0 takes any that is free)",
    Exit.BAD_OPTIONS: "correct the option; `evenhand serve --help` lists them",
    Exit.CORE_FAILED: "restart it: clients tell it everything again; please report the log above",
}


def serve(
    config: ConfigFile = None,
    listen: Listen = DEFAULT_LISTEN,
    metrics: Metrics = None,
    health: Health = None,
    decision_log: DecisionLog = None,
    durable: Durable = False,
    trace: Trace = None,
    state_dir: StateDir = None,
    insecure: Insecure = False,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_client_ca: TlsClientCa = None,
    tokens: Tokens = None,
    roles: Roles = None,
) -> None:
    """Run a core until SIGTERM or Ctrl-C; the log goes to the error stream.

    Certificates, roles and tokens are read again when their files change, and at SIGHUP.

    Examples:
        evenhand serve --config queues.yaml
        evenhand serve --metrics 127.0.0.1:9090 --decision-log decisions.jsonl
        evenhand serve --tls-cert core.crt --tls-key core.key --tokens tokens.yaml

    """
    text = None if config is None else check_config(config)
    access = Access(insecure, tls_cert, tls_key, tls_client_ca, tokens, roles)
    logs.configure(sys.stderr)
    told: list[str] = []
    files = (decision_log, trace, state_dir)
    options = ServeOptions(
        listen, config, metrics, access, health, *files, text, durable, own_process=True
    )
    code = asyncio.run(_serve(options, told))
    if code != Exit.DRAINED:
        raise serve_fault(code, listen, told)


def check_config(file: Path) -> str:
    """Return the text of a configuration file after printing its problems. Raises Fault when it cannot be used."""
    read = read_queues(file, "--config")
    configuration, found = load(read.text, read.source)
    if configuration is None:
        problems = read.placed(problems_of(found))
        terminal.notices().print(findings.problems(problems, read.source), soft_wrap=True)
        raise Fault(
            f"{file} cannot be used",
            where="--config",
            advice="correct the lines above; `evenhand config check FILE` checks it again",
        )
    return read.text


def serve_fault(code: int, listen: str, told: list[str]) -> Fault:
    """Return the fault of a core that did not start, or that ended with an error."""
    what = "\n".join(told) or "the core failed; its log says where"
    return Fault(
        what,
        where=f"--listen {listen}" if code == Exit.NO_ADDRESS else "",
        advice=ADVICE.get(Exit(code), ""),
        code=ExitCode.USAGE if code == Exit.BAD_OPTIONS else ExitCode.PROBLEM,
    )


async def _serve(options: ServeOptions, told: list[str]) -> int:
    stop, hangup = stop_event(), hangup_event()
    return await run_core(options, ready=_say_address, stop=stop, hangup=hangup, errors=told.append)


def _say_address(address: str) -> None:
    """Write the core's address, the only line of output; a script that requested port 0 reads the port from it."""
    sys.stdout.write(f"listening on {address}\n")
    sys.stdout.flush()
