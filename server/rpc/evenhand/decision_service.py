"""The DecisionService: the decisions of preemption and their outcomes, limited to what each caller may read."""

from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from itertools import islice

from evenhand.v1 import decisions_pb2 as pb
from server.core.core import Core
from server.core.queries import known_decisions, shadow_records
from server.model.decisions import DecisionMoved
from server.model.records import DecisionRecord, touches
from server.model.shadow import ShadowRecord
from server.rpc.errors import invalid, not_found
from server.rpc.evenhand import encode_decisions, encode_shadows, order_text
from server.rpc.evenhand.decision_log import Change, DecisionLog
from server.rpc.evenhand.decision_text import sentences
from server.rpc.evenhand.pages import Page, wanted
from server.rpc.evenhand.reader import Reader
from server.rpc.evenhand.redaction import VisibleDecision, sees, sees_all, side_of, without
from server.rpc.evenhand.watchers import Watchers
from server.rpc.limits import PAGE_MAX, RESPONSE_OBJECTS_MAX
from server.rpc.pump import Pump
from server.rpc.roles import CALLER, Caller


class DecisionService:
    """The service that reads decisions. The service changes nothing."""

    def __init__(self, core: Core, pump: Pump, log: DecisionLog, watchers: Watchers) -> None:
        self._core = core
        self._pump = pump
        self._log = log
        self._watchers = watchers

    def list_decisions(self, request: pb.ListDecisionsRequest) -> pb.ListDecisionsResponse:
        """Return a page of decisions, oldest first. A viewer gets the decisions that concern its queues."""
        page = wanted(request.page_size, request.page_token)
        partition, caller = self._partition(request.partition), CALLER.get()
        if request.since_ms < 0:
            raise invalid("INVALID_SINCE", ("since_ms", f"{request.since_ms} is negative"))
        found = known_decisions.decisions(
            self._core,
            partition,
            request.policy,
            open_only=request.open_only,
            since_ms=request.since_ms,
        )
        sides = [side for one in found if (side := _side(one, caller, request.queue))]
        chosen, token = _cut(sides, page)
        return pb.ListDecisionsResponse(
            decisions=[self._picture(side, caller) for side in chosen],
            next_page_token=token,
            taken_at_ms=self._pump.now(),
        )

    def get_decision(self, request: pb.GetDecisionRequest) -> pb.GetDecisionResponse:
        """Return one decision. Raise NOT_FOUND if the decision does not exist, or does not concern the queues of a viewer."""
        caller, now = CALLER.get(), self._pump.now()
        record = known_decisions.decision(self._core, request.decision_id)
        side = (
            None if record is None else side_of(known_decisions.whole(self._core, record), caller)
        )
        if record is None or side is None:
            raise not_found("decision", request.decision_id)
        picture = self._picture(side, caller)
        ranking = known_decisions.ranking_of(self._core, side.record)
        if ranking is not None:
            names = self._log.names(side.record.partition, side.record.decision_id)
            encode_decisions.add_ranking(picture, ranking, names, sees(caller))
            picture.why_these.extend(
                order_text.sentences(
                    record,
                    ranking,
                    names,
                    sees(caller),
                    now,
                    later=partial(known_decisions.evicted_later, self._core, record),
                    with_nodes=sees_all(caller),
                )
            )
        return pb.GetDecisionResponse(
            decision=picture, lines=sentences(picture, now), taken_at_ms=now
        )

    async def watch_decisions(
        self, request: pb.WatchDecisionsRequest
    ) -> AsyncIterator[pb.WatchDecisionsResponse]:
        """Yield the kept changes after the number ``since`` of the request, then further changes as they happen, in batches."""
        if request.since < 0:
            raise invalid("INVALID_SINCE", ("since", f"{request.since} is negative"))
        self._partition(request.partition)
        caller = CALLER.get()
        with self._watchers.watching():
            seen, number = -1, request.since
            while True:
                seen = await self._watchers.change(seen)
                missed = max(self._log.first - number - 1, 0) if number else 0
                while changes := _batch(self._log.after(number)):
                    number = changes[-1].number
                    told = [one for each in changes if (one := self._told(each, request, caller))]
                    if told or missed:
                        yield pb.WatchDecisionsResponse(changes=told, missed=missed)
                    missed = 0

    def list_shadow_decisions(
        self, request: pb.ListShadowDecisionsRequest
    ) -> pb.ListShadowDecisionsResponse:
        """Return a page of the decisions of shadows, oldest first. A viewer gets the decisions that concern its queues."""
        page = wanted(request.page_size, request.page_token)
        partition, caller = self._partition(request.partition), CALLER.get()
        found = shadow_records.reports(self._core, partition)
        records = sorted(
            (record for one in found for record in one.records if _wanted(record, request, caller)),
            key=lambda one: one.at_ms,
        )
        rows = [
            1 + sum(len(one.victims) for one in (each.live, each.shadow) if one) for each in records
        ]
        end = _end(rows, page)
        chosen = records[page.start : end]
        return pb.ListShadowDecisionsResponse(
            decisions=[
                encode_shadows.decision(one, self._log.names(one.partition, _id_of(one)), caller)
                for one in chosen
            ],
            next_page_token=str(end) if end < len(records) else "",
            shadows=[encode_shadows.shadow(one, caller) for one in found],
            taken_at_ms=self._pump.now(),
        )

    def _partition(self, name: str) -> str:
        return name and Reader(self._core, CALLER.get()).partition_name(name)

    def _picture(self, side: VisibleDecision, caller: Caller) -> pb.Decision:
        record = side.record
        names = self._log.names(record.partition, record.decision_id)
        return encode_decisions.decision(side, names, sees(caller))

    def _told(
        self, change: Change, request: pb.WatchDecisionsRequest, caller: Caller
    ) -> pb.DecisionChange | None:
        """Return the part of the change that the caller may read. Return None if the change does not match the request."""
        record, moved = change.record, change.moved
        side = _side(record, caller, request.queue)
        if side is None or not _asked(change, request) or _of_others(moved, side):
            return None
        told = pb.DecisionChange(
            number=change.number,
            time_ms=change.at_ms,
            decision_id=record.decision_id,
            policy=record.policy,
            partition=record.partition,
            state=encode_decisions.STATES[change.state],
        )
        if moved is None:
            told.decision.CopyFrom(self._picture(side, caller))
        else:
            told.vetoed_key = moved.key
            told.vetoed_name = self._log.names(record.partition, record.decision_id)(moved.key)
            told.reason = _reason(moved, side, caller)
        return told


