"""Messages of `evenhand.v1` for simulations. A viewer gets no nodes and nothing of other queues. The functions are pure."""

from collections.abc import Iterator
from typing import Final

from evenhand.v1 import simulate_pb2 as pb
from server.model.phrases import count
from server.model.records import AskSimulation, GroupSimulation
from server.rpc.evenhand import encode_fit, redaction
from server.rpc.evenhand.encode_decisions import (
    Names,
    levels,
    spared,
    verdict,
    victim,
)
from server.rpc.evenhand.simulated import CORRECT_IT, ReadAsk
from server.rpc.roles import Caller

_OUTCOMES: Final = {
    "placed": pb.ASK_OUTCOME_PLACED,
    "preempts": pb.ASK_OUTCOME_PREEMPTS,
    "waits": pb.ASK_OUTCOME_WAITS,
    "refused": pb.ASK_OUTCOME_REFUSED,
}


_LACKS_CAPACITY: Final = "no node has enough free capacity, or its queue has no headroom"


class AskPictures:
    """The encoder of messages about simulated asks, limited to what one caller may read."""

    def __init__(self, caller: Caller, names: Names) -> None:
        self._caller = caller
        self._names = names

    def ask(self, asked: ReadAsk, found: AskSimulation) -> pb.AskSimulation:
        """Return the message of one answer.

        A viewer gets the answer without the node. The verdict leaves out fields that the answer already has.
        """
        caller, sees = self._caller, redaction.sees(self._caller)
        goes = redaction.own_victims(found.victims, caller)
        picture = pb.AskSimulation(
            allocation_key=asked.message.allocationKey,
            outcome=_OUTCOMES[found.outcome],
            queue=found.queue,
            node_id=found.node_id if redaction.sees_all(caller) else "",
            resources=dict(asked.spec.resource),
            priority=asked.message.priority,
            victims=[victim(one, self._names) for one in goes],
            spared=spared(redaction.spared(found.spared, caller), self._names),
            levels=levels(redaction.levels(found.levels, caller), sees),
            victims_elsewhere=len(found.victims) - len(goes),
            group=found.group,
            assumed=[
                pb.Assumption(name=one.name, value=one.value, because=one.because)
                for one in asked.assumed
            ],
        )
        if found.verdict is not None:
            told = redaction.verdict(found.verdict, caller)
            picture.verdict.CopyFrom(verdict(told, self._names, sees))
            if found.spared:
                picture.verdict.ClearField("spared")
            if found.levels:
                picture.verdict.ClearField("levels")
        if found.outcome == "refused":
            picture.advice = asked.advice or (CORRECT_IT if not asked.refusal else "")
        own = redaction.sees_all(caller) or found.outcome == "refused"
        picture.lines.extend((own and found.lines) or _lines(picture, found.brief))
        return picture

    def group(self, found: GroupSimulation) -> pb.SimulatedGroup:
        """Return the message of a group of asks.

        A viewer gets the group without nodes, without other queues' limits, and without the next steps, because these may name
        nodes and other queues.
        """
        fit = encode_fit.seen(found.fit, self._caller)
        steps = found.next_steps if redaction.sees_all(self._caller) else ()
        return pb.SimulatedGroup(fit=encode_fit.group_fit(fit), next_steps=steps)


def _lines(picture: pb.AskSimulation, lacks: str) -> Iterator[str]:
    """Yield the answer in sentences that name no other tenant."""
    goes = len(picture.victims) + picture.victims_elsewhere
    if picture.outcome == pb.ASK_OUTCOME_PLACED:
        yield f"It would be placed at once{f', on node {picture.node_id}' if picture.node_id else ''}."
    elif picture.outcome == pb.ASK_OUTCOME_PREEMPTS:
        node = f"node {picture.node_id}" if picture.node_id else "a node"
        if goes:
            yield f"It would get {node}: {count(goes, 'allocation')} would be evicted."
        else:
            yield f"It would get {node} later, without evictions for it."
    else:
        yield f"It would wait: {lacks or _LACKS_CAPACITY}."
        if picture.verdict.law:
            yield f"Preemption frees no capacity for it (`{picture.verdict.law}`): {picture.verdict.rule}."
