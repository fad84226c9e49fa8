"""The first line that `evenhand config show` writes above a configuration. This line names the revision on which a change is based."""

import re
from typing import Final

from server.model.revisions import ANY_BASE, Base

_HEADER: Final = re.compile(r"# revision (\d{1,18})(?: ([0-9a-f]{64}))?\r?\n?")


def header(base: Base) -> str:
    """Return `# revision 7 DIGEST` as a line."""
    return f"# revision {base.number} {base.digest}".rstrip() + "\n"


def without_header(text: str) -> tuple[Base, str]:
    """Return the revision that the first line names, and the text below it.

    If there is no such line, return an empty base and the whole text.
    """
    found = _HEADER.match(text)
    if found is None or (found.end() < len(text) and not found[0].endswith("\n")):
        return ANY_BASE, text
    return Base(int(found[1]), found[2] or ""), text[found.end() :]
