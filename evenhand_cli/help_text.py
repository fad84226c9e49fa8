"""The help of a command as text: description, examples, arguments, options, and a line about connection options.

The block `Examples:` of a docstring is shown unchanged.
"""

import enum
import inspect
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

WIDTH_MAX = 100
WIDTH_MIN = 60
INDENT = 2
NAMES_MAX = 30
"""Number of columns for names to the left of help texts; a longer name is on a separate line."""
CONNECTION = "Connection"
EXAMPLES = "Examples:"
KINDS = {int: "N", float: "NUMBER", str: "TEXT"}

Rows = Sequence[tuple[str, str]]


def command(shown: Any, ctx: Any) -> str:  # noqa: ANN401 - a command of Typer
    """Return the help of one command."""
    parts = [usage(shown, ctx), *described(shown.help or ""), *_parameters(shown, ctx)]
    return "\n\n".join(parts) + "\n"


def group(shown: Any, ctx: Any) -> str:  # noqa: ANN401
    """Return the help of a group: its commands under the headings to which they belong, then its options."""
    parts = [usage(shown, ctx), *described(shown.help or "")]
    panels: dict[str, list[tuple[str, str]]] = {}
    for name in shown.list_commands(ctx):
        one = shown.get_command(ctx, name)
        if not one.hidden:
            panel = getattr(one, "rich_help_panel", None) or "Commands"
            panels.setdefault(panel, []).append((name, summary(one.help or "")))
    parts += [_section(title, rows) for title, rows in panels.items()]
    parts += _parameters(shown, ctx)
    parts += [_wrapped(shown.epilog)] if shown.epilog else []
    return "\n\n".join(parts) + "\n"


def connection(shown: Any) -> str:  # noqa: ANN401
    """Return the help about the connection options of a command."""
    rows = [_option(one) for one in shown.params if one.rich_help_panel == CONNECTION]
    about = (
        "Options of every command that asks a core. They may stand before or after the command."
        " An option takes precedence over its environment variable, and the variable over the current context"
        " (evenhand context --help)."
    )
    return "\n\n".join([_wrapped(about), _section(CONNECTION, rows)]) + "\n"


def usage(shown: Any, ctx: Any) -> str:  # noqa: ANN401
    """Return the line `Usage: evenhand explain [OPTIONS] KEY`."""
    arguments = [_argument_name(one) for one in shown.params if not _is_option(one)]
    pieces = arguments if not hasattr(shown, "list_commands") else ["COMMAND", "[ARGS]..."]
    return " ".join([f"Usage: {ctx.command_path}", "[OPTIONS]", *pieces])


def summary(help_: str) -> str:
    """Return the first paragraph of a help text in one line."""
    return " ".join(inspect.cleandoc(help_).split("\n\n", maxsplit=1)[0].split())


def described(help_: str) -> Iterator[str]:
    """Yield the paragraphs of a help text; a block of examples keeps its lines."""
    for paragraph in inspect.cleandoc(help_).split("\n\n"):
        if paragraph.startswith(EXAMPLES):
            yield "\n".join(
                line.replace("    ", " " * INDENT, 1) for line in paragraph.splitlines()
            )
        elif paragraph.strip():
            yield _wrapped(paragraph)


def _parameters(shown: Any, ctx: Any) -> Iterator[str]:  # noqa: ANN401
    """Yield the sections of arguments and options; one line replaces the connection options."""
    params = [one for one in shown.get_params(ctx) if not getattr(one, "hidden", False)]
    arguments = [(_argument_name(one), one.help or "") for one in params if not _is_option(one)]
    if arguments:
        yield _section("Arguments", arguments)
    options = [one for one in params if _is_option(one)]
    own = [_option(one) for one in options if one.rich_help_panel != CONNECTION]
    if own:
        yield _section("Options", own)
    folded = [one.opts[0] for one in options if one.rich_help_panel == CONNECTION]
    if folded:
        names = textwrap.wrap(" ".join(folded), _width() - INDENT)
        title = f"{CONNECTION} (in full: evenhand help connection):"
        yield "\n".join([title, *(" " * INDENT + line for line in names)])


def _is_option(param: Any) -> bool:  # noqa: ANN401
    return bool(param.param_type_name == "option")


def _argument_name(param: Any) -> str:  # noqa: ANN401
    name = param.metavar or param.name.upper()
    several = "..." if param.nargs == -1 else ""
    return f"{name}{several}" if param.required else f"[{name}]{several}"


def _option(param: Any) -> tuple[str, str]:  # noqa: ANN401
    """Return an option's names with the placeholder of its value, and its help text."""
    names = ", ".join(sorted((*param.opts, *param.secondary_opts), key=len))
    value = "" if param.is_flag else f" {_value_name(param)}"
    variable = [f"[env: {param.envvar}]"] if param.envvar else []
    default = _default(param)
    told = [param.help or "", *variable, *([f"[default: {default}]"] if default else [])]
    return f"{names}{value}", " ".join(filter(None, told))


def _value_name(param: Any) -> str:  # noqa: ANN401
    if param.metavar:
        return str(param.metavar)
    described_type = param.type_descriptor
    if described_type.choices is not None:
        return "|".join(_word(one) for one in described_type.choices)
    return KINDS.get(described_type.annotation, "FILE" if described_type.is_path else "TEXT")


def _default(param: Any) -> str:  # noqa: ANN401
    value = param.default
    if param.is_flag or not param.show_default or not value or callable(value):
        return ""
    return _word(value)


def _word(value: Any) -> str:  # noqa: ANN401
    return str(value.value if isinstance(value, enum.Enum) else value)


def _section(title: str, rows: Rows) -> str:
    """Return a titled list of names, each with its text to the right of it."""
    beside = min(max(len(name) for name, _ in rows), NAMES_MAX) + 2 * INDENT
    lines = [f"{title}:", *(line for row in rows for line in _row(*row, beside))]
    return "\n".join(lines)


def _row(name: str, text: str, beside: int) -> Iterable[str]:
    lead = " " * INDENT + name
    lines = textwrap.wrap(" ".join(text.split()), _width() - beside) or [""]
    if len(lead) > beside - INDENT:
        return [lead, *(" " * beside + line for line in lines)]
    return [f"{lead:<{beside}}{lines[0]}".rstrip(), *(" " * beside + line for line in lines[1:])]


def _wrapped(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), _width(), break_on_hyphens=False)


def _width() -> int:
    return max(min(shutil.get_terminal_size().columns, WIDTH_MAX), WIDTH_MIN)
