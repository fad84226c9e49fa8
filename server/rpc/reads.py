"""The reads: calls that change nothing, and the interface through which they are answered.

A read is a function of the core that runs between two slices of the pump. Bootstrap decides where a read runs: in this process
(`InPlace`), or in copies of it (`rpc/copies`), so that no read delays a decision.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from google.protobuf.message import Message

from server.rpc.roles import CALLER, Caller

_Request = TypeVar("_Request", bound=Message)
Read = Callable[[], bytes]
"""The function that returns a serialized answer. It raises CallError if the question cannot be answered."""
Complete = Callable[[Message, Message], None]
"""The function that fills in the fields that all answers have. The arguments of the function are the request and the answer."""


@dataclass(frozen=True, slots=True)
class Question:
    """A read request with its caller. In `rpc/copies`, equal questions that wait at the same time get one answer."""

    method: str
    request: bytes
    caller: Caller


class Reads(Protocol):
    """The interface of the object that answers questions. ``apart`` says whether reads run outside this process."""

    apart: bool

    async def answer(self, question: Question, read: Read) -> bytes:
        """Return the result of ``read``, or raise the error that ``read`` raises."""
        ...

    def hold(self) -> None:
        """Start no read until `go_on` is called, because the core is within a slice."""

    def go_on(self) -> None:
        """Start reads again, in the order in which they waited."""

    def close(self) -> None:
        """End the reads that have no answer yet, because the server stops."""


class InPlace:
    """The reads in this process. Each read runs at once, and the event loop waits for its end."""

    apart = False

    def __init__(self) -> None:
        self._steady = asyncio.Event()
        self._steady.set()

    async def answer(self, _question: Question, read: Read) -> bytes:
        """Return the result of ``read``, or raise the error that ``read`` raises. While reads are held, wait first."""
        if not self._steady.is_set():
            await self._steady.wait()
        return read()

    def hold(self) -> None:
        """Start no read until `go_on` is called."""
        self._steady.clear()

    def go_on(self) -> None:
        """Let the reads that were held start, and start later reads at once."""
        self._steady.set()

    def close(self) -> None:
        """Do nothing. A read that is held is still answered, at the next `go_on`."""


class Answers:
    """The maker of the answers of all services. Each answer is completed and serialized in the process in which the read runs."""

    def __init__(self, reads: Reads, complete: Complete) -> None:
        self._reads = reads
        self.complete = complete

    async def read(
        self, method: str, request: _Request, behaviour: Callable[[_Request], Message]
    ) -> bytes:
        """Return the serialized answer of ``behaviour``.

        Raise CallError if ``behaviour`` raises it, or if no answer can be made.
        """

        def read() -> bytes:
            answer = behaviour(request)
            self.complete(request, answer)
            return answer.SerializeToString()

        question = Question(method, request.SerializeToString(deterministic=True), CALLER.get())
        return await self._reads.answer(question, read)
