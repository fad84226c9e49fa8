"""The HistoryService of a core that keeps no history. The service refuses every call, and says how to keep a history."""

from collections.abc import Callable, Coroutine
from typing import NoReturn

import grpc
from google.protobuf.message import Message

from server.rpc.errors import CallError

ADVICE = "start it with `--history FILE`, or with `--state-dir DIR`"


class NoHistory:
    """The HistoryService that refuses all calls, because the core keeps no history."""

    def __getattr__(self, _name: str) -> Callable[[Message], Coroutine[None, None, NoReturn]]:
        """Return the function that refuses a call."""
        return _refuse


async def _refuse(_request: Message) -> NoReturn:
    message = f"this core keeps no history: {ADVICE}"
    raise CallError(grpc.StatusCode.FAILED_PRECONDITION, "NO_HISTORY", message)
