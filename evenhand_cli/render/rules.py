"""A rule as text: its statement, the details, the reason, and where to read more."""

import textwrap
from collections.abc import Iterator

from rich.text import Text

from evenhand_cli.rules import Rule

WIDTH_MAX = 80
"""Maximum number of columns of the text of a rule; longer lines are hard to read."""
_INDENT = "    "


def rule(found: Rule, width: int) -> Text:
    """Return a rule as text with lines of at most `width` and at most `WIDTH_MAX` columns."""
    return Text("\n".join(_lines(found, min(width, WIDTH_MAX))))


def _lines(found: Rule, width: int) -> Iterator[str]:
    yield from textwrap.wrap(
        f"{found.rule}  {found.statement}", width, subsequent_indent=" " * (len(found.rule) + 2)
    )
    labelled = (("reason", found.reason), ("source", found.source))
    details = [*found.paragraphs, *(f"{label}: {text}" for label, text in labelled if text)]
    for paragraph in details:
        yield from textwrap.wrap(
            paragraph.replace("**", ""), width, initial_indent=_INDENT, subsequent_indent=_INDENT
        )
    yield f"read on: {found.page}, with examples"
