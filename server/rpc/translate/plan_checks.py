"""The translation of plan checks between the wire and the core (design 1.8)."""

from collections.abc import Iterable

from server.model.decisions import Noted, PlanCheckEnded, PlanCheckRequested
from server.model.events import PlanChecked
from server.model.reasons import Code
from server.rpc.translate.allocations import Batch
from server.rpc.translate.fields import RefusedError, bounded, partition
from server.rpc.translate.releases import REASON_CHARACTERS_MAX, add_each
from si.v1 import si_pb2


def requested(decision: PlanCheckRequested) -> si_pb2.AllocationResponse:
    """Return the message of a plan check, which is a question to a manager."""
    placements = [
        si_pb2.PlannedPlacement(allocationKey=key, nodeID=node_id)
        for key, node_id in decision.placements
    ]
    check = si_pb2.PlanCheck(
        checkID=decision.check_id,
        partitionName=decision.partition,
        placements=placements,
        victims=decision.victims,
    )
    return si_pb2.AllocationResponse(planChecks=[check])


def ended(decision: PlanCheckEnded) -> si_pb2.AllocationResponse:
    """Return the message of the end of a plan check."""
    end = si_pb2.EndedPlanCheck(
        checkID=decision.check_id, partitionName=decision.partition, reason=decision.reason
    )
    return si_pb2.AllocationResponse(endedPlanChecks=[end])


def add_answers(batch: Batch, encoded: Iterable[bytes]) -> None:
    """Add an event for each answer to a plan check, or a note that names the wrong field.

    Raise DecodeError for malformed bytes.
    """
    answers = map(si_pb2.PlanCheckAnswer.FromString, encoded)
    refusal = Noted("manager", batch.rm_id, Code.PLAN_CHECK_UNKNOWN, "planCheckAnswers")
    add_each(batch, answers, _checked, refusal)


def _checked(rm_id: str, answer: si_pb2.PlanCheckAnswer) -> PlanChecked:
    if answer.fits and answer.refused:
        raise RefusedError("refused: is set although `fits` is true")
    refused = tuple(
        (bounded("refused.allocationKey", one.allocationKey), one.reason[:REASON_CHARACTERS_MAX])
        for one in answer.refused
    )
    check_id = bounded("checkID", answer.checkID)
    return PlanChecked(rm_id, partition(answer.partitionName), check_id, answer.fits, refused)
