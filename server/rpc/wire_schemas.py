"""Message classes for reading parts of the wire's messages quickly. These classes have the same field numbers as the wire.

An AllocationRequest is parsed twice, each time by C code only. The first parsing, by the class `Envelope`, reads the fields
that differ from ask to ask: key, application, node, start. The second parsing, by a `Slicer`, removes these fields from each
ask and returns the bytes of other fields. One slicer returns the tags of each ask. Another slicer returns the *template*: all
fields that the pods of one Deployment or job have in common. Because these pods have equal templates, the bytes of the template
are used as the key of a cache.

Sub-messages are declared as repeated bytes. A client may send a sub-message in several parts, and then all parts are read.
Joining the parts gives the same message as the merge that protobuf prescribes.

The classes are in a descriptor pool of their own, so that neither reflection nor the generated classes see them.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol, Self, cast

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.message import Message


class AskHead(Protocol):
    """The fields in which the asks of one template differ."""

    key: str
    application: str


class Head(AskHead, Protocol):
    """The fields in which the allocations of one template differ.

    An allocation with a node exists already, and may have its start in Unix ms.
    """

    node: str
    started: int


class Request(Protocol):
    """An AllocationRequest as `Envelope` reads it. Asks and allocations have only the fields of `Head`.

    All other objects are bytes.
    """

    manager: str
    asks: Sequence[Head]
    allocations: Sequence[Head]
    releases: Sequence[bytes]
    vetoes: Sequence[bytes]
    budgets: Sequence[bytes]
    answers: Sequence[bytes]

    @classmethod
    def FromString(cls, data: bytes) -> Self:  # noqa: N802 - protobuf's name
        """Parse a message.

        Raise DecodeError for malformed bytes. The tags are checked as protobuf checks them in a whole message.
        """
        ...


Column = tuple[int, str]
"""The field number and declared type: a scalar's name, `bytes*` or `string*` (repeated), or a message's name with `*`."""

_SCALARS: Final = {
    "string": Field.TYPE_STRING,
    "bytes": Field.TYPE_BYTES,
    "int32": Field.TYPE_INT32,
    "int64": Field.TYPE_INT64,
    "bool": Field.TYPE_BOOL,
}

_NOWHERE: Final = (1 << 29) - 1
"""A field number that is never sent.

