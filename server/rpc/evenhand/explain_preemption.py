"""The preemption part of an explanation: a decision by its id, why a pod is evicted, and why an ask gets no capacity."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from evenhand.v1 import decisions_pb2
from evenhand.v1 import explain_pb2 as pb
from server.core.core import Core
from server.core.queries import (
    known_decisions,
    near_decisions,
    quota_outlook,
    shadow_records,
    verdicts,
)
from server.model.records import DecisionRecord, Verdict, Victim
from server.rpc.evenhand import encode_decisions, near_text, order_text, quota_text, redaction
from server.rpc.evenhand.decision_log import DecisionLog
from server.rpc.evenhand.decision_text import (
    evicted_sentence,
    held,
    of_victim,
    sentences,
    verdict_sentence,
)
from server.rpc.evenhand.redaction import VisibleDecision, sees, sees_all, side_of
from server.rpc.roles import Caller


class Preempted:
    """The reader of the decisions that one caller may read, for explanations. The reader changes nothing."""

    def __init__(self, core: Core, log: DecisionLog, caller: Caller) -> None:
        self._core = core
        self._log = log
        self._caller = caller

    def decision(
        self, key: str, partition: str, now: int, victim: str = ""
    ) -> pb.ExplainResponse | None:
        """Return the explanation of the decision with this id.

        ``victim`` is the victim that is compared with the next candidate, by default the last victim that the caller sees. Return
        None if the partition has no such decision, or if the decision does not concern the caller. A ``partition`` of "" means
        any partition.
        """
        record = known_decisions.decision(self._core, key)
        if record is None or partition not in ("", record.partition):
            return None
        side = side_of(known_decisions.whole(self._core, record), self._caller)
        if side is None:
            return None
        names = self._log.names(record.partition, record.decision_id)
        picture = encode_decisions.decision(side, names, sees(self._caller))
        ranking = known_decisions.ranking_of(self._core, record)
        if ranking is not None:
            known = sees(self._caller)
            encode_decisions.add_ranking(picture, ranking, names, known)
            told = order_text.sentences(
                record,
                ranking,
                names,
                known,
                now,
                victim,
                later=partial(known_decisions.evicted_later, self._core, record),
                with_nodes=sees_all(self._caller),
            )
            picture.why_these.extend(told)
        return pb.ExplainResponse(
            kind=pb.SUBJECT_KIND_DECISION,
            key=record.decision_id,
            partition=record.partition,
            lines=sentences(picture, now),
            taken_at_ms=now,
            decision=picture,
        )

    def evicted(self, key: str, partition: str, now: int) -> pb.ExplainResponse | None:
        """Explain the latest decision by which an allocation with this key, or a pod with this name, was evicted.

        Return None if there is no such decision. Return None also for the name of a pod that exists now, because such a pod is
        explained by its key.
        """
        if self._is_there(key, partition):
            return None
        for record in reversed(known_decisions.decisions(self._core, partition)):
            names = self._log.names(record.partition, record.decision_id)
            gone = frozenset(record.confirmed)
            victims = (one.key for one in record.victims if one.key in gone)
            victim = next((one for one in victims if _is_called(key, one, names)), "")
            answer = self.decision(record.decision_id, partition, now, victim) if victim else None
            for one in answer.decision.victims if answer is not None else ():
                if answer is not None and one.allocation_key == victim:
                    answer.evicted.CopyFrom(one)
                    answer.name = one.name
                    answer.lines.insert(0, evicted_sentence(answer.decision, one, now))
                    return answer
        return None

    def _is_there(self, name: str, partition: str) -> bool:
        """Return whether an ask or allocation has this name now."""
        state = self._core.state.partitions.items()
        return any(
            _is_called(name, key, names)
            for known, one in state
            if partition in {"", known}
            for names in (self._log.names(known),)
            for key in one.asks
        )

    def add_near(self, response: pb.ExplainResponse) -> None:
        """For a running allocation, add why the latest decisions on its node or in its queue evicted other pods and not this allocation.

        Add nothing to the answer about an allocation that is being evicted.
        """
        state = self._core.state.partitions.get(response.partition)
        ask = None if state is None else state.asks.get(response.key)
        if state is None or ask is None or ask.node is None or ask.releasing:
            return
        known = sees(self._caller)
        for found in near_decisions.not_evicted(state, ask):
            record = found.record
            names = self._log.names(record.partition, record.decision_id)
            victim = next((one for one in record.victims if one.key == found.victim), None)
            shown = victim is not None and known(victim.queue)
            name = (names(found.victim) or found.victim) if shown else ""
            node = found.node if sees_all(self._caller) else ""
            told = near_text.picture(found, name, node, response.taken_at_ms)
            response.placed.not_evicted.append(told)
            response.lines.append(told.sentence)

    def add_quota(self, response: pb.ExplainResponse) -> None:
        """Add the effects on a running allocation of the quota runs that are scheduled in the queues above it.

        The sentences follow the first line of the answer. Add nothing to the answer about an allocation that is being evicted.
        """
        state = self._core.state.partitions.get(response.partition)
        ask = None if state is None else state.asks.get(response.key)
        if state is None or ask is None or ask.node is None or ask.releasing:
            return
        now, known = response.taken_at_ms, sees(self._caller)
        for number, found in enumerate(quota_outlook.outlook(self._core, state, ask, now), 1):
            told = quota_text.picture(found, now, hidden=not known(found.queue))
            response.placed.quota_outlook.append(told)
            response.lines.insert(number, told.sentence)

    def add_release(self, response: pb.ExplainResponse) -> None:
        """Add the decision, and for operators the preemptors, to the answer about an allocation that is being evicted."""
        found = self._taking(response.partition, response.key)
        if found is None:
            return
        side, victim = found
        placed, record = response.placed, side.record
        placed.decision_id = record.decision_id
        placed.release.decision_id = record.decision_id
        placed.release.policy = record.policy
        placed.release.because = victim.because
        placed.release.state = encode_decisions.STATES[record.state]
        placed.release.at_ms = record.at_ms
        if sees_all(self._caller):
            names = self._log.names(record.partition, record.decision_id)
            placed.released_for = ", ".join(
                names(one.key) or one.key for one in record.beneficiaries
            )
        else:
            response.lines.append(_why(record, victim))
        whole = known_decisions.decision(self._core, record.decision_id)
        assert whole is not None, "the decision was found a moment ago"
        levels = redaction.levels(known_decisions.levels(self._core, whole), self._caller)
        told = encode_decisions.levels(levels, sees(self._caller))
        own = of_victim(told, victim.queue)
        if own:
            placed.release.levels.extend(own)
            response.lines.append(f"When that was decided, {held(own)}.")

    def add_verdict(self, response: pb.ExplainResponse) -> Verdict | None:
        """Add to the answer about a waiting ask the outcome that preemption would have, or the rule that forbids preemption.

        Return the part of the verdict that the caller may read. Return None if there is no verdict on the ask.
        """
        found = verdicts.verdict(self._core, response.key, response.taken_at_ms)
        if found is None:
            return None
        picture = self._picture(found, response.partition)
        response.waiting.preemption.CopyFrom(picture)
        response.lines.append(verdict_sentence(picture, response.taken_at_ms))
        return redaction.verdict(found, self._caller)

    def add_shadow(self, response: pb.ExplainResponse) -> None:
        """Add to the answer about a waiting ask the outcome under the shadow of the ask's partition, if there is a shadow."""
        found = shadow_records.would(self._core, response.key, response.taken_at_ms)
        if found is None:
            return
        picture = self._picture(found, response.partition)
        response.waiting.shadow.CopyFrom(picture)
        line = verdict_sentence(picture, response.taken_at_ms)
        response.lines.append(f"Under the shadow settings: {line[:1].lower()}{line[1:]}")

    def _picture(self, found: Verdict, partition: str) -> decisions_pb2.PreemptionVerdict:
        """Return the message of a verdict with only what the caller may read."""
        told, names = redaction.verdict(found, self._caller), self._log.names(partition)
        told = replace(told, because=encode_decisions.with_names(told.because, names))
        return encode_decisions.verdict(told, names, sees(self._caller))

    def _taking(self, partition: str, key: str) -> tuple[VisibleDecision, Victim] | None:
        """Return the latest decision that is evicting this allocation, and the allocation as the decision's victim.

        The decision contains only what the caller may read. Return None if no decision is evicting the allocation.
        """
        state = self._core.state.partitions.get(partition)
        ask = None if state is None else state.asks.get(key)
        if ask is None or not ask.releasing:
            return None
        for record in reversed(known_decisions.decisions(self._core, partition)):
            side = None if key in record.stayed else side_of(record, self._caller)
            victims = side.record.victims if side is not None else ()
            victim = next((one for one in victims if one.key == key), None)
            if side is not None and victim is not None:
                return side, victim
        return None


def _is_called(name: str, key: str, names: Callable[[str], str]) -> bool:
    """Return whether the name is the key of an allocation, or the name of its pod with or without its namespace."""
    full = names(key)
    return name in {key, full, full.partition("/")[2]} - {""}


def _why(record: DecisionRecord, victim: Victim) -> str:
    """Return the sentence that the owner of a victim may read about the decision (design 1.14)."""
    why = f": {victim.because.rstrip('.')}" if victim.because else ""
    return (
        f"It is ordered to be evicted from queue {victim.queue}, with priority {victim.priority}, by decision "
        f"{record.decision_id} of policy {record.policy}{why}."
    )
