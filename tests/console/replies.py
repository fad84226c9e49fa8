"""The replies that views read from a core, as files. `python -m tests.console.record` records these files."""

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, TypeVar

from google.protobuf import json_format, symbol_database
from google.protobuf.message import Message

FOLDER: Final = Path(__file__).parent / "replies"

Read = TypeVar("Read")


def save(name: str, read: Any) -> None:
    """Write the replies that a view read: a dataclass of messages, lists of messages, and None."""
    values = {one.name: _packed(getattr(read, one.name)) for one in fields(read)}
    (FOLDER / f"{name}.json").write_text(json.dumps(values, indent=1, sort_keys=True) + "\n")


def load(kind: type[Read], name: str) -> Read:
    """Return the recorded replies of a view."""
    values = json.loads((FOLDER / f"{name}.json").read_text())
    return kind(**{key: _unpacked(value) for key, value in values.items()})


def _packed(value: Message | Sequence[Message] | None) -> Any:
    if isinstance(value, Message):
        return {"type": value.DESCRIPTOR.full_name, "value": json_format.MessageToDict(value)}
    return None if value is None else [_packed(one) for one in value]


def _unpacked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unpacked(one) for one in value]
    if value is None:
        return None
    message = symbol_database.Default().GetSymbol(value["type"])()
    return json_format.ParseDict(value["value"], message)
