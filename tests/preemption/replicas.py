"""A small cluster of ReplicaSets: each evicted pod comes back at once under another key."""

from typing import Any

from evenhand_cli.story.form import Story, configuration_text
from evenhand_cli.story.words import MANAGER, START, Known, events
from server.config import load
from server.core.core import Core
from server.model.decisions import Decided, Decision, Noted, Released, Termination
from server.model.events import ManagerRegistered, ReleaseRequested
from server.model.quota import Configuration
from server.model.reasons import Code
from server.model.records import DecisionRecord

TURN_MS = 31_000
"""Milliseconds of a turn, longer than a claim's delay, so that a pod that came back may claim in the next turn."""


def configured(queues: list[dict[str, Any]], **partition: Any) -> Configuration:
    """Return a configuration with these queues below a root to which every user may submit."""
    story = Story(title="replicas", rule="7.7", queues=queues, partition=partition, steps=[])
    found, problems = load(configuration_text(story), "replicas")
    assert found is not None, [str(problem) for problem in problems]
    return found


class Replicas:
    """ReplicaSets on a core; `claims` are the records of its claims, `notes` its notes."""

    def __init__(self, queues: list[dict[str, Any]], **partition: Any) -> None:
        self.core = Core(configured(queues, **partition))
        self.now = START
        self.known = Known()
        self.made = 0
        self.claims: list[DecisionRecord] = []
        self.notes: list[Noted] = []
        self.confirming = True
        self._take(self.core.handle(ManagerRegistered(MANAGER), self.now))

    @property
    def thrashing(self) -> list[Noted]:
        """Return the notes of the thrashing monitor."""
        return [one for one in self.notes if one.code is Code.PREEMPTION_STORM]

    def say(self, *lines: str) -> None:
        """Send events, written as lines of stories."""
        for line in lines:
            for event in events(line, self.known):
                self._take(self.core.handle(event, self.now))

    def turns(self, count: int) -> None:
        """Let this number of turns pass."""
        for _ in range(count):
            self.tick()
            self.now += TURN_MS

    def tick(self) -> None:
        """Tick until nothing more is decided, and carry out the decisions."""
        more = True
        while more:
            done = self.core.tick(self.now)
            more = done.more
            self._take(done.decisions)
        self.core.validate()

    def _take(self, decisions: list[Decision]) -> None:
        self.notes += [one for one in decisions if isinstance(one, Noted)]
        self.claims += [one.record for one in decisions if isinstance(one, Decided)]
        for one in decisions:
            if isinstance(one, Released) and one.termination is Termination.PREEMPTED_BY_SCHEDULER:
                self._gone(one)

    def _gone(self, one: Released) -> None:
        if not self.confirming:
            return
        spec = self.core.state.partitions["default"].asks[one.key].spec
        confirmed = ReleaseRequested(
            MANAGER, one.application_id, one.key, termination=one.termination
        )
        self._take(self.core.handle(confirmed, self.now))
        self.made += 1
        size = " ".join(f"{kind}={amount}" for kind, amount in spec.resource)
        again = f"ask again{self.made} {one.application_id} {size} priority={spec.priority}"
        for event in events(again, self.known):
            self._take(self.core.handle(event, self.now))
