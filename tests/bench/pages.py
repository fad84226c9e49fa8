"""A process with open pages of a console, as browsers have them.

Run as ``python -m tests.bench.pages ADDRESS`` with the paths of the pages as lines on standard input, up to an empty line.
Standard input stays open while the pages are. It prints a line when each page has its content, and at the end one JSON
line: the number of updates of all pages.
"""

import asyncio
import json
import sys
from collections import Counter

LINE_MAX = 1 << 24


async def watch(address: str, path: str, seen: Counter[str], begun: asyncio.Event) -> None:
    """Hold the stream of a page open, and count its updates."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=LINE_MAX)
    writer.write(f"GET /live{path} HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
    async for line in reader:
        if line.startswith(b"id: "):
            seen["updates"] += 1
            begun.set()
    seen["lost"] += 1


async def main(address: str) -> Counter[str]:
    """Open the pages, and hold them until standard input ends."""
    paths = iter(lambda: sys.stdin.readline().strip(), "")
    seen: Counter[str] = Counter()
    pages = {path: asyncio.Event() for path in paths}
    watches = [
        asyncio.create_task(watch(address, path, seen, begun)) for path, begun in pages.items()
    ]
    await asyncio.gather(*(one.wait() for one in pages.values()))
    print("open", flush=True)  # noqa: T201 - the sign to the parent process
    await asyncio.to_thread(sys.stdin.read)
    for one in watches:
        one.cancel()
    await asyncio.gather(*watches, return_exceptions=True)
    return seen


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1]))))  # noqa: T201 - the answer to the parent process
