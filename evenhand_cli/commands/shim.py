"""The command `evenhand shim`: it joins an embedded cluster, or a Kubernetes API server, to a core."""

import asyncio
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import structlog
import typer

from evenhand_cli import terminal
from evenhand_cli.combinations import refuse_together, refuse_without
from evenhand_cli.connect import (
    DEFAULT_CORE,
    TlsCa,
    TlsCert,
    TlsKey,
    TokenFile,
    checked_address,
    checked_addresses,
)
from evenhand_cli.connect import (
    PANEL as CONNECTION,
)
from evenhand_cli.core_table import read_core_table
from evenhand_cli.durations import milliseconds
from evenhand_cli.embedded.hosting import following, service_of, state_faults, state_file
from evenhand_cli.faults import ExitCode, Fault
from evenhand_cli.renewed_secrets import RenewedSecrets
from evenhand_cli.rpc_faults import fault_of
from evenhand_cli.stopping import until_stopped
from server.observe import logs
from server.record.file_modes import findings as open_files
from shim_client import bootstrap, cluster_service
from shim_client.config import RATE_MAX, BadSettingError
from shim_client.core_client import errors
from shim_client.core_client.address import CoreAddress
from shim_client.core_client.spread import CoreGroup, groups_of
from shim_client.core_client.streams import SupersededError
from shim_client.election.lease import BadTermsError, Election, LeaseTerms
from shim_client.embedded.faults import object_faults
from shim_client.embedded.keeping import StateFile, default_folder
from shim_client.embedded.loading import BadFileError
from shim_client.probe import NoPortError
from shim_client.shim import PartitionOwnedError, Shim

_log = structlog.get_logger("evenhand.shim")

