"""Decisions that are passed to outboxes in runs have the same content as decisions that are passed one by one."""

from hypothesis import given
from hypothesis import strategies as st

from server.model.asks import NO_TAGS, AskSpec, Generation
from server.model.decisions import (
    AskState,
    AskStateChanged,
    Decision,
    Decisions,
    NodeAccepted,
    Noted,
    Placed,
    Released,
    Termination,
)
from server.model.reasons import Code
from server.rpc.dispatch import Dispatch
from server.rpc.sessions import Kind, Sessions
from server.rpc.translate import answers
from server.rpc.translate.answers_fast import PlacementEncoder
from si.v1 import si_pb2 as si

MANAGERS = ("a", "b")
SPECS = [AskSpec((("vcore", 1),)), AskSpec((("vcore", 1),), priority=7)]

managers = st.sampled_from(MANAGERS)
keys = st.text(max_size=3)
decisions = st.lists(
    st.one_of(
        st.builds(
            Placed,
            rm_id=managers,
            partition=st.sampled_from(["default", "other", ""]),
            key=keys,
            application_id=keys,
            node_id=keys,
            spec=st.sampled_from(SPECS),
            tags=st.sampled_from([NO_TAGS, (b"\x12\x06\n\x01k\x12\x01v",)]),
            generation=st.sampled_from(Generation),
        ),
        st.builds(
            Released,
            rm_id=managers,
            partition=st.just("default"),
            key=keys,
            application_id=keys,
            termination=st.sampled_from(Termination),
        ),
        st.builds(NodeAccepted, rm_id=managers, node_id=keys),
        st.builds(Noted, kind=keys, subject=keys, code=st.sampled_from(Code), message=keys),
        st.builds(
            AskStateChanged,
            rm_id=managers,
            application_id=keys,
            key=keys,
            state=st.sampled_from(AskState),
            reason=keys,
        ),
    ),
    max_size=12,
)


def plainly(found: list[Decision], manager: str) -> tuple[bytes, bytes, bytes]:
    """Return the bytes for a manager, each decision encoded by itself: allocations, states, nodes."""
    allocations, states, nodes = b"", dict[tuple[str, str], bytes](), b""
    for one in found:
        if one.rm_id != manager:
            continue
        if isinstance(one, Placed):
            allocations += PlacementEncoder().encode([one])[0]
        elif isinstance(one, Released):
            allocations += answers.released(one).SerializeToString()
        elif isinstance(one, AskStateChanged):
            place = (one.application_id, one.key)
            states[place] = answers.ask_state(one).SerializeToString()
        elif isinstance(one, NodeAccepted):
            nodes += si.NodeResponse(
                accepted=[si.AcceptedNode(nodeID=one.node_id)]
            ).SerializeToString()
    return allocations, b"".join(states.values()), nodes


def drained(sessions: Sessions, manager: str, kind: Kind) -> list[bytes]:
    """Return all waiting messages."""
    outbox = sessions.outbox(manager, kind)
    assert outbox is not None
    return [*iter(outbox.take, None)]


@given(decisions)
def test_decisions_reach_their_streams_in_their_order(found: list[Decision]) -> None:
    sessions = Sessions()
    for manager in MANAGERS:
        sessions.registered(manager, "")
    Dispatch(sessions).send(Decisions(found))
    for manager in MANAGERS:
        allocations, states, nodes = plainly(found, manager)
        messages = drained(sessions, manager, Kind.ALLOCATION)
        expected = [part for part in (allocations, states) if part]
        assert [si.AllocationResponse.FromString(one) for one in messages] == [
            si.AllocationResponse.FromString(one) for one in expected
        ]
        assert b"".join(drained(sessions, manager, Kind.NODE)) == nodes


def test_states_that_wait_are_dropped_when_their_asks_are_placed() -> None:
    sessions = Sessions()
    sessions.registered("a", "")
    dispatch = Dispatch(sessions)
    changed = [
        AskStateChanged("a", "app", key, AskState.SKIPPED, "no headroom") for key in ("k", "l")
    ]
    dispatch.send(Decisions(changed))
    dispatch.send(Decisions([Placed("a", "default", "k", "app", "node", SPECS[0])]))
    told = b"".join(drained(sessions, "a", Kind.ALLOCATION))
    response = si.AllocationResponse.FromString(told)
    assert [one.allocationKey for one in response.new] == ["k"]
    assert b"no headroom" in told
    assert told.count(b"no headroom") == 1
