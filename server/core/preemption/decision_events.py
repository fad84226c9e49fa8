"""The changes of open decisions since the last call: the decisions to report, and the updates of the decisions' records."""

from server.core.preemption import decision_records, due_quota
from server.model.decisions import Decision, DecisionMoved, Noted
from server.model.reasons import Code
from server.model.records import DecisionState
from server.state.commitments import Commitment
from server.state.partition import Partition

_CODES = {
    DecisionState.ABORTED: Code.DECISION_ABORTED,
    DecisionState.EXPIRED: Code.DECISION_EXPIRED,
}


def moves(partition: Partition, now: int) -> list[Decision]:
    """Return the changes of decisions since the last call, in order, and update their records. Reservations are left out.

    A note is added when a decision ends without effect. A note is also added when a quota run ends and leaves its queue over
    its maximum.
    """
    found: list[Decision] = []
    for commitment, state, reason in partition.decisions.moves:
        if commitment.record is not None:
            found += _moved(partition, commitment, state, reason, now)
    partition.decisions.moves.clear()
    return found


def _moved(
    partition: Partition, commitment: Commitment, state: DecisionState, reason: str, now: int
) -> list[Decision]:
    decision_id = commitment.commitment_id
    known = partition.decisions.records[decision_id]
    known = decision_records.moved(known, state, now, reason, tuple(commitment.gone))
    partition.decisions.records[decision_id] = known
    commitment.record = known
    found: list[Decision] = [
        DecisionMoved(partition.owner, partition.name, decision_id, state, now, reason)
    ]
    code = _CODES.get(state)
    if code is not None:
        message = f"decision {decision_id} is {state.value}: {reason}"
        subject = known.beneficiaries[0].key if known.beneficiaries else commitment.queue
        kind = "ask" if known.beneficiaries else "queue"
        found.append(Noted(kind, subject, code, message, partition.name, partition.owner))
    if commitment.queue and not state.is_open:
        found += due_quota.ended(partition, commitment.queue)
    return found
