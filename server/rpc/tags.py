"""The tags of asks and allocations in their wire form.

A `Tags` value is empty or holds one item: the bytes of all entries with their field header, unchanged from the message. The
header shows the generation of the interface: an `Allocation` has its tags in field 2, an `AllocationAsk` in field 8. Tags are
decoded only when they are read (design 6.14). The core uses only three tags.
"""

from collections.abc import Mapping
from typing import Final

from server.model.asks import Tags
from server.rpc.limits import SECONDS_MAX
from si.v1 import si_pb2

CREATION: Final = "creationTime"
REQUIRED_NODE: Final = "yunikorn.apache.org/requiredNode"
FOREIGN: Final = "foreign"
FOREIGN_STATIC: Final = "static"

CREATION_ENTRY: Final = b"\n\x0ccreationTime\x12"
"""The beginning of the entry `creationTime`. Every serializer writes these bytes first, and then the length and text of the value."""
CREATION_WORD: Final = CREATION.encode()
REQUIRED_NODE_WORD: Final = REQUIRED_NODE.encode()
_ASK_HEADER: Final = 0x42
_ALLOCATION_HEADER: Final = b"\x12"
_LONG: Final = 0x80
_DIGITS_MAX: Final = len(str(SECONDS_MAX))


def decoded(tags: Tags) -> Mapping[str, str]:
    """Return all tags. The bytes are well-formed, because the codec has refused malformed messages."""
    raw = b"".join(tags)
    if raw[:1] == bytes([_ASK_HEADER]):
        return dict(si_pb2.AllocationAsk.FromString(raw).tags)
    return dict(si_pb2.Allocation.FromString(raw).allocationTags)


def as_allocation_tags(raw: bytes) -> bytes:
    """Return encoded entries of either generation of the interface as entries of field 2 of an `Allocation`."""
    if not raw or raw[0] != _ASK_HEADER:
        return raw
    entries, at, end = [], 1, len(raw)
    while at < end:
        size = raw[at]
        if size >= _LONG:
            return _decoded_as_allocation_tags(raw)
        entries.append(raw[at : at + 1 + size])
        at += size + 2
    return _ALLOCATION_HEADER + _ALLOCATION_HEADER.join(entries)


def _decoded_as_allocation_tags(raw: bytes) -> bytes:
    """Return the entries as field 2 of an `Allocation`, for entries whose length takes more than one byte."""
    message = si_pb2.Allocation(allocationTags=si_pb2.AllocationAsk.FromString(raw).tags)
    return message.SerializeToString(deterministic=True)


def created_ms(raw: bytes) -> int | None:
    """Return the tag `creationTime` (seconds) in Unix milliseconds.

    Return None if the tag is missing or not a number.
    """
    start = raw.rfind(CREATION_ENTRY)
    if start >= 0:
        start += len(CREATION_ENTRY)
        return seconds_ms(raw[start + 1 : start + 1 + raw[start]])
    if CREATION_WORD in raw:
        return seconds_ms(decoded((raw,)).get(CREATION, "").encode())
    return None


def seconds_ms(text: bytes) -> int | None:
    """Return the milliseconds for a number of seconds, which the text gives in decimal digits.

    Return None if the text has other characters, or is too long.
    """
    return int(text) * 1000 if text.isdigit() and len(text) < _DIGITS_MAX else None
