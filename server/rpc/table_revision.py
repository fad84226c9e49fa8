"""The revision that a group has in the table of cores. Registrations carry the revision in their metadata (design 7.6)."""

from typing import Final

import grpc

from server.model.assignment import Assignment
from server.rpc.errors import CallError
from server.rpc.grpc_types import Context

METADATA_KEY: Final = "evenhand-table-revision"
_DIGITS_MAX: Final = 18


def revision_of(assignment: Assignment | None) -> int:
    """Return the revision of a core's group in the table with which the core was started. Return 0 for a core without a table."""
    return 0 if assignment is None else assignment.revision


def check(assignment: Assignment | None, context: Context) -> None:
    """Raise CallError for a registration of a shim that has another revision of the group than this core."""
    mine, theirs = revision_of(assignment), _revision_in(context)
    if mine == theirs:
        return
    older, what = ("core", "the core") if mine < theirs else ("shim", "the shim")
    message = (
        f"this core has revision {mine} of its group in the table of cores, the shim has {theirs}: "
        f"start {what} with the newer table"
    )
    facts = {"revision": str(mine), "older": older}
    code = grpc.StatusCode.FAILED_PRECONDITION
    raise CallError(code, "OTHER_TABLE", message, facts=facts)


def _revision_in(context: Context) -> int:
    """Return the revision in the metadata of a call. Return 0 if the metadata has none that can be read."""
    for key, value in context.invocation_metadata() or ():
        text = value if isinstance(value, str) else ""
        if key == METADATA_KEY and text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX:
            return int(text)
    return 0
