"""The first table of cores of a group that decides without one: why the table of this core cannot count (design 7.6).

A core with a first table follows a leader without a table, and its table counts when the core leads. A configuration that the leader
applies in the meantime can add a partition that the table gives to another group. The table then does not count.
"""

from collections.abc import Iterator
from typing import Final

import structlog

from server.core.core import Core
from server.model.assignment import Assignment
from server.model.decisions import Decisions
from server.model.quota import Configuration
from server.model.reports import Finding
from server.replication.applying import why_not_first

_CODE: Final = "table-not-used"
_ADVICE: Final = (
    "Let the table give all partitions of the configuration to this group, or end all cores of this group, "
    "then start them and the shim with the table."
)
_log = structlog.get_logger(__name__)


class FirstTable:
    """The check of the table with which a core was started, or of None without one. The pump calls it after each slice."""

    def __init__(self, table: Assignment | None, core: Core) -> None:
        self._table = table
        self._core = core
        self._seen: tuple[Configuration | None, Assignment | None] = (None, None)
        self._why = ""

    def decided(self, _decisions: Decisions, _now: int) -> None:
        """Do nothing, because the configuration is checked once for each slice."""

    def sliced(self, _events: int, _seconds: float, _now: int) -> None:
        """Log once why the table does not count. Look only if the configuration or the table in force has changed."""
        state = self._core.state
        if state.configuration is self._seen[0] and state.assignment is self._seen[1]:
            return
        self._seen = (state.configuration, state.assignment)
        why, self._why = self._why, self._why_not()
        if self._why and self._why != why:
            _log.warning(_CODE, why=self._why, advice=_ADVICE)

    def idle(self) -> None:
        """Do nothing."""

    def findings(self) -> Iterator[Finding]:
        """Yield the doctor's finding about a table that does not count."""
        if why := self._why_not():
            yield Finding("warning", "cores", _CODE, why, _ADVICE)

    def _why_not(self) -> str:
        """Return why the table does not count although no other table does. Return "" if it counts, or will when this core leads."""
        state = self._core.state
        if self._table is None or state.assignment is not None:
            return ""
        if why := why_not_first(self._table, state):
            return f"these cores decide without a table of cores, and the table of this core {why}"
        return ""
