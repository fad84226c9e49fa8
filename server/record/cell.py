"""Cells in a page of memory. Each cell holds a few values, which are replaced together, even if the writing process is killed."""

import mmap
import struct
from typing import Any, Final, NamedTuple
from zlib import crc32

SLOTS: Final = 2
SLOT_BYTES: Final = 128
CELL_BYTES: Final = SLOTS * SLOT_BYTES

_CRC: Final = struct.Struct("<I")
_HEAD: Final = struct.Struct("<QQ")
"""The head of each slot: the number of the write, which rises by one with each write of the cell, and the run.

Before the head comes a CRC-32 of the rest of the slot.
"""
_BODY: Final = _CRC.size


Page = mmap.mmap | bytearray


class Slot(NamedTuple):
    """The content of a slot: values that were written together, and the run that wrote them."""

    order: int
    """The number of the write: a higher number is newer."""
    run: int
    """The run that wrote the values."""
    values: tuple[Any, ...]


class Cell:
    """A cell: two slots that are written alternately, so that one of them is complete at any time."""

    def __init__(self, page: Page, place: int, form: str) -> None:
        self._page = page
        self._place = place
        self._form = struct.Struct(form)
        assert _BODY + _HEAD.size + self._form.size <= SLOT_BYTES
        found = self.newest()
        self._order = found.order if found else 0

    def write(self, run: int, *values: int | bytes) -> None:
        """Write the values into one slot, and leave the other slot as it is.

        If a slot is damaged, write into that slot, else into the older slot.
        """
        self._order += 1
        body = _HEAD.pack(self._order, run) + self._form.pack(*values)
        start = self._place + self._order % SLOTS * SLOT_BYTES
        self._page[start : start + _BODY + len(body)] = _CRC.pack(crc32(body)) + body

    @property
    def whole(self) -> bool:
        """Whether both slots hold values that can be read."""
        return len(self._read()) == SLOTS

    def newest(self, run: int | None = None) -> Slot | None:
        """Return the newest slot that can be read. If ``run`` is given, return the newest slot of this run.

        Return None if there is no such slot.
        """
        return next((one for one in self._read() if run in {None, one.run}), None)

    def _read(self) -> list[Slot]:
        """Return the slots that can be read, the newest first."""
        found = []
        for slot in range(SLOTS):
            start = self._place + slot * SLOT_BYTES
            body = self._page[start + _BODY : start + _BODY + _HEAD.size + self._form.size]
            order, run = _HEAD.unpack_from(body)
            crc = _CRC.pack(crc32(body))
            if order % SLOTS == slot and order and self._page[start : start + _BODY] == crc:
                found.append(Slot(order, run, self._form.unpack_from(body, _HEAD.size)))
        return sorted(found, reverse=True)