FAULTS_SHOWN = 20
"""Maximum number of faults of objects that are named at the start."""
PANEL = "On Kubernetes"
EMBEDDED = "With an embedded cluster"
ELECTION = "Several shims for one cluster"
LEASE = ("lease", "lease_namespace", "lease_duration", "lease_renew", "lease_margin")
"""Options that have no effect without `--elect`."""
ON_KUBERNETES = (
    *(
        "kubeconfig",
        "context",
        "namespace",
        "instance",
        "health",
        "metrics",
        "qps",
        "burst",
        "elect",
    ),
    *LEASE,
)
"""Options that have no effect for an embedded cluster."""
OF_EMBEDDED = ("stop", "state", "fresh", "cluster_listen")
"""Options that have no effect for a Kubernetes API server."""
GIVEN = "COMMANDLINE"
"""Typer's name for the source of a value that was given on the command line."""

Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig",
        metavar="FILE",
        help="File that says how to reach the API server; KUBECONFIG or the pod's service account when not given.",
        rich_help_panel=PANEL,
    ),
]
Context = Annotated[
    str | None,
    typer.Option(
        "--context",
        help="Context of the kubeconfig; its current context when not given.",
        rich_help_panel=PANEL,
    ),
]
Namespace = Annotated[
    str,
    typer.Option(
        "--namespace",
        envvar="NAMESPACE",
        help="Namespace of the shim's ConfigMaps; the namespace of the account when not given.",
        rich_help_panel=PANEL,
    ),
]
Instance = Annotated[
    str,
    typer.Option(
        "--instance",
        envvar="POD_NAME",
        help="Name of this process, which stays the same after a restart. While another process is the active "
        "shim, this one waits.",
        rich_help_panel=PANEL,
    ),
]
Health = Annotated[
    str,
    typer.Option(
        "--health",
        metavar="HOST:PORT",
        help="Address on which to answer gRPC health probes, without TLS; port 0 means any free port.",
        rich_help_panel=PANEL,
    ),
]
Metrics = Annotated[
    str,
    typer.Option(
        "--metrics",
        metavar="HOST:PORT",
        help="Address on which to serve metrics for Prometheus, without TLS: whether this shim leads; port 0 means any "
        "free port.",
        rich_help_panel=PANEL,
    ),
]
Qps = Annotated[
    int | None,
    typer.Option(
        "--qps",
        min=1,
        max=RATE_MAX,
        help="Maximum number of requests per second to the API server; the setting kubernetes.qps when not given.",
        rich_help_panel=PANEL,
    ),
]
Burst = Annotated[
    int | None,
    typer.Option(
        "--burst",
        min=1,
        max=RATE_MAX,
        help="Maximum number of requests to the API server at once; the setting kubernetes.burst when not given.",
        rich_help_panel=PANEL,
    ),
]
Elect = Annotated[
    bool,
    typer.Option(
        "--elect",
        help="Act only while this process holds a Lease of the API server: only one of the shims of a cluster acts, and "
        "the others watch the cluster, so that they can take over at once.",
        rich_help_panel=ELECTION,
    ),
]
LeaseName = Annotated[
    str,
    typer.Option(
        "--lease",
        metavar="NAME",
        help="Name of the Lease, the same for all shims of a cluster.",
        rich_help_panel=ELECTION,
    ),
]
LeaseNamespace = Annotated[
    str,
    typer.Option(
        "--lease-namespace",
        metavar="NAME",
        help="Namespace of the Lease; that of the ConfigMaps when not given.",
        rich_help_panel=ELECTION,
    ),
]
LeaseDuration = Annotated[
    str,
    typer.Option(
        "--lease-duration",
        metavar="TIME",
        help="Time without a renewal after which another shim takes over; whole seconds.",
        rich_help_panel=ELECTION,
    ),
]
LeaseRenew = Annotated[
    str,
    typer.Option(
        "--lease-renew",
        metavar="TIME",
        help="Time between two renewals.",
        rich_help_panel=ELECTION,
    ),
]
LeaseMargin = Annotated[
    str,
    typer.Option(
        "--lease-margin",
        metavar="TIME",
        help="Time before the end of its lease at which a shim stops to act.",
        rich_help_panel=ELECTION,
    ),
]
Stop = Annotated[
    str,
    typer.Option(
        "--stop",
        metavar="TIME",
        help="Time that pods of an embedded cluster take to end, such as 5s; a shorter grace period takes "
        "precedence.",
        rich_help_panel=EMBEDDED,
    ),
]
StateFolder = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="DIR",
        help="Folder in which an embedded cluster is kept for the next start; a folder of its own in the user's "
        "state directory when not given.",
        rich_help_panel=EMBEDDED,
    ),
]
Fresh = Annotated[
    bool,
    typer.Option(
        "--fresh",
        help="Forget what was kept of an embedded cluster, and begin with its manifests.",
        rich_help_panel=EMBEDDED,
    ),
]
ClusterListen = Annotated[
    str,
    typer.Option(
        "--cluster-listen",
        metavar="HOST:PORT",
        help="Address of this machine on which an embedded cluster answers `evenhand cluster`; port 0 means any free "
        f"port, and {cluster_service.DEFAULT_ADDRESS} is used when not given.",
        rich_help_panel=EMBEDDED,
    ),
]


CoreAddresses = Annotated[
    str,
    typer.Option(
        "--core",
        envvar="EVENHAND_CORE",
        metavar="HOST:PORT,...",
        help="Address of the core; of several, the shim uses the first that accepts it, and goes to the next when "
        "that one is gone.",
        rich_help_panel=CONNECTION,
    ),
]


CoreTableFile = Annotated[
    Path | None,
    typer.Option(
        "--cores",
        envvar="EVENHAND_CORES",
        metavar="FILE",
        help="Table that spreads partitions over groups of cores; the shim then has a session with each group, and "
        "--core is not used.",
        rich_help_panel=CONNECTION,
    ),
]


