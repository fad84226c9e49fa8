"""Suggestions for an unknown name: known names that are similar."""

import difflib
from collections.abc import Iterable

MATCHES_MAX = 3
SIMILARITY = 0.6


def near_matches(name: str, known: Iterable[str]) -> str:
    """Return a sentence that offers similar names; empty when no name is similar."""
    names = sorted({one for one in known if one})
    holding = [one for one in names if name and name in one]
    alike = difflib.get_close_matches(name, names, MATCHES_MAX, SIMILARITY)
    found = list(dict.fromkeys([*alike, *holding]))[:MATCHES_MAX]
    return f"did you mean {' or '.join(f'`{one}`' for one in found)}?" if found else ""
