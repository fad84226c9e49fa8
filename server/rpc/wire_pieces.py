"""Pieces of a message in wire bytes: each is a length-delimited field with its header. Protobuf merges pieces that are joined."""

from typing import Final

_SHORT: Final = 1 << 14
_GROUP: Final = 0x7F
_MORE: Final = 0x80


def varint(number: int) -> bytes:
    """Return a number from 0 on as bytes in base 128, lowest group first."""
    groups = bytearray()
    while number > _GROUP:
        groups.append(number & _GROUP | _MORE)
        number >>= 7
    groups.append(number)
    return bytes(groups)


LENGTHS: Final = tuple(varint(length) for length in range(_SHORT))
"""The encoded lengths that most pieces have."""


def length(size: int) -> bytes:
    """Return the encoded length of a piece."""
    return LENGTHS[size] if size < _SHORT else varint(size)


def record(number: int, body: bytes) -> bytes:
    """Return a length-delimited field."""
    return varint(number << 3 | 2) + length(len(body)) + body


def text(number: int, value: str) -> bytes:
    """Return a string field.

    An empty string is left out, as in proto3.
    """
    return record(number, value.encode()) if value else b""


def number(field: int, value: int) -> bytes:
    """Return a field with a whole number from 0 on."""
    return varint(field << 3) + varint(value)