def shim(
    ctx: typer.Context,
    cluster: Annotated[
        Path | None,
        typer.Option(
            "--cluster",
            metavar="DIR",
            help="Join an embedded cluster with the Kubernetes objects of this directory, in YAML or JSON.",
        ),
    ] = None,
    kubernetes: Annotated[
        bool, typer.Option("--kubernetes", help="Join a Kubernetes API server.")
    ] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = "",
    instance: Instance = "",
    health: Health = "",
    metrics: Metrics = "",
    qps: Qps = None,
    burst: Burst = None,
    elect: Elect = False,
    lease: LeaseName = "evenhand-shim",
    lease_namespace: LeaseNamespace = "",
    lease_duration: LeaseDuration = "6s",
    lease_renew: LeaseRenew = "2s",
    lease_margin: LeaseMargin = "1s",
    stop: Stop = "0s",
    state: StateFolder = None,
    fresh: Fresh = False,
    cluster_listen: ClusterListen = "",
    no_wait: Annotated[
        bool,
        typer.Option(
            "--no-wait",
            help="End with exit code 3 when no core answers at the start, instead of waiting for one.",
        ),
    ] = False,
    forget: Annotated[
        bool,
        typer.Option(
            "--forget",
            help="Let the core first forget what it knows of this cluster: timers of quotas, back-offs and open "
            "decisions are lost. Without it the core compares, and keeps what is unchanged.",
        ),
    ] = False,
    core: CoreAddresses = DEFAULT_CORE,
    cores: CoreTableFile = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    token_file: TokenFile = None,
) -> None:
    """Connect a cluster to a core until SIGTERM or Ctrl-C: an embedded cluster, or a Kubernetes API server.

    Examples:
        evenhand shim --cluster examples/clusters/small
        evenhand shim --kubernetes --kubeconfig admin.conf --core 127.0.0.1:50051
        evenhand shim --kubernetes --health 127.0.0.1:8080 --qps 50 --burst 100
        evenhand shim --kubernetes --elect --core core-1:50051,core-2:50051
        evenhand shim --kubernetes --cores cores.yaml

    """
    if kubernetes == (cluster is not None):
        raise Fault(
            "there is no cluster to join" if cluster is None else "there are two clusters to join",
            where="--cluster and --kubernetes",
            advice="give one of them: --cluster DIR for an embedded cluster, or --kubernetes",
            code=ExitCode.USAGE,
        )
    _check_combination(ctx, kubernetes=kubernetes)
    secrets = RenewedSecrets(tls_ca, tls_cert, tls_key, token_file)
    credentials, token = secrets()
    used = _cores(
        ctx,
        core,
        cores,
        partial(CoreAddress, credentials=credentials, token=token, renew=secrets),
    )
    logs.configure(sys.stderr)
    _warn_of_files(tls_key, token_file)
    if cluster is None:
        terms = _terms(lease_duration, lease_renew, lease_margin) if elect else None
        _join_kubernetes(
            used,
            kubeconfig=kubeconfig,
            context=context,
            namespace=namespace,
            instance=instance,
            health=health,
            metrics=checked_address(metrics, "--metrics") if metrics else "",
            qps=qps,
            burst=burst,
            wait=not no_wait,
            forget=forget,
            election=Election(lease, lease_namespace, terms) if terms else None,
        )
        return
    folder = state or default_folder(cluster, os.environ)
    with shim_faults(core), closing(state_file(folder, state)) as kept, state_faults():
        live = open_live(cluster, kept.file, stop_ms=milliseconds(stop), fresh=fresh)
        _warn_of_objects(live.opened)
        settings = live.opened.settings
        client = bootstrap.make_shim(
            live.opened.cluster, used, settings, wait=not no_wait, forget=forget
        )
        asyncio.run(until_stopped(_run(client, live, cluster_listen)))


def _cores(
    ctx: typer.Context,
    core: str,
    table: Path | None,
    address: Callable[[str], CoreAddress],
) -> list[CoreAddress | CoreGroup]:
    """Return the groups of `--cores`, or the cores of `--core`. Raises Fault if both options are given, or if a value is bad."""
    if table is None:
        return [address(one) for one in _different(core)]
    if _given(ctx, ["core"])["core"]:
        refuse_together("--cores", core=core)
    return [
        CoreGroup(
            one.name,
            tuple(map(address, _different(one.addresses))),
            one.partitions,
            one.revision,
        )
        for one in read_core_table(table).groups
    ]


