"""Table or JSON. The JSON keys are the field names of `proto/evenhand/v1`; numbers are exact.

JSON is one object on the output stream and nothing else. Every field is there, empty or not, so that
a script may rely on it. Enumerations are their value's word in lower case (`active`, `error`).
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

from evenhand_cli import terminal


class Form(enum.StrEnum):
    """How results are written."""

    TABLE = "table"
    JSON = "json"


Output = Annotated[
    Form, typer.Option("--output", "-o", help="Form of the result.", show_default=True)
]


def show(
    form: Form, value: Mapping[str, Any], picture: Callable[[Console], RenderableType]
) -> None:
    """Writes a result: its value as JSON, or the picture made for the console at hand."""
    if form is Form.JSON:
        write_json(value)
        return
    console = terminal.results()
    console.print(picture(console))


def write_json(value: Mapping[str, Any]) -> None:
    """Writes one JSON object."""
    json.dump(value, sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


def write_json_line(value: Mapping[str, Any]) -> None:
    """Writes one JSON object as one line of a stream, at once."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def plain(message: Message) -> dict[str, Any]:
    """A message as plain values: all its fields, exact whole numbers, None for an absent part."""
    fields = cast("Sequence[FieldDescriptor]", message.DESCRIPTOR.fields)
    return {field.name: _field(message, field) for field in fields}


def plain_all(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Several messages as plain values."""
    return [plain(message) for message in messages]


def word(descriptor: EnumDescriptor, number: int) -> str:
    """The word of an enumeration's value: `QUEUE_STATE_ACTIVE` is `active`."""
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
