"""The client that plays scripts on machines without Go, in a separate process like `tests/bench/go`.

Run as ``python -m tests.bench.client ADDRESS`` with the script as JSON on standard input; prints one JSON line.
"""

import asyncio
import base64
import json
import sys
import time
from typing import Any

import grpc

from si.v1 import si_pb2 as si
from tests.bench.processes import cpu_seconds
from tests.bench.script import ANSWERS

MESSAGE_MAX = 1 << 30
Call = grpc.aio.StreamStreamCall[bytes, bytes]


class Player:
    """The channel to a core with its open streams, and the waits of the messages of paced steps."""

    def __init__(self, channel: grpc.aio.Channel, epoch: int = 0) -> None:
        self._channel = channel
        self._metadata = (("evenhand-epoch", str(epoch)),) if epoch else None
        self._calls: dict[str, Call] = {}
        self._senders: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()
        self.waits_ms: list[float] = []

    async def play(self, step: dict[str, Any]) -> None:
        """Play one step to its end."""
        messages = [base64.b64decode(one) for one in step["messages"]]
        if step["unary"]:
            method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
            method = self._channel.unary_unary(step["method"])
            for message in messages:
                await method(message)
            return
        call = self.call(step["method"])
        if step["after"] is None:
            self._send(call, messages)
            await self._count(call, step, step["until"])
            return
        await self._paced(call, step, messages)

    async def sent(self) -> None:
        """Wait until all messages are sent."""
        await asyncio.gather(*self._senders)

    async def end(self) -> None:
        """Wait until all messages are sent, and close the sending side of every stream."""
        await self.sent()
        for call in self._calls.values():
            await call.done_writing()

    def call(self, method: str) -> Call:
        """Return the stream of a method, and open it when it is first needed."""
        if method not in self._calls:
            opened: grpc.aio.StreamStreamMultiCallable[bytes, bytes]
            opened = self._channel.stream_stream(method)
            self._calls[method] = opened(metadata=self._metadata)
        return self._calls[method]

    def _send(self, call: Call, messages: list[bytes]) -> None:
        """Send messages in a separate task, because the core may answer before all of them are sent."""

        async def send() -> None:
            async with self._turn:
                for message in messages:
                    await call.write(message)

        task = asyncio.create_task(send())
        self._senders.add(task)
        task.add_done_callback(self._senders.discard)

    async def _paced(self, call: Call, step: dict[str, Any], messages: list[bytes]) -> None:
        counted = 0
        for message, until in zip(messages, [*step["after"][1:], step["until"]], strict=True):
            started = time.perf_counter()
            await call.write(message)
            counted += await self._count(call, step, until - counted)
            self.waits_ms.append(1000 * (time.perf_counter() - started))

    async def _count(self, call: Call, step: dict[str, Any], until: int) -> int:
        counted = 0
        while counted < until:
            counted += await self.heard(call, step)
        return counted

    async def heard(self, call: Call, step: dict[str, Any]) -> int:
        """Read one answer and return how many of its objects are counted."""
        answer = await call.read()
        if not isinstance(answer, bytes):
            raise SystemExit(f"the stream ended: {await call.code()} {await call.details()}")
        return self._take(call, step, answer)

    def _take(self, call: Call, step: dict[str, Any], answer: bytes) -> int:
        message = ANSWERS[step["method"].rpartition("/")[2]].FromString(answer)
        if refused := _objects(message, step["refused"]):
            raise SystemExit(f"refused: {refused[0]}")
        counted = _objects(message, step["counted"])
        only = base64.b64decode(step["only"])
        if strange := [one for one in counted if only not in one.SerializeToString()]:
            raise SystemExit(f"refused: {strange[0]}")
        if releases := _objects(message, step["confirmed"]):
            gone = si.AllocationReleasesRequest(allocationsToRelease=releases)
            told = si.AllocationRequest(releases=gone).SerializeToString()
            self._send(call, [told + base64.b64decode(step["manager"])])
        return len(counted)


def _objects(message: Any, number: int) -> Any:
    if not number:
        return []
    return getattr(message, message.DESCRIPTOR.fields_by_number[number].name)


async def main(address: str, script: dict[str, Any]) -> dict[str, object]:
    """Play all steps, and return the figures of those that are measured."""
    options = (("grpc.max_receive_message_length", MESSAGE_MAX),)
    begun, since, own, server = 0.0, 0.0, 0.0, 0.0
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        player = Player(channel, script["epoch"])
        for at, step in enumerate(script["steps"]):
            if at == script["measured"]:
                server, own = cpu_seconds(script["pid"]), time.process_time()
                begun, since = time.time(), time.perf_counter()
            await player.play(step)
        figures = {
            "begun": begun,
            "seconds": time.perf_counter() - since,
            "client_cpu": time.process_time() - own,
            "server_cpu": cpu_seconds(script["pid"]) - server,
            "waits_ms": player.waits_ms,
        }
        await player.end()
    return figures


if __name__ == "__main__":
    found = asyncio.run(main(sys.argv[1], json.loads(sys.stdin.read())))
    print(json.dumps(found))  # noqa: T201 - the answer to the parent process
