"""The reasons in the details of a refused call that this client handles in a special way (design 1.12 and 7.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from google.rpc import error_details_pb2  # type: ignore[import-untyped]
from grpc.aio import AioRpcError
from grpc_status import rpc_status

EPOCH_OLD: Final = "EPOCH_OLD"
ANOTHER_LEADS: Final = frozenset({"FOLLOWER_BEHIND", "NOT_LEADER"})
"""Reasons of a core that takes no registration now, because it follows another core. That core may accept this shim later."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason of a refusal with its facts; empty for a status without details."""

    reason: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def epoch(self) -> int:
        """The epoch that the core knows, 0 when it names none."""
        text = self.facts.get("epoch", "")
        return int(text) if text.isascii() and text.isdigit() else 0

    @property
    def is_connected(self) -> bool:
        """Whether a process with that epoch is connected. If the core does not say this, the process is taken as connected."""
        return self.facts.get("connected") != "false"


def refusal_of(error: AioRpcError) -> Refusal:
    """Return the reason of a refused call."""
    call: Any = error
    status = rpc_status.from_call(call)
    for detail in status.details if status else ():
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info):
            return Refusal(info.reason, dict(info.metadata))
    return Refusal()
