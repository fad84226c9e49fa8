"""The check of a table of cores that is to come into force in a group of cores without a table (design 7.6).

The table says which group of cores decides for which partition. A core that was started with a table may follow a leader that
has no table. The table of this core comes into force when this core leads. Until then, the leader may apply a configuration
with a partition that the table gives to another group of cores. In this case the table cannot come into force.
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
    """The check of the table with which a core was started. The pump calls `sliced` after each slice.

    Without a table, there is nothing to check.
    """

    def __init__(self, table: Assignment | None, core: Core) -> None:
        self._table = table
        self._core = core
        self._seen: tuple[Configuration | None, Assignment | None] = (None, None)
        self._why = ""

    def decided(self, _decisions: Decisions, _now: int) -> None:
        """Ignore the decisions, because `sliced` checks the configuration once for each slice."""

    def sliced(self, _events: int, _seconds: float, _now: int) -> None:
        """Log the reason, once, if the table cannot come into force.

        The check runs only if the configuration or the table in force has changed since the last check.
        """
        state = self._core.state
        if state.configuration is self._seen[0] and state.assignment is self._seen[1]:
            return
        self._seen = (state.configuration, state.assignment)
        why, self._why = self._why, self._why_not()
        if self._why and self._why != why:
            _log.warning(_CODE, why=self._why, advice=_ADVICE)

    def idle(self) -> None:
        """Ignore that the pump is idle, because `sliced` has checked the configuration."""

    def findings(self) -> Iterator[Finding]:
        """Yield the doctor's finding about a table that cannot come into force."""
        if why := self._why_not():
            yield Finding("warning", "cores", _CODE, why, _ADVICE)

    def _why_not(self) -> str:
        """Return why the table of this core cannot come into force.

        Return "" if the table can come into force, if this core was started without a table, or if a table is in force already.
        """
        state = self._core.state
        if self._table is None or state.assignment is not None:
            return ""
        if why := why_not_first(self._table, state):
            return f"these cores decide without a table of cores, and the table of this core {why}"
        return ""
