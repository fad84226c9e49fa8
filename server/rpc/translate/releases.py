"""The translation of releases, vetoes and disruption budgets from the wire to events."""

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from server.model.asks import Generation
from server.model.decisions import Noted, Termination
from server.model.events import DisruptionsAllowed, Event, ReleaseRequested, VictimVetoed
from server.model.reasons import Code
from server.rpc.translate.allocations import Batch
from server.rpc.translate.fields import RefusedError, bounded, name, partition, whole
from si.v1 import si_pb2

REASON_CHARACTERS_MAX: Final = 1_024
"""The largest number of characters that are kept of a veto's reason and of a release's message."""
_ALLOWED_MAX: Final = (1 << 31) - 1
_M = TypeVar("_M")
_ASK: Final = Generation.ASK
_ALLOCATION: Final = Generation.ALLOCATION
"""The generations as module constants, because access to a member of an enumeration is slow."""


def add_releases(batch: Batch, message: si_pb2.AllocationReleasesRequest) -> None:
    """Add an event for each release, or a refusal that names the wrong field.

    For a release without key and application, add a note.
    """
    for release in message.allocationsToRelease:
        # The ask generation identifies an allocation by its UUID. Here the UUID is the key.
        generation = _ASK if release.UUID else _ALLOCATION
        _add(batch, release, release.allocationKey or release.UUID, generation)
    for ask in message.allocationAsksToRelease:
        _add(batch, ask, ask.allocationKey, Generation.ASK)


def _add(
    batch: Batch,
    release: si_pb2.AllocationRelease | si_pb2.AllocationAskRelease,
    key: str,
    generation: Generation,
) -> None:
    if not key and not release.applicationID:
        # There is no object that a rejection could name.
        message = "release without allocationKey and applicationID"
        batch.refusals.append(
            Noted("allocation", "", Code.RELEASE_UNKNOWN, message, rm_id=batch.rm_id)
        )
        return
    try:
        batch.events.append(_requested(batch.rm_id, release, key, generation))
    except RefusedError as refused:
        batch.refuse(key, release.applicationID, f"release: {refused}", generation)


def _requested(
    rm_id: str,
    release: si_pb2.AllocationRelease | si_pb2.AllocationAskRelease,
    key: str,
    generation: Generation,
) -> ReleaseRequested:
    return ReleaseRequested(
        rm_id,
        bounded("applicationID", release.applicationID),
        bounded("allocationKey", key),
        partition(release.partitionName),
        _termination(release.terminationType),
        release.message[:REASON_CHARACTERS_MAX],
        generation,
        asks_only=isinstance(release, si_pb2.AllocationAskRelease),
    )


def _termination(number: int) -> Termination:
    try:
        return Termination(number)
    except ValueError as unknown:
        raise RefusedError(f"terminationType: {number} is unknown") from unknown


def add_vetoes(batch: Batch, encoded: Iterable[bytes]) -> None:
    """Add an event for each veto, or a note that names the wrong field.

    Raise DecodeError for malformed bytes.
    """
    vetoes = map(si_pb2.VictimVeto.FromString, encoded)
    add_each(batch, vetoes, _vetoed, Noted("allocation", "", Code.RELEASE_UNKNOWN, "veto"))


def add_each(
    batch: Batch, messages: Iterable[_M], read: Callable[[str, _M], Event], refusal: Noted
) -> None:
    """Add the event of each message, or a note that the message is refused.

    The note is ``refusal``, with the reason after its message.
    """
    for message in messages:
        try:
            batch.events.append(read(batch.rm_id, message))
        except RefusedError as refused:
            told = f"{refusal.message}: {refused}"
            batch.refusals.append(refusal._replace(message=told, rm_id=batch.rm_id))


def _vetoed(rm_id: str, veto: si_pb2.VictimVeto) -> VictimVetoed:
    return VictimVetoed(
        rm_id,
        bounded("decisionID", veto.decisionID),
        bounded("allocationKey", veto.allocationKey),
        veto.reason[:REASON_CHARACTERS_MAX],
    )


def add_budgets(batch: Batch, encoded: Iterable[bytes]) -> None:
    """Add an event for each disruption budget, or a note that names the wrong field.

    Raise DecodeError for malformed bytes.
    """
    budgets = map(si_pb2.DisruptionBudget.FromString, encoded)
    refusal = Noted("manager", batch.rm_id, Code.DISRUPTIONS_REFUSED, "disruptionBudgets")
    add_each(batch, budgets, _disruptions, refusal)


def _disruptions(rm_id: str, budget: si_pb2.DisruptionBudget) -> DisruptionsAllowed:
    group = name("name", budget.name)
    if budget.removed:
        return DisruptionsAllowed(rm_id, group, None)
    return DisruptionsAllowed(rm_id, group, whole("allowed", budget.allowed, _ALLOWED_MAX))
