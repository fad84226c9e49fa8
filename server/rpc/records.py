"""Pieces of wire bytes: a length-delimited field with its header. Protobuf merges what is joined."""

from typing import Final

_SHORT: Final = 1 << 14
_GROUP: Final = 0x7F
_MORE: Final = 0x80


def varint(number: int) -> bytes:
    """Base 128, lowest group first; the number is not negative."""
    groups = bytearray()
    while number > _GROUP:
        groups.append(number & _GROUP | _MORE)
        number >>= 7
    groups.append(number)
    return bytes(groups)


LENGTHS: Final = tuple(varint(length) for length in range(_SHORT))
"""Encoded lengths, for those that a piece usually has."""


def length(size: int) -> bytes:
    """The encoded length of a piece."""
    return LENGTHS[size] if size < _SHORT else varint(size)


def record(number: int, body: bytes) -> bytes:
    """One length-delimited field."""
    return varint(number << 3 | 2) + length(len(body)) + body


def text(number: int, value: str) -> bytes:
    """A string field; an empty string is not sent, as proto3 has it."""
    return record(number, value.encode()) if value else b""
