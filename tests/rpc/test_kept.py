"""The decisions that are kept for a session, and their numbers in messages (design 7.5)."""

import pytest

from server.core.events.sessions import STREAMS
from server.model.decisions import AskStateChanged, Placed, Released
from server.rpc import kept as kept_module
from server.rpc.dispatch import _ANSWERS
from server.rpc.kept import Kept
from server.rpc.limits import RESPONSE_OBJECTS_MAX
from server.rpc.outbox import Outbox
from server.rpc.sessions import SEQUENCE, Kind
from si.v1 import si_pb2 as si


def piece(key: str) -> bytes:
    """Return an encoded placement."""
    return si.AllocationResponse(new=[si.Allocation(allocationKey=key)]).SerializeToString()


def test_decisions_are_counted_on_the_stream_on_which_they_are_sent() -> None:
    sent = {kind: stream.value for kind, (stream, _) in _ANSWERS.items()}
    assert sent.pop(AskStateChanged) == Kind.ALLOCATION
    assert sent | {Placed: "allocation", Released: "allocation"} == dict(STREAMS)


def test_kept_decisions_are_found_by_their_numbers() -> None:
    kept = Kept("s", 10)
    kept.add([b"11", b"12"])
    kept.add([b"13"])
    assert kept.last == 13
    assert kept.after(13) == []
    assert kept.after(11) == [b"12", b"13"]
    assert kept.after(10) == [b"11", b"12", b"13"]
    assert kept.after(9) is None
    assert kept.after(14) is None


@pytest.mark.parametrize(("name", "most"), [("KEPT_OBJECTS_MAX", 3), ("KEPT_BYTES_MAX", 6)])
def test_the_oldest_decisions_are_dropped(
    monkeypatch: pytest.MonkeyPatch, name: str, most: int
) -> None:
    monkeypatch.setattr(kept_module, name, most)
    kept = Kept("s")
    for number in (1, 3, 5):
        kept.add([b"%02d" % number, b"%02d" % (number + 1)])
    assert kept.after(4) == [b"05", b"06"]
    assert kept.after(3) is None


def test_each_message_has_the_number_of_its_last_decision() -> None:
    outbox = Outbox()
    outbox.sequence_field = SEQUENCE[Kind.ALLOCATION]
    outbox.put_states(
        {
            ("app", "s"): si.AllocationResponse(
                schedulingStates=[si.UpdateContainerSchedulingStateRequest(allocationKey="s")]
            ).SerializeToString()
        }
    )
    outbox.extend([piece(str(at)) for at in range(RESPONSE_OBJECTS_MAX + 2)])
    found = []
    while (message := outbox.take()) is not None:
        found.append(si.AllocationResponse.FromString(message))
    assert [one.sequence for one in found] == [RESPONSE_OBJECTS_MAX, RESPONSE_OBJECTS_MAX + 2, 0]
    assert [len(one.schedulingStates) for one in found] == [0, 0, 1]


def test_states_before_decisions_in_one_message_take_no_number() -> None:
    outbox = Outbox()
    outbox.sequence_field = SEQUENCE[Kind.ALLOCATION]
    many = RESPONSE_OBJECTS_MAX + 1
    outbox.put_states({("app", str(at)): b"" for at in range(many)})
    first = outbox.take()
    outbox.extend([piece("a")])
    second = outbox.take()
    assert first is not None
    assert second is not None
    assert si.AllocationResponse.FromString(first).sequence == 0
    assert si.AllocationResponse.FromString(second).sequence == 1
