"""The configurations that were in force: the user who applied each configuration, its changes, and the evictions that followed.

A chosen configuration can be compared with the present one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from evenhand.v1 import config_pb2, config_pb2_grpc, history_pb2, history_pb2_grpc
from evenhand_cli.connect import Core
from evenhand_console.at_once import begin
from evenhand_console.parts import number
from evenhand_console.query import Query
from evenhand_console.reading import unless_absent
from evenhand_console.view import View

ROWS_MAX: Final = 50
"""Largest number of configurations on a page."""
CHANGES_MAX: Final = 10
"""Largest number of differences of one configuration in the list."""


@dataclass(frozen=True, slots=True)
class Read:
    """The replies from which the page is built. A field is None if the core keeps no history, or if no configuration is chosen."""

    listed: history_pb2.ListConfigurationsResponse | None
    now: config_pb2.GetResponse | None
    chosen: history_pb2.GetConfigurationResponse | None
    difference: config_pb2.DiffResponse | None


@dataclass(frozen=True, slots=True)
class Row:
    """A configuration of the list."""

    found: history_pb2.PastConfiguration
    in_force: bool
    changes: tuple[config_pb2.ConfigChange, ...]
    changes_left_out: int
    victims: int
    can_return: bool
    """Whether the page offers to try the configuration again: its text is known, and it is not in force."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """One configuration: its text, and the changes that it would make to the present configuration."""

    found: history_pb2.PastConfiguration
    text: str
    in_force: bool
    changes: tuple[config_pb2.ConfigChange, ...] | None
    now_revision: int


@dataclass(frozen=True, slots=True)
class Page:
    """The values of the page."""

    has_history: bool
    rows: tuple[Row, ...] = ()
    next_token: str = ""
    chosen: Chosen | None = None


def read(core: Core, query: Query) -> Read:
    """Read a page of the history, and the chosen configuration with its differences from the present configuration.

    Raises Fault if the core does not answer or refuses.
    """
    history = history_pb2_grpc.HistoryServiceStub(core.channel)
    configuration = config_pb2_grpc.ConfigurationServiceStub(core.channel)
    asked = history_pb2.ListConfigurationsRequest(page_size=ROWS_MAX, page_token=query["after"])
    of_now = begin(
        lambda: unless_absent(lambda: core.ask(configuration.Get, config_pb2.GetRequest()))
    )
    listed = unless_absent(lambda: core.ask(history.ListConfigurations, asked))
    revision, now = number(query["revision"]), of_now.result()
    if listed is None or not revision:
        return Read(listed, now, None, None)
    wanted = history_pb2.GetConfigurationRequest(revision=revision)
    chosen = core.ask(history.GetConfiguration, wanted)
    text = config_pb2.DiffRequest(yaml=chosen.yaml, source=f"revision {revision}")
    difference = unless_absent(lambda: core.ask(configuration.Diff, text)) if chosen.yaml else None
    return Read(listed, now, chosen, difference)


def shape(found: Read, _: Query) -> Page:
    """Return the values of the page, the latest configuration first."""
    if found.listed is None:
        return Page(has_history=False)
    digest = found.now.digest if found.now is not None else ""
    return Page(
        has_history=True,
        rows=tuple(_row(one, digest) for one in found.listed.configurations),
        next_token=found.listed.next_page_token,
        chosen=None if found.chosen is None else _chosen(found, found.chosen, digest),
    )


def _row(one: history_pb2.PastConfiguration, digest: str) -> Row:
    in_force = bool(digest) and one.digest == digest and not one.until_ms
    return Row(
        found=one,
        in_force=in_force,
        changes=tuple(one.changes[:CHANGES_MAX]),
        changes_left_out=max(0, len(one.changes) - CHANGES_MAX),
        victims=sum(each.victims for each in one.effects),
        can_return=bool(one.source) and not in_force,
    )


def _chosen(found: Read, chosen: history_pb2.GetConfigurationResponse, digest: str) -> Chosen:
    one = chosen.configuration
    changes: Sequence[config_pb2.ConfigChange] | None = None
    if found.difference is not None:
        changes = found.difference.changes
    return Chosen(
        found=one,
        text=chosen.yaml,
        in_force=bool(digest) and one.digest == digest,
        changes=None if changes is None else tuple(changes),
        now_revision=found.now.revision if found.now is not None else 0,
    )


PARAMETERS: Final = {"revision": "", "after": ""}
VIEW: Final = View(
    "configurations",
    "Configurations",
    "/configurations",
    read,
    shape,
    PARAMETERS,
    pause_s=5.0,
    kinds=frozenset(("configuration",)),
)
