"""The reasons in the details of a refused call that this client handles in a special way (design 1.12 and 7.2)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]
from grpc.aio import AioRpcError
from grpc_status import rpc_status

EPOCH_OLD: Final = "EPOCH_OLD"
OTHER_TABLE: Final = "OTHER_TABLE"
_DETAILS: Final = "grpc-status-details-bin"
"""The key in the metadata of a call under which a status is sent with its details."""
ANOTHER_LEADS: Final = frozenset({"FOLLOWER_BEHIND", "NOT_LEADER"})
"""Reasons with which a core refuses every registration now, because it follows another core.

The refusing core may accept this shim later.
"""


class Move(NamedTuple):
    """A move of a partition from one group of cores to another, as reported by a core of one of these two groups (design 7.9)."""

    revision: int
    """The revision that the group of the reporting core got with the move."""
    partition: str
    group: str
    """The group that owns the partition since the move."""
    group_revision: int
    """The revision that the new owner `group` got with the move."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason for which a core refused a call, with further facts.

    Reason and facts are empty for a status without details.
    """

    reason: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def epoch(self) -> int:
        """The epoch that the core knows; 0 when the core names no epoch."""
        text = self.facts.get("epoch", "")
        return int(text) if text.isascii() and text.isdigit() else 0

    @property
    def is_connected(self) -> bool:
        """Whether a process with the epoch that the core knows is connected to the core; true if the refusal does not say."""
        return self.facts.get("connected") != "false"

    @property
    def moves(self) -> tuple[Move, ...]:
        """The moves of partitions since the revision of this shim's table of cores.

        The tuple is empty if the core names no moves, or if the moves cannot be read.
        """
        with suppress(ValueError, TypeError):
            found = [Move(*one) for one in json.loads(self.facts.get("moves", "[]"))]
            if all(_is_move(one) for one in found):
                return tuple(found)
        return ()

    @property
    def successor(self) -> str:
        """The process name of the core that took over the state of the refusing core; "" if not named (design 7.7)."""
        return self.facts.get("process", "")


def _is_move(one: Move) -> bool:
    """Return whether the fields of a move have the types that `Move` declares."""
    numbers, texts = (one.revision, one.group_revision), (one.partition, one.group)
    return all(type(each) is int for each in numbers) and all(type(each) is str for each in texts)


def refusal_of(error: AioRpcError) -> Refusal:
    """Return the reason of a refused call."""
    call: Any = error
    status = rpc_status.from_call(call)
    return _refusal(status.details if status else ())


def refusal_in(metadata: Iterable[tuple[str, str | bytes]] | None) -> Refusal:
    """Return the reason in the metadata with which a stream ended; the reason is empty if the metadata have none."""
    for key, value in metadata or ():
        if key == _DETAILS and isinstance(value, bytes):
            try:
                return _refusal(status_pb2.Status.FromString(value).details)
            except DecodeError:
                break
    return Refusal()


def _refusal(details: Iterable[Any]) -> Refusal:
    for detail in details:
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info):
            return Refusal(info.reason, dict(info.metadata))
    return Refusal()
