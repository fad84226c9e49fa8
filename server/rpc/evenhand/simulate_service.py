"""The SimulateService, which says what would happen to asks, and what would happen after a change of the configuration.

The service changes nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from evenhand.v1 import simulate_pb2 as pb
from server.config import diff, examine
from server.core.core import Core
from server.core.queries import forecast, simulate
from server.core.queries.simulation_answers import SimulatedAsk
from server.model.forecast import Forecast
from server.model.phrases import count
from server.model.quota import Configuration
from server.model.records import AskSimulation, GroupSimulation
from server.rpc.configuration_reading import check_length
from server.rpc.errors import invalid
from server.rpc.evenhand.configuration_service import change, told
from server.rpc.evenhand.decision_log import DecisionLog
from server.rpc.evenhand.encode_forecasts import forecast_picture, is_for_later
from server.rpc.evenhand.encode_simulations import AskPictures
from server.rpc.evenhand.reader import Reader
from server.rpc.evenhand.simulated import AskReader, ReadAsk
from server.rpc.limits import SIMULATED_ASKS_MAX, VICTIMS_TOLD_MAX
from server.rpc.pump import Pump
from server.rpc.roles import CALLER

REFUSED: Final = "refused"


class SimulateService:
    """The service that answers "what if"."""

    def __init__(self, core: Core, pump: Pump, log: DecisionLog) -> None:
        self._core = core
        self._pump = pump
        self._log = log

    def simulate_asks(self, request: pb.SimulateAsksRequest) -> pb.SimulateAsksResponse:
        """Return the simulated outcome of each ask. Each ask is simulated after the asks that precede it in the request. A viewer simulates in its own queues."""
        caller, now = CALLER.get(), self._pump.now()
        partition = Reader(self._core, caller).partition_name(request.partition)
        if not 0 < len(request.asks) <= SIMULATED_ASKS_MAX:
            given = f"{count(len(request.asks), 'ask')}, not 1 to {SIMULATED_ASKS_MAX}"
            raise invalid("INVALID_ASKS", ("asks", given))
        reader = AskReader(self._core.state.partitions[partition], caller)
        read = [reader.read(one) for one in request.asks]
        pictures = AskPictures(caller, self._log.names(partition))
        found, groups = self._simulated(partition, read, now)
        return pb.SimulateAsksResponse(
            asks=[pictures.ask(*pair) for pair in zip(read, found, strict=True)],
            groups=map(pictures.group, groups),
            taken_at_ms=now,
        )

    def simulate_configuration(
        self, request: pb.SimulateConfigurationRequest
    ) -> pb.SimulateConfigurationResponse:
        """Return the forecast of a configuration.

        If the text has an error, nothing is simulated.

        Raise CallError if the text is too long.
        """
        check_length(request.yaml, "yaml")
        configuration, problems, silenced = examine(request.yaml, request.source)
        answer = pb.SimulateConfigurationResponse(
            problems=told(problems),
            silenced=told(silenced),
            valid=configuration is not None,
            taken_at_ms=self._pump.now(),
        )
        if configuration is not None:
            self._foresee(configuration, answer)
        return answer

    def _simulated(
        self, partition: str, read: Sequence[ReadAsk], now: int
    ) -> tuple[list[AskSimulation], list[GroupSimulation]]:
        """Return the answers in the order of the asks, and the groups of asks.

        An ask that the core would refuse is answered without calling the core.
        """
        asks = [
            SimulatedAsk(one.queue, one.application_id, one.spec, one.message.allocationKey)
            for one in read
            if not one.refusal
        ]
        prepared = simulate.prepared(self._core, partition, asks, now)
        # All answers are read first, because the groups are known only then.
        answers = iter(list(prepared.answers()))
        found = [
            AskSimulation(REFUSED, one.queue, lines=(f"{one.refusal}.",))
            if one.refusal
            else next(answers)
            for one in read
        ]
        return found, prepared.groups

    def _foresee(
        self, configuration: Configuration, answer: pb.SimulateConfigurationResponse
    ) -> None:
        """Simulate the configuration and write the forecast into the answer."""
        now = answer.taken_at_ms = self._pump.now()
        changes = diff(self._core.state.configuration, configuration)
        found = forecast.forecast(self._core, configuration, now)
        keys = list(islice(_keys(found), VICTIMS_TOLD_MAX))
        by_partition = {
            part.partition: self._log.names_of(part.partition, keys) for part in found.partitions
        }
        own = replace(configuration, partitions=self._core.state.own(configuration))
        forecast_picture(found, own, by_partition, answer)
        answer.assumptions.extend((*found.assumptions, *forecast.ASSUMPTIONS))
        answer.not_judged.extend(change(one) for one in changes if is_for_later(one))


def _keys(found: Forecast) -> Iterator[str]:
    """Yield the keys of all pods in a forecast."""
    for part in found.partitions:
        for one in part.decisions:
            yield from (each.key for each in one.record.beneficiaries)
            yield from (each.key for each in one.record.victims)
        yield from (each.key for each in part.placements)
        yield from (each.key for each in part.ends)
