"""The revision that a group has in the table of cores. Registrations carry the revision in their metadata (design 7.6)."""

import json
from typing import Final

import grpc

from server.core.state import State
from server.model.assignment import Assignment
from server.rpc.errors import CallError
from server.rpc.grpc_types import Context

METADATA_KEY: Final = "evenhand-table-revision"
_DIGITS_MAX: Final = 18
_MOVES_CHARACTERS_MAX: Final = 1_000
"""The largest number of characters that a refusal uses to list moves.

If the list would be longer, the refusal has no list, and the shim has to read the newer table.
"""


def revision_of(assignment: Assignment | None) -> int:
    """Return the revision of a core's group in the table with which the core was started. Return 0 for a core without a table."""
    return 0 if assignment is None else assignment.revision


def check(state: State, context: Context) -> int:
    """Return the revision that a shim names in its registration. Raise CallError if this core's group has another revision.

    A shim may also name the revision with which this core takes a partition that another group gives away (design 7.9). The error
    of a shim with an older table names the moves since then.
    """
    mine, theirs = revision_of(state.assignment), _revision_in(context)
    if theirs in (mine, *(one.revision for one in state.arrivals.values())):
        return theirs
    older, what = ("core", "the core") if mine < theirs else ("shim", "the shim")
    message = (
        f"this core has revision {mine} of its group in the table of cores, the shim has {theirs}: "
        f"start {what} with the newer table"
    )
    facts = {"revision": str(mine), "older": older}
    if moves := _moves_since(state, theirs):
        facts["moves"] = moves
    code = grpc.StatusCode.FAILED_PRECONDITION
    raise CallError(code, "OTHER_TABLE", message, facts=facts)


def _moves_since(state: State, revision: int) -> str:
    """Return the moves of this core's group since a revision as JSON.

    Return "" if other changes than moves were made since then, or too many moves.
    """
    since = [one for one in state.changes if one.revision > revision]
    known = [one.revision for one in since]
    if not since or known != [*range(revision + 1, revision_of(state.assignment) + 1)]:
        return ""
    text = json.dumps([[*one] for one in since])
    return text if len(text) <= _MOVES_CHARACTERS_MAX else ""


def _revision_in(context: Context) -> int:
    """Return the revision in the metadata of a call. Return 0 if the metadata has no readable revision."""
    for key, value in context.invocation_metadata() or ():
        text = value if isinstance(value, str) else ""
        if key == METADATA_KEY and text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX:
            return int(text)
    return 0
