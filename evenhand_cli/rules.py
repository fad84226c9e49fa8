"""The rules of docs/rules, stored with the command.

With the stored rules, `evenhand explain G4` works without a core and without the pages.
"""

import json
import re
from functools import cache
from importlib import resources
from typing import Final, NamedTuple

_FORM: Final = re.compile(r"[A-Z]\d{1,2}")


class Rule(NamedTuple):
    """A rule: its statement, its details, and where to read more."""

    rule: str
    statement: str
    paragraphs: tuple[str, ...]
    page: str
    reason: str = ""
    source: str = ""


@cache
def rules() -> dict[str, Rule]:
    """Return all rules by id."""
    text = resources.files("evenhand_cli").joinpath("rules.json").read_text(encoding="utf-8")
    read: dict[str, dict[str, str]] = json.loads(text)
    return {
        name: Rule(
            name,
            one["statement"],
            tuple(one["paragraphs"]),
            one["page"],
            one.get("reason", ""),
            one.get("source", ""),
        )
        for name, one in read.items()
    }


def is_rule_id(text: str) -> bool:
    """Return whether a text has the form of a rule's id: a capital letter and a number."""
    return _FORM.fullmatch(text) is not None