The number is used for the node of an `AllocationAsk`, which has no node, but is read like an `Allocation`.
"""

_ENTRY: Final[Mapping[str, Column]] = {"key": (1, "string"), "value": (2, "string")}
_ASK_HEAD: Final[Mapping[str, Column]] = {
    "key": (1, "string"),
    "application": (2, "string"),
    "tags": (8, "Entry*"),
    "node": (_NOWHERE, "string"),
}
_ALLOCATION_HEAD: Final[Mapping[str, Column]] = {
    "key": (1, "string"),
    "tags": (2, "Entry*"),
    "uuid": (3, "string"),
    "node": (8, "string"),
    "application": (9, "string"),
    "started": (105, "int64"),
}
_ASK_TEMPLATE: Final[Mapping[str, Column]] = {
    "partition": (3, "string"),
    "resource": (4, "bytes*"),
    "maximum": (5, "int32"),
    "priority": (6, "int32"),
    "timeout": (7, "int64"),
    "group": (9, "string"),
    "placeholder": (10, "bool"),
    "originator": (11, "bool"),
    "policy": (12, "bytes*"),
    "constraints": (100, "bytes*"),
    "job": (101, "string"),
    "members": (102, "int32"),
    "protection": (103, "int32"),
    "disruption": (104, "string*"),
    "grace": (106, "int64"),
    "check": (107, "bool"),
    "trigger": (109, "int32"),
    "answers": (110, "bool"),
    "preferences": (111, "bytes*"),
}
_ALLOCATION_TEMPLATE: Final[Mapping[str, Column]] = {
    "resource": (5, "bytes*"),
    "priority": (6, "int32"),
    "partition": (10, "string"),
    "group": (11, "string"),
    "placeholder": (12, "bool"),
    "originator": (14, "bool"),
    "policy": (15, "bytes*"),
    "constraints": (100, "bytes*"),
    "job": (101, "string"),
    "members": (102, "int32"),
    "protection": (103, "int32"),
    "disruption": (104, "string*"),
    "grace": (106, "int64"),
    "check": (107, "bool"),
    "releasing": (108, "bytes*"),
    "trigger": (109, "int32"),
    "answers": (110, "bool"),
    "preferences": (111, "bytes*"),
}


def _classes(
    package: str, messages: Mapping[str, Mapping[str, Column]]
) -> dict[str, type[Message]]:
    """Return the message classes with these names and fields. Their schema is known only in this module."""
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{package}.proto", package=package, syntax="proto3"
    )
    for name, columns in messages.items():
        message = file.message_type.add(name=name)
        for field, (number, declared) in columns.items():
            kind = declared.removesuffix("*")
            entry = message.field.add(
                name=field,
                number=number,
                label=Field.LABEL_REPEATED if declared.endswith("*") else Field.LABEL_OPTIONAL,
                type=_SCALARS.get(kind, Field.TYPE_MESSAGE),
            )
            if kind not in _SCALARS:
                entry.type_name = f".{package}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in messages
    }


_ENVELOPE: Final[Mapping[str, Mapping[str, Column]]] = {
    "Entry": _ENTRY,
    "Ask": _ASK_HEAD,
    "Allocation": _ALLOCATION_HEAD,
    "Request": {
        "asks": (1, "Ask*"),
        "releases": (2, "bytes*"),
        "manager": (3, "string"),
        "allocations": (4, "Allocation*"),
        "vetoes": (100, "bytes*"),
        "budgets": (101, "bytes*"),
        "answers": (102, "bytes*"),
    },
}

Envelope: Final = cast("type[Request]", _classes("envelope", _ENVELOPE)["Request"])


class _Parts(Protocol):
    """The asks or allocations of a message as bytes."""

    parts: Sequence[bytes]

    @classmethod
    def FromString(cls, data: bytes) -> Self:  # noqa: N802 - protobuf's name
        ...


_TWO_BYTES: Final = 1 << 14
_LONG: Final = 0x80


class Slicer:
    """The function that returns the asks or allocations of a message, each reduced to the given fields.

    The field number of the asks or allocations is below 16.
    """

    def __init__(self, package: str, number: int, columns: Mapping[str, Column]) -> None:
        cut: dict[str, Mapping[str, Column]] = {
            "Part": columns,
            "Request": {"parts": (number, "Part*")},
        }
        whole: dict[str, Mapping[str, Column]] = {"Request": {"parts": (number, "bytes*")}}
        self._cut = _classes(package, cut)["Request"]
        self._parts = cast("type[_Parts]", _classes(f"{package}.whole", whole)["Request"])

    def __call__(self, data: bytes, count: int) -> Sequence[bytes]:
        """Return the bytes of the given fields for each of the ``count`` asks or allocations, in the order of the message."""
        message = self._cut.FromString(data)
        message.DiscardUnknownFields()
        left = message.SerializeToString()
        if count == 1 and len(left) < _TWO_BYTES:
            # The first byte names the field. The length takes one or two bytes.
            return (left[2 if left[1] < _LONG else 3 :],)
        return self._parts.FromString(left).parts[:]


ASK_TAGS: Final = Slicer("tags.asks", 1, {"tags": (8, "bytes*")})
ASK_TEMPLATES: Final = Slicer("templates.asks", 1, _ASK_TEMPLATE)
ALLOCATION_TAGS: Final = Slicer("tags.allocations", 4, {"tags": (2, "bytes*")})
ALLOCATION_TEMPLATES: Final = Slicer("templates.allocations", 4, _ALLOCATION_TEMPLATE)