async def _run(client: Shim, live: bootstrap.LiveDirectory, listen: str) -> None:
    """Run a shim, and the tasks of its embedded cluster: follow the files, and answer cluster commands."""
    cluster = live.opened.cluster
    served = service_of(cluster, listen, terminal.line)
    followed = following(live, client, _say_change, _warn_of_queues)
    await bootstrap.run_shim(client, cluster, [followed, served])


def _say_change(text: str) -> None:
    _log.info("files of the cluster changed", what=text)


def _warn_of_queues(text: str) -> None:
    _log.warning("the core refused the queues", what=text)


def _warn_of_objects(opened: bootstrap.OpenedDirectory) -> None:
    """Log the faults of the cluster's objects."""
    faults = object_faults(opened.cluster.events.all())
    for one in faults[:FAULTS_SHOWN]:
        what = "an object was refused" if one.refused else "a part of an object has no effect"
        _log.warning(what, kind=one.kind, such_as=one.example, objects=one.objects, why=one.message)
    if len(faults) > FAULTS_SHOWN:
        _log.warning("further faults of objects", faults=len(faults) - FAULTS_SHOWN)


def _warn_of_files(*secrets: Path | None) -> None:
    """Log which files with secrets can be read by other users."""
    for found in open_files([one for one in secrets if one is not None], ()):
        _log.warning(found.code, problem=found.message)


def _check_combination(ctx: typer.Context, *, kubernetes: bool) -> None:
    """Raise Fault for an option on the command line, but not in the environment, that has no effect for this kind of cluster."""
    names = OF_EMBEDDED if kubernetes else ON_KUBERNETES
    refuse_without("--cluster" if kubernetes else "--kubernetes", **_given(ctx, names))
    if not ctx.params["elect"]:
        refuse_without("--elect", **_given(ctx, LEASE))


def _given(ctx: typer.Context, names: Sequence[str]) -> dict[str, bool]:
    """Return, for each option, whether the option was given on the command line."""
    sources = {name: ctx.get_parameter_source(name) for name in names}
    return {name: source is not None and source.name == GIVEN for name, source in sources.items()}


def _different(text: str) -> list[str]:
    """Return the addresses of a list. Raises Fault for an address that is not HOST:PORT, or that occurs twice."""
    addresses = checked_addresses(text)
    if len(set(addresses)) < len(addresses):
        raise Fault(
            f"`{text}` names a core twice",
            where="--core or EVENHAND_CORE",
            advice="name each core once",
            code=ExitCode.USAGE,
        )
    return addresses


def _terms(duration: str, renew: str, margin: str) -> LeaseTerms:
    """Return the durations of the lease. Raises Fault for durations with which no lease can be held safely."""
    whole, rest = divmod(milliseconds(duration), 1_000)
    if rest:
        raise typer.BadParameter(f"`{duration}` is not a whole number of seconds")
    terms = LeaseTerms(whole, milliseconds(renew) / 1_000, milliseconds(margin) / 1_000)
    try:
        terms.check()
    except BadTermsError as error:
        raise Fault(
            str(error),
            where="--lease-duration, --lease-renew, --lease-margin",
            advice="choose a longer duration, or shorter other times",
            code=ExitCode.USAGE,
        ) from error
    return terms


def _join_kubernetes(cores: list[CoreAddress | CoreGroup], **place: Any) -> None:  # noqa: ANN401
    """Run a shim for a Kubernetes API server; `place` has the fields of `ShimOptions`.

    Raises Fault if the extra `kubernetes` is not installed, or when the shim ends with an error.
    """
    try:
        # The extra `kubernetes` is not always installed, and takes a while to load.
        from shim_client.deployed import ShimOptions, run_on_kubernetes  # noqa: PLC0415
        from shim_client.kubernetes.access import NoAccessError  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise Fault(
            f"this installation cannot speak with Kubernetes: there is no module {error.name}",
            where="--kubernetes",
            advice="install the extra: pip install 'evenhand[kubernetes]'",
        ) from error
    try:
        targets = [one.target for group in groups_of(cores) for one in group.addresses]
        with shim_faults(", ".join(targets)):
            work = run_on_kubernetes(ShimOptions(**place), *cores)
            asyncio.run(until_stopped(work))
    except NoAccessError as error:
        raise Fault(
            str(error),
            where="--kubeconfig, KUBECONFIG, the pod's service account",
            advice="name a kubeconfig that `kubectl` can use, and one of its contexts",
        ) from error
    except NoPortError as error:
        raise Fault(str(error), where="--health", advice="choose another HOST:PORT") from error


