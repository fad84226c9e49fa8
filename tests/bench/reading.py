"""A process that reads as fast as answers come, while another process places asks.

Run as ``python -m tests.bench.reading ADDRESS METHOD CALLERS`` with the request's bytes on standard input, which
stays open while it reads. It prints one JSON line: the number of answers, and of failures.
"""

import asyncio
import json
import sys
from collections import Counter
from typing import Any

import grpc

from tests.bench.client import MESSAGE_MAX

STREAMS = ("WatchQueues", "WatchEvents", "WatchDecisions")
PAUSE_S = 0.1
"""Seconds that a refused caller waits, as clients do."""


async def read(channel: grpc.aio.Channel, method: str, request: bytes, seen: Counter[str]) -> None:
    """Repeat a read until cancelled, and count the answers and the failures."""
    make: Any = channel.unary_stream if method.endswith(STREAMS) else channel.unary_unary
    call = make(method)
    while True:
        try:
            if method.endswith(STREAMS):
                async for _ in call(request):
                    seen["answers"] += 1
            else:
                await call(request)
                seen["answers"] += 1
        except grpc.aio.AioRpcError as error:
            seen[error.code().name] += 1
            await asyncio.sleep(PAUSE_S)


async def main(address: str, method: str, callers: int) -> Counter[str]:
    """Read with this number of callers until standard input ends."""
    size = int.from_bytes(sys.stdin.buffer.read(4), "big")
    request = sys.stdin.buffer.read(size)
    seen: Counter[str] = Counter()
    options = (
        ("grpc.max_receive_message_length", MESSAGE_MAX),
        ("grpc.use_local_subchannel_pool", 1),
    )
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        readers = [
            asyncio.create_task(read(channel, method, request, seen)) for _ in range(callers)
        ]
        await asyncio.to_thread(sys.stdin.buffer.read)
        for one in readers:
            one.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    return seen


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))))  # noqa: T201
