"""The reports of the two cores about themselves during the run: one `core` line in the journal for each change."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any, Final

import grpc

from evenhand.v1 import (
    decisions_pb2,
    decisions_pb2_grpc,
    inspect_pb2,
    inspect_pb2_grpc,
    replication_pb2,
    replication_pb2_grpc,
)
from tests.faults.journal import Journal

LOOK_S: Final = 0.2
ANSWER_S: Final = 2.0
RECENT_MS: Final = 60_000
"""Age up to which decisions are asked for."""
OPTIONS: Final = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 200),
)
LEADER: Final = "leader"
FOLLOWER: Final = "follower"


@dataclass
class Seen:
    """The last report of a core: its state, its position, and that of its leader; no state when it did not answer."""

    state: str = ""
    position: int = 0
    leader_position: int = 0
    term: str = ""
    """The term in which the core got its last input."""
    difference: str = ""
    due_ms: int = 0
    """The instant at which the lowered quota is enforced, 0 when none is."""
    decided: dict[str, int] = field(default_factory=dict)
    """The recent decisions, with the instant of each in Unix milliseconds."""
    level: bool = False
    """Whether the core has joined its leader, and has all that the leader is known to have had."""
    decided_at: int = 0
    """The position of the state that has these decisions."""
    now_ms: int = 0
    """The time of the core when it answered."""


class Observer:
    """The questions to one core, asked again and again. A core that does not answer has no state."""

    def __init__(self, name: str, port: int, journal: Journal) -> None:
        self.name, self.port, self._journal = name, port, journal
        self.seen = Seen()

    async def run(self) -> None:
        """Ask until cancelled."""
        target = f"127.0.0.1:{self.port}"
        async with grpc.aio.insecure_channel(target, options=OPTIONS) as channel:
            while True:
                try:
                    new = await self._asked(channel)
                except grpc.aio.AioRpcError:
                    new = Seen()
                if _changed(new, self.seen):
                    self._journal.write("core", core=self.name, **vars(new))
                self.seen = new
                await asyncio.sleep(LOOK_S)

    async def _asked(self, channel: grpc.aio.Channel) -> Seen:
        """Return the report of the core."""
        replicas: Any = replication_pb2_grpc.ReplicationServiceStub(channel)
        request = replication_pb2.GetReplicationRequest()
        said = await replicas.GetReplication(request, timeout=ANSWER_S)
        seen = Seen(said.state, said.position, said.leader_position, said.term, said.difference)
        has_joined = said.state == FOLLOWER and said.heard_ms > 0
        seen.level = has_joined and said.position >= said.leader_position
        since = decisions_pb2.ListDecisionsRequest(since_ms=time.time_ns() // 10**6 - RECENT_MS)
        decisions: Any = decisions_pb2_grpc.DecisionServiceStub(channel)
        answer = await decisions.ListDecisions(since, timeout=ANSWER_S)
        seen.decided = {one.decision_id: one.at_ms for one in answer.decisions}
        seen.decided_at, seen.now_ms = answer.picture.position, answer.taken_at_ms
        inspect: Any = inspect_pb2_grpc.InspectServiceStub(channel)
        tree = await inspect.GetQueueTree(inspect_pb2.GetQueueTreeRequest(), timeout=ANSWER_S)
        queues = tree.tree.root.children
        seen.due_ms = next((one.quota_due_ms for one in queues if one.name == "lent"), 0)
        return seen


def _changed(new: Seen, old: Seen) -> bool:
    """Return whether a core said something new, besides its time and its positions while it leads."""
    facts = ("state", "level", "difference", "due_ms", "decided")
    return any(getattr(new, name) != getattr(old, name) for name in facts)
