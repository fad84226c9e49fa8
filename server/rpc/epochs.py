"""The epoch on the wire: in the metadata of streams, and at the beginning of responses (design 7.2)."""

from typing import Final

from server.core.state import Manager
from server.rpc.errors import CallError, epoch_old
from server.rpc.grpc_types import Context
from si.v1 import si_pb2

METADATA_KEY: Final = "evenhand-epoch"
_DIGITS_MAX: Final = 18


def epoch_head(epoch: int) -> bytes:
    """Return the bytes that add the epoch to an encoded AllocationResponse. Return b"" for epoch 0."""
    return si_pb2.AllocationResponse(epoch=epoch).SerializeToString()


def stream_epoch(context: Context) -> int:
    """Return the epoch in the metadata of a call. Return 0 if the metadata has no readable epoch."""
    for key, value in context.invocation_metadata() or ():
        text = value if isinstance(value, str) else ""
        if key == METADATA_KEY and text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX:
            return int(text)
    return 0


def refused(manager: Manager, why: str, *, connected: bool) -> CallError:
    """Return the error for a registration or stream of an old epoch."""
    return epoch_old(why, manager.epoch, connected=connected)


def check_stream(manager: Manager | None, epoch: int) -> None:
    """Raise CallError for a stream of a lower epoch than the one in which the manager registered."""
    if manager is not None and epoch < manager.epoch:
        why = f"this stream is of epoch {epoch}, and resource manager {manager.rm_id!r} registered in epoch {manager.epoch}"
        raise refused(manager, why, connected=True)
