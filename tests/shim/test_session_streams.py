"""The messages of a session that another core continues: which are written, and which are written once more (design 7.5)."""

import asyncio

import pytest

from shim_client.core_client import resuming
from shim_client.core_client.packing import OBJECTS_MAX
from shim_client.core_client.resuming import Progress, Stream
from shim_client.messages import PodRelease, TerminationType
from si.v1 import si_pb2


def release(key: str) -> PodRelease:
    return PodRelease(key, "app", "default", TerminationType.STOPPED_BY_RM)


def stream() -> Stream:
    return Progress("s", "rm").allocations


def keys(message: si_pb2.AllocationRequest) -> list[str]:
    return [one.allocationKey for one in message.releases.allocationsToRelease]


async def test_messages_that_the_core_has_not_taken_are_written_once_more_and_in_order() -> None:
    one = stream()
    for key in "abc":
        one.waiting.put(release(key))
        assert keys(await one.next()) == [key]
    assert (one.progress().oldest, one.progress().sent) == (1, 3)
    one.waiting.put(release("d"))
    one.resume(1)
    assert [keys(await one.next()) for _ in range(4)] == [["b"], ["c"], [], ["d"]]
    assert one.progress().sent == 5


async def test_a_writer_that_is_stopped_loses_no_report() -> None:
    one = stream()
    for number in range(OBJECTS_MAX + 1):
        one.waiting.put(release(str(number)))
    assert len(keys(await one.next())) == OBJECTS_MAX
    waiting = asyncio.create_task(_nothing(one))
    await asyncio.sleep(0)
    waiting.cancel()
    one.resume(0)
    assert [len(keys(await one.next())) for _ in range(3)] == [OBJECTS_MAX, 0, 1]


async def _nothing(one: Stream) -> None:
    await one.waiting.fills_within(60)


async def test_only_so_many_bytes_are_kept_and_never_less_than_what_is_unwritten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resuming, "KEPT_BYTES_MAX", 1)
    one = stream()
    for key in "abc":
        one.waiting.put(release(key))
        await one.next()
    assert (one.progress().oldest, one.progress().sent) == (3, 3)
    one.resume(2)
    assert keys(await one.next()) == ["c"]
    assert keys(await one.next()) == []
