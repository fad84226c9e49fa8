"""The HistoryService: the past, from the database of the history, limited to what each caller may see.

Every answer is made in a copy of the process (`rpc/copies`), with a connection of its own that cannot write. A core without a
history has the service `NoHistory` instead, which needs none of the modules that this module imports.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import grpc
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from evenhand.v1 import decisions_pb2
from evenhand.v1 import history_pb2 as pb
from server.history import reading, records
from server.history.address import Address
from server.history.database import reading as read_only
from server.history.database import reason_of
from server.history.reading import Period
from server.history.settings import DAY_MS, HOUR_MS
from server.model.quota import DEFAULT_PARTITION, ROOT
from server.model.records import DecisionRecord, touches
from server.rpc.errors import CallError, invalid, not_found
from server.rpc.evenhand import encode_decisions, encode_history, encode_unmet
from server.rpc.evenhand.decision_text import sentences
from server.rpc.evenhand.pages import Page, key_in, size_of, token_after, wanted
from server.rpc.evenhand.redaction import VisibleDecision, sees, sees_all, side_of
from server.rpc.limits import PAGE_MAX
from server.rpc.pump import Pump
from server.rpc.roles import CALLER, Caller

POINTS: Final = 60
POINTS_MAX: Final = 1_000
CONFIGURATIONS_MAX: Final = 20
"""The largest number of configurations on one page. Each configuration is compared with the previous configuration, which takes time."""
DECISIONS_AT_ONCE: Final = 200
"""The largest number of decisions that are read from the database at once."""


class HistoryService:
    """The service that reads the history. The service changes nothing."""

    def __init__(self, pump: Pump, place: Address) -> None:
        self._pump = pump
        self._place = place

    def get_queue_history(self, request: pb.GetQueueHistoryRequest) -> pb.GetQueueHistoryResponse:
        """Return the usage of a queue over time and the waits of its pods. Raise NOT_FOUND if the caller may not see the queue."""
        caller = CALLER.get()
        points = request.points or POINTS
        if not 0 < points <= POINTS_MAX:
            raise invalid("INVALID_POINTS", ("points", f"{points} is not between 1 and 1,000"))
        queue = _queue(request.queue, caller) or ROOT
        partition = _partition(request.partition)
        with self._read() as connection:
            when = self._period(connection, request.since_ms, request.until_ms, HOUR_MS)
            series = reading.usage(connection, partition, queue, when, points)
            waits, _ = reading.waits(connection, partition, queue, when, sees(caller))
        return pb.GetQueueHistoryResponse(
            partition=partition,
            queue=queue,
            period=encode_history.period(when),
            series=[encode_history.series(kind, found) for kind, found in series.items()],
            waits=encode_history.waits(reading.together(queue, waits)),
        )

    def get_pod_history(self, request: pb.GetPodHistoryRequest) -> pb.GetPodHistoryResponse:
        """Return the asks of a pod. Raise NOT_FOUND if the history has no ask of the pod that the caller may see."""
        caller = CALLER.get()
        with self._read() as connection:
            when = self._period(connection, 1, 0, DAY_MS)
            found = reading.pods_of(
                connection, request.partition.lower(), request.pod, sees(caller)
            )
        if not found:
            raise not_found("pod in the history", request.pod)
        with_node = sees_all(caller)
        return pb.GetPodHistoryResponse(
            pods=[encode_history.pod(row, waits, with_node=with_node) for row, waits in found],
            period=encode_history.period(when),
        )

    def get_waits(self, request: pb.GetWaitsRequest) -> pb.GetWaitsResponse:
        """Return, by queue, how long pods waited. A viewer gets the waits in its own queues."""
        caller = CALLER.get()
        queue = _queue(request.queue, caller)
        with self._read() as connection:
            when = self._period(connection, request.since_ms, request.until_ms, DAY_MS)
            found, left_out = reading.waits(
                connection, _partition(request.partition), queue, when, sees(caller)
            )
        return pb.GetWaitsResponse(
            queues=map(encode_history.waits, found),
            total=encode_history.waits(reading.together(queue, found)),
            period=encode_history.period(when),
            left_out=left_out,
        )

    def list_configurations(
        self, request: pb.ListConfigurationsRequest
    ) -> pb.ListConfigurationsResponse:
        """Return a page of configurations, the latest first, with differences and effects."""
        page = wanted(request.page_size, request.page_token)
        page = Page(page.start, min(page.size, CONFIGURATIONS_MAX))
        with self._read() as connection:
            when = self._period(connection, request.since_ms or 1, request.until_ms, DAY_MS)
            found, token = page.read(
                lambda start, size: records.configurations(connection, when, start, size)
            )
            effects = [
                records.effects(
                    connection,
                    row["at_ms"],
                    after["at_ms"] if after is not None else when.until_ms,
                )
                for row, _, after in found
            ]
        return pb.ListConfigurationsResponse(
            configurations=[
                encode_history.configuration(row, before, after, effect)
                for (row, before, after), effect in zip(found, effects, strict=True)
            ],
            next_page_token=token,
            period=encode_history.period(when),
        )

    def get_configuration(self, request: pb.GetConfigurationRequest) -> pb.GetConfigurationResponse:
        """Return one configuration with its text. Raise NOT_FOUND if the history has no such revision."""
        with self._read() as connection:
            found = records.configuration(connection, request.revision)
        if found is None:
            raise not_found("revision of the configuration", str(request.revision))
        return pb.GetConfigurationResponse(
            configuration=encode_history.plain_configuration(found), yaml=found["document"]
        )

    def get_past_lost_work(self, request: pb.GetPastLostWorkRequest) -> pb.GetPastLostWorkResponse:
        """Return the work lost in a period. A viewer gets the lines that concern one of its queues."""
        caller, queue = CALLER.get(), request.queue.lower()
        partition = request.partition.lower()
        with self._read() as connection:
            when = self._period(connection, request.since_ms, request.until_ms, DAY_MS)
            found = records.lost_work(connection, when, partition, request.policy)
        answer = pb.GetPastLostWorkResponse(period=encode_history.period(when))
        for name, lines in found.items():
            owners = [one for one in lines if one.touches(queue)]
            chosen = [replace(one, user="", application="") for one in owners]
            answer.lines.extend(encode_unmet.lost_work(name, chosen, caller))
            answer.owners.extend(encode_unmet.lost_work(name, owners, caller))
        return answer

    def list_failovers(self, request: pb.ListFailoversRequest) -> pb.ListFailoversResponse:
        """Return a page of starts, ends and registrations, the latest first."""
        page = wanted(request.page_size, request.page_token)
        with self._read() as connection:
            when = self._period(connection, request.since_ms or 1, request.until_ms, DAY_MS)
            found, token = page.read(
                lambda start, size: records.failovers(connection, when, start, size)
            )
        return pb.ListFailoversResponse(
            failovers=map(encode_history.failover, found),
            next_page_token=token,
            period=encode_history.period(when),
        )

    def list_past_decisions(
        self, request: pb.ListPastDecisionsRequest
    ) -> pb.ListPastDecisionsResponse:
        """Return a page of decisions, the oldest or the latest first. A viewer gets the decisions that concern its queues.

        At most `PAGE_MAX` rows are read for a page, so a page may be short although more decisions match.
        """
        caller, queue, size = CALLER.get(), request.queue.lower(), size_of(request.page_size)
        key = key_in(request.page_token, (int, str, str))
        after = None if key is None else records.ListingKey._make(key)
        found: list[decisions_pb2.Decision] = []
        rows, token = 0, ""
        with self._read() as connection:
            when = self._period(connection, request.since_ms, request.until_ms, DAY_MS)
            which = records.Which(
                when, request.partition.lower(), request.policy, after, request.latest_first
            )
            every = records.decisions(connection, which, min(size + 1, DECISIONS_AT_ONCE))
            for number, one in enumerate(every):
                side = _visible(one.record, caller, queue)
                rows += 0 if side is None else encode_decisions.rows(side.record)
                is_full = len(found) == size or (bool(found) and rows > PAGE_MAX)
                if number == PAGE_MAX or (is_full and side is not None):
                    assert after is not None
                    token = token_after(after)
                    break
                after = one.place
                if side is not None:
                    found.append(encode_decisions.decision(side, _names(one.names), sees(caller)))
        return pb.ListPastDecisionsResponse(
            decisions=found,
            next_page_token=token,
            period=encode_history.period(when),
        )

    def get_past_decision(self, request: pb.GetPastDecisionRequest) -> pb.GetPastDecisionResponse:
        """Return one decision. Raise NOT_FOUND if the decision does not exist, or does not concern the queues of a viewer."""
        caller, now = CALLER.get(), self._pump.now()
        with self._read() as connection:
            found = records.decision(connection, request.decision_id)
        side = None if found is None else side_of(found[0], caller)
        if found is None or side is None:
            raise not_found("decision", request.decision_id)
        picture = encode_decisions.decision(side, _names(found[1]), sees(caller))
        return pb.GetPastDecisionResponse(
            decision=picture, lines=sentences(picture, now), taken_at_ms=now
        )

    @contextmanager
    def _read(self) -> Iterator[Connection]:
        """Provide a connection that only reads. Raise CallError if the database does not answer."""
        try:
            with read_only(self._place) as connection:
                yield connection
        except SQLAlchemyError as error:
            message = f"the history cannot be read: {reason_of(error)}; `evenhand doctor` says more"
            raise CallError(
                grpc.StatusCode.FAILED_PRECONDITION, "HISTORY_FAILED", message
            ) from error

    def _period(
        self, connection: Connection, since_ms: int, until_ms: int, length_ms: int
    ) -> Period:
        """Return the period of a request. Raise CallError if the period does not begin before its end."""
        until = until_ms or self._pump.now()
        since = since_ms or until - length_ms
        if not 0 <= since < until:
            raise invalid("INVALID_PERIOD", ("since_ms", "the period ends before it begins"))
        return reading.period(connection, since, until)


def _visible(record: DecisionRecord | None, caller: Caller, queue: str) -> VisibleDecision | None:
    """Return the part of a decision that the caller may read.

    Return None if there is no such part, or if the part does not touch the queue.
    """
    side = None if record is None else side_of(record, caller)
    return side if side is not None and touches(side.record, queue) else None


def _names(names: Mapping[str, str]) -> Callable[[str], str]:
    return lambda key: names.get(key, "")


def _partition(name: str) -> str:
    return name.lower() or DEFAULT_PARTITION


def _queue(path: str, caller: Caller) -> str:
    """Return the queue that a request names, or by default a viewer's own. Raise CallError NOT_FOUND for a hidden queue."""
    queue = path.lower()
    if queue and not sees_all(caller) and not caller.sees(queue):
        raise not_found("queue", path)
    return queue or ("" if sees_all(caller) else caller.queue)
