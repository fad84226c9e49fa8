"""One reader for all pages that show the same, and streams that go on where a client was."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from evenhand_console.query import query_of
from evenhand_console.sharing import Fragment, Key, Readers, TooManyError
from evenhand_console.streams import event

PATIENCE_S = 30.0


def _key(token: str = "") -> Key:
    return Key("queues", query_of("/queues", {}, ()), token)


class _Reads:
    """Reads that end when the test says what they found."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.found: asyncio.Queue[Fragment] = asyncio.Queue()

    async def make(self, key: Key, latest: Fragment | None) -> Fragment:
        del latest
        self.asked.append(key.token)
        return await self.found.get()


async def _next(stream: AsyncGenerator[Fragment, None]) -> Fragment:
    return await asyncio.wait_for(anext(stream), PATIENCE_S)


async def test_fifty_pages_make_one_read() -> None:
    reads = _Reads()
    readers = Readers(reads.make, lambda _: 0.0)
    pages = [asyncio.create_task(readers.latest(_key())) for _ in range(50)]
    await reads.found.put(Fragment("a"))
    assert {one.html for one in await asyncio.gather(*pages)} == {"a"}
    assert len(reads.asked) <= 2  # The second is the next read, which has begun.
    readers.close()


async def test_visitors_with_different_tokens_share_nothing() -> None:
    reads = _Reads()
    readers = Readers(reads.make, lambda _: 60.0)
    pages = [asyncio.create_task(readers.latest(_key(token))) for token in ("a", "b")]
    for token in ("a", "b"):
        await reads.found.put(Fragment(token))
    assert sorted(one.html for one in await asyncio.gather(*pages)) == ["a", "b"]
    assert sorted(reads.asked) == ["a", "b"]
    readers.close()


async def test_a_stream_goes_on_after_what_the_client_has() -> None:
    reads = _Reads()
    readers = Readers(reads.make, lambda _: 0.0)
    stream = readers.follow(_key())
    await reads.found.put(Fragment("old"))
    old = await _next(stream)
    await stream.aclose()
    resumed = readers.follow(_key(), old.id)
    waiting = asyncio.create_task(_next(resumed))
    await reads.found.put(Fragment("old"))
    await reads.found.put(Fragment("new"))
    assert (await waiting).html == "new"
    await resumed.aclose()
    fresh = readers.follow(_key(), "unknown")
    assert (await _next(fresh)).html == "new"
    await fresh.aclose()
    readers.close()


async def test_there_is_a_limit_of_different_pages() -> None:
    reads = _Reads()
    readers = Readers(reads.make, lambda _: 60.0, entries_max=1)
    stream = readers.follow(_key("a"))
    await reads.found.put(Fragment("a"))
    await _next(stream)
    with pytest.raises(TooManyError):
        await readers.latest(_key("b"))
    await stream.aclose()
    await reads.found.put(Fragment("b"))
    assert (await readers.latest(_key("b"))).html == "b"
    assert readers.readers == 1
    readers.close()


async def test_a_defect_of_a_view_reaches_its_page_alone() -> None:
    async def make(key: Key, latest: Fragment | None) -> Fragment:
        del latest
        if key.token:
            raise ZeroDivisionError
        return Fragment("good")

    readers = Readers(make, lambda _: 60.0)
    with pytest.raises(ZeroDivisionError):
        await readers.latest(_key("bad"))
    assert (await readers.latest(_key())).html == "good"
    readers.close()


def test_an_event_has_one_data_line_for_each_line() -> None:
    sent = event(Fragment("a\nb\r\nc\rd")).decode()
    assert sent.splitlines()[1:] == ["data: a", "data: b", "data: c", "data: d", ""]