def _side(record: DecisionRecord, caller: Caller, queue: str) -> VisibleDecision | None:
    """Return the part of a decision that the caller may read.

    Return None if there is no such part, or if the part does not touch the requested queue.
    """
    side = side_of(record, caller)
    if side is None or not touches(side.record, queue.lower()):
        return None
    return side


def _asked(change: Change, request: pb.WatchDecisionsRequest) -> bool:
    record = change.record
    partition = request.partition.lower()
    return partition in ("", record.partition) and request.policy in ("", record.policy)


def _of_others(moved: DecisionMoved | None, side: VisibleDecision) -> bool:
    """Return whether the change is a veto of a victim about which the caller may not read."""
    if moved is None or not moved.key:
        return False
    return all(one.key != moved.key for one in side.record.victims)


def _reason(moved: DecisionMoved, side: VisibleDecision, caller: Caller) -> str:
    """Return why the decision moved, without names that the caller may not read.

    If a viewer owns none of the decision's preemptors, the viewer gets a reason only for the veto of a victim, and else "".
    """
    if sees_all(caller):
        return moved.reason
    if not (side.record.beneficiaries or moved.key):
        return ""
    return without(moved.reason, side.foreign)


def _batch(changes: Iterator[Change]) -> list[Change]:
    """Return the next changes for one message: at least one, and further changes while all changes together have at most `PAGE_MAX` rows."""
    found: list[Change] = []
    rows = 0
    for change in islice(changes, RESPONSE_OBJECTS_MAX):
        rows += 1 if change.moved is not None else encode_decisions.rows(change.record)
        if found and rows > PAGE_MAX:
            break
        found.append(change)
    return found


def _cut(sides: Sequence[VisibleDecision], page: Page) -> tuple[Sequence[VisibleDecision], str]:
    """Return the decisions of the page, and the token of the next page or "".

    If the decisions have many victims, the page is shorter.
    """
    end = _end([encode_decisions.rows(side.record) for side in sides], page)
    return sides[page.start : end], str(end) if end < len(sides) else ""


def _end(rows: Sequence[int], page: Page) -> int:
    """Return the index after the last decision of the page.

    ``rows`` has, for each decision, the result of `encode_decisions.rows`.
    """
    total, end = 0, page.start
    for one in rows[page.start : page.start + page.size]:
        total += one
        if total > PAGE_MAX and end > page.start:
            break
        end += 1
    return end


def _wanted(record: ShadowRecord, request: pb.ListShadowDecisionsRequest, caller: Caller) -> bool:
    """Return whether the record concerns the caller and matches the request."""
    if request.difference and encode_shadows.DIFFERENCES[record.difference] != request.difference:
        return False
    queue = request.queue.lower()
    return encode_shadows.concerns(record, caller, queue)


def _id_of(record: ShadowRecord) -> str:
    """Return the id of the live decision, or "" if there is no live decision. The names of ended pods are looked up by this id."""
    return "" if record.live is None else record.live.decision_id
