"""Output forms of a result: a table for users; JSON, YAML or names for scripts.

The JSON keys are the field names of `proto/evenhand/v1`. Numbers are exact. JSON output is one object, and nothing else
is written to the output stream. Every field is present, even an empty one, so that scripts can rely on it. The value of
an enumeration is a word in lower case (`active`, `error`). YAML has the same keys as JSON.
"""

import enum
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, cast

import typer
from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message
from rich.console import Console, RenderableType
from rich.text import Text

from evenhand_cli import terminal
from evenhand_cli.escaping import EscapingConsole, acts, escaped_json
from evenhand_cli.faults import ExitCode, Fault
from evenhand_cli.long_names import NOTE


class Form(enum.StrEnum):
    """The form of the output."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"

    @property
    def is_data(self) -> bool:
        """Return whether the form is for programs and has every field."""
        return self in {Form.JSON, Form.YAML}


Output = Annotated[
    Form,
    typer.Option(
        "--output",
        "-o",
        help="Form of the output: table; wide, a table with all columns; json or yaml, with all fields; name, one "
        "name per line.",
        show_default=True,
    ),
]


def show(
    form: Form, value: Mapping[str, Any], picture: Callable[[Console], RenderableType]
) -> None:
    """Write a result as data, or as the text that `picture` returns.

    Raises Fault for the form `name`, because only listings have names.
    """
    if form is Form.NAME:
        raise no_names()
    if form.is_data:
        write(form, value)
        return
    console = console_for(form)
    write_picture(console, picture(console))


def write_picture(console: EscapingConsole, picture: RenderableType) -> None:
    """Write a picture. If names in the picture are shortened and the picture has no note about this, write a note below it."""
    console.has_shortened = console.has_note = False
    console.print(picture, crop=False)
    if console.lacks_note:
        console.print(Text(NOTE, style="faint"))


def no_names() -> Fault:
    """Return the Fault for `--output name` with a command that is not a listing."""
    return Fault(
        "there are no names to list here",
        where="--output name",
        advice="`name` is for listings, such as `evenhand allocations -o name`",
        code=ExitCode.USAGE,
    )


def console_for(form: Form) -> EscapingConsole:
    """Return a console for the output stream.

    The console is as wide as the terminal or, for `wide`, as wide as the columns need.
    """
    return terminal.results(terminal.UNLIMITED if form is Form.WIDE else None)


def write(form: Form, value: Mapping[str, Any]) -> None:
    """Write one result as data."""
    if form is Form.YAML:
        write_yaml(value)
    else:
        write_json(value)


def write_next(form: Form, value: Mapping[str, Any]) -> None:
    """Write one of several results, as a line of JSON or a document of YAML, and flush the output."""
    if form is Form.YAML:
        sys.stdout.write("---\n")
        write_yaml(value)
        sys.stdout.flush()
    else:
        write_json_line(value)


def write_json(value: Mapping[str, Any]) -> None:
    """Write one JSON object."""
    sys.stdout.write(escaped_json(json.dumps(value, indent=2, ensure_ascii=False)) + "\n")


def write_yaml(value: Mapping[str, Any]) -> None:
    """Write one YAML document, its keys in the order of the JSON output."""
    import yaml  # noqa: PLC0415 - takes as long as a whole query; most outputs are no YAML

    def dumped(*, allow_unicode: bool) -> str:
        return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=allow_unicode, width=120))

    text = dumped(allow_unicode=True)
    sys.stdout.write(dumped(allow_unicode=False) if acts(text) else text)


def write_json_line(value: Mapping[str, Any]) -> None:
    """Write one JSON object as one line of a stream, and flush it."""
    sys.stdout.write(escaped_json(json.dumps(value, ensure_ascii=False)) + "\n")
    sys.stdout.flush()


def plain(message: Message) -> dict[str, Any]:
    """Return a message as plain values: all fields, exact whole numbers, None for an absent message."""
    fields = cast("Sequence[FieldDescriptor]", message.DESCRIPTOR.fields)
    return {field.name: _field(message, field) for field in fields}


def plain_all(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return several messages as plain values."""
    return [plain(message) for message in messages]


def word(descriptor: EnumDescriptor, number: int) -> str:
    """Return the word of an enumeration's value: `active` for `QUEUE_STATE_ACTIVE`."""
    value = descriptor.values_by_number.get(number)
    if value is None:
        return str(number)
    prefix = descriptor.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return value.name.removeprefix(prefix).lower()


def _field(message: Message, field: FieldDescriptor) -> Any:  # noqa: ANN401
    value = getattr(message, field.name)
    if not field.is_repeated:
        if field.has_presence and not message.HasField(field.name):
            return None
        return _value(field, value)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        inner = field.message_type.fields_by_name["value"]
        return {str(key): _value(inner, value[key]) for key in sorted(value)}
    return [_value(field, one) for one in value]


def _value(field: FieldDescriptor, value: Any) -> Any:  # noqa: ANN401
    if field.message_type is not None:
        return plain(value)
    return word(field.enum_type, value) if field.enum_type is not None else value
