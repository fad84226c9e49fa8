"""The running server: its versions and the resource managers that are connected to it."""

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from evenhand.v1 import inspect_pb2
from evenhand_cli.render.amounts import span
from evenhand_cli.render.findings import memory
from evenhand_cli.render.tables import lined_up
from evenhand_cli.render.words import enum_state, instant, state


def versions(
    own: Mapping[str, str], address: str, info: inspect_pb2.ServerInfoResponse | None
) -> RenderableType:
    """Return the versions of command and core, and the managers that are registered at the core."""
    table = lined_up(("part", "version"), (), ("notes",))
    table.add_row("command", own["version"], f"Python {own['python']}")
    if info is None:
        return table
    notes = f"at {address}, up {span(info.now_ms - info.started_at_ms)}"
    table.add_row("core", info.version, notes)
    if info.config_digest:
        where = info.config_source or "unknown source"
        if info.config_revision:
            by = f" by {info.config_applied_by}" if info.config_applied_by else ""
            where = f"{where}{by}, revision {info.config_revision}"
        when = (
            instant(info.config_applied_at_ms) if info.config_applied_at_ms else "read at its start"
        )
        table.add_row("configuration", info.config_digest[:12], f"from {where}, {when}")
    if info.previous_config_digest not in {"", info.config_digest}:
        source = f"from {info.previous_config_source}, " if info.previous_config_source else ""
        note = f"{source}until the last restart"
        table.add_row("previous run", info.previous_config_digest[:12], note)
    if info.decision_log_durable:
        held = f"; no decision leaves: {info.decisions_held}" if info.decisions_held else ""
        table.add_row("decision log", "durable", f"{info.decision_log}{held}")
    if info.visible_queue:
        hidden = (
            f"your role sees {info.visible_queue} and below: configuration, managers and what they reported"
            " at registration are hidden from viewers"
        )
        return Group(table, Text(hidden, style="faint"))
    if not info.managers:
        return table
    allocations = sum(one.recovered_allocations for one in info.managers)
    asks = sum(one.recovered_asks for one in info.managers)
    up_ms = info.now_ms - info.started_at_ms
    return Group(table, _managers(info), memory(up_ms, (allocations, asks), info.decision_log))


def _managers(info: inspect_pb2.ServerInfoResponse) -> Table:
    table = lined_up(("manager", "version", "state"), (), ("open streams",))
    for one in info.managers:
        here = bool(one.open_streams)
        known = enum_state(inspect_pb2.SyncState, one.sync_state) if here else state("away")
        away = f"for {span(info.now_ms - one.away_since_ms)}" if one.away_since_ms else ""
        table.add_row(one.rm_id, one.version, known, ", ".join(one.open_streams) or away)
    return table
