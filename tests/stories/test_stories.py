"""All stories of this folder, run through the core."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pytest
from pydantic import ValidationError

from server.config import load
from server.core.core import Core
from server.core.queries import inspect, known_decisions, shadow_records, verdicts
from server.core.queries.near_decisions import NotEvicted, not_evicted
from server.model.decisions import Decision
from server.model.events import ConfigurationApplied, ManagerRegistered
from server.model.quota import Configuration
from server.model.ranking import VICTIM
from server.model.records import DecisionRecord, Level, Spared, Verdict
from server.model.reports import QueueReport
from tests.simulation.duel import run
from tests.stories.story import Step, Story, configuration_text, read, stories
from tests.stories.told import beside, matches, released, told
from tests.stories.words import MANAGER, START, Known, UnknownWordError, events

STORIES = list(stories())
STORIES_LEAST = 60


def _configured(text: str) -> Configuration:
    configuration, problems = load(text, "story")
    assert configuration is not None, [str(problem) for problem in problems]
    return configuration


@dataclass
class Telling:
    """A story on its way: the core, the instant, and what later lines may refer to."""

    story: Story
    core: Core
    now: int = START
    known: Known = field(default_factory=Known)
    names: dict[str, str] = field(default_factory=dict)
    """What a story calls each decision."""

    def tell(self, step: Step) -> None:
        """Let one step happen and check everything that it expects."""
        self.now = self.now if step.at is None else START + step.at
        decisions = self._happen(step)
        self.core.validate()
        self.known.decisions |= {one.key: one.decision_id for one in released(decisions)}
        lines = told(decisions, self.story.also, self.names)
        if step.shadow is not None:
            _assert_told(step.shadow, beside(decisions))
        if step.then is not None:
            _assert_told(step.then, lines)
        self._check_queues(step)
        self._check_nodes(step)
        self._check_items(step)
        self._check_preemption(step)
        if step.due is not None:
            assert self.core.next_due() == START + step.due

    def _happen(self, step: Step) -> list[Decision]:
        decisions: list[Decision] = []
        if step.queues is not None:
            text = configuration_text(self.story, step.queues, step.partition)
            configuration = _configured(text)
            decisions += self.core.handle(ConfigurationApplied(configuration, "story"), self.now)
        for line in step.do:
            for event in events(line, self.known):
                decisions += self.core.handle(event, self.now)
        return decisions + run(self.core, self.now)

    def _check_queues(self, step: Step) -> None:
        known = _queues(inspect.queue_tree(self.core, "default"))
        _assert_facts(step.usage, {path: dict(queue.usage) for path, queue in known.items()})
        _assert_facts(step.promised, {path: dict(queue.promised) for path, queue in known.items()})
        _assert_facts(step.leaving, {path: dict(queue.releasing) for path, queue in known.items()})
        for name in ("deserved", "entitled", "allocated", "preempting", "standing"):
            shares = {path: queue.proportional for path, queue in known.items()}
            _assert_facts(
                getattr(step, name),
                {path: dict(getattr(one, name)) for path, one in shares.items() if one is not None},
            )
        _assert_facts(step.limits, {path: dict(queue.max) for path, queue in known.items()})
        _assert_facts(
            step.guaranteed, {path: dict(queue.guaranteed) for path, queue in known.items()}
        )
        _assert_facts(step.states, {path: queue.state for path, queue in known.items()})

    def _check_nodes(self, step: Step) -> None:
        known = inspect.nodes(self.core, "default")
        _assert_facts(step.free, {node.node_id: dict(node.free) for node in known})
        if step.reserved is not None:
            held = {node.node_id: list(node.reserved_for) for node in known if node.reserved_for}
            assert held == step.reserved

    def _check_items(self, step: Step) -> None:
        waiting = inspect.allocations(self.core, "default", asks=True)
        _assert_facts(step.waits, {each.key: each.code for each in waiting if not each.node_id})
        known = inspect.applications(self.core, "default")
        _assert_facts(
            step.applications, {each.application_id: f"{each.queue} {each.state}" for each in known}
        )

    def _check_preemption(self, step: Step) -> None:
        for key, expected in step.verdicts.items():
            found = verdicts.verdict(self.core, key, self.now)
            assert _verdict_line(found, nearest=" " in expected) == expected
        for key, expected in step.would.items():
            found = shadow_records.would(self.core, key, self.now)
            assert found is not None, f"no shadow says anything of {key}"
            assert (found.law or found.node_id) == expected, found
        for key, rules in step.spared.items():
            kept = [one for record in self._decided_for(key) for one in self._spared(record)]
            assert set(rules) <= {f"{one.law} {one.queue}" for one in kept}, kept
        for key, lines in step.stood.items():
            partition = self.core.state.partitions["default"]
            found_lines = [_stood_line(one) for one in not_evicted(partition, partition.asks[key])]
            assert found_lines == lines
        for key, lines in step.taken_from.items():
            levels = [one for record in self._decided_for(key) for one in self._levels(record)]
            assert [_level_line(one) for one in levels] == lines

    def _decided_for(self, key: str) -> list[DecisionRecord]:
        """Return the open decisions for an ask, or those of the quota runs of a queue."""
        return [
            record
            for record in known_decisions.decisions(self.core, open_only=True)
            if key in [each.key for each in record.beneficiaries]
            or (record.shrink is not None and record.shrink.queue == key)
        ]

    def _spared(self, record: DecisionRecord) -> Iterable[Spared]:
        return known_decisions.spared(self.core, record)

    def _levels(self, record: DecisionRecord) -> Iterable[Level]:
        return [one for one in known_decisions.levels(self.core, record) if one.role == VICTIM]


def _stood_line(one: NotEvicted) -> str:
    place = f"{one.place}/{one.total}" if one.place else ""
    differs = f"{one.key} {one.own} {one.other}" if one.key else ""
    words = (one.rule, place, differs, "before" if one.before else "", one.victim or one.node)
    return " ".join(filter(None, words))


def _level_line(one: Level) -> str:
    most = "" if one.max is None else f" of {one.max}"
    return f"{one.queue} {one.resource_type} {one.held} over {one.guaranteed}{most}"


def _verdict_line(found: Verdict | None, *, nearest: bool) -> str:
    """Return the rule, and where a story asks for it the nearest node and what is missing there."""
    if found is None:
        return "none"
    missing = [f"{kind}={amount}" for kind, amount in sorted(found.missing.items())]
    return " ".join([found.law, *([found.node_id, *missing] if nearest else [])])


def _assert_told(expected: list[str], found: list[tuple[str, str]]) -> None:
    lines = [line for line, _ in found]
    assert lines == [each.partition("~")[0].strip() for each in expected], found
    for each, (line, reason) in zip(expected, found, strict=True):
        assert matches(each, line, reason), (each, line, reason)


def _assert_facts(expected: Mapping[str, object], found: Mapping[str, object]) -> None:
    assert {name: found.get(name) for name in expected} == expected


def _queues(queue: QueueReport) -> dict[str, QueueReport]:
    found = {queue.path: queue}
    for child in queue.children:
        found |= _queues(child)
    return found


@pytest.mark.parametrize(
    "story",
    [story for _, story in STORIES],
    ids=[f"{file}: {story.title}" for file, story in STORIES],
)
def test_story(story: Story) -> None:
    telling = Telling(story, Core(_configured(configuration_text(story))))
    if story.register_first:
        telling.core.handle(ManagerRegistered(MANAGER), START)
    for step in story.steps:
        telling.tell(step)


def test_there_are_many_stories_and_each_title_is_its_own() -> None:
    titles = [story.title for _, story in STORIES]
    assert len(titles) >= STORIES_LEAST
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize(
    "text",
    [
        "- {title: t, rule: l, steps: [], colour: red}",
        "- {title: t, rule: l, steps: [{do: [], than: []}]}",
        "- {title: t, rule: l, rule: m, steps: []}",
        "- {title: t, steps: []}",
    ],
)
def test_a_story_with_unknown_doubled_or_missing_keys_is_an_error(text: str) -> None:
    with pytest.raises((ValidationError, ValueError)):
        read(text)


@pytest.mark.parametrize(
    "line",
    ["dance n1", "node n1 memery=5", "ask a1 x memory=1 quick", "ask", "node n1 memory=1 memory=2"],
)
def test_a_line_with_unknown_doubled_or_missing_words_is_an_error(line: str) -> None:
    with pytest.raises(UnknownWordError):
        list(events(line, Known()))
