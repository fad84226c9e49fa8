"""The command `evenhand serve`: the core."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from evenhand_cli import terminal
from evenhand_cli.combinations import refuse_together, refuse_without
from evenhand_cli.commands.config import problems_of
from evenhand_cli.config_maps import read_queues
from evenhand_cli.console_process import ConsoleListen, perhaps_beside
from evenhand_cli.core_table import read_core_table
from evenhand_cli.durations import milliseconds
from evenhand_cli.faults import ExitCode, Fault
from evenhand_cli.render import findings
from evenhand_cli.sizes import size
from evenhand_cli.stopping import hangup_event, stop_event
from server.bootstrap import DEFAULT_LISTEN, Exit, ServeOptions
from server.bootstrap import serve as run_core
from server.config import load
from server.history.settings import MINUTE_MS, Settings
from server.observe import logs
from server.rpc.access import Access
from server.rpc.following import Joining

PANEL = "Who may reach it"
REPLICAS = "Which core it follows"
SPREAD = "Which partitions it has"
RECORDS = "What it writes down"

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="A queues.yaml, or a ConfigMap with one; when not given, the core uses the configuration of the first "
        "registration.",
    ),
]
Listen = Annotated[
    str,
    typer.Option(
        "--listen",
        metavar="HOST:PORT",
        help="Address on which to listen; port 0 means any free port.",
    ),
]
Metrics = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        metavar="HOST:PORT",
        help="Address on which to serve Prometheus metrics; no metrics are served when not given.",
    ),
]
Health = Annotated[
    str | None,
    typer.Option(
        "--health",
        metavar="HOST:PORT",
        help="Address on which to serve only gRPC health, without TLS, for the probes of Kubernetes.",
    ),
]
DecisionLog = Annotated[
    Path | None,
    typer.Option(
        "--decision-log",
        metavar="FILE",
        help="File to which to append every preemption decision and every configuration; each line is chained to "
        "the one before it.",
        rich_help_panel=RECORDS,
    ),
]
Durable = Annotated[
    bool,
    typer.Option(
        "--durable",
        help="Send a preemption decision only after the disk has it in the decision log; needs --decision-log.",
        rich_help_panel=RECORDS,
    ),
]
Trace = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        metavar="FILE",
        help="File to which to write all input of the core, for `evenhand replay`; an earlier trace is renamed to "
        "FILE.previous.",
        rich_help_panel=RECORDS,
    ),
]
StateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        metavar="DIR",
        help="Directory in which to keep the configuration in force for the next start; that of the decision "
        "log when not given.",
        rich_help_panel=RECORDS,
    ),
]
History = Annotated[
    str,
    typer.Option(
        "--history",
        metavar="FILE|URL",
        help="Where to keep the history: a file, postgresql+psycopg://USER@HOST/DATABASE, or `off`; history.sqlite in "
        "--state-dir when not given.",
        rich_help_panel=RECORDS,
    ),
]
HistoryRetention = Annotated[
    str,
    typer.Option(
        "--history-retention",
        metavar="TIME",
        help="How long to keep the history, such as 30d.",
        show_default=True,
        rich_help_panel=RECORDS,
    ),
]
HistoryMinutes = Annotated[
    str,
    typer.Option(
        "--history-minutes-after",
        metavar="TIME",
        help="Age at which usage is summed up by the minute.",
        show_default=True,
        rich_help_panel=RECORDS,
    ),
]
HistoryTenMinutes = Annotated[
    str,
    typer.Option(
        "--history-ten-minutes-after",
        metavar="TIME",
        help="Age at which usage is summed up by ten minutes.",
        show_default=True,
        rich_help_panel=RECORDS,
    ),
]
HistorySample = Annotated[
    str,
    typer.Option(
        "--history-sample",
        metavar="TIME",
        help="Time between two samples of usage.",
        show_default=True,
        rich_help_panel=RECORDS,
    ),
]
HistorySize = Annotated[
    str,
    typer.Option(
        "--history-size-max",
        metavar="SIZE",
        help="Largest size of a history in a file, such as 500MiB; 0 for none. The oldest rows go first.",
        show_default=True,
        rich_help_panel=RECORDS,
    ),
]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure",
        help="Allow listening without TLS on an address that other machines can reach.",
        rich_help_panel=PANEL,
    ),
]
TlsCert = Annotated[
    Path | None,
    typer.Option(
        "--tls-cert",
        metavar="FILE",
        help="File with the core's certificate.",
        rich_help_panel=PANEL,
    ),
]
TlsKey = Annotated[
    Path | None,
    typer.Option(
        "--tls-key",
        metavar="FILE",
        help="File with the key of the core's certificate.",
        rich_help_panel=PANEL,
    ),
]
TlsClientCa = Annotated[
    Path | None,
    typer.Option(
        "--tls-client-ca",
        metavar="FILE",
        help="File with the certificate authority of the clients; each client then needs a certificate.",
        rich_help_panel=PANEL,
    ),
]
Tokens = Annotated[
    Path | None,
    typer.Option(
        "--tokens",
        metavar="FILE",
        help="File that gives each token its role.",
        rich_help_panel=PANEL,
    ),
]
Roles = Annotated[
    Path | None,
    typer.Option(
        "--roles",
        metavar="FILE",
        help="File that gives each name in a client's certificate its role.",
        rich_help_panel=PANEL,
    ),
]

Follow = Annotated[
    str,
    typer.Option(
        "--follow",
        metavar="HOST:PORT,...",
        help="Cores, one of which this core follows: this core has the same state, answers reads, and decides as soon as "
        "a resource manager registers with it.",
        rich_help_panel=REPLICAS,
    ),
]
FollowTlsCa = Annotated[
    Path | None,
    typer.Option(
        "--follow-tls-ca",
        metavar="FILE",
        help="File with the certificate authority of the core that is followed; TLS is used when it is given.",
        rich_help_panel=REPLICAS,
    ),
]
FollowTlsCert = Annotated[
    Path | None,
    typer.Option(
        "--follow-tls-cert",
        metavar="FILE",
        help="File with the certificate that this core shows to the core that it follows.",
        rich_help_panel=REPLICAS,
    ),
]
FollowTlsKey = Annotated[
    Path | None,
    typer.Option(
        "--follow-tls-key",
        metavar="FILE",
        help="File with the key of that certificate.",
        rich_help_panel=REPLICAS,
    ),
]
FollowerAcknowledges = Annotated[
    str,
    typer.Option(
        "--follower-acknowledges",
        metavar="DURATION",
        help="How long decisions of this core wait until a follower has them, such as 50ms; they do not wait when not "
        "given. If this core is killed, a follower has all decisions that did not wait longer.",
        rich_help_panel=REPLICAS,
    ),
]
FollowToken = Annotated[
    Path | None,
    typer.Option(
        "--follow-token",
        metavar="FILE",
        help="File with the token of a follower, when the core that is followed wants one.",
        rich_help_panel=REPLICAS,
    ),
]

Cores = Annotated[
    Path | None,
    typer.Option(
        "--cores",
        metavar="FILE",
        help="Table that spreads partitions over groups of cores; this core then decides only for those of its --group.",
        rich_help_panel=SPREAD,
    ),
]
Group = Annotated[
    str,
    typer.Option(
        "--group",
        metavar="NAME",
        help="Group of this core in the table of --cores.",
        rich_help_panel=SPREAD,
    ),
]
Log = Annotated[
    str,
    typer.Option(
        "--log",
        metavar="nats://HOST:PORT/NAME",
        help="Log of NATS JetStream through which the input of the core that decides reaches the other cores; all "
        "cores with one NAME have the same state.",
        rich_help_panel=REPLICAS,
    ),
]
LogCredentials = Annotated[
    Path | None,
    typer.Option(
        "--log-credentials",
        metavar="FILE",
        help="File with the credentials for NATS: a .creds file, or the seed of an nkey.",
        rich_help_panel=REPLICAS,
    ),
]
LogTlsCa = Annotated[
    Path | None,
    typer.Option(
        "--log-tls-ca",
        metavar="FILE",
        help="File with the certificate authority of NATS; the system's authorities count when not given.",
        rich_help_panel=REPLICAS,
    ),
]

MovedFrom = Annotated[
    Path | None,
    typer.Option(
        "--moved-from",
        metavar="FILE",
        help="Saved state (state.checkpoint in --state-dir) of the core that had some of these partitions before: they "
        "keep their waiting times, timers and open decisions.",
        rich_help_panel=SPREAD,
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
    history: History = "",
    history_retention: HistoryRetention = "90d",
    history_minutes_after: HistoryMinutes = "6h",
    history_ten_minutes_after: HistoryTenMinutes = "3d",
    history_sample: HistorySample = "10s",
    history_size_max: HistorySize = "2GiB",
    insecure: Insecure = False,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_client_ca: TlsClientCa = None,
    tokens: Tokens = None,
    roles: Roles = None,
    follow: Follow = "",
    follow_tls_ca: FollowTlsCa = None,
    follow_tls_cert: FollowTlsCert = None,
    follow_tls_key: FollowTlsKey = None,
    follow_token: FollowToken = None,
    follower_acknowledges: FollowerAcknowledges = "",
    cores: Cores = None,
    group: Group = "",
    moved_from: MovedFrom = None,
    log: Log = "",
    log_credentials: LogCredentials = None,
    log_tls_ca: LogTlsCa = None,
    console: ConsoleListen = "",
) -> None:
    """Run a core until SIGTERM or Ctrl-C, and print the address on which it listens.

    The log goes to the error stream. Certificates, roles and tokens are read again when their files change, and at SIGHUP.

    Examples:
        evenhand serve --config queues.yaml
        evenhand serve --config queues.yaml --console 127.0.0.1:8080
        evenhand serve --metrics 127.0.0.1:9090 --decision-log decisions.jsonl
        evenhand serve --tls-cert core.crt --tls-key core.key --tokens tokens.yaml
        evenhand serve --listen 127.0.0.1:50052 --follow 127.0.0.1:50051
        evenhand serve --listen 127.0.0.1:50061 --cores cores.yaml --group gpu

    """
    text = None if config is None else check_config(config)
    if cores is None:
        refuse_without("--cores", group=group, moved_from=str(moved_from or ""))
    if console:
        # For a core with TLS, the console would need a separate identity: `evenhand console` has the options for
        # this.
        refuse_together("--console", tls_cert=str(tls_cert or ""))
    access = Access(insecure, tls_cert, tls_key, tls_client_ca, tokens, roles)
    logs.configure(sys.stderr)
    told: list[str] = []
    files = (decision_log, trace, state_dir)
    leaders = tuple(one.strip() for one in follow.split(",") if one.strip())
    joining = Joining(
        *(leaders, follow_tls_ca, follow_tls_cert, follow_tls_key, follow_token),
        *(log, log_credentials, log_tls_ca),
    )
    if log:
        refuse_together("--log", follower_acknowledges=follower_acknowledges)
    ages = (history_retention, history_minutes_after, history_ten_minutes_after, history_sample)
    options = ServeOptions(
        *(listen, config, metrics, access, health, *files, text, durable, joining),
        follower_acknowledges_ms=milliseconds(follower_acknowledges)
        if follower_acknowledges
        else 0,
        history=history,
        history_settings=_settings(*ages)._replace(size_max=size(history_size_max)),
        assignment=None if cores is None else read_core_table(cores).assignment(group),
        moved_from=moved_from,
        own_process=True,
    )
    with perhaps_beside(console) as (url, start):
        code = asyncio.run(_serve(options, told, _starting(url, start)))
    if code != Exit.DRAINED:
        raise serve_fault(code, listen, told)


def _settings(*ages: str) -> Settings:
    """Return the settings of the history from the options.

    Raises typer.BadParameter if data of shorter intervals would be kept longer than data of longer intervals.
    """
    retention, minutes, ten_minutes, sample = map(milliseconds, ages)
    if not 0 < sample <= MINUTE_MS <= minutes <= ten_minutes <= retention:
        raise typer.BadParameter(
            "the times of the history are in order: --history-sample at most 1m, then --history-minutes-after,"
            " --history-ten-minutes-after, --history-retention"
        )
    return Settings(retention, minutes, ten_minutes, sample)


def check_config(file: Path) -> str:
    """Return the text of a configuration file. When the file cannot be used, print its problems and raise Fault."""
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
    """Return the Fault for a core that did not start, or that ended with an error."""
    what = "\n".join(told) or "the core failed; its log says where"
    return Fault(
        what,
        where=f"--listen {listen}" if code == Exit.NO_ADDRESS else "",
        advice=ADVICE.get(Exit(code), ""),
        code=ExitCode.USAGE if code == Exit.BAD_OPTIONS else ExitCode.PROBLEM,
    )


async def _serve(options: ServeOptions, told: list[str], ready: Callable[[str], None]) -> int:
    stop, hangup = stop_event(), hangup_event()
    return await run_core(options, ready=ready, stop=stop, hangup=hangup, errors=told.append)


def _starting(url: str, start: Callable[[str], None]) -> Callable[[str], None]:
    """Return a function that writes the core's address to the output.

    A script that requested port 0 reads the port from this line. Without a console, there is no other output. With a
    console, the function also starts the console, and writes the URL of the console on the next line.
    """

    def ready(address: str) -> None:
        sys.stdout.write(f"listening on {address}\n")
        sys.stdout.flush()
        start(address)
        if url:
            sys.stdout.write(f"console on {url}\n")
            sys.stdout.flush()

    return ready
