"""A scrape of the metrics is a read: a copy of the process answers it, and a core that cannot answer says so."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from server.model.events import ReleaseRequested
from server.observe import endpoint
from server.rpc.copies import Copies
from server.rpc.errors import CallError, too_many
from server.rpc.reads import InPlace, Question, Read, Reads
from server.rpc.scraping import scrapes
from tests.observe.test_durations import Timed, created
from tests.observe.test_metrics import NOW


class Full(InPlace):
    """Reads of which too many wait."""

    async def answer(self, _question: Question, _read: Read) -> bytes:
        raise self.error()

    def error(self) -> CallError:
        return too_many("reads that wait for answers", 3)


@asynccontextmanager
async def listening(reads: Reads, timed: Timed) -> AsyncIterator[int]:
    """Hold the metrics endpoint of a core, and yield its port."""
    text = scrapes(reads, timed.metrics)
    server = await endpoint.start("127.0.0.1", 0, text, None, lambda _peer, _header: None)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def scraped(port: int) -> tuple[str, str]:
    """Return the status and the body of a request for the metrics."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: core\r\n\r\n")
    whole = (await reader.read()).decode()
    writer.close()
    head, _, body = whole.partition("\r\n\r\n")
    return head.split("\r\n")[0].removeprefix("HTTP/1.1 "), body


async def test_a_copy_answers_with_all_that_was_collected_before() -> None:
    timed, reads = Timed(), Copies(time.perf_counter)
    async with listening(reads, timed) as port:
        timed.take(created("one", 1_000, NOW))
        assert (await scraped(port))[0] == "200 OK"
        timed.take(created("two", 1_000, NOW))
        _, body = await scraped(port)
        assert (
            'evenhand_wait_seconds_count{partition="default",queue="root.a",code="none"} 2' in body
        )
        assert 'evenhand_allocations{partition="default"} 2.0' in body
        assert timed.metrics._gauges == {}, "this process computed no gauge"
        timed.take(ReleaseRequested("rm", "low", "one"))
        _, body = await scraped(port)
        assert 'evenhand_allocations{partition="default"} 1.0' in body
    reads.close()


async def test_a_scrape_that_cannot_be_answered_is_refused() -> None:
    async with listening(Full(), Timed()) as port:
        status, body = await scraped(port)
    assert status == "503 Service Unavailable"
    assert "reads that wait for answers" in body
