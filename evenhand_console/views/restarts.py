"""Starts and ends of the core, with the pods and nodes of its resource managers before and after each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from evenhand.v1 import history_pb2, history_pb2_grpc
from evenhand_cli.connect import Core
from evenhand_cli.render.history import RESTART_KINDS, late_since, restart, restart_facts
from evenhand_console.instants import utc
from evenhand_console.query import Query
from evenhand_console.reading import unless_absent
from evenhand_console.view import View

ROWS_MAX: Final = 50
"""Largest number of starts and ends on a page."""


@dataclass(frozen=True, slots=True)
class Read:
    """The reply from which the page is built; None if the core keeps no history or the role may not see it."""

    listed: history_pb2.ListFailoversResponse | None


@dataclass(frozen=True, slots=True)
class Row:
    """A start or an end of a core, a change of the core that decides, or a registration or sync of a manager."""

    at_ms: int
    what: str
    core: str
    manager: str
    facts: str


@dataclass(frozen=True, slots=True)
class Page:
    """The values of the page."""

    has_history: bool
    answer: str = ""
    """A sentence on what was lost in the latest restart; empty on later pages of the list."""
    rows: tuple[Row, ...] = ()
    of_several: bool = False
    """Whether the list has rows of several cores."""
    written_to_ms: int = 0
    """The instant up to which the history is written, if it is late; else 0."""
    gaps: Sequence[history_pb2.HistoryGap] = ()
    next_token: str = ""
    now_ms: int = 0


def read(core: Core, query: Query) -> Read:
    """Read one page of the list of starts and ends. Raises Fault if the core does not answer or refuses."""
    stub = history_pb2_grpc.HistoryServiceStub(core.channel)
    request = history_pb2.ListFailoversRequest(page_size=ROWS_MAX, page_token=query["after"])
    return Read(unless_absent(lambda: core.ask(stub.ListFailovers, request)))


def shape(found: Read, query: Query) -> Page:
    """Return the values of the page, the latest row first."""
    if found.listed is None:
        return Page(has_history=False)
    rows, period = found.listed.failovers, found.listed.period
    return Page(
        has_history=True,
        answer=restart(rows, utc) if rows and not query["after"] else "",
        rows=tuple(_row(one) for one in rows),
        of_several=len({one.core for one in rows if one.core}) > 1,
        written_to_ms=late_since(period),
        gaps=tuple(reversed(period.gaps)),
        next_token=found.listed.next_page_token,
        now_ms=period.until_ms,
    )


def _row(one: history_pb2.Failover) -> Row:
    what = RESTART_KINDS.get(one.kind, one.kind)
    return Row(one.at_ms, what, one.core, one.subject, restart_facts(one, utc))


PARAMETERS: Final = {"after": ""}
VIEW: Final = View("restarts", "Restarts", "/restarts", read, shape, PARAMETERS, pause_s=5.0)
