"""The ReportService: guarantees that are not met and why, and the work that preemption destroyed."""

from evenhand.v1 import reports_pb2 as pb
from server.core.core import Core
from server.core.queries.lost_work import lost_owners, lost_owners_since, lost_work, lost_work_since
from server.core.queries.unmet.report import report
from server.model.records import LostLine
from server.rpc.errors import invalid, not_found
from server.rpc.evenhand import encode_unmet
from server.rpc.evenhand.decision_log import DecisionLog
from server.rpc.evenhand.reader import Reader
from server.rpc.evenhand.redaction import sees_all
from server.rpc.pump import Pump
from server.rpc.roles import CALLER, Caller


class ReportService:
    """The service that reads reports. The service changes nothing."""

    def __init__(self, core: Core, pump: Pump, log: DecisionLog, started_ms: int) -> None:
        self._core = core
        self._pump = pump
        self._log = log
        self._started_ms = started_ms

    def get_unmet_guarantees(
        self, request: pb.GetUnmetGuaranteesRequest
    ) -> pb.GetUnmetGuaranteesResponse:
        """Return the unmet guarantees of the requested queue and the queues below it. For a viewer the default is its own queue."""
        caller = CALLER.get()
        partition = Reader(self._core, caller).partition_name(request.partition)
        queue = self._queue(partition, request.queue.lower(), caller)
        now = self._pump.now()
        found = report(self._core, partition, now, queue)
        names = self._log.names(partition)
        return pb.GetUnmetGuaranteesResponse(
            partition=partition,
            queues=[encode_unmet.unmet_queue(one, names, caller) for one in found.queues],
            over_promised=found.over_promised if sees_all(caller) else {},
            queues_left_out=found.left_out,
            plans=found.plans,
            taken_at_ms=now,
            by_weight=self._core.state.partitions[partition].spec.preemption.entitlement
            == "proportional",
        )

    def _queue(self, partition: str, path: str, caller: Caller) -> str:
        """Return the queue that a request names. If the request names no queue, a viewer gets its own queue.

        Raise CallError NOT_FOUND if the caller sees no such queue.
        """
        known = self._core.state.partitions[partition].queues
        if path and (path not in known or not caller.sees(path)):
            raise not_found("queue", path)
        return path or ("" if sees_all(caller) else caller.queue)

    def get_lost_work(self, request: pb.GetLostWorkRequest) -> pb.GetLostWorkResponse:
        """Return the work lost since the server started, or since an instant. A viewer gets the lines that concern one of its queues."""
        caller = CALLER.get()
        reader = Reader(self._core, caller)
        known = self._core.state.partitions
        names = [reader.partition_name(request.partition)] if request.partition else sorted(known)
        answer = pb.GetLostWorkResponse(since_ms=self._started_ms, taken_at_ms=self._pump.now())
        for name in names:
            for owners, lines in ((False, answer.lines), (True, answer.owners)):
                found, begin = self._lost(name, request, owners=owners)
                answer.since_ms = max(answer.since_ms, begin)
                lines.extend(encode_unmet.lost_work(name, found, caller))
        return answer

    def _lost(
        self, partition: str, request: pb.GetLostWorkRequest, *, owners: bool
    ) -> tuple[list[LostLine], int]:
        """Return the requested lines, and the instant since which the lines are complete, in Unix milliseconds.

        The instant is 0 if the lines go back to the start of the server. With ``owners``, the lines are also split by the owner
        of the victims. Raise CallError if ``since_ms`` is negative.
        """
        if request.since_ms < 0:
            raise invalid("INVALID_SINCE", ("since_ms", f"{request.since_ms} is negative"))
        if request.since_ms > self._started_ms:
            since = lost_owners_since if owners else lost_work_since
            found, begin = since(self._core, partition, request.since_ms)
        else:
            found, begin = (lost_owners if owners else lost_work)(self._core, partition), 0
        queue = request.queue.lower()
        wanted = [one for one in found if request.policy in {"", one.policy} and one.touches(queue)]
        return wanted, begin
