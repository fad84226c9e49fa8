"""The answers of the core's explain service about a story, as `evenhand explain` would print them at the story's instant."""

from collections.abc import Iterable
from contextvars import copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from evenhand.v1 import explain_pb2
from evenhand_cli.story.play import Player, Turn
from server.model.decisions import Decisions
from server.rpc.evenhand.decision_log import DecisionLog
from server.rpc.evenhand.explain_service import ExplainService
from server.rpc.roles import CALLER, LOCAL_OPERATOR

if TYPE_CHECKING:
    from server.rpc.pump import Pump


@dataclass(slots=True)
class Answers:
    """The explain service of the core of a story. The answers are those that an operator would get."""

    player: Player
    log: DecisionLog

    @classmethod
    def of(cls, player: Player) -> "Answers":
        """Return an `Answers` object for a story of which no step has run yet."""
        return cls(player, DecisionLog(player.core))

    def note(self, turn: Turn) -> None:
        """Record the decisions of a step, which later answers need."""
        self.log.decided(Decisions(turn.decisions), turn.now)

    def explain(self, keys: Iterable[str]) -> list[explain_pb2.ExplainResponse]:
        """Return the present explanation of each key."""
        return copy_context().run(self._explained, list(keys))

    def now(self) -> int:
        """Return the instant of the story in Unix milliseconds.

        The explain service needs the pump (the loop that drives a running core) only to learn the present instant. For
        this reason an `Answers` object can replace the pump.
        """
        return self.player.now

    def _explained(self, keys: list[str]) -> list[explain_pb2.ExplainResponse]:
        CALLER.set(LOCAL_OPERATOR)
        service = ExplainService(self.player.core, cast("Pump", self), self.log)
        return [service.explain(explain_pb2.ExplainRequest(key=key)) for key in keys]
