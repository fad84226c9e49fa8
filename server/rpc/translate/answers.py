"""The wire messages of decisions, each with one object.

The functions are pure. Placements and releases have a fast path in `answers_fast`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from google.protobuf.message import Message

from server.model.asks import Generation
from server.model.decisions import (
    ApplicationAccepted,
    ApplicationRejected,
    ApplicationUpdated,
    ApplicationUpdateRejected,
    AskRejected,
    AskReleased,
    AskStateChanged,
    NodeAccepted,
    NodeRejected,
    PlanCheckEnded,
    PlanCheckRequested,
    Released,
    Withdrawn,
)
from server.rpc.translate import plan_checks
from si.v1 import si_pb2

_NANOSECONDS: Final = 1_000_000


def released(decision: Released) -> si_pb2.AllocationResponse:
    """Return the message of an allocation that ends. A client that sent an `AllocationAsk` identifies the allocation by a UUID, which in Evenhand is the key."""
    return si_pb2.AllocationResponse(
        released=[
            si_pb2.AllocationRelease(
                partitionName=decision.partition,
                applicationID=decision.application_id,
                UUID=decision.key if decision.generation is Generation.ASK else "",
                terminationType=_termination(decision.termination),
                message=decision.message,
                allocationKey=decision.key,
                decisionID=decision.decision_id,
                beneficiary=decision.beneficiary,
                nodes=decision.nodes,
                delivery=decision.delivery,
            )
        ]
    )


def withdrawn(decision: Withdrawn) -> si_pb2.AllocationResponse:
    """Return the message of a victim whose eviction is withdrawn."""
    return si_pb2.AllocationResponse(
        withdrawn=[
            si_pb2.WithdrawnRelease(
                partitionName=decision.partition,
                allocationKey=decision.key,
                decisionID=decision.decision_id,
                reason=decision.reason,
            )
        ]
    )


def ask_released(decision: AskReleased) -> si_pb2.AllocationResponse:
    """Return the message of a waiting ask that ends.

    A client of the newest generation gets the message of an allocation that ends, because that generation has no message for
    the end of a waiting ask.
    """
    if decision.generation is Generation.ALLOCATION:
        partition, key, application_id, termination, message = decision[1:6]
        return released(
            Released(decision.rm_id, partition, key, application_id, termination, message)
        )
    return si_pb2.AllocationResponse(
        releasedAsks=[
            si_pb2.AllocationAskRelease(
                partitionName=decision.partition,
                applicationID=decision.application_id,
                allocationKey=decision.key,
                terminationType=_termination(decision.termination),
                message=decision.message,
            )
        ]
    )


def _termination(number: int) -> si_pb2.TerminationType:
    return si_pb2.TerminationType.Name(number)  # type: ignore[return-value]


def ask_rejected(decision: AskRejected) -> si_pb2.AllocationResponse:
    """Return the message of a refused ask or allocation, in the generation in which it arrived."""
    facts = {
        "allocationKey": decision.key,
        "applicationID": decision.application_id,
        "reason": decision.reason,
    }
    if decision.generation is Generation.ASK:
        return si_pb2.AllocationResponse(rejected=[si_pb2.RejectedAllocationAsk(**facts)])
    return si_pb2.AllocationResponse(rejectedAllocations=[si_pb2.RejectedAllocation(**facts)])


def ask_state(decision: AskStateChanged) -> si_pb2.AllocationResponse:
    """Return the message that says why an ask waits. The core sends such a message at each change of the reason.

    The outbox keeps only the last of these messages for each ask.
    """
    return si_pb2.AllocationResponse(
        schedulingStates=[
            si_pb2.UpdateContainerSchedulingStateRequest(
                applicationID=decision.application_id,
                allocationKey=decision.key,
                state=decision.state.name,
                reason=decision.reason,
            )
        ]
    )


def application_accepted(decision: ApplicationAccepted) -> si_pb2.ApplicationResponse:
    """Return the message that an application was accepted."""
    accepted = si_pb2.AcceptedApplication(applicationID=decision.application_id)
    return si_pb2.ApplicationResponse(accepted=[accepted])


def application_rejected(decision: ApplicationRejected) -> si_pb2.ApplicationResponse:
    """Return the message that an application was refused."""
    rejected = si_pb2.RejectedApplication(
        applicationID=decision.application_id, reason=decision.reason
    )
    return si_pb2.ApplicationResponse(rejected=[rejected])


def application_update_rejected(
    decision: ApplicationUpdateRejected,
) -> si_pb2.ApplicationResponse:
    """Return the message that a change of an application was refused."""
    rejected = si_pb2.RejectedApplication(
        applicationID=decision.application_id, reason=decision.reason
    )
    return si_pb2.ApplicationResponse(rejectedUpdates=[rejected])


def application_updated(decision: ApplicationUpdated) -> si_pb2.ApplicationResponse:
    """Return the message that an application changed its state.

    The wire has Unix nanoseconds.
    """
    return si_pb2.ApplicationResponse(
        updated=[
            si_pb2.UpdatedApplication(
                applicationID=decision.application_id,
                state=decision.state.value,
                stateTransitionTimestamp=decision.at_ms * _NANOSECONDS,
                message=decision.message,
            )
        ]
    )


def node_accepted(decision: NodeAccepted) -> si_pb2.NodeResponse:
    """Return the message that a node was accepted."""
    return si_pb2.NodeResponse(accepted=[si_pb2.AcceptedNode(nodeID=decision.node_id)])


def node_rejected(decision: NodeRejected) -> si_pb2.NodeResponse:
    """Return the message that a node event was refused."""
    rejected = si_pb2.RejectedNode(
        nodeID=decision.node_id, reason=decision.reason, code=decision.code
    )
    return si_pb2.NodeResponse(rejected=[rejected])


ALLOCATION_ANSWERS: Final[Mapping[type, Callable[[Any], Message]]] = {
    Released: released,
    Withdrawn: withdrawn,
    PlanCheckRequested: plan_checks.requested,
    PlanCheckEnded: plan_checks.ended,
    AskReleased: ask_released,
    AskRejected: ask_rejected,
    AskStateChanged: ask_state,
}
APPLICATION_ANSWERS: Final[Mapping[type, Callable[[Any], Message]]] = {
    ApplicationAccepted: application_accepted,
    ApplicationRejected: application_rejected,
    ApplicationUpdateRejected: application_update_rejected,
    ApplicationUpdated: application_updated,
}
NODE_ANSWERS: Final[Mapping[type, Callable[[Any], Message]]] = {
    NodeAccepted: node_accepted,
    NodeRejected: node_rejected,
}
"""The functions that make the message of a decision, by decision type. Each stream has one map."""
