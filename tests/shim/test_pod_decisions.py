"""The order in which the shim reads a message that joins the core's decisions of one turn."""

from shim_client.messages import Placed, Released
from shim_client.translate.wire import pod_decisions
from si.v1 import si_pb2 as si


def read(response: si.AllocationResponse) -> list[tuple[str, str]]:
    decisions = (one for one in pod_decisions(response) if isinstance(one, Placed | Released))
    return [(type(one).__name__, one.key) for one in decisions]


def test_capacity_is_free_before_it_is_taken() -> None:
    response = si.AllocationResponse(
        new=[si.Allocation(allocationKey="claimant", nodeID="n1")],
        released=[si.AllocationRelease(allocationKey="ended")],
    )
    assert read(response) == [("Released", "ended"), ("Placed", "claimant")]


def test_a_pod_that_was_placed_and_evicted_in_one_turn_is_bound_before_it_goes() -> None:
    """Its eviction first would end a pod that had never run, and the binding would fail."""
    released = [si.AllocationRelease(allocationKey=key) for key in ("victim", "ended")]
    response = si.AllocationResponse(
        new=[si.Allocation(allocationKey="victim", nodeID="n1")], released=released
    )
    assert read(response) == [("Released", "ended"), ("Placed", "victim"), ("Released", "victim")]