def open_cluster(directory: Path, *, stop_ms: int) -> bootstrap.OpenedDirectory:
    """Load a cluster directory; print which objects are ignored. Raises Fault for an unreadable or empty directory."""
    with shim_faults(""), terminal.patience(f"reading {directory}"):
        opened = bootstrap.open_directory(directory, stop_ms=stop_ms)
    _check_content(directory, opened)
    return opened


def open_live(
    directory: Path, state: StateFile | None, *, stop_ms: int, fresh: bool = False
) -> bootstrap.LiveDirectory:
    """Load a cluster directory whose later changes are applied, and print the numbers of restored and ignored objects.

    Raises Fault if a file or the saved state cannot be read, or if there are neither nodes nor pods.
    """
    with shim_faults(""), terminal.patience(f"reading {directory}"):
        live = bootstrap.open_live_directory(directory, state, stop_ms=stop_ms, fresh=fresh)
    if state is not None and live.restored:
        _log.info(
            "the cluster goes on where it was",
            state=str(state.path),
            objects=live.restored,
            files=live.report.text() or "unchanged",
        )
    _check_content(directory, live.opened, may_be_empty=bool(live.restored))
    return live


def _check_content(
    directory: Path, opened: bootstrap.OpenedDirectory, *, may_be_empty: bool = False
) -> None:
    """Print which objects are ignored.

    Raises Fault for a directory without nodes and pods. A directory that was emptied by commands is accepted.
    """
    if not (may_be_empty or any(opened.cluster.nodes()) or any(opened.cluster.pods())):
        refused = [one.message for one in object_faults(opened.cluster.events.all())]
        raise Fault(
            f"{directory} describes no cluster: there are neither nodes nor pods",
            where="\n".join(refused[:FAULTS_SHOWN]) or "--cluster",
            advice="correct these objects"
            if refused
            else "name a directory with Kubernetes YAML or JSON files in it",
        )
    if opened.ignored:
        left_out = ", ".join(f"{count} {kind}" for kind, count in sorted(opened.ignored.items()))
        terminal.say(f"{directory}: left out, an embedded cluster has no use for it: {left_out}")


@contextmanager
def shim_faults(core: str) -> Iterator[None]:
    """Convert the shim's errors into faults."""
    try:
        yield
    except BadFileError as error:
        raise Fault(
            str(error), where="--cluster", advice="correct it, or name another directory"
        ) from error
    except BadSettingError as error:
        raise Fault(
            str(error),
            where="ConfigMap yunikorn-defaults or yunikorn-configs of the cluster",
            advice="correct the setting",
        ) from error
    except errors.CoreRefusedError as error:
        raise Fault(
            str(error),
            where=f"core at {core}" if core else "the registration",
            advice="correct what the core names; a queues.yaml can be tried with"
            " `evenhand config check FILE`",
            code=ExitCode.UNREACHABLE,
        ) from error
    except errors.NoCoreError as error:
        raise fault_of(error.error, core, secure=False) from error
    except PartitionOwnedError as error:
        raise Fault(
            str(error),
            where=f"core at {core}" if core else "the nodes",
            advice="if it is this cluster's own, run this shim under that cluster id (service.clusterId);"
            " an owner that is gone for good is forgotten when the core is started again",
        ) from error
    except SupersededError as error:
        raise Fault(
            "another shim took over under the same cluster id",
            where=f"core at {core}" if core else "the session",
            advice="run one shim for a cluster, or give them different cluster ids"
            " (service.clusterId)",
        ) from error
