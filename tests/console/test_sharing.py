"""One reader for all open pages with the same view, address and token, and streams that resume after the last fragment of the client."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from evenhand_console.pages import instant
from evenhand_console.query import query_of
from evenhand_console.sharing import Fragment, Key, Readers, TooManyError
from evenhand_console.streams import event

PATIENCE_S = 30.0


def _key(token: str = "") -> Key:
    return Key("queues", query_of("/queues", {}, ()), token)


class _Reads:
    """Reads that end when the test sets their result."""

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


async def test_a_page_without_users_is_not_read_and_is_read_when_a_user_comes() -> None:
    made: list[Key] = []

    async def make(key: Key, latest: Fragment | None) -> Fragment:
        del latest
        made.append(key)
        return Fragment(str(len(made)))

    readers = Readers(make, lambda _: 0.0)
    assert (await readers.latest(_key())).html == "1"
    for _ in range(100):
        readers.wake("", lambda _: True)
        await asyncio.sleep(0)  # Lets the reader run.
    assert len(made) == 1
    assert (await readers.latest(_key())).html == "2"
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
    await reads.found.put(
        Fragment("new")
    )  # The page may be due: no browser showed it for a moment.
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


def _state_of(now_ms: int, more: str = "") -> Fragment:
    return Fragment(f"<p>State of {instant(now_ms)}.</p>{more}")


def test_a_page_of_which_only_the_instant_changed_is_sent_every_ten_seconds() -> None:
    assert _state_of(10_000).id == _state_of(19_999).id
    assert _state_of(10_000).id != _state_of(20_000).id
    assert _state_of(10_000).id != _state_of(10_000, "x").id


def test_an_event_has_one_data_line_for_each_line() -> None:
    sent = event(Fragment("a\nb\r\nc\rd")).decode()
    assert sent.splitlines()[1:] == ["data: a", "data: b", "data: c", "data: d", ""]


def _of(token: str, number: int = 0) -> Key:
    return Key("queues", query_of("/queues", {"n": ""}, [("n", str(number))]), token)


async def _made(key: Key, latest: Fragment | None) -> Fragment:
    del latest
    return Fragment(key.token, 401 if key.token.startswith("bogus") else 200)


async def test_visitors_who_have_to_log_in_take_no_place_from_others() -> None:
    readers = Readers(_made, lambda _: 60.0, entries_max=3)
    streams = [readers.follow(_of(f"bogus{number}")) for number in range(3)]
    for one in streams:
        await _next(one)
    assert (await readers.latest(_of("ada"))).html == "ada"
    with pytest.raises(TooManyError):  # Its place went to the other page.
        await _next(streams[0])
    assert (await readers.latest(_of("bogus9"))).status == 401
    assert readers.readers < 3
    readers.close()


async def test_a_page_that_asks_to_log_in_is_not_read_on() -> None:
    readers = Readers(_made, lambda _: 60.0)
    counts = []
    for token in ("bogus", "ada"):
        await readers.latest(_of(token))
        counts.append(readers.readers)
    assert counts == [0, 1]
    readers.close()


async def test_one_visitor_takes_no_place_from_those_with_fewer_pages() -> None:
    readers = Readers(_made, lambda _: 60.0, entries_max=4)
    many = [readers.follow(_of("ada", number)) for number in range(4)]
    for one in many:
        await _next(one)
    with pytest.raises(TooManyError):
        await readers.latest(_of("ada", 4))
    few = [readers.follow(_of("bob", number)) for number in range(2)]
    for one in few:
        assert (await _next(one)).html == "bob"
    for one in many[:2]:
        with pytest.raises(TooManyError):
            await _next(one)
    with pytest.raises(TooManyError):
        await readers.latest(_of("bob", 2))
    for one in (*many, *few):
        await one.aclose()
    readers.close()
