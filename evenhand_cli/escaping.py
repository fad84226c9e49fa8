"""The escaping of characters that a terminal obeys instead of showing them.

A terminal obeys control characters (C0, C1, DEL) and characters that reorder text. The core shows names and texts
that its clients have sent. Without escaping, `ESC [2J` in a pod's name would clear the user's screen.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from evenhand_cli.long_names import PLAIN_SIGN, SIGN, Note, has_long_word, with_short_words

_ACTING: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)
"""Characters that a terminal obeys, except tabs and line ends."""
_ONE_BYTE: Final = 0x100


def acts(text: str) -> bool:
    """Return whether the text contains a character that a terminal obeys instead of showing it."""
    return not text.isprintable() and _ACTING.search(text) is not None


def escaped(text: str) -> str:
    """Return the text with each character that a terminal obeys replaced by its hexadecimal code."""
    return _ACTING.sub(_code, text) if acts(text) else text


def escaped_json(text: str) -> str:
    """Return a JSON text with the values of the given JSON text.

    Characters that control a terminal are written as JSON escapes. Escapes are possible because these characters occur
    only in strings.
    """
    return _ACTING.sub(lambda found: f"\\u{ord(found[0]):04x}", text) if acts(text) else text


class EscapingConsole(Console):
    """A console that escapes every text before it computes the layout; the console's own colours stay.

    A text is shown as it is: brackets in it are no markup, and words between colons no emoji. Names that are longer than
    their line are shortened.
    """

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - the options of a Console
        super().__init__(markup=False, emoji=False, **options)
        self.has_shortened = False
        """Whether a name outside of tables was shortened."""
        self.has_note = False
        """Whether the note below a table says that names are shortened."""

    @property
    def lacks_note(self) -> bool:
        """Whether a name was shortened and no note says so."""
        return self.has_shortened and not self.has_note

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Compute the layout of a renderable after escaping its text; each nested part is escaped by this method, too."""
        self.has_note |= isinstance(renderable, Note)
        if isinstance(renderable, Text):
            renderable = escaped_text(renderable)
        elif isinstance(renderable, str):
            renderable = Text(escaped(renderable))
        if isinstance(renderable, Text):
            renderable = self._without_long_words(renderable, options or self.options)
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=escaped(segment.text))

    def _without_long_words(self, text: Text, options: ConsoleOptions) -> Text:
        """Return the text, with long names shortened. A text that is not to be broken into lines is returned unchanged."""
        no_wrap = options.no_wrap if text.no_wrap is None else text.no_wrap
        if no_wrap or not has_long_word(text.plain, options.max_width):
            return text
        sign = PLAIN_SIGN if options.ascii_only else SIGN
        short = with_short_words(text, options.max_width, sign)
        self.has_shortened |= short is not text
        return short


def escaped_text(text: Text) -> Text:
    """Return the text with its styles, and with each character that a terminal obeys replaced by its hexadecimal code."""
    if not acts(text.plain):
        return text
    cuts = [at for found in _ACTING.finditer(text.plain) for at in found.span()]
    whole = text.blank_copy()
    for piece in text.divide(cuts):
        piece.plain = escaped(piece.plain)
        whole.append_text(piece)
    return whole


def _code(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < _ONE_BYTE else f"\\u{number:04x}"
