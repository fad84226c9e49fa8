"""SimulateService: what would happen to asks, and under another configuration. Changes nothing."""

import asyncio
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from evenhand.v1 import simulate_pb2 as pb
from server.core import inspect, simulate
from server.core.core import Core
from server.core.simulated import SimulatedAsk
from server.model.quota import Configuration, PartitionSpec
from server.model.records import AskSimulation, GroupSimulation, QueueSimulation
from server.model.reports import QueueReport
from server.rpc.evenhand.beside import beside
from server.rpc.evenhand.configuration import loaded, told
from server.rpc.evenhand.decision_log import DecisionLog
from server.rpc.evenhand.reader import Reader
from server.rpc.evenhand.simulated import AskReader, ReadAsk
from server.rpc.evenhand.simulation_pictures import AskPictures, queue_pictures
from server.rpc.failures import invalid
from server.rpc.limits import SIMULATED_ASKS_MAX, VICTIMS_TOLD_MAX
from server.rpc.pump import Pump
from server.rpc.roles import CALLER

REFUSED: Final = "refused"
ASKS_A_STEP: Final = 10
QUEUES_A_STEP: Final = 1
"""Asks, and queues over their new maximum, that are simulated before anybody may stop it."""


class SimulateService:
    """Answers "what if" on a picture of now; asks one request after the other."""

    def __init__(self, core: Core, pump: Pump, log: DecisionLog) -> None:
        self._core = core
        self._pump = pump
        self._log = log
        self._one = asyncio.Lock()

    async def simulate_asks(self, request: pb.SimulateAsksRequest) -> pb.SimulateAsksResponse:
        """Each ask sees what those before it would have got; a viewer simulates in its own queues."""
        caller, now = CALLER.get(), self._pump.now()
        partition = Reader(self._core, caller).partition_name(request.partition)
        if not 0 < len(request.asks) <= SIMULATED_ASKS_MAX:
            count = f"{len(request.asks)} asks, not 1 to {SIMULATED_ASKS_MAX}"
            raise invalid("INVALID_ASKS", ("asks", count))
        reader = AskReader(self._core.state.partitions[partition], caller)
        read = [reader.read(one) for one in request.asks]
        pictures = AskPictures(caller, self._log.names(partition))
        found, groups = await self._simulated(partition, read, now)
        return pb.SimulateAsksResponse(
            asks=[pictures.ask(*pair) for pair in zip(read, found, strict=True)],
            groups=map(pictures.group, groups),
            taken_at_ms=now,
        )

    async def simulate_configuration(
        self, request: pb.SimulateConfigurationRequest
    ) -> pb.SimulateConfigurationResponse:
        """Queues that would be over their maximum; with an error in the text nothing is simulated."""
        configuration, problems = loaded(request.yaml, request.source)
        answer = pb.SimulateConfigurationResponse(
            problems=told(problems),
            valid=configuration is not None,
            taken_at_ms=self._pump.now(),
        )
        if configuration is not None:
            async with self._one:
                answer.taken_at_ms = self._pump.now()
                found = await self._partitions(configuration, answer.taken_at_ms)
            answer.partitions.extend(found)
        return answer

    async def _simulated(
        self, partition: str, read: Sequence[ReadAsk], now: int
    ) -> tuple[list[AskSimulation], list[GroupSimulation]]:
        """The core's answers in the order of the asks; it is not asked about those that it would refuse."""
        asks = [
            SimulatedAsk(one.queue, one.application_id, one.spec, one.message.allocationKey)
            for one in read
            if not one.refusal
        ]
        async with self._one:
            prepared = simulate.prepared(self._core, partition, asks, now)
            answers = iter(await beside(self._pump, prepared.answers(), ASKS_A_STEP))
        found = [
            AskSimulation(REFUSED, one.queue, lines=(f"{one.refusal}.",))
            if one.refusal
            else next(answers)
            for one in read
        ]
        return found, prepared.groups

    async def _partitions(
        self, configuration: Configuration, now: int
    ) -> list[pb.PartitionSimulation]:
        """By name, those that the core has. What of the books is shown is read before anything is planned."""
        prepared = simulate.prepared_configuration(self._core, configuration, now)
        trees = {name: inspect.queue_tree(self._core, name) for name in prepared}
        wanted = {one.name: one for one in configuration.partitions}
        return [
            await self._partition(wanted[name], prepared[name], trees[name])
            for name in sorted(prepared)
        ]

    async def _partition(
        self, spec: PartitionSpec, queues: Iterator[QueueSimulation], root: QueueReport
    ) -> pb.PartitionSimulation:
        found = await beside(self._pump, queues, QUEUES_A_STEP)
        going = islice((one.key for queue in found for one in queue.victims), VICTIMS_TOLD_MAX)
        names = self._log.names_of(spec.name, going)
        pictures = await asyncio.to_thread(queue_pictures, found, spec, root, names)
        return pb.PartitionSimulation(partition=spec.name, queues=pictures)
