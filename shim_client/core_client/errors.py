"""The errors of a connection to the core: a core refused the shim, or no core answered."""

from __future__ import annotations

from collections.abc import Sequence

from grpc.aio import AioRpcError

from shim_client.core_client.refusals import Move


class CoreRefusedError(Exception):
    """The error when a core refuses this shim (bad configuration, missing permission), or when no core runs at the address."""


class CallerUnknownError(CoreRefusedError):
    """The error when a core does not know the token or certificate of this shim.

    Possibly the shim does not have its new token or certificate yet.
    """


class EpochOldError(CoreRefusedError):
    """The error when a core knows a newer epoch of this manager, or another process with this shim's epoch (design 7.2)."""

    def __init__(self, message: str, known: int, *, is_connected: bool) -> None:
        super().__init__(message)
        self.known = known
        """The epoch that the core knows."""
        self.is_connected = is_connected
        """Whether a process with the epoch `known` is connected to the core."""


class PartitionsMovedError(CoreRefusedError):
    """The error when a core refuses a shim with an older table of cores. `moves` are the moves since that table (design 7.9)."""

    def __init__(self, message: str, moves: Sequence[Move]) -> None:
        super().__init__(message)
        self.moves = tuple(moves)


class NoCoreError(Exception):
    """The error when no core answered and the shim does not wait for cores."""

    def __init__(self, error: AioRpcError) -> None:
        super().__init__(error.details())
        self.error = error
