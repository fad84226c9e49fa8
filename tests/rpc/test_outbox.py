"""An outbox: it divides messages, joins outdated ones, and ends the stream when it is full."""

import pytest

from server.rpc import limits
from server.rpc.outbox import Outbox


def drained(outbox: Outbox) -> list[bytes]:
    messages = []
    while (message := outbox.take()) is not None:
        messages.append(message)
    return messages


def test_everything_small_is_one_message() -> None:
    outbox = Outbox()
    outbox.extend([b"a", b"b"])
    outbox.put_states({("app", "k"): b"s"})
    assert len(outbox) == 3
    assert drained(outbox) == [b"ab", b"s"]
    assert len(outbox) == 0


def test_a_message_is_cut_at_a_thousand_objects() -> None:
    outbox = Outbox()
    outbox.extend([b"x"] * 2_500)
    assert [len(message) for message in drained(outbox)] == [1_000, 1_000, 500]


def test_a_message_is_cut_at_a_mebibyte_unless_one_object_is_larger() -> None:
    outbox = Outbox()
    large, small = b"l" * (limits.RESPONSE_BYTES_MAX + 1), b"s" * (limits.RESPONSE_BYTES_MAX // 2)
    outbox.extend([small, small, small, large, b"t"])
    assert [len(message) for message in drained(outbox)] == [
        limits.RESPONSE_BYTES_MAX,
        len(small),
        len(large),
        1,
    ]


def test_only_the_last_state_of_an_ask_is_kept_and_none_of_a_placed_one() -> None:
    outbox = Outbox()
    outbox.put_states({("app", "a"): b"old", ("app", "b"): b"b"})
    outbox.put_states({("app", "a"): b"new"})
    outbox.drop_states([("app", "b"), ("app", "unknown")])
    assert drained(outbox) == [b"new"]


@pytest.mark.parametrize("limit", ["OUTBOX_OBJECTS_MAX", "OUTBOX_BYTES_MAX"])
def test_a_full_outbox_spills_and_says_so(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"server.rpc.outbox.{limit}", 2)
    outbox = Outbox()
    said: list[bool] = []
    outbox.on_fill = lambda: said.append(outbox.spilled)
    outbox.extend([b"a", b"b"])
    outbox.extend([b"c"])
    assert said == [False, True]
    assert outbox.take() is None
    outbox.clear()
    assert not outbox.spilled
