"""The picture of a demonstration: rich's SVG export at a fixed width, without external resources."""

import re
from io import StringIO
from pathlib import Path

from rich.console import Console, RenderableType

from evenhand_cli.escaping import EscapingConsole
from evenhand_cli.faults import Fault
from evenhand_cli.terminal import THEME

WIDTH = 120
TITLE = "make demo"
FONT_FACES = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def picture_console() -> Console:
    """Return a console that records its output and has the same size on every machine."""
    return EscapingConsole(
        record=True,
        width=WIDTH,
        file=StringIO(),
        force_terminal=True,
        color_system="truecolor",
        legacy_windows=False,
        no_color=False,
        theme=THEME,
        highlight=False,
        _environ={},
    )


def write_picture(path: Path, console: Console, *parts: RenderableType) -> None:
    """Draw the parts into an SVG file, one below the other. Raises Fault when the file cannot be written."""
    console.print(*parts, sep="\n")
    drawn = console.export_svg(title=TITLE, unique_id="evenhand")
    try:
        path.write_text(FONT_FACES.sub("", drawn), encoding="utf-8")
    except OSError as error:
        raise Fault(
            f"cannot write {path}: {(error.strerror or str(error)).lower()}",
            where="--picture",
            advice="name a file in a folder that exists",
        ) from error
