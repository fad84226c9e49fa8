"""The requests of the demonstration to its core.

The requests are sent over the network, like the requests of every other client of the core.
"""

import asyncio
from dataclasses import dataclass, replace

import grpc

from evenhand.v1 import (
    decisions_pb2,
    decisions_pb2_grpc,
    explain_pb2,
    explain_pb2_grpc,
    inspect_pb2,
    inspect_pb2_grpc,
    watch_pb2,
    watch_pb2_grpc,
)
from evenhand_cli.demo.reasons import WaitingGroup
from evenhand_cli.render.tables import WAITING_STATES

INTERVAL_MS = 100
PAGE_SIZE = 1000
EXPLAINED_MAX = 20
"""Maximum number of groups of waiting pods whose example the core is asked to explain."""


@dataclass(frozen=True, slots=True)
class Look:
    """Queue tree and counts of the core at one instant."""

    tree: inspect_pb2.QueueTree
    summary: inspect_pb2.Partition


class Observer:
    """A client that follows one partition; `latest` is the newest state, None before the first answer."""

    def __init__(self, channel: grpc.aio.Channel, partition: str = "default") -> None:
        self._partition = partition
        self._inspect = inspect_pb2_grpc.InspectServiceStub(channel)
        self._explain = explain_pb2_grpc.ExplainServiceStub(channel)
        self._decisions = decisions_pb2_grpc.DecisionServiceStub(channel)
        self._watch = watch_pb2_grpc.WatchServiceStub(channel)
        self.latest: Look | None = None

    async def follow(self) -> None:
        """Keep `latest` up to date until cancelled."""
        request = watch_pb2.WatchQueuesRequest(
            partition=self._partition, min_interval_ms=INTERVAL_MS
        )
        async for answer in self._watch.WatchQueues(request, wait_for_ready=True):
            self.latest = Look(answer.tree, answer.summary)

    async def look(self) -> Look:
        """Return the present queue tree and the present summary of the partition. Raises RpcError if a call fails."""
        tree, partitions = await asyncio.gather(
            self._inspect.GetQueueTree(inspect_pb2.GetQueueTreeRequest(partition=self._partition)),
            self._inspect.ListPartitions(inspect_pb2.ListPartitionsRequest()),
        )
        summary = next(one for one in partitions.partitions if one.name == self._partition)
        self.latest = Look(tree.tree, summary)
        return self.latest

    async def asks(self) -> list[inspect_pb2.Allocation]:
        """Return every waiting ask. Raises RpcError if a call fails."""
        found: list[inspect_pb2.Allocation] = []
        request = inspect_pb2.ListAllocationsRequest(
            partition=self._partition, include_asks=True, page_size=PAGE_SIZE
        )
        while True:
            page = await self._inspect.ListAllocations(request)
            found += (one for one in page.allocations if one.state in WAITING_STATES)
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    async def decisions(self) -> list[decisions_pb2.Decision]:
        """Return the preemption decisions that the core keeps, oldest first. Raises RpcError if a call fails."""
        found: list[decisions_pb2.Decision] = []
        request = decisions_pb2.ListDecisionsRequest(partition=self._partition)
        while True:
            page = await self._decisions.ListDecisions(request)
            found += page.decisions
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    async def findings(self) -> list[inspect_pb2.Finding]:
        """Return the findings of the core's consistency check. Raises RpcError if the call fails."""
        request = inspect_pb2.CheckConsistencyRequest(partition=self._partition)
        return list((await self._inspect.CheckConsistency(request)).findings)

    async def explained(self, groups: list[WaitingGroup]) -> list[WaitingGroup]:
        """Return the groups of waiting pods, with the core's sentence about the example of each group.

        Only the first `EXPLAINED_MAX` groups get such a sentence. Raises RpcError if a call fails.
        """
        told = []
        for number, group in enumerate(groups):
            if group.key and number < EXPLAINED_MAX:
                request = explain_pb2.ExplainRequest(key=group.key)
                answer = await self._explain.Explain(request)
                told.append(replace(group, why=_reason(answer)))
            else:
                told.append(group)
        return told


def _reason(answer: explain_pb2.ExplainResponse) -> str:
    """Return the first sentence of an explanation, without the beginning that says how long the ask has waited."""
    first = answer.lines[0] if answer.lines else ""
    return first.partition(": ")[2] or first
