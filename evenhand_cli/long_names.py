"""The shortening of names that are longer than their line. All output to a terminal uses this module for shortening.

A long name is shortened, and not broken over two lines. It is shortened in its middle, because names of one workload
differ at the end. A command that contains such a name is shown in full on a separate line, so that it can be copied.
`--output wide` shows all names in full.
"""

import re
from typing import Final

from rich.cells import cell_len
from rich.text import Text

NOTE: Final = "long names are shortened; --output wide shows them whole"
SIGN, PLAIN_SIGN = "…", "~"
"""The sign for the part of a name that was left out, and the sign on an ASCII output."""
_LEAD: Final = re.compile(r"(?:[│├└─ ]+|[|+`\- ]+ )?")
"""The indent, or the guides of the tree, before a name. This part is never shortened."""
_WORD: Final = re.compile(r"^ *\S+|\S+", re.MULTILINE)
"""The pattern of a word.

The first word of a line includes the indent, because rich breaks no line between indent and word.
"""
_COMMAND: Final = re.compile(r"(evenhand .+?)(?:: (.*))?")
"""The pattern of a command, with the phrase that says what the command is for."""


class Note(Text):
    """A note that says, among other things, that names are shortened."""


def shortened(name: str, width: int, sign: str) -> str:
    """Return a name of at most this width, without its middle when it is longer.

    The indent before the name stays. If the width leaves no space for a character besides the indent and the sign,
    the name is returned unchanged.
    """
    cut = _middle(name, width)
    return f"{name[: cut[0]]}{sign}{name[cut[1] :]}" if cut else name


def has_long_word(text: str, width: int) -> bool:
    """Return whether a word of the text is wider than `width`."""
    return len(text) > width // 2 and any(cell_len(one) > width for one in _WORD.findall(text))


def with_short_words(text: Text, width: int, sign: str) -> Text:
    """Return the text with its styles, and with each word that is wider than `width` shortened in its middle."""
    cuts = []
    for word in _WORD.finditer(text.plain):
        cut = _middle(word[0], width)
        if cut:
            cuts += [word.start() + cut[0], word.start() + cut[1]]
    if not cuts:
        return text
    whole = text.blank_copy()
    for number, piece in enumerate(text.divide(cuts)):
        if number % 2:
            piece.plain = sign
        whole.append_text(piece)
    return whole


def command_in(text: str) -> tuple[str, str]:
    """Return the command with which a text begins, and the phrase after it.

    Return two empty texts if the text begins with no command.
    """
    found = _COMMAND.fullmatch(text)
    return (found[1], found[2] or "") if found else ("", "")


def _middle(name: str, width: int) -> tuple[int, int] | None:
    """Return the first and the last position of the part of a name that is left out to shorten the name.

    Return None if the name is short enough, or cannot be shortened.
    """
    start = _LEAD.match(name).end()  # type: ignore[union-attr] # It matches the empty text, too.
    kept = width - cell_len(name[:start]) - 1
    if cell_len(name) <= width or kept < 1:
        return None
    head, tail = start, len(name)
    head_cells, tail_cells = kept // 2, kept - kept // 2
    while head < tail and cell_len(name[start : head + 1]) <= head_cells:
        head += 1
    while tail > head and cell_len(name[tail - 1 :]) <= tail_cells:
        tail -= 1
    return head, tail
