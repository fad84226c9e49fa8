"""Forms of pages that were opened before the console started, or before a log-in or log-out.

An outdated form has no effect. The console offers the text of the form to be sent again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from evenhand_console.what_if import unified, why_not_editable

TITLE: Final = "Send the form again"
_PODS: Final = ("/what-if/pods", "text", "Pods, workloads and asks")
_CONFIGURATION: Final = ("/what-if/configuration", "yaml", "queues.yaml")
_AGAIN: Final = {
    "/what-if/pods": _PODS,
    "/what-if/configuration": _CONFIGURATION,
    # The proof that the visitor has seen an answer is as old as the form: the answer has to be shown once more.
    "/what-if/apply": _CONFIGURATION,
}
"""For each address of a form: the address to which the form is sent again, and the field name and label of its text."""
_KEPT: Final = ("queue", "namespace", "priority", "base_revision", "base_digest", "origin")


class StaleFormError(Exception):
    """The error for a form of the console whose mark is not valid any more. The error has the fields of the form."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        super().__init__("the mark of the form is old")
        self.fields = fields


@dataclass(frozen=True, slots=True)
class Page:
    """The values of the page about an outdated form. The path is empty if the form has no text to be sent again."""

    path: str
    name: str = ""
    label: str = ""
    text: str = ""
    hidden: tuple[tuple[str, str], ...] = ()
    applies: bool = False
    not_editable: str = ""
    back: str = ""


def page_of(sent_to: str, fields: Mapping[str, str], back: str) -> Page:
    """Return the page on which a form can be sent again. ``back`` is the address of the page that has the form."""
    if sent_to not in _AGAIN:
        return Page("", back=back)
    path, name, label = _AGAIN[sent_to]
    text = unified(fields.get(name, ""))
    return Page(
        path,
        name,
        label,
        text,
        hidden=tuple((one, fields[one]) for one in _KEPT if one in fields),
        applies=path != sent_to,
        not_editable=why_not_editable(text),
    )
