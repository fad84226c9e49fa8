"""The commands `doctor`, `health` and `version`: whether the core works and is consistent, and which versions run."""

import platform
from importlib import metadata
from typing import Annotated, Any

import typer
from grpc_health.v1 import health_pb2, health_pb2_grpc
from rich.text import Text

from evenhand.v1 import inspect_pb2, inspect_pb2_grpc
from evenhand_cli import terminal
from evenhand_cli.combinations import refuse_together
from evenhand_cli.commands.filters import AnyPartition
from evenhand_cli.connect import Core, asks_core
from evenhand_cli.faults import ExitCode, Fault
from evenhand_cli.output import Form, Output, plain, show, word
from evenhand_cli.render import findings
from evenhand_cli.render.amounts import span
from evenhand_cli.render.server import versions

LEADER, READINESS = "leader", "readiness"
"""The service names `leader` and `readiness` of a core's health service.

The first name stands for the question whether the core leads, the second for the question whether its answers show the
present state.
"""


@asks_core
def doctor(
    core: Core,
    partition: AnyPartition = "",
    output: Output = Form.TABLE,
) -> None:
    """Say whether the core's state is consistent, and what to do when it is not.

    Examples:
        evenhand doctor
        evenhand doctor --partition gpu --output json

    """
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    request = inspect_pb2.CheckConsistencyRequest(partition=partition)
    answer = core.ask(stub.CheckConsistency, request)
    errors = findings.count_error_findings(answer.findings)
    show(output, plain(answer) | {"healthy": not errors}, lambda _: findings.diagnosis(answer))
    if errors:
        raise typer.Exit(ExitCode.PROBLEM)


@asks_core
def health(
    core: Core,
    manager: Annotated[
        str,
        typer.Option(
            "--manager",
            metavar="ID",
            help="Check only this resource manager: whether it is registered, connected and synchronised.",
        ),
    ] = "",
    core_only: Annotated[
        bool,
        typer.Option(
            "--core-only",
            help="Check only whether the core serves; meant for the health check of the core's own container.",
        ),
    ] = False,
    output: Output = Form.TABLE,
) -> None:
    """Say whether the core serves and its resource managers are connected; exit code 0 means yes.

    Of several cores, the answer says whether this one leads or follows another one. A core that follows is well
    without managers; with --core-only a core that waits for a leader or for a manager is well, too.

    A manager counts as away only after 5 s without a connection, so that a reconnection does not change the exit code.

    Examples:
        evenhand health
        evenhand health --manager evenhand
        evenhand health --core-only --core 127.0.0.1:50051

    """
    if core_only:
        refuse_together("--core-only", manager=manager)
    answer = _checked(core)
    status = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status).lower()
    leads, current = (_serves(core, name) for name in (LEADER, READINESS))
    state = _manager_state(core, manager) if manager else ""
    apart = manager or core_only or leads is False  # A follower has no connections to managers.
    info = inspect_pb2.ServerInfoResponse() if apart else _info(core)
    away = [one for one in info.managers if one.away]
    serves = answer.status == health_pb2.HealthCheckResponse.SERVING
    well = serves and (core_only or current is not False) and state in ("", "synced") and not away
    value = {
        "status": status,
        "leads": leads,
        "current": current,
        "manager": manager,
        "manager_state": state,
        "managers_away": {one.rm_id: one.away_since_ms for one in away},
        "managers_here": {one.rm_id: one.last_message_ms for one in info.managers if not one.away},
        "healthy": well,
    }
    lines = [
        f"core {status}{_standing(leads, current)}",
        *([f"manager {manager} {state}"] if manager else []),
    ]
    lines += [_manager(one, info.now_ms) for one in info.managers]
    if info.now_ms and not info.managers:
        lines.append("no manager is registered")
    show(output, value, lambda _: Text("; ".join(lines), style="good" if well else "bad"))
    if not well:
        raise typer.Exit(ExitCode.PROBLEM)


def _checked(core: Core, service: str = "") -> health_pb2.HealthCheckResponse:
    """Return the answer of the core's health service about a service name; the empty name means the whole core.

    Raises Fault if the core does not answer or refuses.
    """
    # The library's type annotations declare no methods for this stub.
    stub: Any = health_pb2_grpc.HealthStub(core.channel)
    request = health_pb2.HealthCheckRequest(service=service)
    answer: health_pb2.HealthCheckResponse = core.ask(stub.Check, request)
    return answer


def _serves(core: Core, service: str) -> bool | None:
    """Return whether the health service reports a service name as serving; None if the core does not know the name."""
    try:
        answer = _checked(core, service)
    except Fault:  # An older core.
        return None
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def _standing(leads: bool | None, current: bool | None) -> str:
    """Return the end of a phrase that says whether the core leads or follows."""
    if leads is None:
        return ""
    if leads:
        return ", leads"
    return ", follows" if current else ", has no leader and waits for a manager"


def _info(core: Core) -> inspect_pb2.ServerInfoResponse:
    """Return the core's information about its managers, or an empty answer if this user may not read the information."""
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    try:
        return core.ask(stub.ServerInfo, inspect_pb2.ServerInfoRequest())
    except Fault:  # The caller has no identity, or the port offers only the health service.
        return inspect_pb2.ServerInfoResponse()


def _manager(one: inspect_pb2.ManagerInfo, now: int) -> str:
    """Return a line that says whether a manager is connected, and when the core last received a message from the manager."""
    if one.away:
        return f"manager {one.rm_id} away for {span(now - one.away_since_ms)}"
    is_synced = one.sync_state == inspect_pb2.SYNC_STATE_SYNCED
    here = "here" if is_synced else "here, still sends what it knows"
    heard = f", heard {span(now - one.last_message_ms)} ago" if one.last_message_ms else ""
    return f"manager {one.rm_id} {here if one.open_streams else 'reconnects'}{heard}"


def _manager_state(core: Core, manager: str) -> str:
    """Return the state of a resource manager in the core: `synced`, `syncing`, `away` or `unknown`.

    A manager is `away` after 5 s without an open stream. A manager is `unknown` if it is not registered, or if the
    user may not see it.
    """
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    info = core.ask(stub.ServerInfo, inspect_pb2.ServerInfoRequest())
    for one in info.managers:
        if one.rm_id == manager:
            return "away" if one.away else word(inspect_pb2.SyncState.DESCRIPTOR, one.sync_state)
    return "unknown"


@asks_core
def version(core: Core, output: Output = Form.TABLE) -> None:
    """Show the versions of this command and of the core, and which configuration is in force.

    When the core keeps a decision log, the answer also names the configuration that was in force at the end of the
    core's previous run.

    Examples:
        evenhand version
        evenhand version --output json

    """
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    own = {"version": metadata.version("evenhand"), "python": platform.python_version()}
    try:
        info = core.ask(stub.ServerInfo, inspect_pb2.ServerInfoRequest())
    except Fault as fault:
        terminal.say(f"core: {fault.what}")
        info = None
    core_value = None if info is None else plain(info) | {"address": core.address}
    value = {"client": own, "core": core_value}
    show(output, value, lambda _: versions(own, core.address, info))
