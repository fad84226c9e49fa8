"""The pages that say why a page cannot be shown.

A page cannot be shown if the core does not answer or is behind, if the role may not see the page, or if the object
does not exist.
"""

from dataclasses import dataclass
from typing import Final

import grpc

from evenhand_cli.faults import Fault
from evenhand_console.reading import LogInFault, reason, status_of


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a page cannot be shown: the HTTP status, a title, what happened, where it happened, and what to do."""

    status: int
    title: str
    what: str
    where: str = ""
    advice: str = ""
    log_in: bool = False
    """Whether the page offers the log-in."""


_AWAY: Final = (503, "The core does not answer")
_KINDS: Final = {
    grpc.StatusCode.UNAVAILABLE: _AWAY,
    grpc.StatusCode.DEADLINE_EXCEEDED: _AWAY,
    grpc.StatusCode.UNAUTHENTICATED: (401, "Log in to see this page"),
    grpc.StatusCode.PERMISSION_DENIED: (403, "Your role may not see this page"),
    grpc.StatusCode.NOT_FOUND: (404, "There is nothing of this name"),
    grpc.StatusCode.INVALID_ARGUMENT: (
        400,
        "The core does not understand the address of this page",
    ),
    grpc.StatusCode.RESOURCE_EXHAUSTED: (503, "The core has too much to do"),
}
_BEHIND: Final = (503, "This core is behind the one that decides")
_ELSE: Final = (502, "The core refused to answer")
_RETRIED: Final = "This page tries again by itself. "
_LOG_IN: Final = "Log in with a token: one line of the file that the core reads with --tokens."
_OTHER_ROLE: Final = (
    "Log in with the token of a role that may. The user guide lists what each role may see (Roles)."
)


def refusal_of(fault: Fault) -> Refusal:
    """Return the refusal that describes a fault."""
    if isinstance(fault, LogInFault):
        code, title = _KINDS[grpc.StatusCode.UNAUTHENTICATED]
        return Refusal(code, title, fault.what, advice=_LOG_IN, log_in=True)
    status = status_of(fault)
    if status is None:
        return Refusal(
            404 if fault.where.startswith("argument") else 502,
            fault.what,
            fault.where,
            advice=fault.advice,
        )
    code, title = _KINDS.get(status, _ELSE)
    if reason(fault) == "FOLLOWER_BEHIND":
        code, title = _BEHIND
    advice = fault.advice
    if code == 503:  # noqa: PLR2004
        advice = f"{_RETRIED}If it lasts: {advice}" if advice else _RETRIED.strip()
    if code == 401:  # noqa: PLR2004
        advice = _LOG_IN
    if code == 403:  # noqa: PLR2004
        advice = _OTHER_ROLE
    return Refusal(code, title, fault.what, fault.where, advice, log_in=code in {401, 403})


NO_PAGE: Final = Refusal(
    404,
    "There is no such page",
    "The console has no page at this address.",
    advice="Choose one of the pages above.",
)
WRONG_HOST: Final = Refusal(
    421,
    "The console is not known by this name",
    "The browser asked for another host than the console's own. This protects against pages that point a name of"
    " their own at the console.",
    advice="Start the console with --origin and the address that browsers use.",
)
OTHER_SITE: Final = Refusal(
    403,
    "The form came from another page",
    "The console takes forms only from its own pages, and this one lacks the console's mark, or the mark is old.",
    advice="Go back, load the page again, and send the form again.",
)
TOO_MANY: Final = Refusal(
    503,
    "Too many pages are open",
    "The console keeps a limited number of different pages up to date.",
    advice="Close some, or load this page again later.",
)
TOO_MANY_TEXTS: Final = Refusal(
    503,
    "Too many texts are sent at the same time",
    "The console reads a limited number of configurations and pods at a time.",
    advice="Go back, and send the form again.",
)
FAILED: Final = Refusal(
    500,
    "The console failed",
    "This is a defect of the console. The core is not affected.",
    advice="Please report it with the lines that the console wrote on its error stream.",
)
