"""The HistoryService of a core that keeps a history. The modules that read the database are loaded only where a read is answered.

Reads of the history are answered in copies of the process (`rpc/copies`). SQLAlchemy takes 13 MiB. A copy frees this memory when
it ends, whereas the core would keep it for ever. A copy loads SQLAlchemy in 0.2 s of processor time.
"""

from collections.abc import Callable

from google.protobuf.message import Message

from server.history.address import Address
from server.rpc.pump import Pump


class LateHistory:
    """The service that passes calls to `HistoryService`. The first call in a process loads the module of `HistoryService`."""

    def __init__(self, pump: Pump, place: Address) -> None:
        self._pump = pump
        self._place = place

    def __getattr__(self, name: str) -> Callable[[Message], Message]:
        """Return the function that answers a method."""

        def read(request: Message) -> Message:
            from server.rpc.evenhand.history_service import HistoryService  # noqa: PLC0415

            answer: Message = getattr(HistoryService(self._pump, self._place), name)(request)
            return answer

        return read
