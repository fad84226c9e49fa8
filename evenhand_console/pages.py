"""The rendering of pages: templates in which every text is escaped for HTML and for control characters."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from evenhand_cli.escaping import escaped
from evenhand_cli.render.amounts import amount, heading, phrase, scale, span
from evenhand_cli.render.words import plural
from evenhand_cli.rules import rules
from evenhand_console.instants import utc
from evenhand_console.refusals import Refusal
from evenhand_console.sharing import Fragment

FOLDER: Final = Path(__file__).parent
TEMPLATES: Final = FOLDER / "templates"


def instant(milliseconds: int) -> Markup:
    """Return an instant in UTC as an HTML element `time`, which has a readable text and a machine-readable attribute.

    Return a dash for 0.
    """
    if not milliseconds:
        return Markup("-")
    at = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return Markup('<time datetime="{}">{}</time>').format(
        at.isoformat(timespec="milliseconds"), utc(milliseconds)
    )


_CODE: Final = re.compile("`([^`]+)`")


def coded(sentence: str) -> Markup:
    """Return a sentence as HTML. Words between backquotes, such as commands and reason codes, become elements `code`."""
    parts = _CODE.split(escaped(sentence))
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts)
    )


def measure(kind: str) -> str:
    """Return the words by which the caption of a table names the unit or the type of its amounts.

    For example, the words are `in cores` above cells without a unit, and `of memory` above cells with a unit.
    """
    return f"{'of' if scale(kind, 0)[1] else 'in'} {heading(kind)}"


def _shown(value: Any) -> Any:  # noqa: ANN401 -- whatever a template writes
    """Return a value in which characters that control a terminal, or reorder text, are escaped."""
    return escaped(value) if isinstance(value, str) and not isinstance(value, Markup) else value


class Pages:
    """The templates, and the values that every template can use."""

    def __init__(self, known: Mapping[str, object]) -> None:
        self._templates = Environment(
            loader=FileSystemLoader(TEMPLATES),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_shown,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {
            "coded": coded,
            "amount": lambda value, kind: amount(kind, value),
            "heading": heading,
            "instant": instant,
            "measure": measure,
            "phrase": phrase,
            "plural": plural,
            "scale": lambda largest, kind: scale(kind, largest),
            "statement": lambda rule: rules()[rule].statement,
            "span": span,
        }
        self._templates.globals.update(known)

    def whole(self, template: str, **values: object) -> str:
        """Return a whole page."""
        return self._templates.get_template(template).render(**values)

    def fragment(self, name: str, read_at: str = "", **values: object) -> Fragment:
        """Return the changing part of the page of a view.

        The last line is the sentence ``read_at``, unless it is empty.
        """
        line = Markup('<p class="as-of">{}</p>\n').format(escaped(read_at)) if read_at else ""
        return Fragment(self.whole(f"views/{name}.html", **values) + line)

    def refused(self, refusal: Refusal, latest: Fragment | None = None) -> Fragment:
        """Return the message that replaces the changing part of a page.

        If there is a ``latest`` good fragment, this fragment follows below the message.
        """
        before = "" if latest is None else Markup(latest.html)  # noqa: S704 -- a rendered template
        html = self.whole("refused.html", refusal=refusal, before=before)
        return Fragment(html, refusal.status)
