"""The encoding of single fields of a protobuf message.

The bytes of fields can be joined, because a message is the sequence of its fields.
"""

from typing import Final

_SHORT: Final = 1 << 14
_GROUP: Final = 0x7F
_MORE: Final = 0x80


def varint(number: int) -> bytes:
    """Return the protobuf varint of a number that is not negative: seven bits in each byte, the lowest bits first."""
    groups = bytearray()
    while number > _GROUP:
        groups.append(number & _GROUP | _MORE)
        number >>= 7
    groups.append(number)
    return bytes(groups)


LENGTHS: Final = tuple(varint(length) for length in range(_SHORT))
"""The encodings of all lengths below `_SHORT`. Most fields have such a length."""


def length(size: int) -> bytes:
    """Return the encoding of a field's length."""
    return LENGTHS[size] if size < _SHORT else varint(size)


def record(number: int, body: bytes) -> bytes:
    """Return the bytes of a length-delimited field, such as a sub-message, with this field number and content."""
    return varint(number << 3 | 2) + length(len(body)) + body


def text(number: int, value: str) -> bytes:
    """Return the bytes of a string field. Return b"" for an empty string, which proto3 leaves out."""
    return record(number, value.encode()) if value else b""


def number(field: int, value: int) -> bytes:
    """Return the bytes of a field with a whole number that is not negative."""
    return varint(field << 3) + varint(value)
