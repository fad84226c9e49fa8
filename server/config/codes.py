"""The stable codes of warnings. A partition may silence a code in `ignorewarnings`. docs/configuration.md lists the codes."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Final

CODES: Final = (
    "access-nobody",
    "backoff-unused",
    "child-guarantees-less",
    "cpu-is-vcore",
    "delay-default",
    "delay-unused",
    "expiry-short",
    "filter-denies-all",
    "firm-broken",
    "firm-not-broken",
    "job-unused",
    "limit-per-user",
    "max-equals-guarantee",
    "max-zero",
    "natural-every-tick",
    "natural-unused",
    "order-unused",
    "pace-every-tick",
    "parent-false",
    "proportion-unused",
    "quota-delay-seconds",
    "quota-not-enabled",
    "reservations-off",
    "reservations-short",
    "shadow-idle",
    "shadow-unused",
    "soft-delivery",
    "stateaware-is-fifo",
    "template-at-leaf",
    "template-quota-delay",
    "trigger-needs-label",
    "value-ignored",
    "weight-unused",
    "window-unused",
)


def unknown(code: str, known: Sequence[str] = CODES) -> str:
    """Return a message that says that the code does not exist, and names the most similar existing code.

    Return "" if the code exists.
    """
    if code in known:
        return ""
    close = get_close_matches(code.lower(), known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
    return f"there is no warning with the code {code!r}, {hint}"


def counted(codes: Iterable[str]) -> dict[str, int]:
    """Return how often each code occurs, sorted by code."""
    found: dict[str, int] = {}
    for code in sorted(codes):
        found[code] = found.get(code, 0) + 1
    return found
